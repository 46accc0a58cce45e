//! Checks whether a repository complies. Every finding has its line and its section.

use jiff::Timestamp;

use super::actions::RUNNER_ACTOR;
use super::block::TaskBlock;
use super::contract::{CodificaVersion, MARKER};
use super::dependencies::{DependencyStates, cycles};
use super::notes::{self, LONGEST_SUMMARY};
use super::task::TaskState;
use super::task::{Task, TaskOwner, TaskType};
use super::transitions::is_known;
use super::{Codifica, StateListing};
use crate::board::BoardError;
use crate::finding::Finding;
use crate::store::tree::RepoTree;

/// Every violation of the specification, in the order of files and lines. `closed` says which files a glob of the file
/// scope seems to open, and does not.
pub fn lint(
    board: &Codifica,
    tree: &RepoTree,
    now: Timestamp,
    closed: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Finding>, BoardError> {
    let listing = board.tasks(tree)?;
    let mut findings: Vec<Finding> = board
        .contract
        .unknown
        .iter()
        .map(|key| Finding::warning(MARKER, None, "3.1", format!("unknown key `{key}`")).of_field(key))
        .collect();
    let include = board.contract.rules.include.iter().filter_map(|glob| closed(glob));
    findings.extend(include.map(|message| {
        let message = format!("`rules.file_scope.include`: {message}");
        Finding::warning(MARKER, None, "3.1", message).of_field("rules")
    }));
    findings.extend(cycles(&listing));
    let known = DependencyStates::of(&listing);
    for listed in &listing.tasks {
        let Ok(block) = TaskBlock::parse(listing.block(listed), listed.span.line) else { continue };
        let look = TaskLint {
            file: listing.path(listed),
            line: listed.span.line,
            task: &listed.task,
            block: &block,
        };
        findings.extend(look.all(board, &listing, &known, now));
    }
    findings.extend(listing.findings);
    findings.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    findings.dedup();
    Ok(findings)
}

/// The check of one task.
struct TaskLint<'a> {
    file: &'a str,
    line: usize,
    task: &'a Task,
    block: &'a TaskBlock<'a>,
}

impl TaskLint<'_> {
    fn error(&self, field: &str, section: &'static str, message: impl Into<String>) -> Finding {
        let message = format!("{}: {}", self.task.id, message.into());
        Finding::error(self.file, self.block.line(field).or(Some(self.line)), section, message)
            .of_field(field)
    }

    fn warning(&self, field: &str, section: &'static str, message: impl Into<String>) -> Finding {
        Finding { severity: crate::finding::Severity::Warning, ..self.error(field, section, message) }
    }

    fn all(
        &self,
        board: &Codifica,
        listing: &StateListing,
        known: &DependencyStates<'_>,
        now: Timestamp,
    ) -> Vec<Finding> {
        let mut found = self.fields(known);
        found.extend(self.standing(board, known, now));
        found.extend(self.history(board));
        if listing.path_count() > 1 && self.task.state.is_final() && self.task.completed_at.is_none() {
            found.push(self.warning("completed_at", "7.2", "it is over, and no date says since when"));
        }
        found
    }

    fn fields(&self, known: &DependencyStates<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        let task = self.task;
        if task.kind == TaskType::Build && task.acceptance.is_empty() {
            let message = "a build task needs acceptance criteria";
            found.push(match task.state {
                TaskState::Todo => self.warning("acceptance", "7.2", message),
                _ => self.error("acceptance", "7.2", message),
            });
        }
        if task.kind == TaskType::Followup && task.derived_from.is_none() {
            found.push(self.error("derived_from", "6", "a followup must say what it is derived from"));
        }
        if let (TaskType::Review, Some(agent)) = (&task.kind, task.owner.agent()) {
            let message = format!("a review is human judgment only, and agent:{agent} owns it");
            found.push(self.error("owner", "6", message));
        }
        for id in task.depends_on.iter().filter(|id| !known.has(id)) {
            found.push(self.error("depends_on", "5.2", format!("it depends on {id}, which does not exist")));
        }
        if let Some(id) = task.derived_from.as_ref().filter(|id| !known.has(id)) {
            found.push(self.warning(
                "derived_from",
                "6",
                format!("it is derived from {id}, which does not exist"),
            ));
        }
        for key in ["claimed_at", "completed_at"] {
            let text = if key == "claimed_at" { &task.claimed_at } else { &task.completed_at };
            if let Some(text) = text.as_deref().filter(|text| notes::parse_time(text).is_none()) {
                found.push(self.error(key, "5", format!("`{key}` is `{text}`, which is no time")));
            }
        }
        for key in
            ["description", "context", "execution_notes", "artifacts", "human_review", "state_transitions"]
        {
            if let Err(error) = self.block.value(key) {
                found.push(Finding::error(self.file, Some(error.line), "5", error.reason).of_field(key));
            }
        }
        found
    }

    fn standing(&self, board: &Codifica, known: &DependencyStates<'_>, now: Timestamp) -> Vec<Finding> {
        let mut found = Vec::new();
        let task = self.task;
        match task.state {
            TaskState::InProgress => {
                if task.owner == TaskOwner::Unassigned {
                    found.push(self.error("owner", "8.1", "it is in_progress and unassigned"));
                }
                if let Some(why) = known.unmet(task) {
                    found.push(self.warning("depends_on", "5.2", format!("it is in_progress, and {why}")));
                }
                if task.owner.agent().is_some()
                    && let Some(hours) = board.stale_for(self.block, task.claimed_at.as_deref(), now)
                {
                    let message = format!("nothing was heard of it for {hours} h; a person may reclaim it");
                    found.push(self.warning("claimed_at", "8.1.1", message));
                }
            }
            TaskState::Blocked if task.blocked_reason.is_none() => {
                found.push(self.error(
                    "blocked_reason",
                    "7.2",
                    "it is blocked, and `blocked_reason` says not why",
                ));
            }
            TaskState::Rejected if board.contract.version == CodificaVersion::V0_1 => {
                found.push(self.error("state", "12", "version 0.1 has no `rejected`"));
            }
            _ => {}
        }
        if let Some(agent) = task.owner.agent().filter(|agent| !board.contract.allows(agent)) {
            let message = format!("agent:{agent} is not among `allowed_agents` of codifica.json");
            found.push(self.warning("owner", "3.1", message));
        }
        found
    }

    /// A recorded move that the table of §7.1 does not have, or that skips the test of a build.
    fn transition(&self, from: TaskState, to: TaskState) -> Option<Finding> {
        let kind = &self.task.kind;
        if to == TaskState::Done && from != TaskState::ToBeTested && kind.must_be_tested() {
            let message =
                format!("it went from {from} to done, and a {kind} task must not skip to_be_tested");
            return Some(self.error("state_transitions", "7.2", message));
        }
        let message = || format!("it went from {from} to {to}, which is no transition of the protocol");
        (!is_known(from, to)).then(|| self.warning("state_transitions", "7.1", message()))
    }

    fn history(&self, board: &Codifica) -> Vec<Finding> {
        let mut found = Vec::new();
        for note in notes::notes(self.block) {
            if let Some(summary) = note.summary.as_deref()
                && (summary.chars().count() > LONGEST_SUMMARY || summary.trim().contains('\n'))
            {
                let message = format!("a summary is a single line of at most {LONGEST_SUMMARY} characters");
                found.push(self.warning("execution_notes", "5", message));
            }
            if note.by.as_deref().is_some_and(|by| by.starts_with("human")) {
                found.push(self.warning("execution_notes", "5", "execution notes are for agents only"));
            }
        }
        let steps = notes::steps(self.block);
        for step in &steps {
            let by = step.by.as_deref().unwrap_or_default();
            let to = step.to.as_deref().and_then(TaskState::read);
            let agents = by.starts_with("agent") && by != RUNNER_ACTOR;
            if agents && matches!(to, Some(TaskState::Blocked | TaskState::Rejected)) {
                let message = format!(
                    "{by} moved it to {}, and only people may",
                    step.to.as_deref().unwrap_or_default()
                );
                found.push(self.error("state_transitions", "7.2", message));
            }
            let from = step.from.as_deref().and_then(TaskState::read);
            if let (Some(from), Some(to)) = (from, to) {
                found.extend(self.transition(from, to));
            }
            if to == Some(TaskState::Rejected) && step.reason.is_none() {
                found.push(self.error("state_transitions", "7.2", "it was rejected without a reason"));
            }
        }
        // Old tasks may lack what only new transitions need (§12.3).
        if let Some(last) = steps.last()
            && board.contract.version >= CodificaVersion::V0_2
            && last.to.as_deref().is_some_and(|to| to != self.task.state.as_str())
        {
            let message = format!(
                "its last transition is to {}, and its state is {}",
                last.to.as_deref().unwrap_or_default(),
                self.task.state
            );
            found.push(self.warning("state", "7", message));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{board, board_with};
    use super::*;

    fn sections(findings: &[Finding]) -> Vec<(&str, Option<usize>, bool)> {
        findings.iter().map(|one| (one.section, one.line, one.is_error())).collect()
    }

    #[test]
    fn a_board_as_the_specification_has_it_is_compliant() {
        let (_folder, tree, board) = board(
            "- id: A\n  type: build\n  state: done\n  owner: agent:x\n  title: x\n  acceptance:\n    - it works\n  completed_at: 2026-01-01T00:00:00Z\n",
        );
        assert_eq!(lint(&board, &tree, Timestamp::UNIX_EPOCH, &|_| None).expect("looked"), []);
    }

    #[test]
    fn every_rule_that_a_file_can_break_is_told_with_its_section_and_line() {
        let (_folder, tree, board) = board_with(
            "{\"allowed_agents\":[\"a\"]}",
            "- id: A\n  type: build\n  state: in_progress\n  title: x\n- id: B\n  type: followup\n  state: blocked\n  owner: agent:b\n  title: x\n  depends_on: [GONE]\n- id: C\n  type: test\n  state: rejected\n  owner: human\n  title: x\n  state_transitions:\n    - from: todo\n      to: rejected\n      by: agent:a\n",
        );
        let findings = lint(&board, &tree, Timestamp::UNIX_EPOCH, &|_| None).expect("looked");
        for expected in [
            ("7.2", Some(6), true),
            ("8.1", Some(6), true),
            ("6", Some(10), true),
            ("7.2", Some(10), true),
            ("3.1", Some(13), false),
            ("5.2", Some(15), true),
            ("7.2", Some(21), true),
        ] {
            assert!(sections(&findings).contains(&expected), "{expected:?}: {findings:#?}");
        }
    }
}
