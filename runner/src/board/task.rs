//! `agency task` and `agency assign`: tasks made, listed, shown, moved, given to somebody.

use std::path::PathBuf;

use agency_protocols::kodingx::acts::NewTask;
use agency_protocols::kodingx::layout::Place;
use agency_protocols::kodingx::status::Status;
use agency_protocols::kodingx::task::{Priority, Scope, Task};
use agency_protocols::names::{AgentName, TaskId};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Here, Who, code, mention, print, print_json, task_id, text_of};
use crate::message::{self, Failure};

/// Make, list, show and move tasks
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency task list --status NEW")]
pub(crate) enum TaskCommand {
    New(Box<New>),
    List(List),
    Show(Show),
    Move(Move),
    Renumber(Renumber),
}

/// Make a task
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency task new --title 'Fix VAT rounding' --assignee codex --must-touch 'src/vat/**' --may-touch 'tests/**'"
)]
pub(crate) struct New {
    /// What is to be done, in one line
    #[arg(long)]
    title: String,
    #[command(flatten)]
    wanted: Wanted,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// What a task says beside its title.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// The agent that is to do it [default: the board's first builder]
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    assignee: Option<AgentName>,
    /// P0 is the most urgent
    #[arg(long, value_name = "P0|P1|P2|P3", value_parser = priority, default_value = "P2")]
    priority: Priority,
    /// A glob of files of which something must change; may be repeated
    #[arg(long, value_name = "GLOB")]
    must_touch: Vec<String>,
    /// A glob of files that may change, too
    #[arg(long, value_name = "GLOB")]
    may_touch: Vec<String>,
    /// A glob of files that may not change even there
    #[arg(long, value_name = "GLOB")]
    must_not_touch: Vec<String>,
    /// The Definition of Done it is held to [default: the board's]
    #[arg(long, value_name = "NAME")]
    dod_profile: Option<String>,
    /// A task that must be DONE first
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    depends_on: Vec<String>,
    /// Something that holds when it is done
    #[arg(long, value_name = "TEXT")]
    acceptance: Vec<String>,
    /// Something that holds all the way
    #[arg(long, value_name = "TEXT")]
    constraint: Vec<String>,
    /// A file to read first
    #[arg(long, value_name = "PATH")]
    context_file: Vec<String>,
    /// A word to find it by
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    label: Vec<String>,
    /// A risk it is linked to, by its id in RISKS.md
    #[arg(long, value_name = "R-ID", value_delimiter = ',')]
    risk: Vec<String>,
    /// Where else it is known: `github_issue=#123`, `jira=PROJ-456`
    #[arg(long, value_name = "KEY=VALUE", value_parser = external)]
    external: Vec<(String, String)>,
    /// A file with the text of the task
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
}

/// List tasks
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task list --status NEW,BLOCKED --json")]
pub(crate) struct List {
    /// Only these states
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = status)]
    status: Vec<Status>,
    /// Only this agent's
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    assignee: Option<AgentName>,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Show one task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency task show T0007")]
pub(crate) struct Show {
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
pub(crate) struct Move {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// NEW, ASSIGNED, IN_PROGRESS, BLOCKED, READY_FOR_REVIEW, DONE or CANCELED
    #[arg(value_name = "STATE", value_parser = status)]
    to: Status,
    /// Why; it is kept with the task
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Give a task another id, where two clones made the same one
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency task renumber .kodingx/inbox/codex/2026-01-31/T0008-1610-fix-vat.md"
)]
pub(crate) struct Renumber {
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
pub(crate) struct Assign {
    /// The task; without it, one is made
    #[arg(value_name = "ID", value_parser = task_id, required_unless_present = "title", conflicts_with = "title")]
    id: Option<TaskId>,
    /// What is to be done, for a task that is to be made
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
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
    Priority::parse(&text.to_ascii_uppercase()).ok_or_else(|| "a priority is P0, P1, P2 or P3".to_owned())
}

fn status(text: &str) -> Result<Status, String> {
    Status::typed(text).ok_or_else(|| {
        let known: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        format!("there is no state `{text}`; there are {}", known.join(", "))
    })
}

fn external(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("say KEY=VALUE, e.g. jira=PROJ-456".to_owned()),
    }
}

impl Wanted {
    fn task(&self, title: &str, status: Status) -> Result<NewTask, Failure> {
        Ok(NewTask {
            assignee: self.assignee.clone(),
            priority: self.priority,
            status,
            scope: Scope {
                must_touch: self.must_touch.clone(),
                may_touch: self.may_touch.clone(),
                must_not_touch: self.must_not_touch.clone(),
            },
            dod_profile: self.dod_profile.clone(),
            labels: self.label.clone(),
            depends_on: self.depends_on.clone(),
            context_files: self.context_file.clone(),
            acceptance: self.acceptance.clone(),
            constraints: self.constraint.clone(),
            risks: self.risk.clone(),
            external_refs: self.external.clone(),
            body: self.body.as_ref().map(text_of).transpose()?,
            ..NewTask::titled(title)
        })
    }
}

/// A task as `--json` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    pub(crate) file: &'a str,
    #[serde(flatten)]
    pub(crate) task: &'a Task,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    task: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

pub(crate) fn run(command: &TaskCommand, who: &Who) -> Result<u8, Failure> {
    match command {
        TaskCommand::New(command) => make(&command.title, &command.wanted, Status::New, command.json, who),
        TaskCommand::List(command) => list(command, who),
        TaskCommand::Show(command) => show(command, who),
        TaskCommand::Move(command) => {
            let (here, actor) = (Here::find()?, who.actor());
            let board = here.board(who)?;
            let task = here.act(|tree| {
                board.move_task(tree, &command.id, command.to, &actor, command.reason.as_deref(), &here.now)
            })?;
            changed(&here, who, &task, command.json)
        }
        TaskCommand::Renumber(command) => {
            let here = Here::find()?;
            let board = here.board(who)?;
            let task = here.act(|tree| board.renumber(tree, &command.file, &here.now))?;
            changed(&here, who, &task, command.json)
        }
    }
}

pub(crate) fn assign(command: &Assign, who: &Who) -> Result<u8, Failure> {
    let Some(id) = &command.id else {
        let title = command.title.as_deref().unwrap_or_default();
        return make(title, &command.wanted, Status::Assigned, command.json, who);
    };
    let Some(agent) = &command.wanted.assignee else {
        return Err(Failure::usage(format!("say who {id} is for, with --assignee AGENT")));
    };
    let (here, actor) = (Here::find()?, who.actor());
    let board = here.board(who)?;
    let task =
        here.act(|tree| board.assign(tree, id, agent, &actor, command.reason.as_deref(), &here.now))?;
    changed(&here, who, &task, command.json)
}

fn make(title: &str, wanted: &Wanted, status: Status, json: bool, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = here.board(who)?;
    let new = wanted.task(title, status)?;
    let made = here.act(|tree| board.new_task(tree, &new, &here.now))?;
    if json {
        print_json(&Document {
            version: 1,
            task: Shown { file: &made.place.path, task: &made.value },
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
    }
    Ok(0)
}

fn changed(here: &Here, who: &Who, task: &Task, json: bool) -> Result<u8, Failure> {
    if json {
        let found = here.board(who)?.find(here.tree(), &task.id).map_err(super::refused)?;
        let task = Shown { file: &found.place.path, task: &found.value };
        print_json(&Document { version: 1, task, body: None })?;
    } else {
        print(&format!("{} {} {}\n", task.id, task.status, task.assignee))?;
    }
    Ok(0)
}

fn list(command: &List, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let listing = here.board(who)?.tasks(here.tree()).map_err(|error| super::refused(error.into()))?;
    let wanted = |(_, task): &&(Place, Task)| {
        (command.status.is_empty() || command.status.contains(&task.status))
            && command.assignee.as_ref().is_none_or(|agent| *agent == task.assignee)
    };
    let tasks: Vec<&(Place, Task)> = listing.tasks.iter().filter(wanted).collect();
    if command.json {
        #[derive(Serialize)]
        struct Listed<'a> {
            version: u32,
            tasks: Vec<Shown<'a>>,
            findings: &'a [agency_protocols::finding::Finding],
        }
        let tasks = tasks.iter().map(|(place, task)| Shown { file: &place.path, task }).collect();
        print_json(&Listed { version: 1, tasks, findings: &listing.findings })?;
    } else {
        print(&table(tasks.iter().map(|(_, task)| task)))?;
        mention(&listing.findings);
    }
    Ok(code(&listing.findings))
}

/// One line for each task, in columns.
pub(crate) fn table<'a>(tasks: impl Iterator<Item = &'a Task> + Clone) -> String {
    let width = |of: fn(&Task) -> usize| tasks.clone().map(of).max().unwrap_or(0);
    let (id, agent) = (width(|task| task.id.as_str().len()), width(|task| task.assignee.as_str().len()));
    let line = |task: &Task| {
        let title: String = task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{:id$}  {}  {:16}  {:agent$}  {title}\n", task.id, task.priority, task.status, task.assignee)
    };
    tasks.clone().map(line).collect()
}

fn show(command: &Show, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let found = here.board(who)?.find(here.tree(), &command.id).map_err(super::refused)?;
    if command.json {
        let body = agency_protocols::text::frontmatter::Frontmatter::parse(&found.text)
            .map(|matter| matter.body())
            .ok();
        let task = Shown { file: &found.place.path, task: &found.value };
        print_json(&Document { version: 1, task, body })?;
    } else {
        message::notice(&found.place.path);
        print(&shown(&found.text))?;
    }
    Ok(0)
}

/// Text of a repository, as it is for programs and harmless at a terminal.
pub(crate) fn shown(text: &str) -> String {
    use std::io::IsTerminal;
    if std::io::stdout().is_terminal() { message::harmless(text) } else { text.to_owned() }
}
