//! Tasks in columns.

use agency_protocols::board_verbs::TaskSummary;

/// One line for each task.
pub(crate) fn format_rows(tasks: &[TaskSummary]) -> String {
    let width = |of: fn(&TaskSummary) -> &str, least: usize| {
        tasks.iter().map(|task| of(task).chars().count()).max().unwrap_or(0).max(least)
    };
    let (id, priority) = (width(|task| &task.id, 0), width(|task| &task.priority, 0));
    let (state, owner) = (width(|task| &task.state, 16), width(|task| &task.owner, 0));
    let line = |task: &TaskSummary| {
        let title: String = task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let TaskSummary { id: name, priority: urgency, state: current, owner: agent, .. } = task;
        format!("{name:id$}  {urgency:priority$}  {current:state$}  {agent:owner$}  {title}\n")
    };
    tasks.iter().map(line).collect()
}
