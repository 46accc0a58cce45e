//! A small repository to work on, and `agency` run in it, as root or as an ordinary user.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::adversary;
use crate::user::TestUser;

/// Who runs `agency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    Root,
    User,
}

/// The actors a test can play here. Without root there is only the user.
pub fn actors() -> Vec<Actor> {
    if nix::unistd::Uid::current().is_root() { vec![Actor::Root, Actor::User] } else { vec![Actor::User] }
}

/// A repository with one commit, owned by whoever works in it.
#[derive(Debug)]
pub struct Repository {
    folder: TempDir,
    user: Option<TestUser>,
    /// A group that user is in besides.
    group: Option<u32>,
    agency: PathBuf,
    /// Where `agency` keeps its state.
    state: TempDir,
}

impl Repository {
    /// With these files, all of them committed.
    pub fn new(actor: Actor, files: &[(&str, &str)]) -> io::Result<Self> {
        let repository = Self::without_git(actor, files)?;
        for arguments in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["config", "user.name", "Somebody"],
            &["config", "user.email", "somebody@example.org"],
            &["add", "--all"],
            &["commit", "--quiet", "--message=First"],
        ] {
            let output = repository.command("git").args(arguments).output()?;
            assert!(output.status.success(), "git {arguments:?}: {output:?}");
        }
        Ok(repository)
    }

    /// Only the folder.
    pub fn without_git(actor: Actor, files: &[(&str, &str)]) -> io::Result<Self> {
        // Not below HOME or a temporary folder where that can be had: those are writable inside, and would hide
        // that something else is not.
        let base = if nix::unistd::Uid::current().is_root() { "/srv" } else { "/var/tmp" };
        fs::create_dir_all(base)?;
        let folder = tempfile::Builder::new().prefix("agency-repository-").tempdir_in(base)?;
        let state = tempfile::Builder::new().prefix("agency-state-").tempdir_in(base)?;
        for (name, contents) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
            fs::write(path, contents)?;
        }
        let (user, agency) = match actor {
            Actor::Root => (None, adversary::agency()),
            Actor::User => {
                let user = TestUser::new()?;
                let agency = user.install(&adversary::agency())?;
                user.give_all(folder.path())?;
                user.give(state.path())?;
                (Some(user), agency)
            }
        };
        Ok(Self { folder, user, group: None, agency, state })
    }

    /// Puts who works in it into a group, if that is not root.
    pub fn in_group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program run here by whoever owns it, without the environment of the tests.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = match &self.user {
            Some(user) => match self.group {
                Some(group) => user.command_in_group(group, program),
                None => user.command(program),
            },
            None => {
                let mut command = Command::new(program.as_ref());
                command.env_clear();
                for name in ["PATH", "HOME"] {
                    command.envs(std::env::var_os(name).map(|value| (name, value)));
                }
                command
            }
        };
        command.current_dir(self.path()).env("AGENCY_STATE_DIR", self.state.path()).stdin(Stdio::null());
        command
    }

    /// Where `agency` keeps the state of whatever is worked on here.
    pub fn state_home(&self) -> &Path {
        self.state.path()
    }

    /// Where `agency` keeps the state of this repository, or folder; a path that is not there before it has any.
    pub fn state(&self) -> PathBuf {
        let name = self.path().file_name().unwrap_or_default().to_string_lossy().into_owned() + "-";
        let is_ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&name);
        let kinds = ["repositories", "folders"].map(|kind| self.state.path().join(kind));
        let mut all = kinds.iter().flat_map(|kind| fs::read_dir(kind).into_iter().flatten().flatten());
        all.find(is_ours).map_or_else(|| self.state.path().join("none"), |entry| entry.path())
    }

    /// `agency sandbox` with these arguments.
    pub fn sandbox<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.command(&self.agency);
        command.arg("sandbox").args(arguments);
        command
    }

    /// Runs a shell script in the sandbox, with these flags before it.
    pub fn script(&self, flags: &[&str], script: &str) -> io::Result<Output> {
        self.sandbox(flags).args(["--", "sh", "-c", script]).output()
    }

    /// User and group of who works in it, where that is not who runs the tests.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.user.as_ref().map(|user| (user.uid(), user.gid()))
    }

    pub fn agency(&self) -> &Path {
        &self.agency
    }

    pub fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path().join(name))
    }

    /// What git says has changed in the real folder.
    pub fn status(&self) -> io::Result<String> {
        let output = self.command("git").args(["status", "--porcelain"]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Folders of runs that were not removed.
    pub fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let runs = self.state().join("sandboxes");
        fs::read_dir(runs)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }
}

/// Standard output and error of a run, as text.
pub fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Says that a test did not run, and why; `scripts/test` lists these at the end.
#[allow(clippy::print_stderr)]
pub fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(file) = std::env::var_os("AGENCY_SKIPPED") {
        use std::io::Write;
        let opened = fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = opened.and_then(|mut file| writeln!(file, "{line}"));
    }
}
