//! Tasks: listed, shown, made, moved, given to agents.

use agency_profiles::library::AUTO;
use agency_protocols::board_verbs::{
    AssignRequest, BoardVerbs, MoveRequest, NoteRequest, RequestedScope, TaskFilter, TaskPage, TaskRequest,
    TaskSummary, TaskTable,
};
use agency_protocols::names::{Actor, Assignee, TaskId};
use agency_protocols::store::Effects;
use serde::Serialize;

use crate::app::approval::require_person;
use crate::app::board::{Boards, Caller, RepoContext, board_error};
use crate::app::closed_globs::closed_glob_message;
use crate::app::configuration::ConfigOptions;
use crate::app::error::CommandError;
use crate::app::work_tree_profiles::WorkTreeProfiles;

/// The tasks that a filter selects.
#[derive(Debug, Serialize)]
pub(crate) struct TaskListAnswer {
    version: u32,
    #[serde(flatten)]
    pub(crate) table: TaskTable,
}

/// One task.
#[derive(Debug, Serialize)]
pub(crate) struct TaskAnswer {
    version: u32,
    pub(crate) task: TaskSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

/// One task with its text.
pub(crate) struct TaskTextAnswer {
    pub(crate) answer: TaskAnswer,
    pub(crate) place: String,
    pub(crate) text: String,
}

/// A task that was made, and what a person should know of it.
pub(crate) struct NewTaskAnswer {
    pub(crate) answer: TaskAnswer,
    pub(crate) notices: Vec<String>,
}

/// Where several boards are, ids have their protocol before them.
pub(crate) fn list(
    here: &RepoContext,
    who: &Caller,
    filter: &TaskFilter,
) -> Result<TaskListAnswer, CommandError> {
    let table = match here.boards(who)? {
        Boards::One(board) => {
            board.check_states(&filter.states).map_err(board_error)?;
            board.task_list(here.tree(), filter).map_err(board_error)?
        }
        Boards::Several(boards) => {
            let mut all = TaskTable::default();
            for board in boards {
                let TaskTable { tasks, findings } =
                    board.task_list(here.tree(), filter).map_err(board_error)?;
                all.tasks.extend(tasks.into_iter().map(|task| task.prefixed(board.protocol())));
                all.findings.extend(findings);
            }
            all
        }
    };
    Ok(TaskListAnswer { version: 1, table })
}

pub(crate) fn show(here: &RepoContext, who: &Caller, id: &TaskId) -> Result<TaskTextAnswer, CommandError> {
    let board = board_with_task(here, who, id)?;
    let TaskPage { summary, place, text, body } = board.task_page(here.tree(), id).map_err(board_error)?;
    Ok(TaskTextAnswer { answer: TaskAnswer { version: 1, task: summary, body }, place, text })
}

pub(crate) fn make(
    here: &RepoContext,
    who: &Caller,
    request: &TaskRequest,
) -> Result<NewTaskAnswer, CommandError> {
    let board = here.board(who)?;
    board.check_request(request).map_err(board_error)?;
    let profiles = WorkTreeProfiles::open(here, board.profiles_folder(), &ConfigOptions::from_environment())?;
    let profile = request.dod_profile.as_deref().unwrap_or(AUTO);
    let made = here.update_board(board.as_ref(), |tree| board.task_new(tree, request, &here.now))?;
    let mut notices = vec![format!("made {}", made.place)];
    notices.extend(made.remarks);
    notices.extend(made.globs.iter().filter_map(|glob| closed_glob_message(glob)));
    notices.extend(profiles.problem(profile).map(|why| format!("its checks can't run here yet: {why}")));
    // It is made, whatever another process does to its file since.
    let task = board.task_page(here.tree(), &made.id).map_or(made.summary, |page| page.summary);
    Ok(NewTaskAnswer { answer: TaskAnswer { version: 1, task, body: None }, notices })
}

pub(crate) fn move_to(
    here: &RepoContext,
    who: &Caller,
    id: &TaskId,
    to: &str,
    reason: Option<&str>,
) -> Result<TaskAnswer, CommandError> {
    let board = here.board(who)?;
    let mut actor = who.actor();
    board.check_states(&[to.to_owned()]).map_err(board_error)?;
    let asked = MoveRequest { id, to, actor: &actor, reason };
    if board.needs_person(here.tree(), &asked, &here.now) {
        actor = Actor::Human(require_person(here, who, &format!("moving {id} to {to}"))?);
    }
    let request = MoveRequest { id, to, actor: &actor, reason };
    change(here, board.as_ref(), |tree| board.task_move(tree, &request, &here.now))
}

/// Adds a note to a task.
pub(crate) fn add_note(
    here: &RepoContext,
    who: &Caller,
    id: &TaskId,
    text: &str,
    summary: Option<&str>,
) -> Result<TaskAnswer, CommandError> {
    let (board, actor) = (here.board(who)?, who.actor());
    let request = NoteRequest { id, actor: &actor, text, summary };
    change(here, board.as_ref(), |tree| board.task_note(tree, &request, &here.now))
}

pub(crate) fn assign(
    here: &RepoContext,
    who: &Caller,
    (id, assignee): (&TaskId, &Assignee),
    scope: &RequestedScope,
    reason: Option<&str>,
) -> Result<TaskAnswer, CommandError> {
    let (board, actor) = (here.board(who)?, who.actor());
    let request = AssignRequest { id, assignee, actor: &actor, reason, scope };
    change(here, board.as_ref(), |tree| board.task_assign(tree, &request, &here.now))
}

/// Gives the task of a file another id.
pub(crate) fn renumber(here: &RepoContext, who: &Caller, file: &str) -> Result<TaskAnswer, CommandError> {
    let board = here.board(who)?;
    if board.is_shared() {
        // A verb that the protocol does not have is refused before anything is fetched.
        board.task_renumber(here.tree(), file, &here.now).map_err(board_error)?;
    }
    change(here, board.as_ref(), |tree| board.task_renumber(tree, file, &here.now))
}

fn change(
    here: &RepoContext,
    board: &dyn BoardVerbs,
    verb: impl FnMut(
        &agency_protocols::store::tree::RepoTree,
    ) -> Result<(TaskId, Effects), agency_protocols::board::BoardError>,
) -> Result<TaskAnswer, CommandError> {
    let id = here.update_board(board, verb)?;
    read_again(here, board, &id)
}

/// A task as it is after a change.
fn read_again(here: &RepoContext, board: &dyn BoardVerbs, id: &TaskId) -> Result<TaskAnswer, CommandError> {
    let task = board.task_page(here.tree(), id).map_err(board_error)?.summary;
    Ok(TaskAnswer { version: 1, task, body: None })
}

/// The board that has a task, for verbs that only read.
pub(crate) fn board_with_task(
    here: &RepoContext,
    who: &Caller,
    id: &TaskId,
) -> Result<Box<dyn BoardVerbs>, CommandError> {
    let mut boards = here.boards(who)?.all();
    let holder = boards.iter().position(|board| board.brief(here.tree(), id).is_ok()).unwrap_or(0);
    Ok(boards.swap_remove(holder))
}
