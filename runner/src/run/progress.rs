//! What a run says while it goes on: one line for each thing that happens, for people or for programs.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::Instant;

use agency_protocols::board::{Board, Role};
use agency_supervisor::attempt::{Ending, Phase, TaskKey};
use agency_supervisor::dispatch::{Fate, Summary};
use agency_supervisor::notice::{Notice, Teller};
use serde::Serialize;
use serde_json::json;

use super::Run;
use crate::board::{Here, print, print_json};
use crate::message::{self, Failure};

/// The format of an event.
const VERSION: u32 = 1;

/// Tells people, on standard error, or programs, on standard output.
#[derive(Debug)]
pub(super) struct Lines {
    json: bool,
    since: Mutex<HashMap<TaskKey, Instant>>,
}

impl Lines {
    pub(super) fn new(json: bool) -> Self {
        Self { json, since: Mutex::default() }
    }

    fn elapsed(&self, task: &TaskKey) -> String {
        let mut since = self.since.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let started = *since.entry(task.clone()).or_insert_with(Instant::now);
        format!("{:.1} s", started.elapsed().as_secs_f64())
    }

    fn document(&self, document: &impl Serialize) {
        // Whoever stopped reading does not stop the work.
        let mut out = std::io::stdout().lock();
        let _ = serde_json::to_writer(&mut out, document).map_err(std::io::Error::from);
        let _ = writeln!(out);
        let _ = out.flush();
    }

    /// What it all came to.
    pub(super) fn summary(&self, summary: &Summary) -> Result<(), Failure> {
        let fate = |fate: &Fate| match fate {
            Fate::Ended(ending) => serde_json::to_value(ending).unwrap_or_default(),
            Fate::Waits(why) => json!({ "ending": "waits", "reason": why }),
            Fate::Open => json!({ "ending": "open" }),
        };
        if self.json {
            let tasks: serde_json::Map<_, _> =
                summary.tasks.iter().map(|(key, one)| (key.id.clone(), fate(one))).collect();
            let waiting: Vec<_> =
                summary.waiting.iter().map(|(task, why)| json!({ "task": task, "why": why })).collect();
            return print_json(&json!({
                "version": VERSION,
                "event": "summary",
                "tasks": tasks,
                "waiting": waiting,
                "troubles": summary.troubles,
                "elsewhere": summary.elsewhere,
                "interrupted": summary.interrupted,
            }));
        }
        let done = |one: &&Fate| matches!(one, Fate::Ended(Ending::Done { .. } | Ending::Kept { .. }));
        let count = summary.tasks.values().filter(done).count();
        for (key, one) in summary.tasks.iter().filter(|(_, one)| !done(one)) {
            message::notice(&format!("{}: {}", key.id, described(one)));
        }
        for (task, why) in &summary.waiting {
            message::notice(&format!("{task} waits: {why}"));
        }
        crate::board::mention(&summary.findings);
        for trouble in &summary.troubles {
            message::notice(trouble);
        }
        message::notice(&match (summary.tasks.len(), summary.elsewhere) {
            (0, 0) => "there was nothing to do".to_owned(),
            (0, 1) => "there was nothing to do: another `agency run` has the one task there is".to_owned(),
            (0, others) => format!("there was nothing to do: another `agency run` has {others} tasks"),
            (total, _) => format!("{count} of {total} tasks done"),
        });
        Ok(())
    }
}

impl Teller for Lines {
    fn tell(&self, notice: &Notice) {
        if self.json {
            let mut document = serde_json::to_value(notice).unwrap_or_default();
            if let Some(fields) = document.as_object_mut() {
                fields.insert("version".to_owned(), json!(VERSION));
            }
            return self.document(&document);
        }
        if let Some(line) = self.line(notice) {
            message::notice(&line);
        }
    }
}

impl Lines {
    fn line(&self, notice: &Notice) -> Option<String> {
        Some(match notice {
            Notice::Phase { attempt } => {
                let elapsed = self.elapsed(&attempt.task);
                let id = &attempt.task.id;
                match &attempt.phase {
                    Phase::Started => format!("{id} started: {} ({})", attempt.title, attempt.agent),
                    Phase::Ended(agency_supervisor::attempt::Ended::Work(_)) => {
                        format!("{id} reported after {elapsed}; verifying")
                    }
                    _ => return None,
                }
            }
            Notice::Adopted { attempt } => {
                format!("{} taken over, attempt {}", attempt.task.id, attempt.epoch)
            }
            Notice::Over { task, ending, .. } => {
                let elapsed = self.elapsed(task);
                self.since.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(task);
                format!("{} {} ({elapsed})", task.id, described(&Fate::Ended(ending.clone())))
            }
            Notice::Waits { task, why, .. } => format!("{} waits: {why}", task.id),
            Notice::Again { task, seconds } => format!("{} is tried again in {seconds} s", task.id),
            Notice::Trouble { task, what } => match task {
                Some(task) => format!("{}: {what}", task.id),
                None => what.clone(),
            },
            Notice::Draining => "nothing new is started; what runs comes to its end".to_owned(),
            Notice::Stopping => "stopping what runs".to_owned(),
            Notice::Paused => "paused; `agency resume` goes on".to_owned(),
            Notice::Resumed => "going on".to_owned(),
        })
    }
}

fn described(fate: &Fate) -> String {
    match fate {
        Fate::Ended(Ending::Done { commit }) => format!("done, {}", &commit[..commit.len().min(12)]),
        Fate::Ended(Ending::Kept { candidate }) => {
            format!("verified and kept, {}", &candidate[..candidate.len().min(12)])
        }
        Fate::Ended(Ending::Blocked { reason }) => format!("blocked: {reason}"),
        Fate::Ended(Ending::Failed { failure, given_up }) => {
            format!("failed: {}{}", failure.reason, given_up.as_deref().unwrap_or_default())
        }
        Fate::Ended(Ending::Lost { reason }) => format!("lost: {reason}"),
        Fate::Ended(Ending::Canceled) => "canceled".to_owned(),
        Fate::Waits(why) => format!("waits: {why}"),
        Fate::Open => "is still open; `agency run` takes it up again".to_owned(),
    }
}

/// What would start, and why the rest would not.
pub(super) fn dry_run(here: &Here, board: &dyn Board, command: &Run) -> Result<u8, Failure> {
    let agenda = board.next(here.tree()).map_err(crate::board::refused)?;
    let asked = |task: &agency_protocols::names::TaskId, agent: &str| {
        (command.task.is_empty() || command.task.contains(task))
            && command.agent.as_ref().is_none_or(|only| only == agent)
    };
    let starts: Vec<_> = agenda
        .ready
        .iter()
        .filter(|start| start.role == Role::Builder && asked(&start.task, start.agent.as_str()))
        .collect();
    if command.json {
        print_json(&json!({ "version": VERSION, "would_start": starts, "waiting": agenda.waiting }))?;
    } else {
        let mut text = String::new();
        for start in &starts {
            text.push_str(&format!("{}  {}  {}\n", start.task, start.agent, message::harmless(&start.title)));
        }
        print(&text)?;
        for waiting in &agenda.waiting {
            message::notice(&format!("{} waits: {}", waiting.task, waiting.why));
        }
    }
    Ok(0)
}
