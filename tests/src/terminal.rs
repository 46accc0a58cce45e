//! A person's terminal with `agency sandbox` at its other side.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::repository::Repository;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
    child: Child,
}

impl Terminal {
    /// `agency sandbox` with these arguments and variables; all its streams are the terminal.
    pub fn start(repository: &Repository, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let side = || -> Stdio {
            use rustix::fs::{Mode, OFlags};
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            Stdio::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).expect("opens"))
        };
        let mut sandbox = repository.command("setsid");
        sandbox.args(["--ctty", "--wait"]).arg(repository.agency()).arg("sandbox").args(arguments);
        sandbox.env("TERM", "dumb").envs(variables.iter().copied());
        sandbox.stdin(side()).stdout(side()).stderr(side());
        let child = sandbox.spawn().expect("starts");
        let master: OwnedFd = master;
        let mut reader = File::from(master.try_clone().expect("another"));
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length) = reader.read(&mut bytes) {
                if length == 0 || sender.send(bytes[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { keyboard: File::from(master), screen, seen: String::new(), child }
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("types");
    }

    /// Waits until the screen shows this, and forgets everything up to there.
    pub fn see(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{error} while waiting for {text:?} in {:?}", self.seen),
            }
        }
        let end = self.seen.find(text).map_or(0, |at| at + text.len());
        self.seen.drain(..end);
    }

    /// Waits for the end; the code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("ends").code()
    }

    /// Waits for the end; everything the screen shows until then. It is put together before it is read as text,
    /// so that a character may come in pieces.
    pub fn watch(mut self) -> String {
        let mut bytes = std::mem::take(&mut self.seen).into_bytes();
        self.wait();
        // The terminal's other side is gone with the process, and the reader ends when all was read.
        while let Ok(more) = self.screen.recv_timeout(PATIENCE) {
            bytes.extend(more);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
