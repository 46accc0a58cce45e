//! What a builder asks for beyond its task: each request becomes a task of its own (§6.3, §7).
//!
//! An agent can ask for anything, so nothing it asks for starts by itself: the new task has no scope, and waits
//! until a person gives it one.

use std::collections::BTreeSet;

use jiff::Zoned;

use super::acts::{Act, NewTask};
use super::task::{Scope, Task};
use super::{Found, KodingX};
use crate::board::BoardError;
use crate::store::Effects;
use crate::store::tree::Tree;

/// So many requests of one report are heard.
const MOST: usize = 10;
const LONGEST_TITLE: usize = 120;
const LABEL: &str = "followup";

/// What the report of a builder asks for: the items of the list under its heading.
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
    // What would be a mark of ours in a file is none.
    let plain = |item: &str| item.trim().replace("<!--", "<! --");
    items.map(plain).filter(|item| !nothing(item)).take(MOST).collect()
}

impl KodingX {
    /// The tasks that a report on a task asks for, and what shows them; nothing of it written. What was asked for
    /// before is not made again.
    pub(super) fn followups(
        &self,
        tree: &Tree,
        found: &Found<Task>,
        report: &str,
        now: &Zoned,
    ) -> Result<(Effects, Vec<Act>), BoardError> {
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
                scope: Scope::default(),
                labels: vec![LABEL.to_owned()],
                body: Some(format!(
                    "\n## Problem\n\n{agent} asked for this in its report on {task}:\n\n> {request}\n\n\
                     It has no scope yet. Give it one, and it can start.\n"
                )),
                ..NewTask::titled(title)
            };
            let made = self.draft(tree, &new, ids()?, now)?;
            effects.create(&made.place.path, &made.text);
            acts.push(Act::made(&made.value));
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
