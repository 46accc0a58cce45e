//! The state folder: where we keep what we need to remember, and how what a crash left is removed.
//!
//! ```text
//! <home>/                        of one user: AGENCY_STATE_DIR, or agency/ in the user's state folder (XDG)
//!   repositories/<name>-<key>/   of one repository: store, runs, snapshots, journals
//!   folders/<name>-<key>/        of a folder that is in no repository
//!   sandboxes/                   private copies, at the level `landlock`
//! ```
//!
//! It never lies in the repository, whose files, `.git` included, any person may have packed: we wrote what is
//! found here. Each folder down to it belongs to the user who asks, and no other user can write it; that is checked
//! by descriptor, each time.
//!
//! A repository is known by the path, the inode and the birth of its common directory. Linked worktrees share one state;
//! a copy, or another repository at the same path, does not inherit it.
//!
//! Each run has a folder of its own and holds a lock on it for as long as it lives. A folder without a holder is what a
//! killed run left, and the next one removes it.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::account::{self, Account};

pub use super::run_folder::RunFolder;

/// The variable that says where all state lies.
pub const VARIABLE: &str = "AGENCY_STATE_DIR";
/// What an older version, or another program, left in a repository's common directory.
pub const LEGACY: &str = "agency";
/// Where the state of users without a home lies, a folder for each. Root makes them.
pub const HOMELESS: &str = "/var/lib/agency";

const REPOSITORIES: &str = "repositories";
const FOLDERS: &str = "folders";

const OURS_ALONE: u32 = 0o700;
/// Others pass, and see nothing but what they know the name of and may.
const PASSABLE: u32 = 0o711;

/// Why there is no state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("there is no place for state: {} has no home folder", account::name_of(*uid))]
    Homeless { uid: u32 },
    #[error("the state folder {} belongs to {}, not to you", path.display(), account::name_of(*owner))]
    Foreign { path: PathBuf, owner: u32 },
    #[error("the state folder {} can be written by others", path.display())]
    Open { path: PathBuf },
    #[error("the state folder {} is a link, or no folder", path.display())]
    NoFolder { path: PathBuf },
    #[error("the state folder {} lies in the work tree {}", state.display(), root.display())]
    Inside { state: PathBuf, root: PathBuf },
    #[error("{VARIABLE} must be an absolute path, and `{}` is none", path.display())]
    Relative { path: PathBuf },
    #[error("can't use the state folder {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl StateError {
    /// What a person can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Homeless { .. } => Some(format!(
                "set {VARIABLE} to a folder of yours, or let root run the command once: it makes {HOMELESS}/UID"
            )),
            Self::Foreign { .. } | Self::Inside { .. } => {
                Some(format!("set {VARIABLE} to a folder of yours outside the work tree"))
            }
            Self::Open { path } => Some(format!("`chmod go-w {}`", path.display())),
            Self::NoFolder { path } => Some(format!("remove {}, or set {VARIABLE}", path.display())),
            Self::Relative { .. } | Self::Io { .. } => {
                Some(format!("set {VARIABLE} to a folder of yours, by its absolute path"))
            }
        }
    }
}

/// The folder in which all state of one user lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateHome {
    path: PathBuf,
}

impl StateHome {
    /// Of the user who runs this process.
    pub fn find() -> Result<Self, StateError> {
        let uid = rustix::process::geteuid().as_raw();
        let named = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty())
        };
        if let Some(path) = named(VARIABLE) {
            return match path.is_absolute() {
                true => Ok(Self { path }),
                false => Err(StateError::Relative { path }),
            };
        }
        // `sudo` may leave another user's HOME in the environment.
        let is_ours = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == uid);
        let is_home = |path: &PathBuf| path.is_absolute() && is_ours(path);
        let state = named("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let home = named("HOME").filter(is_home);
        let home = home.or_else(|| Account::of(uid).map(|account| account.home).filter(is_home));
        let below = state.or_else(|| home.map(|home| home.join(".local/state")));
        let homeless = || Some(Path::new(HOMELESS).join(uid.to_string())).filter(|path| path.is_dir());
        let path = below.map(|below| below.join("agency")).or_else(homeless);
        path.map(|path| Self { path }).ok_or(StateError::Homeless { uid })
    }

    /// Makes the place for the state of a user who has no home. Only root can.
    pub fn make_for_homeless(uid: u32, gid: u32) -> Result<(), StateError> {
        let (all, path) = (Path::new(HOMELESS), Path::new(HOMELESS).join(uid.to_string()));
        let failed = |path: &Path, error: io::Error| StateError::Io { path: path.to_owned(), source: error };
        StateFolder::for_copies(all, true).map_err(|error| failed(all, error))?;
        let above = File::open("/var/lib").map_err(|error| failed(all, error))?;
        let all = own_folder(above.as_fd(), all)?;
        match own_folder(all.as_fd(), &path) {
            Ok(made) => {
                let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
                rustix::fs::fchown(made, Some(uid), Some(gid)).map_err(|error| failed(&path, error.into()))
            }
            // It was made before.
            Err(StateError::Foreign { owner, .. }) if owner == uid => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// At a path that was found before.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it lies in a folder, by the way the file system goes, also where it is not made yet.
    pub fn is_in(&self, folder: &Path) -> bool {
        let there = self.path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
        let Some((above, real)) = there else { return false };
        real.join(self.path.strip_prefix(above).unwrap_or(Path::new(""))).starts_with(folder)
    }

    /// A folder for something else that is the user's own, made if it is missing.
    pub fn user_folder(&self, name: &str) -> Result<PathBuf, StateError> {
        let path = self.path.join(name);
        own_folder(self.open_home()?.as_fd(), &path).map(|_| path)
    }

    /// Of the repository with this common directory.
    pub fn repository(&self, common: &Path) -> Result<StateFolder, StateError> {
        self.open(REPOSITORIES, common)
    }

    /// The same, if there is one yet.
    pub fn existing(&self, common: &Path) -> Option<StateFolder> {
        let path = self.path.join(REPOSITORIES).join(key_of(common).ok()?);
        path.is_dir().then(|| self.repository(common).ok())?
    }

    /// The state folders of all repositories.
    pub fn repositories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path.join(REPOSITORIES)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Of a folder that is in no repository.
    pub fn folder(&self, folder: &Path) -> Result<StateFolder, StateError> {
        self.open(FOLDERS, folder)
    }

    fn open(&self, kind: &str, of: &Path) -> Result<StateFolder, StateError> {
        let name = key_of(of).map_err(|source| StateError::Io { path: of.to_owned(), source })?;
        let all = self.path.join(kind);
        let path = all.join(name);
        own_folder(own_folder(self.open_home()?.as_fd(), &all)?.as_fd(), &path)?;
        Ok(StateFolder { path, mode: OURS_ALONE })
    }

    /// The home itself, made if it is missing. The user chooses what lies above it, but no other user may be able to
    /// put something in its place.
    fn open_home(&self) -> Result<OwnedFd, StateError> {
        let failed = |error: io::Error| StateError::Io { path: self.path.clone(), source: error };
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = match rustix::fs::open(parent, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                DirBuilder::new().recursive(true).mode(OURS_ALONE).create(parent).map_err(failed)?;
                rustix::fs::open(parent, flags, Mode::empty())
            }
            // A user who may only pass through it finds what was made there.
            Err(Errno::ACCESS) => rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty()),
            other => other,
        };
        let above = above.map_err(|error| failed(error.into()))?;
        let stat = rustix::fs::fstat(&above).map_err(|error| failed(error.into()))?;
        let sticky = stat.st_mode & 0o1000 != 0;
        let ours = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
        if !ours && !is_unmapped(stat.st_uid) {
            return Err(StateError::Foreign { path: parent.to_owned(), owner: stat.st_uid });
        }
        if stat.st_mode & 0o002 != 0 && !sticky {
            return Err(StateError::Open { path: parent.to_owned() });
        }
        own_folder(above.as_fd(), &self.path)
    }
}

/// Whether a number stands for users outside of this user namespace, root among them.
fn is_unmapped(uid: u32) -> bool {
    let number = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let overflow = number("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65_534);
    let whole = number("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    uid == overflow && !whole
}

/// A folder that belongs to us and that no other user can write, made if it is missing. `parent` is held open.
fn own_folder(parent: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, StateError> {
    let failed = |error: Errno| StateError::Io { path: path.to_owned(), source: error.into() };
    let name = path.file_name().unwrap_or_default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::empty());
    let opened = match open() {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(OURS_ALONE)) {
                // Another process was faster.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            rustix::fs::fsync(parent).map_err(failed)?;
            open()
        }
        other => other,
    };
    let held = match opened {
        Ok(held) => held,
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(StateError::NoFolder { path: path.to_owned() }),
        Err(error) => return Err(failed(error)),
    };
    let stat = rustix::fs::fstat(&held).map_err(failed)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(StateError::Foreign { path: path.to_owned(), owner: stat.st_uid });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(StateError::Open { path: path.to_owned() });
    }
    Ok(held)
}

/// What tells the state of one folder from that of every other: a name for people, and a key of path, inode and birth.
/// The device is left out: its number may be another after each boot.
pub fn key_of(of: &Path) -> io::Result<String> {
    let stat = rustix::fs::statx(
        rustix::fs::CWD,
        of,
        AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::INO | StatxFlags::BTIME,
    )?;
    // Not every file system says when a file was born.
    let birth = (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(stat.stx_btime);
    let birth = birth.map_or((0, 0), |birth| (birth.tv_sec, birth.tv_nsec));
    let mut hash = Sha256::new();
    hash.update(of.as_os_str().as_bytes());
    hash.update([0]);
    hash.update(stat.stx_ino.to_le_bytes());
    hash.update(birth.0.to_le_bytes());
    hash.update(birth.1.to_le_bytes());
    let key: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    // A `.git` is called by its work tree.
    let named = of.parent().filter(|_| of.ends_with(".git")).unwrap_or(of).file_name().unwrap_or_default();
    let name: String = named.to_string_lossy().chars().take(40).map(plain).collect();
    Ok(format!("{}-{key}", name.trim_start_matches('.')))
}

/// The state folder of a workspace.
#[derive(Debug, Clone)]
pub struct StateFolder {
    path: PathBuf,
    /// Which users may pass through its folders, as mode bits.
    mode: u32,
}

impl StateFolder {
    /// One that was opened before, by this user.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), mode: OURS_ALONE }
    }

    /// For private copies of workspaces. They lie outside every repository, where a tool that looks for its
    /// project above its folder finds no other one; root's lie where an agent without rights on the host gets to.
    pub fn for_copies(folder: &Path, root: bool) -> io::Result<Self> {
        let mode = if root { PASSABLE } else { OURS_ALONE };
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(mode).create(folder)?;
            // The umask took bits away.
            fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
        }
        Ok(Self { path: folder.to_owned(), mode })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder in which all state of its user lies.
    pub fn home(&self) -> &Path {
        self.path.ancestors().nth(2).unwrap_or(&self.path)
    }

    /// A folder in it, made if it is missing.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        if path.is_dir() {
            return Ok(path);
        }
        DirBuilder::new().recursive(true).mode(OURS_ALONE).create(&path)?;
        Ok(path)
    }

    /// A run: its folder has a name, and is made when it is first needed.
    pub fn run(&self) -> RunFolder {
        RunFolder::new_in(&self.path, self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_repository_is_known_by_its_path_and_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, git) = (StateHome::at(&folder.path().join("state")), folder.path().join("shop/.git"));
        fs::create_dir_all(&git).expect("folders");
        let state = home.repository(&git).expect("state");
        assert_eq!(home.repository(&git).expect("state").path(), state.path());
        let name = state.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(name.starts_with("shop-") && name.len() == 5 + 32, "{name}");
        // Moved, and another one in its place.
        fs::rename(folder.path().join("shop"), folder.path().join("store")).expect("moved");
        let moved = home.repository(&folder.path().join("store/.git")).expect("state");
        assert_ne!(moved.path(), state.path());
        fs::create_dir_all(&git).expect("folders");
        assert_ne!(home.repository(&git).expect("state").path(), state.path());
    }

    #[test]
    fn a_folder_that_is_not_ours_alone_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let said = |home: &Path| StateHome::at(home).folder(folder.path()).expect_err("refused").to_string();
        fs::create_dir(at("open")).expect("made");
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).expect("chmod");
        assert!(said(&at("open")).contains("can be written by others"));
        assert!(
            said(&at("open/below")).contains("can be written by others"),
            "who may replace it may read it"
        );
        fs::create_dir(at("real")).expect("made");
        symlink(at("real"), at("link")).expect("linked");
        assert!(said(&at("link")).contains("is a link"));
        fs::create_dir(at("state")).expect("made");
        symlink(at("real"), at("state/folders")).expect("linked");
        assert!(said(&at("state")).contains("is a link"));
        if rustix::process::geteuid().is_root() {
            fs::create_dir(at("theirs")).expect("made");
            std::os::unix::fs::chown(at("theirs"), Some(61_950), None).expect("chown");
            assert!(said(&at("theirs")).contains("belongs to user 61950"));
        }
    }
}
