//! Finding the answers: everything here may wait for the store, the board or git, and is done by a task of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agency_protocols::board::ReadyTask;
use agency_sandbox::error_chain;
use tracing::Instrument;

use super::RunError;
use super::action::{
    AbandonOutcome, Answer, ClaimOutcome, OrphanSearch, Question, SettlingFacts, SettlingNeeds, StoreNews,
};
use super::parked_agents;
use crate::agent_slots::{SlotGuard, SlotPurpose};
use crate::attempt::{Attempt, Epoch, LeaseHolder, TaskKey, UsageTotals};
use crate::base_check;
use crate::clock::{BootClock, Clock};
use crate::driver::{self, AttemptStep, FaultDomain, RunContext, StepSide};
use crate::host_fault::HostFault;
use crate::job::{JobFolder, shim_client};
use crate::owner_lock;
use crate::run_event::BaseCheck;
use crate::store::{AttemptStore, ClaimRequest, ClaimResult, QueueMode};

/// An answer, and the place of the agent that a claim took for it.
pub(super) type AnswerWithPlace = Result<(Answer, Option<SlotGuard>), RunError>;

/// Finds the answer to a question.
pub(super) async fn answer<S: AttemptStore>(
    context: Arc<RunContext<S>>,
    question: Question,
) -> AnswerWithPlace {
    let store = &*context.store;
    let answer = match question {
        Question::GiveBackDrain => {
            // A drain was meant for those who ran when it was asked for.
            if store.mode().await? == QueueMode::Draining {
                store.set_mode(QueueMode::Running).await?;
            }
            Answer::DrainGivenBack
        }
        Question::ReadStore { known, parked } => read_store(store, known, parked).await?,
        Question::ReadAgenda => {
            let from = BootClock.now();
            let agenda = Box::new(context.agenda().await?);
            Answer::AgendaRead { agenda, took: BootClock.now().since(from) }
        }
        Question::CheckWanted { keys } => {
            let mut unwanted = Vec::new();
            for key in keys {
                if !context.is_wanted(&key).await? {
                    unwanted.push(key);
                }
            }
            Answer::WantedChecked { unwanted }
        }
        Question::FindOrphans { ours } => Answer::OrphansFound(find_orphans(&context, &ours).await?),
        Question::RenewLeases => {
            Answer::LeasesRenewed { leases: context.terms.renew(store, context.settings.leases.ttl).await? }
        }
        Question::Claim { key, start, after } => {
            let (outcome, place) = claim(&context, &key, &start, after).await?;
            return Ok((Answer::Claimed { key, start, outcome }, place));
        }
        Question::NoteWaiting { lease, text } => {
            store.note(&lease, &text).await?;
            Answer::WaitingNoted { key: lease.task }
        }
        Question::Reread { key } => {
            let attempt = reread(&context, &key).await?.map(Box::new);
            Answer::Reread { key, attempt }
        }
        Question::Settle { attempt, needs } => {
            let facts = settle(&context, &attempt, needs).await?;
            Answer::Settled { key: attempt.task.clone(), facts }
        }
        Question::CheckBase { profile } => {
            let result = match base_check::check(&context, &profile).await {
                Ok(result) => result,
                Err(error) if HostFault::of(&error, &context.settings.state).is_some() => {
                    return Err(error.into());
                }
                // It was to spare agents; they may start without it.
                Err(error) => BaseCheck::Untried { why: error_chain::on_one_line(&error) },
            };
            Answer::BaseChecked { profile, result }
        }
        Question::Abandon { key, blame, why } => {
            let outcome = abandon(&context, &key, blame, why).await?;
            Answer::Abandoned { key, outcome }
        }
    };
    Ok((answer, None))
}

async fn read_store<S: AttemptStore>(
    store: &S,
    known: Option<u64>,
    parked: Vec<TaskKey>,
) -> Result<Answer, RunError> {
    let version = store.version().await?;
    if known == Some(version) {
        return Ok(Answer::StoreRead { version, news: None });
    }
    let mode = store.mode().await?;
    let latest = store.latest().await?;
    let forgiven = parked_agents::forgiven(store, parked, &latest).await?;
    Ok(Answer::StoreRead { version, news: Some(Box::new(StoreNews { mode, latest, forgiven })) })
}

async fn claim<S: AttemptStore>(
    context: &RunContext<S>,
    key: &TaskKey,
    start: &ReadyTask,
    after: Option<Epoch>,
) -> Result<(ClaimOutcome, Option<SlotGuard>), RunError> {
    let allowed = &context.settings.budget.task;
    if !allowed.is_boundless()
        && let Some(used) = allowed.used_up(&context.store.spent(key).await?, 0)
    {
        return Ok((ClaimOutcome::UsedUp(format!("its budget is used up: {used}")), None));
    }
    // Where an auditor has come to work since it was chosen, it is chosen again, or something else is.
    let Some(place) = context.slots.try_acquire(start.agent.as_str(), SlotPurpose::Build) else {
        return Ok((ClaimOutcome::NoPlace, None));
    };
    let beyond = match after {
        Some(_) => Epoch(0),
        None => context.known_to_git(key).await?,
    };
    let claim = ClaimRequest { task: key, title: &start.title, agent: start.agent.as_str(), after, beyond };
    (context.step_hook)(key, AttemptStep::Claim, StepSide::Before);
    let ttl = context.settings.leases.ttl;
    let claimed = context.store.claim(&claim, context.terms.newest(), ttl);
    let claimed = claimed.instrument(AttemptStep::Claim.span()).await?;
    (context.step_hook)(key, AttemptStep::Claim, StepSide::After);
    Ok(match claimed {
        ClaimResult::Taken => (ClaimOutcome::Taken, None),
        ClaimResult::Held(lease) => (ClaimOutcome::Held { lease, until: BootClock.now() + ttl }, Some(place)),
    })
}

/// Takes over attempts of owners that are dead, or whose time is up. What was adopted before the machine lacked something
/// is driven all the same.
async fn find_orphans<S: AttemptStore>(
    context: &RunContext<S>,
    ours: &HashSet<TaskKey>,
) -> Result<OrphanSearch, RunError> {
    let open = context.store.open().await?;
    let others: Vec<&Attempt> = open
        .iter()
        .filter(|attempt| attempt.task.protocol == context.board_thread.protocol)
        .filter(|attempt| attempt.held.is_some_and(|held| !context.terms.contains(held.term)))
        .filter(|attempt| !ours.contains(&attempt.task))
        .collect();
    let mut search = OrphanSearch { terms: context.terms.all(), ..OrphanSearch::default() };
    if others.is_empty() {
        return Ok(search);
    }
    let owners: HashMap<_, _> = context.store.owners().await?.into_iter().collect();
    let time = context.store.now().await?;
    for attempt in others {
        let (Some(held), Some(lease)) = (attempt.held, attempt.lease()) else { continue };
        let dead = owners
            .get(&held.term)
            .is_none_or(|owner| owner_lock::is_dead(&context.settings.state, held.term, owner));
        if !dead && held.until > time {
            search.elsewhere.push(attempt.task.clone());
            continue;
        }
        let ttl = context.settings.leases.ttl;
        let adopted = async {
            // Neither git nor the attempt's shims obey a smaller term than the one they know.
            let term = context.terms.above(lease.term, context.store.as_ref()).await?;
            context.store.adopt(&lease, term, ttl).await
        };
        let adopted = adopted.await.map_err(RunError::from);
        search.terms = context.terms.all();
        match adopted {
            Ok(Some(lease)) => {
                let held = Some(LeaseHolder { term: lease.term, until: time + ttl });
                search.adopted.push(Attempt { held, ..attempt.clone() });
            }
            Ok(None) => {}
            Err(error) => {
                search.cut_short = Some(absorbed(context, error)?);
                return Ok(search);
            }
        }
    }
    Ok(search)
}

/// What is said of an error that the machine is to blame for, and that passes. Every other ends the run.
pub(super) fn absorbed<S>(context: &RunContext<S>, error: RunError) -> Result<String, RunError> {
    match HostFault::of(&error, &context.settings.state) {
        Some(fault) => Ok(format!("{}; {fault}", error_chain::on_one_line(&error))),
        None => Err(error),
    }
}

/// An attempt as the store has it, if it is still ours.
async fn reread<S: AttemptStore>(
    context: &RunContext<S>,
    key: &TaskKey,
) -> Result<Option<Attempt>, RunError> {
    let attempts = context.store.attempts(key).await?;
    let ours = |attempt: &Attempt| attempt.held.is_some_and(|held| context.terms.contains(held.term));
    Ok(attempts.into_iter().next_back().filter(ours))
}

async fn settle<S: AttemptStore>(
    context: &RunContext<S>,
    attempt: &Attempt,
    needs: SettlingNeeds,
) -> Result<SettlingFacts, RunError> {
    let key = &attempt.task;
    let mut facts = SettlingFacts { wanted: true, failures: 0, spent: UsageTotals::default() };
    if needs.wanted && !context.is_wanted(key).await? {
        return Ok(SettlingFacts { wanted: false, ..facts });
    }
    if needs.failures {
        facts.failures = context.store.failures(key).await?;
    }
    if needs.spent {
        let attempts = context.store.attempts(key).await?;
        let over = attempts.iter().filter(|one| one.epoch == attempt.epoch);
        let spent: UsageTotals = over.map(|one| one.spent).sum();
        let impossible = driver::impossible(&context.records(attempt));
        facts.spent = context.settings.budget.counts_for_the_run(spent, impossible);
    }
    Ok(facts)
}

async fn abandon<S: AttemptStore>(
    context: &RunContext<S>,
    key: &TaskKey,
    blame: FaultDomain,
    why: String,
) -> Result<AbandonOutcome, RunError> {
    let Some(attempt) = reread(context, key).await? else { return Ok(AbandonOutcome::NotOurs) };
    Ok(match context.abandon(attempt.clone(), blame, why.clone()).await {
        Ok(ending) => AbandonOutcome::Over { attempt: Box::new(attempt), ending },
        Err(error) if error.is_fenced() => AbandonOutcome::Fenced,
        Err(error) => {
            let cause = error_chain::on_one_line(&error);
            AbandonOutcome::Failed(format!("{why}; it can't be set aside: {cause}"))
        }
    })
}

/// Tells every shim of an attempt that its lease ends later. A shim that takes its time holds up only itself.
pub(super) fn renew_shims<S>(context: &RunContext<S>, attempt: &Attempt) {
    let Some(lease) = attempt.lease() else { return };
    let until = BootClock.now() + context.settings.leases.ttl;
    let folder = crate::records::folder_of(&context.settings.state, attempt);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (place, term) = (JobFolder::new(entry.path()), lease.term);
        tokio::spawn(async move {
            // A shim that does not answer has no lease to be renewed.
            if let Err(error) = shim_client::renew(&place, term, until).await {
                tracing::debug!(%error, "a shim does not answer");
            }
        });
    }
}
