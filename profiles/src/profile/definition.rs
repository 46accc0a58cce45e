//! What a profile consists of, and what it may ask for beyond the usual.

use std::path::PathBuf;
use std::time::Duration;

use agency_sandbox::egress::HostAllowlist;

use super::condition::WhenRule;
use super::name::ProfileName;
use super::units::{show_duration, show_size};

/// The timeout of a command without one of its own.
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The memory limit for all processes of a command without one of its own.
pub const USUAL_MEMORY: u64 = 8 << 30;

/// A profile, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: ProfileName,
    pub description: String,
    /// Its environment: `node`, `python`, `rust` … It decides which manifest the conditions read.
    pub environment: Option<String>,
    pub platform: Platform,
    /// Never empty.
    pub commands: Vec<ProfileCommand>,
    /// The timeout of each command without one of its own.
    pub timeout: Option<Duration>,
    pub network: ProfileNetwork,
    /// Names of variables that are passed on. Their values are secrets.
    pub env: Vec<String>,
    /// Bytes.
    pub memory: Option<u64>,
    /// The image of the containers in which its commands run; without one they run at the usual level.
    pub image: Option<String>,
    /// The caches that package managers keep from one of those containers to the next.
    pub caches: Vec<String>,
}

/// One command of a profile, run by `sh -c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileCommand {
    pub run: String,
    pub timeout: Option<Duration>,
    pub network: Option<ProfileNetwork>,
    /// Whether it applies to a repository.
    pub when: WhenRule,
}

/// What the commands may reach over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileNetwork {
    None,
    Hosts(HostAllowlist),
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
pub enum ProfileOrigin {
    /// It came with this program.
    Builtin,
    /// It is a file of the repository that is to be proved: an author who can change the one can change the other.
    Repository { path: PathBuf },
}

/// One thing a profile asks for beyond the usual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraPermission {
    /// `network`, or `commands[2].network`.
    pub key: String,
    /// What it asks for, in words for a person who decides.
    pub what: String,
}

impl Profile {
    /// The permissions that only a trusted profile may have. The commands of a repository's own profile are not listed:
    /// all of them need trust.
    pub fn widens(&self) -> Vec<ExtraPermission> {
        let mut found = Vec::new();
        let mut ask = |key: String, what: Option<String>| {
            found.extend(what.map(|what| ExtraPermission { key, what }));
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
            let network = command.network.as_ref().and_then(ProfileNetwork::widens);
            ask(format!("commands[{index}].network"), network);
            ask(format!("commands[{index}].timeout"), longer(command.timeout));
        }
        found
    }
}

impl ProfileNetwork {
    fn widens(&self) -> Option<String> {
        match self {
            ProfileNetwork::None => None,
            ProfileNetwork::Hosts(list) => Some(list.to_string()),
            ProfileNetwork::Full => Some("everything this host can reach".into()),
        }
    }
}

impl Platform {
    pub const ALL: [Platform; 4] = [Platform::Any, Platform::Linux, Platform::Darwin, Platform::Windows];

    /// Its name in a profile.
    pub const fn as_str(self) -> &'static str {
        match self {
            Platform::Any => "any",
            Platform::Linux => "linux",
            Platform::Darwin => "darwin",
            Platform::Windows => "windows",
        }
    }

    /// The platform this program was built for, by its name in a profile.
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

impl ProfileCommand {
    /// A command that always applies and asks for nothing.
    pub fn unconditional(run: impl Into<String>) -> Self {
        Self { run: run.into(), timeout: None, network: None, when: WhenRule::default() }
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
}
