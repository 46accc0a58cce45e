//! Small folders and repositories to look at and to prove things on.
#![allow(dead_code, unreachable_pub)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A folder with a few files.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new(files: &[(&str, &str)]) -> Self {
        // Not below HOME or a temporary folder where that can be had: those are writable inside a sandbox, and
        // would hide that something else is not.
        let root = rustix::process::geteuid().is_root();
        let base = if root { "/srv" } else { "/var/tmp" };
        fs::create_dir_all(base).expect("a base");
        let folder = tempfile::Builder::new().prefix("agency-profiles-").tempdir_in(base).expect("a folder");
        let place = Self { folder };
        for (name, text) in files {
            place.write(name, text);
        }
        place
    }

    /// With all of them committed.
    pub fn repository(files: &[(&str, &str)]) -> Self {
        Self::new(files).into_repository(&[])
    }

    pub fn into_repository(self, options: &[&str]) -> Self {
        let mut init = vec!["init", "--quiet", "--initial-branch=main"];
        init.extend(options);
        self.git(&init);
        self.commit("First");
        self
    }

    pub fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    /// What git says, in this folder, without anybody's own configuration.
    pub fn git(&self, arguments: &[&str]) -> String {
        let output = git(self.path()).args(arguments).output().expect("git runs");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Every path with its mode, time and bytes.
    pub fn everything(&self) -> Vec<(PathBuf, u32, i64, Vec<u8>)> {
        use std::os::unix::fs::MetadataExt;
        let (mut found, mut waiting) = (Vec::new(), vec![self.path().to_owned()]);
        while let Some(path) = waiting.pop() {
            let meta = path.symlink_metadata().expect("it is there");
            let bytes = if meta.is_file() { fs::read(&path).expect("reads") } else { Vec::new() };
            // A folder we mount over may have been entered; its files tell the rest.
            let time = if meta.is_dir() { 0 } else { meta.mtime_nsec() ^ (meta.mtime() << 30) };
            if meta.is_dir() {
                waiting
                    .extend(fs::read_dir(&path).expect("lists").map(|entry| entry.expect("an entry").path()));
            }
            found.push((path, meta.mode(), time, bytes));
        }
        found.sort();
        found
    }
}

pub fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).env_clear().stdin(Stdio::null());
    git.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    for (name, value) in [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_AUTHOR_NAME", "Somebody"),
        ("GIT_AUTHOR_EMAIL", "somebody@example.org"),
        ("GIT_COMMITTER_NAME", "Somebody"),
        ("GIT_COMMITTER_EMAIL", "somebody@example.org"),
    ] {
        git.env(name, value);
    }
    git
}

/// A place, and a proof of it by `prove_here`.
#[derive(Debug)]
pub struct Prover {
    pub place: Place,
    pub outside: TempDir,
    variables: Vec<(String, String)>,
}

/// What `prove_here` said.
#[derive(Debug)]
pub struct Said(pub serde_json::Value);

impl Prover {
    /// On a repository with these commands as its own profile, `mine`.
    pub fn of(commands: &str) -> Self {
        Self::on(Place::repository(&[("src/a", "one\n"), (".gitignore", "/target\n")]), commands)
    }

    pub fn on(place: Place, commands: &str) -> Self {
        let outside = tempfile::tempdir().expect("a folder");
        let profile = format!("name: mine\ndescription: Mine\n{commands}");
        fs::create_dir(outside.path().join("profiles")).expect("a folder");
        fs::write(outside.path().join("profiles/mine.yml"), profile).expect("a profile");
        Self { place, outside, variables: Vec::new() }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub fn outside(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    pub fn log(&self, start: &str) -> String {
        let entries = fs::read_dir(self.outside("logs")).expect("logs").flatten();
        let mut paths = entries.map(|entry| entry.path());
        let found =
            paths.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)));
        String::from_utf8_lossy(&fs::read(found.expect("a log")).expect("reads")).into_owned()
    }

    /// Proves it with the profile `mine`, trusted.
    pub fn prove(&self, more: &[&str]) -> Said {
        self.prove_as(&[&["profile=mine", "trusted"], more].concat())
    }

    pub fn prove_as(&self, arguments: &[&str]) -> Said {
        let output = self.command(arguments).output().expect("runs");
        let said = serde_json::from_slice(&output.stdout);
        Said(said.unwrap_or_else(|error| panic!("{error}: {output:?}")))
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prove_here"));
        let named = |key: &str, path: &Path| format!("{key}={}", path.display());
        command
            .arg(named("folder", self.place.path()))
            .arg(named("logs", &self.outside("logs")))
            .arg(named("state", &self.outside("state")))
            .arg(named("profiles", &self.outside("profiles")))
            .args(arguments)
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null());
        command
    }
}

impl Said {
    pub fn passed(&self) -> bool {
        assert!(self.0.get("error").is_none(), "{}", self.0["error"]);
        self.0["passed"].as_bool().expect("a verdict")
    }

    pub fn error(&self) -> &str {
        self.0["error"].as_str().unwrap_or_else(|| panic!("no error: {}", self.0))
    }

    pub fn proof(&self) -> &serde_json::Value {
        assert!(self.0.get("error").is_none(), "{}", self.0["error"]);
        &self.0["proof"]
    }

    pub fn command(&self, index: usize) -> &serde_json::Value {
        &self.proof()["commands"][index]
    }

    pub fn notes(&self) -> Vec<&str> {
        self.proof()["notes"].as_array().expect("notes").iter().filter_map(|note| note.as_str()).collect()
    }
}

/// Whether any process of this machine was started with this word.
pub fn is_running(word: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}
