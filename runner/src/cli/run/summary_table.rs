//! The end of a run, for people: a table of what was worked on, what is not done and why, and one sentence.

use agency_supervisor::attempt::{AttemptEnd, TaskKey};
use agency_supervisor::dispatch::{RunSummary, TaskResult};

use super::progress::RunProgress;
use crate::app::units::elapsed;
use crate::app::wording::{fate_text, short_commit};
use crate::cli::message;
use crate::cli::terminal::colour::Colour;
use crate::cli::terminal::table::{TableStyle, state_colour};

const COLUMNS: usize = 7;
const HEADS: [&str; COLUMNS] = ["task", "agent", "outcome", "attempts", "time", "commit", "title"];
/// The column with the outcome.
const OUTCOME: usize = 2;

/// Prints the summary. No line of the table is wider than the terminal.
pub(super) fn tell(summary: &RunSummary, progress: &RunProgress, width: Option<usize>) {
    message::print_table(&table(summary, progress, TableStyle::errors(width)));
    let done = |one: &&TaskResult| {
        matches!(one, TaskResult::Ended(AttemptEnd::Done { .. } | AttemptEnd::Kept { .. }))
    };
    let count = summary.tasks.values().filter(done).count();
    for (key, one) in summary.tasks.iter().filter(|(_, one)| !done(one)) {
        message::notice(&format!("{}: {}", key.id, fate_text(one)));
    }
    waiting(&summary.waiting);
    message::warn_findings(&summary.findings);
    for trouble in &summary.troubles {
        message::notice(trouble);
    }
    message::notice(&match (summary.tasks.len(), summary.elsewhere) {
        (0, 0) if !summary.waiting.is_empty() => "no task was started".to_owned(),
        (0, 0) => "there was nothing to do".to_owned(),
        (0, 1) => "there was nothing to do: another `agency run` has the one task there is".to_owned(),
        (0, others) => format!("there was nothing to do: another `agency run` has {others} tasks"),
        (total, _) => format!("{count} of {total} tasks done"),
    });
}

/// Up to this many tasks that wait for the same reason have a line each.
const ALIKE: usize = 3;

/// Prints what was not started, and why. A reason that holds for a whole board is printed once.
fn waiting(all: &[(String, String)]) {
    let mut told: Vec<&str> = Vec::new();
    for (task, why) in all {
        let alike: Vec<&str> =
            all.iter().filter(|(_, other)| other == why).map(|(task, _)| task.as_str()).collect();
        if alike.len() <= ALIKE {
            message::notice(&format!("{task} waits: {why}"));
        } else if !told.contains(&why.as_str()) {
            told.push(why);
            let (named, more) = (alike[..ALIKE].join(", "), alike.len() - ALIKE);
            message::notice(&format!("{named} and {more} more wait: {why}"));
        }
    }
}

fn table(summary: &RunSummary, progress: &RunProgress, style: TableStyle) -> String {
    if summary.tasks.is_empty() {
        return String::new();
    }
    let rows = summary.tasks.iter().map(|(key, fate)| row(key, fate, progress));
    let rows: Vec<[String; COLUMNS]> = std::iter::once(HEADS.map(str::to_owned)).chain(rows).collect();
    let wide: Vec<usize> = (0..COLUMNS)
        .map(|column| rows.iter().map(|row| style.measured(&row[column])).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&wide).enumerate().map(|(column, (cell, wide))| {
            let colour = match (number, column) {
                (0, _) => None,
                (_, 0) => Some(Colour::Bold),
                (_, OUTCOME) => state_colour(cell),
                _ => None,
            };
            let is_last = column + 1 == COLUMNS;
            (if is_last { cell.clone() } else { style.padded(cell, *wide) + "  " }, colour)
        });
        text.push_str(style.line(cells).trim_end());
        text.push('\n');
    }
    text
}

fn row(key: &TaskKey, fate: &TaskResult, progress: &RunProgress) -> [String; COLUMNS] {
    let (outcome, commit) = match fate {
        TaskResult::Ended(ending @ AttemptEnd::Done { commit }) => (ending.name(), short_commit(commit)),
        TaskResult::Ended(ending @ AttemptEnd::Kept { candidate }) => {
            (ending.name(), short_commit(candidate))
        }
        TaskResult::Ended(ending) => (ending.name(), ""),
        TaskResult::Waits(_) => ("waits", ""),
        TaskResult::Open => ("open", ""),
    };
    let known = progress.of(key);
    let about = known.as_ref().map_or_else(Default::default, |known| {
        let time = elapsed(known.took(fate == &TaskResult::Open).as_secs());
        let title = known.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        [known.agent.clone(), known.attempts.to_string(), time, title]
    });
    let [agent, attempts, time, title] = about;
    [key.id.clone(), agent, outcome.to_owned(), attempts, time, commit.to_owned(), title]
}
