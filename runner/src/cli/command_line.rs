//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cli::caller::CallerArgs;
use crate::cli::sandbox::arguments::SandboxArgs;
use crate::cli::{agents, board, demo, doctor, explain, help, history, manual, run, trust};

/// Runs coding agents unattended. Only in-scope, verified changes reach your branch.
#[derive(Debug, Parser)]
#[command(name = "agency", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) who: CallerArgs,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// A sandbox and nothing else.
#[derive(Debug, Parser)]
#[command(name = "agency")]
struct SandboxCommandLine {
    #[command(flatten)]
    who: CallerArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

impl Arguments {
    /// Parses the command line. Describing every command to clap takes a tenth of a sandbox's start, so `sandbox` is
    /// tried alone first. If that fails, all commands are described, so that the error message can name them.
    pub(crate) fn read(typed: &[OsString]) -> Result<Self, clap::Error> {
        if let [program, command, rest @ ..] = typed
            && command == "sandbox"
            && let Ok(only) = SandboxCommandLine::try_parse_from([program].into_iter().chain(rest))
        {
            return Ok(Self { who: only.who, command: CliCommand::Sandbox(Box::new(only.sandbox)) });
        }
        let all = Self::command();
        let rewritten = help::as_flag(&all, typed);
        let typed = rewritten.as_deref().unwrap_or(typed);
        let matches = help::grouped(all).try_get_matches_from(typed)?;
        Self::from_arg_matches(&matches)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Demo(demo::DemoArgs),
    Init(board::scaffold::InitArgs),
    Install(board::scaffold::InstallArgs),
    Upgrade(board::scaffold::UpgradeArgs),
    #[command(subcommand)]
    Task(board::task::TaskCommand),
    Assign(Box<board::task::AssignArgs>),
    Status(board::status::StatusArgs),
    Summary(history::summary::SummaryArgs),
    Show(history::show::ShowArgs),
    Diff(history::diff::DiffArgs),
    Undo(Box<history::undo::UndoArgs>),
    Report(board::report::ReportArgs),
    Verify(Box<board::verify::VerifyArgs>),
    Trust(trust::TrustArgs),
    Archive(board::archive::ArchiveArgs),
    Migrate(board::migrate::MigrateArgs),
    Import(board::import::ImportArgs),
    Lint(board::lint::LintArgs),
    Run(Box<run::RunArgs>),
    Ps(run::ps::PsArgs),
    Logs(run::logs::LogsArgs),
    Cancel(run::control::CancelArgs),
    Decide(run::decide::DecideArgs),
    Retry(run::control::RetryArgs),
    Pause(run::control::PauseArgs),
    Resume(run::control::ResumeArgs),
    Drain(run::control::DrainArgs),
    Adopt(run::adopt::AdoptArgs),
    #[command(subcommand)]
    Store(run::store::StoreCommand),
    Sandbox(Box<SandboxArgs>),
    Agents(Box<agents::AgentsArgs>),
    Doctor(doctor::DoctorArgs),
    #[command(subcommand)]
    Config(explain::ConfigCommand),
    Completions(manual::CompletionsArgs),
    Man(manual::ManualArgs),
    /// What a supervisor starts for each sandbox
    #[command(hide = true)]
    Shim {
        folder: PathBuf,
        term: u64,
    },
    /// What a shim starts to read what an agent wrote
    #[command(hide = true)]
    ReadClaim {
        /// Protocol, kind, task and agent
        #[arg(num_args = 4, required = true)]
        about: Vec<String>,
    },
}

#[cfg(test)]
mod tests {

    use super::*;

    /// However a sandbox is asked for, trying it by itself changes nothing about what is understood or said.
    #[test]
    fn a_sandbox_by_itself_is_understood_as_it_is_among_all_commands() {
        for line in [
            "agency sandbox -- true",
            "agency sandbox --write src/** --discard -- /bin/true",
            "agency sandbox --write a --write b --deny c --net full --processes 7 --tty make -j --json",
            "agency sandbox --as human --protocol kodingx --json true",
            "agency --as human sandbox --json true",
            "agency sandbox --without landlock,seccomp --layer disk --timeout 90s sandbox sandbox",
            "agency sandbox --patch out --base main -- sh -c true",
            "agency sandbox",
            "agency sandbox --help",
            "agency sandbox -h",
            "agency sandbox --version",
            "agency sandbox --writes src -- true",
            "agency sandbox --apply --discard -- true",
            "agency sandbox --protocol none -- true",
            "agency sandbox --memory much -- true",
            "agency sandboxes",
            "agency doctor --json",
            "agency",
        ] {
            let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let all = help::grouped(Arguments::command()).try_get_matches_from(&typed);
            let whole = all.and_then(|matches| Arguments::from_arg_matches(&matches));
            let read = Arguments::read(&typed);
            let shown = |result: Result<Arguments, clap::Error>| match result {
                Ok(arguments) => format!("{arguments:?}"),
                Err(error) => format!("{:?} {}", error.kind(), error.render()),
            };
            assert_eq!(shown(read), shown(whole), "{line}");
        }
    }
}
