//! `agency agents`: which agents can be used here, and whether they work.
//!
//! How each of them is started, what it is given and how it is understood stands in a table (`presets.toml`) that has
//! the same keys as everybody's configuration, and less of a say ([`definition`]). Whether its program is there
//! ([`found`]) and has what it needs ([`ready`]) is looked at before anything is started.

pub(crate) mod definition;
mod found;
pub(crate) mod ready;
mod trial;

use std::path::PathBuf;

use agency_sandbox::host::Host;
use agency_sandbox::policy::Level;
use clap::{Args, Subcommand};
use serde::Serialize;
use toml::Table;

use crate::board::{Here, print, print_json};
use crate::configuration::{Configuration, Operator, trust};
use crate::isolation;
use crate::message::{Failure, INTERNAL, harmless};
use definition::Definition;
use ready::Credentials;

/// Agents that work without being configured.
pub(crate) const PRESETS: &str = include_str!("presets.toml");

/// Show which agents can be used here, or why not
///
/// An agent is a program that is started for a task: one of those that are known by name, or one that agency.toml
/// describes.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  agency agents\n  agency agents --json"
)]
pub(crate) struct Agents {
    #[command(subcommand)]
    command: Option<AgentsCommand>,
    #[command(flatten)]
    operator: Operator,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    Show(Show),
    Test(trial::Test),
}

/// Show all that is known of an agent, as agency.toml would say it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency agents show codex")]
struct Show {
    /// The agent
    name: String,
    #[command(flatten)]
    operator: Operator,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

const VERSION: u32 = 1;

/// What is known of one agent.
#[derive(Debug, Serialize)]
struct Listed {
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
    credentials: Option<Credentials>,
}

pub(crate) fn run(command: &Agents) -> Result<u8, Failure> {
    match &command.command {
        Some(AgentsCommand::Test(test)) => return trial::run(test),
        Some(AgentsCommand::Show(asked)) => return show(asked),
        None => {}
    }
    let configuration = Configuration::load(&root()?, &command.operator)?;
    let (host, usual) = (Host::observe(), isolation::usual(None, &configuration)?);
    let listed: Vec<Listed> = configuration
        .names(&["agents"])
        .into_iter()
        .map(|name| list(Definition::new(name, &configuration), usual, &host))
        .collect();
    match command.json {
        true => print_json(&serde_json::json!({ "version": VERSION, "agents": listed }))?,
        false => {
            configuration.mention_withheld();
            print(&harmless(&table(&listed)))?;
        }
    }
    Ok(0)
}

fn show(asked: &Show) -> Result<u8, Failure> {
    let configuration = Configuration::load(&root()?, &asked.operator)?;
    let mut agents = configuration.whole("agents");
    let Some(agent) = agents.remove(&asked.name) else { return Err(unknown(&asked.name)) };
    if asked.json {
        print_json(&serde_json::json!({ "version": VERSION, "name": asked.name, "agent": agent }))?;
        return Ok(0);
    }
    let agents = Table::from_iter([(asked.name.clone(), agent)]);
    let whole = Table::from_iter([("agents".to_owned(), agents.into())]);
    let text = toml::to_string_pretty(&whole).map_err(|error| Failure::new(INTERNAL, &error))?;
    print(&harmless(&text))?;
    Ok(0)
}

fn unknown(name: &str) -> Failure {
    Failure::usage(format!("there is no agent `{name}`"))
        .with_hint("`agency agents` shows those that there are")
}

/// Where the configuration is. Whoever only wants to know what is here need not be in a repository.
fn root() -> Result<PathBuf, Failure> {
    let found = Here::find().map(|here| here.folder.root);
    found.or_else(|_| std::env::current_dir().map_err(|error| Failure::new(INTERNAL, &error)))
}

fn list(definition: Definition<'_>, usual: Level, host: &Host) -> Listed {
    let name = definition.name.to_owned();
    let defined = definition.agent(host).ok();
    let command = definition.command();
    let contained = defined.as_ref().is_some_and(|agent| ready::is_contained(agent, usual));
    let ours = command.first().filter(|program| found::is_ours(program) && !contained);
    let found = ours.and_then(|program| found::find(program, host));
    let agent = match definition.is_withheld() {
        true => Err(untrusted(definition.name)),
        false => ready::checked(definition, usual, host),
    };
    let version = agent
        .as_ref()
        .ok()
        .filter(|_| !contained)
        .and_then(|agent| ready::version(definition, agent).ok().flatten());
    let (ready, failure) = match agent {
        Ok(_) => (true, None),
        Err(failure) => (false, Some(failure)),
    };
    Listed {
        name,
        ready,
        why: failure.as_ref().map(|failure| failure.message.clone()),
        hint: failure.and_then(|failure| failure.hint),
        program: found.map(|found| found.path),
        version,
        credentials: defined.filter(|agent| !agent.outside).map(|agent| ready::credentials(&agent)),
    }
}

/// Somebody has to look at how an agent is started, before it is.
pub(crate) fn untrusted(name: &str) -> Failure {
    trust::missing(&format!("how the agent `{name}` is started"))
}

fn table(listed: &[Listed]) -> String {
    let name = listed.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let line = |one: &Listed| {
        let state = if one.ready { "ready    " } else { "not ready" };
        let said = match (&one.why, &one.program) {
            (Some(why), _) => why.clone(),
            (None, Some(program)) => {
                let version = one.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
                let with = match &one.credentials {
                    Some(Credentials::Present(names)) => format!(", with {}", names.join(", ")),
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
