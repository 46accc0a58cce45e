//! `agency task` and `agency assign`: tasks made, listed, shown, moved, given to somebody.

use std::path::PathBuf;

use agency_protocols::board::ScopeAuthor;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::actions::NewTask;
use agency_protocols::kodingx::layout::BoardPath;
use agency_protocols::kodingx::status::TaskStatus;
use agency_protocols::kodingx::task::{KodingXScope, Priority, Task};
use agency_protocols::names::{Actor, AgentName, TaskId};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::codifica;
use super::lint::closed_glob_message;
use crate::app::board::any_board::AnyBoard;
use crate::app::board::{Boards, Caller, RepoContext, task_id};
use crate::app::error::CommandError;
use crate::cli::argument_file::read_argument_file;
use crate::cli::exit::findings_exit_code;
use crate::cli::message;
use crate::cli::message::warn_findings;
use crate::cli::output::{for_terminal, print, print_json};

/// Make, list, show and move tasks
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency task list --status NEW")]
pub(crate) enum TaskCommand {
    New(Box<NewTaskArgs>),
    List(ListTasksArgs),
    Show(ShowTaskArgs),
    Move(MoveTaskArgs),
    Renumber(RenumberTaskArgs),
}

/// Make a task
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency task new --title 'Fix VAT rounding' --assignee codex --must-touch 'src/vat/**' --may-touch 'tests/**'"
)]
pub(crate) struct NewTaskArgs {
    /// What is to be done, in one line
    #[arg(long)]
    title: String,
    #[command(flatten)]
    wanted: TaskFieldArgs,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// What a task says beside its title.
#[derive(Debug, Args)]
pub(crate) struct TaskFieldArgs {
    /// The agent that is to do it [default: the board's first builder]
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    pub(super) assignee: Option<AgentName>,
    /// P0 is the most urgent; `critical`, `high`, `normal` and `low` are the same
    #[arg(long, value_name = "P0|P1|P2|P3", value_parser = priority, default_value = "P2")]
    pub(super) priority: Priority,
    /// A glob of files of which something must change; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(super) must_touch: Vec<String>,
    /// A glob of files that may change, too
    #[arg(long, value_name = "GLOB")]
    pub(super) may_touch: Vec<String>,
    /// A glob of files that may not change even there
    #[arg(long, value_name = "GLOB")]
    pub(super) must_not_touch: Vec<String>,
    /// The Definition of Done it is held to [default: the board's]
    #[arg(long, value_name = "NAME")]
    pub(super) dod_profile: Option<String>,
    /// A task that must be DONE first
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(super) depends_on: Vec<String>,
    /// Something that holds when it is done
    #[arg(long, value_name = "TEXT")]
    pub(super) acceptance: Vec<String>,
    /// Something that holds all the way
    #[arg(long, value_name = "TEXT")]
    pub(super) constraint: Vec<String>,
    /// A file to read first
    #[arg(long, value_name = "PATH")]
    pub(super) context_file: Vec<String>,
    /// A word to find it by
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(super) label: Vec<String>,
    /// A risk it is linked to, by its id in RISKS.md
    #[arg(long, value_name = "R-ID", value_delimiter = ',')]
    pub(super) risk: Vec<String>,
    /// Where else it is known: `github_issue=#123`, `jira=PROJ-456`
    #[arg(long, value_name = "KEY=VALUE", value_parser = external)]
    pub(super) external: Vec<(String, String)>,
    /// A file with the text of the task
    #[arg(long, value_name = "FILE")]
    pub(super) body: Option<PathBuf>,
    /// What kind of task it is: build, test, review, investigate, followup, or a custom type
    #[arg(long = "type", value_name = "TYPE", help_heading = "Codifica")]
    pub(super) kind: Option<String>,
    /// What it is about
    #[arg(long, value_name = "TEXT", help_heading = "Codifica")]
    pub(super) description: Option<String>,
    /// Something to go through
    #[arg(long, value_name = "TEXT", help_heading = "Codifica")]
    pub(super) checklist: Vec<String>,
    /// The task it follows from
    #[arg(long, value_name = "ID", help_heading = "Codifica")]
    pub(super) derived_from: Option<String>,
}

/// List tasks
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task list --status NEW,BLOCKED --json")]
pub(crate) struct ListTasksArgs {
    /// Only these states
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(super) status: Vec<String>,
    /// Only this agent's
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    pub(super) assignee: Option<AgentName>,
    /// As JSON, on standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// Show one task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task show T0007")]
pub(crate) struct ShowTaskArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Move a task to another state
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task move T0007 CANCELED --reason 'not needed any more'")]
pub(crate) struct MoveTaskArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    pub(super) id: TaskId,
    /// NEW, ASSIGNED, IN_PROGRESS, BLOCKED, READY_FOR_REVIEW, DONE or CANCELED; in Codifica todo, in_progress,
    /// to_be_tested, done, blocked or rejected
    #[arg(value_name = "STATE")]
    pub(super) to: String,
    /// Why; it is kept with the task
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// As JSON, on standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// Give a task another id, where two clones made the same one
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency task renumber .kodingx/inbox/codex/2026-01-31/T0008-1610-fix-vat.md"
)]
pub(crate) struct RenumberTaskArgs {
    /// The file of the task that is to have another id
    #[arg(value_name = "FILE")]
    file: String,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Give a task to an agent, or make one for it
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency assign T0007 --assignee codex\n  agency assign --title 'Fix VAT rounding' --assignee codex --must-touch 'src/vat/**'"
)]
pub(crate) struct AssignArgs {
    /// The task; without it, one is made
    #[arg(value_name = "ID", value_parser = task_id, required_unless_present = "title", conflicts_with = "title")]
    id: Option<TaskId>,
    /// What is to be done, for a task that is to be made
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    wanted: TaskFieldArgs,
    /// Why; it is kept with the task
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

fn agent(name: &str) -> Result<AgentName, String> {
    AgentName::parse(name).map_err(|error| error.to_string())
}

fn priority(text: &str) -> Result<Priority, String> {
    let names = ["critical", "high", "normal", "low"];
    let number = names.iter().position(|name| text.eq_ignore_ascii_case(name));
    let text = number.map_or_else(|| text.to_ascii_uppercase(), |number| format!("P{number}"));
    Priority::parse(&text).ok_or_else(|| "a priority is P0, P1, P2 or P3".to_owned())
}

fn status(text: &str) -> Result<TaskStatus, CommandError> {
    TaskStatus::typed(text).ok_or_else(|| {
        let known: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
        CommandError::usage(format!("there is no state `{text}`; there are {}", known.join(", ")))
    })
}

fn external(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("say KEY=VALUE, e.g. jira=PROJ-456".to_owned()),
    }
}

impl TaskFieldArgs {
    fn task(&self, title: &str, status: TaskStatus, actor: &Actor) -> Result<NewTask, CommandError> {
        Ok(NewTask {
            assignee: self.assignee.clone(),
            priority: self.priority,
            status,
            scope: KodingXScope {
                must_touch: self.must_touch.clone(),
                may_touch: self.may_touch.clone(),
                must_not_touch: self.must_not_touch.clone(),
                author: ScopeAuthor::of(actor),
            },
            dod_profile: self.dod_profile.clone(),
            labels: self.label.clone(),
            depends_on: self.depends_on.clone(),
            context_files: self.context_file.clone(),
            acceptance: self.acceptance.clone(),
            constraints: self.constraint.clone(),
            risks: self.risk.clone(),
            external_refs: self.external.clone(),
            body: self.body.as_ref().map(read_argument_file).transpose()?,
            ..NewTask::titled(title)
        })
    }
}

/// A task as `--json` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct TaskJson<'a> {
    pub(crate) file: &'a str,
    #[serde(flatten)]
    pub(crate) task: &'a Task,
}

#[derive(Debug, Serialize)]
struct TaskAnswer<'a> {
    version: u32,
    task: TaskJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

pub(crate) fn run(command: &TaskCommand, who: &Caller) -> Result<u8, CommandError> {
    match command {
        TaskCommand::New(command) => {
            make(&command.title, &command.wanted, TaskStatus::New, command.json, who)
        }
        TaskCommand::List(command) => list(command, who),
        TaskCommand::Show(command) => show(command, who),
        TaskCommand::Move(command) => {
            let (here, actor) = (crate::cli::caller::repository()?, who.actor());
            let board = match here.board(who)? {
                AnyBoard::Kodingx(board) => board,
                AnyBoard::Codifica(board) => return codifica::task::move_task(command, who, &here, &board),
            };
            let (to, reason) = (status(&command.to)?, command.reason.as_deref());
            let task =
                here.update_files(|tree| board.move_task(tree, &command.id, to, &actor, reason, &here.now))?;
            changed(&here, &board, &task, command.json)
        }
        TaskCommand::Renumber(command) => {
            let here = crate::cli::caller::repository()?;
            let board = here.board(who)?.require_kodingx("task renumber")?;
            let task = here.update_files(|tree| board.renumber(tree, &command.file, &here.now))?;
            changed(&here, &board, &task, command.json)
        }
    }
}

pub(crate) fn assign(command: &AssignArgs, who: &Caller) -> Result<u8, CommandError> {
    let Some(id) = &command.id else {
        let title = command.title.as_deref().unwrap_or_default();
        return make(title, &command.wanted, TaskStatus::Assigned, command.json, who);
    };
    let Some(agent) = &command.wanted.assignee else {
        return Err(CommandError::usage(format!("say who {id} is for, with --assignee AGENT")));
    };
    let (here, actor) = (crate::cli::caller::repository()?, who.actor());
    let board = match here.board(who)? {
        AnyBoard::Kodingx(board) => board,
        AnyBoard::Codifica(board) => {
            return codifica::task::assign(&here, &board, (id, agent), &actor, command.json);
        }
    };
    let task = here
        .update_files(|tree| board.assign(tree, id, agent, &actor, command.reason.as_deref(), &here.now))?;
    changed(&here, &board, &task, command.json)
}

fn make(
    title: &str,
    wanted: &TaskFieldArgs,
    status: TaskStatus,
    json: bool,
    who: &Caller,
) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let board = match here.board(who)? {
        AnyBoard::Kodingx(board) => board,
        AnyBoard::Codifica(board) => return codifica::task::make(title, wanted, json, &here, &board),
    };
    let new = wanted.task(title, status, &who.actor())?;
    let made = here.update_files(|tree| board.new_task(tree, &new, &here.now))?;
    if json {
        print_json(&TaskAnswer {
            version: 1,
            task: TaskJson { file: &made.place.path, task: &made.value },
            body: None,
        })?;
    } else {
        print(&format!("{}\n", made.value.id))?;
        message::notice(&format!("made {}", made.place.path));
        if new.scope.must_touch.is_empty() && new.scope.may_touch.is_empty() {
            message::notice(
                "its scope is empty: nothing will be writable; give it --must-touch or --may-touch",
            );
        }
        let globs = new.scope.must_touch.iter().chain(&new.scope.may_touch);
        for closed in globs.filter_map(|glob| closed_glob_message(glob)) {
            message::notice(&closed);
        }
    }
    Ok(0)
}

fn changed(here: &RepoContext, board: &KodingX, task: &Task, json: bool) -> Result<u8, CommandError> {
    if json {
        let found = board.find(here.tree(), &task.id).map_err(crate::app::board::board_error)?;
        let task = TaskJson { file: &found.place.path, task: &found.value };
        print_json(&TaskAnswer { version: 1, task, body: None })?;
    } else {
        print(&format!("{} {} {}\n", task.id, task.status, task.assignee))?;
    }
    Ok(0)
}

fn list(command: &ListTasksArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    match here.boards(who)? {
        Boards::One(AnyBoard::Kodingx(board)) => list_one(command, &here, &board),
        Boards::One(AnyBoard::Codifica(board)) => codifica::task::list(command, &here, &board),
        Boards::Several(boards) => list_all(command, &here, boards),
    }
}

/// Tasks of several protocols: ids say which they are of.
fn list_all(command: &ListTasksArgs, here: &RepoContext, boards: Vec<AnyBoard>) -> Result<u8, CommandError> {
    let (mut rows, mut tasks, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for board in boards {
        let (more, shown, found) = match &board {
            AnyBoard::Kodingx(board) => {
                let listing =
                    board.tasks(here.tree()).map_err(|error| crate::app::board::board_error(error.into()))?;
                let wanted = |(_, task): &&(BoardPath, Task)| {
                    matches_filter(command, task.status.as_str(), Some(&task.assignee))
                };
                let listed: Vec<&(BoardPath, Task)> = listing.tasks.iter().filter(wanted).collect();
                let rows: Vec<TaskRow> =
                    listed.iter().map(|(_, task)| TaskRow::of(task).prefixed("kodingx")).collect();
                let shown = |(place, task): &&(BoardPath, Task)| json(&TaskJson { file: &place.path, task });
                let shown: Vec<_> = listed.iter().map(shown).collect();
                (rows, shown, listing.findings)
            }
            AnyBoard::Codifica(board) => codifica::task::listed(command, here, board)?,
        };
        let protocol = board.as_board().protocol();
        rows.extend(more);
        findings.extend(found);
        tasks.extend(shown.into_iter().map(|mut task| {
            let id = format!("{protocol}:{}", task["id"].as_str().unwrap_or_default());
            task["id"] = id.into();
            task
        }));
    }
    match command.json {
        true => print_json(&serde_json::json!({ "version": 1, "tasks": tasks, "findings": findings }))?,
        false => {
            print(&format_rows(&rows))?;
            warn_findings(&findings);
        }
    }
    Ok(findings_exit_code(&findings))
}

/// A document of ours, to be put into another.
pub(super) fn json(document: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(document).unwrap_or_default()
}

/// Whether somebody asked for tasks like this one.
pub(super) fn matches_filter(command: &ListTasksArgs, state: &str, agent: Option<&AgentName>) -> bool {
    let same = |wanted: &String| wanted.replace(['-', ' '], "_").eq_ignore_ascii_case(state);
    (command.status.is_empty() || command.status.iter().any(same))
        && command.assignee.as_ref().is_none_or(|wanted| agent == Some(wanted))
}

fn list_one(command: &ListTasksArgs, here: &RepoContext, board: &KodingX) -> Result<u8, CommandError> {
    command.status.iter().try_for_each(|text| status(text).map(drop))?;
    let listing = board.tasks(here.tree()).map_err(|error| crate::app::board::board_error(error.into()))?;
    let wanted =
        |(_, task): &&(BoardPath, Task)| matches_filter(command, task.status.as_str(), Some(&task.assignee));
    let tasks: Vec<&(BoardPath, Task)> = listing.tasks.iter().filter(wanted).collect();
    if command.json {
        #[derive(Serialize)]
        struct TaskListAnswer<'a> {
            version: u32,
            tasks: Vec<TaskJson<'a>>,
            findings: &'a [agency_protocols::finding::Finding],
        }
        let tasks = tasks.iter().map(|(place, task)| TaskJson { file: &place.path, task }).collect();
        print_json(&TaskListAnswer { version: 1, tasks, findings: &listing.findings })?;
    } else {
        print(&table(tasks.iter().map(|(_, task)| task)))?;
        warn_findings(&listing.findings);
    }
    Ok(findings_exit_code(&listing.findings))
}

/// One line about a task.
pub(crate) struct TaskRow {
    pub(crate) id: String,
    pub(crate) priority: String,
    pub(crate) state: String,
    pub(crate) owner: String,
    pub(crate) title: String,
}

impl TaskRow {
    pub(crate) fn of(task: &Task) -> Self {
        Self {
            id: task.id.to_string(),
            priority: task.priority.to_string(),
            state: task.status.to_string(),
            owner: task.assignee.to_string(),
            title: task.title.clone(),
        }
    }

    pub(crate) fn prefixed(mut self, protocol: &str) -> Self {
        self.id = format!("{protocol}:{}", self.id);
        self
    }
}

/// One line for each task, in columns.
pub(crate) fn table<'a>(tasks: impl Iterator<Item = &'a Task>) -> String {
    format_rows(&tasks.map(TaskRow::of).collect::<Vec<_>>())
}

pub(crate) fn format_rows(rows: &[TaskRow]) -> String {
    let width = |of: fn(&TaskRow) -> &str, least: usize| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0).max(least)
    };
    let (id, priority) = (width(|row| &row.id, 0), width(|row| &row.priority, 0));
    let (state, owner) = (width(|row| &row.state, 16), width(|row| &row.owner, 0));
    let line = |row: &TaskRow| {
        let title: String = row.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let TaskRow { id: name, priority: urgency, state: stands, owner: who, .. } = row;
        format!("{name:id$}  {urgency:priority$}  {stands:state$}  {who:owner$}  {title}\n")
    };
    rows.iter().map(line).collect()
}

fn show(command: &ShowTaskArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let found = match board_with_task(&here, who, &command.id)? {
        AnyBoard::Codifica(board) => return codifica::task::show(&command.id, command.json, &here, &board),
        AnyBoard::Kodingx(board) => {
            board.find(here.tree(), &command.id).map_err(crate::app::board::board_error)?
        }
    };
    if command.json {
        let body = agency_protocols::text::frontmatter::Frontmatter::parse(&found.text)
            .map(|matter| matter.body())
            .ok();
        let task = TaskJson { file: &found.place.path, task: &found.value };
        print_json(&TaskAnswer { version: 1, task, body })?;
    } else {
        message::notice(&found.place.path);
        print(&for_terminal(&found.text))?;
    }
    Ok(0)
}

/// The board that has a task, for whoever only looks.
pub(super) fn board_with_task(
    here: &RepoContext,
    who: &Caller,
    id: &TaskId,
) -> Result<AnyBoard, CommandError> {
    let mut boards = here.boards(who)?.all();
    let has = |board: &AnyBoard| board.as_board().brief(here.tree(), id).is_ok();
    let holder = boards.iter().position(has).unwrap_or(0);
    Ok(boards.swap_remove(holder))
}
