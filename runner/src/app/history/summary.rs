//! The morning view: what landed, what failed, what needs a person, and what it cost.

use std::collections::{BTreeMap, HashMap};

use agency_protocols::board::WaitingTask;
use agency_protocols::board_verbs::BoardVerbs;
use agency_protocols::finding::Finding;
use agency_supervisor::attempt::{Attempt, AttemptEnd, Epoch, Phase, TaskKey, UsageTotals};
use agency_supervisor::store::{AttemptStore, AttemptStoreError};
use serde::Serialize;

use super::needs_you::{self, AttemptsSeen, HumanTask};
use super::{AttemptFacts, CheckFacts};
use crate::app::attempt_store::with_existing_store;
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::configuration::ConfigOptions;
use crate::app::error::CommandError;
use crate::app::state_folder;
use crate::app::work_tree_profiles::WorkTreeProfiles;

/// How many events are read at once.
const PAGE: usize = 10_000;

/// What happened since a moment.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryAnswer {
    version: u32,
    /// Seconds since 1970.
    pub(crate) since: i64,
    pub(crate) landed: Vec<TaskFacts>,
    pub(crate) failed: Vec<TaskFacts>,
    pub(crate) needs_you: Vec<HumanTask>,
    pub(crate) running: Vec<TaskFacts>,
    /// What the board holds back, and what can start but could not be verified.
    pub(crate) waiting: Vec<HeldTask>,
    /// What the next run starts.
    pub(crate) ready: Vec<String>,
    pub(crate) totals: UsedTotals,
    pub(crate) agents: BTreeMap<String, UsedTotals>,
    pub(crate) findings: Vec<Finding>,
}

/// A task, with its last attempt.
#[derive(Debug, Serialize)]
pub(crate) struct TaskFacts {
    pub(crate) task: String,
    pub(crate) title: String,
    /// How many attempts there were since the moment.
    pub(crate) attempts: usize,
    pub(crate) last: AttemptFacts,
}

/// A task that the board holds back.
#[derive(Debug, Serialize)]
pub(crate) struct HeldTask {
    pub(crate) task: String,
    pub(crate) why: String,
}

/// What was used.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct UsedTotals {
    pub(crate) attempts: u64,
    #[serde(flatten)]
    pub(crate) used: UsageTotals,
}

/// What the store knows that matters here.
#[derive(Default)]
struct StoreFacts {
    latest: Vec<Attempt>,
    /// Attempts of which something was recorded since the moment.
    recent: Vec<Attempt>,
    forgiven: HashMap<TaskKey, Epoch>,
    notes: HashMap<TaskKey, String>,
}

/// What the boards say that matters here.
#[derive(Default)]
struct BoardFacts {
    needs_you: Vec<HumanTask>,
    waiting: Vec<HeldTask>,
    ready: Vec<String>,
    findings: Vec<Finding>,
}

impl BoardFacts {
    fn add(
        &mut self,
        here: &RepoContext,
        board: &dyn BoardVerbs,
        known: &StoreFacts,
    ) -> Result<(), CommandError> {
        let agenda = board.agenda(here.tree()).map_err(board_error)?;
        let seen = AttemptsSeen { latest: &known.latest, forgiven: &known.forgiven, notes: &known.notes };
        self.needs_you.extend(needs_you::find(here, board, &agenda, &seen));
        self.waiting.extend(agenda.waiting.into_iter().map(HeldTask::from));
        self.findings.extend(agenda.findings);
        let options = ConfigOptions::from_environment();
        let profiles = WorkTreeProfiles::open(here, board.profiles_folder(), &options)?;
        for start in agenda.ready {
            let task = start.task.to_string();
            match profiles.problem(&start.profile) {
                None => self.ready.push(task),
                Some(why) => {
                    let why = format!("the checks of `{}` can't run here: {why}", start.profile);
                    self.waiting.push(HeldTask { task, why });
                }
            }
        }
        Ok(())
    }
}

/// What happened since a moment, in seconds since 1970.
pub(crate) fn summary(here: &RepoContext, who: &Caller, since: i64) -> Result<SummaryAnswer, CommandError> {
    let state = state_folder::of_folder(&here.folder)?;
    let known = with_existing_store(here, async |store| read(store, since).await)?;
    let known = known.unwrap_or_default();
    let mut boards = BoardFacts::default();
    for board in here.boards(who)?.all() {
        boards.add(here, board.as_ref(), &known)?;
    }
    let BoardFacts { needs_you, mut waiting, ready, findings } = boards;
    let facts = |attempt: &Attempt| TaskFacts {
        task: attempt.task.id.clone(),
        title: attempt.title.clone(),
        attempts: known.recent.iter().filter(|one| one.task == attempt.task).count(),
        last: AttemptFacts::of(state.path(), attempt),
    };
    let last = known.latest.iter().filter(|attempt| attempt.recorded_at >= since);
    let (over, open): (Vec<&Attempt>, Vec<&Attempt>) = last.partition(|attempt| attempt.phase.is_over());
    // What was taken back, or is tried again although it came to something, has not landed.
    let is_open_again = |attempt: &Attempt| {
        matches!(attempt.phase, Phase::Over(AttemptEnd::Done { .. } | AttemptEnd::Kept { .. }))
            && known.forgiven.get(&attempt.task).is_some_and(|epoch| *epoch >= attempt.epoch)
    };
    let over = over.into_iter().filter(|attempt| !is_open_again(attempt));
    let (landed, failed) = over.map(facts).partition(|one: &TaskFacts| one.has_succeeded());
    let (mut totals, mut agents) = (UsedTotals::default(), BTreeMap::<String, UsedTotals>::new());
    for attempt in &known.recent {
        totals.add(attempt);
        agents.entry(attempt.agent.clone()).or_default().add(attempt);
    }
    // A task that waits for a person is told once.
    waiting.retain(|held| !needs_you.iter().any(|one| one.task == held.task));
    let running = open.into_iter().filter(|attempt| attempt.held.is_some()).map(facts).collect();
    Ok(SummaryAnswer {
        version: 1,
        since,
        landed,
        failed,
        needs_you,
        running,
        waiting,
        ready,
        totals,
        agents,
        findings,
    })
}

async fn read(store: &impl AttemptStore, since: i64) -> Result<StoreFacts, AttemptStoreError> {
    let latest = store.latest().await?;
    let (mut recent, mut forgiven) = (Vec::new(), HashMap::new());
    for attempt in &latest {
        if attempt.recorded_at >= since {
            let attempts = store.attempts(&attempt.task).await?;
            recent.extend(attempts.into_iter().filter(|one| one.recorded_at >= since));
        }
        forgiven.insert(attempt.task.clone(), store.forgiven(&attempt.task).await?);
    }
    let mut notes = HashMap::new();
    if latest.iter().any(|attempt| !attempt.phase.is_over()) {
        let mut after = 0;
        loop {
            let page = store.events(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for event in page {
                // Whatever came after it, it does not wait for that any more.
                match event.what.as_str() {
                    "note" => notes.insert(event.task, event.detail),
                    _ => notes.remove(&event.task),
                };
            }
        }
    }
    Ok(StoreFacts { latest, recent, forgiven, notes })
}

impl UsedTotals {
    fn add(&mut self, attempt: &Attempt) {
        self.attempts += 1;
        self.used += attempt.spent;
    }
}

impl TaskFacts {
    fn has_succeeded(&self) -> bool {
        matches!(self.last.outcome, "done" | "kept")
    }

    /// `3 of 3 checks`; `None` where nothing was checked.
    pub(crate) fn checks(&self) -> Option<String> {
        let checks: &[CheckFacts] = &self.last.checks;
        (!checks.is_empty()).then(|| format!("{} of {} checks", self.last.passed_checks(), checks.len()))
    }
}

impl From<WaitingTask> for HeldTask {
    fn from(waiting: WaitingTask) -> Self {
        Self { task: waiting.task.to_string(), why: waiting.why }
    }
}
