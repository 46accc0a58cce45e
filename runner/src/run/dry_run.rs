//! `agency run --dry-run`: what would start, what would start later, and why the rest would not.

use agency_protocols::board::{Agenda, Start};
use agency_protocols::finding::Finding;
use agency_sandbox::policy::Level;
use agency_supervisor::attempt::Attempt;
use agency_supervisor::dispatch::Wishes;
use agency_supervisor::dispatch::forecast::{self, UnderWay};
use agency_supervisor::dispatch::plan::Hindrance;
use agency_supervisor::settings::{Land, Settings};
use agency_supervisor::store::Mode;
use serde::Serialize;

use super::events::VERSION;
use super::view::picture::elapsed;
use crate::board::{mention, print, print_json};
use crate::isolation;
use crate::message::{self, Failure, INTERNAL};

/// What a run would come to, as far as it can be told.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    /// What nobody looks after any more, and is gone on with.
    would_take_over: Vec<UnderWork>,
    would_start: Vec<Would>,
    later: Vec<Later>,
    waiting: Vec<Not>,
    /// What could not be read.
    findings: &'a [Finding],
    /// Why a run would not even begin.
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct UnderWork {
    task: String,
    agent: String,
    attempt: u64,
}

#[derive(Debug, Serialize)]
struct Would {
    #[serde(flatten)]
    start: Start,
    isolation: Level,
    lands: String,
}

#[derive(Debug, Serialize)]
struct Later {
    task: String,
    agent: String,
    why: String,
}

#[derive(Debug, Serialize)]
struct Not {
    task: String,
    why: String,
}

/// Everything that has a say.
pub(super) struct Given<'a> {
    pub(super) agenda: &'a Agenda,
    pub(super) protocol: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) wishes: &'a Wishes,
    /// Agents that can't be started, each with what is said of it.
    pub(super) unusable: Vec<(String, Failure)>,
    pub(super) json: bool,
}

pub(super) fn run(mut given: Given<'_>) -> Result<u8, Failure> {
    let looked = super::runtime()?.block_on(forecast::under_way(&given.settings.state));
    let under_way = looked.map_err(|error| Failure::new(INTERNAL, &error))?;
    let document = document(&given, &under_way);
    match given.json {
        true => print_json(&document)?,
        false => {
            print(&message::harmless(&text(&document)))?;
            mention(document.findings);
        }
    }
    match given.unusable.is_empty() {
        true => Ok(0),
        // As a run would: the first of them is all that is said.
        false => Err(given.unusable.swap_remove(0).1),
    }
}

fn document<'a>(given: &Given<'a>, under_way: &UnderWay) -> Document<'a> {
    let Given { agenda, settings, wishes, .. } = given;
    let ours = |attempt: &&Attempt| attempt.task.protocol == given.protocol;
    let would_take_over = under_way.left.iter().filter(ours).map(|attempt| UnderWork {
        task: attempt.task.id.clone(),
        agent: attempt.agent.clone(),
        attempt: attempt.epoch.0,
    });
    let forecast = forecast::forecast(&agenda.ready, under_way, wishes, settings, given.protocol);
    let is_unusable = |start: &Start| given.unusable.iter().any(|(agent, _)| agent == start.agent.as_str());
    let (unusable, never): (Vec<_>, Vec<_>) =
        forecast.never.into_iter().partition(|(start, _)| is_unusable(start));
    let never = never.into_iter().map(|(start, why)| Not { task: start.task.to_string(), why });
    let unusable = unusable.into_iter().map(|(start, why)| Later {
        task: start.task.to_string(),
        agent: start.agent.to_string(),
        why,
    });
    let waiting = waiting(given, under_way).into_iter().chain(never).collect();
    let hindered = forecast.later.into_iter().map(|(start, hindrance)| {
        let why = hindered(hindrance, start.agent.as_str());
        Later { task: start.task.to_string(), agent: start.agent.to_string(), why }
    });
    let mut document = Document {
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
    } else if under_way.mode == Mode::Paused {
        document.put_off("paused; `agency resume` goes on");
    }
    document
}

impl Document<'_> {
    /// Nothing starts now, and this is why.
    fn put_off(&mut self, why: &str) {
        let starts = std::mem::take(&mut self.would_start).into_iter().map(|Would { start, .. }| Later {
            task: start.task.to_string(),
            agent: start.agent.to_string(),
            why: why.to_owned(),
        });
        let later = std::mem::take(&mut self.later);
        self.later = starts.chain(later).collect();
    }

    /// Nothing starts at all: some for their agents' sake, and the rest with them.
    fn refuse(&mut self, given: &Given<'_>, why: &str) {
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

fn would(start: Start, settings: &Settings) -> Would {
    let agent = settings.agents.get(start.agent.as_str());
    let isolation = agent.and_then(|agent| agent.level).unwrap_or(settings.level);
    let lands = match settings.land {
        Land::Merge => format!("on {}", settings.branch),
        Land::Branch => match &start.branch {
            Some(named) => format!("on {named}"),
            None => format!("on agency/{}", start.task),
        },
        Land::None => "nowhere: it is verified and kept".to_owned(),
    };
    Would { start, isolation, lands }
}

fn hindered(hindrance: Hindrance, agent: &str) -> String {
    match hindrance {
        Hindrance::Parallel { most: 1 } => "one agent works at a time (--parallel)".to_owned(),
        Hindrance::Parallel { most } => format!("{most} agents work at a time (--parallel)"),
        Hindrance::Agent { most } => format!("{most} of `{agent}` at a time (agents.{agent}.parallel)"),
        Hindrance::Parked { seconds } => format!("`{agent}` can't work for another {}", elapsed(seconds)),
        Hindrance::Memory { needed } => {
            format!("`{agent}` may need {} MiB of memory, and less is free", needed >> 20)
        }
    }
}

/// What would not start, however long the run.
fn waiting(given: &Given<'_>, under_way: &UnderWay) -> Vec<Not> {
    let Given { agenda, wishes, .. } = given;
    let asked = |id: &str| wishes.tasks.as_ref().is_none_or(|tasks| tasks.contains(id));
    let held = agenda.waiting.iter().filter(|one| asked(one.task.as_str()));
    let held = held.map(|one| Not { task: one.task.to_string(), why: one.why.clone() });
    let others = under_way.elsewhere.iter().filter(|attempt| asked(&attempt.task.id));
    let others = others
        .map(|attempt| Not { task: attempt.task.id.clone(), why: "another `agency run` has it".to_owned() });
    held.chain(others).collect()
}

fn text(document: &Document<'_>) -> String {
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

fn started(Would { start, isolation, lands }: &Would) -> String {
    let isolation = isolation::name(*isolation);
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
