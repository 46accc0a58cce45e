//! Tasks in columns.

use agency_protocols::board_verbs::TaskSummary;

use crate::cli::terminal::colour::Colour;
use crate::cli::terminal::table::{TableStyle, state_colour};

/// One line for each task.
pub(crate) fn format_rows(tasks: &[TaskSummary], style: TableStyle) -> String {
    let width = |of: fn(&TaskSummary) -> &str, least: usize| {
        tasks.iter().map(|task| style.measured(of(task))).max().unwrap_or(0).max(least)
    };
    let (id, priority) = (width(|task| &task.id, 0), width(|task| &task.priority, 0));
    let (state, owner) = (width(|task| &task.state, 16), width(|task| &task.owner, 0));
    let line = |task: &TaskSummary| {
        let title: String = task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let cell = |text: &str, width: usize| style.padded(text, width) + "  ";
        style.line([
            (cell(&task.id, id), Some(Colour::Bold)),
            (cell(&task.priority, priority), None),
            (cell(&task.state, state), state_colour(&task.state)),
            (cell(&task.owner, owner), None),
            (title, None),
        ]) + "\n"
    };
    tasks.iter().map(line).collect()
}
