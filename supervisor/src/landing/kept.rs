//! Gits that stay: started once, asked many times.
//!
//! Starting a git costs more than most of what it is asked. One that answers questions one by one is kept for
//! whoever asks next, in whichever thread, unless it was left in the middle of an answer. After a minute another
//! takes its place: what a git remembers of the packs it has seen gets old.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, files};

const LIFETIME: Duration = Duration::from_secs(60);

/// A git that reads questions and writes answers. Its input ends with it, and then it ends.
#[derive(Debug)]
pub(super) struct Talk {
    child: Child,
    /// Its input and output, until it is to end.
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
    since: Instant,
    /// Nothing is left of an answer that was not read to its end.
    settled: bool,
}

impl Talk {
    pub(super) fn start(mut command: Command) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = std::path::PathBuf::from(command.get_program());
        let mut child = command.spawn().map_err(files("start", &program))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Answer { doing: "start" });
        };
        let pipes = Some((input, BufReader::new(output)));
        Ok(Self { child, pipes, since: Instant::now(), settled: true })
    }

    /// Asks, and reads the answer. What is wrong with a question is told by `read`; when git itself fails, it
    /// is not asked again.
    pub(super) fn ask<T>(
        &mut self,
        question: &[u8],
        read: impl FnOnce(&mut dyn BufRead) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (input, output) = self.pipes.as_mut().ok_or(Error::Answer { doing: "go on" })?;
        self.settled = false;
        input.write_all(question)?;
        let answer = read(output)?;
        self.settled = true;
        Ok(answer)
    }

    /// Waits for its end, and returns its exit code, unless it was killed. One that is still talking is not
    /// listened to.
    pub(super) fn end(&mut self) -> Option<i32> {
        drop(self.pipes.take());
        self.child.wait().ok()?.code()
    }

    fn is_good(&mut self) -> bool {
        self.settled && self.since.elapsed() < LIFETIME && matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has such a git.
pub(super) trait Talks {
    fn talk(&mut self) -> &mut Talk;
}

/// Those that nobody is asking now.
#[derive(Debug)]
pub(super) struct Kept<G>(Mutex<Vec<G>>);

impl<G> Default for Kept<G> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<G: Talks> Kept<G> {
    /// Asks one of them, or starts one.
    pub(super) fn with<T>(
        &self,
        start: impl FnOnce() -> Result<G, Error>,
        ask: impl FnOnce(&mut G) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut git = match self.idle() {
            Some(git) => git,
            None => start()?,
        };
        let answer = ask(&mut git);
        if git.talk().is_good() {
            self.all().push(git);
        }
        answer
    }

    fn idle(&self) -> Option<G> {
        loop {
            // Dropping one that is no good waits for its end, which others need not wait for.
            let mut git = self.all().pop()?;
            if git.talk().is_good() {
                return Some(git);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
