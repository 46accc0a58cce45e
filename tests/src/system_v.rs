//! System V objects of somebody outside, for agents to guess the numbers of.

use std::process::{Command, Stdio};

/// An object that everybody may use, until this is dropped.
#[derive(Debug)]
pub struct SystemV {
    pub id: String,
    kind: &'static str,
}

/// What is made of: `ipcmk`'s word for it, and `ipcrm`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Memory,
    Messages,
    Semaphores,
}

impl SystemV {
    /// Made by `ipcmk`, run as whose it is to be.
    pub fn new(ipcmk: &mut Command, object: Object) -> Self {
        let (made, kind) = match object {
            Object::Memory => ("--shmem=4096", "-m"),
            Object::Messages => ("--queue", "-q"),
            Object::Semaphores => ("--semaphore=1", "-s"),
        };
        let output = ipcmk.args([made, "--mode=0666"]).output().expect("ipcmk starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let id = text.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        assert!(id.parse::<u32>().is_ok(), "{output:?}");
        Self { id, kind }
    }

    /// Whether it is still there.
    pub fn exists(&self) -> bool {
        let shown = Command::new("ipcs").args([self.kind, "-i", &self.id]).output().expect("ipcs starts");
        let text = [shown.stdout, shown.stderr].concat();
        shown.status.success() && !String::from_utf8_lossy(&text).contains("not found")
    }
}

impl Drop for SystemV {
    fn drop(&mut self) {
        let _ = Command::new("ipcrm").args([self.kind, &self.id]).stderr(Stdio::null()).status();
    }
}
