//! `agency init`, `install` and `upgrade`: a board, and more of one.

use agency_protocols::kodingx::adapters::Orchestrator;
use agency_protocols::kodingx::manifest::LicenseMode;
use agency_protocols::kodingx::scaffold::{BoardComponent, ScaffoldAction, ScaffoldChange, ScaffoldOptions};
use agency_protocols::kodingx::templates::RoleMode;
use agency_protocols::names::AgentName;
use clap::{Args, ValueEnum};

use crate::app::board::Caller;
use crate::app::error::CommandError;
use crate::app::first_configuration::SetupChoice;
use crate::app::scaffold::{self, ScaffoldAnswer, ScaffoldRequest};
use crate::cli::caller::repository;
use crate::cli::message;
use crate::cli::output::print_json;

/// Create a board, and instructions for the tool that coordinates
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency init --orchestrator claude_code --builders codex,aider\n  agency init --protocol codifica"
)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    wishes: ScaffoldArgs,
    /// The setup that the lock files suggest, for agency.toml [default: ask at a terminal, else suggested]
    #[arg(long, value_enum, value_name = "CHOICE")]
    setup: Option<SetupArg>,
    /// Rewrite generated files if there is a board already. Tasks and your own text stay
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SetupArg {
    /// Write it
    Suggested,
    /// Write it as a comment
    None,
}

/// Add a board to an existing repository. Existing files stay; tool files get a section
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency install --minimal")]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    wishes: ScaffoldArgs,
    /// Only the inbox, the outbox and STATE.md
    #[arg(long)]
    minimal: bool,
    /// Add a pull request check to .github/workflows
    #[arg(long)]
    github_workflow: bool,
    /// Rewrite generated files if there is a board already. Tasks and your own text stay
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Add missing parts to a board
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency upgrade --add dod-profiles")]
pub(crate) struct UpgradeArgs {
    /// A part: dod-profiles, verify, task-board, risks, decisions, protocol, agents, templates, adapter, github-workflow
    #[arg(long, value_name = "PART", value_parser = component, required_unless_present = "full")]
    add: Vec<BoardComponent>,
    /// Everything
    #[arg(long)]
    full: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScaffoldArgs {
    /// The coordinating tool: cursor, claude_code, aider, continue, windsurf, antigravity or other
    #[arg(long, value_name = "TOOL", value_parser = orchestrator)]
    orchestrator: Option<Orchestrator>,
    /// The agents that build
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = builder)]
    builders: Option<Vec<AgentName>>,
    /// The license terms that the manifest notes: community, lexaplus or dual [default: community]
    #[arg(long, value_name = "MODE", value_parser = license_mode)]
    license_mode: Option<LicenseMode>,
    /// The repository's environment [default: detected]
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// solo, tech_lead or ai_first: how much is delegated and who approves
    #[arg(long, value_name = "MODE", value_parser = role_mode)]
    role_mode: Option<RoleMode>,
}

fn orchestrator(name: &str) -> Result<Orchestrator, String> {
    let known: Vec<&str> = Orchestrator::ALL.iter().map(|tool| tool.as_str()).collect();
    Orchestrator::parse(name).ok_or_else(|| format!("it must be one of {}", known.join(", ")))
}

fn builder(name: &str) -> Result<AgentName, String> {
    AgentName::parse(name).map_err(|error| error.to_string())
}

fn license_mode(name: &str) -> Result<LicenseMode, String> {
    LicenseMode::parse(name).ok_or_else(|| "it must be lexaplus, community or dual".to_owned())
}

fn role_mode(name: &str) -> Result<RoleMode, String> {
    RoleMode::parse(name).ok_or_else(|| "it must be solo, tech_lead or ai_first".to_owned())
}

fn component(name: &str) -> Result<BoardComponent, String> {
    let known: Vec<&str> = BoardComponent::NAMED.iter().map(|(name, _)| *name).collect();
    BoardComponent::parse(name)
        .ok_or_else(|| format!("there is no part `{name}`; there are {}", known.join(", ")))
}

impl ScaffoldArgs {
    fn request(&self, force: bool) -> ScaffoldRequest {
        let options = ScaffoldOptions {
            orchestrator: self.orchestrator,
            builders: self.builders.clone(),
            license_mode: self.license_mode,
            environment: self.environment.clone(),
            role_mode: self.role_mode,
        };
        ScaffoldRequest { options, force, setup: SetupChoice::Ask }
    }
}

pub(crate) fn init(command: &InitArgs, who: &Caller) -> Result<u8, CommandError> {
    let setup = match command.setup {
        None => SetupChoice::Ask,
        Some(SetupArg::Suggested) => SetupChoice::Suggested,
        Some(SetupArg::None) => SetupChoice::None,
    };
    let request = ScaffoldRequest { setup, ..command.wishes.request(command.force) };
    let answer = scaffold::init(&repository()?, who, &request)?;
    print_answer(&answer, command.json)?;
    if !command.json {
        message::notice(&next_steps(&answer));
    }
    Ok(0)
}

pub(crate) fn install(command: &InstallArgs, who: &Caller) -> Result<u8, CommandError> {
    let mut parts =
        if command.minimal { BoardComponent::MINIMAL.to_vec() } else { BoardComponent::FULL.to_vec() };
    if command.github_workflow {
        parts.push(BoardComponent::Workflow);
    }
    let request = command.wishes.request(command.force);
    print_answer(&scaffold::install(&repository()?, who, &request, &parts)?, command.json)
}

pub(crate) fn upgrade(command: &UpgradeArgs, who: &Caller) -> Result<u8, CommandError> {
    let mut parts = command.add.clone();
    if command.full {
        parts.extend(BoardComponent::FULL.iter().filter(|part| !command.add.contains(part)));
    }
    print_answer(&scaffold::upgrade(&repository()?, who, &parts)?, command.json)
}

/// What comes after a new board.
fn next_steps(answer: &ScaffoldAnswer) -> String {
    let (commit, new) = match answer {
        ScaffoldAnswer::Kodingx { .. } => ("commit it", "agency task new --title TEXT --must-touch GLOB"),
        ScaffoldAnswer::Codifica { .. } => (
            "commit it, because agents claim tasks by commits",
            "agency task new --title TEXT --acceptance TEXT",
        ),
    };
    let steps = [
        ("agency agents", "shows which agents work here"),
        ("agency trust", "reviews what this repository may run"),
        (new, "makes a task"),
        ("agency run", "runs it"),
    ];
    let lines: Vec<String> = steps.iter().map(|(command, what)| format!("{command:46}  {what}")).collect();
    format!("next: {commit}; then\n{}", lines.join("\n"))
}

fn print_answer(answer: &ScaffoldAnswer, json: bool) -> Result<u8, CommandError> {
    if json {
        print_json(answer)?;
        return Ok(0);
    }
    match answer {
        ScaffoldAnswer::Kodingx { files, .. } => print_changes(files),
        ScaffoldAnswer::Codifica { files, .. } => {
            for file in files {
                message::notice(&format!("{} {}", if file.made { "made" } else { "kept" }, file.path));
            }
        }
    }
    Ok(0)
}

fn print_changes(changes: &[ScaffoldChange]) {
    for change in changes {
        let what = match change.what {
            ScaffoldAction::Made => "made",
            ScaffoldAction::Changed => "changed",
            ScaffoldAction::Kept if change.why.is_empty() => continue,
            ScaffoldAction::Kept => "kept",
            ScaffoldAction::Asked => "please",
        };
        let why = if change.why.is_empty() { String::new() } else { format!(": {}", change.why) };
        message::notice(&format!("{what} {}{why}", change.path));
    }
    let count = |what| changes.iter().filter(|change| change.what == what).count();
    message::notice(&format!(
        "{} files made, {} changed, {} kept",
        count(ScaffoldAction::Made),
        count(ScaffoldAction::Changed),
        count(ScaffoldAction::Kept)
    ));
}
