//! Imports from servers on this machine that say what GitHub and Jira say.

mod adf;
mod arbitrary;
mod github;
mod jira;
mod serving;
mod tls;
mod trust;

use std::ffi::OsString;

use super::{ImportError, TrackerServer};

/// What `agency import` would read from the environment, and nothing of the one the tests run in.
fn server(api_url: &str, variables: &[(&str, &str)]) -> TrackerServer {
    TrackerServer::in_environment(Some(api_url.to_owned()), |wanted| {
        variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| OsString::from(value))
    })
}

/// Everything anybody could get to see of an error.
fn shown(error: &ImportError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{error} | {source} | {} | {error:?}", error.hint())
}
