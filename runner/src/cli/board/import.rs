//! `agency import`: issues of a tracker become tasks.

use clap::{Args, ValueEnum};

use crate::app::board::Caller;
use crate::app::error::CommandError;
use crate::app::import_tasks::{ImportSource, import};
use crate::cli::caller::repository;
use crate::cli::message;
use crate::cli::output::print_json;

/// Create tasks from a tracker's issues. Issues imported before are skipped
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
    /// Jira: only issues with this status
    #[arg(long)]
    status: Option<String>,
    /// The tracker's address. The token is sent only there
    #[arg(long, value_name = "URL")]
    api_url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TrackerArg {
    Github,
    Jira,
}

pub(crate) fn run(command: &ImportArgs, who: &Caller) -> Result<u8, CommandError> {
    let source = match command.from {
        TrackerArg::Github => ImportSource::Github {
            repo: command.repo.clone().unwrap_or_default(),
            label: command.label.clone(),
        },
        TrackerArg::Jira => ImportSource::Jira {
            project: command.project.clone().unwrap_or_default(),
            status: command.status.clone(),
        },
    };
    let answer = import(&repository()?, who, &source, command.api_url.clone())?;
    if command.json {
        print_json(&answer)?;
        return Ok(0);
    }
    for task in &answer.imported {
        message::notice(&format!("made {} of {}", task.id, task.title));
    }
    message::notice(&format!("{} issues, {} of them new", answer.found, answer.imported.len()));
    if !answer.imported.is_empty() {
        message::notice("their scopes are empty: nothing is writable until you give each one");
    }
    Ok(0)
}
