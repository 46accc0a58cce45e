//! Sending a shim, finding one that is out, and talking to it.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{ChildStdin, Command};
use tokio::time::timeout;
use tokio_process_stream::{Item, ProcessLineStream};
use tokio_stream::StreamExt;

use super::control::{self, PATIENCE, ShimRequest};
use super::outcome::StopReason;
use super::shim::READY;
use super::{JobError, JobFolder};
use crate::attempt::Term;
use crate::clock::BootInstant;

/// How a shim is started: a program and its arguments, to which the folder and the term are appended.
#[derive(Debug, Clone)]
pub struct ShimProgram {
    pub command: Vec<OsString>,
}

/// A shim that waits for its word. Dropped without one, it goes.
#[derive(Debug)]
pub struct WaitingShim {
    input: ChildStdin,
    _lines: ProcessLineStream,
}

/// What a shim answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShimReply {
    Heard,
    /// It has another master by now.
    Stale,
    /// It is gone, or has nothing left that could be put off or stopped.
    Silence,
}

impl ShimProgram {
    /// Starts a shim for an order that is written down, and waits until it is ready.
    pub async fn send(&self, place: &JobFolder, term: Term) -> Result<WaitingShim, JobError> {
        let failed = |source| JobError::Start { source };
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let log = place.file("shim.log");
        let errors = OpenOptions::new().append(true).create(true).mode(0o600).open(&log).map_err(failed)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(place.path())
            .arg(term.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let mut lines = ProcessLineStream::from(child);
        match lines.next().await {
            Some(Item::Stdout(line)) if line == READY => Ok(WaitingShim { input, _lines: lines }),
            _ => {
                let said = std::fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                Err(JobError::NotReady { said })
            }
        }
    }
}

impl WaitingShim {
    /// Lets it begin, under this lease.
    pub async fn begin(mut self, term: Term, until: BootInstant) -> io::Result<()> {
        let mut line = serde_json::to_vec(&ShimRequest::Lease { term, until })?;
        line.push(b'\n');
        self.input.write_all(&line).await?;
        self.input.flush().await
    }
}

/// Waits until no shim is at work in a folder any more.
pub async fn wait_until_gone(place: &JobFolder) -> Result<(), JobError> {
    let Some(mut stream) = connect(place).await? else { return Ok(()) };
    let mut nothing = [0; 64];
    // A shim says nothing by itself, and its end is the end of the stream.
    while matches!(stream.read(&mut nothing).await, Ok(1..)) {}
    Ok(())
}

/// Puts the end of its lease off.
pub async fn renew(place: &JobFolder, term: Term, until: BootInstant) -> Result<ShimReply, JobError> {
    say(place, ShimRequest::Lease { term, until }).await
}

/// Asks it to stop what it runs.
pub async fn stop(place: &JobFolder, term: Term, why: StopReason) -> Result<ShimReply, JobError> {
    say(place, ShimRequest::Stop { term, why }).await
}

async fn say(place: &JobFolder, word: ShimRequest) -> Result<ShimReply, JobError> {
    let Some(stream) = connect(place).await? else { return Ok(ShimReply::Silence) };
    let talk = async {
        let mut stream = BufReader::new(stream);
        let mut line = serde_json::to_vec(&word)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        io::Result::Ok(answer)
    };
    Ok(match timeout(PATIENCE, talk).await {
        Ok(Ok(answer)) if answer == control::HEARD => ShimReply::Heard,
        Ok(Ok(answer)) if answer == control::STALE => ShimReply::Stale,
        _ => ShimReply::Silence,
    })
}

/// Connects to the shim; `None` if none listens.
async fn connect(place: &JobFolder) -> Result<Option<UnixStream>, JobError> {
    let (_held, address) = place.control()?;
    match UnixStream::connect(&address).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_gone(error.kind()) => Ok(None),
        Err(error) => Err(place.failed("talk to", "control")(error)),
    }
}

/// Whether nobody listens, or the listener went while it was being connected to.
fn is_gone(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}
