//! Repositories to take snapshots of, and an independent opinion on what a tree looks like.
#![allow(dead_code, unreachable_pub, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::snapshot::{SnapshotLayers, Snapshots};
use agency_sandbox::workspace::state::{RunFolder, StateFolder, StateHome};
use agency_sandbox::workspace::{LayerAddition, Workspace, WriteLayer};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The gits there are here. Debian's own is older than what people have.
pub fn gits() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("git")];
    if Path::new("/usr/local/bin/git").exists() && Path::new("/usr/bin/git").exists() {
        found.push("/usr/bin/git".into());
    }
    found
}

pub fn skipped_without_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    !root
}

pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

pub struct Repo {
    pub temp: tempfile::TempDir,
    pub root: PathBuf,
    pub git: PathBuf,
}

impl Repo {
    pub fn new() -> Self {
        Self::with(Path::new("git"), &[])
    }

    /// In memory, where there is room: for tests that make and remove very many files, which some disks take
    /// badly.
    pub fn in_memory() -> Self {
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        Self::init(temp, Path::new("git"), &[])
    }

    pub fn with(git: &Path, options: &[&str]) -> Self {
        Self::init(tempfile::tempdir().expect("a folder"), git, options)
    }

    fn init(temp: tempfile::TempDir, git: &Path, options: &[&str]) -> Self {
        let root = temp.path().join("repo");
        let repo = Self { temp, root: root.clone(), git: git.to_owned() };
        fs::create_dir(&root).expect("made");
        repo.run(["init", "-q", "-b", "main"].iter().chain(options));
        repo
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        git_in(&self.git, &self.root, arguments)
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        output(&mut self.command(arguments))
    }

    pub fn feed<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>, input: &[u8]) -> String {
        let mut child =
            self.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git starts");
        child.stdin.take().expect("input").write_all(input).expect("fed");
        let output = child.wait_with_output().expect("git ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    pub fn put(&self, path: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(Path::new(path.as_ref()));
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, content).expect("written");
        path
    }

    pub fn commit(&self, message: &str) -> String {
        self.run(["add", "-A", "-f"]);
        self.run(["commit", "-q", "--allow-empty", "-m", message]);
        match fs::read_to_string(self.root.join(".git/refs/heads/main")) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => self.run(["rev-parse", "HEAD"]),
        }
    }

    pub fn blob(&self, content: &[u8]) -> String {
        self.feed(["hash-object", "-w", "--stdin", "--literally"], content)
    }

    /// A tree git itself would not make.
    pub fn tree(&self, lines: &str) -> String {
        let mut raw = Vec::new();
        for line in lines.lines() {
            let (mode, rest) = line.split_once(' ').expect("a mode");
            let (object, name) = rest.split_once(' ').expect("an object");
            raw.extend_from_slice(mode.as_bytes());
            raw.push(b' ');
            raw.extend_from_slice(name.as_bytes());
            raw.push(0);
            for pair in object.as_bytes().chunks(2) {
                raw.push(u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("a digit"));
            }
        }
        self.feed(["hash-object", "-t", "tree", "-w", "--stdin", "--literally"], &raw)
    }

    pub fn commit_tree(&self, tree: &str) -> String {
        self.run(["commit-tree", "-m", "made", tree])
    }

    pub fn folder(&self) -> WorkspaceFolder {
        WorkspaceFolder::discover(&self.root).expect("a folder")
    }

    pub fn state(&self) -> StateFolder {
        self.folder().state(&StateHome::at(&self.temp.path().join("state"))).expect("state")
    }

    pub fn run_folder(&self) -> RunFolder {
        let run = self.state().run();
        run.make().expect("a folder");
        run
    }

    pub fn snapshots(&self) -> Snapshots {
        let folder = self.folder();
        Snapshots::open(&self.state(), folder.repository.as_ref().expect("a repository"), &self.git)
            .expect("snapshots")
    }

    /// What a commit holds, as git itself tells it.
    pub fn truth(&self, commit: &str) -> Picture {
        let listing =
            self.command(["ls-tree", "-r", "-z", "--full-tree", commit]).output().expect("git runs");
        let mut picture = Picture::new();
        let mut wanted = Vec::new();
        for line in listing.stdout.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t').expect("a tab");
            let (mode, path) = (&line[..6], &line[tab + 1..]);
            let object = String::from_utf8_lossy(&line[12..tab]).into_owned();
            add_folders(&mut picture, path);
            match mode {
                b"160000" => drop(picture.insert(path.to_vec(), Seen::Folder)),
                _ => wanted.push((mode.to_vec(), object.trim().to_owned(), path.to_vec())),
            }
        }
        let asked: String = wanted.iter().map(|(_, object, _)| format!("{object}\n")).collect();
        let mut child = self
            .command(["cat-file", "--batch", "--buffer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git starts");
        let mut input = child.stdin.take().expect("input");
        let feeding = std::thread::spawn(move || input.write_all(asked.as_bytes()).expect("asked"));
        let answer = child.wait_with_output().expect("git answers").stdout;
        feeding.join().expect("asked");
        let mut rest = answer.as_slice();
        for (mode, _, path) in wanted {
            let end = rest.iter().position(|byte| *byte == b'\n').expect("a header");
            let header = String::from_utf8_lossy(&rest[..end]).into_owned();
            let size: usize = header.rsplit(' ').next().and_then(|size| size.parse().ok()).expect("a size");
            let content = rest[end + 1..end + 1 + size].to_vec();
            rest = &rest[end + 2 + size..];
            let seen = match mode.as_slice() {
                b"120000" => Seen::Link(content),
                mode => Seen::File { executable: mode == b"100755", content },
            };
            picture.insert(path, seen);
        }
        picture
    }
}

fn add_folders(picture: &mut Picture, path: &[u8]) {
    for (slash, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        picture.insert(path[..slash].to_vec(), Seen::Folder);
    }
}

pub fn git_in<S: AsRef<OsStr>>(git: &Path, folder: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(git);
    command
        .current_dir(folder)
        .args(["-c", "safe.directory=*", "-c", "user.name=A", "-c", "user.email=a@b"])
        .args(["-c", "protocol.file.allow=always"])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
        .stdin(Stdio::null())
        .args(arguments);
    command
}

pub fn output(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Folder,
    File { executable: bool, content: Vec<u8> },
    Link(Vec<u8>),
    Other(u32),
}

pub type Picture = BTreeMap<Vec<u8>, Seen>;

/// Everything below a folder except the `.git` at its top.
pub fn picture(root: &Path) -> Picture {
    let mut picture = Picture::new();
    let mut waiting = vec![(root.to_owned(), Vec::new())];
    while let Some((folder, prefix)) = waiting.pop() {
        for entry in fs::read_dir(&folder).expect("read") {
            let entry = entry.expect("an entry");
            if prefix.is_empty() && entry.file_name() == ".git" {
                continue;
            }
            let mut name = prefix.clone();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(entry.file_name().as_bytes());
            let metadata = entry.path().symlink_metadata().expect("looked");
            let mode = metadata.permissions().mode();
            let seen = if metadata.is_dir() {
                assert_eq!(mode & 0o7777, 0o755, "{}", entry.path().display());
                waiting.push((entry.path(), name.clone()));
                Seen::Folder
            } else if metadata.is_symlink() {
                Seen::Link(fs::read_link(entry.path()).expect("read").into_os_string().into_vec())
            } else if metadata.is_file() {
                let executable = mode & 0o100 != 0;
                assert_eq!(mode & 0o7777, if executable { 0o755 } else { 0o644 });
                Seen::File { executable, content: fs::read(entry.path()).expect("read") }
            } else {
                Seen::Other(mode)
            };
            picture.insert(name, seen);
        }
    }
    picture
}

/// Compares without printing whole files.
pub fn assert_same(seen: &Picture, truth: &Picture, what: &str) {
    let names: BTreeSet<_> = seen.keys().chain(truth.keys()).collect();
    let differ: Vec<String> = names
        .into_iter()
        .filter(|name| seen.get(*name) != truth.get(*name))
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    assert!(differ.is_empty(), "{what}: these differ: {differ:?}");
}

/// Mounts a workspace as a sandbox would, at another path and where only this thread can see it, and lets
/// `work` look at it.
pub fn mounted<T: Send>(workspace: &Workspace, scratch: &Path, work: impl FnOnce(&Path) -> T + Send) -> T {
    let overlay = &workspace.overlays[0];
    let (top, merged) = (scratch.join("top"), scratch.join("merged"));
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(&top).expect("made");
    let WriteLayer::Disk { upper, work: index } = &overlay.layer else { unreachable!("it is on disk") };
    for folder in [&merged, upper, index] {
        fs::create_dir_all(folder).expect("made");
    }
    for added in &overlay.added {
        match added {
            LayerAddition::Directory(path) => fs::create_dir_all(top.join(path.as_path())).expect("made"),
            LayerAddition::File(path, contents) => {
                let path = top.join(path.as_path());
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                fs::write(path, contents).expect("written");
            }
            LayerAddition::Absence(_) => unreachable!("a snapshot hides nothing of itself"),
        }
    }
    let mut lowers = vec![top.display().to_string()];
    lowers.extend(overlay.lowers.iter().map(|lower| lower.display().to_string()));
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off,volatile",
        lowers.join(":"),
        upper.display(),
        index.display(),
    );
    std::thread::scope(|scope| {
        let mounted = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("a mount namespace");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private");
            mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
                .expect("an overlay");
            for objects in &workspace.objects {
                let Ok(inside) = objects.at.strip_prefix(&workspace.path) else { continue };
                let at = merged.join(inside);
                mount(Some(&objects.source), &at, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                    .expect("bound");
                let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                mount(None::<&str>, &at, None::<&str>, flags, None::<&str>).expect("read-only");
            }
            let result = work(&merged);
            umount2(&merged, MntFlags::MNT_DETACH).expect("unmounted");
            result
        });
        match mounted.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Git in the workspace finds nothing changed.
pub fn assert_clean(git: &Path, merged: &Path, what: &str) {
    assert_unread(git, merged, what);
    let status = output(&mut git_in(git, merged, ["status", "--porcelain", "--ignored"]));
    assert_eq!(status, "", "{what}");
}

/// Git does not have to read a file to know that nothing changed.
pub fn assert_unread(git: &Path, merged: &Path, what: &str) {
    // Lists files whose size or time is not the index's, without looking at what they hold.
    let dirty = output(&mut git_in(git, merged, ["diff-files", "--name-status"]));
    assert_eq!(dirty, "", "{what}: these would be read");
    let index = merged.join(".git/index").symlink_metadata().expect("an index").mtime();
    let youngest = output(&mut git_in(git, merged, ["ls-files", "--debug"]))
        .lines()
        .filter_map(|line| line.trim().strip_prefix("mtime: ")?.split(':').next()?.parse::<i64>().ok())
        .max();
    assert!(youngest.is_none_or(|youngest| youngest < index), "{what}: {youngest:?} and {index}");
}

/// What the layers show, through a real overlay, is the commit; and git agrees.
pub fn assert_shows(repo: &Repo, snapshots: &Snapshots, layers: &SnapshotLayers, commit: &str) {
    assert_eq!(layers.commit, commit);
    let run = repo.run_folder();
    let workspace = snapshots.workspace(layers, &repo.root, &run).expect("a workspace");
    let scratch = tempfile::tempdir_in(repo.temp.path()).expect("a folder");
    mounted(&workspace, scratch.path(), |merged| {
        assert_same(&picture(merged), &repo.truth(commit), commit);
        assert_clean(&repo.git, merged, commit);
        // The names of trees the index carries are those git would compute.
        assert_eq!(output(&mut git_in(&repo.git, merged, ["write-tree"])), layers.tree);
    });
}
