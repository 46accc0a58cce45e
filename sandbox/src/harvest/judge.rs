//! What a changed path may not be, by its name and by where a link leads: one rule for a harvest, which looks at what
//! an agent left, and for a landing, which looks at what would change on a branch.

use super::name_folding::is_dot_git;
use super::{ViolationReason, protected};
use crate::path::RelPath;
use crate::scope::{Scope, ScopeVerdict};

/// Why a path may not change, by its name alone.
pub fn path(scope: &Scope, path: &RelPath) -> Option<ViolationReason> {
    if path.components().any(is_dot_git) {
        return Some(ViolationReason::NestedGit);
    }
    match scope.judge(path) {
        ScopeVerdict::Denied(glob) => Some(ViolationReason::Denied { glob: glob.as_str().to_owned() }),
        ScopeVerdict::Outside => Some(ViolationReason::OutOfScope),
        ScopeVerdict::InScope => protected::refusal(scope, path),
    }
}

/// Why a link at a path may not say this.
pub fn target(path: &RelPath, target: &[u8]) -> Option<ViolationReason> {
    (!stays_in_tree(path, target)).then(|| ViolationReason::LinkLeavesTree { target: target.to_vec() })
}

/// Whether a link certainly leads to something in the workspace that is not git's. Its own directory is a
/// real one, so leading `..` are counted exactly; a `..` after a name may follow another link first
/// (`d -> .`, then `d/../x` is outside), so it is never believed.
fn stays_in_tree(path: &RelPath, target: &[u8]) -> bool {
    if target.first() == Some(&b'/') {
        return false;
    }
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
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("parses")
    }

    #[test]
    fn a_link_stays_only_when_nothing_can_lead_it_out() {
        let stays = |path: &str, text: &str| target(&parse(path), text.as_bytes()).is_none();
        assert!(stays("a", "b"));
        assert!(stays("a/b/c", "../../d/e"));
        assert!(stays("a", "."));
        assert!(stays("a/b", "..//./c"));
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a/b", "../../x"),
            ("a", "d/../x"),
            ("a", ".git/config"),
            ("a/b", "../.GIT"),
            ("a", "vendor/.git/hooks"),
        ] {
            assert!(!stays(path, target), "{path} -> {target}");
        }
    }

    #[test]
    fn no_scope_opens_a_repository() {
        let scope = Scope::parse(&["**", ".git/**", "a/.git/config"], &[]).expect("globs");
        for text in [".git/config", "a/.GIT/hooks/x", ".g\u{200c}it", "git~1/x", ".git ./x", ".git::$DATA"] {
            assert_eq!(path(&scope, &parse(text)), Some(ViolationReason::NestedGit), "{text}");
        }
        assert_eq!(path(&scope, &parse(".gitignore")), None);
    }
}
