//! What an agent may change: globs, and the verdict on one path.
//!
//! The exact answer is given here, on raw bytes, when the work is harvested. The operating system only knows
//! directories; `opening` derives from the same globs which of them are made writable, so that an
//! agent fails early, and [`Scope::judge`] refuses what that coarser rule lets through.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher, GlobSet};

use crate::path::{PathError, RelPath};

/// One glob of a scope: `*` and `?` stop at a slash, `**` crosses directories, `[…]` and `{a,b}` are known.
/// Names that begin with a dot match like any other.
#[derive(Debug, Clone)]
pub struct Glob {
    source: String,
    /// How many leading components hold no wildcard.
    literal: usize,
    parsed: globset::Glob,
    /// Compiled on first use: a run that changed nothing never pays for it.
    matcher: OnceCell<GlobMatcher>,
}

/// Why a pattern is not a glob of a scope.
#[derive(Debug, thiserror::Error)]
pub enum GlobError {
    #[error("glob `{glob}` is empty")]
    Empty { glob: String },
    #[error("glob `{glob}` can't be used: {reason}")]
    Path { glob: String, reason: PathError },
    #[error(
        "glob `{glob}` uses an extended glob (`!(…)`, `@(…)`, `+(…)`, `*(…)`, `?(…)`), which is not supported: write one glob per case"
    )]
    Extended { glob: String },
    #[error("glob `{glob}` starts with `!`: say what may not change with a deny glob instead")]
    Negated { glob: String },
    #[error("glob `{glob}` does not parse")]
    Syntax { glob: String, source: globset::Error },
}

impl Glob {
    pub fn parse(source: &str) -> Result<Self, GlobError> {
        let glob = || source.to_owned();
        // `src/` is what people write for "everything below src".
        let pattern = match source.strip_suffix('/') {
            Some(directory) => format!("{directory}/**"),
            None => source.to_owned(),
        };
        let pattern = pattern.strip_prefix("./").unwrap_or(&pattern);
        if pattern.is_empty() || pattern == "." {
            return Err(GlobError::Empty { glob: glob() });
        }
        // An extended glob is valid syntax with another meaning in globset: it would match nothing, silently.
        if pattern.as_bytes().windows(2).any(|pair| pair[1] == b'(' && b"!@+*?".contains(&pair[0])) {
            return Err(GlobError::Extended { glob: glob() });
        }
        if pattern.starts_with('!') {
            return Err(GlobError::Negated { glob: glob() });
        }
        RelPath::parse(pattern.as_bytes()).map_err(|reason| GlobError::Path { glob: glob(), reason })?;
        // `{a,../b}` hides its dots from the check above.
        if pattern.split(['/', '{', '}', ',']).any(|part| part == "..") {
            return Err(GlobError::Path { glob: glob(), reason: PathError::Escapes });
        }
        let parsed = GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|source| GlobError::Syntax { glob: glob(), source })?;
        let literal = pattern.split('/').take_while(|component| is_literal(component)).count();
        Ok(Self { source: pattern.to_owned(), literal, parsed, matcher: OnceCell::new() })
    }

    /// The glob as it is applied.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    pub fn matches(&self, path: &RelPath) -> bool {
        self.matcher().is_match(path.as_path())
    }

    fn matcher(&self) -> &GlobMatcher {
        self.matcher.get_or_init(|| self.parsed.compile_matcher())
    }

    /// The same glob seen from a directory further up: `src/**` in `web` is `web/src/**`.
    pub fn prefixed(&self, directory: &RelPath) -> Result<Self, GlobError> {
        if directory.is_root() {
            return Ok(self.clone());
        }
        let literal = std::str::from_utf8(directory.as_bytes()).map_err(|_| GlobError::Path {
            glob: format!("{directory}/{}", self.source),
            reason: PathError::NotNormal,
        })?;
        Self::parse(&format!("{}/{}", globset::escape(literal), self.source))
    }

    /// The leading components that hold no wildcard, and what is left of the pattern after them.
    pub(crate) fn literal_prefix(&self) -> (RelPath, Vec<&str>) {
        let components: Vec<&str> = self.source.split('/').collect();
        let mut prefix = RelPath::root();
        for component in &components[..self.literal] {
            prefix = prefix.join(component.as_bytes());
        }
        (prefix, components[self.literal..].to_vec())
    }

    /// How many components the glob spells before its first wildcard.
    pub(crate) fn literal_length(&self) -> usize {
        self.literal
    }
}

fn is_literal(component: &str) -> bool {
    !component.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// Who wrote a scope. What a person spells is opened; an agent that plans work for another opens no file that tools
/// obey, however it spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeOrigin {
    #[default]
    Person,
    Agent,
}

/// A name that its caller obeys, protected like those that other tools obey ([`crate::harvest::protected`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedName {
    /// A file, or a directory with everything in it, in lower case: matched without regard to case.
    pub path: String,
    /// Whether it counts in every directory, or only at the top of the workspace.
    pub nested: bool,
    /// Who obeys it.
    pub reader: String,
}

/// What may be changed, and what may not even there. A path is in scope when a `write` glob matches it and
/// no `deny` glob matches it or a directory above it.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub write: Vec<Glob>,
    pub deny: Vec<Glob>,
    pub author: ScopeOrigin,
    /// Names of the caller that a glob has to spell.
    pub protected: Vec<ProtectedName>,
    /// All deny globs as one: a board may deny thousands of single files.
    denied: OnceCell<Option<GlobSet>>,
}

/// The verdict on one changed path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeVerdict<'a> {
    InScope,
    /// No write glob matches.
    Outside,
    /// This deny glob matches.
    Denied(&'a Glob),
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}
impl Eq for Glob {}

impl Scope {
    pub fn new(write: Vec<Glob>, deny: Vec<Glob>) -> Self {
        Self { write, deny, ..Self::default() }
    }

    pub fn parse<S: AsRef<str>>(write: &[S], deny: &[S]) -> Result<Self, GlobError> {
        let parse =
            |globs: &[S]| globs.iter().map(|glob| Glob::parse(glob.as_ref())).collect::<Result<Vec<_>, _>>();
        Ok(Self::new(parse(write)?, parse(deny)?))
    }

    /// The same scope by this author.
    pub fn with_origin(self, author: ScopeOrigin) -> Self {
        Self { author, ..self }
    }

    /// The same scope, under which these names have to be spelled, too.
    pub fn with_protected(self, protected: Vec<ProtectedName>) -> Self {
        Self { protected, ..self }
    }

    pub fn judge(&self, path: &RelPath) -> ScopeVerdict<'_> {
        if let Some(glob) = self.denying(path) {
            return ScopeVerdict::Denied(glob);
        }
        match self.write.iter().any(|glob| glob.matches(path)) {
            true => ScopeVerdict::InScope,
            false => ScopeVerdict::Outside,
        }
    }

    /// A denied directory denies what is in it, whether its glob ends in `/**` or not.
    fn denying(&self, path: &RelPath) -> Option<&Glob> {
        if self.deny.is_empty() {
            return None;
        }
        let together = self.denied.get_or_init(|| {
            let mut all = GlobSet::builder();
            for glob in &self.deny {
                all.add(glob.parsed.clone());
            }
            all.build().ok()
        });
        let first = |path: &Path| match together {
            Some(all) => all.matches(path).first().copied(),
            None => self.deny.iter().position(|glob| glob.matcher().is_match(path)),
        };
        let bytes = path.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let mut above = ends.chain([bytes.len()]).map(|end| Path::new(OsStr::from_bytes(&bytes[..end])));
        above.find_map(first).map(|index| &self.deny[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scope(write: &[&str], deny: &[&str]) -> Scope {
        Scope::parse(write, deny).expect("globs parse")
    }
    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a relative path")
    }
    fn verdict(scope: &Scope, text: &str) -> &'static str {
        match scope.judge(&path(text)) {
            ScopeVerdict::InScope => "in",
            ScopeVerdict::Outside => "out",
            ScopeVerdict::Denied(_) => "denied",
        }
    }

    #[test]
    fn a_star_stops_at_a_slash_and_two_stars_do_not() {
        let one = scope(&["src/*.rs"], &[]);
        assert_eq!(verdict(&one, "src/a.rs"), "in");
        assert_eq!(verdict(&one, "src/deep/a.rs"), "out");
        let two = scope(&["src/**"], &[]);
        assert_eq!(verdict(&two, "src/deep/.hidden"), "in");
        assert_eq!(verdict(&two, "src2/a"), "out");
        assert_eq!(verdict(&two, "src"), "out");
    }

    #[test]
    fn deny_wins_over_write() {
        let scope = scope(&["src/**"], &["src/secrets/**", "**/*.key"]);
        assert_eq!(verdict(&scope, "src/secrets/a"), "denied");
        assert_eq!(verdict(&scope, "src/a.key"), "denied");
        assert_eq!(verdict(&scope, "src/a"), "in");
    }

    #[test]
    fn denying_a_directory_denies_what_is_in_it() {
        let scope = scope(&["src/**"], &["src/secrets"]);
        assert_eq!(verdict(&scope, "src/secrets/deep/a"), "denied");
        assert_eq!(verdict(&scope, "src/secrets2"), "in");
    }

    #[test]
    fn a_trailing_slash_means_everything_below() {
        assert_eq!(verdict(&scope(&["docs/"], &[]), "docs/a/b.md"), "in");
    }

    #[test]
    fn matching_is_on_bytes_and_case() {
        let scope = scope(&["src/**"], &[]);
        assert_eq!(scope.judge(&RelPath::parse(b"src/\xff\n").expect("parses")), ScopeVerdict::InScope);
        assert_eq!(verdict(&scope, "SRC/a"), "out");
    }

    #[test]
    fn globs_that_leave_the_workspace_or_mean_something_else_are_refused_by_name() {
        for glob in [
            "../x",
            "/etc/**",
            "a/../b",
            "{a,../b}",
            "",
            ".",
            "a//b",
            "!(a)",
            "src/@(a|b)",
            "!a",
            "[",
            "{a",
            "a\0b",
        ] {
            let error = Glob::parse(glob).expect_err(glob);
            assert!(error.to_string().contains("glob `"), "{error}");
        }
    }

    #[test]
    fn a_glob_can_be_moved_below_a_directory_whose_name_looks_like_a_glob() {
        let moved = Glob::parse("*.c").and_then(|glob| glob.prefixed(&path("a[1]"))).expect("parses");
        assert!(moved.matches(&path("a[1]/x.c")));
        assert!(!moved.matches(&path("a1/x.c")));
    }

    proptest! {
        /// A directory glob holds exactly what lies below the directory, with any names.
        #[test]
        fn a_directory_glob_holds_exactly_what_is_below(names in prop::collection::vec("[a-z.]{1,3}", 1..5)) {
            let text = names.join("/");
            prop_assume!(RelPath::parse(text.as_bytes()).is_ok());
            let inside = scope(&["a/**"], &[]).judge(&path(&text)) == ScopeVerdict::InScope;
            prop_assert_eq!(inside, names.len() > 1 && names[0] == "a");
        }

        #[test]
        fn no_input_makes_parsing_panic(source in "\\PC*") {
            let _ = Glob::parse(&source);
        }
    }
}
