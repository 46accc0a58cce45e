//! Which agents can be used here, or why not.

use std::path::PathBuf;

use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use serde::Serialize;
use toml::Value;

use super::definition::AgentDefinition;
use super::readiness::{self, CredentialStatus};
use super::{program, unknown_agent_error, untrusted_agent_error};
use crate::app::configuration::Configuration;
use crate::app::error::CommandError;
use crate::app::isolation;

/// What is known of one agent.
#[derive(Debug, Serialize)]
pub(crate) struct AgentStatus {
    pub(crate) name: String,
    pub(crate) ready: bool,
    /// Why it can't be used, and what would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Where its program is.
    pub(crate) program: Option<PathBuf>,
    pub(crate) version: Option<String>,
    #[serde(flatten)]
    pub(crate) credentials: Option<CredentialStatus>,
}

/// Every agent that is known by name or configured.
pub(crate) fn list(configuration: &Configuration) -> Result<Vec<AgentStatus>, CommandError> {
    let (host, usual) = (HostUser::observe(), isolation::default_level(None, configuration)?);
    let names = configuration.names(&["agents"]).into_iter();
    Ok(names.map(|name| status(AgentDefinition::new(name, configuration), usual, &host)).collect())
}

/// The agents that log in somewhere, and whose programs are installed. Whether they are ready takes longer to find out.
pub(crate) fn installed(configuration: &Configuration) -> Vec<String> {
    let host = HostUser::observe();
    let is_installed = |name: &&str| {
        let command = AgentDefinition::new(name, configuration).command();
        let logs_in = configuration.text(&format!("agents.{name}.login")).is_some();
        let program = command.first().filter(|program| logs_in && program::is_host_program(program));
        program.is_some_and(|program| program::find(program, &host).is_some())
    };
    configuration.names(&["agents"]).into_iter().filter(is_installed).map(str::to_owned).collect()
}

/// All that is known of an agent, as agency.toml would say it.
pub(crate) fn show(configuration: &Configuration, name: &str) -> Result<Value, CommandError> {
    configuration.whole("agents").remove(name).ok_or_else(|| unknown_agent_error(name, configuration))
}

fn status(definition: AgentDefinition<'_>, usual: IsolationLevel, host: &HostUser) -> AgentStatus {
    let name = definition.name.to_owned();
    let defined = definition.agent(host).ok();
    let command = definition.command();
    let contained = defined.as_ref().is_some_and(|agent| readiness::is_contained(agent, usual));
    let ours = command.first().filter(|program| program::is_host_program(program) && !contained);
    let found = ours.and_then(|program| program::find(program, host));
    let inspected = match definition.is_withheld() {
        true => Err(untrusted_agent_error(definition.name)),
        false => readiness::inspected(definition, usual, host),
    };
    let (ready, version, failure) = match inspected {
        Ok(version) => (true, version, None),
        Err(failure) => (false, None, Some(failure)),
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
