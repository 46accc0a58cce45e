//! Git in an environment entirely our own.
//!
//! Git obeys what it finds: configuration of the repository it stands in, of the user and of the machine,
//! attributes that name programs, hooks, replaced objects. An agent may have written any of it. So
//! git runs here with an empty environment, in a bare repository that we made and no other process wrote to,
//! with its working directory there and never in an agent's tree. Only the unsandboxed parent starts it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, prlimit};

use crate::path::escape;

/// The oldest git that has what we use (`merge-tree --write-tree`).
pub const OLDEST_GIT: (u32, u32) = (2, 38);

/// A bare repository, and the git that works in it.
#[derive(Debug, Clone)]
pub struct IsolatedGit {
    program: PathBuf,
    directory: PathBuf,
    /// Where new objects go, when not into the directory itself.
    objects: Option<PathBuf>,
    alternates: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("{} can't be started", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("{} is git {found}; at least {}.{} is needed", program.display(), OLDEST_GIT.0, OLDEST_GIT.1)]
    TooOld { program: PathBuf, found: String },
    #[error("git {command} ended with {status}: {message}")]
    Failed { command: String, status: ExitStatus, message: String },
    #[error("talking to git {command} failed")]
    Pipe { command: String, source: io::Error },
}

impl GitError {
    /// Whether a signal ended it that says nothing about its work.
    pub fn was_killed(&self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        matches!(self, Self::Failed { status, .. } if matches!(status.signal(), Some(libc::SIGKILL | libc::SIGTERM)))
    }
}

impl IsolatedGit {
    /// Makes the repository in a directory of ours that is empty or does not exist yet. `program` is a path,
    /// or a name that is looked up in PATH.
    pub fn create(program: &Path, directory: &Path) -> Result<Self, GitError> {
        let git = Self::open(program, directory);
        git.check_version()?;
        // Before there is a repository, git must stand somewhere that surely is none.
        let mut init = git.bare_command();
        init.current_dir("/").args([
            "init",
            "--quiet",
            "--bare",
            "--template=",
            "--initial-branch=main",
            "--",
        ]);
        init.arg(directory).env_remove("GIT_DIR");
        GitProcess::start(init, "init")?.finish()?;
        Ok(git)
    }

    /// A repository that [`IsolatedGit::create`] made before.
    pub fn open(program: &Path, directory: &Path) -> Self {
        Self {
            program: program.to_owned(),
            directory: directory.to_owned(),
            objects: None,
            alternates: Vec::new(),
        }
    }

    /// Reads and writes objects here instead of in its own directory, so that what it makes is part of that
    /// repository at once. Only objects: the references and the configuration stay our own.
    pub fn keeping_objects_in(mut self, objects: &Path) -> Self {
        self.objects = Some(objects.to_owned());
        self
    }

    /// Also reads objects from here. Objects are data: their hashes are checked, and nothing in them is
    /// obeyed.
    pub fn with_objects(mut self, objects: &Path) -> Self {
        self.alternates.push(objects.to_owned());
        self
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A git command, ready to be given input and output.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.bare_command();
        command.current_dir(&self.directory).args(arguments);
        command
    }

    /// Runs a command without input and returns what it wrote.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Vec<u8>, GitError> {
        let arguments: Vec<OsString> = arguments.into_iter().map(|part| part.as_ref().to_owned()).collect();
        let name = arguments.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut output = Vec::new();
        let running = GitProcess::start(self.command(&arguments), &name)?;
        running.read_into(&mut output)?.finish()?;
        Ok(output)
    }

    /// Runs a command of [`IsolatedGit::command`] that reads what `feed` writes, and returns what it wrote. When git ends
    /// early, its own message is the error, and not the closed pipe that `feed` saw.
    pub fn run_with<E: From<GitError> + From<io::Error>>(
        mut command: Command,
        name: &str,
        feed: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        // Git may answer before it has read everything. A file takes all of it, where a pipe would make both wait.
        let mut answer = in_memory()?;
        command.stdin(Stdio::piped()).stdout(answer.try_clone()?);
        let mut closed = false;
        let (running, fed) = GitProcess::start(command, name)?.feed(|input| {
            let mut input = ClosedPipeWriter { input, closed: &mut closed };
            feed(&mut input)?;
            Ok(input.flush()?)
        });
        match (fed, running.finish()) {
            (Ok(()), finished) => finished?,
            (Err(_), Err(error)) if closed => return Err(error.into()),
            (Err(error), _) => return Err(error),
        }
        let mut output = Vec::new();
        answer.rewind()?;
        answer.read_to_end(&mut output)?;
        Ok(output)
    }

    fn bare_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
            .env("HOME", "/nonexistent")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("LC_ALL", "C")
            .env("GIT_DIR", &self.directory)
            .env("GIT_OBJECT_DIRECTORY", self.objects.clone().unwrap_or(self.directory.join("objects")))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_PAGER", "cat")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !self.alternates.is_empty() {
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates(&self.alternates));
        }
        command
    }

    /// That it is young enough.
    pub fn check_version(&self) -> Result<(), GitError> {
        let mut command = self.bare_command();
        command.current_dir("/").arg("version");
        let mut output = Vec::new();
        GitProcess::start(command, "version")?.read_into(&mut output)?.finish()?;
        let text = String::from_utf8_lossy(&output);
        let found = text.trim().strip_prefix("git version ").unwrap_or(text.trim());
        let mut numbers = found.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version < OLDEST_GIT {
            return Err(GitError::TooOld { program: self.program.clone(), found: escape(found.as_bytes()) });
        }
        Ok(())
    }
}

/// Bounds for a command that reads data which another process wrote.
#[derive(Debug, Clone, Copy)]
pub struct CommandBounds {
    pub time: Duration,
    /// For each of its output streams.
    pub output: u64,
    /// Address space, where it is not git's business to map large files.
    pub memory: Option<u64>,
}

/// How a bounded command ended.
#[derive(Debug)]
pub enum BoundedOutput {
    Ended(Output),
    /// It was killed, because it took more time than it may.
    TooLong,
    /// It was killed, because it wrote more than a caller reads.
    TooMuch,
}

/// Runs a command, whose output streams are pipes, to its end or to the end of what it may cost.
pub fn output_within(command: &mut Command, bounds: CommandBounds) -> io::Result<BoundedOutput> {
    let until = Instant::now() + bounds.time;
    let mut child = command.spawn()?;
    // Held, not only named: its number may belong to another process by then.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    if let Some(memory) = bounds.memory {
        let limit = Rlimit { current: Some(memory), maximum: Some(memory) };
        // A process that has ended already needs no limit.
        let _ = prlimit(Some(Pid::from_child(&child)), Resource::As, limit);
    }
    let outcome = collect(&mut child, &process, bounds, until);
    if !matches!(outcome, Ok(BoundedOutput::Ended(_))) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
        let _ = child.wait();
    }
    outcome
}

fn collect(
    child: &mut Child,
    process: &OwnedFd,
    bounds: CommandBounds,
    until: Instant,
) -> io::Result<BoundedOutput> {
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    let (sender, read) = mpsc::channel();
    let mut open = 0;
    for (number, stream) in streams.into_iter().enumerate() {
        let Some(stream) = stream else { continue };
        let sender = sender.clone();
        open += 1;
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stream.take(bounds.output + 1).read_to_end(&mut bytes).map(|_| bytes);
            drop(sender.send((number, read)));
        });
    }
    let mut output = [Vec::new(), Vec::new()];
    for _ in 0..open {
        let Ok((number, bytes)) = read.recv_timeout(until.saturating_duration_since(Instant::now())) else {
            return Ok(BoundedOutput::TooLong);
        };
        output[number] = bytes?;
        if output[number].len() as u64 > bounds.output {
            return Ok(BoundedOutput::TooMuch);
        }
    }
    let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default();
    if poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left))? == 0 {
        return Ok(BoundedOutput::TooLong);
    }
    let [stdout, stderr] = output;
    Ok(BoundedOutput::Ended(Output { status: child.wait()?, stdout, stderr }))
}

fn in_memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("git", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Git splits the list at colons, and reads a quoted part like a C string.
fn alternates(paths: &[PathBuf]) -> OsString {
    let mut list = OsString::new();
    for (index, path) in paths.iter().enumerate() {
        if index > 0 {
            list.push(":");
        }
        list.push(quote(path.as_os_str().as_encoded_bytes()));
    }
    list
}

/// Bytes as git's C-style quoted string, in ASCII.
pub fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

/// Remembers that git stopped reading.
struct ClosedPipeWriter<'a> {
    input: &'a mut dyn Write,
    closed: &'a mut bool,
}

impl Write for ClosedPipeWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.input.write(bytes).inspect_err(|error| *self.closed |= error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.input.flush().inspect_err(|error| *self.closed |= error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// A started git. When it fails, its own message says why, also if all we saw was a closed pipe.
#[derive(Debug)]
pub(crate) struct GitProcess {
    name: String,
    child: Child,
    /// What it says on its error output.
    said: File,
    broken: Option<io::Error>,
}

impl GitProcess {
    pub(crate) fn start(mut command: Command, name: &str) -> Result<Self, GitError> {
        let program = PathBuf::from(command.get_program());
        let failed = |source| GitError::Start { program, source };
        // A file, because nothing reads it while git runs.
        let started = in_memory().and_then(|said| {
            command.stderr(said.try_clone()?);
            Ok((command.spawn()?, said))
        });
        let (child, said) = started.map_err(failed)?;
        Ok(Self { name: name.to_owned(), child, said, broken: None })
    }

    /// Feeds git its input. An error of `feed` itself ends the input early and is returned.
    pub(crate) fn feed<E: From<io::Error>>(
        mut self,
        feed: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> (Self, Result<(), E>) {
        let fed = match self.child.stdin.take() {
            Some(stdin) => {
                let mut input = io::BufWriter::with_capacity(128 * 1024, stdin);
                feed(&mut input).and_then(|()| Ok(input.flush()?))
            }
            None => Ok(()),
        };
        (self, fed)
    }

    pub(crate) fn read_into(mut self, output: &mut dyn Write) -> Result<Self, GitError> {
        if let Some(mut stdout) = self.child.stdout.take() {
            self.broken = io::copy(&mut stdout, output).err();
        }
        Ok(self)
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Result<(), GitError> {
        drop(self.child.stdin.take());
        drop(self.child.stdout.take());
        let command = self.name;
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(source) => return Err(GitError::Pipe { command, source }),
        };
        if let Some(source) = self.broken {
            return Err(GitError::Pipe { command, source });
        }
        if !status.success() {
            let mut message = Vec::new();
            // A message cut short is still a message.
            let _ = self.said.rewind().and_then(|()| self.said.take(64 * 1024).read_to_end(&mut message));
            let message = escape(message.trim_ascii());
            return Err(GitError::Failed { command, status, message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: CommandBounds = CommandBounds { time: Duration::from_secs(10), output: 1000, memory: None };

    fn sh(script: &str, bounds: CommandBounds) -> BoundedOutput {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        output_within(&mut command, bounds).expect("started")
    }

    #[test]
    fn a_command_ends_with_what_it_wrote_or_is_ended() {
        let BoundedOutput::Ended(output) = sh("echo out; echo err >&2; exit 3", BOUNDS) else {
            panic!("it ends by itself");
        };
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(output.status.code(), Some(3));
        let brief = CommandBounds { time: Duration::from_millis(50), ..BOUNDS };
        assert!(matches!(sh("exec sleep 1000", brief), BoundedOutput::TooLong));
        // Closed streams are no end.
        assert!(matches!(sh("exec sleep 1000 >&- 2>&-", brief), BoundedOutput::TooLong));
        assert!(matches!(sh("exec cat /dev/zero", BOUNDS), BoundedOutput::TooMuch));
        assert!(matches!(sh("exec cat /dev/zero >&2", BOUNDS), BoundedOutput::TooMuch));
    }

    #[test]
    fn a_command_takes_no_more_memory_than_it_may() {
        let limited = CommandBounds { memory: Some(64 << 20), ..BOUNDS };
        let BoundedOutput::Ended(output) = sh("sleep 0.2; ulimit -v", limited) else { panic!("it ends") };
        assert_eq!(output.stdout, b"65536\n");
    }
}
