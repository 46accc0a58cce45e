//! The program of a job.
//!
//! It has one thread until its sandbox runs, and nothing asynchronous: it must be small, and simple enough to
//! outlive everything else.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use agency_sandbox::monitor::RunMonitor;
use agency_sandbox::session::SandboxSession;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::time::Timespec;

use super::agent::{self, AgentJob};
use super::claim_reader::ClaimReader;
use super::control::{ControlSocket, ShimRequest};
use super::ended_agent::EndedAgent;
use super::order::{JobKind, JobOrder};
use super::outcome::{self, JobOutcome, JobResult, TimeSpan};
use super::{JobError, JobFolder, proof};
use crate::attempt::Term;
use crate::clock::{BootClock, Clock, wall_micros, wall_seconds};
use crate::host_fault::HostFault;
use agency_sandbox::durable;

/// How long the shim waits for its word, which comes as soon as the store has written a row.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the lock is tried.
const GLANCES: usize = 50;

/// How often what is to be kept is tried to be written where there is no room for it.
const PAUSE: Duration = Duration::from_millis(500);

/// What the shim says when it waits for its word.
pub(super) const READY: &str = "ready";

/// Carries out the order in a folder, once it is told to. It does nothing if another shim is at work there, if the
/// order was begun before, or if the input ends without a word. It tells `supervisor`, which is in charge under `term`,
/// when it waits for that word, which comes by standard input. `reader` reads what agents wrote.
pub fn run(
    folder: &Path,
    term: Term,
    reader: &ClaimReader,
    supervisor: &mut dyn Write,
) -> Result<(), JobError> {
    // A user who presses Ctrl-C means the supervisor, which then decides. If this process has a session of its own
    // already, the error does not matter.
    let _ = rustix::process::setsid();
    let place = JobFolder::new(folder.to_owned());
    let Some(lock) = lock(&place)? else { return Ok(()) };
    let ended = place.ended();
    if (place.is_begun() && ended.is_none()) || place.file("outcome.json").exists() {
        return Ok(());
    }
    let order = place.read_order()?;
    let (_held, address) = place.control()?;
    let _ = std::fs::remove_file(&address);
    let listener = UnixListener::bind(&address).map_err(place.failed("listen at", "control"))?;
    let reception = ControlSocket::open(listener, term, BootClock.now() + PATIENCE)
        .map_err(place.failed("listen at", "control"))?;
    if writeln!(supervisor, "{READY}").and_then(|()| supervisor.flush()).is_err() {
        return Ok(());
    }
    let word = wait_for_word(&mut io::stdin().lock(), &reception);
    // The word may come from a supervisor that slept past the end of the lease, or was replaced. Nothing was begun, and
    // another shim may begin.
    match word.map_err(place.failed("hear the supervisor of", ""))? {
        Some(word) if reception.obeys(word) && reception.is_held() => {}
        _ => return Ok(()),
    }
    (&lock).write_all(b"begun\n").map_err(place.failed("write", "lock"))?;
    let is_new = durable::mark(&place.file("started")).map_err(place.failed("write", "started"))?;
    if !is_new && ended.is_none() {
        return Ok(());
    }
    let (started_at, from) =
        (ended.as_ref().map_or_else(wall_seconds, |ended| ended.started_at), wall_micros());
    let stopped_before = ended.as_ref().and_then(|ended| ended.stopped);
    // What is left of the sandbox goes when the outcome is on the disk: until then, another shim may need it.
    let (done, _left) = carry_out(&place, &order, ended, reader, &reception);
    let stopped = stopped_before.or(reception.stopped());
    let times = Some(TimeSpan { from, to: wall_micros() });
    let outcome =
        JobOutcome { version: outcome::VERSION, started_at, ended_at: wall_seconds(), times, stopped, done };
    let text = serde_json::to_vec_pretty(&outcome)
        .map_err(|source| JobError::Unexpected { path: place.file("outcome.json"), source })?;
    loop {
        match durable::write(&place.file("outcome.json"), &text) {
            // An hour of work is not lost for want of a few bytes, if a user makes room meanwhile.
            Err(error) if waited_for_room(&place, &reception, &error) => {}
            written => {
                written.map_err(place.failed("write", "outcome.json"))?;
                place.discard_ended();
                return Ok(());
            }
        }
    }
}

/// Waits a little where something could not be kept for want of room, memory or the like; `false` if it was for something
/// else, or the lease has ended.
pub(super) fn waited_for_room(
    place: &JobFolder,
    reception: &ControlSocket,
    error: &(dyn Error + 'static),
) -> bool {
    let waits =
        HostFault::of(error, place.path()).is_some_and(HostFault::is_transient) && reception.is_held();
    if waits {
        std::thread::sleep(PAUSE);
    }
    waits
}

/// Takes the folder's lock. A process that only looks has it for a moment; a shim at work, for long.
fn lock(place: &JobFolder) -> Result<Option<File>, JobError> {
    for _ in 0..GLANCES {
        if let Some(lock) = place.lock(FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

fn carry_out(
    place: &JobFolder,
    order: &JobOrder,
    ended: Option<EndedAgent>,
    reader: &ClaimReader,
    reception: &ControlSocket,
) -> (JobResult, Option<SandboxSession>) {
    match &order.what {
        JobKind::Agent(agent) | JobKind::Audit(agent) => {
            let job = AgentJob { place, order, agent, reader, reception };
            match ended {
                Some(ended) => agent::go_on(job, ended),
                None => agent::run(job),
            }
        }
        JobKind::Proof(proof) => (proof::run(place, order, proof, reception), None),
    }
}

/// Waits until it may begin; `None` if that never comes.
///
/// A supervisor that was stopped keeps our input open, and gives no word. A supervisor that takes the attempt over
/// needs the folder, and says so at the reception. A client that only watches is let in, without waiting for its word.
fn wait_for_word(
    input: &mut (impl BufRead + AsFd),
    reception: &ControlSocket,
) -> io::Result<Option<ShimRequest>> {
    let Some(bell) = reception.descriptor() else { return Ok(None) };
    loop {
        let left = reception.lease_left();
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut wait = [PollFd::new(&*input, PollFlags::IN), PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        match poll(&mut wait, Some(&left)) {
            Err(Errno::INTR) => continue,
            other => drop(other?),
        }
        let ours = !wait[0].revents().is_empty();
        if !reception.is_held() || reception.is_anothers() {
            return Ok(None);
        }
        if ours {
            let mut line = String::new();
            input.read_line(&mut line)?;
            // A line without its end is a word that was cut off, and stands for none.
            return Ok(line.strip_suffix('\n').and_then(|word| serde_json::from_str(word).ok()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;

    /// Standard input, as a shim has it.
    struct Input(io::BufReader<UnixStream>);

    impl Read for Input {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl BufRead for Input {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.0.fill_buf()
        }

        fn consume(&mut self, amount: usize) {
            self.0.consume(amount);
        }
    }

    impl AsFd for Input {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.get_ref().as_fd()
        }
    }

    fn waiting() -> (tempfile::TempDir, ControlSocket, UnixStream, Input) {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("control")).expect("binds");
        let reception = ControlSocket::open(listener, Term(3), BootClock.now() + PATIENCE).expect("opens");
        let (supervisor, input) = UnixStream::pair().expect("a pair");
        (folder, reception, supervisor, Input(io::BufReader::new(input)))
    }

    const BEGIN: &str = "{\"say\":\"lease\",\"term\":3,\"until\":99999999999}\n";

    #[test]
    fn who_only_watches_is_let_in_and_keeps_nobody_waiting() {
        let (folder, reception, mut supervisor, mut input) = waiting();
        let mut watcher = UnixStream::connect(folder.path().join("control")).expect("connects");
        supervisor.write_all(BEGIN.as_bytes()).expect("said");
        let word = wait_for_word(&mut input, &reception).expect("heard").expect("a word");
        assert!(reception.obeys(word) && reception.is_held());
        watcher.set_nonblocking(true).expect("set");
        let heard = watcher.read(&mut [0]).expect_err("it is not sent away");
        assert_eq!(heard.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_word_that_is_overruled_cut_off_or_never_given_begins_nothing() {
        let (folder, reception, mut supervisor, mut input) = waiting();
        let mut other = UnixStream::connect(folder.path().join("control")).expect("connects");
        other.write_all(BEGIN.replace('3', "4").as_bytes()).expect("said");
        supervisor.write_all(BEGIN.as_bytes()).expect("said");
        assert!(wait_for_word(&mut input, &reception).expect("heard").is_none(), "overruled");
        for said in ["", &BEGIN[..BEGIN.len() - 1], "what?\n"] {
            let (_folder, reception, mut supervisor, mut input) = waiting();
            supervisor.write_all(said.as_bytes()).expect("said");
            drop(supervisor);
            assert!(wait_for_word(&mut input, &reception).expect("heard").is_none(), "{said:?}");
        }
    }
}
