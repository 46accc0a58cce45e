//! What the kernel tells about one process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A process's folder in /proc. A read through it tells of that process or of none: its number may pass to another.
#[derive(Debug)]
pub(super) struct ProcDirectory(OwnedFd);

impl ProcDirectory {
    /// A process, as /proc numbers it.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        Self::named(&pid.to_string())
    }

    /// This one. Its own number may not be the one that /proc has for it.
    pub(super) fn own() -> io::Result<Self> {
        Self::named("self")
    }

    fn named(name: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(format!("/proc/{name}"), flags, Mode::empty())?))
    }

    /// A file, with a buffer that most of them fit into: growing one costs more calls than the reading.
    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        let file = rustix::fs::openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = Vec::with_capacity(8 * 1024);
        while rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes))? > 0 {
            bytes.reserve(1024);
        }
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Whether it is gone or about to go. The kernel takes a process apart piece by piece: what is read of one that it has
    /// begun with says nothing about what held it.
    pub(super) fn is_ending(&self) -> bool {
        match self.read("stat") {
            Ok(stat) => is_ending(&stat),
            Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
        }
    }

    pub(super) fn link(&self, name: &str) -> io::Result<String> {
        let link = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(link.to_string_lossy().into_owned())
    }

    /// Its open descriptors.
    pub(super) fn descriptors(&self) -> io::Result<Vec<i32>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.0, "fd", flags, Mode::empty())?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::new(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            match name.parse() {
                Ok(number) => found.push(number),
                Err(_) if matches!(name, "." | "..") => {}
                Err(_) => return Err(io::Error::other(format!("{name:?} is no descriptor"))),
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// A path as the process names it, as we do.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/self/fd/{}/root", self.0.as_raw_fd()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// `PF_EXITING` of the kernel, which is set before anything is taken apart.
const EXITING: u64 = 0x4;

/// Reads /proc/PID/stat: the state is the third field, and the flags are the ninth.
fn is_ending(stat: &str) -> bool {
    // The name comes before, in brackets, and may have any character in it.
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let dead = matches!(fields.next(), Some("Z" | "X" | "x"));
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or_default();
    dead || flags & EXITING != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_about_as_it_is_and_never_another_in_its_place() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let told = ProcDirectory::of(child.id() as i32).expect("is there");
        assert!(told.read("status").expect("told").contains(&format!("Pid:\t{}\n", child.id())));
        assert_eq!(told.link("ns/pid").ok(), ProcDirectory::own().expect("is there").link("ns/pid").ok());
        assert_eq!(told.descriptors().expect("told")[..3], [0, 1, 2]);
        assert!(told.inside("/proc".as_ref()).is_dir());
        child.kill().expect("ends");
        child.wait().expect("ended");
        assert!(told.read("status").is_err(), "nobody is there any more");
        assert!(told.descriptors().is_err());
        assert!(!told.inside("/".as_ref()).exists());
    }

    #[test]
    fn a_process_is_ending_from_the_moment_it_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("sleep starts");
        let told = ProcDirectory::of(i32::try_from(child.id()).expect("a number")).expect("it is there");
        assert!(!told.is_ending());
        child.kill().expect("killed");
        // Waits until it has ended, and leaves it as it is then.
        let id = rustix::process::Pid::from_child(&child);
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(id), options).expect("waited");
        assert!(told.is_ending(), "nobody has asked how it ended");
        child.wait().expect("ended");
        assert!(told.is_ending(), "it is gone");
    }

    #[test]
    fn the_kernels_flag_counts_whatever_the_process_is_called() {
        assert!(is_ending("7 (a) S (b)) R 1 7 7 0 -1 4194308 0 0"));
        assert!(!is_ending("7 (a) Z 1) R 1 7 7 0 -1 4194304 0 0"));
    }
}
