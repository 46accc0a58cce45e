//! The program of an errand.
//!
//! It has one thread until its sandbox runs, and nothing asynchronous: it must be small, and simple enough to
//! outlive everything else.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::time::Timespec;

use super::control::{self, Reception, Word};
use super::order::{Order, What};
use super::outcome::{self, Done, Outcome};
use super::{ErrandError, Place, agent, proof};
use crate::attempt::Term;
use crate::clock::{BootClock, Clock, wall};
use crate::durable;
use crate::room;

/// How long the shim waits for its word, which comes as soon as the store has written a row.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long somebody else is listened to meanwhile.
const HEARING: Duration = Duration::from_secs(1);

/// How often the lock is tried.
const GLANCES: usize = 50;

/// How often what is to be kept is tried to be written where there is no room for it.
const PAUSE: Duration = Duration::from_millis(500);

/// What the shim says when it waits for its word.
pub(super) const READY: &str = "ready";

/// Carries out the order in a folder, once it is told to. Somebody else at work there, an order that was begun
/// before, or an input that ends without a word, and nothing is done. `supervisor`, which is in charge under `term`,
/// is told when it waits for that word, which comes by standard input.
pub fn run(folder: &Path, term: Term, supervisor: &mut dyn Write) -> Result<(), ErrandError> {
    // Whoever presses Ctrl-C means the supervisor, which then decides. In a session of its own already, it is
    // nobody's business.
    let _ = rustix::process::setsid();
    let place = Place::new(folder.to_owned());
    let Some(_lock) = lock(&place)? else { return Ok(()) };
    if place.file("started").exists() || place.file("outcome.json").exists() {
        return Ok(());
    }
    let order = place.read_order()?;
    let (_held, address) = place.control()?;
    let _ = std::fs::remove_file(&address);
    let listener = UnixListener::bind(&address).map_err(place.failed("listen at", "control"))?;
    let Some(Word::Lease { term, until }) = wait_for_word(&place, &listener, term, supervisor)? else {
        return Ok(());
    };
    // Given by somebody who slept past the end of the lease. Nothing was begun, and somebody else may.
    if BootClock.now() >= until {
        return Ok(());
    }
    let reception = Reception::open(listener, term, until).map_err(place.failed("listen at", "control"))?;
    if !durable::mark(&place.file("started")).map_err(place.failed("write", "started"))? {
        return Ok(());
    }
    let started_at = wall();
    let done = carry_out(&place, &order, &reception);
    let stopped = reception.stopped();
    let outcome = Outcome { version: outcome::VERSION, started_at, ended_at: wall(), stopped, done };
    let text = serde_json::to_vec_pretty(&outcome)
        .map_err(|source| ErrandError::Odd { path: place.file("outcome.json"), source })?;
    loop {
        match durable::write(&place.file("outcome.json"), &text) {
            // An hour of work is not lost for want of a few bytes, if somebody makes room meanwhile.
            Err(error) if waited_for_room(&place, &reception, &error) => {}
            written => return written.map_err(place.failed("write", "outcome.json")),
        }
    }
}

/// Waits a little where something could not be written for want of room; `false` if it was for something else, or
/// nobody wants it any more.
pub(super) fn waited_for_room(place: &Place, reception: &Reception, error: &(dyn Error + 'static)) -> bool {
    let waits = room::is_missing(error, place.path()) && reception.is_held();
    if waits {
        std::thread::sleep(PAUSE);
    }
    waits
}

/// Whoever only looks has the lock for a moment; whoever is at work, for long.
fn lock(place: &Place) -> Result<Option<File>, ErrandError> {
    for _ in 0..GLANCES {
        if let Some(lock) = place.lock(FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

fn carry_out(place: &Place, order: &Order, reception: &Reception) -> Done {
    match &order.what {
        What::Agent(agent) => agent::run(place, order, agent, reception),
        What::Proof(proof) => proof::run(place, order, proof, reception),
    }
}

/// Says that everything is ready, and waits until it may begin; `None` if that never comes.
///
/// A supervisor that was stopped keeps our input open, and gives no word. Whoever takes the attempt over needs the
/// folder, and says so.
fn wait_for_word(
    place: &Place,
    listener: &UnixListener,
    term: Term,
    supervisor: &mut dyn Write,
) -> Result<Option<Word>, ErrandError> {
    if writeln!(supervisor, "{READY}").and_then(|()| supervisor.flush()).is_err() {
        return Ok(None);
    }
    let input = io::stdin();
    let end = BootClock.now() + PATIENCE;
    loop {
        let left = end.since(BootClock.now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut wait = [PollFd::new(&input, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        match poll(&mut wait, Some(&left)) {
            Ok(0) => return Ok(None),
            Err(Errno::INTR) => continue,
            other => drop(other.map_err(|error| place.failed("hear the supervisor of", "")(error.into()))?),
        }
        let [ours, others] = wait.map(|one| !one.revents().is_empty());
        if others && is_overruled(listener, term) {
            return Ok(None);
        }
        if ours {
            let mut line = String::new();
            input.read_line(&mut line).map_err(place.failed("hear the supervisor of", ""))?;
            // A line without its end is a word that was cut off, and stands for none.
            return Ok(line.strip_suffix('\n').and_then(|word| serde_json::from_str(word).ok()));
        }
    }
}

/// Hears somebody out who is not our supervisor, or is it by another door; whether they have replaced it.
fn is_overruled(listener: &UnixListener, term: Term) -> bool {
    let Ok((stream, _)) = listener.accept() else { return false };
    let mut line = String::new();
    let heard = stream
        .set_read_timeout(Some(HEARING))
        .and_then(|()| BufReader::new((&stream).take(control::LONGEST as u64)).read_line(&mut line));
    let overruled = match serde_json::from_str(&line) {
        Ok(Word::Lease { term: other, .. } | Word::Stop { term: other, .. }) => heard.is_ok() && other > term,
        Err(_) => false,
    };
    let _ = (&stream).write_all(if overruled { control::STALE } else { control::HEARD }.as_bytes());
    overruled
}
