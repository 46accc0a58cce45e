//! `agency import`: issues of a tracker become tasks.

use agency_protocols::kodingx::actions::NewTask;
use agency_protocols::kodingx::task::Priority;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::task::TaskJson;
use crate::app::board::Caller;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::import::{ImportError, Issue, IssueQuery, TrackerServer, fetch};
use crate::cli::message;
use crate::cli::output::print_json;

/// Make tasks of a tracker's issues. One that was imported before is left alone
///
/// Tokens come from the environment: GH_TOKEN or GITHUB_TOKEN; JIRA_TOKEN, with JIRA_EMAIL for Jira's cloud.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency import --from github --repo owner/name --label agency\n  agency import --from jira --api-url https://example.atlassian.net --project PROJ --status 'To Do'"
)]
pub(crate) struct ImportArgs {
    /// The tracker
    #[arg(long, value_enum)]
    from: TrackerArg,
    /// GitHub: `owner/name`
    #[arg(long, value_name = "OWNER/NAME", required_if_eq("from", "github"))]
    repo: Option<String>,
    /// GitHub: only issues with this label
    #[arg(long)]
    label: Option<String>,
    /// Jira: the project's key
    #[arg(long, value_name = "KEY", required_if_eq("from", "jira"))]
    project: Option<String>,
    /// Jira: only issues in this state
    #[arg(long)]
    status: Option<String>,
    /// Where the tracker is. The token goes there and nowhere else
    #[arg(long, value_name = "URL")]
    api_url: Option<String>,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TrackerArg {
    Github,
    Jira,
}

#[derive(Debug, Serialize)]
struct ImportAnswer<'a> {
    version: u32,
    /// How many issues the tracker had.
    found: usize,
    imported: Vec<TaskJson<'a>>,
}

pub(crate) fn run(command: &ImportArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let board = here.board(who)?.require_kodingx("import")?;
    let source = match command.from {
        TrackerArg::Github => {
            IssueQuery::github(command.repo.as_deref().unwrap_or_default(), command.label.as_deref())
        }
        TrackerArg::Jira => {
            IssueQuery::jira(command.project.as_deref().unwrap_or_default(), command.status.as_deref())
        }
    };
    let issues = source
        .and_then(|source| fetch(&source, &TrackerServer::new(command.api_url.clone())))
        .map_err(refused)?;
    let tasks: Vec<NewTask> = issues.iter().map(task).collect();
    let made = here.update_files(|tree| board.import(tree, &tasks, &here.now))?;
    if command.json {
        let imported =
            made.iter().map(|found| TaskJson { file: &found.place.path, task: &found.value }).collect();
        print_json(&ImportAnswer { version: 1, found: issues.len(), imported })?;
        return Ok(0);
    }
    for found in &made {
        message::notice(&format!("made {} of {}", found.value.id, found.value.title));
    }
    message::notice(&format!("{} issues, {} of them new", issues.len(), made.len()));
    if !made.is_empty() {
        message::notice("their scopes are empty: nothing is writable until you give each one");
    }
    Ok(0)
}

/// A stranger's words, as a task that can do nothing yet.
fn task(issue: &Issue) -> NewTask {
    let priority = match issue.priority {
        Some(0) => Priority::P0,
        Some(1) => Priority::P1,
        Some(3) => Priority::P3,
        _ => Priority::P2,
    };
    NewTask {
        priority,
        labels: issue.labels.clone(),
        external_refs: vec![
            (issue.tracker.to_owned(), issue.reference.clone()),
            ("url".to_owned(), issue.url.clone()),
        ],
        body: Some(format!(
            "\n## Problem\n\nImported from {}. What follows is the issue's own text.\n\n{}\n",
            issue.url,
            quoted(&issue.body)
        )),
        ..NewTask::titled(&issue.title)
    }
}

/// A quotation: whatever it holds, it begins no heading, header or region of ours.
fn quoted(body: &str) -> String {
    body.lines().map(|line| format!("> {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn refused(error: ImportError) -> CommandError {
    let code = match &error {
        ImportError::NotFound { .. } => ErrorKind::NoSuch,
        ImportError::NotARepository { .. }
        | ImportError::NotAProject { .. }
        | ImportError::NotAValue { .. }
        | ImportError::NoAddress
        | ImportError::Address { .. }
        | ImportError::Variable { .. }
        | ImportError::Certificates { .. } => ErrorKind::Usage,
        _ => ErrorKind::Internal,
    };
    CommandError::new(code, &error).with_hint(error.hint())
}
