//! From flags and configuration to what a supervisor is told. Whatever is missing or wrong is one clear sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use agency_protocols::board::Start;
use agency_protocols::names::TaskId;
use agency_sandbox::doctor::{Finding, findings};
use agency_sandbox::egress::List;
use agency_sandbox::host::Host;
use agency_sandbox::policy::Level;
use agency_supervisor::budget::{Allowance, Budget};
use agency_supervisor::errand::order::{Limits, Reach, Trust as Trusted};
use agency_supervisor::landing::names::RefName;
use agency_supervisor::settings::{Agent, Committer, Land, Leases, Settings};
use clap::ValueEnum;
use toml::Value;

use super::Run;
use crate::arguments::Isolation;
use crate::board::Here;
use crate::configuration::Configuration;
use crate::configuration::trust::Trust;
use crate::message::{Failure, UNAVAILABLE};
use crate::sandbox::{copies, level};
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
}

pub(super) fn settings(given: &Given<'_>) -> Result<Settings, Failure> {
    let Given { command, configuration, here, host, .. } = given;
    let mut agents = BTreeMap::new();
    for name in configuration.names("agents") {
        let needed = given.agents.contains(name);
        if let Some(agent) = agent(name, needed, configuration)? {
            agents.insert(name.to_owned(), agent);
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
    let usual = match command.isolation {
        Some(isolation) => level(isolation)?,
        None => named_level(configuration, &["run", "isolation"])?.unwrap_or(Level::Process),
    };
    let auditor = auditor(given, &agents)?;
    let needed = |name: &str| given.agents.contains(name) || auditor.as_deref() == Some(name);
    // Asked once: it tries what this host offers.
    let offered = findings();
    for (name, agent) in agents.iter().filter(|(name, agent)| needed(name) && !agent.outside) {
        check_level(name, agent, agent.level.unwrap_or(usual), &offered)?;
    }
    Ok(Settings {
        root: here.folder.root.clone(),
        state: given.state.to_owned(),
        copies: copies(host),
        level: usual,
        branch: given.branch.clone(),
        land: land(command, configuration)?,
        agents,
        trust,
        committer: committer(here),
        parallel: usize::try_from(parallel).unwrap_or(usize::MAX),
        attempts: count("attempts"),
        repeats: count("repeats"),
        budget: Budget { task: allowance(configuration, "task")?, run: allowance(configuration, "run")? },
        auditor,
        backoff: time("backoff")?,
        leases: Leases::of(time("lease")?),
    })
}

/// What is configured for an agent; `None` for one that can't be started and is not needed.
fn agent(name: &str, needed: bool, configuration: &Configuration) -> Result<Option<Agent>, Failure> {
    let value = |key: &str| configuration.value(&["agents", name, key]);
    let command = texts(value("command"));
    let outside = value("outside").and_then(Value::as_bool).unwrap_or(false);
    if outside {
        return Ok(Some(Agent { outside, ..Agent::default() }));
    }
    if command.is_empty() {
        return match needed {
            false => Ok(None),
            true if configuration.is_withheld(&format!("agents.{name}.command")) => Err(untrusted(name)),
            true => Err(Failure::usage(format!("the agent `{name}` has no command")).with_hint(format!(
                "[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml"
            ))),
        };
    }
    let ms = |key: &str| -> Result<Option<u64>, Failure> {
        let found = duration(configuration, &["agents", name, key])?;
        Ok(found.map(|found| u64::try_from(found.as_millis()).unwrap_or(u64::MAX)))
    };
    let number =
        |key: &str| value(key).and_then(Value::as_integer).and_then(|count| u64::try_from(count).ok());
    let memory = value("memory").and_then(Value::as_str).map(units::size).transpose();
    let memory = memory.map_err(|reason| Failure::usage(format!("agents.{name}.memory: {reason}")))?;
    Ok(Some(Agent {
        command,
        outside,
        env: texts(value("env")),
        network: network(name, value("network"))?,
        limits: Limits {
            memory,
            processes: number("processes"),
            wall_ms: ms("timeout")?,
            stall_ms: ms("stall")?,
            grace_ms: ms("grace")?,
            output: None,
        },
        level: named_level(configuration, &["agents", name, "isolation"])?,
        parallel: number("parallel").and_then(|count| usize::try_from(count).ok()),
    }))
}

/// Who judges, if somebody does; never somebody who builds.
fn auditor(given: &Given<'_>, agents: &BTreeMap<String, Agent>) -> Result<Option<String>, Failure> {
    let configuration = given.configuration;
    let Some(name) = configuration.text("roles.auditor") else {
        return match configuration.is_withheld("roles.auditor") {
            true => Err(Failure::usage("agency.toml is not trusted, so it can't say who audits").with_hint(
                "`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once",
            )),
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
    if level == Level::Landlock && matches!(agent.network, Reach::Hosts(_)) {
        return Err(unavailable(format!(
            "isolation `landlock` can't hold the list of hosts in agents.{name}.network"
        ))
        .with_hint("use \"none\" or \"full\" there, or --isolation process"));
    }
    // An overlay that is not loaded yet is loaded when it is first mounted.
    let (level, needed): (_, &[&str]) = match level {
        Level::Process => ("process", &["kernel", "user-namespaces", "landlock"]),
        Level::Landlock => ("landlock", &["landlock"]),
        Level::Container => return Ok(()),
    };
    match offered.iter().find(|found| !found.ok && needed.contains(&found.name)) {
        Some(Finding { name, detail, hint, .. }) => {
            let failure = unavailable(format!("isolation `{level}` is not available here: {name}, {detail}"));
            Err(failure.or_hint(hint.as_deref().unwrap_or("`agency doctor` tells what this host offers")))
        }
        None => Ok(()),
    }
}

fn untrusted(name: &str) -> Failure {
    Failure::usage(format!("agency.toml is not trusted, so it can't say how the agent `{name}` is started"))
        .with_hint("`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once")
}

/// Agents of tasks that can't be started as they are configured, each with the reason.
pub(super) fn unusable<'a>(
    starts: impl Iterator<Item = &'a Start>,
    configuration: &Configuration,
) -> Vec<(String, Failure)> {
    let known = configuration.names("agents");
    let mut first: BTreeMap<&str, &Start> = BTreeMap::new();
    for start in starts {
        first.entry(start.agent.as_str()).or_insert(start);
    }
    let failure = |name: &str, start: &Start| match known.contains(name) {
        false => Some(unknown_agent(&start.task, name, configuration)),
        true => agent(name, true, configuration).err(),
    };
    let found = first.into_iter().filter_map(|(name, start)| Some((name.to_owned(), failure(name, start)?)));
    found.collect()
}

/// A task is for an agent that nobody has configured.
fn unknown_agent(task: &TaskId, name: &str, configuration: &Configuration) -> Failure {
    if configuration.is_withheld(&format!("agents.{name}.command")) {
        return untrusted(name);
    }
    let known: Vec<&str> = configuration.names("agents").into_iter().collect();
    let nearest =
        known.iter().max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    let hint = match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? `agency assign` gives a task to another agent"),
        None => format!("[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml"),
    };
    Failure::usage(format!("{task} is for the agent `{name}`, and no such agent is configured"))
        .with_hint(hint)
}

fn network(name: &str, value: Option<&Value>) -> Result<Reach, Failure> {
    match value {
        Some(Value::Array(_)) => {
            let list = texts(value).join(",");
            List::parse(&list).map_err(|error| Failure::usage(format!("agents.{name}.network: {error}")))?;
            Ok(Reach::Hosts(list))
        }
        Some(Value::String(text)) if text == "full" => Ok(Reach::Full),
        _ => Ok(Reach::None),
    }
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

fn named_level(configuration: &Configuration, path: &[&str]) -> Result<Option<Level>, Failure> {
    let Some(name) = configuration.value(path).and_then(Value::as_str) else { return Ok(None) };
    let isolation = Isolation::from_str(name, true)
        .map_err(|_| Failure::usage(format!("{}: there is no isolation `{name}`", path.join("."))))?;
    level(isolation).map(Some)
}

fn duration(configuration: &Configuration, path: &[&str]) -> Result<Option<Duration>, Failure> {
    let text = configuration.value(path).and_then(Value::as_str);
    let found = text.map(units::duration).transpose();
    found.map_err(|reason| Failure::usage(format!("{}: {reason}", path.join("."))))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Commits are made in the name of whoever runs this, as git knows them.
fn committer(here: &Here) -> Committer {
    Committer {
        name: here.git_says("user.name").unwrap_or_else(|| "agency".to_owned()),
        email: here.git_says("user.email").unwrap_or_else(|| "agency@localhost".to_owned()),
    }
}
