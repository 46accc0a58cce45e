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

use crate::channel::{self, ProcessExit, SandboxMessage};
use crate::flow::ByteFlow;
use crate::memory_watch::MemoryWatcher;
use crate::monitor::{MonitorDecision, RunMonitor};
use crate::output::{OutputTotals, StreamPipeline};
use crate::policy::Deadlines;

/// How long a person who asks for the end waits for the agent's farewell.
const PATIENCE: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Why an agent was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopCause {
    /// It ran for longer than it may.
    Wall,
    /// It neither wrote anything nor changed a file for longer than it may.
    Stall,
    /// It used more memory than it may.
    Memory,
    /// This signal asked for it.
    Interrupted(i32),
    /// Its attendant asked.
    Asked,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandExit {
    Exited(i32),
    Signaled(i32),
    Stopped(StopCause),
    /// The program could not be started.
    NotStarted(i32),
}

/// The loop's decisions: pure, over the time and what was seen.
#[derive(Debug)]
struct DeadlineTracker {
    deadlines: Deadlines,
    started: Instant,
    last_sign: Instant,
    stopping: Option<PendingKill>,
}

#[derive(Debug, Clone, Copy)]
struct PendingKill {
    why: StopCause,
    kill_at: Instant,
    killed: bool,
}

/// What the loop is told to do.
#[derive(Debug, PartialEq, Eq)]
enum LoopAction {
    Wait,
    /// The stall deadline passed without output: did a file change?
    LookForChange,
    Terminate,
    Kill,
}

impl DeadlineTracker {
    fn new(deadlines: Deadlines, now: Instant) -> Self {
        Self { deadlines, started: now, last_sign: now, stopping: None }
    }

    fn sign_of_life(&mut self, now: Instant) {
        self.last_sign = now;
    }

    /// Starts to end the agent. A second call ends it at once.
    fn stop(&mut self, why: StopCause, now: Instant) -> LoopAction {
        match &mut self.stopping {
            Some(stopping) => {
                stopping.kill_at = now;
                LoopAction::Wait
            }
            None => {
                let grace = match why {
                    StopCause::Interrupted(_) => self.deadlines.grace.min(PATIENCE),
                    _ => self.deadlines.grace,
                };
                self.stopping = Some(PendingKill { why, kill_at: now + grace, killed: false });
                LoopAction::Terminate
            }
        }
    }

    fn at(&mut self, now: Instant) -> LoopAction {
        if let Some(stopping) = &mut self.stopping {
            if now >= stopping.kill_at && !stopping.killed {
                stopping.killed = true;
                return LoopAction::Kill;
            }
            return LoopAction::Wait;
        }
        if self.deadlines.wall.is_some_and(|wall| now >= self.started + wall) {
            return self.stop(StopCause::Wall, now);
        }
        if self.deadlines.stall.is_some_and(|stall| now >= self.last_sign + stall) {
            return LoopAction::LookForChange;
        }
        LoopAction::Wait
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

/// The reader of what the agent wrote. We wait for it without a limit, until a signal asks for the end: then we give
/// up on a reader that takes nothing for a while.
#[derive(Debug)]
struct OutputConsumer {
    took: Instant,
    hurried: bool,
}

impl OutputConsumer {
    fn new(now: Instant) -> Self {
        Self { took: now, hurried: false }
    }

    /// Until when to wait for the reader when every process inside is dead; `None` is for ever.
    fn awaited_until(&self) -> Option<Instant> {
        self.hurried.then(|| self.took + PATIENCE)
    }
}

/// The supervisor's side of the agent's standard streams.
#[derive(Debug)]
pub(crate) struct SupervisorStreams<'a> {
    pub(crate) input: Option<ByteFlow<BorrowedFd<'a>, OwnedFd>>,
    pub(crate) output: Vec<StreamPipeline<'a>>,
    /// Kept to tell it about the window's size.
    pub(crate) terminal: Option<OwnedFd>,
}

impl SupervisorStreams<'_> {
    fn tallies(&self) -> OutputTotals {
        match &self.output[..] {
            [stdout, stderr] => OutputTotals::Pipes { stdout: stdout.totals(), stderr: stderr.totals() },
            one => OutputTotals::Terminal {
                terminal: one.first().map(StreamPipeline::totals).unwrap_or_default(),
            },
        }
    }
}

/// Everything the loop stands by.
pub(crate) struct SupervisionLoop<'a> {
    pub(crate) init: OwnedFd,
    pub(crate) channel: OwnedFd,
    /// The signal by which the first process ends everyone.
    pub(crate) killer: PidfdSignal,
    pub(crate) signals: SignalFd,
    pub(crate) conversation: SupervisorStreams<'a>,
    pub(crate) deadlines: Deadlines,
    /// The memory limit and the looker, where no controller holds it.
    pub(crate) memory: Option<(u64, MemoryWatcher)>,
    /// Whether a file of the workspace changed since the last time it was asked.
    pub(crate) changed: &'a mut dyn FnMut() -> bool,
    pub(crate) attendant: &'a dyn RunMonitor,
}

/// Waits until every process of the sandbox is dead and all output has gone on. Returns how it ended, unless its first
/// process went without a word, or another process ended it.
pub(crate) fn run_until_exit(
    mut watch: SupervisionLoop<'_>,
) -> io::Result<(Option<CommandExit>, OutputTotals)> {
    let mut state = LoopState::new(&watch, Instant::now());
    loop {
        let now = Instant::now();
        // The first process speaks its last words when everyone else is dead. What the agent wrote until then may
        // still wait for a reader, but no deadline of the agent's does.
        let over = !state.alive || state.ended.is_some();
        if !over {
            let order = state.guard.at(now);
            obey(order, &mut state.guard, &mut watch, now)?;
            if state.looks_for_memory(&mut watch, now) {
                continue;
            }
        }
        if over && state.reader.awaited_until().is_some_and(|until| now >= until) {
            watch.conversation.output.iter_mut().for_each(StreamPipeline::discard_pending);
        }
        if over && watch.conversation.output.iter().all(StreamPipeline::is_over) {
            return Ok((state.exit(), watch.conversation.tallies()));
        }

        // No process is left that could write: the first process is about to say so.
        if !over && !state.silent && watch.conversation.output.iter().all(StreamPipeline::is_over) {
            state.silent = true;
            channel::spin_for_message(&watch.channel);
        }

        let wake = [state.guard.next(), state.next_look, watch.attendant.due()];
        let wake = wake.into_iter().flatten().filter(|_| !over);
        let wake = wake.chain(state.reader.awaited_until().filter(|_| over));
        let wake = wake.chain(watch.conversation.output.iter().filter_map(StreamPipeline::due)).min();
        let shutdown = ShutdownState { alive: state.alive, over, channel_open: state.channel_open };
        let seen = wait(&watch, shutdown, wake)?;
        let due = watch.attendant.due().is_some_and(|due| Instant::now() >= due);
        if (seen.attendant || due) && !over && watch.attendant.attend(Instant::now()) == MonitorDecision::Stop
        {
            let order = state.guard.stop(StopCause::Asked, Instant::now());
            obey(order, &mut state.guard, &mut watch, Instant::now())?;
        }
        if seen.signal {
            state.hears_signals(&mut watch, over)?;
        }
        state.moves_streams(&mut watch.conversation, &seen);
        if seen.message {
            state.takes_message(&watch)?;
        }
        // After its last words, which are read first.
        if seen.end && !state.channel_open {
            state.alive = false;
            watch.conversation.input = None;
            let _ = rustix::process::waitid(
                rustix::process::WaitId::PidFd(watch.init.as_fd()),
                rustix::process::WaitIdOptions::EXITED,
            );
        }
    }
}

/// How far the loop has come.
#[derive(Debug)]
struct LoopState {
    guard: DeadlineTracker,
    reader: OutputConsumer,
    /// When memory is looked at again, where no controller holds it.
    next_look: Option<Instant>,
    ended: Option<CommandExit>,
    not_started: Option<CommandExit>,
    /// The first process was told to end, and not by us.
    by_others: bool,
    alive: bool,
    channel_open: bool,
    /// Every stream is at its end.
    silent: bool,
}

impl LoopState {
    fn new(watch: &SupervisionLoop<'_>, now: Instant) -> Self {
        Self {
            guard: DeadlineTracker::new(watch.deadlines.clone(), now),
            reader: OutputConsumer::new(now),
            next_look: watch.memory.as_ref().map(|_| now + LOOK_EVERY),
            ended: None,
            not_started: None,
            by_others: false,
            alive: true,
            channel_open: true,
            silent: false,
        }
    }

    /// How it ended, unless the first process went without a word, or another process ended it.
    fn exit(self) -> Option<CommandExit> {
        let stopped = self.guard.stopping.map(|stopping| CommandExit::Stopped(stopping.why));
        let ended = self.ended.filter(|_| !self.by_others);
        stopped.or(self.not_started).or(ended)
    }

    /// Looks at memory when it is time; `true` if there was too much of it, and the sandbox is to be killed.
    fn looks_for_memory(&mut self, watch: &mut SupervisionLoop<'_>, now: Instant) -> bool {
        let (Some(at), Some((limit, watcher))) = (self.next_look, &mut watch.memory) else { return false };
        if now < at {
            return false;
        }
        self.next_look = Some(now + LOOK_EVERY);
        if !watcher.exceeds(*limit) || self.guard.stopping.is_some() {
            return false;
        }
        // Politeness would only let it grow.
        self.guard.stop(StopCause::Memory, now);
        self.guard.stop(StopCause::Memory, now);
        true
    }

    fn hears_signals(&mut self, watch: &mut SupervisionLoop<'_>, over: bool) -> io::Result<()> {
        while let Some(info) = watch.signals.read_signal()? {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGWINCH) => resize(&watch.conversation),
                Ok(signal) => {
                    self.reader.hurried = true;
                    // No process is left to stop: we only wait for a reader of the output.
                    if over {
                        watch.conversation.output.iter_mut().for_each(StreamPipeline::discard_pending);
                    }
                    let order = self.guard.stop(StopCause::Interrupted(signal as i32), Instant::now());
                    obey(order, &mut self.guard, watch, Instant::now())?;
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn moves_streams(&mut self, conversation: &mut SupervisorStreams<'_>, seen: &ReadyEvents) {
        if seen.input
            && let Some(input) = &mut conversation.input
        {
            input.advance();
            if input.is_over() {
                conversation.input = None;
            }
        }
        for stream in &mut conversation.output {
            stream.flush_partial(Instant::now());
        }
        for index in &seen.output {
            self.reader.took = Instant::now();
            if conversation.output[*index].advance() > 0 {
                self.guard.sign_of_life(Instant::now());
            }
        }
    }

    fn takes_message(&mut self, watch: &SupervisionLoop<'_>) -> io::Result<()> {
        match channel::receive(&watch.channel)? {
            Some((SandboxMessage::Ended(ProcessExit::Exited(code)), _)) => {
                self.ended = Some(CommandExit::Exited(code));
            }
            Some((SandboxMessage::Ended(ProcessExit::Signaled(signal)), _)) => {
                self.ended = Some(CommandExit::Signaled(signal));
            }
            Some((SandboxMessage::NotStarted { error }, _)) => {
                self.not_started = Some(CommandExit::NotStarted(error));
            }
            Some((SandboxMessage::Terminated, _)) => self.by_others |= self.guard.stopping.is_none(),
            Some(_) => {}
            None => self.channel_open = false,
        }
        Ok(())
    }
}

fn obey(
    order: LoopAction,
    guard: &mut DeadlineTracker,
    watch: &mut SupervisionLoop<'_>,
    now: Instant,
) -> io::Result<()> {
    let signal = match order {
        LoopAction::Wait => return Ok(()),
        LoopAction::LookForChange if (watch.changed)() => {
            guard.sign_of_life(now);
            return Ok(());
        }
        LoopAction::LookForChange => {
            guard.stop(StopCause::Stall, now);
            PidfdSignal::TERM
        }
        // The first process passes it on to everyone inside.
        LoopAction::Terminate => PidfdSignal::TERM,
        LoopAction::Kill => watch.killer,
    };
    match pidfd_send_signal(&watch.init, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Default)]
struct ReadyEvents {
    signal: bool,
    end: bool,
    message: bool,
    input: bool,
    attendant: bool,
    output: Vec<usize>,
}

/// How far a sandbox has come to its end.
#[derive(Debug, Clone, Copy)]
struct ShutdownState {
    alive: bool,
    /// Everyone but the first process is dead.
    over: bool,
    channel_open: bool,
}

fn wait(watch: &SupervisionLoop<'_>, stage: ShutdownState, wake: Option<Instant>) -> io::Result<ReadyEvents> {
    #[derive(Clone, Copy)]
    enum PollSource {
        Signal,
        End,
        Message,
        Input,
        Attendant,
        Output(usize),
    }
    let mut fds = vec![PollFd::new(&watch.signals, PollFlags::IN)];
    let mut what = vec![PollSource::Signal];
    if stage.alive {
        fds.push(PollFd::new(&watch.init, PollFlags::IN));
        what.push(PollSource::End);
    }
    if stage.channel_open {
        fds.push(PollFd::new(&watch.channel, PollFlags::IN));
        what.push(PollSource::Message);
    }
    if let Some((fd, flags)) = watch.conversation.input.as_ref().and_then(ByteFlow::interest) {
        fds.push(PollFd::from_borrowed_fd(fd, flags));
        what.push(PollSource::Input);
    }
    if let Some(fd) = watch.attendant.descriptor().filter(|_| !stage.over) {
        fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        what.push(PollSource::Attendant);
    }
    for (index, stream) in watch.conversation.output.iter().enumerate() {
        if let Some((fd, flags)) = stream.interest() {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            what.push(PollSource::Output(index));
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
    let mut seen = ReadyEvents::default();
    for (fd, what) in fds.iter().zip(what) {
        if fd.revents().is_empty() {
            continue;
        }
        match what {
            PollSource::Signal => seen.signal = true,
            PollSource::End => seen.end = true,
            PollSource::Message => seen.message = true,
            PollSource::Input => seen.input = true,
            PollSource::Attendant => seen.attendant = true,
            PollSource::Output(index) => seen.output.push(index),
        }
    }
    Ok(seen)
}

fn resize(conversation: &SupervisorStreams<'_>) {
    if let Some(terminal) = &conversation.terminal
        && let Ok(size) = rustix::termios::tcgetwinsize(rustix::stdio::stdin())
    {
        let _ = rustix::termios::tcsetwinsize(terminal, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(wall: Option<u64>, stall: Option<u64>) -> (DeadlineTracker, Instant) {
        let now = Instant::now();
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let deadlines =
            Deadlines { wall: seconds(wall), stall: seconds(stall), grace: Duration::from_secs(5) };
        (DeadlineTracker::new(deadlines, now), now)
    }

    #[test]
    fn a_wall_deadline_terminates_then_kills_after_the_grace() {
        let (mut guard, start) = guard(Some(10), None);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(guard.at(after(9)), LoopAction::Wait);
        assert_eq!(guard.at(after(10)), LoopAction::Terminate);
        assert_eq!(guard.at(after(14)), LoopAction::Wait);
        assert_eq!(guard.at(after(15)), LoopAction::Kill);
        assert_eq!(guard.at(after(16)), LoopAction::Wait);
        assert_eq!(guard.next(), None);
    }

    #[test]
    fn a_reader_is_hurried_only_by_who_asks_for_the_end() {
        let start = Instant::now();
        let mut reader = OutputConsumer::new(start);
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
        assert_eq!(guard.at(start + Duration::from_secs(12)), LoopAction::Wait);
        assert_eq!(guard.at(start + Duration::from_secs(18)), LoopAction::LookForChange);
    }

    #[test]
    fn a_person_waits_less_and_a_second_wish_ends_it_at_once() {
        let (mut guard, start) = guard(None, None);
        assert_eq!(guard.stop(StopCause::Interrupted(2), start), LoopAction::Terminate);
        assert!(guard.next() <= Some(start + PATIENCE));
        guard.stop(StopCause::Interrupted(2), start);
        assert_eq!(guard.at(start), LoopAction::Kill);
    }
}
