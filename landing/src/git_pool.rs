//! Running gits, each started once and asked many times.
//!
//! Starting a git costs more than most questions. A git that answers question by question is kept for the next question
//! of any thread, unless an error left it in the middle of an answer. After a minute a new git replaces it, because a
//! git's memory of the packs it has seen gets old.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, files};

const LIFETIME: Duration = Duration::from_secs(60);

/// A git that reads questions and writes answers. When this is dropped, its input is closed, and it ends.
#[derive(Debug)]
pub(super) struct PooledGit {
    child: Child,
    /// Its input and output, until it is told to end.
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
    since: Instant,
    /// Whether the last answer was read to its end.
    settled: bool,
}

impl PooledGit {
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

    /// Asks, and reads the answer. `read` reports an error in the question. When git itself fails, it gets no more
    /// questions.
    pub(super) fn request<T>(
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

    /// Waits for git's end, and returns its exit code, unless it was killed. A git that still writes is not read any
    /// more.
    pub(super) fn end(&mut self) -> Option<i32> {
        drop(self.pipes.take());
        self.child.wait().ok()?.code()
    }

    fn is_good(&mut self) -> bool {
        self.settled && self.since.elapsed() < LIFETIME && matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for PooledGit {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has such a git.
pub(super) trait HasPooledGit {
    fn pooled_git(&mut self) -> &mut PooledGit;
}

/// The gits that are idle.
#[derive(Debug)]
pub(super) struct GitPool<G>(Mutex<Vec<G>>);

impl<G> Default for GitPool<G> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<G: HasPooledGit> GitPool<G> {
    /// Asks an idle git, or starts one.
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
        if git.pooled_git().is_good() {
            self.all().push(git);
        }
        answer
    }

    fn idle(&self) -> Option<G> {
        loop {
            // Dropping an old git waits for its end. Other threads need not wait for that.
            let mut git = self.all().pop()?;
            if git.pooled_git().is_good() {
                return Some(git);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
