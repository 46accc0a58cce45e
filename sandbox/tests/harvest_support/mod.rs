//! Trees for the harvest to look at, and an independent opinion on what changed in them.
#![allow(dead_code, unreachable_pub, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use agency_sandbox::harvest::{BaseLayers, Harvest, HarvestChange, HarvestLimits, HarvestRules, harvest};
use agency_sandbox::path::RelPath;
use agency_sandbox::scope::Scope;
use agency_sandbox::secret::NamedSecret;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

pub fn rel(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a relative path")
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whiteouts, trusted attributes and mounts need root.
pub fn skipped_without_root() -> bool {
    if !is_root() {
        eprintln!("skipped: needs root");
    }
    !is_root()
}

pub fn directory(path: &Path) -> OwnedFd {
    OwnedFd::from(File::open(path).expect("opens"))
}

/// An upper layer over one plain base, made by hand.
pub struct Trees {
    pub temp: tempfile::TempDir,
    pub base: PathBuf,
    pub upper: PathBuf,
}

pub fn trees() -> Trees {
    let temp = tempfile::tempdir().expect("a directory");
    let (base, upper) = (temp.path().join("base"), temp.path().join("upper"));
    fs::create_dir(&base).expect("made");
    fs::create_dir(&upper).expect("made");
    Trees { temp, base, upper }
}

pub fn put(root: &Path, path: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> PathBuf {
    let path = root.join(Path::new(path.as_ref()));
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(&path, content).expect("written");
    path
}

pub fn link(root: &Path, path: &str, target: impl AsRef<OsStr>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    symlink(Path::new(target.as_ref()), path).expect("linked");
}

pub fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

pub fn whiteout(root: &Path, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    node(&path, rustix::fs::FileType::CharacterDevice, 0, 0);
}

pub fn node(path: &Path, kind: rustix::fs::FileType, major: u32, minor: u32) {
    let device = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), device).expect("made");
}

pub fn mark(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).expect("set");
}

/// What the rules of a test say, where they differ from "everything is in scope".
pub struct Asked<'a> {
    pub write: &'a [&'a str],
    pub deny: &'a [&'a str],
    pub scratch: &'a dyn Fn(&RelPath, bool) -> bool,
    pub hidden: Vec<RelPath>,
    pub secrets: Vec<NamedSecret>,
    pub limits: HarvestLimits,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self {
            write: &["**"],
            deny: &[],
            scratch: &|_, _| false,
            hidden: Vec::new(),
            secrets: Vec::new(),
            limits: HarvestLimits::default(),
        }
    }
}

impl Asked<'_> {
    pub fn of(&self, upper: &Path, layers: &[&Path]) -> Harvest {
        let scope = Scope::parse(self.write, self.deny).expect("globs");
        let rules = HarvestRules {
            scope: &scope,
            scratch: self.scratch,
            repository: true,
            hidden: &self.hidden,
            secrets: &self.secrets,
            limits: self.limits,
        };
        harvest(directory(upper).as_fd(), &base(layers), &rules)
    }
}

pub fn base(layers: &[&Path]) -> BaseLayers {
    BaseLayers::new(layers.iter().map(|layer| directory(layer)).collect())
}

impl Trees {
    pub fn harvest(&self) -> Harvest {
        self.asked(&Asked::default())
    }

    pub fn asked(&self, asked: &Asked<'_>) -> Harvest {
        asked.of(&self.upper, &[&self.base])
    }
}

/// Changes as short lines: `A path`, `M path`, `D path`, `T path`.
pub fn lines(changes: &[HarvestChange]) -> Vec<String> {
    use agency_sandbox::harvest::ChangeKind::*;
    let letter = |change: &HarvestChange| match change.kind() {
        Added => 'A',
        Modified => 'M',
        Deleted => 'D',
        TypeChanged => 'T',
    };
    changes.iter().map(|change| format!("{} {}", letter(change), change.path)).collect()
}

pub fn refusals(harvest: &Harvest) -> Vec<String> {
    harvest.violations.iter().map(|violation| violation.to_string()).collect()
}

/// A tree in git's view, read with the plainest means there are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    File { executable: bool, content: Vec<u8> },
    Link(Vec<u8>),
}

pub type Picture = BTreeMap<Vec<u8>, Seen>;

pub fn picture(root: &Path) -> Picture {
    fn look(path: &Path, prefix: &[u8], picture: &mut Picture) {
        for entry in fs::read_dir(path).expect("readable") {
            let entry = entry.expect("an entry");
            let mut name = prefix.to_vec();
            name.extend_from_slice(entry.file_name().as_bytes());
            let metadata = entry.metadata().expect("looked at");
            if metadata.is_dir() {
                name.push(b'/');
                look(&entry.path(), &name, picture);
            } else if metadata.is_file() {
                let content = fs::read(entry.path()).expect("read");
                picture.insert(name, Seen::File { executable: metadata.mode() & 0o100 != 0, content });
            } else if metadata.is_symlink() {
                let target = fs::read_link(entry.path()).expect("read").into_os_string().into_vec();
                picture.insert(name, Seen::Link(target));
            }
        }
    }
    let mut picture = Picture::new();
    look(root, b"", &mut picture);
    picture
}

/// What changed between two pictures, as [`lines`] writes it.
pub fn difference(before: &Picture, after: &Picture) -> Vec<String> {
    let paths: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let letter = |path: &Vec<u8>| match (before.get(path), after.get(path)) {
        (one, other) if one == other => None,
        (None, _) => Some('A'),
        (_, None) => Some('D'),
        (Some(Seen::File { .. }), Some(Seen::File { .. })) | (Some(Seen::Link(_)), Some(Seen::Link(_))) => {
            Some('M')
        }
        _ => Some('T'),
    };
    paths
        .into_iter()
        .filter_map(|path| {
            letter(path).map(|letter| format!("{letter} {}", RelPath::parse(path).expect("a path")))
        })
        .collect()
}

/// Mounts an overlay where only this test can see it, lets `work` change the merged tree, and returns what
/// the merged tree looked like in the end.
pub fn in_overlay(temp: &Path, layers: &[&Path], upper: &Path, work: impl FnOnce(&Path) + Send) -> Picture {
    let (index, merged) = (temp.join("work"), temp.join("merged"));
    for path in [&index, &merged] {
        fs::create_dir_all(path).expect("made");
    }
    let stack = layers.iter().map(|layer| layer.display().to_string()).collect::<Vec<_>>().join(":");
    let options = format!(
        "lowerdir={stack},upperdir={},workdir={},redirect_dir=off,metacopy=off",
        upper.display(),
        index.display()
    );
    std::thread::scope(|scope| {
        // A mount namespace belongs to a thread, so other tests of this process do not see the mount.
        let mounted = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("a mount namespace");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private");
            mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
                .expect("an overlay");
            work(&merged);
            let seen = picture(&merged);
            // Detached: a child that another test is just starting may still hold a copy of a descriptor.
            umount2(&merged, MntFlags::MNT_DETACH).expect("unmounted");
            seen
        });
        mounted.join().expect("the work ends")
    })
}

pub fn copy_tree(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success());
}
