//! `agency agents`: which agents can be used here, and whether they work.

mod trial;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use toml::Table;

use crate::app::agents::listing::{self, AgentStatus};
use crate::app::agents::readiness::CredentialStatus;
use crate::app::error::{CommandError, without_control_chars};
use crate::cli::caller::ConfigArgs;
use crate::cli::message;
use crate::cli::output::{print, print_json};

/// Show which agents can be used here, or why not
///
/// An agent is a program that is started for a task: a known one, or one that agency.toml describes.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  agency agents\n  agency agents --json"
)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    command: Option<AgentsCommand>,
    #[command(flatten)]
    operator: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    Show(ShowAgentArgs),
    Test(trial::TestAgentArgs),
}

/// Show an agent's complete settings in the form of agency.toml
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency agents show codex")]
struct ShowAgentArgs {
    /// The agent
    name: String,
    #[command(flatten)]
    operator: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const VERSION: u32 = 1;

pub(crate) fn run(command: &AgentsArgs) -> Result<u8, CommandError> {
    match &command.command {
        Some(AgentsCommand::Test(test)) => return trial::run(test),
        Some(AgentsCommand::Show(asked)) => return show(asked),
        None => {}
    }
    let configuration = command.operator.load(&root()?)?;
    let listed = listing::list(&configuration)?;
    match command.json {
        true => print_json(&serde_json::json!({ "version": VERSION, "agents": listed }))?,
        false => {
            message::notices(configuration.withheld_notice());
            print(&without_control_chars(&table(&listed)))?;
            message::notice(&next_step(&listed));
        }
    }
    Ok(0)
}

const SHELL: &str = "shell";

/// What to do after the list.
fn next_step(listed: &[AgentStatus]) -> String {
    // The agent `shell`, which runs a line of a task, is ready everywhere.
    let mut ready = listed.iter().filter(|one| one.ready && one.program.is_some());
    match ready.find(|one| one.name != SHELL) {
        Some(AgentStatus { name, .. }) => format!(
            "next: `agency agents test {name}` tries it on a tiny task; `agency task new … --assignee {name}` gives it a real one"
        ),
        None => "next: install one of these or log in to it, or describe your own in agency.toml ([agents.NAME] command = …)"
            .to_owned(),
    }
}

fn show(asked: &ShowAgentArgs) -> Result<u8, CommandError> {
    let agent = listing::show(&asked.operator.load(&root()?)?, &asked.name)?;
    if asked.json {
        print_json(&serde_json::json!({ "version": VERSION, "name": asked.name, "agent": agent }))?;
        return Ok(0);
    }
    let agents = Table::from_iter([(asked.name.clone(), agent)]);
    let whole = Table::from_iter([("agents".to_owned(), agents.into())]);
    let text = toml::to_string_pretty(&whole).map_err(|error| CommandError::internal(&error))?;
    print(&without_control_chars(&text))?;
    Ok(0)
}

/// The folder of the configuration. Listing agents needs no repository.
fn root() -> Result<PathBuf, CommandError> {
    let found = crate::cli::caller::repository().map(|here| here.folder.root);
    found.or_else(|_| std::env::current_dir().map_err(|error| CommandError::internal(&error)))
}

fn table(listed: &[AgentStatus]) -> String {
    let name = listed.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let line = |one: &AgentStatus| {
        let state = if one.ready { "ready    " } else { "not ready" };
        let said = match (&one.why, &one.program) {
            (Some(why), _) => why.clone(),
            (None, Some(program)) => {
                let version = one.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
                let with = match &one.credentials {
                    Some(CredentialStatus::Present(names)) => format!(", with {}", names.join(", ")),
                    _ => String::new(),
                };
                format!("{}{version}{with}", program.display())
            }
            (None, None) => "works outside; its reports are waited for".to_owned(),
        };
        let hint =
            one.hint.as_ref().map(|hint| format!("{:name$}             {hint}\n", "")).unwrap_or_default();
        format!("{:name$}  {state}  {said}\n{hint}", one.name)
    };
    listed.iter().map(line).collect()
}
