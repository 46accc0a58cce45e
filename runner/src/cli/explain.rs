//! `agency config explain`: every setting, its value, and where it comes from.

use clap::{Args, Subcommand};
use serde::Serialize;
use toml::Value;

use crate::app::configuration::schema::{ConfigKey, KEYS, TrustRequirement};
use crate::app::configuration::{Configuration, FILE};
use crate::app::error::{CommandError, without_control_chars};
use crate::cli::caller::ConfigArgs;
use crate::cli::output::{print, print_json};

/// Show what is configured
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency config explain")]
pub(crate) enum ConfigCommand {
    Explain(ExplainArgs),
}

/// Show every setting, its value, and where it comes from
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency config explain --json")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    operator: ConfigArgs,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct ExplainedSetting {
    key: String,
    value: Option<Value>,
    /// The file that says it, or `default`; nothing where nobody does.
    from: Option<String>,
    /// The repository says something, and nobody has trusted it.
    withheld: bool,
    needs_trust: bool,
    means: &'static str,
}

pub(crate) fn run(command: &ConfigCommand) -> Result<u8, CommandError> {
    let ConfigCommand::Explain(explain) = command;
    let here = crate::cli::caller::repository()?;
    let configuration = explain.operator.load(&here.folder.root)?;
    let settings: Vec<ExplainedSetting> = KEYS.iter().flat_map(|key| settings(&configuration, key)).collect();
    match explain.json {
        true => print_json(&serde_json::json!({ "version": VERSION, "settings": settings }))?,
        false => print(&table(&settings))?,
    }
    Ok(0)
}

/// A key, for every name that stands for its `*`.
fn settings(configuration: &Configuration, key: &ConfigKey) -> Vec<ExplainedSetting> {
    if !key.path.contains('*') {
        return vec![setting(configuration, key, key.path.to_owned(), &[])];
    }
    // Agents that nobody has mentioned are shown by `agency agents show`.
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

fn table(settings: &[ExplainedSetting]) -> String {
    let rows: Vec<[String; 4]> = settings
        .iter()
        .map(|setting| {
            let value = setting.value.as_ref().and_then(|value| serde_json::to_string(value).ok());
            let value = value.unwrap_or_else(|| "-".to_owned());
            let from = match (&setting.from, setting.withheld) {
                (from, true) => format!("{}; {FILE} is not trusted", from.as_deref().unwrap_or("-")),
                (Some(from), false) => from.clone(),
                (None, false) => "-".to_owned(),
            };
            [setting.key.clone(), value, from, setting.means.to_owned()]
                .map(|cell| without_control_chars(&cell))
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    rows.iter()
        .map(|[key, value, from, means]| {
            let [a, b, c] = widths;
            format!("{key:<a$}  {value:<b$}  {from:<c$}  {means}\n")
        })
        .collect()
}
