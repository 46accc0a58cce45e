//! Globs of a scope, checked as text: whether one could name anything outside the repository, or would
//! quietly mean nothing.
//!
//! The code that judges changes decides what a glob matches. This check finds a task whose scope can't be enforced when
//! the task is written or linted, with its file and line, and not when an agent is about to start.

/// Why a text is no glob of a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeGlobError {
    #[error("the glob is empty")]
    Empty,
    #[error("the glob `{glob}` escapes the repository: it must be relative, without `..`")]
    Escapes { glob: String },
    #[error(
        "the glob `{glob}` uses an extended glob (`!(…)`, `@(…)` …), which is not supported: write one glob per case"
    )]
    Extended { glob: String },
    #[error("the glob `{glob}` starts with `!`: list it under what must not be touched instead")]
    Negated { glob: String },
    #[error("the glob `{glob}` can't be read: {reason}")]
    Syntax { glob: String, reason: String },
}

pub fn check(glob: &str) -> Result<(), ScopeGlobError> {
    let named = || glob.to_owned();
    let body = glob.strip_prefix("./").unwrap_or(glob);
    if body.is_empty() || body == "." {
        return Err(ScopeGlobError::Empty);
    }
    if body.as_bytes().windows(2).any(|pair| pair[1] == b'(' && b"!@+*?".contains(&pair[0])) {
        return Err(ScopeGlobError::Extended { glob: named() });
    }
    if body.starts_with('!') {
        return Err(ScopeGlobError::Negated { glob: named() });
    }
    let leaves = body.split(['/', '{', '}', ',']).any(|part| part == "..");
    if leaves || body.starts_with(['/', '~']) || body.contains('\0') {
        return Err(ScopeGlobError::Escapes { glob: named() });
    }
    globset::GlobBuilder::new(body)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(drop)
        .map_err(|error| ScopeGlobError::Syntax { glob: named(), reason: error.kind().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_that_escape_or_mean_nothing_are_refused_each_with_its_reason() {
        for good in ["src/**", "./Cargo.toml", "docs/*.md", "{a,b}/c", "src/", "a..b"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["../x", "/etc/passwd", "a/../../b", "{a,../b}/c", "~/x"] {
            assert!(matches!(check(bad), Err(ScopeGlobError::Escapes { .. })), "{bad}");
        }
        assert!(matches!(check("!(a)"), Err(ScopeGlobError::Extended { .. })));
        assert!(matches!(check("!a"), Err(ScopeGlobError::Negated { .. })));
        assert!(matches!(check("[a"), Err(ScopeGlobError::Syntax { .. })));
        assert!(matches!(check(""), Err(ScopeGlobError::Empty)));
    }
}
