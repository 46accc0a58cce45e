//! What can't go on without a person, each with the command that helps.

use std::collections::HashMap;

use agency_protocols::board::BoardAgenda;
use agency_protocols::board_verbs::BoardVerbs;
use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{Attempt, AttemptEnd, Epoch, ParkReason, Phase, TaskKey};
use agency_supervisor::dispatch::TaskResult;
use serde::Serialize;

use crate::app::board::{RepoContext, lost_commits};
use crate::app::wording::fate_text;

/// One thing that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct HumanTask {
    pub(crate) task: String,
    /// What for, in a sentence.
    pub(crate) why: String,
    /// The command that helps, where one does.
    pub(crate) command: Option<String>,
}

/// What is known of the attempts of one board.
pub(crate) struct AttemptsSeen<'a> {
    /// The last attempt at each task.
    pub(crate) latest: &'a [Attempt],
    /// Attempts up to this one don't count any more: a person tries the task again.
    pub(crate) forgiven: &'a HashMap<TaskKey, Epoch>,
    /// What attempts that are open said last.
    pub(crate) notes: &'a HashMap<TaskKey, String>,
}

/// Everything on a board that waits for a person, the tasks in their order.
pub(crate) fn find(
    here: &RepoContext,
    board: &dyn BoardVerbs,
    agenda: &BoardAgenda,
    seen: &AttemptsSeen<'_>,
) -> Vec<HumanTask> {
    let ours = |attempt: &&Attempt| attempt.task.protocol == board.protocol();
    let of_attempts = seen.latest.iter().filter(ours).filter_map(|attempt| {
        let is_stuck = TaskId::parse(&attempt.task.id).is_ok_and(|id| is_stuck(here, board, agenda, &id));
        let forgiven = seen.forgiven.get(&attempt.task).is_some_and(|epoch| *epoch >= attempt.epoch);
        let note = seen.notes.get(&attempt.task).map(String::as_str);
        if forgiven && attempt.phase.is_over() { None } else { of_attempt(attempt, is_stuck, note) }
    });
    let of_landings = lost_commits::findings(here, board).into_iter().map(|finding| HumanTask {
        task: finding.message.split(' ').next().unwrap_or_default().to_owned(),
        command: quoted_command(&finding.message),
        why: finding.message,
    });
    let held = |id: &str| seen.latest.iter().any(|attempt| attempt.task.id == id && !attempt.phase.is_over());
    let reported = agenda.reported.iter().filter(|id| !held(id.as_str())).map(|id| HumanTask {
        task: id.to_string(),
        why: "its work is reported and did not land".to_owned(),
        command: Some(format!("agency show {id}")),
    });
    let mut all: Vec<HumanTask> = of_attempts.chain(of_landings).chain(reported).collect();
    all.sort_by(|a, b| a.task.cmp(&b.task));
    all.dedup_by(|later, first| later.task == first.task);
    all
}

/// Whether a task is neither over nor on its way again: a person may have moved it since its last attempt.
fn is_stuck(here: &RepoContext, board: &dyn BoardVerbs, agenda: &BoardAgenda, id: &TaskId) -> bool {
    const OVER: [&str; 3] = ["done", "canceled", "rejected"];
    let is_ready = agenda.ready.iter().any(|start| start.task == *id);
    let state = board.task_page(here.tree(), id).map(|page| page.summary.state.to_lowercase());
    !is_ready && state.is_ok_and(|state| !OVER.contains(&state.as_str()))
}

/// What one attempt needs of a person; pure.
fn of_attempt(attempt: &Attempt, is_stuck: bool, note: Option<&str>) -> Option<HumanTask> {
    let id = &attempt.task.id;
    let needs = |why: String, command: Option<String>| Some(HumanTask { task: id.clone(), why, command });
    match &attempt.phase {
        Phase::Undecided { why, .. } if attempt.answer.is_none() => needs(
            format!("the auditor leaves it to you: {why}"),
            Some(format!("agency decide {id} --attempt {} --answer pass|fail --reason TEXT", attempt.epoch)),
        ),
        Phase::Over(AttemptEnd::Parked(parked)) if parked.want == ParkReason::Person => {
            needs(parked.reason.clone(), Some(format!("agency retry {id}")))
        }
        Phase::Over(ending @ (AttemptEnd::Blocked { .. } | AttemptEnd::Failed { given_up: Some(_), .. }))
            if is_stuck =>
        {
            needs(fate_text(&TaskResult::Ended(ending.clone())), Some(format!("agency retry {id}")))
        }
        Phase::Over(_) => None,
        _ => note.and_then(|note| note.strip_prefix("waits: ")).and_then(|why| needs(why.to_owned(), None)),
    }
}

/// The command that a sentence has in backquotes.
fn quoted_command(sentence: &str) -> Option<String> {
    sentence.split('`').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agency_supervisor::attempt::{AttemptFailure, FailureKind, ParkDetails, UsageTotals};

    fn attempt(phase: Phase) -> Attempt {
        Attempt {
            task: TaskKey { protocol: "kodingx".into(), id: "T0001".into() },
            epoch: Epoch(2),
            title: "x".into(),
            agent: "shell".into(),
            phase,
            held: None,
            cancel: false,
            answer: None,
            spent: UsageTotals::default(),
            claimed_at: 0,
            recorded_at: 0,
        }
    }

    #[test]
    fn each_thing_that_waits_names_the_command_that_helps() {
        let failed = |given_up: Option<&str>| {
            let failure = AttemptFailure::new(FailureKind::Exit, "it ended with exit code 3");
            attempt(Phase::Over(AttemptEnd::Failed { failure, given_up: given_up.map(str::to_owned) }))
        };
        let parked = |want| {
            let parked = ParkDetails { want, reason: "nobody is logged in".into(), until: None };
            attempt(Phase::Over(AttemptEnd::Parked(parked)))
        };
        let command = |attempt: &Attempt| of_attempt(attempt, true, None).and_then(|one| one.command);
        assert_eq!(command(&failed(Some(""))).as_deref(), Some("agency retry T0001"));
        assert_eq!(command(&failed(None)), None, "it is tried again without a person");
        assert_eq!(of_attempt(&failed(Some("")), false, None), None, "it was taken off the board");
        assert_eq!(command(&parked(ParkReason::Person)).as_deref(), Some("agency retry T0001"));
        assert_eq!(command(&parked(ParkReason::Quota)), None);
        assert_eq!(command(&attempt(Phase::Over(AttemptEnd::Done { commit: "c".into() }))), None);
        let waiting = of_attempt(&attempt(Phase::Started), true, Some("waits: src/a is edited"));
        assert_eq!(waiting.map(|one| one.why).as_deref(), Some("src/a is edited"));
        assert_eq!(of_attempt(&attempt(Phase::Started), true, Some("something else")), None);
    }
}
