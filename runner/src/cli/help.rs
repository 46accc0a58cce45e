//! `agency --help`: the commands by what people want to do.

use clap::Command;

/// Every command that is shown, each in one group.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start here", &["demo", "init", "doctor", "agents", "trust"]),
    ("Tasks", &["task", "assign", "status", "import", "archive", "lint"]),
    ("Run", &["run", "ps", "logs", "decide", "retry", "cancel", "pause", "resume", "drain"]),
    ("Results", &["summary", "show", "diff", "report", "verify", "undo"]),
    ("Sandbox", &["sandbox"]),
    ("Boards", &["install", "upgrade", "migrate"]),
    ("This program", &["config", "adopt", "store", "completions", "man"]),
];

const TEMPLATE: &str = "{about}\n\nUsage: agency COMMAND [OPTIONS]\n{after-help}\nOptions:\n{options}\n";

/// The command line with its commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let commands = listed(&command);
    command.help_template(TEMPLATE).after_help(commands)
}

fn listed(command: &Command) -> String {
    let about = |name: &str| {
        let found = command.find_subcommand(name).and_then(Command::get_about);
        found.map(ToString::to_string).unwrap_or_default()
    };
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("\n{heading}:\n"));
        for name in *names {
            text.push_str(&format!("  {name:<12} {}\n", about(name)));
        }
    }
    text.push_str("\n`agency help COMMAND` has the options and an example.\n");
    text
}

/// `agency help task new` is `agency task new --help`. What comes after the name of a command is not for the command:
/// `agency help sandbox ls` starts nothing.
pub(super) fn as_flag(all: &Command, typed: &[std::ffi::OsString]) -> Option<Vec<std::ffi::OsString>> {
    let [program, help, rest @ ..] = typed else { return None };
    if help != "help" || rest.iter().any(|word| word.to_string_lossy().starts_with('-')) {
        return None;
    }
    let (mut command, mut named) = (all, 0);
    while let Some(inner) = rest.get(named).and_then(|word| command.find_subcommand(word)) {
        (command, named) = (inner, named + 1);
    }
    // A word that is no command is named by an error, where there are commands.
    let last = if command.has_subcommands() { rest.len() } else { named };
    Some([std::slice::from_ref(program), &rest[..last], &["--help".into()]].concat())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::command_line::Arguments;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Arguments::command();
        let shown: BTreeSet<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(grouped.len(), shown.len(), "a command is in two groups");
    }

    #[test]
    fn help_of_a_command_is_its_flag() {
        let typed = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let as_flag = |line: &str| as_flag(&Arguments::command(), &typed(line));
        for (line, flag) in [
            ("agency help task new", "agency task new --help"),
            ("agency help", "agency --help"),
            ("agency help sandbox touch x", "agency sandbox --help"),
            ("agency help run T0001", "agency run --help"),
            ("agency help rnu", "agency rnu --help"),
            ("agency help task nwe", "agency task nwe --help"),
        ] {
            assert_eq!(as_flag(line), Some(typed(flag)), "{line}");
        }
        assert_eq!(as_flag("agency run"), None);
        assert_eq!(as_flag("agency help --help"), None);
    }
}
