//! §8.2 and §11: the brief of an agent. It has the contract that every agent must receive, with a preface about what
//! was done for the agent already; its task; and the notes of the tasks before it.

use super::block::TaskBlock;
use super::contract::StateLocation;
use super::{Codifica, LocatedTask, notes};
use crate::board::{BoardError, TaskBrief};
use crate::names::TaskId;
use crate::store::tree::RepoTree;

/// §11, verbatim.
pub const CONTRACT: &str = "\
You are operating in a repository that uses the Codifica protocol.

Before doing any work:
1. Read codifica.json at repo root.
2. Read the spec file specified by the `spec` field.
3. Read ALL state files matching the `state` field.

Rules:
- Pull before reading. Pull before writing.
- Claim tasks with a single commit (state + owner + claimed_at) before starting work.
- If your claim push fails, do not start — pick a different task.
- Do not edit human_review sections.
- Do not delete or modify image files.
- Only the task owner may move a task from to_be_tested to done.
- Do not reclaim stale tasks from other agents — only humans may reclaim.
- Do not move tasks to blocked or rejected — only humans may do this.
- If you discover a blocker, add a note to execution_notes recommending the task be blocked, with a reason.
- Include a summary (≤120 chars) on your closing execution note.
- Record artifacts produced by your work.
- Set completed_at when moving a task to done.
- Include provenance (session_id) on execution_notes and state_transitions when available.
- Respect file_scope, allowed_agents, and max_concurrent_tasks from codifica.json.
- Do not start tasks with unmet depends_on.

If a push fails due to conflict, pull and re-evaluate.
If intent is unclear, ask a human.
";

/// How many of the tasks on which a task builds are in its brief.
const MOST: usize = 12;

impl Codifica {
    pub(super) fn task_brief(&self, tree: &RepoTree, id: &TaskId) -> Result<TaskBrief, BoardError> {
        let found = self.find(tree, id)?;
        let mut task = found.block().trim_end().to_owned();
        for (what, named) in self.before(&found)? {
            let Ok(other) = TaskId::parse(&named) else { continue };
            // A task that is missing or can't be read does not hide the rest.
            if let Ok(other) = self.find(tree, &other) {
                task.push_str(&format!("\n\n{what} {named}:\n\n{}", handed_over(&other)?));
            }
        }
        Ok(TaskBrief {
            task,
            contract: Some(self.preface(id)),
            report: super::report::instructions(),
            reported: None,
        })
    }

    /// The tasks on which a task builds, and those to which it refers.
    fn before(&self, found: &LocatedTask) -> Result<Vec<(&'static str, String)>, BoardError> {
        let block = found.parsed()?;
        let context = block.value("context").ok().flatten().map(|read| read.value);
        let references = context.as_ref().and_then(|context| context.get("references")?.as_sequence());
        let references = references.into_iter().flatten().filter_map(crate::text::yaml::text_of);
        let depends = found.task.depends_on.iter().cloned().map(|id| ("It depends on", id));
        let derived = found.task.derived_from.iter().cloned().map(|id| ("It is derived from", id));
        Ok(depends.chain(derived).chain(references.map(|id| ("It refers to", id))).take(MOST).collect())
    }

    fn preface(&self, id: &TaskId) -> String {
        let state = match &self.contract.state {
            StateLocation::Path(path) | StateLocation::Glob(path) => format!("`{path}`"),
            StateLocation::Paths(paths) => {
                paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ")
            }
        };
        format!(
            "The runner that started you does the protocol's part of git. It has pulled, claimed {id} for you and \
             pushed the claim; when you end, it writes your report into the task's execution notes, records the \
             artifacts, moves the task, commits and pushes. So don't claim, commit, pull or push yourself, and don't \
             edit {state} or `codifica.json`: a change there is refused with all of your work. Pictures and other \
             evidence go to `{}/{id}/`; what is there already stays as it is. The specification to read is `{}`.\n\n\
             {CONTRACT}",
            self.contract.assets, self.contract.spec
        )
    }
}

/// The notes and artifacts on a task, for the agents of later tasks.
fn handed_over(found: &LocatedTask) -> Result<String, BoardError> {
    let block: TaskBlock<'_> = found.parsed()?;
    let mut text = format!("{} ({}), {}\n", found.task.title, found.task.kind, found.task.state);
    for note in notes::notes(&block).iter().rev().take(3).rev() {
        let by = note.by.as_deref().unwrap_or("somebody");
        let said = note.summary.as_deref().unwrap_or(&note.note);
        text.push_str(&format!("- {by}: {said}\n"));
    }
    for artifact in notes::artifacts(&block) {
        text.push_str(&format!(
            "- artifact: {} ({})\n",
            artifact.path,
            artifact.kind.as_deref().unwrap_or("file")
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::board;
    use super::*;

    #[test]
    fn an_agent_reads_what_the_tasks_before_it_left() {
        let (_folder, tree, board) = board(
            "- id: A\n  type: build\n  state: done\n  title: First\n  execution_notes:\n    - by: agent:x\n      note: long words\n      summary: The API is in src/api\n  artifacts:\n    - path: src/api\n      type: code\n- id: B\n  type: build\n  state: todo\n  title: Second\n  depends_on: [A]\n",
        );
        let brief = board.task_brief(&tree, &TaskId::parse("B").expect("an id")).expect("a brief");
        for part in
            ["- id: B\n", "It depends on A:", "agent:x: The API is in src/api", "artifact: src/api (code)"]
        {
            assert!(brief.task.contains(part), "{part}: {}", brief.task);
        }
        let contract = brief.contract.expect("a contract");
        assert!(contract.contains(CONTRACT) && contract.contains("claimed B for you"), "{contract}");
        assert!(contract.contains("`work.md`") && contract.contains("`assets/B/`"), "{contract}");
    }
}
