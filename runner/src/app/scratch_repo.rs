//! A repository of our own, made to show or to try something.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::app::error::{CommandError, ErrorKind};

/// A folder of our own, and how commands are given there.
pub(crate) struct ScratchRepo {
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
}

impl ScratchRepo {
    /// A folder that is not there yet, or has nothing in it.
    pub(crate) fn new(name: &str, wanted: Option<&Path>) -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| CommandError::internal(&error);
        let folder = match wanted {
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
                if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
                    let what = format!("{} is not empty", folder.display());
                    return Err(CommandError::usage(what).with_hint("name a folder that is not there yet"));
                }
                folder.to_owned()
            }
            None => fresh(&std::env::temp_dir(), name).map_err(failed)?,
        };
        let program = std::env::current_exe().map_err(failed)?;
        Ok(Self { folder: folder.canonicalize().map_err(failed)?, program })
    }

    /// Removes the folder when no user looks around in it any more.
    pub(crate) fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// A command in this folder. The user's configuration does not count here, and what was just written is trusted.
    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.env("AGENCY_TRUST", "1").env("XDG_CONFIG_HOME", self.folder.join(".git/none"));
        command.env_remove("AGENCY_PROTOCOL");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_"))
        {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), CommandError> {
        let file = self.folder.join(path);
        let folder = file.parent().unwrap_or(&self.folder);
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, text));
        written.map_err(|error| CommandError::internal(&error))
    }

    /// What a command said; that it fails is our own failure.
    fn said(&self, program: &Path, arguments: &[&str]) -> Result<String, CommandError> {
        let output = self.command(program, arguments).output().map_err(|error| {
            CommandError::new_message(
                ErrorKind::Internal,
                format!("`{}` can't be started: {error}", program.display()),
            )
        })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let what = format!("`{} {}` failed: {why}", program.display(), arguments.join(" "));
            return Err(CommandError::new_message(ErrorKind::Internal, what));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String, CommandError> {
        self.said(Path::new("git"), arguments)
    }

    pub(crate) fn agency(&self, arguments: &[&str]) -> Result<String, CommandError> {
        self.said(&self.program, arguments)
    }

    pub(crate) fn agency_json(&self, arguments: &[&str]) -> Result<Value, CommandError> {
        let text = self.agency(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| CommandError::internal(&error))
    }

    /// Gives a command as a person would, who watches it. Its exit code.
    pub(crate) fn run_attached(&self, arguments: &[&str]) -> Result<u8, CommandError> {
        let status = self.command(&self.program, arguments).status();
        let status = status.map_err(|error| CommandError::internal(&error))?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }
}

/// A new folder that no other process has.
fn fresh(parent: &Path, name: &str) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let number = std::process::id();
    for attempt in 0..1000 {
        let folder = parent.join(format!("{name}-{number}-{attempt}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}
