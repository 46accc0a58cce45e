//! A repository, the person who owns it, and the program that lands in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agency_landing::repository::{LandingRepository, RepositoryOptions};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use serde_json::Value;
use tempfile::TempDir;

/// Who owns the repository, and who lands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// Whoever runs the tests does both.
    Same,
    /// An ordinary user does both.
    User,
}

/// A number that no distribution gives to people or services.
const USER: u32 = 61_950;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Every git of another version there is, the oldest first.
pub(crate) fn gits() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = BTreeMap::new();
    for folder in std::env::split_paths(&path).chain(["/usr/bin".into()]) {
        let git = folder.join("git");
        if let Ok(output) = Command::new(&git).arg("version").output() {
            found.entry(output.stdout).or_insert(git);
        }
    }
    assert!(!found.is_empty(), "git is needed");
    found.into_values().collect()
}

/// One for each actor and one for each git, where both are many: every actor, and every git, at least once.
pub(crate) fn worlds() -> Vec<World> {
    let mut worlds = worlds_by_git();
    if is_root() {
        worlds.push(World::new(ends().0, Actor::User, &[]));
    }
    worlds
}

/// The oldest git and the newest.
pub(crate) fn ends() -> (PathBuf, PathBuf) {
    let gits = gits();
    (gits[0].clone(), gits[gits.len() - 1].clone())
}

/// One for each git.
pub(crate) fn worlds_by_git() -> Vec<World> {
    gits().into_iter().map(|git| World::new(git, Actor::Same, &[])).collect()
}

#[derive(Debug)]
pub(crate) struct World {
    folder: TempDir,
    pub(crate) git: PathBuf,
    pub(crate) actor: Actor,
    program: PathBuf,
}

/// What a candidate does to a path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Put<'a> {
    File(&'a [u8]),
    Program(&'a [u8]),
    Link(&'a str),
    Gone,
}

impl World {
    /// A repository with one commit on `main`.
    pub(crate) fn new(git: PathBuf, actor: Actor, init: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("agency-landing-").tempdir().expect("a folder");
        let mut program = PathBuf::from(env!("CARGO_BIN_EXE_land_here"));
        if actor == Actor::User && is_root() {
            // Where it was built may be out of the user's reach.
            let copy = folder.path().join("land_here");
            fs::copy(&program, &copy).expect("copied");
            program = copy;
        }
        let world = Self { folder, git, actor, program };
        for path in [world.home(), world.root()] {
            fs::create_dir(path).expect("made");
        }
        world.give(world.folder.path());
        world.give(&world.home());
        world.give(&world.root());
        world.git(&[&["init", "--quiet", "--initial-branch=main"], init].concat());
        for number in 1..=3 {
            world.write(&format!("src/{number}.txt"), lines(number * 100).as_bytes());
        }
        world.write("README", b"read me\n");
        world.write("docs/guide", b"guide\n");
        world.commit("First");
        world
    }

    /// As the library sees it.
    pub(crate) fn open(&self) -> LandingRepository {
        self.open_with(&self.git)
    }

    /// With another program as git.
    pub(crate) fn open_with(&self, git: &Path) -> LandingRepository {
        let folder = WorkspaceFolder::discover(&self.root()).expect("a folder");
        let found = folder.repository.expect("a repository");
        let opening = RepositoryOptions {
            program: git,
            repository: &found,
            root: Some(&folder.root),
            place: &self.place(),
            home: Some(&self.home()),
            patience: Duration::from_secs(10),
        };
        LandingRepository::open(&opening).expect("opens")
    }

    /// Where landings keep their own.
    pub(crate) fn place(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    /// Outside the repository, and the person's.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn owner(&self) -> Option<u32> {
        (self.actor != Actor::Same).then_some(USER)
    }

    fn give(&self, path: &Path) {
        if let Some(owner) = self.owner() {
            std::os::unix::fs::lchown(path, Some(owner), Some(owner)).expect("given");
        }
    }

    /// The person's own git.
    pub(crate) fn command(&self, at: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.git);
        command.args(arguments).current_dir(at).env_clear().stdin(Stdio::null());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", self.home()).env("GIT_CONFIG_NOSYSTEM", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Somebody");
            command.env(format!("GIT_{role}_EMAIL"), "somebody@example.org");
        }
        if let Some(owner) = self.owner() {
            command.uid(owner).gid(owner);
        }
        command
    }

    pub(crate) fn git_at(&self, at: &Path, arguments: &[&str]) -> String {
        let output = self.command(at, arguments).output().expect("git runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        self.git_at(&self.root(), arguments)
    }

    pub(crate) fn write_at(&self, root: &Path, name: &str, content: &[u8]) {
        let path = root.join(name);
        let mut folders: Vec<&Path> =
            path.ancestors().skip(1).take_while(|folder| !folder.is_dir()).collect();
        while let Some(folder) = folders.pop() {
            fs::create_dir(folder).expect("made");
            self.give(folder);
        }
        fs::write(&path, content).expect("written");
        self.give(&path);
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        self.write_at(&self.root(), name, content);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.root().join(name)).expect(name)).into_owned()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.root().join(name).symlink_metadata().is_ok()
    }

    pub(crate) fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn at(&self, revision: &str) -> String {
        self.git(&["rev-parse", "--verify", revision])
    }

    pub(crate) fn status(&self) -> String {
        self.git(&["status", "--porcelain", "--untracked-files=all"])
    }

    /// A commit on `base` that no work tree has seen.
    pub(crate) fn candidate(&self, base: &str, changes: &[(&str, Put<'_>)]) -> String {
        let index = self.outside("candidate.index");
        let _ = fs::remove_file(&index);
        let run = |arguments: &[&str], input: &[u8]| {
            use std::io::Write;
            let mut command = self.command(&self.root(), arguments);
            command.env("GIT_INDEX_FILE", &index).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("git runs");
            child.stdin.take().expect("input").write_all(input).expect("written");
            let output = child.wait_with_output().expect("git ends");
            assert!(output.status.success(), "git {arguments:?}");
            String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
        };
        run(&["read-tree", base], b"");
        for gone in [true, false] {
            for (path, put) in changes.iter().filter(|(_, put)| matches!(put, Put::Gone) == gone) {
                let (mode, content) = match put {
                    Put::File(content) => ("100644", *content),
                    Put::Program(content) => ("100755", *content),
                    Put::Link(target) => ("120000", target.as_bytes()),
                    Put::Gone => {
                        run(&["update-index", "--force-remove", "--", path], b"");
                        continue;
                    }
                };
                let object = run(&["hash-object", "-w", "--stdin"], content);
                run(&["update-index", "--add", "--replace", "--cacheinfo", mode, &object, path], b"");
            }
        }
        let tree = run(&["write-tree"], b"");
        run(&["commit-tree", &tree, "-p", base, "-m", "Work of an agent"], b"")
    }

    /// The program that lands, with these arguments.
    pub(crate) fn program(&self, task: &str, arguments: &[&str]) -> Command {
        self.program_at(&self.root(), task, arguments)
    }

    pub(crate) fn program_at(&self, root: &Path, task: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.arg(format!("git={}", self.git.display()));
        command.arg(format!("root={}", root.display()));
        command.arg(format!("home={}", self.home().display()));
        command.arg(format!("place={}", self.place().display()));
        command.arg(format!("task={task}"));
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        if self.actor == Actor::User {
            command.uid(USER).gid(USER);
        }
        command
    }

    pub(crate) fn land_with(&self, task: &str, candidate: &str, arguments: &[&str]) -> Said {
        let candidate = format!("candidate={candidate}");
        let all = [&[candidate.as_str(), "scope=**"], arguments].concat();
        Said::of(self.program(task, &all).spawn().expect("it starts"))
    }

    pub(crate) fn land(&self, task: &str, candidate: &str) -> Said {
        self.land_with(task, candidate, &[])
    }

    /// How many commits of the branch carry the trailer of a task.
    pub(crate) fn landings(&self, branch: &str, task: &str) -> usize {
        let format = "--format=%(trailers:key=Agency-Task,valueonly,separator=%x2C)";
        self.git(&["log", format, branch]).lines().filter(|line| *line == task).count()
    }

    /// Every file of the work tree with its bytes, mode and inode, without git's own.
    pub(crate) fn picture(&self) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
        let (mut found, mut waiting) = (BTreeMap::new(), vec![self.root()]);
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(folder).expect("listed").flatten() {
                let (path, stat) = (entry.path(), entry.metadata().expect("looked"));
                if stat.is_dir() && !path.ends_with(".git") {
                    // A git that was killed may leave locks of our own references, which the next claim passes by.
                    if !path.ends_with("refs/agency") {
                        waiting.push(path);
                    }
                } else if stat.is_file() {
                    found.insert(path.clone(), (stat.mode(), stat.ino(), fs::read(&path).expect("read")));
                } else if stat.is_symlink() {
                    let target = fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec();
                    found.insert(path, (stat.mode(), stat.ino(), target));
                }
            }
        }
        found
    }

    /// Lock files anywhere in the repository.
    pub(crate) fn locks(&self) -> Vec<PathBuf> {
        let (mut found, mut waiting) = (Vec::new(), vec![self.root().join(".git")]);
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(folder).expect("listed").flatten() {
                let path = entry.path();
                if entry.file_type().expect("looked").is_dir() {
                    // A git that was killed may leave locks of our own references, which the next claim passes by.
                    if !path.ends_with("refs/agency") {
                        waiting.push(path);
                    }
                } else if path.extension() == Some(OsStr::new("lock")) || path.ends_with("index.agency") {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Nothing is left of a landing but what landed.
    pub(crate) fn assert_tidy(&self) {
        assert_eq!(self.locks(), [] as [PathBuf; 0]);
        assert!(!self.place().join("landing.json").exists(), "a journal is left");
        let left = fs::read_dir(self.root()).expect("listed").flatten();
        let left: Vec<_> =
            left.filter(|entry| entry.file_name().as_bytes().starts_with(b".agency")).collect();
        assert!(left.is_empty(), "{left:?}");
        self.git(&["fsck", "--no-dangling", "--strict"]);
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.root().join(name), fs::Permissions::from_mode(mode)).expect("chmod");
    }
}

pub(crate) fn lines(from: usize) -> String {
    (from..from + 30).map(|number| format!("line {number}\n")).collect()
}

/// With one line of it replaced.
pub(crate) fn edited(from: usize, line: usize, text: &str) -> Vec<u8> {
    lines(from).replace(&format!("line {line}\n"), &format!("{text}\n")).into_bytes()
}

/// What the program said, or that it was killed.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) value: Value,
    pub(crate) killed: bool,
}

impl Said {
    pub(crate) fn of(child: Child) -> Self {
        let output = child.wait_with_output().expect("it ends");
        let killed = output.status.signal() == Some(9);
        let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        assert!(killed || value.is_object(), "{output:?}");
        Self { value, killed }
    }

    pub(crate) fn outcome(&self) -> &str {
        self.value["outcome"].as_str().unwrap_or("killed")
    }

    pub(crate) fn text(&self) -> &str {
        self.value["text"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn is(&self, outcome: &str) -> &Self {
        assert_eq!(self.outcome(), outcome, "{}", self.value);
        self
    }

    /// That it waits, for these files.
    #[track_caller]
    pub(crate) fn waits_for(&self, expected: &[(&str, &str)]) {
        self.is("waits");
        let obstacles = self.value["obstacles"].as_array().expect("a list");
        let found: Vec<(&str, &str)> = obstacles
            .iter()
            .map(|one| (one["what"].as_str().expect("a kind"), one["path"].as_str().unwrap_or_default()))
            .collect();
        assert_eq!(found, expected, "{}", self.value);
    }
}
