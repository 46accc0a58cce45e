//! What shells and `man` know of this program, made from what can be typed.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::app::error::CommandError;
use crate::cli::output::{print, print_bytes};

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    #[arg(value_enum)]
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples, each to be written where the shell looks for completions:
  agency completions bash
  agency completions zsh
  agency completions fish";

/// Print a manual page, or write all pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  agency man run\n  agency man --into ~/.local/share/man/man1")]
pub(crate) struct ManualArgs {
    /// The command: `run`, `task new`
    #[arg(value_name = "COMMAND", conflicts_with = "into")]
    command: Vec<String>,
    /// Write every page into this folder
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

pub(crate) fn completions(command: &CompletionsArgs, all: &clap::Command) -> Result<u8, CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(command.shell, &mut whole(all), "agency", &mut text);
    print_bytes(&text)?;
    Ok(0)
}

pub(crate) fn manual(command: &ManualArgs, all: &clap::Command) -> Result<u8, CommandError> {
    let whole = whole(all);
    match &command.into {
        Some(folder) => write_all(&whole, folder)?,
        None => {
            let found = command.command.iter().try_fold(&whole, |within, name| within.find_subcommand(name));
            let found = found.ok_or_else(|| {
                CommandError::usage(format!("there is no command `{}`", command.command.join(" ")))
                    .with_hint("agency --help lists them")
            })?;
            let page = page(found)?;
            if !crate::pager::show_manual(&page) {
                print(&page)?;
            }
        }
    }
    Ok(0)
}

/// All commands, with the full names of subcommands.
fn whole(all: &clap::Command) -> clap::Command {
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut whole = clap::Command::new("agency")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(shown.collect::<Vec<_>>());
    whole.build();
    whole
}

fn page(command: &clap::Command) -> Result<String, CommandError> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    Man::new(command.clone())
        .title(name)
        .render(&mut text)
        .map_err(|error| CommandError::internal(&error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write_all(command: &clap::Command, folder: &Path) -> Result<(), CommandError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    // In somebody's folder, a link of theirs may be in its place.
    let _ = std::fs::remove_file(&path);
    let text = page(command)?;
    let made = std::fs::File::options().write(true).create_new(true).open(&path);
    made.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| CommandError::usage(format!("can't write {}: {error}", path.display())))?;
    let mut commands = command.get_subcommands().filter(|one| one.get_name() != "help");
    commands.try_for_each(|one| write_all(one, folder))
}
