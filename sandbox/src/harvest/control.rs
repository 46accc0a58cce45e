//! Files that make a later, trusted run do something.
//!
//! A tool obeys these by itself: an editor opens the folder, a shell enters it, a service receives the push,
//! another agent reads its instructions. An agent that may write `**` was asked to work on the code, not on
//! those; they are in scope only when a write glob names them, that is, when its part before the first
//! wildcard reaches into the name protected here. `.claude/**` opens `.claude`, and `.github/workflows/ci.yml`
//! one workflow; `**`, `.*/**` and `**/.envrc` open none of them.
//!
//! Instructions (`CLAUDE.md`, `AGENTS.md`) are on the list: they are only text, but text that the next agent
//! follows with another task's permissions. `.gitignore` is not: it runs nothing, and honest work edits it
//! all the time. Build files (`Cargo.toml`, `package.json`, `Makefile`) are not either: they are the work, and
//! run when somebody builds.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::names;
use crate::path::RelPath;
use crate::scope::Scope;

/// One protected name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// A file, or a directory with everything in it, in lower case: matched without regard to case, because
    /// the file systems of some readers have none.
    pub path: &'static str,
    /// Whether its reader honours it in every directory, or only at the top of the workspace.
    pub nested: bool,
    /// Who obeys it.
    pub reader: &'static str,
}

const fn top(path: &'static str, reader: &'static str) -> Control {
    Control { path, nested: false, reader }
}

const fn anywhere(path: &'static str, reader: &'static str) -> Control {
    Control { path, nested: true, reader }
}

/// Every protected name.
pub const CONTROL_FILES: &[Control] = &[
    // Agents: settings, hooks, tools, and the instructions they read unasked.
    anywhere(".claude", "Claude Code"),
    anywhere("claude.md", "Claude Code"),
    anywhere("claude.local.md", "Claude Code"),
    anywhere(".codex", "Codex"),
    anywhere("agents.md", "coding agents"),
    anywhere("agents.override.md", "coding agents"),
    anywhere(".agents", "coding agents"),
    anywhere(".agent", "Antigravity"),
    anywhere(".mcp.json", "coding agents"),
    anywhere(".gemini", "Gemini CLI"),
    anywhere("gemini.md", "Gemini CLI"),
    anywhere(".cursor", "Cursor"),
    anywhere(".cursorrules", "Cursor"),
    anywhere(".windsurf", "Windsurf"),
    anywhere(".windsurfrules", "Windsurf"),
    anywhere(".devin", "Devin"),
    anywhere(".clinerules", "Cline"),
    anywhere(".continue", "Continue"),
    anywhere(".opencode", "opencode"),
    anywhere("opencode.json", "opencode"),
    anywhere(".aider.conf.yml", "aider"),
    top("agency.md", "aider, which agency told to read it"),
    // Editors and shells, on opening or entering a folder.
    anywhere(".vscode", "Visual Studio Code"),
    anywhere(".idea", "JetBrains IDEs"),
    anywhere(".devcontainer", "development containers"),
    anywhere(".devcontainer.json", "development containers"),
    anywhere(".envrc", "direnv"),
    anywhere("mise.toml", "mise"),
    anywhere(".mise.toml", "mise"),
    anywhere(".vimrc", "vim"),
    anywhere(".exrc", "vim"),
    anywhere(".nvim.lua", "neovim"),
    anywhere(".dir-locals.el", "Emacs"),
    // Git and its hooks.
    anywhere(".gitattributes", "git"),
    anywhere(".gitmodules", "git"),
    anywhere(".gitconfig", "git"),
    anywhere(".githooks", "git"),
    anywhere(".husky", "git hooks"),
    anywhere(".pre-commit-config.yaml", "git hooks"),
    anywhere("lefthook.yml", "git hooks"),
    anywhere(".lefthook.yml", "git hooks"),
    // Services that run on a push.
    top(".github", "GitHub"),
    top(".github/workflows", "GitHub Actions"),
    top(".github/actions", "GitHub Actions"),
    top(".gitlab", "GitLab"),
    top(".gitlab-ci.yml", "GitLab CI"),
    top(".gitea", "Gitea Actions"),
    top(".forgejo", "Forgejo Actions"),
    top(".circleci", "CircleCI"),
    top(".buildkite", "Buildkite"),
    top(".woodpecker", "Woodpecker"),
    top(".woodpecker.yml", "Woodpecker"),
    top(".drone.yml", "Drone"),
    top(".travis.yml", "Travis CI"),
    top(".cirrus.yml", "Cirrus CI"),
    top("jenkinsfile", "Jenkins"),
    top("azure-pipelines.yml", "Azure Pipelines"),
    top("bitbucket-pipelines.yml", "Bitbucket Pipelines"),
    // This program, and the boards it takes its work from.
    anywhere("agency.toml", "agency"),
    anywhere(".kodingx", "agency"),
    anywhere("codifica.json", "agency"),
    anywhere(".review-loop-state.json", "agency"),
    anywhere(".agents-work", "agency"),
    top("collaboration", "agency"),
];

/// The list by its first component: every changed path is looked up, and there may be very many.
static BY_FIRST: LazyLock<HashMap<&str, Vec<&Control>>> = LazyLock::new(|| {
    let mut by_first: HashMap<_, Vec<_>> = HashMap::new();
    for control in CONTROL_FILES {
        by_first.entry(control.path.split('/').next().unwrap_or_default()).or_default().push(control);
    }
    by_first
});

/// The protected name a path lies at or below, and how many components of the path reach to its end. The
/// longest one counts: a glob for `.github/**` names no workflow.
pub fn control_file(path: &RelPath) -> Option<(&'static Control, usize)> {
    let folded: Vec<String> = path.components().map(names::fold).collect();
    let mut found = None;
    for (start, first) in folded.iter().enumerate() {
        for &control in BY_FIRST.get(first.as_str()).into_iter().flatten() {
            let length = control.path.split('/').count();
            let here = (start == 0 || control.nested)
                && folded[start..].iter().take(length).map(String::as_str).eq(control.path.split('/'));
            if here && found.is_none_or(|(_, end)| end < start + length) {
                found = Some((control, start + length));
            }
        }
    }
    found
}

/// The protected name that keeps a path out of scope although a glob matches it.
pub(crate) fn forbids(scope: &Scope, path: &RelPath) -> Option<&'static Control> {
    let (control, end) = control_file(path)?;
    let named = scope
        .write
        .iter()
        .any(|glob| glob.matches(path) && glob.literal_prefix().0.components().count() >= end);
    (!named).then_some(control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbidden(glob: &str, path: &str) -> bool {
        let scope = Scope::parse(&[glob], &[]).expect("parses");
        forbids(&scope, &RelPath::parse(path.as_bytes()).expect("parses")).is_some()
    }

    #[test]
    fn a_broad_glob_opens_no_control_file() {
        for path in [
            ".claude/settings.json",
            "web/.claude/settings.json",
            ".envrc",
            "a/b/.envrc",
            ".ENVRC",
            ".github/workflows/ci.yml",
            "AGENTS.md",
            "docs/CLAUDE.md",
            "agency.toml",
            ".vscode/tasks.json",
            ".gitattributes",
        ] {
            assert!(forbidden("**", path), "{path}");
        }
        assert!(forbidden(".*/**", ".claude/settings.json"));
        assert!(forbidden("**/.envrc", "a/.envrc"));
        assert!(forbidden(".github/**", ".github/workflows/ci.yml"));
        assert!(forbidden("web/**", "web/.claude/x"));
    }

    #[test]
    fn a_glob_that_names_it_opens_it() {
        assert!(!forbidden(".claude/**", ".claude/agents/a.md"));
        assert!(!forbidden(".github/workflows/ci.yml", ".github/workflows/ci.yml"));
        assert!(!forbidden(".github/workflows/*.yml", ".github/workflows/ci.yml"));
        assert!(!forbidden(".github/**", ".github/CODEOWNERS"));
        assert!(!forbidden("web/CLAUDE.md", "web/CLAUDE.md"));
    }

    #[test]
    fn naming_one_opens_no_other_below_it() {
        assert!(forbidden(".claude/**", ".claude/x/.envrc"));
    }

    #[test]
    fn ordinary_files_are_none() {
        for path in ["src/main.rs", ".gitignore", "a/.github/workflows/x", "claude.rs", "envrc", "Makefile"] {
            assert!(!forbidden("**", path), "{path}");
        }
    }

    #[test]
    fn the_list_is_in_lower_case_as_matching_needs() {
        for control in CONTROL_FILES {
            for part in control.path.split('/') {
                assert_eq!(names::fold(part.as_bytes()), part);
            }
        }
    }
}
