//! A command line that is not understood: what is wrong with it, and which command, flag or value was probably meant.

use std::ffi::OsString;

use agency_profiles::likeness::nearest;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::app::error::CommandError;
use crate::cli::command_line::Arguments;
use crate::cli::exit::USAGE;

/// Help and version go to standard output and are not errors; every other clap error becomes one line and a hint.
pub(crate) fn report(error: &clap::Error, typed: &[OsString]) -> Result<u8, CommandError> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Ok(0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Ok(USAGE)
        }
        _ => Err(CommandError::usage(message(error)).with_hint(hint(error, typed))),
    }
}

/// The error without the guesses of the parser, which are further off than ours.
fn message(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut message = lines.next().unwrap_or("the arguments are not right").to_owned();
    // What is missing stands on lines of its own, up to the usage.
    let lines = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    for line in lines.filter(|line| !(line.starts_with("tip:") && line.contains("similar"))) {
        message.push(' ');
        message.push_str(line);
    }
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

fn hint(error: &clap::Error, typed: &[OsString]) -> String {
    let mut all = Arguments::command();
    all.build();
    let (command, words) = called(&all, typed);
    let help = std::iter::once("agency help").chain(words.iter().copied()).collect::<Vec<_>>().join(" ");
    let wrong = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (guess, list) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let shown = command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
            let name = nearest(wrong(ContextKind::InvalidSubcommand), shown);
            let whole =
                |name| std::iter::once("agency").chain(words).chain([name]).collect::<Vec<_>>().join(" ");
            (name.map(whole), "lists the commands")
        }
        ErrorKind::UnknownArgument => {
            let flags =
                command.get_arguments().filter(|one| !one.is_hide_set()).filter_map(|one| one.get_long());
            let flag = nearest(wrong(ContextKind::InvalidArg).trim_start_matches('-'), flags);
            (flag.map(|flag| format!("--{flag}")), "has the options and an example")
        }
        ErrorKind::InvalidValue => {
            let known: &[String] = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => known,
                _ => &[],
            };
            let value = nearest(wrong(ContextKind::InvalidValue), known.iter().map(String::as_str));
            (value.map(str::to_owned), "has the options and an example")
        }
        _ => (None, "has the options and an example"),
    };
    match guess {
        Some(guess) => format!("did you mean `{guess}`?"),
        None => format!("`{help}` {list}"),
    }
}

/// The command that was typed, as far as it is one, and its words.
fn called<'a>(all: &'a Command, typed: &[OsString]) -> (&'a Command, Vec<&'a str>) {
    let (mut command, mut words) = (all, Vec::new());
    for word in typed.iter().skip(1) {
        // What follows is the command's own, or its arguments.
        if command.get_subcommands().next().is_none() || word == "--" {
            break;
        }
        if let Some(found) = command.find_subcommand(word) {
            command = found;
            words.push(found.get_name());
        }
    }
    (command, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> (String, String) {
        let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Arguments::read(&typed).expect_err("not understood");
        let failure = report(&error, &typed).expect_err("an error");
        (failure.message, failure.hint.unwrap_or_default())
    }

    #[test]
    fn a_guess_is_made_only_where_it_is_close() {
        for (line, guess) in [
            ("agency rnu", "agency run"),
            ("agency taks list", "agency task"),
            ("agency stauts", "agency status"),
            ("agency --as human stauts", "agency status"),
            ("agency task sohw T1", "agency task show"),
            ("agency run --paralel 3", "--parallel"),
            ("agency task new --titel x", "--title"),
            ("agency status --protcol kodingx", "--protocol"),
            ("agency run --land brnch", "branch"),
        ] {
            let (message, hint) = said(line);
            assert_eq!(hint, format!("did you mean `{guess}`?"), "{line}");
            assert!(!message.contains("tip:") && !message.contains('\n'), "{line}: {message}");
        }
        for (line, hint) in [
            ("agency deploy", "`agency help` lists the commands"),
            ("agency task drop T1", "`agency help task` lists the commands"),
            ("agency run --frobnicate", "`agency help run` has the options and an example"),
            ("agency run --land zzz", "`agency help run` has the options and an example"),
            ("agency show", "`agency help show` has the options and an example"),
            ("agency task move 1", "`agency help task move` has the options and an example"),
            // It is hidden.
            ("agency shmi", "`agency help` lists the commands"),
        ] {
            assert_eq!(said(line).1, hint, "{line}");
        }
    }
}
