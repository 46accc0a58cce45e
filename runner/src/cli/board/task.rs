//! `agency task` and `agency assign`: tasks made, listed, shown, moved, given to agents.

use std::path::PathBuf;

use agency_protocols::board::ScopeAuthor;
use agency_protocols::board_verbs::{RequestedScope, TaskFilter, TaskRequest};
use agency_protocols::names::{Assignee, TaskId};
use clap::{Args, Subcommand};

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::tasks::{self, TaskAnswer};
use crate::cli::argument_file::read_argument_file;
use crate::cli::board::task_table::format_rows;
use crate::cli::caller::{repository, repository_with_task};
use crate::cli::exit::findings_exit_code;
use crate::cli::message;
use crate::cli::message::warn_findings;
use crate::cli::output::{for_terminal, print, print_json};
use crate::cli::terminal::table::TableStyle;

/// Create, list, show and move tasks
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency task list --status NEW")]
pub(crate) enum TaskCommand {
    New(Box<NewTaskArgs>),
    List(ListTasksArgs),
    Show(ShowTaskArgs),
    Move(MoveTaskArgs),
    Note(NoteTaskArgs),
    Renumber(RenumberTaskArgs),
}

/// Create a task
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency task new --title 'Fix VAT rounding' --assignee codex --must-touch 'src/vat/**' --may-touch 'tests/**'"
)]
pub(crate) struct NewTaskArgs {
    /// The title, in one line
    #[arg(long)]
    title: String,
    #[command(flatten)]
    wanted: TaskFieldArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The fields of a task beside its title.
#[derive(Debug, Args)]
pub(crate) struct TaskFieldArgs {
    /// The builder; in Codifica also human or unassigned [default: the board's first builder; in Codifica unassigned]
    #[arg(long, value_name = "AGENT", value_parser = assignee)]
    assignee: Option<Assignee>,
    /// P0 (most urgent) to P3, or critical, high, normal, low [default: P2]
    #[arg(long, value_name = "P0|P1|P2|P3", value_parser = urgency)]
    priority: Option<u8>,
    /// Glob of files of which at least one must change; may be repeated
    #[arg(long, value_name = "GLOB")]
    must_touch: Vec<String>,
    /// Glob of files that may also change
    #[arg(long, value_name = "GLOB")]
    may_touch: Vec<String>,
    /// Glob of files that must not change, even if another glob matches them
    #[arg(long, value_name = "GLOB")]
    must_not_touch: Vec<String>,
    /// Its Definition of Done profile [default: the board's]
    #[arg(long, value_name = "NAME")]
    dod_profile: Option<String>,
    /// A task that must be DONE first
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    depends_on: Vec<String>,
    /// An acceptance criterion
    #[arg(long, value_name = "TEXT")]
    acceptance: Vec<String>,
    /// A constraint
    #[arg(long, value_name = "TEXT")]
    constraint: Vec<String>,
    /// A file that the agent reads first
    #[arg(long, value_name = "PATH")]
    context_file: Vec<String>,
    /// A label
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    label: Vec<String>,
    /// The id of a linked risk in RISKS.md
    #[arg(long, value_name = "R-ID", value_delimiter = ',')]
    risk: Vec<String>,
    /// A reference to another tracker: `github_issue=#123`, `jira=PROJ-456`
    #[arg(long, value_name = "KEY=VALUE", value_parser = external)]
    external: Vec<(String, String)>,
    /// A file with the task's text
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Task type: build, test, review, investigate, followup, or a custom type
    #[arg(long = "type", value_name = "TYPE", help_heading = "Codifica")]
    kind: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT", help_heading = "Codifica")]
    description: Option<String>,
    /// A checklist item
    #[arg(long, value_name = "TEXT", help_heading = "Codifica")]
    checklist: Vec<String>,
    /// The task that this one follows from
    #[arg(long, value_name = "ID", help_heading = "Codifica")]
    derived_from: Option<String>,
}

/// List tasks
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task list --status NEW,BLOCKED --json")]
pub(crate) struct ListTasksArgs {
    /// Only tasks in these states
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    status: Vec<String>,
    /// Only tasks of this agent; human and unassigned are possible too
    #[arg(long, value_name = "AGENT", value_parser = assignee)]
    assignee: Option<Assignee>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show one task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task show T0007")]
pub(crate) struct ShowTaskArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Move a task to another state
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task move T0007 CANCELED --reason 'not needed any more'")]
pub(crate) struct MoveTaskArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// NEW, ASSIGNED, IN_PROGRESS, BLOCKED, READY_FOR_REVIEW, DONE or CANCELED; in Codifica todo, in_progress,
    /// to_be_tested, done, blocked or rejected
    #[arg(value_name = "STATE")]
    to: String,
    /// The reason; recorded in the task
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Add an execution note to a task (Codifica)
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency task note FEAT-001 'The API is in src/api' --as agent:codex\n  agency task note FEAT-001 'Recommend blocking: there is no key' --as agent:codex"
)]
pub(crate) struct NoteTaskArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// The note. One that begins with `Recommend blocking: ` asks a person to block the task
    #[arg(value_name = "TEXT")]
    text: String,
    /// The note in one line, for the tasks that follow
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Give a task a new id after two clones created the same one
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency task renumber .kodingx/inbox/codex/2026-01-31/T0008-1610-fix-vat.md"
)]
pub(crate) struct RenumberTaskArgs {
    /// The file of the task that gets the new id
    #[arg(value_name = "FILE")]
    file: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Assign a task to an agent, or create one for it
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency assign T0007 --assignee codex\n  agency assign --title 'Fix VAT rounding' --assignee codex --must-touch 'src/vat/**'"
)]
pub(crate) struct AssignArgs {
    /// The task; a new one is created if it is left out
    #[arg(value_name = "ID", value_parser = task_id, required_unless_present = "title", conflicts_with = "title")]
    id: Option<TaskId>,
    /// The title of a new task
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    wanted: TaskFieldArgs,
    /// The reason; recorded in the task
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn assignee(name: &str) -> Result<Assignee, String> {
    Assignee::parse(name).map_err(|error| error.to_string())
}

/// Zero for `P0` and `critical`, three for `P3` and `low`.
fn urgency(text: &str) -> Result<u8, String> {
    let names = [["P0", "critical"], ["P1", "high"], ["P2", "normal"], ["P3", "low"]];
    let is_named = |names: &[&str; 2]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
    let found = names.iter().position(is_named).and_then(|place| u8::try_from(place).ok());
    found.ok_or_else(|| "a priority is P0, P1, P2 or P3".to_owned())
}

fn external(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("say KEY=VALUE, e.g. jira=PROJ-456".to_owned()),
    }
}

/// The urgency of a task for which none is given.
const NORMAL: u8 = 2;

impl TaskFieldArgs {
    fn scope(&self, who: &Caller) -> RequestedScope {
        RequestedScope {
            must_touch: self.must_touch.clone(),
            may_touch: self.may_touch.clone(),
            must_not_touch: self.must_not_touch.clone(),
            author: ScopeAuthor::of(&who.actor()),
        }
    }

    /// A flag that only a new task takes, if one was given.
    fn flag_of_new_task(&self) -> Option<&'static str> {
        let given = [
            ("--priority", self.priority.is_some()),
            ("--dod-profile", self.dod_profile.is_some()),
            ("--depends-on", !self.depends_on.is_empty()),
            ("--acceptance", !self.acceptance.is_empty()),
            ("--constraint", !self.constraint.is_empty()),
            ("--context-file", !self.context_file.is_empty()),
            ("--label", !self.label.is_empty()),
            ("--risk", !self.risk.is_empty()),
            ("--external", !self.external.is_empty()),
            ("--body", self.body.is_some()),
            ("--type", self.kind.is_some()),
            ("--description", self.description.is_some()),
            ("--checklist", !self.checklist.is_empty()),
            ("--derived-from", self.derived_from.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }

    fn request(&self, title: &str, is_assigned: bool, who: &Caller) -> Result<TaskRequest, CommandError> {
        Ok(TaskRequest {
            title: title.to_owned(),
            is_assigned,
            assignee: self.assignee.clone(),
            urgency: self.priority.unwrap_or(NORMAL),
            scope: self.scope(who),
            dod_profile: self.dod_profile.clone(),
            depends_on: self.depends_on.clone(),
            acceptance: self.acceptance.clone(),
            constraints: self.constraint.clone(),
            context_files: self.context_file.clone(),
            labels: self.label.clone(),
            risks: self.risk.clone(),
            external_refs: self.external.clone(),
            body: self.body.as_deref().map(read_argument_file).transpose()?,
            kind: self.kind.clone(),
            description: self.description.clone(),
            checklist: self.checklist.clone(),
            derived_from: self.derived_from.clone(),
        })
    }
}

pub(crate) fn run(command: &TaskCommand, who: &Caller) -> Result<u8, CommandError> {
    match command {
        TaskCommand::New(command) => make(&command.title, &command.wanted, false, command.json, who),
        TaskCommand::List(command) => list(command, who),
        TaskCommand::Show(command) => show(command, who),
        TaskCommand::Move(command) => {
            let MoveTaskArgs { id, to, reason, json } = command;
            let (here, id) = repository_with_task(who, id)?;
            print_changed(&tasks::move_to(&here, who, &id, to, reason.as_deref())?, *json)
        }
        TaskCommand::Note(command) => {
            let NoteTaskArgs { id, text, summary, json } = command;
            let (here, id) = repository_with_task(who, id)?;
            print_changed(&tasks::add_note(&here, who, &id, text, summary.as_deref())?, *json)
        }
        TaskCommand::Renumber(command) => {
            print_changed(&tasks::renumber(&repository()?, who, &command.file)?, command.json)
        }
    }
}

pub(crate) fn assign(command: &AssignArgs, who: &Caller) -> Result<u8, CommandError> {
    let Some(id) = &command.id else {
        let title = command.title.as_deref().unwrap_or_default();
        return make(title, &command.wanted, true, command.json, who);
    };
    let Some(assignee) = &command.wanted.assignee else {
        return Err(CommandError::usage(format!("say who {id} is for, with --assignee AGENT")));
    };
    if let Some(flag) = command.wanted.flag_of_new_task() {
        return Err(CommandError::usage(format!("{flag} is for a new task, and {id} exists: edit its file")));
    }
    let scope = command.wanted.scope(who);
    let (here, id) = repository_with_task(who, id)?;
    let answer = tasks::assign(&here, who, (&id, assignee), &scope, command.reason.as_deref())?;
    print_changed(&answer, command.json)
}

fn make(
    title: &str,
    wanted: &TaskFieldArgs,
    is_assigned: bool,
    json: bool,
    who: &Caller,
) -> Result<u8, CommandError> {
    let made = tasks::make(&repository()?, who, &wanted.request(title, is_assigned, who)?)?;
    match json {
        true => print_json(&made.answer)?,
        false => {
            print(&format!("{}\n", made.answer.task.id))?;
            message::notices(made.notices);
        }
    }
    Ok(0)
}

fn print_changed(answer: &TaskAnswer, json: bool) -> Result<u8, CommandError> {
    let TaskAnswer { task, .. } = answer;
    match json {
        true => print_json(answer)?,
        false => print(&format!("{} {} {}\n", task.id, task.state, task.owner))?,
    }
    Ok(0)
}

fn list(command: &ListTasksArgs, who: &Caller) -> Result<u8, CommandError> {
    let filter = TaskFilter { states: command.status.clone(), assignee: command.assignee.clone() };
    let answer = tasks::list(&repository()?, who, &filter)?;
    match command.json {
        true => print_json(&answer)?,
        false => {
            print(&format_rows(&answer.table.tasks, TableStyle::output()))?;
            warn_findings(&answer.table.findings);
        }
    }
    Ok(findings_exit_code(&answer.table.findings))
}

fn show(command: &ShowTaskArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, id) = repository_with_task(who, &command.id)?;
    let page = tasks::show(&here, who, &id)?;
    match command.json {
        true => print_json(&page.answer)?,
        false => {
            message::notice(&page.place);
            print(&for_terminal(&page.text))?;
        }
    }
    Ok(0)
}
