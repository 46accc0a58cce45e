//! Which front end answers which command.

use clap::CommandFactory;

use crate::app::board::Caller;
use crate::app::error::CommandError;
use crate::cli::command_line::{Arguments, CliCommand};
use crate::cli::{agents, board, demo, doctor, explain, history, manual, run, sandbox, trust};
use crate::drop_root;

/// Runs a command. Returns its exit code.
pub(crate) fn dispatch(Arguments { who, command }: Arguments) -> Result<u8, CommandError> {
    let who = Caller::from(who);
    // All others work on the folder they are called in.
    let is_elsewhere = matches!(
        command,
        CliCommand::Completions(_)
            | CliCommand::Demo(_)
            | CliCommand::Doctor(_)
            | CliCommand::Man(_)
            | CliCommand::Shim { .. }
            | CliCommand::ReadClaim { .. }
    );
    if !is_elsewhere {
        drop_root::become_owner()?;
    }
    match command {
        CliCommand::Init(command) => board::scaffold::init(&command, &who),
        CliCommand::Install(command) => board::scaffold::install(&command, &who),
        CliCommand::Upgrade(command) => board::scaffold::upgrade(&command, &who),
        CliCommand::Task(command) => board::task::run(&command, &who),
        CliCommand::Assign(command) => board::task::assign(&command, &who),
        CliCommand::Status(command) => board::status::run(&command, &who),
        CliCommand::Summary(command) => history::summary::run(&command, &who),
        CliCommand::Show(command) => history::show::run(&command, &who),
        CliCommand::Diff(command) => history::diff::run(&command, &who),
        CliCommand::Undo(command) => history::undo::run(&command, &who),
        CliCommand::Report(command) => board::report::run(&command, &who),
        CliCommand::Verify(command) => board::verify::run(&command, &who),
        CliCommand::Trust(command) => trust::run(&command),
        CliCommand::Archive(command) => board::archive::run(&command, &who),
        CliCommand::Migrate(command) => board::migrate::run(&command, &who),
        CliCommand::Import(command) => board::import::run(&command, &who),
        CliCommand::Lint(command) => board::lint::run(&command, &who),
        CliCommand::Run(command) => run::run(&command, &who),
        CliCommand::Ps(command) => run::ps::run(&command),
        CliCommand::Logs(command) => run::logs::run(&command, &who),
        CliCommand::Cancel(command) => run::control::cancel(&command, &who),
        CliCommand::Decide(command) => run::decide::run(&command, &who),
        CliCommand::Retry(command) => run::control::retry(&command, &who),
        CliCommand::Pause(command) => run::control::pause(&command),
        CliCommand::Resume(command) => run::control::resume(&command),
        CliCommand::Drain(command) => run::control::drain(&command),
        CliCommand::Adopt(command) => run::adopt::run(&command),
        CliCommand::Store(command) => run::store::run(&command),
        CliCommand::Demo(command) => demo::run(&command),
        CliCommand::Sandbox(command) => sandbox::run(&command),
        CliCommand::Doctor(command) => doctor::run(&command),
        CliCommand::Agents(command) => agents::run(&command),
        CliCommand::Config(command) => explain::run(&command),
        CliCommand::Completions(command) => manual::completions(&command, &Arguments::command()),
        CliCommand::Man(command) => manual::manual(&command, &Arguments::command()),
        CliCommand::Shim { folder, term } => run::shim(&folder, term),
        CliCommand::ReadClaim { about } => run::read_claim::run(&about),
    }
}
