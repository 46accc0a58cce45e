//! Names of profiles.

use std::fmt;

/// A plain name: letters, digits, `_`, `-` and `.`. It becomes a file's name and comes from a task whose author may be
/// hostile, so it has neither a slash nor `..`; `+` is reserved for several profiles at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileName(String);

const LONGEST: usize = 64;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a name for a profile: {reason}", agency_sandbox::path::escape(text.as_bytes()))]
pub struct ProfileNameError {
    text: String,
    pub(crate) reason: &'static str,
}

impl ProfileName {
    pub fn parse(text: &str) -> Result<Self, ProfileNameError> {
        let wrong = |reason| ProfileNameError { text: text.chars().take(LONGEST).collect(), reason };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        if text.len() > LONGEST {
            return Err(wrong("it is longer than 64 characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
            return Err(wrong("only letters, digits, `_`, `-` and `.` are allowed"));
        }
        if text.starts_with(['.', '-']) || text.contains("..") {
            return Err(wrong("it starts with `.` or `-`, or has `..` in it"));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_file_in_one_folder() {
        for name in ["node_strict", "a", "Go-1.22", "x.y"] {
            assert_eq!(ProfileName::parse(name).expect("a name").as_str(), name);
        }
        for name in
            ["", "..", ".hidden", "a/b", "../a", "a..b", "-x", "a b", "a\0", "a+b", "ä", &"x".repeat(65)]
        {
            assert!(ProfileName::parse(name).is_err(), "{name:?}");
        }
    }
}
