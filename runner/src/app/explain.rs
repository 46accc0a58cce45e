//! Every setting, its value, and where it comes from.

use serde::Serialize;
use toml::Value;

use crate::app::configuration::Configuration;
use crate::app::configuration::schema::{ConfigKey, KEYS, TrustRequirement};

/// A setting, and where it comes from.
#[derive(Debug, Serialize)]
pub(crate) struct ExplainedSetting {
    pub(crate) key: String,
    pub(crate) value: Option<Value>,
    /// The file that says it, or `default`; nothing where no file does.
    pub(crate) from: Option<String>,
    /// The repository says something, and the user has not trusted it.
    pub(crate) withheld: bool,
    pub(crate) needs_trust: bool,
    pub(crate) means: &'static str,
}

/// Every setting there is.
pub(crate) fn explain(configuration: &Configuration) -> Vec<ExplainedSetting> {
    KEYS.iter().flat_map(|key| settings(configuration, key)).collect()
}

/// A key, for every name that stands for its `*`.
fn settings(configuration: &Configuration, key: &ConfigKey) -> Vec<ExplainedSetting> {
    if !key.path.contains('*') {
        return vec![setting(configuration, key, key.path.to_owned(), &[])];
    }
    // Agents that no configuration mentions are shown by `agency agents show`.
    let mut all = named(configuration, key.path);
    all.retain(|names| configuration.is_mentioned(names[0]));
    match all.is_empty() {
        true => vec![setting(configuration, key, key.path.to_owned(), &[])],
        false => all
            .iter()
            .map(|names| {
                let full = names.iter().fold(key.path.to_owned(), |path, name| path.replacen('*', name, 1));
                setting(configuration, key, full, names)
            })
            .collect(),
    }
}

/// Every choice of names for the stars of a path.
fn named<'a>(configuration: &'a Configuration, path: &'static str) -> Vec<Vec<&'a str>> {
    let mut choices: Vec<(Vec<&str>, Vec<&str>)> = vec![Default::default()];
    for part in path.split('.') {
        choices = choices
            .into_iter()
            .flat_map(|(table, names)| {
                let known = if part == "*" { configuration.names(&table) } else { [part].into() };
                known.into_iter().map(move |step| {
                    let chosen = names.iter().copied().chain((part == "*").then_some(step));
                    ([&table[..], &[step]].concat(), chosen.collect())
                })
            })
            .collect();
    }
    choices.into_iter().map(|(_, names)| names).collect()
}

/// `names` are those that people chose: they may hold a dot.
fn setting(configuration: &Configuration, key: &ConfigKey, full: String, names: &[&str]) -> ExplainedSetting {
    let mut names = names.iter();
    let part = |part: &'static str| if part == "*" { names.next().copied().unwrap_or("*") } else { part };
    let path: Vec<&str> = key.path.split('.').map(part).collect();
    let found = configuration.found(&path);
    ExplainedSetting {
        value: found.map(|(value, _)| value.clone()),
        from: found.map(|(_, from)| from.to_owned()),
        withheld: configuration.is_withheld(&full),
        needs_trust: key.needs == TrustRequirement::Trust,
        means: key.means,
        key: full,
    }
}
