//! Standing by a running sandbox: one loop that waits for output, signals, deadlines and the end.
//!
//! What to do is decided by `Guard`, from what was seen and the time; the loop only sees and does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal as PidfdSignal, pidfd_send_signal};

use crate::channel::{self, Ended, FromSandbox};
use crate::flow::Flow;
use crate::output::{Stream, Tallies};
use crate::policy::Deadlines;
use crate::watch::Watcher;

/// Somebody outside who has a say while the command runs.
pub trait Attendant {
    /// What to wait at on its behalf, until it can be read.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// When it wants to be asked next, whatever happens.
    fn due(&self) -> Option<Instant>;

    /// Something came, or it is time.
    fn attend(&self, now: Instant) -> Wish;

    /// Something takes a while before the command can start.
    fn told(&self, what: &str) {
        let _ = what;
    }

    /// A piece of what the command wrote, without the secrets that were in it, and before any of it is left out.
    fn hear(&self, from: Source, piece: &[u8], now: Instant) {
        let _ = (from, piece, now);
    }
}

/// Where a piece of output comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Standard output, or a terminal.
    Output,
    Errors,
}

/// What an attendant wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    GoOn,
    /// Everything is to end, politely at first. Said a second time, at once.
    Stop,
}

/// The attendant of a command that nobody attends to.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Attendant for Nobody {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due(&self) -> Option<Instant> {
        None
    }

    fn attend(&self, _: Instant) -> Wish {
        Wish::GoOn
    }
}

/// How long a person who asks for the end waits for the agent's farewell.
const PATIENCE: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Why an agent was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// It ran for longer than it may.
    Wall,
    /// It neither wrote anything nor changed a file for longer than it may.
    Stall,
    /// It used more memory than it may.
    Memory,
    /// Somebody asked, with this signal.
    Interrupted(i32),
    /// Its attendant asked.
    Asked,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Signaled(i32),
    Stopped(Stopped),
    /// The program could not be started.
    NotStarted(i32),
}

/// The loop's decisions: pure, over the time and what was seen.
#[derive(Debug)]
struct Guard {
    deadlines: Deadlines,
    started: Instant,
    last_sign: Instant,
    stopping: Option<Stopping>,
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    why: Stopped,
    kill_at: Instant,
    killed: bool,
}

/// What the loop is told to do.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Wait,
    /// The stall deadline passed without output: did a file change?
    LookForChange,
    Terminate,
    Kill,
}

impl Guard {
    fn new(deadlines: Deadlines, now: Instant) -> Self {
        Self { deadlines, started: now, last_sign: now, stopping: None }
    }

    fn sign_of_life(&mut self, now: Instant) {
        self.last_sign = now;
    }

    /// Somebody or something wants it to end. A second wish ends it at once.
    fn stop(&mut self, why: Stopped, now: Instant) -> Order {
        match &mut self.stopping {
            Some(stopping) => {
                stopping.kill_at = now;
                Order::Wait
            }
            None => {
                let grace = match why {
                    Stopped::Interrupted(_) => self.deadlines.grace.min(PATIENCE),
                    _ => self.deadlines.grace,
                };
                self.stopping = Some(Stopping { why, kill_at: now + grace, killed: false });
                Order::Terminate
            }
        }
    }

    fn at(&mut self, now: Instant) -> Order {
        if let Some(stopping) = &mut self.stopping {
            if now >= stopping.kill_at && !stopping.killed {
                stopping.killed = true;
                return Order::Kill;
            }
            return Order::Wait;
        }
        if self.deadlines.wall.is_some_and(|wall| now >= self.started + wall) {
            return self.stop(Stopped::Wall, now);
        }
        if self.deadlines.stall.is_some_and(|stall| now >= self.last_sign + stall) {
            return Order::LookForChange;
        }
        Order::Wait
    }

    /// When [`at`](Self::at) has something to say next.
    fn next(&self) -> Option<Instant> {
        match &self.stopping {
            Some(stopping) if stopping.killed => None,
            Some(stopping) => Some(stopping.kill_at),
            None => {
                let wall = self.deadlines.wall.map(|wall| self.started + wall);
                let stall = self.deadlines.stall.map(|stall| self.last_sign + stall);
                [wall, stall].into_iter().flatten().min()
            }
        }
    }
}

/// Whoever takes what the agent wrote. Nobody is hurried, unless somebody asked for the end: then one who takes
/// nothing for a while is waited for no longer.
#[derive(Debug)]
struct Reader {
    took: Instant,
    hurried: bool,
}

impl Reader {
    fn new(now: Instant) -> Self {
        Self { took: now, hurried: false }
    }

    /// Until when to wait for them when everybody inside is dead; `None` is for ever.
    fn awaited_until(&self) -> Option<Instant> {
        self.hurried.then(|| self.took + PATIENCE)
    }
}

/// The supervisor's side of the agent's standard streams.
#[derive(Debug)]
pub(crate) struct Conversation<'a> {
    pub(crate) input: Option<Flow<BorrowedFd<'a>, OwnedFd>>,
    pub(crate) output: Vec<Stream<'a>>,
    /// Kept to tell it about the window's size.
    pub(crate) terminal: Option<OwnedFd>,
}

impl Conversation<'_> {
    fn tallies(&self) -> Tallies {
        match &self.output[..] {
            [stdout, stderr] => Tallies::Pipes { stdout: stdout.tally(), stderr: stderr.tally() },
            one => Tallies::Terminal { terminal: one.first().map(Stream::tally).unwrap_or_default() },
        }
    }
}

/// Everything the loop stands by.
pub(crate) struct Watch<'a> {
    pub(crate) init: OwnedFd,
    pub(crate) channel: OwnedFd,
    /// The signal by which the first process ends everyone.
    pub(crate) killer: PidfdSignal,
    pub(crate) signals: SignalFd,
    pub(crate) conversation: Conversation<'a>,
    pub(crate) deadlines: Deadlines,
    /// The memory limit and the looker, where no controller holds it.
    pub(crate) memory: Option<(u64, Watcher)>,
    /// Whether a file of the workspace changed since the last time it was asked.
    pub(crate) changed: &'a mut dyn FnMut() -> bool,
    pub(crate) attendant: &'a dyn Attendant,
}

/// Stands by until every process of the sandbox is dead and all output has gone on. How it ended, unless its first
/// process went without a word, or somebody else ended it.
pub(crate) fn stand_by(mut watch: Watch<'_>) -> io::Result<(Option<End>, Tallies)> {
    let mut guard = Guard::new(watch.deadlines.clone(), Instant::now());
    let mut next_look = watch.memory.as_ref().map(|_| Instant::now() + LOOK_EVERY);
    let mut ended: Option<End> = None;
    let mut not_started: Option<End> = None;
    let mut by_others = false;
    let mut alive = true;
    let mut channel_open = true;
    let mut reader = Reader::new(Instant::now());
    let mut silent = false;
    loop {
        let now = Instant::now();
        // The first process speaks its last words when everyone else is dead. What the agent wrote until then may
        // still wait for a reader, but no deadline of the agent's does.
        let over = !alive || ended.is_some();
        if !over {
            let order = guard.at(now);
            obey(order, &mut guard, &mut watch, now)?;
        }
        if let (Some(at), Some((limit, watcher))) = (next_look, &mut watch.memory)
            && !over
            && now >= at
        {
            next_look = Some(now + LOOK_EVERY);
            if watcher.exceeds(*limit) && guard.stopping.is_none() {
                // Politeness would only let it grow.
                guard.stop(Stopped::Memory, now);
                guard.stop(Stopped::Memory, now);
                continue;
            }
        }
        if over && reader.awaited_until().is_some_and(|until| now >= until) {
            watch.conversation.output.iter_mut().for_each(Stream::abandon);
        }
        if over && watch.conversation.output.iter().all(Stream::is_over) {
            let stopped = guard.stopping.map(|stopping| End::Stopped(stopping.why));
            let ended = ended.filter(|_| !by_others);
            return Ok((stopped.or(not_started).or(ended), watch.conversation.tallies()));
        }

        // Nobody is left who could write: its first process is about to say so.
        if !over && !silent && watch.conversation.output.iter().all(Stream::is_over) {
            silent = true;
            channel::linger(&watch.channel);
        }

        let wake = [guard.next(), next_look, watch.attendant.due()].into_iter().flatten().filter(|_| !over);
        let wake = wake.chain(reader.awaited_until().filter(|_| over));
        let wake = wake.chain(watch.conversation.output.iter().filter_map(Stream::due)).min();
        let seen = wait(&watch, Stage { alive, over, channel_open }, wake)?;
        let due = watch.attendant.due().is_some_and(|due| Instant::now() >= due);
        if (seen.attendant || due) && !over && watch.attendant.attend(Instant::now()) == Wish::Stop {
            let order = guard.stop(Stopped::Asked, Instant::now());
            obey(order, &mut guard, &mut watch, Instant::now())?;
        }
        if seen.signal {
            while let Some(info) = watch.signals.read_signal()? {
                match Signal::try_from(info.ssi_signo as i32) {
                    Ok(Signal::SIGWINCH) => resize(&watch.conversation),
                    Ok(signal) => {
                        reader.hurried = true;
                        // Nobody is left to stop: what is waited for is a reader of the output.
                        if over {
                            watch.conversation.output.iter_mut().for_each(Stream::abandon);
                        }
                        let order = guard.stop(Stopped::Interrupted(signal as i32), Instant::now());
                        obey(order, &mut guard, &mut watch, Instant::now())?;
                    }
                    Err(_) => {}
                }
            }
        }
        if seen.input
            && let Some(input) = &mut watch.conversation.input
        {
            input.advance();
            if input.is_over() {
                watch.conversation.input = None;
            }
        }
        for stream in &mut watch.conversation.output {
            stream.relent(Instant::now());
        }
        for index in seen.output {
            reader.took = Instant::now();
            if watch.conversation.output[index].advance() > 0 {
                guard.sign_of_life(Instant::now());
            }
        }
        if seen.message {
            match channel::receive(&watch.channel)? {
                Some((FromSandbox::Ended(Ended::Exited(code)), _)) => {
                    ended = Some(End::Exited(code));
                }
                Some((FromSandbox::Ended(Ended::Signaled(signal)), _)) => {
                    ended = Some(End::Signaled(signal));
                }
                Some((FromSandbox::NotStarted { error }, _)) => not_started = Some(End::NotStarted(error)),
                Some((FromSandbox::Terminated, _)) => by_others |= guard.stopping.is_none(),
                Some(_) => {}
                None => channel_open = false,
            }
        }
        // After its last words, which are read first.
        if seen.end && !channel_open {
            alive = false;
            watch.conversation.input = None;
            let _ = rustix::process::waitid(
                rustix::process::WaitId::PidFd(watch.init.as_fd()),
                rustix::process::WaitIdOptions::EXITED,
            );
        }
    }
}

fn obey(order: Order, guard: &mut Guard, watch: &mut Watch<'_>, now: Instant) -> io::Result<()> {
    let signal = match order {
        Order::Wait => return Ok(()),
        Order::LookForChange if (watch.changed)() => {
            guard.sign_of_life(now);
            return Ok(());
        }
        Order::LookForChange => {
            guard.stop(Stopped::Stall, now);
            PidfdSignal::TERM
        }
        // The first process passes it on to everyone inside.
        Order::Terminate => PidfdSignal::TERM,
        Order::Kill => watch.killer,
    };
    match pidfd_send_signal(&watch.init, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Default)]
struct Seen {
    signal: bool,
    end: bool,
    message: bool,
    input: bool,
    attendant: bool,
    output: Vec<usize>,
}

/// How far a sandbox has come to its end.
#[derive(Debug, Clone, Copy)]
struct Stage {
    alive: bool,
    /// Everyone but the first process is dead.
    over: bool,
    channel_open: bool,
}

fn wait(watch: &Watch<'_>, stage: Stage, wake: Option<Instant>) -> io::Result<Seen> {
    #[derive(Clone, Copy)]
    enum What {
        Signal,
        End,
        Message,
        Input,
        Attendant,
        Output(usize),
    }
    let mut fds = vec![PollFd::new(&watch.signals, PollFlags::IN)];
    let mut what = vec![What::Signal];
    if stage.alive {
        fds.push(PollFd::new(&watch.init, PollFlags::IN));
        what.push(What::End);
    }
    if stage.channel_open {
        fds.push(PollFd::new(&watch.channel, PollFlags::IN));
        what.push(What::Message);
    }
    if let Some((fd, flags)) = watch.conversation.input.as_ref().and_then(Flow::interest) {
        fds.push(PollFd::from_borrowed_fd(fd, flags));
        what.push(What::Input);
    }
    if let Some(fd) = watch.attendant.descriptor().filter(|_| !stage.over) {
        fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        what.push(What::Attendant);
    }
    for (index, stream) in watch.conversation.output.iter().enumerate() {
        if let Some((fd, flags)) = stream.interest() {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            what.push(What::Output(index));
        }
    }
    let timeout = wake.map(|at| {
        // Rounded up: waking a moment early would only find nothing to do.
        let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(50);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut seen = Seen::default();
    for (fd, what) in fds.iter().zip(what) {
        if fd.revents().is_empty() {
            continue;
        }
        match what {
            What::Signal => seen.signal = true,
            What::End => seen.end = true,
            What::Message => seen.message = true,
            What::Input => seen.input = true,
            What::Attendant => seen.attendant = true,
            What::Output(index) => seen.output.push(index),
        }
    }
    Ok(seen)
}

fn resize(conversation: &Conversation<'_>) {
    if let Some(terminal) = &conversation.terminal
        && let Ok(size) = rustix::termios::tcgetwinsize(rustix::stdio::stdin())
    {
        let _ = rustix::termios::tcsetwinsize(terminal, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(wall: Option<u64>, stall: Option<u64>) -> (Guard, Instant) {
        let now = Instant::now();
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let deadlines =
            Deadlines { wall: seconds(wall), stall: seconds(stall), grace: Duration::from_secs(5) };
        (Guard::new(deadlines, now), now)
    }

    #[test]
    fn a_wall_deadline_terminates_then_kills_after_the_grace() {
        let (mut guard, start) = guard(Some(10), None);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(guard.at(after(9)), Order::Wait);
        assert_eq!(guard.at(after(10)), Order::Terminate);
        assert_eq!(guard.at(after(14)), Order::Wait);
        assert_eq!(guard.at(after(15)), Order::Kill);
        assert_eq!(guard.at(after(16)), Order::Wait);
        assert_eq!(guard.next(), None);
    }

    #[test]
    fn a_reader_is_hurried_only_by_who_asks_for_the_end() {
        let start = Instant::now();
        let mut reader = Reader::new(start);
        assert_eq!(reader.awaited_until(), None);
        reader.hurried = true;
        assert_eq!(reader.awaited_until(), Some(start + PATIENCE));
        reader.took = start + PATIENCE;
        assert_eq!(
            reader.awaited_until(),
            Some(start + PATIENCE * 2),
            "whoever takes something is waited for"
        );
    }

    #[test]
    fn output_puts_the_stall_deadline_off() {
        let (mut guard, start) = guard(None, Some(10));
        guard.sign_of_life(start + Duration::from_secs(8));
        assert_eq!(guard.at(start + Duration::from_secs(12)), Order::Wait);
        assert_eq!(guard.at(start + Duration::from_secs(18)), Order::LookForChange);
    }

    #[test]
    fn a_person_waits_less_and_a_second_wish_ends_it_at_once() {
        let (mut guard, start) = guard(None, None);
        assert_eq!(guard.stop(Stopped::Interrupted(2), start), Order::Terminate);
        assert!(guard.next() <= Some(start + PATIENCE));
        guard.stop(Stopped::Interrupted(2), start);
        assert_eq!(guard.at(start), Order::Kill);
    }
}
