//! `agency run --dry-run`: what would start, what would start later, and why the rest would not.

use agency_protocols::board::{BoardAgenda, ReadyTask};
use agency_protocols::finding::Finding;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::attempt::Attempt;
use agency_supervisor::dispatch::RunOptions;
use agency_supervisor::dispatch::forecast::{self, RepoActivity};
use agency_supervisor::dispatch::plan::StartDelay;
use agency_supervisor::settings::{LandingTarget, RunSettings};
use agency_supervisor::store::QueueMode;
use serde::Serialize;

use super::events::VERSION;
use super::view::render::elapsed;
use crate::app::error::CommandError;
use crate::cli::message::warn_findings;
use crate::cli::output::{print, print_json};

/// What a run would come to, as far as it can be told.
#[derive(Debug, Serialize)]
struct DryRunAnswer<'a> {
    version: u32,
    /// What nobody looks after any more, and is gone on with.
    would_take_over: Vec<AttemptToResume>,
    would_start: Vec<PlannedStart>,
    later: Vec<DelayedStart>,
    waiting: Vec<HeldBackTask>,
    /// What could not be read.
    findings: &'a [Finding],
    /// Why a run would not even begin.
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct AttemptToResume {
    task: String,
    agent: String,
    attempt: u64,
}

#[derive(Debug, Serialize)]
struct PlannedStart {
    #[serde(flatten)]
    start: ReadyTask,
    isolation: IsolationLevel,
    lands: String,
}

#[derive(Debug, Serialize)]
struct DelayedStart {
    task: String,
    agent: String,
    why: String,
}

#[derive(Debug, Serialize)]
struct HeldBackTask {
    task: String,
    why: String,
}

/// Everything that has a say.
pub(super) struct DryRunInputs<'a> {
    pub(super) agenda: &'a BoardAgenda,
    pub(super) protocol: &'a str,
    pub(super) settings: &'a RunSettings,
    pub(super) wishes: &'a RunOptions,
    /// Agents that can't be started, each with what is said of it.
    pub(super) unusable: Vec<(String, CommandError)>,
    pub(super) json: bool,
}

pub(super) fn run(mut given: DryRunInputs<'_>) -> Result<u8, CommandError> {
    let looked = crate::app::runtime::new()?.block_on(forecast::under_way(&given.settings.state));
    let under_way = looked.map_err(|error| CommandError::internal(&error))?;
    let document = document(&given, &under_way);
    match given.json {
        true => print_json(&document)?,
        false => {
            print(&crate::app::error::without_control_chars(&text(&document)))?;
            warn_findings(document.findings);
        }
    }
    match given.unusable.is_empty() {
        true => Ok(0),
        // As a run would: the first of them is all that is said.
        false => Err(given.unusable.swap_remove(0).1),
    }
}

fn document<'a>(given: &DryRunInputs<'a>, under_way: &RepoActivity) -> DryRunAnswer<'a> {
    let DryRunInputs { agenda, settings, wishes, .. } = given;
    let ours = |attempt: &&Attempt| attempt.task.protocol == given.protocol;
    let would_take_over = under_way.left.iter().filter(ours).map(|attempt| AttemptToResume {
        task: attempt.task.id.clone(),
        agent: attempt.agent.clone(),
        attempt: attempt.epoch.0,
    });
    let forecast = forecast::forecast(&agenda.ready, under_way, wishes, settings, given.protocol);
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
    let mut document = DryRunAnswer {
        version: VERSION,
        would_take_over: would_take_over.collect(),
        would_start: forecast.now.into_iter().map(|start| would(start, settings)).collect(),
        later: hindered.chain(unusable).collect(),
        waiting,
        findings: &agenda.findings,
        refused: given.unusable.first().map(|(_, failure)| failure.message.clone()),
    };
    if let Some((agent, _)) = given.unusable.first() {
        document.refuse(given, &format!("a run does not begin before `{agent}` can be started"));
    } else if under_way.mode == QueueMode::Paused {
        document.put_off("paused; `agency resume` goes on");
    }
    document
}

impl DryRunAnswer<'_> {
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
    fn refuse(&mut self, given: &DryRunInputs<'_>, why: &str) {
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
fn waiting(given: &DryRunInputs<'_>, under_way: &RepoActivity) -> Vec<HeldBackTask> {
    let DryRunInputs { agenda, wishes, .. } = given;
    let asked = |id: &str| wishes.tasks.as_ref().is_none_or(|tasks| tasks.contains(id));
    let held = agenda.waiting.iter().filter(|one| asked(one.task.as_str()));
    let held = held.map(|one| HeldBackTask { task: one.task.to_string(), why: one.why.clone() });
    let others = under_way.elsewhere.iter().filter(|attempt| asked(&attempt.task.id));
    let others = others.map(|attempt| HeldBackTask {
        task: attempt.task.id.clone(),
        why: "another `agency run` has it".to_owned(),
    });
    held.chain(others).collect()
}

fn text(document: &DryRunAnswer<'_>) -> String {
    let mut text = String::new();
    let mut part = |head: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&format!("{head}\n{}\n", lines.join("\n")));
        }
    };
    let taken = document.would_take_over.iter();
    let taken = taken.map(|one| format!("  {}  {}  attempt {}", one.task, one.agent, one.attempt));
    part("would be taken over, from a run that is gone:", taken.collect());
    part("would start now:", document.would_start.iter().map(started).collect());
    let later = document.later.iter().map(|one| format!("  {}  {}  {}", one.task, one.agent, one.why));
    part("later:", later.collect());
    let not = document.waiting.iter().map(|one| format!("  {}  {}", one.task, one.why));
    part("not:", not.collect());
    if text.is_empty() {
        text.push_str("nothing would start\n");
    }
    text
}

fn started(PlannedStart { start, isolation, lands }: &PlannedStart) -> String {
    let isolation = isolation.name();
    let title: String = start.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (task, agent, profile) = (&start.task, &start.agent, &start.profile);
    let mut scope = start.scope.touch.join(" ");
    if !start.scope.keep.is_empty() {
        scope.push_str(&format!(" but not {}", start.scope.keep.join(" ")));
    }
    format!(
        "  {task}  {agent}  {title}\n      isolation {isolation}, scope {scope}, profile {profile}, lands {lands}"
    )
}
