//! Tasks that build on work which landed on a branch of its own and is not in the base yet.
//!
//! With `land = "branch"` a task is done before a person merges its branch. An agent that starts from the base would
//! not see the files that its task builds on, so such a task waits for the merge.

use agency_landing::names::{RefName, TaskName};
use agency_landing::repository::LandingRepository;
use agency_landing::{Error, landed_record, merge, refs};
use agency_protocols::board::{BoardAgenda, WaitingTask};
use agency_protocols::names::TaskId;

/// Moves the tasks whose dependencies are not in `base` from those that may start to those that wait.
pub fn hold_back(repository: &LandingRepository, base: &RefName, protocol: &str, agenda: &mut BoardAgenda) {
    let held: Vec<WaitingTask> = agenda
        .dependencies
        .iter()
        .filter_map(|(task, needed)| {
            let why = needed.iter().find_map(|id| reason(repository, base, protocol, id))?;
            Some(WaitingTask { task: task.clone(), why })
        })
        .collect();
    agenda.ready.retain(|start| held.iter().all(|waits| waits.task != start.task));
    agenda.waiting.extend(held);
}

/// Why a task that builds on this one has to wait, if it has to.
fn reason(repository: &LandingRepository, base: &RefName, protocol: &str, id: &TaskId) -> Option<String> {
    match unmerged_branch(repository, base, protocol, id) {
        Ok(None) => None,
        Ok(Some(branch)) => {
            let (branch, base) = (short(&branch), short(base));
            Some(format!(
                "it depends on {id}, whose work is on {branch} and not on {base}: `git merge {branch}` brings it there; delete the branch if its work is there already"
            ))
        }
        Err(error) => Some(format!("it depends on {id}, and git can't tell where its work is: {error}")),
    }
}

/// The branch on which a task landed, if its work is there and not on the base. A branch that a person deleted holds
/// nothing back: its work was squashed or dropped.
fn unmerged_branch(
    repository: &LandingRepository,
    base: &RefName,
    protocol: &str,
    id: &TaskId,
) -> Result<Option<RefName>, Error> {
    let task = TaskName::new(protocol, id.as_str())?;
    let Some(landed) = landed_record::read(repository, &task)?.filter(|landed| landed.branch != *base) else {
        return Ok(None);
    };
    let (Some(_), Some(tip)) = (refs::at(repository, &landed.branch)?, refs::at(repository, base)?) else {
        return Ok(None);
    };
    Ok((!merge::is_ancestor(repository, &landed.commit, &tip)?).then_some(landed.branch))
}

/// The name of a branch, as people type it.
fn short(branch: &RefName) -> &str {
    branch.as_str().strip_prefix("refs/heads/").unwrap_or(branch.as_str())
}
