//! What a run would start, what it would start later, and why it would not start the rest. Nothing is changed.

use agency_protocols::board::ReadyTask;
use agency_protocols::finding::Finding;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::attempt::Attempt;
use agency_supervisor::dispatch::forecast::{self, RepoActivity};
use agency_supervisor::dispatch::plan::StartDelay;
use agency_supervisor::settings::{LandingTarget, RunSettings};
use agency_supervisor::store::QueueMode;
use serde::Serialize;

use super::{RunPlan, RunPurpose, RunRequest, plan};
use crate::app::board::{Caller, RepoContext};
use crate::app::configuration::ConfigOptions;
use crate::app::error::CommandError;
use crate::app::units::elapsed;
use crate::app::work_tree_profiles::WorkTreeProfiles;

/// What a run would come to, as far as it can be told.
#[derive(Debug, Serialize)]
pub(crate) struct DryRunAnswer {
    /// What nobody looks after any more, and is gone on with.
    pub(crate) would_take_over: Vec<AttemptToResume>,
    pub(crate) would_start: Vec<PlannedStart>,
    pub(crate) later: Vec<DelayedStart>,
    pub(crate) waiting: Vec<HeldBackTask>,
    /// What could not be read.
    pub(crate) findings: Vec<Finding>,
    /// Why a run would not even begin.
    pub(crate) refused: Option<String>,
    /// The failure that a run would be.
    #[serde(skip)]
    pub(crate) failure: Option<CommandError>,
}

#[derive(Debug, Serialize)]
pub(crate) struct AttemptToResume {
    pub(crate) task: String,
    pub(crate) agent: String,
    pub(crate) attempt: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PlannedStart {
    #[serde(flatten)]
    pub(crate) start: ReadyTask,
    pub(crate) isolation: IsolationLevel,
    pub(crate) lands: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct DelayedStart {
    pub(crate) task: String,
    pub(crate) agent: String,
    pub(crate) why: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct HeldBackTask {
    pub(crate) task: String,
    pub(crate) why: String,
}

/// What a run that is asked for would do now.
pub(crate) fn dry_run(
    mut here: RepoContext,
    who: &Caller,
    request: &RunRequest,
) -> Result<DryRunAnswer, CommandError> {
    here.builder.clone_from(&request.agent);
    let mut given = plan(&here, who, request, RunPurpose::DryRun)?;
    let looked = crate::app::runtime::new()?.block_on(forecast::under_way(&given.settings.state));
    let under_way = looked.map_err(|error| CommandError::internal(&error))?;
    let unfit = take_unfit(&here, &mut given, &request.configuration)?;
    let mut answer = answer(&given, &under_way);
    answer.waiting.extend(unfit);
    answer.findings = given.agenda.findings;
    if !given.unusable.is_empty() {
        // As a run would: the first of them is all that is said.
        answer.failure = Some(given.unusable.swap_remove(0).1);
    }
    Ok(answer)
}

/// Takes out the tasks whose checks can't run here: a run finds that out before it starts an agent.
fn take_unfit(
    here: &RepoContext,
    given: &mut RunPlan,
    options: &ConfigOptions,
) -> Result<Vec<HeldBackTask>, CommandError> {
    if !given.settings.checks_base {
        return Ok(Vec::new());
    }
    let profiles = WorkTreeProfiles::open(here, given.profiles, options)?;
    let mut unfit = Vec::new();
    given.agenda.ready.retain(|start| match profiles.problem(&start.profile) {
        Some(why) if given.options.includes(start) => {
            let why = format!("the checks of `{}` can't run here: {why}", start.profile);
            unfit.push(HeldBackTask { task: start.task.to_string(), why });
            false
        }
        _ => true,
    });
    Ok(unfit)
}

fn answer(given: &RunPlan, under_way: &RepoActivity) -> DryRunAnswer {
    let RunPlan { agenda, settings, options, .. } = given;
    let ours = |attempt: &&Attempt| attempt.task.protocol == given.protocol;
    let would_take_over = under_way.left.iter().filter(ours).map(|attempt| AttemptToResume {
        task: attempt.task.id.clone(),
        agent: attempt.agent.clone(),
        attempt: attempt.epoch.0,
    });
    let forecast = forecast::forecast(&agenda.ready, under_way, options, settings, given.protocol);
    let is_unusable =
        |start: &ReadyTask| given.unusable.iter().any(|(agent, _)| agent == start.agent.as_str());
    let (unusable, never): (Vec<_>, Vec<_>) =
        forecast.never.into_iter().partition(|(start, _)| is_unusable(start));
    let never = never.into_iter().map(|(start, why)| HeldBackTask { task: start.task.to_string(), why });
    let unusable = unusable.into_iter().map(|(start, why)| DelayedStart {
        task: start.task.to_string(),
        agent: start.agent.to_string(),
        why,
    });
    let waiting = waiting(given, under_way).into_iter().chain(never).collect();
    let hindered = forecast.later.into_iter().map(|(start, hindrance)| {
        let why = hindered(hindrance, start.agent.as_str());
        DelayedStart { task: start.task.to_string(), agent: start.agent.to_string(), why }
    });
    let mut answer = DryRunAnswer {
        would_take_over: would_take_over.collect(),
        would_start: forecast.now.into_iter().map(|start| would(start, settings)).collect(),
        later: hindered.chain(unusable).collect(),
        waiting,
        findings: Vec::new(),
        refused: given.unusable.first().map(|(_, failure)| failure.message.clone()),
        failure: None,
    };
    if let Some((agent, _)) = given.unusable.first() {
        answer.refuse(given, &format!("a run does not begin before `{agent}` can be started"));
    } else if under_way.mode == QueueMode::Paused {
        answer.put_off("paused; `agency resume` goes on");
    }
    answer
}

impl DryRunAnswer {
    /// Nothing starts now, and this is why.
    fn put_off(&mut self, why: &str) {
        let starts =
            std::mem::take(&mut self.would_start).into_iter().map(|PlannedStart { start, .. }| {
                DelayedStart {
                    task: start.task.to_string(),
                    agent: start.agent.to_string(),
                    why: why.to_owned(),
                }
            });
        let later = std::mem::take(&mut self.later);
        self.later = starts.chain(later).collect();
    }

    /// Nothing starts at all: some for their agents' sake, and the rest with them.
    fn refuse(&mut self, given: &RunPlan, why: &str) {
        self.put_off(why);
        self.would_take_over.clear();
        for one in &mut self.later {
            if let Some((_, failure)) = given.unusable.iter().find(|(agent, _)| *agent == one.agent) {
                one.why = format!("`{}` can't be started: {}", one.agent, failure.message);
            } else {
                one.why = why.to_owned();
            }
        }
    }
}

fn would(start: ReadyTask, settings: &RunSettings) -> PlannedStart {
    let agent = settings.agents.get(start.agent.as_str());
    let isolation = agent.and_then(|agent| agent.level).unwrap_or(settings.level);
    let lands = match settings.land {
        LandingTarget::Merge => format!("on {}", settings.branch),
        LandingTarget::Branch => match &start.branch {
            Some(named) => format!("on {named}"),
            None => format!("on agency/{}", start.task),
        },
        LandingTarget::None => "nowhere: it is verified and kept".to_owned(),
    };
    PlannedStart { start, isolation, lands }
}

fn hindered(hindrance: StartDelay, agent: &str) -> String {
    match hindrance {
        StartDelay::Parallel { most: 1 } => "one agent works at a time (--parallel)".to_owned(),
        StartDelay::Parallel { most } => format!("{most} agents work at a time (--parallel)"),
        StartDelay::Agent { most } => format!("{most} of `{agent}` at a time (agents.{agent}.parallel)"),
        StartDelay::Parked { seconds } => format!("`{agent}` can't work for another {}", elapsed(seconds)),
        StartDelay::Memory { needed } => {
            format!("`{agent}` may need {} MiB of memory, and less is free", needed >> 20)
        }
    }
}

/// What would not start, however long the run.
fn waiting(given: &RunPlan, under_way: &RepoActivity) -> Vec<HeldBackTask> {
    let RunPlan { agenda, options, .. } = given;
    let asked = |id: &str| options.tasks.as_ref().is_none_or(|tasks| tasks.contains(id));
    let held = agenda.waiting.iter().filter(|one| asked(one.task.as_str()));
    let held = held.map(|one| HeldBackTask { task: one.task.to_string(), why: one.why.clone() });
    let others = under_way.elsewhere.iter().filter(|attempt| asked(&attempt.task.id));
    let others = others.map(|attempt| HeldBackTask {
        task: attempt.task.id.clone(),
        why: "another `agency run` has it".to_owned(),
    });
    let is_open =
        |id: &str| under_way.left.iter().chain(&under_way.elsewhere).any(|attempt| attempt.task.id == id);
    let reported = agenda.reported.iter().filter(|id| asked(id.as_str()) && !is_open(id.as_str()));
    let reported = reported.map(|id| HeldBackTask {
        task: id.to_string(),
        why: format!("its work is reported and did not land; `agency retry {id}` begins another attempt"),
    });
    let foreign =
        agenda.elsewhere.iter().filter(|one| asked(one.task.as_str()) && !is_open(one.task.as_str()));
    let foreign = foreign.map(|one| HeldBackTask { task: one.task.to_string(), why: one.why.clone() });
    held.chain(others).chain(reported).chain(foreign).collect()
}
