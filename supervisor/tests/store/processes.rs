//! The program `store_here`, which uses a store from another process.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::sqlite::InAFile;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_store_here");

#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(place: &InAFile, arguments: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg(format!("path={}", place.path().display()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, said }
    }

    /// The next line it says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("read");
        // In a form that is easy to look for: `entered 1`.
        line.replace(['{', '"', '}'], "").replace(':', " ").trim_end().to_owned()
    }

    /// Lets it go on.
    pub(crate) fn go(&mut self) {
        self.child.stdin.take().expect("its input").write_all(b"go\n").expect("it listens");
    }

    /// What else it says until it ends, which it does by itself.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("read");
        assert!(self.child.wait().expect("it ends").success());
        rest
    }

    /// Waits for so many lines, then kills it. Returns all it said.
    pub(crate) fn kill_after(mut self, lines: usize, moment: std::time::Duration) -> Vec<String> {
        let mut said: Vec<String> = (0..lines)
            .map(|_| {
                let mut line = String::new();
                self.said.read_line(&mut line).expect("read");
                line
            })
            .collect();
        // Nothing is waited for: it is somewhere in the middle of the next writes.
        std::thread::sleep(moment);
        self.child.kill().expect("killed");
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(9), "it did not end by itself: {said:?}");
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("read");
        // What was cut off in the middle of a line was not said.
        said.extend(rest.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned));
        said
    }
}
