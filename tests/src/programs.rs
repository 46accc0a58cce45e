//! The agents' own programs, where `scripts/install-agents` has put them.

use std::fs;
use std::path::{Path, PathBuf};

/// A real agent program that `scripts/install-agents` has put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Codex,
    Claude,
    MiniSweAgent,
}

impl Program {
    pub const ALL: [Self; 3] = [Self::Codex, Self::Claude, Self::MiniSweAgent];

    /// What its executable is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::MiniSweAgent => "mini",
        }
    }

    /// The folder of its executable, to be put on PATH; or why it is not there.
    pub fn folder(self) -> Result<PathBuf, String> {
        self.folder_in(&installed()?)
    }

    fn folder_in(self, installed: &Path) -> Result<PathBuf, String> {
        let (group, folder) = match self {
            Self::Codex | Self::Claude => ("npm", "npm/node_modules/.bin"),
            Self::MiniSweAgent => ("pypi", "pypi/bin"),
        };
        // Written when all of the group is in place.
        if installed.join(format!("{group}.versions")).is_file() {
            return Ok(installed.join(folder));
        }
        let reason = fs::read_to_string(installed.join(format!("{group}.unavailable")));
        Err(match reason {
            Ok(reason) => reason.trim().to_owned(),
            Err(_) => format!("scripts/install-agents has not put {} in place", self.name()),
        })
    }
}

/// The folder that the script installs into.
fn installed() -> Result<PathBuf, String> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    folder("AGENCY_TEST_AGENTS")
        .or_else(|| Some(cache()?.join("agency-tests/agents")))
        .ok_or_else(|| "there is no HOME to look for it in".to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::repository::skip;

    #[test]
    fn each_program_is_there_or_it_is_known_why_not() {
        for program in Program::ALL {
            let folder = match program.folder() {
                Ok(folder) => folder,
                Err(reason) => {
                    skip(
                        &format!("each_program_is_there_or_it_is_known_why_not ({})", program.name()),
                        &reason,
                    );
                    continue;
                }
            };
            let home = tempfile::tempdir().expect("a home");
            let argument = if program == Program::MiniSweAgent { "--help" } else { "--version" };
            let output = Command::new(folder.join(program.name()))
                .arg(argument)
                .env("HOME", home.path())
                .stdin(Stdio::null())
                .output()
                .expect("it starts");
            assert!(output.status.success() && !output.stdout.is_empty(), "{program:?}: {output:?}");
        }
    }

    #[test]
    fn what_is_missing_is_explained() {
        let folder = tempfile::tempdir().expect("a folder");
        let reason = Program::Codex.folder_in(folder.path()).expect_err("it is not there");
        assert_eq!(reason, "scripts/install-agents has not put codex in place");
        fs::write(folder.path().join("npm.unavailable"), "nobody answers\n").expect("written");
        assert_eq!(Program::Claude.folder_in(folder.path()), Err("nobody answers".to_owned()));
        fs::write(folder.path().join("npm.versions"), "all\n").expect("written");
        assert_eq!(Program::Claude.folder_in(folder.path()), Ok(folder.path().join("npm/node_modules/.bin")));
    }
}
