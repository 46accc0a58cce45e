//! A Definition of Done: commands that must all succeed, and what they may use (§10.1 of the specification).
//!
//! `name`, `description`, `commands`, `environment` and `platform` are the specification's. `timeout`,
//! `network`, `env`, `memory`, `image` and `caches` are ours, and so is a command that is more than a line: `{run, timeout,
//! network, when}`. A file without any of ours is a complete profile.
//!
//! A profile only says what it wants. Whether it gets it is for those who know where it comes from: see
//! [`Profile::widens`] and [`Origin`].

mod condition;
mod error;
mod lines;
mod measure;
mod name;
mod read;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use agency_sandbox::egress::List;

pub use condition::{Clause, Condition, When};
pub use error::{Place, ProfileError};
pub(crate) use measure::{show_duration, show_size};
pub use name::{Name, NotAName};
pub use read::Parsed;
pub(crate) use read::read_yaml;

use crate::builtin;

/// How long a command may take that does not say.
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How much memory all processes of a command may use that does not say.
pub const USUAL_MEMORY: u64 = 8 << 30;

/// A profile, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: Name,
    pub description: String,
    /// What it is for: `node`, `python`, `rust` … It says whose manifest the conditions look at.
    pub environment: Option<String>,
    pub platform: Platform,
    /// Never empty.
    pub commands: Vec<Command>,
    /// For each command, where it does not say itself.
    pub timeout: Option<Duration>,
    pub network: Network,
    /// Names of variables that are passed on. Their values are secrets.
    pub env: Vec<String>,
    /// Bytes.
    pub memory: Option<u64>,
    /// The image of the containers its commands run in; without one they run where everything else does.
    pub image: Option<String>,
    /// What package managers keep from one of those containers to the next.
    pub caches: Vec<String>,
}

/// One command of a profile, run by `sh -c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub run: String,
    pub timeout: Option<Duration>,
    pub network: Option<Network>,
    /// Whether it applies to a repository.
    pub when: When,
}

/// What the commands may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    None,
    Hosts(List),
    Full,
}

/// Where a profile may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Any,
    Linux,
    Darwin,
    Windows,
}

/// Where a profile comes from, and so whether it has to be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It came with this program.
    Builtin,
    /// It is a file of the repository that is to be proved: whoever can change the one can change the other.
    Repository { path: PathBuf },
}

/// One thing a profile asks for beyond the usual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widening {
    /// `network`, or `commands[2].network`.
    pub key: String,
    /// What it asks for, in words a person decides on.
    pub what: String,
}

impl Profile {
    /// What it asks for that only a trusted profile may have. The commands of a repository's own profile are
    /// not listed: all of them are.
    pub fn widens(&self) -> Vec<Widening> {
        let mut found = Vec::new();
        let mut ask = |key: String, what: Option<String>| {
            found.extend(what.map(|what| Widening { key, what }));
        };
        let longer = |timeout: Option<Duration>| {
            let timeout = timeout.filter(|timeout| *timeout > USUAL_TIMEOUT)?;
            Some(format!(
                "{} for each command, usually {}",
                show_duration(timeout),
                show_duration(USUAL_TIMEOUT)
            ))
        };
        ask("network".into(), self.network.widens());
        ask("env".into(), (!self.env.is_empty()).then(|| self.env.join(", ")));
        let larger = self.memory.filter(|memory| *memory > USUAL_MEMORY);
        ask(
            "memory".into(),
            larger.map(|memory| format!("{}, usually {}", show_size(memory), show_size(USUAL_MEMORY))),
        );
        ask("timeout".into(), longer(self.timeout));
        ask("image".into(), self.image.clone());
        ask("caches".into(), (!self.caches.is_empty()).then(|| self.caches.join(", ")));
        for (index, command) in self.commands.iter().enumerate() {
            let network = command.network.as_ref().and_then(Network::widens);
            ask(format!("commands[{index}].network"), network);
            ask(format!("commands[{index}].timeout"), longer(command.timeout));
        }
        found
    }

    /// Whether it does exactly what the builtin profile of its name does. A copy of one that was scaffolded
    /// into a repository needs no trust; what it says of itself may differ, for that decides nothing.
    pub fn same_as_builtin(&self) -> bool {
        let described = |builtin: Profile| Profile { description: self.description.clone(), ..builtin };
        builtin::find(&self.name).is_some_and(|builtin| described(builtin) == *self)
    }
}

impl Network {
    fn widens(&self) -> Option<String> {
        match self {
            Network::None => None,
            Network::Hosts(list) => Some(list.to_string()),
            Network::Full => Some("everything this host can reach".into()),
        }
    }
}

impl Platform {
    pub const ALL: [Platform; 4] = [Platform::Any, Platform::Linux, Platform::Darwin, Platform::Windows];

    /// As it is written in a profile.
    pub const fn as_str(self) -> &'static str {
        match self {
            Platform::Any => "any",
            Platform::Linux => "linux",
            Platform::Darwin => "darwin",
            Platform::Windows => "windows",
        }
    }

    /// The one this program was built for, by the name a profile would use.
    pub fn here() -> &'static str {
        match std::env::consts::OS {
            "macos" => "darwin",
            other => other,
        }
    }

    pub fn is_here(self) -> bool {
        self == Platform::Any || self.as_str() == Self::here()
    }
}

impl Command {
    /// A command that always applies and asks for nothing.
    pub fn plain(run: impl Into<String>) -> Self {
        Self { run: run.into(), timeout: None, network: None, when: When::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn profile(text: &str) -> Profile {
        Profile::parse(Path::new("x.yml"), text).expect("a profile").profile
    }

    #[test]
    fn everything_beyond_the_usual_is_named() {
        let modest =
            profile("name: x\ndescription: d\ntimeout: 5m\nmemory: 1GiB\nnetwork: none\ncommands: [a]");
        assert_eq!(modest.widens(), []);
        let bold = profile(
            "name: x\ndescription: d\ntimeout: 2h\nmemory: 16GiB\nenv: [TOKEN, KEY]\nnetwork: [a.example:443]\nimage: rust:1\ncaches: cargo\n\
             commands:\n  - run: a\n    network: full\n    timeout: 1h\n",
        );
        let keys: Vec<_> = bold.widens().into_iter().map(|one| (one.key, one.what)).collect();
        let keys: Vec<_> = keys.iter().map(|(key, what)| (key.as_str(), what.as_str())).collect();
        assert_eq!(
            keys,
            [
                ("network", "a.example:443"),
                ("env", "TOKEN, KEY"),
                ("memory", "16GiB, usually 8GiB"),
                ("timeout", "2h for each command, usually 15m"),
                ("image", "rust:1"),
                ("caches", "cargo"),
                ("commands[0].network", "everything this host can reach"),
                ("commands[0].timeout", "1h for each command, usually 15m"),
            ]
        );
    }

    #[test]
    fn a_copy_of_a_builtin_profile_is_known_whatever_it_says_of_itself() {
        let text = builtin::text("rust_strict").expect("there is one");
        let copy = profile(text);
        assert!(copy.same_as_builtin());
        assert!(Profile { description: "Ours".into(), ..copy.clone() }.same_as_builtin());
        let mut changed = copy.clone();
        changed.commands.push(Command::plain("curl https://evil.example"));
        assert!(!changed.same_as_builtin());
        assert!(!Profile { env: vec!["TOKEN".into()], ..copy.clone() }.same_as_builtin());
        assert!(!profile("name: mine\ndescription: d\ncommands: [a]").same_as_builtin());
    }
}
