//! Follow-up requests of a builder: each becomes a task of its own (§6.3, §7).
//!
//! An agent can ask for anything, so nothing it asks for starts by itself: the new task has no scope, and waits
//! until a person gives it one.

use std::collections::BTreeSet;

use jiff::Zoned;

use super::actions::{NewTask, ViewUpdate};
use super::task::{KodingXScope, Task};
use super::{BoardFile, KodingX};
use crate::board::BoardError;
use crate::store::Effects;
use crate::store::tree::RepoTree;

/// How many requests of one report are read.
const MOST: usize = 10;
const LONGEST_TITLE: usize = 120;
const LABEL: &str = "followup";

/// The requests in a builder's report: the items of the list under their heading.
pub(super) fn requests(report: &str) -> Vec<String> {
    let heading = |line: &str| line.starts_with('#');
    let wanted = |line: &str| {
        let name: String = line.chars().filter(|c| c.is_ascii_alphabetic()).collect();
        heading(line) && matches!(name.to_ascii_lowercase().as_str(), "followup" | "followups")
    };
    let section = report.lines().skip_while(|line| !wanted(line)).skip(1).take_while(|line| !heading(line));
    let items = section.filter_map(|line| line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")));
    let nothing = |item: &str| {
        let word = item.trim_end_matches('.').to_ascii_lowercase();
        matches!(word.as_str(), "" | "none" | "n/a" | "nothing" | "if any")
    };
    // An agent's text must not form one of our marks in a file.
    let plain = |item: &str| item.trim().replace("<!--", "<! --");
    items.map(plain).filter(|item| !nothing(item)).take(MOST).collect()
}

impl KodingX {
    /// Prepares the tasks that a report requests, and the views with them, and writes nothing. A request that was made
    /// before makes no second task.
    pub(super) fn followups(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        report: &str,
        now: &Zoned,
    ) -> Result<(Effects, Vec<ViewUpdate>), BoardError> {
        let asked = requests(report);
        let (mut effects, mut acts) = (Effects::none(), Vec::new());
        if asked.is_empty() {
            return Ok((effects, acts));
        }
        let (open, archived) = (self.tasks(tree)?.tasks, self.archived_tasks(tree)?.tasks);
        let made =
            open.iter().chain(&archived).filter(|(_, task)| task.labels.iter().any(|one| one == LABEL));
        let mut known: BTreeSet<String> = made.map(|(_, task)| task.title.clone()).collect();
        let mut ids = self.next_ids(tree, now)?;
        for request in asked {
            let title: String = request.chars().take(LONGEST_TITLE).collect();
            if !known.insert(title.clone()) {
                continue;
            }
            let (task, agent) = (&found.value.id, &found.value.assignee);
            let new = NewTask {
                assignee: Some(agent.clone()),
                priority: found.value.priority,
                scope: KodingXScope::default(),
                labels: vec![LABEL.to_owned()],
                body: Some(format!(
                    "\n## Problem\n\n{agent} asked for this in its report on {task}:\n\n> {request}\n\n\
                     It has no scope yet. Give it one, and it can start.\n"
                )),
                ..NewTask::titled(title)
            };
            let made = self.draft(tree, &new, ids()?, now)?;
            effects.create(&made.place.path, &made.text);
            acts.push(ViewUpdate::made(&made.value));
        }
        Ok((effects, acts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_items_under_the_heading_are_the_requests() {
        let report = "## Summary\n- not this\n\n## Follow-ups\nIf any.\n- Rename `x`\n* Mend the docs\n- none\n\n## Evidence\n- nor this\n";
        assert_eq!(requests(report), ["Rename `x`", "Mend the docs"]);
        for none in ["## Follow-ups\nIf any.\n", "## Summary\n- x\n", "## Follow-ups\n- None.\n", ""] {
            assert_eq!(requests(none), Vec::<String>::new(), "{none}");
        }
    }

    #[test]
    fn nobody_makes_work_without_end() {
        let many: String = (0..100).map(|number| format!("- request {number}\n")).collect();
        assert_eq!(requests(&format!("### Follow-Ups\n{many}")).len(), MOST);
    }
}
