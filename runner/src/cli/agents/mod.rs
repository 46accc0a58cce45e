//! `agency agents`: which agents can be used here, and whether they work.

mod trial;

use std::path::PathBuf;

use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use clap::{Args, Subcommand};
use serde::Serialize;
use toml::Table;

use crate::app::agents::definition::AgentDefinition;
use crate::app::agents::readiness::CredentialStatus;
use crate::app::agents::{program, readiness, untrusted_agent_error};
use crate::app::error::{CommandError, without_control_chars};
use crate::app::isolation;
use crate::cli::caller::ConfigArgs;
use crate::cli::message;
use crate::cli::output::{print, print_json};

/// Show which agents can be used here, or why not
///
/// An agent is a program that is started for a task: one of those that are known by name, or one that agency.toml
/// describes.
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
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    Show(ShowAgentArgs),
    Test(trial::TestAgentArgs),
}

/// Show all that is known of an agent, as agency.toml would say it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency agents show codex")]
struct ShowAgentArgs {
    /// The agent
    name: String,
    #[command(flatten)]
    operator: ConfigArgs,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

const VERSION: u32 = 1;

/// What is known of one agent.
#[derive(Debug, Serialize)]
struct AgentStatus {
    name: String,
    ready: bool,
    /// Why it can't be used, and what would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Where its program is.
    program: Option<PathBuf>,
    version: Option<String>,
    #[serde(flatten)]
    credentials: Option<CredentialStatus>,
}

pub(crate) fn run(command: &AgentsArgs) -> Result<u8, CommandError> {
    match &command.command {
        Some(AgentsCommand::Test(test)) => return trial::run(test),
        Some(AgentsCommand::Show(asked)) => return show(asked),
        None => {}
    }
    let configuration = command.operator.load(&root()?)?;
    let (host, usual) = (HostUser::observe(), isolation::default_level(None, &configuration)?);
    let listed: Vec<AgentStatus> = configuration
        .names(&["agents"])
        .into_iter()
        .map(|name| list(AgentDefinition::new(name, &configuration), usual, &host))
        .collect();
    match command.json {
        true => print_json(&serde_json::json!({ "version": VERSION, "agents": listed }))?,
        false => {
            message::notices(configuration.withheld_notice());
            print(&without_control_chars(&table(&listed)))?;
        }
    }
    Ok(0)
}

fn show(asked: &ShowAgentArgs) -> Result<u8, CommandError> {
    let configuration = asked.operator.load(&root()?)?;
    let mut agents = configuration.whole("agents");
    let Some(agent) = agents.remove(&asked.name) else { return Err(unknown(&asked.name)) };
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

fn unknown(name: &str) -> CommandError {
    CommandError::usage(format!("there is no agent `{name}`"))
        .with_hint("`agency agents` shows those that there are")
}

/// Where the configuration is. Whoever only wants to know what is here need not be in a repository.
fn root() -> Result<PathBuf, CommandError> {
    let found = crate::cli::caller::repository().map(|here| here.folder.root);
    found.or_else(|_| std::env::current_dir().map_err(|error| CommandError::internal(&error)))
}

fn list(definition: AgentDefinition<'_>, usual: IsolationLevel, host: &HostUser) -> AgentStatus {
    let name = definition.name.to_owned();
    let defined = definition.agent(host).ok();
    let command = definition.command();
    let contained = defined.as_ref().is_some_and(|agent| readiness::is_contained(agent, usual));
    let ours = command.first().filter(|program| program::is_host_program(program) && !contained);
    let found = ours.and_then(|program| program::find(program, host));
    let agent = match definition.is_withheld() {
        true => Err(untrusted_agent_error(definition.name)),
        false => readiness::checked(definition, usual, host),
    };
    let version = agent
        .as_ref()
        .ok()
        .filter(|_| !contained)
        .and_then(|agent| readiness::version(definition, agent).ok().flatten());
    let (ready, failure) = match agent {
        Ok(_) => (true, None),
        Err(failure) => (false, Some(failure)),
    };
    AgentStatus {
        name,
        ready,
        why: failure.as_ref().map(|failure| failure.message.clone()),
        hint: failure.and_then(|failure| failure.hint),
        program: found.map(|found| found.path),
        version,
        credentials: defined.filter(|agent| !agent.outside).map(|agent| readiness::credentials(&agent)),
    }
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
