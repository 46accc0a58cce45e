//! `agency init`, `install` and `upgrade`: a board, and more of one.

use agency_profiles::detect;
use agency_profiles::sight::Sight;
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::adapters::Orchestrator;
use agency_protocols::kodingx::layout::ROOT;
use agency_protocols::kodingx::manifest::LicenseMode;
use agency_protocols::kodingx::scaffold::{
    Component, Deeds, Overwrite, Surroundings, What, Wishes, scaffold,
};
use agency_protocols::kodingx::texts::RoleMode;
use agency_protocols::names::AgentName;
use clap::Args;
use serde::Serialize;

use super::spoken::not_there;
use super::{Here, Who, print_json};
use crate::message::{self, Failure, INTERNAL};

/// Make a board, and teach a tool to orchestrate by it
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency init --orchestrator claude_code --builders codex,aider\n  agency init --protocol codifica"
)]
pub(crate) struct Init {
    #[command(flatten)]
    wishes: Asked,
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
pub(crate) struct Install {
    #[command(flatten)]
    wishes: Asked,
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
pub(crate) struct Upgrade {
    /// One part: dod-profiles, verify, task-board, risks, decisions, protocol, agents, templates, adapter, github-workflow
    #[arg(long, value_name = "PART", value_parser = component, required_unless_present = "full")]
    add: Vec<Component>,
    /// Everything
    #[arg(long)]
    full: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Asked {
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

fn component(name: &str) -> Result<Component, String> {
    let known: Vec<&str> = Component::NAMED.iter().map(|(name, _)| *name).collect();
    Component::parse(name).ok_or_else(|| format!("there is no part `{name}`; there are {}", known.join(", ")))
}

impl Asked {
    /// Whether something was asked for that only a board of KodingX has.
    fn is_of_kodingx(&self) -> bool {
        self.orchestrator.is_some()
            || self.license_mode.is_some()
            || self.environment.is_some()
            || self.role_mode.is_some()
    }

    fn wishes(&self) -> Wishes {
        Wishes {
            orchestrator: self.orchestrator,
            builders: self.builders.clone(),
            license_mode: self.license_mode,
            environment: self.environment.clone(),
            role_mode: self.role_mode,
        }
    }
}

pub(crate) fn init(command: &Init, who: &Who) -> Result<u8, Failure> {
    if who.protocol == Some(Protocol::Codifica) {
        let agents = command.wishes.builders.clone().unwrap_or_default();
        if command.wishes.is_of_kodingx() {
            return Err(Failure::usage("a board of Codifica is made with --builders alone"));
        }
        return super::codifica::init::init(&agents, command.force, command.json);
    }
    let here = fresh(who, command.force, "agency init --force")?;
    let overwrite = if command.force { Overwrite::Generated } else { Overwrite::Never };
    build(&here, &Component::FULL, overwrite, &command.wishes.wishes(), command.json)
}

pub(crate) fn install(command: &Install, who: &Who) -> Result<u8, Failure> {
    let here = fresh(who, command.force, "agency install --force")?;
    let overwrite = if command.force { Overwrite::Generated } else { Overwrite::Never };
    let mut parts = if command.minimal { Component::MINIMAL.to_vec() } else { Component::FULL.to_vec() };
    if command.github_workflow {
        parts.push(Component::Workflow);
    }
    build(&here, &parts, overwrite, &command.wishes.wishes(), command.json)
}

pub(crate) fn upgrade(command: &Upgrade, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    here.board(who)?.kodingx("upgrade")?;
    let mut parts = command.add.clone();
    if command.full {
        parts.extend(Component::FULL.iter().filter(|part| !command.add.contains(part)));
    }
    build(&here, &parts, Overwrite::Never, &Wishes::default(), command.json)
}

/// A place where a board may be made.
fn fresh(who: &Who, force: bool, again: &str) -> Result<Here, Failure> {
    if let Some(protocol) = who.protocol
        && protocol != Protocol::Kodingx
    {
        return Err(match protocol {
            Protocol::Codifica => not_there(again.trim_start_matches("agency ").trim_end_matches(" --force")),
            other => Failure::usage(format!("the protocol `{other}` is not supported yet")),
        });
    }
    let here = Here::find()?;
    if here.tree().exists(ROOT) && !force {
        return Err(Failure::usage(format!("{ROOT}/ is there already; nothing was changed")).with_hint(
            format!("`{again}` writes what is generated anew, `agency upgrade` adds what is missing"),
        ));
    }
    Ok(here)
}

fn build(
    here: &Here,
    parts: &[Component],
    overwrite: Overwrite,
    wishes: &Wishes,
    json: bool,
) -> Result<u8, Failure> {
    let place = surroundings(here, wishes)?;
    let deeds = here.act(|tree| scaffold(tree, parts, overwrite, wishes, &place, &here.now))?;
    // What was written must be a board.
    KodingX::open(here.tree()).map_err(super::refused)?;
    tell(&deeds, json)
}

fn surroundings(here: &Here, wishes: &Wishes) -> Result<Surroundings, Failure> {
    let root = &here.folder.root;
    let sight = Sight::of(root).map_err(|error| Failure::new(INTERNAL, &error))?;
    let detected = detect::environments(&sight);
    let wanted = wishes.environment.as_deref().map(|name| {
        detect::profile_for(name).map(|profile| vec![profile]).ok_or_else(|| {
            Failure::usage(format!("there is no environment `{name}` with a profile of its own"))
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
    Ok(Surroundings {
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
struct Document<'a> {
    version: u32,
    files: &'a [Deeds],
}

fn tell(deeds: &[Deeds], json: bool) -> Result<u8, Failure> {
    if json {
        print_json(&Document { version: 1, files: deeds })?;
        return Ok(0);
    }
    for deed in deeds {
        let what = match deed.what {
            What::Made => "made",
            What::Changed => "changed",
            What::Kept if deed.why.is_empty() => continue,
            What::Kept => "kept",
            What::Asked => "please",
        };
        let why = if deed.why.is_empty() { String::new() } else { format!(": {}", deed.why) };
        message::notice(&format!("{what} {}{why}", deed.path));
    }
    let count = |what| deeds.iter().filter(|deed| deed.what == what).count();
    message::notice(&format!(
        "{} files made, {} changed, {} kept",
        count(What::Made),
        count(What::Changed),
        count(What::Kept)
    ));
    Ok(0)
}
