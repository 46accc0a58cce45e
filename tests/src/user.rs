//! Somebody who is not root, to run things as.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Gid, Uid};
use tempfile::TempDir;

use crate::adversary::copy_program;

/// Numbers that no distribution gives to people or services.
const UIDS: std::ops::Range<u32> = 61_000..61_900;

/// An unprivileged user with a home of its own, which goes when this does.
///
/// As root it has a number that no other running test has: limits on processes are counted by user. Without
/// root it is the one who runs the tests. Toolchains below `/root` cannot be seen by it, so what it is to run
/// is copied with [`TestUser::install`].
#[derive(Debug)]
pub struct TestUser {
    uid: u32,
    gid: u32,
    home: TempDir,
    /// Held as long as the number is in use.
    _claim: Option<File>,
}

impl TestUser {
    pub fn new() -> io::Result<Self> {
        let home = tempfile::Builder::new().prefix("agency-user-").tempdir()?;
        if !Uid::current().is_root() {
            let (uid, gid) = (Uid::current().as_raw(), Gid::current().as_raw());
            return Ok(Self { uid, gid, home, _claim: None });
        }
        for uid in UIDS {
            let Some(claim) = claim(uid)? else { continue };
            chown(home.path(), Some(uid), Some(uid))?;
            return Ok(Self { uid, gid: uid, home, _claim: Some(claim) });
        }
        Err(io::Error::other("every number for a test user is in use"))
    }

    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub fn gid(&self) -> u32 {
        self.gid
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A command that this user runs at home, with nothing of the tests' environment but the search path. It
    /// has no supplementary groups: the standard library drops those of root.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.home())
            .env("USER", "agency-test")
            .current_dir(self.home());
        if self.uid != Uid::current().as_raw() {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// The same, by somebody who is in a group besides. What the standard library can't do, another program does, and
    /// becomes the one to be run.
    pub fn command_in_group(&self, group: u32, program: impl AsRef<Path>) -> Command {
        let own = self.command(program.as_ref());
        if self.uid == Uid::current().as_raw() {
            return own;
        }
        let mut command = Command::new("setpriv");
        command.args([
            &format!("--reuid={}", self.uid),
            &format!("--regid={}", self.gid),
            &format!("--groups={group}"),
            "--",
        ]);
        command.arg(program.as_ref());
        command.env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.home());
        command
    }

    /// A copy of a program in this user's `~/bin`.
    pub fn install(&self, program: &Path) -> io::Result<PathBuf> {
        let name = program.file_name().ok_or_else(|| io::Error::other("a program has a name"))?;
        let folder = self.folder("bin")?;
        let path = folder.join(name);
        copy_program(program, &path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        self.give(&path)?;
        Ok(path)
    }

    /// A folder below the home, made if need be.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let mut path = self.home().to_owned();
        for part in Path::new(name) {
            path.push(part);
            if !path.is_dir() {
                fs::create_dir(&path)?;
                self.give(&path)?;
            }
        }
        Ok(path)
    }

    /// Makes one file or folder this user's.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }

    /// Makes a whole tree this user's; links are not followed.
    pub fn give_all(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))?;
        if fs::symlink_metadata(path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.give_all(&entry?.path())?;
            }
        }
        Ok(())
    }
}

/// The lock on a number, unless another test has it. It goes with the process that holds it, however it ends.
fn claim(uid: u32) -> io::Result<Option<File>> {
    let path = std::env::temp_dir().join(format!("agency-tests-uid-{uid}"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = match options.open(path) {
        // Somebody else's file of that name: the kernel protects those in shared folders, even from root.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        other => other?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_nobody_in_particular_and_at_home() {
        let user = TestUser::new().expect("a user");
        let output =
            user.command("/bin/sh").args(["-c", "id -u; id -G; pwd; touch here"]).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], user.uid().to_string());
        if Uid::current().is_root() {
            assert_ne!(user.uid(), 0);
            assert_eq!(lines[1], user.gid().to_string());
        }
        assert_eq!(Path::new(lines[2]), user.home());
        assert!(user.home().join("here").is_file());
    }

    #[test]
    fn a_group_is_added_to_who_it_is_and_nothing_else() {
        if !Uid::current().is_root() {
            return;
        }
        let user = TestUser::new().expect("a user");
        let mut command = user.command_in_group(61_950, "/bin/sh");
        let output = command.args(["-c", "id -u; id -G; pwd; echo $HOME"]).output().expect("it runs");
        let (uid, gid, home) = (user.uid(), user.gid(), user.home().display());
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text, format!("{uid}\n{gid} 61950\n{home}\n{home}\n"));
    }

    #[test]
    fn two_users_at_once_are_two_users() {
        let (one, other) = (TestUser::new().expect("a user"), TestUser::new().expect("another"));
        assert_ne!(one.home(), other.home());
        assert!(!Uid::current().is_root() || one.uid() != other.uid());
    }
}
