//! From a request and configuration to what a supervisor is told. Whatever is missing or wrong is one clear sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use agency_landing::names::RefName;
use agency_profiles::likeness::nearest;
use agency_protocols::board::ReadyTask;
use agency_protocols::names::TaskId;
use agency_sandbox::doctor::{HostCheck, findings};
use agency_sandbox::egress::HostAllowlist;
use agency_sandbox::host::HostUser;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::budget::{Allowance, Budget};
use agency_supervisor::job::order::{NetworkAccess, ProfileTrust as Trusted, WorkspaceSetup};
use agency_supervisor::settings::{AgentSettings, Committer, LandingTarget, LeaseTimes, RunSettings};
use toml::Value;

use super::RunRequest;
use crate::app::agents::definition::AgentDefinition;
use crate::app::agents::{readiness, untrusted_agent_error};
use crate::app::configuration::trust::{self, TrustRecord};
use crate::app::configuration::{Configuration, string_list};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::isolation;
use crate::app::state_folder;
use crate::app::units;

/// Everything that has a say.
pub(super) struct SettingsInputs<'a> {
    pub(super) request: &'a RunRequest,
    pub(super) configuration: &'a Configuration,
    pub(super) root: &'a Path,
    pub(super) host: &'a HostUser,
    pub(super) state: &'a Path,
    pub(super) branch: &'a RefName,
    pub(super) committer: Committer,
    /// The agents that are needed.
    pub(super) agents: &'a BTreeSet<&'a str>,
    /// Those of them that can't be started.
    pub(super) unusable: &'a [(String, CommandError)],
}

pub(super) fn settings(given: &SettingsInputs<'_>) -> Result<RunSettings, CommandError> {
    let SettingsInputs { request, configuration, root, host, .. } = given;
    let usual = isolation::default_level(request.isolation, configuration)?;
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
        match usable(AgentDefinition::new(name, configuration), judges, usual, host) {
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
    let parallel = request.parallel.unwrap_or_else(|| count("parallel").into());
    let trust = match request.configuration.trust {
        true => Trusted::All,
        false => Trusted::These(TrustRecord::of(root)?.texts()),
    };
    let auditor = auditor(given, &agents)?;
    let setup = setup(configuration)?;
    let needed = |name: &str| given.agents.contains(name) || auditor.as_deref() == Some(name);
    // Asked once: it tries what this host offers.
    let offered = findings();
    let mut contained = Vec::new();
    for (name, agent) in agents.iter().filter(|(name, agent)| needed(name) && !agent.outside) {
        let level = agent.level.unwrap_or(usual);
        match level.needs_image() {
            true => contained.push(name.clone()),
            false => check_level(name, agent, level, &offered)?,
        }
        check_setup(setup.as_ref(), level)?;
    }
    let settings = RunSettings {
        root: root.to_path_buf(),
        state: given.state.to_owned(),
        copies: state_folder::copies_folder(host)?,
        level: usual,
        container,
        branch: given.branch.clone(),
        land: land(request.land, configuration)?,
        agents,
        unusable,
        trust,
        committer: given.committer.clone(),
        parallel: usize::try_from(parallel).unwrap_or(usize::MAX),
        attempts: count("attempts"),
        repeats: count("repeats"),
        budget: Budget { task: allowance(configuration, "task")?, run: allowance(configuration, "run")? },
        auditor,
        setup,
        checks_base: checks_base(configuration)?,
        backoff: time("backoff")?,
        leases: LeaseTimes::of(time("lease")?),
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
fn usable(
    definition: AgentDefinition<'_>,
    needed: bool,
    usual: IsolationLevel,
    host: &HostUser,
) -> Result<AgentSettings, CommandError> {
    if definition.is_withheld() && !definition.is_external() {
        return Err(untrusted_agent_error(definition.name));
    }
    match needed {
        true => readiness::checked(definition, usual, host),
        false => readiness::agent(definition, usual, host),
    }
}

/// Who judges, if somebody does; never somebody who builds.
fn auditor(
    given: &SettingsInputs<'_>,
    agents: &BTreeMap<String, AgentSettings>,
) -> Result<Option<String>, CommandError> {
    let configuration = given.configuration;
    let Some(name) = configuration.text("roles.auditor") else {
        return match configuration.is_withheld("roles.auditor") {
            true => Err(trust::needs_trust_error("who audits")),
            false => Ok(None),
        };
    };
    let hint = format!("[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml");
    match agents.get(name) {
        None if configuration.is_withheld(&format!("agents.{name}.command")) => {
            Err(untrusted_agent_error(name))
        }
        None => {
            let what = format!("roles.auditor is `{name}`, and no such agent is configured");
            Err(CommandError::usage(what).with_hint(hint))
        }
        Some(agent) if agent.outside => Err(CommandError::usage(format!(
            "roles.auditor is `{name}`, which works outside and can't be asked"
        ))
        .with_hint(hint)),
        Some(_) if given.agents.contains(name) => {
            let what = format!("roles.auditor is `{name}`, which also builds; no agent audits its own work");
            Err(CommandError::usage(what)
                .with_hint("name another auditor, or give its tasks to another agent: `agency assign`"))
        }
        Some(_) => Ok(Some(name.to_owned())),
    }
}

/// What prepares a workspace, if something does. Without a file that says when it is to be done again, it would be done
/// once and never again, or each time: nobody can mean either.
fn setup(configuration: &Configuration) -> Result<Option<WorkspaceSetup>, CommandError> {
    const EXAMPLE: &str = "setup = { command = \"npm ci\", cache_key = [\"package-lock.json\"], network = [\"registry.npmjs.org:443\"] }";
    const KEYS: [&str; 3] = ["command", "cache_key", "network"];
    if KEYS.iter().any(|key| configuration.is_withheld(&format!("workspace.setup.{key}"))) {
        return Err(trust::needs_trust_error("how a workspace is prepared"));
    }
    let value = |key: &str| configuration.value(&["workspace", "setup", key]);
    if KEYS.iter().all(|key| value(key).is_none()) {
        return Ok(None);
    }
    let command = value("command").and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let Some(command) = command else {
        return Err(CommandError::usage("workspace.setup has no command").with_hint(EXAMPLE));
    };
    let keyed_by = string_list(value("cache_key"));
    if keyed_by.is_empty() {
        let what = "workspace.setup has no cache_key: name the files that decide when it has to run again";
        return Err(CommandError::usage(what).with_hint(EXAMPLE));
    }
    for path in &keyed_by {
        let refused = |reason: &str| {
            let shown = path.escape_debug();
            CommandError::usage(format!(
                "workspace.setup.cache_key: `{shown}` is no file of the repository: {reason}"
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
        Some(Value::String(text)) if text == "full" => NetworkAccess::Full,
        hosts @ Some(Value::Array(list)) if !list.is_empty() => {
            let hosts = string_list(hosts).join(",");
            HostAllowlist::parse(&hosts)
                .map_err(|error| CommandError::usage(format!("workspace.setup.network: {error}")))?;
            NetworkAccess::Hosts(hosts)
        }
        _ => NetworkAccess::None,
    };
    Ok(Some(WorkspaceSetup { command: command.to_owned(), keyed_by, network }))
}

/// Whether a profile's checks run on the base before its first task starts.
fn checks_base(configuration: &Configuration) -> Result<bool, CommandError> {
    match configuration.text("run.check_base") {
        None | Some("auto") => Ok(true),
        Some("never") => Ok(false),
        Some(other) => {
            Err(CommandError::usage(format!("run.check_base must be auto or never, and is `{other}`")))
        }
    }
}

/// A setup runs at the level of whoever needs it.
fn check_setup(setup: Option<&WorkspaceSetup>, level: IsolationLevel) -> Result<(), CommandError> {
    match setup {
        Some(WorkspaceSetup { network: NetworkAccess::Hosts(_), .. }) if !level.holds_host_lists() => {
            let what = format!(
                "isolation `{}` can't hold the list of hosts in workspace.setup.network",
                level.name()
            );
            Err(CommandError::new_message(ErrorKind::Unavailable, what)
                .with_hint("use \"none\" or \"full\" there, or --isolation process"))
        }
        _ => Ok(()),
    }
}

fn allowance(configuration: &Configuration, of: &str) -> Result<Allowance, CommandError> {
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
fn check_level(
    name: &str,
    agent: &AgentSettings,
    level: IsolationLevel,
    offered: &[HostCheck],
) -> Result<(), CommandError> {
    let unavailable = |message: String| CommandError::new_message(ErrorKind::Unavailable, message);
    if !level.holds_host_lists() && matches!(agent.program.network, NetworkAccess::Hosts(_)) {
        return Err(unavailable(format!(
            "isolation `{}` can't hold the list of hosts in agents.{name}.network",
            level.name()
        ))
        .with_hint("use \"none\" or \"full\" there, or --isolation process"));
    }
    let (level, needed) = (level.name(), level.required_checks());
    match offered.iter().find(|found| !found.ok && needed.contains(&found.name)) {
        Some(HostCheck { name, detail, hint, .. }) => {
            let failure = unavailable(format!("isolation `{level}` is not available here: {name}, {detail}"));
            Err(failure.or_hint(hint.as_deref().unwrap_or("`agency doctor` tells what this host offers")))
        }
        None => Ok(()),
    }
}

/// Agents of tasks that can't be started as they are configured, each with the reason.
pub(super) fn unusable<'a>(
    starts: impl Iterator<Item = &'a ReadyTask>,
    configuration: &Configuration,
    usual: IsolationLevel,
    host: &HostUser,
) -> Vec<(String, CommandError)> {
    let known = configuration.names(&["agents"]);
    let mut first: BTreeMap<&str, &ReadyTask> = BTreeMap::new();
    for start in starts {
        first.entry(start.agent.as_str()).or_insert(start);
    }
    let failure = |name: &str, start: &ReadyTask| match known.contains(name) {
        false => Some(unknown_agent(&start.task, name, configuration)),
        true => usable(AgentDefinition::new(name, configuration), true, usual, host).err(),
    };
    let found = first.into_iter().filter_map(|(name, start)| Some((name.to_owned(), failure(name, start)?)));
    found.collect()
}

/// A task is for an agent that nobody has configured.
fn unknown_agent(task: &TaskId, name: &str, configuration: &Configuration) -> CommandError {
    if configuration.is_withheld(&format!("agents.{name}.command")) {
        return untrusted_agent_error(name);
    }
    let hint = match nearest(name, configuration.names(&["agents"])) {
        Some(nearest) => format!("did you mean `{nearest}`? `agency assign` gives a task to another agent"),
        None => format!(
            "[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml; `agency agents` lists the known ones"
        ),
    };
    CommandError::usage(format!("{task} is for the agent `{name}`, and no such agent is configured"))
        .with_hint(hint)
}

fn land(asked: Option<LandingTarget>, configuration: &Configuration) -> Result<LandingTarget, CommandError> {
    let Some(name) = configuration.text("run.land").filter(|_| asked.is_none()) else {
        return Ok(asked.unwrap_or(LandingTarget::Merge));
    };
    match name.to_ascii_lowercase().as_str() {
        "merge" => Ok(LandingTarget::Merge),
        "branch" => Ok(LandingTarget::Branch),
        "none" => Ok(LandingTarget::None),
        _ => Err(CommandError::usage(format!("run.land: `{name}` is none of merge, branch and none"))),
    }
}

fn duration(configuration: &Configuration, path: &[&str]) -> Result<Option<Duration>, CommandError> {
    let text = configuration.value(path).and_then(Value::as_str);
    let found = text.map(units::duration).transpose();
    found.map_err(|reason| CommandError::usage(format!("{}: {reason}", path.join("."))))
}
