//! `agency init`, `install` and `upgrade`: a board, and more of one.

use agency_profiles::detect;
use agency_profiles::project_files::ProjectFiles;
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::adapters::Orchestrator;
use agency_protocols::kodingx::layout::ROOT;
use agency_protocols::kodingx::manifest::LicenseMode;
use agency_protocols::kodingx::scaffold::{
    BoardComponent, OverwritePolicy, ScaffoldAction, ScaffoldChange, ScaffoldContext, ScaffoldOptions,
    scaffold,
};
use agency_protocols::kodingx::templates::RoleMode;
use agency_protocols::names::AgentName;
use clap::Args;
use serde::Serialize;

use crate::app::board::any_board::unsupported_verb;
use crate::app::board::{Caller, RepoContext};
use crate::app::error::CommandError;
use crate::cli::message;
use crate::cli::output::print_json;

/// Make a board, and teach a tool to orchestrate by it
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency init --orchestrator claude_code --builders codex,aider\n  agency init --protocol codifica"
)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    wishes: ScaffoldArgs,
    /// Where there is a board already: write what is generated anew. Tasks and your own text stay
    #[arg(long)]
    force: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Put a board beside what a repository has; nothing that is there is changed, files of tools get a section
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency install --minimal")]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    wishes: ScaffoldArgs,
    /// Only the inbox, the outbox and STATE.md
    #[arg(long)]
    minimal: bool,
    /// Add a check of pull requests to .github/workflows
    #[arg(long)]
    github_workflow: bool,
    /// Where there is a board already: write what is generated anew. Tasks and your own text stay
    #[arg(long)]
    force: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Add to a board what it lacks
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency upgrade --add dod-profiles")]
pub(crate) struct UpgradeArgs {
    /// One part: dod-profiles, verify, task-board, risks, decisions, protocol, agents, templates, adapter, github-workflow
    #[arg(long, value_name = "PART", value_parser = component, required_unless_present = "full")]
    add: Vec<BoardComponent>,
    /// Everything
    #[arg(long)]
    full: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScaffoldArgs {
    /// The tool that coordinates: cursor, claude_code, aider, continue, windsurf, antigravity or other
    #[arg(long, value_name = "TOOL", value_parser = orchestrator)]
    orchestrator: Option<Orchestrator>,
    /// The agents that do the work
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = builder)]
    builders: Option<Vec<AgentName>>,
    /// lexaplus, community or dual
    #[arg(long, value_name = "MODE", value_parser = license_mode)]
    license_mode: Option<LicenseMode>,
    /// What the repository is written in [default: found out]
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// solo, tech_lead or ai_first: how much is delegated, and who approves
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
    /// Whether something was asked for that only a board of KodingX has.
    fn is_of_kodingx(&self) -> bool {
        self.orchestrator.is_some()
            || self.license_mode.is_some()
            || self.environment.is_some()
            || self.role_mode.is_some()
    }

    fn wishes(&self) -> ScaffoldOptions {
        ScaffoldOptions {
            orchestrator: self.orchestrator,
            builders: self.builders.clone(),
            license_mode: self.license_mode,
            environment: self.environment.clone(),
            role_mode: self.role_mode,
        }
    }
}

pub(crate) fn init(command: &InitArgs, who: &Caller) -> Result<u8, CommandError> {
    if who.protocol == Some(Protocol::Codifica) {
        let agents = command.wishes.builders.clone().unwrap_or_default();
        if command.wishes.is_of_kodingx() {
            return Err(CommandError::usage("a board of Codifica is made with --builders alone"));
        }
        return super::codifica::init::init(&agents, command.force, command.json);
    }
    let here = fresh(who, command.force, "agency init --force")?;
    let overwrite = if command.force { OverwritePolicy::Generated } else { OverwritePolicy::Never };
    build(&here, &BoardComponent::FULL, overwrite, &command.wishes.wishes(), command.json)
}

pub(crate) fn install(command: &InstallArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = fresh(who, command.force, "agency install --force")?;
    let overwrite = if command.force { OverwritePolicy::Generated } else { OverwritePolicy::Never };
    let mut parts =
        if command.minimal { BoardComponent::MINIMAL.to_vec() } else { BoardComponent::FULL.to_vec() };
    if command.github_workflow {
        parts.push(BoardComponent::Workflow);
    }
    build(&here, &parts, overwrite, &command.wishes.wishes(), command.json)
}

pub(crate) fn upgrade(command: &UpgradeArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    here.board(who)?.require_kodingx("upgrade")?;
    let mut parts = command.add.clone();
    if command.full {
        parts.extend(BoardComponent::FULL.iter().filter(|part| !command.add.contains(part)));
    }
    build(&here, &parts, OverwritePolicy::Never, &ScaffoldOptions::default(), command.json)
}

/// A place where a board may be made.
fn fresh(who: &Caller, force: bool, again: &str) -> Result<RepoContext, CommandError> {
    if let Some(protocol) = who.protocol
        && protocol != Protocol::Kodingx
    {
        return Err(match protocol {
            Protocol::Codifica => {
                unsupported_verb(again.trim_start_matches("agency ").trim_end_matches(" --force"))
            }
            other => CommandError::usage(format!("the protocol `{other}` is not supported yet")),
        });
    }
    let here = crate::cli::caller::repository()?;
    if here.tree().exists(ROOT) && !force {
        return Err(CommandError::usage(format!("{ROOT}/ is there already; nothing was changed")).with_hint(
            format!("`{again}` writes what is generated anew, `agency upgrade` adds what is missing"),
        ));
    }
    Ok(here)
}

fn build(
    here: &RepoContext,
    parts: &[BoardComponent],
    overwrite: OverwritePolicy,
    wishes: &ScaffoldOptions,
    json: bool,
) -> Result<u8, CommandError> {
    let place = surroundings(here, wishes)?;
    let deeds = here.update_files(|tree| scaffold(tree, parts, overwrite, wishes, &place, &here.now))?;
    // What was written must be a board.
    KodingX::open(here.tree()).map_err(crate::app::board::board_error)?;
    tell(&deeds, json)
}

fn surroundings(here: &RepoContext, wishes: &ScaffoldOptions) -> Result<ScaffoldContext, CommandError> {
    let root = &here.folder.root;
    let sight = ProjectFiles::open(root).map_err(|error| CommandError::internal(&error))?;
    let detected = detect::detect_environments(&sight);
    let wanted = wishes.environment.as_deref().map(|name| {
        detect::profile_for(name).map(|profile| vec![profile]).ok_or_else(|| {
            CommandError::usage(format!("there is no environment `{name}` with a profile of its own"))
        })
    });
    let names: Vec<String> = match wanted.transpose()? {
        Some(profiles) => profiles.into_iter().map(str::to_owned).collect(),
        None => detected
            .iter()
            .filter_map(|found| detect::profile_for(found.environment))
            .map(str::to_owned)
            .collect(),
    };
    let profiles = names
        .into_iter()
        .filter_map(|name| Some((name.clone(), agency_profiles::builtin::text(&name)?.to_owned())))
        .collect();
    Ok(ScaffoldContext {
        project: root
            .file_name()
            .map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned()),
        timezone: jiff::tz::TimeZone::system().iana_name().map(str::to_owned),
        environment: wishes
            .environment
            .clone()
            .or_else(|| detected.first().map(|found| found.environment.to_owned())),
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        profiles,
    })
}

#[derive(Debug, Serialize)]
struct ScaffoldAnswer<'a> {
    version: u32,
    files: &'a [ScaffoldChange],
}

fn tell(deeds: &[ScaffoldChange], json: bool) -> Result<u8, CommandError> {
    if json {
        print_json(&ScaffoldAnswer { version: 1, files: deeds })?;
        return Ok(0);
    }
    for deed in deeds {
        let what = match deed.what {
            ScaffoldAction::Made => "made",
            ScaffoldAction::Changed => "changed",
            ScaffoldAction::Kept if deed.why.is_empty() => continue,
            ScaffoldAction::Kept => "kept",
            ScaffoldAction::Asked => "please",
        };
        let why = if deed.why.is_empty() { String::new() } else { format!(": {}", deed.why) };
        message::notice(&format!("{what} {}{why}", deed.path));
    }
    let count = |what| deeds.iter().filter(|deed| deed.what == what).count();
    message::notice(&format!(
        "{} files made, {} changed, {} kept",
        count(ScaffoldAction::Made),
        count(ScaffoldAction::Changed),
        count(ScaffoldAction::Kept)
    ));
    Ok(0)
}
