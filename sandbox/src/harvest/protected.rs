//! Names that land only when a scope spells them.
//!
//! A tool obeys some files by itself: an editor opens the folder, a shell enters it, a service receives the push,
//! another agent reads its instructions. Most of their names begin with a dot, and new ones appear every month. So
//! every name that begins with a dot is protected, and so are the listed names without one; a short list of inert
//! dot-files is not (`listed`). An agent that may write `**` was asked to work on the code, not on those.
//!
//! A glob *spells* a name when its part before the first wildcard reaches to the end of it: `.claude/**` opens
//! `.claude`, and `.github/workflows/ci.yml` one workflow; `**`, `.*/**` and `**/.envrc` open nothing. A scope that
//! an agent wrote opens none of them, however it is spelled ([`ScopeOrigin`]).
//!
//! Build files (`Cargo.toml`, `package.json`, `Makefile`) are not protected: they are the work, and run when
//! a user builds.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::name_folding::fold;
use super::name_lists::{CACHE_FILES, CACHE_FOLDERS, INERT, OBEYED};
use super::violation::ViolationReason;
use crate::path::{RelPath, escape};
use crate::scope::{Glob, ProtectedName, Scope, ScopeOrigin};

/// Who obeys a dot-path that is on no list.
const UNKNOWN: &str = "whichever tool knows the name";

/// A protected name found in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtectedMatch {
    pub(crate) name: String,
    pub(crate) reader: String,
    /// How many components of the path reach to its end.
    pub(crate) end: usize,
    /// Whether its reader is known, and not only its first letter a dot.
    pub(crate) listed: bool,
}

/// One entry of a list, of any origin.
#[derive(Clone, Copy)]
struct ProtectedEntry<'a> {
    path: &'a str,
    nested: bool,
    reader: &'a str,
}

/// The list by the first component of its names: every changed path is looked up, and there may be very many.
struct ProtectedLists {
    by_first: HashMap<&'static str, Vec<ProtectedEntry<'static>>>,
    starred: Vec<ProtectedEntry<'static>>,
}

static LISTS: LazyLock<ProtectedLists> = LazyLock::new(|| {
    let mut lists = ProtectedLists { by_first: HashMap::new(), starred: Vec::new() };
    for obeyed in OBEYED {
        let entry = ProtectedEntry { path: obeyed.path, nested: obeyed.nested, reader: obeyed.reader };
        match obeyed.path.split('/').next().filter(|first| !first.contains('*')) {
            Some(first) => lists.by_first.entry(first).or_default().push(entry),
            None => lists.starred.push(entry),
        }
    }
    lists
});

/// The protected name a path lies at or below. The one that ends last counts: a glob for `.github/**` spells no
/// workflow, and one for `.claude/**` no `.claude/x/.envrc`.
pub(crate) fn protected(own: &[ProtectedName], path: &RelPath) -> Option<ProtectedMatch> {
    let folded: Vec<String> = path.components().map(fold).collect();
    let mut found: Option<ProtectedMatch> = None;
    let mut consider = |one: ProtectedMatch| {
        let better =
            |best: &ProtectedMatch| one.end > best.end || (one.end == best.end && one.listed && !best.listed);
        if found.as_ref().is_none_or(better) {
            found = Some(one);
        }
    };
    for (start, (name, raw)) in folded.iter().zip(path.components()).enumerate() {
        let last = start + 1 == folded.len();
        if is_dotted(raw, name) && !(last && INERT.contains(&name.as_str())) {
            consider(ProtectedMatch {
                name: name.clone(),
                reader: UNKNOWN.to_owned(),
                end: start + 1,
                listed: false,
            });
        }
        let own =
            own.iter().map(|own| ProtectedEntry { path: &own.path, nested: own.nested, reader: &own.reader });
        let exact = LISTS.by_first.get(name.as_str()).into_iter().flatten().copied();
        for entry in exact.chain(LISTS.starred.iter().copied()).chain(own) {
            let length = entry.path.split('/').count();
            let here = (start == 0 || entry.nested)
                && folded.len() >= start + length
                && folded[start..]
                    .iter()
                    .zip(entry.path.split('/'))
                    .all(|(name, wanted)| is_like(name, wanted));
            if here {
                let (name, reader) = (entry.path.to_owned(), entry.reader.to_owned());
                consider(ProtectedMatch { name, reader, end: start + length, listed: true });
            }
        }
    }
    found
}

/// Whether some file system takes a component for a name, or a path on Windows, that begins with a dot.
fn is_dotted(raw: &[u8], folded: &str) -> bool {
    raw.first() == Some(&b'.') || folded.starts_with('.') || folded.contains("\\.")
}

/// Whether a name is the wanted one, in which one `*` stands for anything.
fn is_like(name: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        None => name == wanted,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

/// Whether a person's glob that matches the path spells so many of its components.
pub(crate) fn names_explicitly(scope: &Scope, path: &RelPath, components: usize) -> bool {
    scope.author == ScopeOrigin::Person
        && scope.write.iter().any(|glob| glob.literal_length() >= components && glob.matches(path))
}

/// Whether a person's glob spells a path, or something below it.
pub(crate) fn is_named_explicitly(scope: &Scope, path: &RelPath) -> bool {
    scope.author == ScopeOrigin::Person
        && scope.write.iter().any(|glob| glob.literal_prefix().0.is_within(path))
}

/// Why a path may not change although a glob matches it.
pub(crate) fn refusal(scope: &Scope, path: &RelPath) -> Option<ViolationReason> {
    let found = protected(&scope.protected, path)?;
    (!names_explicitly(scope, path, found.end)).then(|| found.reason(scope, path, None))
}

impl ProtectedMatch {
    /// What a person is told: who obeys it, and what opens it.
    pub(crate) fn reason(self, scope: &Scope, path: &RelPath, link: Option<RelPath>) -> ViolationReason {
        let open = (scope.author == ScopeOrigin::Person).then(|| escape(path.as_bytes()));
        ViolationReason::ControlFile { name: self.name, reader: self.reader, open, link }
    }
}

/// Whether a new name is the cache of a tool, and no part of the work.
pub(crate) fn is_cache(name: &[u8], is_directory: bool) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    match is_directory {
        true => CACHE_FOLDERS.contains(&name),
        false => CACHE_FILES.iter().any(|wanted| is_like(&name.to_ascii_lowercase(), wanted)),
    }
}

/// What a glob seems to open, and does not. `None` for a glob that means what it says: `src/**`, `**`,
/// `.github/workflows/ci.yml`.
pub fn unopened_name(glob: &Glob, own: &[ProtectedName]) -> Option<String> {
    let spelled = glob.literal_length();
    let components: Vec<&str> = glob.as_str().split('/').collect();
    // A name that a wildcard stands before, or that is made of wildcards itself.
    for name in components.into_iter().skip(spelled) {
        // `{a,b}` are names only where nothing stands before them: `*{.ts,.tsx}` ends in them.
        let alternatives: Vec<&str> = match name.starts_with('{') {
            true => name.split(['{', ',', '}']).filter(|part| !part.is_empty()).collect(),
            false => vec![name],
        };
        for part in alternatives {
            let inert = INERT.contains(&part.to_ascii_lowercase().as_str());
            if (part.starts_with('.') && !inert) || is_listed(part, own) {
                return Some(format!(
                    "`{}` does not open `{part}`: such a name has to be spelled from the top of the repository, without a wildcard before its end",
                    glob.as_str()
                ));
            }
        }
    }
    // A folder of which one part steers more than the rest.
    let below = OBEYED.iter().filter(|obeyed| obeyed.path.split('/').count() > spelled.max(1));
    let closed: Vec<String> = below
        .filter(|obeyed| {
            let inside = RelPath::parse(format!("{}/x", obeyed.path).as_bytes());
            spelled > 0 && !obeyed.path.contains('*') && inside.is_ok_and(|path| glob.matches(&path))
        })
        .map(|obeyed| format!("`{}`", obeyed.path))
        .collect();
    (!closed.is_empty()).then(|| {
        format!("`{}` does not open {}: spell that folder to open it", glob.as_str(), closed.join(" and "))
    })
}

fn is_listed(name: &str, own: &[ProtectedName]) -> bool {
    let name = RelPath::parse(name.as_bytes()).ok();
    name.and_then(|name| protected(own, &name)).is_some_and(|found| found.listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("parses")
    }

    fn forbidden(glob: &str, text: &str) -> bool {
        let scope = Scope::parse(&[glob], &[]).expect("parses");
        refusal(&scope, &path(text)).is_some()
    }

    #[test]
    fn a_broad_glob_opens_no_name_that_a_tool_obeys() {
        for text in [
            ".claude/settings.json",
            "web/.claude/settings.json",
            ".ENVRC",
            "a/b/.envrc",
            ".github/workflows/ci.yml",
            "AGENTS.md",
            "agent\u{17f}.md",
            "docs/CLAUDE.md",
            ".vscode/tasks.json",
            ".gitattributes",
            // Forty-three that landed under `**` when only listed names were protected; these are of them.
            "lefthook-local.yml",
            "lefthook.toml",
            ".dir-locals-2.el",
            ".Rprofile",
            ".zed/tasks.json",
            ".mise/config.toml",
            ".kiro/hooks/x.json",
            "mise.local.toml",
            "mise/config.toml",
            "Jenkinsfile.release",
            "ci/deploy.Jenkinsfile",
            "azure-pipelines-nightly.yaml",
            "team.code-workspace",
            ".cargo/config.toml",
            ".some-tool-of-next-month/run",
            ".",
        ] {
            let Ok(text) = RelPath::parse(text.as_bytes()) else { continue };
            let scope = Scope::parse(&["**"], &[]).expect("parses");
            assert!(refusal(&scope, &text).is_some(), "{text}");
        }
        assert!(forbidden(".*/**", ".claude/settings.json"));
        assert!(forbidden("**/.envrc", "a/.envrc"));
        assert!(forbidden("{.envrc,x}", ".envrc"));
        assert!(forbidden(".github/**", ".github/workflows/ci.yml"));
        assert!(forbidden("web/**", "web/.claude/x"));
    }

    #[test]
    fn a_glob_that_spells_it_opens_it() {
        assert!(!forbidden(".claude/**", ".claude/agents/a.md"));
        assert!(!forbidden(".github/workflows/ci.yml", ".github/workflows/ci.yml"));
        assert!(!forbidden(".github/workflows/*.yml", ".github/workflows/ci.yml"));
        assert!(!forbidden(".github/**", ".github/CODE_OF_CONDUCT.md"));
        assert!(!forbidden("web/CLAUDE.md", "web/CLAUDE.md"));
        assert!(!forbidden(".cargo/**", ".cargo/config.toml"));
    }

    #[test]
    fn spelling_one_opens_no_other_below_it() {
        assert!(forbidden(".claude/**", ".claude/x/.envrc"));
        assert!(forbidden(".github/**", ".github/CODEOWNERS"));
    }

    #[test]
    fn ordinary_files_and_inert_ones_are_none() {
        for text in [
            "src/main.rs",
            ".gitignore",
            "a/.gitkeep",
            ".EditorConfig",
            "claude.rs",
            "envrc",
            "Makefile",
            "a/collaboration/x",
            "lefthook",
            "mise/readme.md",
        ] {
            assert!(!forbidden("**", text), "{text}");
        }
        assert!(forbidden("**", ".gitignore/x"), "as a folder it is no ignore file");
        assert!(forbidden("**", ".claude/.gitignore"), "the folder is protected whatever is in it");
    }

    #[test]
    fn names_of_the_caller_are_protected_with_the_others() {
        let own = |path: &str, nested| ProtectedName { path: path.into(), nested, reader: "us".into() };
        let scope = Scope::parse(&["**", "board.json"], &[])
            .expect("parses")
            .with_protected(vec![own("board.json", true), own("tasks", false)]);
        assert!(refusal(&scope, &path("tasks/a")).is_some());
        assert!(refusal(&scope, &path("a/tasks/a")).is_none());
        assert!(refusal(&scope, &path("board.json")).is_none(), "spelled");
        assert!(refusal(&scope, &path("a/Board.json")).is_some());
    }

    /// What a planner or a follow-up wrote is held narrower than what a person wrote.
    #[test]
    fn a_scope_that_an_agent_wrote_opens_no_protected_name() {
        let globs = ["src/**", ".envrc", ".github/workflows/ci.yml", "AGENTS.md"];
        let person = Scope::parse(&globs, &[]).expect("parses");
        let agent = person.clone().with_origin(ScopeOrigin::Agent);
        for text in [".envrc", ".github/workflows/ci.yml", "AGENTS.md"] {
            assert!(refusal(&person, &path(text)).is_none(), "{text}");
            let reason = refusal(&agent, &path(text)).expect("refused").to_string();
            assert!(reason.contains("a person"), "{reason}");
        }
        assert!(refusal(&agent, &path("src/a")).is_none());
    }

    #[test]
    fn a_glob_that_opens_less_than_it_seems_to_is_told() {
        let told = |glob: &str| unopened_name(&Glob::parse(glob).expect("parses"), &[]);
        for silent in [
            "**",
            "src/**",
            "*.md",
            "docs/*.md",
            ".claude/**",
            ".github/workflows/*.yml",
            ".github/*.md",
            "**/.gitignore",
            "src/**/*{.ts,.tsx}",
            "Cargo.toml",
        ] {
            assert_eq!(told(silent), None, "{silent}");
        }
        for (glob, part) in [
            ("**/.env*", "`.env*`"),
            (".*/**", "`.*`"),
            ("{src,.github}/**", "`.github`"),
            ("**/AGENTS.md", "`AGENTS.md`"),
            (".github/**", "`.github/workflows` and `.github/actions`"),
        ] {
            let said = told(glob).unwrap_or_default();
            assert!(said.contains(part), "{glob}: {said}");
        }
    }

    #[test]
    fn caches_are_known_by_their_exact_names_and_kind() {
        assert!(is_cache(b".pytest_cache", true) && is_cache(b"__pycache__", true));
        assert!(is_cache(b".DS_Store", false) && is_cache(b".main.rs.swp", false));
        assert!(!is_cache(b".pytest_cache", false) && !is_cache(b".PYTEST_CACHE", true));
        assert!(!is_cache(b".claude", true) && !is_cache(b"main.swp", false));
    }

    #[test]
    fn the_lists_are_in_lower_case_as_matching_needs() {
        let paths = OBEYED.iter().map(|obeyed| obeyed.path).chain(INERT.iter().copied());
        for part in paths.flat_map(|path| path.split('/')) {
            assert_eq!(fold(part.as_bytes()), part);
        }
        assert!(OBEYED.iter().all(|obeyed| obeyed.path.split('/').all(|part| part.matches('*').count() < 2)));
    }
}
