//! The second check of the scope: of the changes to the branch, not of the agent's changes.
//!
//! A three-way merge follows a person's rename. An agent that may edit `src/deploy.sh` would change
//! `infra/deploy.sh`, because that is where the person moved the file meanwhile. So every path in which the
//! branch and the result differ is judged again, each end of what looks like a rename by itself.

use std::collections::HashSet;
use std::fmt;

use agency_sandbox::harvest::links::{ProtectedAliases, TooManyLinks};
use agency_sandbox::harvest::{ViolationReason, judge};
use agency_sandbox::path::RelPath;
use agency_sandbox::scope::Scope;
use serde::Serialize;

use super::tree_diff::{ChangedPath, GitTreeEntryKind, TreeDiff};

/// A path because of which work may not land.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedPath {
    pub path: RelPath,
    pub why: RefusalCause,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RefusalCause {
    Submodule {
        submodule: bool,
    },
    /// A reason that would refuse it at the harvest, too.
    Judged(ViolationReason),
}

impl fmt::Display for RefusedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            RefusalCause::Submodule { .. } => {
                write!(f, "{} is a submodule, and would change on the branch", self.path)
            }
            RefusalCause::Judged(
                reason @ (ViolationReason::OutOfScope
                | ViolationReason::Denied { .. }
                | ViolationReason::ControlFile { .. }),
            ) => {
                write!(f, "{} would change on the branch, and {reason}", self.path)
            }
            RefusalCause::Judged(reason) => {
                write!(f, "{} would change on the branch: it {reason}", self.path)
            }
        }
    }
}

/// Every path that may not change. One is enough to refuse the work.
pub fn refused_paths(scope: &Scope, difference: &TreeDiff) -> Vec<RefusedPath> {
    let refused =
        |path: &RelPath, reason| RefusedPath { path: path.clone(), why: RefusalCause::Judged(reason) };
    let mut all: Vec<RefusedPath> =
        difference.repositories.iter().map(|path| refused(path, ViolationReason::Repository)).collect();
    for changed in &difference.changed {
        all.extend(judged(scope, changed).map(|why| RefusedPath { path: changed.path.clone(), why }));
    }
    match led_to(scope, difference) {
        Ok(led) => {
            let known: HashSet<RelPath> = all.iter().map(|one| one.path.clone()).collect();
            all.extend(led.into_iter().filter(|one| !known.contains(&one.path)));
        }
        Err(TooManyLinks) => all.push(refused(&RelPath::root(), ViolationReason::Tangled)),
    }
    all
}

fn judged(scope: &Scope, changed: &ChangedPath) -> Option<RefusalCause> {
    let entries = [&changed.old, &changed.new];
    if entries.into_iter().flatten().any(|entry| entry.kind == GitTreeEntryKind::Submodule) {
        return Some(RefusalCause::Submodule { submodule: true });
    }
    let target = || judge::target(&changed.path, changed.target.as_ref()?);
    judge::path(scope, &changed.path).or_else(target).map(RefusalCause::Judged)
}

/// Changed paths to which a protected name leads, and links that lead to such a path.
fn led_to(scope: &Scope, difference: &TreeDiff) -> Result<Vec<RefusedPath>, TooManyLinks> {
    if difference.changed.is_empty() {
        return Ok(Vec::new());
    }
    let [before, after] = difference.links.as_ref().ok_or(TooManyLinks)?;
    let mut aliases = ProtectedAliases::find(scope, before, after)?;
    let mut led = Vec::new();
    for ChangedPath { path, target, .. } in &difference.changed {
        let ahead = if target.is_some() { aliases.judge_link(path)? } else { None };
        let reason = ahead.or_else(|| aliases.judge(path));
        led.extend(
            reason.map(|reason| RefusedPath { path: path.clone(), why: RefusalCause::Judged(reason) }),
        );
    }
    Ok(led)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Oid;
    use crate::tree_diff::GitTreeEntry;

    fn changed(path: &str, kind: GitTreeEntryKind, target: Option<&str>) -> ChangedPath {
        let object = Oid::parse(&"a".repeat(40)).expect("a name");
        ChangedPath {
            path: RelPath::parse(path.as_bytes()).expect("a path"),
            old: None,
            new: Some(GitTreeEntry { kind, object }),
            target: target.map(|target| target.as_bytes().to_vec()),
        }
    }

    fn difference(changed: ChangedPath) -> TreeDiff {
        TreeDiff { changed: vec![changed], links: Some(Default::default()), ..TreeDiff::default() }
    }

    fn said(write: &[&str], deny: &[&str], changed: ChangedPath) -> Option<String> {
        let scope = Scope::parse(write, deny).expect("globs");
        refused_paths(&scope, &difference(changed)).pop().map(|outside| outside.to_string())
    }

    #[test]
    fn every_path_is_judged_by_itself_and_named() {
        assert_eq!(said(&["src/**"], &[], changed("src/a", GitTreeEntryKind::File, None)), None);
        let moved =
            said(&["src/**"], &["infra/**"], changed("infra/deploy.sh", GitTreeEntryKind::Program, None));
        assert_eq!(
            moved.expect("refused"),
            "infra/deploy.sh would change on the branch, and `infra/**` forbids it"
        );
        let beside =
            said(&["src/**"], &[], changed("Makefile", GitTreeEntryKind::File, None)).expect("refused");
        assert!(beside.contains("no glob of the scope"), "{beside}");
    }

    #[test]
    fn a_control_file_needs_a_glob_that_names_it() {
        let workflow = || changed(".github/workflows/ci.yml", GitTreeEntryKind::File, None);
        assert!(said(&["**"], &[], workflow()).expect("refused").contains("GitHub Actions"));
        assert!(said(&[".github/**"], &[], workflow()).is_some());
        assert_eq!(said(&[".github/workflows/*.yml"], &[], workflow()), None);
        assert!(said(&["**/.envrc"], &[], changed("a/.envrc", GitTreeEntryKind::File, None)).is_some());
    }

    #[test]
    fn nothing_becomes_part_of_a_repository() {
        for path in [".git/config", "a/.GIT/hooks/x", ".g\u{200c}it", "git~1/x", ".git ./x", ".git::$DATA"] {
            let said = said(&["**"], &[], changed(path, GitTreeEntryKind::File, None));
            assert!(said.is_some_and(|said| said.ends_with("the `.git` of a nested repository")), "{path}");
        }
        assert_eq!(said(&["**"], &[], changed(".gitignore", GitTreeEntryKind::File, None)), None);
    }

    #[test]
    fn a_repository_by_its_shape_and_what_a_protected_name_leads_to_are_refused() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let scope = Scope::parse(&["src/**", "docs/**"], &[]).expect("globs");
        let mut shaped = difference(changed("src/f/HEAD", GitTreeEntryKind::File, None));
        shaped.repositories.push(path("src/f"));
        assert!(refused_paths(&scope, &shaped)[0].to_string().contains("takes for a repository"));
        let mut led = difference(changed("docs/guide.md", GitTreeEntryKind::File, None));
        let links = led.links.as_mut().expect("links");
        links[0].insert(path("AGENTS.md"), b"docs/guide.md".to_vec());
        assert!(refused_paths(&scope, &led)[0].to_string().contains("the link AGENTS.md leads to it"));
        led.links = None;
        assert_eq!(refused_paths(&scope, &led)[0].why, RefusalCause::Judged(ViolationReason::Tangled));
    }

    #[test]
    fn submodules_and_links_that_lead_out_are_refused() {
        assert!(
            said(&["**"], &[], changed("lib", GitTreeEntryKind::Submodule, None))
                .expect("refused")
                .contains("submodule")
        );
        assert_eq!(said(&["**"], &[], changed("a/l", GitTreeEntryKind::Link, Some("../b"))), None);
        for target in ["../../b", "/etc/passwd", "x/../../b", "../.git/config"] {
            assert!(
                said(&["**"], &[], changed("a/l", GitTreeEntryKind::Link, Some(target))).is_some(),
                "{target}"
            );
        }
    }
}
