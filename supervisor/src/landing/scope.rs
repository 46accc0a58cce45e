//! The second look at the scope: at what would change on the branch, not at what the agent changed.
//!
//! A three-way merge follows a person's rename. An agent that may edit `src/deploy.sh` would change
//! `infra/deploy.sh`, because that is where the person moved the file meanwhile. So every path in which the
//! branch and the result differ is judged again, each end of what looks like a rename by itself.

use std::collections::HashSet;
use std::fmt;

use agency_sandbox::harvest::links::{Aliases, Tangled};
use agency_sandbox::harvest::{Reason, judge};
use agency_sandbox::path::RelPath;
use agency_sandbox::scope::Scope;
use serde::Serialize;

use super::difference::{Changed, Difference, Kind};

/// A path that keeps work from landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outside {
    pub path: RelPath,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Why {
    Submodule {
        submodule: bool,
    },
    /// What keeps it from being harvested keeps it from landing.
    Judged(Reason),
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Submodule { .. } => {
                write!(f, "{} is a submodule, and would change on the branch", self.path)
            }
            Why::Judged(
                reason @ (Reason::OutOfScope | Reason::Denied { .. } | Reason::ControlFile { .. }),
            ) => {
                write!(f, "{} would change on the branch, and {reason}", self.path)
            }
            Why::Judged(reason) => write!(f, "{} would change on the branch: it {reason}", self.path),
        }
    }
}

/// Every path that may not change. One is enough to refuse the whole.
pub fn outside(scope: &Scope, difference: &Difference) -> Vec<Outside> {
    let refused = |path: &RelPath, reason| Outside { path: path.clone(), why: Why::Judged(reason) };
    let mut all: Vec<Outside> =
        difference.repositories.iter().map(|path| refused(path, Reason::Repository)).collect();
    for changed in &difference.changed {
        all.extend(judged(scope, changed).map(|why| Outside { path: changed.path.clone(), why }));
    }
    match led_to(scope, difference) {
        Ok(led) => {
            let known: HashSet<RelPath> = all.iter().map(|one| one.path.clone()).collect();
            all.extend(led.into_iter().filter(|one| !known.contains(&one.path)));
        }
        Err(Tangled) => all.push(refused(&RelPath::root(), Reason::Tangled)),
    }
    all
}

fn judged(scope: &Scope, changed: &Changed) -> Option<Why> {
    let entries = [&changed.old, &changed.new];
    if entries.into_iter().flatten().any(|entry| entry.kind == Kind::Submodule) {
        return Some(Why::Submodule { submodule: true });
    }
    let target = || judge::target(&changed.path, changed.target.as_ref()?);
    judge::path(scope, &changed.path).or_else(target).map(Why::Judged)
}

/// What changes that a protected name leads to, and links that lead to one.
fn led_to(scope: &Scope, difference: &Difference) -> Result<Vec<Outside>, Tangled> {
    if difference.changed.is_empty() {
        return Ok(Vec::new());
    }
    let [before, after] = difference.links.as_ref().ok_or(Tangled)?;
    let mut aliases = Aliases::find(scope, before, after)?;
    let mut led = Vec::new();
    for Changed { path, target, .. } in &difference.changed {
        let ahead = if target.is_some() { aliases.judge_link(path)? } else { None };
        let reason = ahead.or_else(|| aliases.judge(path));
        led.extend(reason.map(|reason| Outside { path: path.clone(), why: Why::Judged(reason) }));
    }
    Ok(led)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landing::difference::Entry;
    use crate::landing::names::Oid;

    fn changed(path: &str, kind: Kind, target: Option<&str>) -> Changed {
        let object = Oid::parse(&"a".repeat(40)).expect("a name");
        Changed {
            path: RelPath::parse(path.as_bytes()).expect("a path"),
            old: None,
            new: Some(Entry { kind, object }),
            target: target.map(|target| target.as_bytes().to_vec()),
        }
    }

    fn difference(changed: Changed) -> Difference {
        Difference { changed: vec![changed], links: Some(Default::default()), ..Difference::default() }
    }

    fn said(write: &[&str], deny: &[&str], changed: Changed) -> Option<String> {
        let scope = Scope::parse(write, deny).expect("globs");
        outside(&scope, &difference(changed)).pop().map(|outside| outside.to_string())
    }

    #[test]
    fn every_path_is_judged_by_itself_and_named() {
        assert_eq!(said(&["src/**"], &[], changed("src/a", Kind::File, None)), None);
        let moved = said(&["src/**"], &["infra/**"], changed("infra/deploy.sh", Kind::Program, None));
        assert_eq!(
            moved.expect("refused"),
            "infra/deploy.sh would change on the branch, and `infra/**` forbids it"
        );
        let beside = said(&["src/**"], &[], changed("Makefile", Kind::File, None)).expect("refused");
        assert!(beside.contains("no glob of the scope"), "{beside}");
    }

    #[test]
    fn a_control_file_needs_a_glob_that_names_it() {
        let workflow = || changed(".github/workflows/ci.yml", Kind::File, None);
        assert!(said(&["**"], &[], workflow()).expect("refused").contains("GitHub Actions"));
        assert!(said(&[".github/**"], &[], workflow()).is_some());
        assert_eq!(said(&[".github/workflows/*.yml"], &[], workflow()), None);
        assert!(said(&["**/.envrc"], &[], changed("a/.envrc", Kind::File, None)).is_some());
    }

    #[test]
    fn nothing_becomes_part_of_a_repository() {
        for path in [".git/config", "a/.GIT/hooks/x", ".g\u{200c}it", "git~1/x", ".git ./x", ".git::$DATA"] {
            let said = said(&["**"], &[], changed(path, Kind::File, None));
            assert!(said.is_some_and(|said| said.ends_with("the `.git` of a nested repository")), "{path}");
        }
        assert_eq!(said(&["**"], &[], changed(".gitignore", Kind::File, None)), None);
    }

    #[test]
    fn a_repository_by_its_shape_and_what_a_protected_name_leads_to_are_refused() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let scope = Scope::parse(&["src/**", "docs/**"], &[]).expect("globs");
        let mut shaped = difference(changed("src/f/HEAD", Kind::File, None));
        shaped.repositories.push(path("src/f"));
        assert!(outside(&scope, &shaped)[0].to_string().contains("takes for a repository"));
        let mut led = difference(changed("docs/guide.md", Kind::File, None));
        let links = led.links.as_mut().expect("links");
        links[0].insert(path("AGENTS.md"), b"docs/guide.md".to_vec());
        assert!(outside(&scope, &led)[0].to_string().contains("the link AGENTS.md leads to it"));
        led.links = None;
        assert_eq!(outside(&scope, &led)[0].why, Why::Judged(Reason::Tangled));
    }

    #[test]
    fn submodules_and_links_that_lead_out_are_refused() {
        assert!(
            said(&["**"], &[], changed("lib", Kind::Submodule, None)).expect("refused").contains("submodule")
        );
        assert_eq!(said(&["**"], &[], changed("a/l", Kind::Link, Some("../b"))), None);
        for target in ["../../b", "/etc/passwd", "x/../../b", "../.git/config"] {
            assert!(said(&["**"], &[], changed("a/l", Kind::Link, Some(target))).is_some(), "{target}");
        }
    }
}
