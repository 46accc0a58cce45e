//! What the kernel tells about one process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

/// A process's folder in /proc. While it is held, it leads to that process or to none: its number may pass to another.
#[derive(Debug)]
pub(super) struct Proc {
    pub(super) pid: i32,
    folder: OwnedFd,
}

impl Proc {
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { pid, folder: rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())? })
    }

    /// A file, with a buffer that most of them fit into: growing one costs more calls than the reading.
    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        let file = rustix::fs::openat(&self.folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = Vec::with_capacity(8 * 1024);
        while rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes))? > 0 {
            bytes.reserve(1024);
        }
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    pub(super) fn link(&self, name: &str) -> io::Result<String> {
        let link = rustix::fs::readlinkat(&self.folder, name, Vec::new())?;
        Ok(link.to_string_lossy().into_owned())
    }

    /// Its open descriptors.
    pub(super) fn descriptors(&self) -> io::Result<Vec<i32>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.folder, "fd", flags, Mode::empty())?;
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

    /// Where it sees the root of its file system.
    pub(super) fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_about_as_it_is_and_never_another_in_its_place() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let told = Proc::of(child.id() as i32).expect("is there");
        assert!(told.read("status").expect("told").contains(&format!("Pid:\t{}\n", child.id())));
        assert_eq!(
            told.link("ns/pid").ok(),
            Proc::of(std::process::id() as i32).unwrap().link("ns/pid").ok()
        );
        assert_eq!(told.descriptors().expect("told")[..3], [0, 1, 2]);
        child.kill().expect("ends");
        child.wait().expect("ended");
        assert!(told.read("status").is_err(), "nobody is there any more");
        assert!(told.descriptors().is_err());
    }
}
