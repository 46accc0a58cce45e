//! `agency config explain`: every setting, its value, and where it comes from.

use clap::{Args, Subcommand};

use crate::app::configuration::FILE;
use crate::app::error::{CommandError, without_control_chars};
use crate::app::explain::{ExplainedSetting, explain};
use crate::cli::caller::{ConfigArgs, repository};
use crate::cli::output::{print, print_json};

/// Show the configuration
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const VERSION: u32 = 1;

pub(crate) fn run(command: &ConfigCommand) -> Result<u8, CommandError> {
    let ConfigCommand::Explain(asked) = command;
    let here = repository()?;
    let configuration = asked.operator.load(&here.folder.root)?;
    let settings = explain(&configuration);
    match asked.json {
        true => print_json(&serde_json::json!({ "version": VERSION, "settings": settings }))?,
        false => print(&table(&settings))?,
    }
    Ok(0)
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
