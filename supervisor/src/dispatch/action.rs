//! What the queue asks for, and what it is told: values that go between the state, which decides, and the tasks that
//! act for it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use agency_protocols::board::{BoardAgenda, ReadyTask};

use super::Interrupt;
use crate::attempt::{Attempt, AttemptEnd, Epoch, Lease, TaskKey, Term, UsageTotals};
use crate::clock::BootInstant;
use crate::driver::{DriverSignal, FaultDomain, OutcomeSoFar};
use crate::run_event::{BaseCheck, RunEvent};
use crate::store::QueueMode;

/// When something happened, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) boot: BootInstant,
    /// Seconds since 1970.
    pub(super) wall: i64,
}

/// What is to be done, in the order in which it stands in [`Actions`].
#[derive(Debug)]
pub(super) enum Action {
    /// A task finds the answer, which comes as a [`DispatchEvent`].
    Ask(Question),
    /// People are told.
    Emit(RunEvent),
    /// An attempt that was merged takes its place in the train again.
    Rejoin(Attempt),
    /// A driver takes the attempt as far as it goes.
    Drive { attempt: Attempt, start: Option<Box<ReadyTask>>, wish: DriverSignal },
    /// A driver is told what is wanted of it; `wakes` says whether it hears that at once.
    Signal { key: TaskKey, signal: DriverSignal, wakes: bool },
    /// The shims of an attempt learn that its lease ends later.
    RenewShims(Attempt),
    /// The run is over.
    End,
}

/// What is to be done, the first thing first.
#[derive(Debug, Default)]
#[must_use = "what the queue decided has to be carried out"]
pub(super) struct Actions(pub(super) Vec<Action>);

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    pub(super) fn emit(&mut self, event: RunEvent) {
        self.push(Action::Emit(event));
    }
}

/// Something that only the store, the board or git knows, or that changes one of them.
#[derive(Debug)]
pub(super) enum Question {
    /// A drain that was meant for an earlier run is taken back.
    GiveBackDrain,
    /// What others wrote into the store, if its version is not the known one. `parked`: the tasks for which agents wait.
    ReadStore {
        known: Option<u64>,
        parked: Vec<TaskKey>,
    },
    ReadAgenda,
    /// Whether the board still wants work on these.
    CheckWanted {
        keys: Vec<TaskKey>,
    },
    /// Attempts that no living supervisor looks after become ours, except those that this queue still has in its books:
    /// a driver that has lost its lease ends first.
    FindOrphans {
        ours: HashSet<TaskKey>,
    },
    RenewLeases,
    /// `after`: the last attempt at the task that is known.
    Claim {
        key: TaskKey,
        start: Box<ReadyTask>,
        after: Option<Epoch>,
    },
    /// The store keeps what an attempt waits for.
    NoteWaiting {
        lease: Lease,
        text: String,
    },
    /// The last attempt at a task as the store has it.
    Reread {
        key: TaskKey,
    },
    /// What has to be known before an attempt that ended is accounted for.
    Settle {
        attempt: Box<Attempt>,
        needs: SettlingNeeds,
    },
    /// What the checks of a profile come to on the branch as it is.
    CheckBase {
        profile: String,
    },
    /// An attempt that can't be taken further comes to its end.
    Abandon {
        key: TaskKey,
        blame: FaultDomain,
        why: String,
    },
}

/// Which facts [`Question::Settle`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SettlingNeeds {
    /// Whether the board still wants the task.
    pub(super) wanted: bool,
    /// How often the task failed.
    pub(super) failures: bool,
    /// What the attempt counts for in the budget of the run.
    pub(super) spent: bool,
}

impl SettlingNeeds {
    pub(super) fn any(self) -> bool {
        self.wanted || self.failures || self.spent
    }
}

/// What a question is about: nothing is asked twice at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Drain,
    Store,
    Agenda,
    Wanted,
    Orphans,
    Leases,
    Claim,
    BaseCheck,
    Attempt(TaskKey),
}

impl Question {
    pub(super) fn asked(&self) -> Asked {
        match self {
            Self::GiveBackDrain => Asked::Drain,
            Self::ReadStore { .. } => Asked::Store,
            Self::ReadAgenda => Asked::Agenda,
            Self::CheckWanted { .. } => Asked::Wanted,
            Self::FindOrphans { .. } => Asked::Orphans,
            Self::RenewLeases => Asked::Leases,
            Self::Claim { .. } => Asked::Claim,
            Self::CheckBase { .. } => Asked::BaseCheck,
            Self::NoteWaiting { lease, .. } => Asked::Attempt(lease.task.clone()),
            Self::Settle { attempt, .. } => Asked::Attempt(attempt.task.clone()),
            Self::Reread { key } | Self::Abandon { key, .. } => Asked::Attempt(key.clone()),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(super) enum DispatchEvent {
    Interrupted(Interrupt),
    /// It is time to look at the store. The disk was looked at.
    Look {
        is_disk_full: bool,
    },
    /// It is time to renew the leases.
    Heartbeat,
    /// A driver came to its end.
    Rested {
        key: TaskKey,
        rest: Box<Result<OutcomeSoFar, DriveFault>>,
    },
    Answered(Answer),
    /// A question was not answered because the machine lacks something.
    Unanswered {
        asked: Asked,
        what: String,
    },
}

/// The answer to a [`Question`].
#[derive(Debug)]
pub(super) enum Answer {
    DrainGivenBack,
    StoreRead { version: u64, news: Option<Box<StoreNews>> },
    AgendaRead { agenda: Box<BoardAgenda>, took: Duration },
    WantedChecked { unwanted: Vec<TaskKey> },
    OrphansFound(OrphanSearch),
    LeasesRenewed { leases: Vec<Lease> },
    Claimed { key: TaskKey, start: Box<ReadyTask>, outcome: ClaimOutcome },
    WaitingNoted { key: TaskKey },
    Reread { key: TaskKey, attempt: Option<Box<Attempt>> },
    Settled { key: TaskKey, facts: SettlingFacts },
    BaseChecked { profile: String, result: BaseCheck },
    Abandoned { key: TaskKey, outcome: AbandonOutcome },
}

impl Answer {
    pub(super) fn asked(&self) -> Asked {
        match self {
            Self::DrainGivenBack => Asked::Drain,
            Self::StoreRead { .. } => Asked::Store,
            Self::AgendaRead { .. } => Asked::Agenda,
            Self::WantedChecked { .. } => Asked::Wanted,
            Self::OrphansFound(_) => Asked::Orphans,
            Self::LeasesRenewed { .. } => Asked::Leases,
            Self::Claimed { .. } => Asked::Claim,
            Self::BaseChecked { .. } => Asked::BaseCheck,
            Self::WaitingNoted { key }
            | Self::Reread { key, .. }
            | Self::Settled { key, .. }
            | Self::Abandoned { key, .. } => Asked::Attempt(key.clone()),
        }
    }
}

/// Why a driver could not take its attempt further.
#[derive(Debug)]
pub(super) struct DriveFault {
    pub(super) blame: FaultDomain,
    pub(super) what: String,
}

/// What changed in the store.
#[derive(Debug)]
pub(super) struct StoreNews {
    pub(super) mode: QueueMode,
    pub(super) latest: Vec<Attempt>,
    /// For tasks for which an agent waits: attempts up to this one do not count any more.
    pub(super) forgiven: HashMap<TaskKey, Epoch>,
}

/// The result of the search for attempts that no living supervisor looks after.
#[derive(Debug, Default)]
pub(super) struct OrphanSearch {
    /// The terms of this supervisor: it may have entered once more to take an attempt over.
    pub(super) terms: Vec<Term>,
    pub(super) adopted: Vec<Attempt>,
    /// Living supervisors have these.
    pub(super) elsewhere: Vec<TaskKey>,
    /// What the machine lacked before the search was over.
    pub(super) cut_short: Option<String>,
}

/// The result of a claim.
#[derive(Debug)]
pub(super) enum ClaimOutcome {
    /// The task's budget is used up; how, in a sentence.
    UsedUp(String),
    /// An auditor of the same agent came to work since the task was chosen.
    NoPlace,
    /// Another supervisor has the task, or had it meanwhile.
    Taken,
    Held {
        lease: Lease,
        until: BootInstant,
    },
}

/// The facts that [`SettlingNeeds`] name.
#[derive(Debug)]
pub(super) struct SettlingFacts {
    pub(super) wanted: bool,
    pub(super) failures: u32,
    pub(super) spent: UsageTotals,
}

/// The result of abandoning an attempt.
#[derive(Debug)]
pub(super) enum AbandonOutcome {
    /// It is not ours any more.
    NotOurs,
    Over {
        attempt: Box<Attempt>,
        ending: AttemptEnd,
    },
    /// Another owner took it meanwhile.
    Fenced,
    /// Not even that could be done; why.
    Failed(String),
}
