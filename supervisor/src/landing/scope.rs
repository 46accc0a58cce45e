//! The second look at the scope: at what would change on the branch, not at what the agent changed.
//!
//! A three-way merge follows a person's rename. An agent that may edit `src/deploy.sh` would change
//! `infra/deploy.sh`, because that is where the person moved the file meanwhile. So every path in which the
//! branch and the result differ is judged again, each end of what looks like a rename by itself.

use std::fmt;

use agency_sandbox::harvest::control::control_file;
use agency_sandbox::path::{RelPath, escape};
use agency_sandbox::scope::{Judgement, Scope};
use serde::{Serialize, Serializer};

use super::difference::{Changed, Kind};

/// A path that keeps work from landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outside {
    pub path: RelPath,
    #[serde(flatten)]
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// No write glob matches.
    OutOfScope,
    /// A deny glob matches.
    Denied {
        glob: String,
    },
    /// A file that a later, trusted run obeys, and no glob names it.
    ControlFile {
        name: &'static str,
        reader: &'static str,
    },
    Submodule,
    /// A part of it is `.git`, or a name that some file system takes for it.
    DotGit,
    /// The link leads out of the tree from where it would be.
    LinkLeavesTree {
        #[serde(serialize_with = "escaped")]
        target: Vec<u8>,
    },
}

fn escaped<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(bytes))
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.path)?;
        match &self.why {
            Why::OutOfScope => f.write_str("would change on the branch, and no glob of the scope matches it"),
            Why::Denied { glob } => {
                write!(f, "would change on the branch, and `{}` forbids it", escape(glob.as_bytes()))
            }
            Why::ControlFile { name, reader } => {
                write!(f, "would change on the branch, and {reader} obeys `{name}`: no glob names it")
            }
            Why::Submodule => f.write_str("is a submodule, and would change on the branch"),
            Why::DotGit => f.write_str("would be part of a `.git`"),
            Why::LinkLeavesTree { target } => {
                write!(f, "would be a link to `{}`, out of the tree", escape(target))
            }
        }
    }
}

/// Every path that may not change. One is enough to refuse the whole.
pub fn outside(scope: &Scope, changed: &[Changed]) -> Vec<Outside> {
    let judged =
        changed.iter().filter_map(|one| Some(Outside { path: one.path.clone(), why: judge(scope, one)? }));
    judged.collect()
}

fn judge(scope: &Scope, changed: &Changed) -> Option<Why> {
    let entries = [&changed.old, &changed.new];
    if entries.into_iter().flatten().any(|entry| entry.kind == Kind::Submodule) {
        return Some(Why::Submodule);
    }
    if changed.path.components().any(is_dot_git) {
        return Some(Why::DotGit);
    }
    match scope.judge(&changed.path) {
        Judgement::Denied(glob) => return Some(Why::Denied { glob: glob.as_str().to_owned() }),
        Judgement::Outside => return Some(Why::OutOfScope),
        Judgement::InScope => {}
    }
    if let Some((control, end)) = control_file(&changed.path)
        && !is_named(scope, &changed.path, end)
    {
        return Some(Why::ControlFile { name: control.path, reader: control.reader });
    }
    let target = changed.target.as_ref().filter(|target| !stays_in_tree(&changed.path, target))?;
    Some(Why::LinkLeavesTree { target: target.clone() })
}

/// Whether a glob reaches into a protected name before its first wildcard. The harvest has the same rule
/// (`agency_sandbox::harvest::control`).
fn is_named(scope: &Scope, path: &RelPath, end: usize) -> bool {
    let literal = |part: &&str| !part.contains(['*', '?', '[', ']', '{', '}', '\\']);
    scope
        .write
        .iter()
        .any(|glob| glob.matches(path) && glob.as_str().split('/').take_while(literal).count() >= end)
}

/// Whether a link leads to something in the tree, and not into a `.git`. A `..` after a name may follow
/// another link first, so it is not believed.
fn stays_in_tree(path: &RelPath, target: &[u8]) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    let mut named = false;
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if named || depth == 0 => return false,
            b".." => depth -= 1,
            name if is_dot_git(name) => return false,
            _ => named = true,
        }
    }
    !target.starts_with(b"/")
}

/// Whether a name is `.git` to git, to HFS+, which ignores some invisible characters, or to NTFS, which has
/// short names, streams, and ignores what is at the end. The harvest has the same rule.
fn is_dot_git(name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name).to_lowercase();
    let invisible = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    text.split('\\').any(|part| {
        let seen: String = part.chars().filter(|c| !invisible(c)).take_while(|c| *c != ':').collect();
        let seen = seen.trim_end_matches([' ', '.']);
        seen == ".git" || seen.strip_prefix("git~").is_some_and(|digit| digit.len() == 1)
    })
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

    fn said(write: &[&str], deny: &[&str], changed: Changed) -> Option<String> {
        let scope = Scope::parse(write, deny).expect("globs");
        outside(&scope, &[changed]).pop().map(|outside| outside.to_string())
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
            assert!(said.is_some_and(|said| said.ends_with("would be part of a `.git`")), "{path}");
        }
        assert_eq!(said(&["**"], &[], changed(".gitignore", Kind::File, None)), None);
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
