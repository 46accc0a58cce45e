//! From flags and configuration to what a supervisor is told. Whatever is missing or wrong is one clear sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use agency_protocols::board::Start;
use agency_protocols::names::TaskId;
use agency_sandbox::doctor::{Finding, findings};
use agency_sandbox::egress::List;
use agency_sandbox::host::Host;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::Level;
use agency_supervisor::budget::{Allowance, Budget};
use agency_supervisor::errand::order::{Reach, Setup, Trust as Trusted};
use agency_supervisor::landing::names::RefName;
use agency_supervisor::settings::{Agent, Committer, Land, Leases, Settings};
use clap::ValueEnum;
use toml::Value;

use super::Run;
use crate::agents::definition::Definition;
use crate::agents::{ready, untrusted};
use crate::board::Here;
use crate::configuration::trust::{self, Trust};
use crate::configuration::{Configuration, texts};
use crate::isolation;
use crate::message::{Failure, UNAVAILABLE};
use crate::state;
use crate::units;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LandArgument {
    /// On the branch that is checked out
    Merge,
    /// On a branch of the task's own, `agency/ID`
    Branch,
    /// Nowhere: it is verified and kept
    None,
}

/// Everything that has a say.
pub(super) struct Given<'a> {
    pub(super) command: &'a Run,
    pub(super) configuration: &'a Configuration,
    pub(super) here: &'a Here,
    pub(super) host: &'a Host,
    pub(super) state: &'a Path,
    pub(super) branch: &'a RefName,
    /// The agents that are needed.
    pub(super) agents: &'a BTreeSet<&'a str>,
    /// Those of them that can't be started.
    pub(super) unusable: &'a [(String, Failure)],
}

pub(super) fn settings(given: &Given<'_>) -> Result<Settings, Failure> {
    let Given { command, configuration, here, host, .. } = given;
    let usual = isolation::usual(command.isolation, configuration)?;
    let container = isolation::container(configuration)?;
    let mut agents = BTreeMap::new();
    let known = given.unusable.iter().map(|(name, failure)| (name.clone(), failure.message.clone()));
    let mut unusable: BTreeMap<String, String> = known.collect();
    let judge = configuration.text("roles.auditor");
    for name in configuration.names(&["agents"]) {
        if unusable.contains_key(name) {
            continue;
        }
        let needed = given.agents.contains(name) || judge == Some(name);
        // Builders were looked at before, and how new their programs are takes a moment to find out.
        let judges = judge == Some(name) && !given.agents.contains(name);
        match usable(Definition::new(name, configuration), judges, usual, host) {
            Ok(agent) => drop(agents.insert(name.to_owned(), agent)),
            Err(failure) if needed => return Err(failure),
            // Of those that nobody has asked for, it is enough to know why.
            Err(failure) => drop(unusable.insert(name.to_owned(), failure.message)),
        }
    }
    let count = |key: &str| {
        let value = configuration.value(&["run", key]).and_then(Value::as_integer).unwrap_or(1);
        u32::try_from(value).unwrap_or(u32::MAX)
    };
    let time = |key: &str| duration(configuration, &["run", key]).map(Option::unwrap_or_default);
    let parallel = command.parallel.unwrap_or_else(|| count("parallel").into());
    let trust = match command.operator.trust {
        true => Trusted::All,
        false => Trusted::These(Trust::of(&here.folder.root)?.texts()),
    };
    let auditor = auditor(given, &agents)?;
    let setup = setup(configuration)?;
    let needed = |name: &str| given.agents.contains(name) || auditor.as_deref() == Some(name);
    // Asked once: it tries what this host offers.
    let offered = findings();
    let mut contained = Vec::new();
    for (name, agent) in agents.iter().filter(|(name, agent)| needed(name) && !agent.outside) {
        let level = agent.level.unwrap_or(usual);
        match level {
            Level::Container => contained.push(name.clone()),
            Level::Process | Level::Landlock => check_level(name, agent, level, &offered)?,
        }
        check_setup(setup.as_ref(), level)?;
    }
    let settings = Settings {
        root: here.folder.root.clone(),
        state: given.state.to_owned(),
        copies: state::copies(host)?,
        level: usual,
        container,
        branch: given.branch.clone(),
        land: land(command, configuration)?,
        agents,
        unusable,
        trust,
        committer: committer(here)?,
        parallel: usize::try_from(parallel).unwrap_or(usize::MAX),
        attempts: count("attempts"),
        repeats: count("repeats"),
        budget: Budget { task: allowance(configuration, "task")?, run: allowance(configuration, "run")? },
        auditor,
        setup,
        backoff: time("backoff")?,
        leases: Leases::of(time("lease")?),
    };
    for name in contained {
        let agent = settings.agents.get(&name);
        let container = agent.and_then(|agent| settings.container_of(agent));
        let engine = container.as_ref().and_then(|container| container.engine.as_deref());
        for path in agent.iter().flat_map(|agent| &agent.program.read) {
            isolation::check_shown(&format!("agents.{name}.read"), path, engine)?;
        }
        isolation::check_container(&format!("the agent `{name}`"), container.as_ref())?;
    }
    Ok(settings)
}

/// An agent that can be started. One that is needed has to be new enough, too: that takes a moment to find out.
fn usable(definition: Definition<'_>, needed: bool, usual: Level, host: &Host) -> Result<Agent, Failure> {
    if definition.is_withheld() && !definition.is_outside() {
        return Err(untrusted(definition.name));
    }
    match needed {
        true => ready::checked(definition, usual, host),
        false => ready::agent(definition, usual, host),
    }
}

/// Who judges, if somebody does; never somebody who builds.
fn auditor(given: &Given<'_>, agents: &BTreeMap<String, Agent>) -> Result<Option<String>, Failure> {
    let configuration = given.configuration;
    let Some(name) = configuration.text("roles.auditor") else {
        return match configuration.is_withheld("roles.auditor") {
            true => Err(trust::missing("who audits")),
            false => Ok(None),
        };
    };
    let hint = format!("[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml");
    match agents.get(name) {
        None if configuration.is_withheld(&format!("agents.{name}.command")) => Err(untrusted(name)),
        None => {
            let what = format!("roles.auditor is `{name}`, and no such agent is configured");
            Err(Failure::usage(what).with_hint(hint))
        }
        Some(agent) if agent.outside => {
            Err(Failure::usage(format!("roles.auditor is `{name}`, which works outside and can't be asked"))
                .with_hint(hint))
        }
        Some(_) if given.agents.contains(name) => {
            let what = format!("roles.auditor is `{name}`, which also builds; nobody judges their own work");
            Err(Failure::usage(what)
                .with_hint("name another auditor, or give its tasks to another agent: `agency assign`"))
        }
        Some(_) => Ok(Some(name.to_owned())),
    }
}

/// What prepares a workspace, if something does. Without a file that says when it is to be done again, it would be done
/// once and never again, or each time: nobody can mean either.
fn setup(configuration: &Configuration) -> Result<Option<Setup>, Failure> {
    const EXAMPLE: &str = "setup = { command = \"npm ci\", keyed_by = [\"package-lock.json\"], network = [\"registry.npmjs.org:443\"] }";
    const KEYS: [&str; 3] = ["command", "keyed_by", "network"];
    if KEYS.iter().any(|key| configuration.is_withheld(&format!("workspace.setup.{key}"))) {
        return Err(trust::missing("how a workspace is prepared"));
    }
    let value = |key: &str| configuration.value(&["workspace", "setup", key]);
    if KEYS.iter().all(|key| value(key).is_none()) {
        return Ok(None);
    }
    let command = value("command").and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let Some(command) = command else {
        return Err(Failure::usage("workspace.setup has no command").with_hint(EXAMPLE));
    };
    let keyed_by = texts(value("keyed_by"));
    if keyed_by.is_empty() {
        let what = "workspace.setup has no keyed_by: it must name the files that say when to run it again";
        return Err(Failure::usage(what).with_hint(EXAMPLE));
    }
    for path in &keyed_by {
        let refused = |reason: &str| {
            let shown = path.escape_debug();
            Failure::usage(format!(
                "workspace.setup.keyed_by: `{shown}` is no file of the repository: {reason}"
            ))
        };
        match RelPath::parse(path.as_bytes()) {
            Ok(parsed) if parsed.is_root() => return Err(refused("the path is empty")),
            Ok(_) if path.contains('\n') => return Err(refused("the path has a line break in it")),
            Ok(_) => {}
            Err(error) => return Err(refused(&error.to_string())),
        }
    }
    let network = match value("network") {
        Some(Value::String(text)) if text == "full" => Reach::Full,
        hosts @ Some(Value::Array(list)) if !list.is_empty() => {
            let hosts = texts(hosts).join(",");
            List::parse(&hosts)
                .map_err(|error| Failure::usage(format!("workspace.setup.network: {error}")))?;
            Reach::Hosts(hosts)
        }
        _ => Reach::None,
    };
    Ok(Some(Setup { command: command.to_owned(), keyed_by, network }))
}

/// A setup runs at the level of whoever needs it.
fn check_setup(setup: Option<&Setup>, level: Level) -> Result<(), Failure> {
    match setup {
        Some(Setup { network: Reach::Hosts(_), .. }) if level == Level::Landlock => {
            let what = "isolation `landlock` can't hold the list of hosts in workspace.setup.network";
            Err(Failure::new_message(UNAVAILABLE, what.to_owned())
                .with_hint("use \"none\" or \"full\" there, or --isolation process"))
        }
        _ => Ok(()),
    }
}

fn allowance(configuration: &Configuration, of: &str) -> Result<Allowance, Failure> {
    let value = |key: &str| configuration.value(&["budget", of, key]);
    let count =
        |key: &str| value(key).and_then(Value::as_integer).and_then(|count| u64::try_from(count).ok());
    let cost = value("cost").and_then(|cost| cost.as_float().or(cost.as_integer().map(|cost| cost as f64)));
    Ok(Allowance {
        time: duration(configuration, &["budget", of, "time"])?,
        attempts: count("attempts"),
        tokens: count("tokens"),
        // A number that is too large becomes the largest there is.
        cost_micros: cost.map(|cost| (cost * 1_000_000.0).round().max(1.0) as u64),
    })
}

/// What a level can't hold, on this host or anywhere, is said before anything starts.
fn check_level(name: &str, agent: &Agent, level: Level, offered: &[Finding]) -> Result<(), Failure> {
    let unavailable = |message: String| Failure::new_message(UNAVAILABLE, message);
    if level == Level::Landlock && matches!(agent.program.network, Reach::Hosts(_)) {
        return Err(unavailable(format!(
            "isolation `landlock` can't hold the list of hosts in agents.{name}.network"
        ))
        .with_hint("use \"none\" or \"full\" there, or --isolation process"));
    }
    // An overlay that is not loaded yet is loaded when it is first mounted.
    let (level, needed): (_, &[&str]) = match level {
        Level::Process => ("process", &["kernel", "user-namespaces", "landlock"]),
        Level::Landlock => ("landlock", &["landlock"]),
        Level::Container => ("container", &["landlock"]),
    };
    match offered.iter().find(|found| !found.ok && needed.contains(&found.name)) {
        Some(Finding { name, detail, hint, .. }) => {
            let failure = unavailable(format!("isolation `{level}` is not available here: {name}, {detail}"));
            Err(failure.or_hint(hint.as_deref().unwrap_or("`agency doctor` tells what this host offers")))
        }
        None => Ok(()),
    }
}

/// Agents of tasks that can't be started as they are configured, each with the reason.
pub(super) fn unusable<'a>(
    starts: impl Iterator<Item = &'a Start>,
    configuration: &Configuration,
    usual: Level,
    host: &Host,
) -> Vec<(String, Failure)> {
    let known = configuration.names(&["agents"]);
    let mut first: BTreeMap<&str, &Start> = BTreeMap::new();
    for start in starts {
        first.entry(start.agent.as_str()).or_insert(start);
    }
    let failure = |name: &str, start: &Start| match known.contains(name) {
        false => Some(unknown_agent(&start.task, name, configuration)),
        true => usable(Definition::new(name, configuration), true, usual, host).err(),
    };
    let found = first.into_iter().filter_map(|(name, start)| Some((name.to_owned(), failure(name, start)?)));
    found.collect()
}

/// A task is for an agent that nobody has configured.
fn unknown_agent(task: &TaskId, name: &str, configuration: &Configuration) -> Failure {
    if configuration.is_withheld(&format!("agents.{name}.command")) {
        return untrusted(name);
    }
    let known: Vec<&str> = configuration.names(&["agents"]).into_iter().collect();
    let nearest =
        known.iter().max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    let hint = match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? `agency assign` gives a task to another agent"),
        None => format!("[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml"),
    };
    Failure::usage(format!("{task} is for the agent `{name}`, and no such agent is configured"))
        .with_hint(hint)
}

fn land(command: &Run, configuration: &Configuration) -> Result<Land, Failure> {
    let wanted = match (command.land, configuration.text("run.land")) {
        (Some(land), _) => land,
        (None, Some(name)) => LandArgument::from_str(name, true)
            .map_err(|_| Failure::usage(format!("run.land: `{name}` is none of merge, branch and none")))?,
        (None, None) => LandArgument::Merge,
    };
    Ok(match wanted {
        LandArgument::Merge => Land::Merge,
        LandArgument::Branch => Land::Branch,
        LandArgument::None => Land::None,
    })
}

fn duration(configuration: &Configuration, path: &[&str]) -> Result<Option<Duration>, Failure> {
    let text = configuration.value(path).and_then(Value::as_str);
    let found = text.map(units::duration).transpose();
    found.map_err(|reason| Failure::usage(format!("{}: {reason}", path.join("."))))
}

/// Commits are made in the name of whoever runs this, as git knows them.
pub(crate) fn committer(here: &Here) -> Result<Committer, Failure> {
    Ok(Committer {
        name: here.git_says("user.name")?.unwrap_or_else(|| "agency".to_owned()),
        email: here.git_says("user.email")?.unwrap_or_else(|| "agency@localhost".to_owned()),
    })
}
