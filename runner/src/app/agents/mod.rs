//! Agents: how each is started, what it is given and how it is understood ([`definition`]), whether its program is there
//! ([`program`]) and has what it needs ([`readiness`]), and what it costs ([`pricing`]).
//!
//! The settings of an agent are a table (`configuration/presets.toml`) with the keys of any configuration. [`listing`] says
//! all of it.

pub(crate) mod definition;
pub(crate) mod listing;
pub(crate) mod pricing;
pub(crate) mod program;
pub(crate) mod readiness;

use crate::app::configuration::{Configuration, trust};
use crate::app::error::CommandError;
use agency_profiles::likeness::nearest;

/// The error that a user has to look at how an agent is started, before it is.
pub(crate) fn untrusted_agent_error(name: &str) -> CommandError {
    trust::needs_trust_error(&format!("how the agent `{name}` is started"))
}

/// Nobody has configured an agent of this name.
pub(crate) fn unknown_agent_error(name: &str, configuration: &Configuration) -> CommandError {
    let list = "`agency agents` lists those that there are";
    let hint = match nearest(name, configuration.names(&["agents"])) {
        Some(nearest) => format!("did you mean `{nearest}`? {list}"),
        None => list.to_owned(),
    };
    CommandError::usage(format!("there is no agent `{name}`")).with_hint(hint)
}
