//! Who signs a commit, and when.

use std::fmt;
use std::process::Command;

/// A name, an address and a time. None of them can break out of a commit's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    name: String,
    email: String,
    /// Since 1970.
    seconds: i64,
    /// East of Greenwich.
    minutes: i32,
}

impl Signature {
    /// Characters that a header can't hold are left out.
    pub fn new(name: &str, email: &str, seconds: i64, minutes_east: i32) -> Self {
        let plain = |text: &str| {
            let kept: String = text.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
            kept.trim_matches(|c: char| c.is_whitespace() || ".,:;\"\\'".contains(c)).to_owned()
        };
        let (name, email) = (plain(name), plain(email));
        Self {
            name: if name.is_empty() { "agency".to_owned() } else { name },
            email: if email.is_empty() { "agency@localhost".to_owned() } else { email },
            seconds: seconds.max(0),
            minutes: minutes_east.clamp(-14 * 60, 14 * 60),
        }
    }

    /// The signature of an agent. Its address is in a domain that no mail can reach (RFC 2606).
    pub fn of_agent(name: &str, seconds: i64) -> Self {
        Self::new(name, &format!("{name}@agency.invalid"), seconds, 0)
    }

    fn moment(&self) -> String {
        let (sign, minutes) = (if self.minutes < 0 { '-' } else { '+' }, self.minutes.abs());
        format!("{} {sign}{:02}{:02}", self.seconds, minutes / 60, minutes % 60)
    }

    pub(super) fn as_committer(&self, command: &mut Command) {
        command.env("GIT_COMMITTER_NAME", &self.name).env("GIT_COMMITTER_EMAIL", &self.email);
        command.env("GIT_COMMITTER_DATE", format!("@{}", self.moment()));
    }
}

/// As in a commit's header.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}> {}", self.name, self.email, self.moment())
    }
}
