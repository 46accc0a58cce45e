//! A run for programs: one JSON object for each event, on standard output. `docs/events.md` describes them all.

use std::io::Write;

use agency_supervisor::dispatch::{RunSummary, TaskResult};
use agency_supervisor::run_event::RunEvent;
use serde::Serialize;
use serde_json::{Value, json};

/// The format of an event.
pub(super) const VERSION: u32 = 1;

pub(super) fn tell(notice: &RunEvent) {
    #[derive(Serialize)]
    struct EventLine<'a> {
        version: u32,
        #[serde(flatten)]
        notice: &'a RunEvent,
    }
    write(&EventLine { version: VERSION, notice });
}

/// The last event: the summary.
pub(super) fn summary(summary: &RunSummary) {
    let tasks: serde_json::Map<_, _> =
        summary.tasks.iter().map(|(key, one)| (key.id.clone(), fate(one))).collect();
    let waiting: Vec<_> =
        summary.waiting.iter().map(|(task, why)| json!({ "task": task, "why": why })).collect();
    write(&json!({
        "version": VERSION,
        "event": "summary",
        "tasks": tasks,
        "waiting": waiting,
        "troubles": summary.troubles,
        "elsewhere": summary.elsewhere,
        "interrupted": summary.interrupted,
    }));
}

fn fate(fate: &TaskResult) -> Value {
    match fate {
        TaskResult::Ended(ending) => serde_json::to_value(ending).unwrap_or_default(),
        TaskResult::Waits(why) => json!({ "ending": "waits", "reason": why }),
        TaskResult::Open => json!({ "ending": "open" }),
    }
}

/// A closed pipe does not stop the run.
fn write(event: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, event).map_err(std::io::Error::from);
    let _ = writeln!(out);
    let _ = out.flush();
}
