//! `agency run --dry-run`: what would start, what would start later, and why the rest would not.

use serde::Serialize;

use super::events::VERSION;
use crate::app::error::{CommandError, without_control_chars};
use crate::app::run::dry_run::{DryRunAnswer, PlannedStart};
use crate::cli::message::warn_findings;
use crate::cli::output::{print, print_json};

pub(super) fn tell(answer: DryRunAnswer, as_json: bool) -> Result<u8, CommandError> {
    #[derive(Serialize)]
    struct DryRunDocument<'a> {
        version: u32,
        #[serde(flatten)]
        answer: &'a DryRunAnswer,
    }
    match as_json {
        true => print_json(&DryRunDocument { version: VERSION, answer: &answer })?,
        false => {
            print(&without_control_chars(&text(&answer)))?;
            warn_findings(&answer.findings);
        }
    }
    match answer.failure {
        None => Ok(0),
        Some(failure) => Err(failure),
    }
}

fn text(document: &DryRunAnswer) -> String {
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
