//! What a supervisor says to a shim, and how the shim hears it while its sandbox runs.
//!
//! One line of JSON each way. A speaker names its term; a supervisor that was replaced is not obeyed.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use agency_sandbox::monitor::{MonitorDecision, RunMonitor};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};

use super::outcome::StopReason;
use crate::attempt::Term;
use crate::clock::{self, BootClock, Clock};

/// What a supervisor says.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum ShimRequest {
    /// Whose it is now, and until when. The first one is the word to begin.
    Lease {
        term: Term,
        until: clock::BootInstant,
    },
    Stop {
        term: Term,
        why: StopReason,
    },
}

/// What a shim answers.
pub(super) const HEARD: &str = "heard\n";
/// The word was of a supervisor that was replaced.
pub(super) const STALE: &str = "stale\n";

/// No message is longer.
const LONGEST: usize = 4096;
const GUESTS: usize = 32;

/// The shim's ear.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    /// Readable when there is something to hear.
    bell: OwnedFd,
    /// Of the supervisor that sent the shim.
    first: Term,
    state: RefCell<ControlState>,
}

#[derive(Debug)]
struct ControlState {
    term: Term,
    until: clock::BootInstant,
    stopped: Option<StopReason>,
    guests: Vec<ControlClient>,
}

#[derive(Debug)]
struct ControlClient {
    stream: UnixStream,
    heard: Vec<u8>,
}

impl ControlSocket {
    pub(super) fn open(listener: UnixListener, term: Term, until: clock::BootInstant) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let bell = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&bell, &listener, data, epoll::EventFlags::IN)?;
        let state = RefCell::new(ControlState { term, until, stopped: None, guests: Vec::new() });
        Ok(Self { listener, bell, first: term, state })
    }

    /// Why it was stopped, if it was.
    pub(super) fn stopped(&self) -> Option<StopReason> {
        self.state.borrow().stopped
    }

    /// Whether its lease lasts, and no supervisor wants it to stop.
    pub(super) fn is_held(&self) -> bool {
        self.attend(Instant::now());
        let state = self.state.borrow();
        state.stopped.is_none() && BootClock.now() < state.until
    }

    /// Does what our own supervisor says; `false` if it has been replaced.
    pub(super) fn obeys(&self, word: ShimRequest) -> bool {
        self.state.borrow_mut().hear(word, &mut false) == HEARD
    }

    /// Whether another supervisor has replaced the one that it was opened for.
    pub(super) fn is_anothers(&self) -> bool {
        self.state.borrow().term != self.first
    }

    /// How long its lease lasts.
    pub(super) fn lease_left(&self) -> Duration {
        self.state.borrow().until.since(BootClock.now())
    }

    /// Accepts the clients that wait to connect.
    fn admit(&self, state: &mut ControlState) {
        while let Ok((stream, _)) = self.listener.accept() {
            let known = state.guests.len() < GUESTS && stream.set_nonblocking(true).is_ok();
            let data = epoll::EventData::new_u64(1);
            if known && epoll::add(&self.bell, &stream, data, epoll::EventFlags::IN).is_ok() {
                state.guests.push(ControlClient { stream, heard: Vec::new() });
            }
        }
    }
}

impl ControlState {
    /// Reads from every client. Returns whether one wants the end, and which have gone.
    fn listen(&mut self) -> (bool, Vec<ControlClient>) {
        let mut guests = std::mem::take(&mut self.guests);
        let mut stop = false;
        let has_gone = |guest: &mut ControlClient| {
            let mut buffer = [0; 1024];
            let stays = loop {
                match guest.stream.read(&mut buffer) {
                    Ok(0) => break false,
                    Ok(length) if guest.heard.len() + length <= LONGEST => {
                        guest.heard.extend_from_slice(&buffer[..length]);
                    }
                    Ok(_) => break false,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
                }
            };
            while let Some(end) = guest.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = guest.heard.drain(..=end).collect();
                let answer = match serde_json::from_slice(&line) {
                    Ok(word) => self.hear(word, &mut stop),
                    Err(_) => STALE,
                };
                // A client that does not read the answer has the folder to look at.
                let _ = guest.stream.write_all(answer.as_bytes());
            }
            !stays
        };
        let gone = guests.extract_if(.., has_gone).collect();
        self.guests = guests;
        (stop, gone)
    }

    fn hear(&mut self, word: ShimRequest, stop: &mut bool) -> &'static str {
        let (ShimRequest::Lease { term, .. } | ShimRequest::Stop { term, .. }) = word;
        if term < self.term {
            return STALE;
        }
        self.term = term;
        match word {
            ShimRequest::Lease { until, .. } => self.until = until,
            ShimRequest::Stop { why, .. } => {
                self.stopped.get_or_insert(why);
                *stop = true;
            }
        }
        HEARD
    }
}

impl RunMonitor for ControlSocket {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn due(&self) -> Option<Instant> {
        let state = self.state.borrow();
        let ended = state.stopped.is_some();
        (!ended).then(|| Instant::now() + state.until.since(BootClock.now()))
    }

    fn attend(&self, _: Instant) -> MonitorDecision {
        let mut events = Vec::with_capacity(8);
        // Only to see it: what there is to hear is tried anyway.
        let _ =
            epoll::wait(&self.bell, spare_capacity(&mut events), Some(&rustix::time::Timespec::default()));
        let mut state = self.state.borrow_mut();
        self.admit(&mut state);
        let (mut stop, gone) = state.listen();
        for guest in gone {
            // Said aloud: the first process of a sandbox may have been born with the same open socket, and as long as
            // that lives, the bell would ring for a client that is gone.
            let _ = epoll::delete(&self.bell, &guest.stream);
        }
        if state.stopped.is_none() && BootClock.now() >= state.until {
            state.stopped = Some(StopReason::LeaseEnded);
            stop = true;
        }
        if stop { MonitorDecision::Stop } else { MonitorDecision::GoOn }
    }
}

/// How long a shim may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn reception(folder: &std::path::Path) -> ControlSocket {
        let listener = UnixListener::bind(folder.join("control")).expect("binds");
        ControlSocket::open(listener, Term(3), BootClock.now() + Duration::from_secs(60)).expect("opens")
    }

    fn say(folder: &std::path::Path, word: &str) -> BufReader<UnixStream> {
        let mut stream = UnixStream::connect(folder.join("control")).expect("connects");
        stream.write_all(word.as_bytes()).expect("says");
        BufReader::new(stream)
    }

    fn answer(guest: &mut BufReader<UnixStream>) -> String {
        let mut line = String::new();
        guest.read_line(&mut line).expect("answers");
        line
    }

    #[test]
    fn a_supervisor_that_was_replaced_is_not_obeyed() {
        let folder = tempfile::tempdir().expect("a folder");
        let reception = reception(folder.path());
        let mut new = say(folder.path(), "{\"say\":\"lease\",\"term\":5,\"until\":99999999999}\n");
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::GoOn);
        assert_eq!(answer(&mut new), HEARD);
        let mut old = say(folder.path(), "{\"say\":\"stop\",\"term\":4,\"why\":\"canceled\"}\n");
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::GoOn);
        assert_eq!(answer(&mut old), STALE);
        assert_eq!(reception.stopped(), None);
        let mut own = say(folder.path(), "{\"say\":\"stop\",\"term\":5,\"why\":\"canceled\"}\n");
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::Stop);
        assert_eq!((answer(&mut own).as_str(), reception.stopped()), (HEARD, Some(StopReason::Canceled)));
    }

    #[test]
    fn a_lease_that_ended_ends_the_work_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let reception = reception(folder.path());
        let mut guest = say(folder.path(), "{\"say\":\"lease\",\"term\":3,\"until\":1}\n");
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::Stop);
        assert_eq!(answer(&mut guest), HEARD);
        assert_eq!(reception.stopped(), Some(StopReason::LeaseEnded));
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::GoOn);
        assert_eq!(reception.due(), None);
    }

    #[test]
    fn nobody_rings_who_is_gone_also_if_somebody_else_has_their_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let reception = reception(folder.path());
        let guest = say(folder.path(), "");
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::GoOn);
        // As a process has it that was forked meanwhile.
        let _inherited = reception.state.borrow().guests[0].stream.try_clone().expect("another");
        drop(guest);
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::GoOn);
        assert!(reception.state.borrow().guests.is_empty());
        let mut bell = [rustix::event::PollFd::new(&reception.bell, rustix::event::PollFlags::IN)];
        let rings = rustix::event::poll(&mut bell, Some(&rustix::time::Timespec::default()));
        assert_eq!(rings, Ok(0));
    }

    #[test]
    fn noise_and_endless_lines_are_sent_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let reception = reception(folder.path());
        let mut noise = say(folder.path(), "what?\n");
        let endless = say(folder.path(), &"x".repeat(100_000));
        assert_eq!(reception.attend(Instant::now()), MonitorDecision::GoOn);
        assert_eq!(answer(&mut noise), STALE);
        assert_eq!(reception.state.borrow().guests.len(), 1);
        drop(endless);
    }
}
