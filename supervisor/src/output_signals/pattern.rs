//! How patterns are read: over bytes, because nothing says that an agent's output is text. `\d`, `\w`, `\s` and letters
//! of either case are those of ASCII; other characters stand for themselves, though not in a class.
//!
//! The tables of everything else would be a quarter of what the loader corrects whenever the program starts.

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

pub(super) fn one(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).unicode(false).build()
}

pub(super) fn all(patterns: &[&str]) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(patterns).unicode(false).build()
}

/// For what is known to be text, and looks for nothing else.
pub(super) fn of_text(pattern: &str) -> Result<regex::Regex, regex::Error> {
    regex::RegexBuilder::new(pattern).unicode(false).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_need_not_be_text() {
        let pattern = one(r#"(?i)message":"(?<says>[^"]*quota)"#).expect("a pattern");
        let found = pattern.captures(b"MESSAGE\":\"\xff used up: Quota").expect("found");
        assert_eq!(&found["says"], b"\xff used up: Quota");
    }

    #[test]
    fn characters_beyond_ascii_stand_for_themselves() {
        let pattern = one("Zugriff verweigert · (?:später|µ)").expect("a pattern");
        assert!(pattern.is_match("Zugriff verweigert · später".as_bytes()));
        let error = one("[äö]").expect_err("no class");
        assert!(error.to_string().contains("Unicode not allowed here"), "{error}");
    }
}
