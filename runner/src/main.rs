//! `agency`: the command line.
//!
//! This crate parses what people type, calls the libraries, and prints; nothing else does. `agency sandbox`
//! must stay single-threaded until its command has started, so nothing here starts a runtime on the way in.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod agents;
mod arguments;
mod board;
mod configuration;
mod demo;
mod doctor;
mod http;
mod import;
mod isolation;
mod manual;
mod message;
mod owner;
mod place;
mod run;
mod sandbox;
mod state;
mod telemetry;
mod units;

use std::io::Write;
use std::process::ExitCode;

use agency_sandbox::changed;
use agency_sandbox::container::guest;

use arguments::{Arguments, Command};
use message::Failure;

fn main() -> ExitCode {
    if let Some(answer) = changed::answer(std::env::args_os()) {
        let told = std::io::stdout().write_all(&answer);
        return if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let typed: Vec<_> = std::env::args_os().collect();
    if typed.get(1).is_some_and(|word| word == guest::WORD) {
        guest::live()
    }
    let result = match Arguments::read(&typed) {
        Ok(arguments) => act(arguments),
        Err(error) => message::usage(error),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message, hint }) => {
            message::complain(&message, hint.as_deref());
            ExitCode::from(code)
        }
    }
}

/// Does what was asked for. Returns the exit code.
fn act(Arguments { who, command }: Arguments) -> Result<u8, Failure> {
    // All others work on the folder they are called in.
    let is_elsewhere = matches!(
        command,
        Command::Completions(_)
            | Command::Demo(_)
            | Command::Doctor(_)
            | Command::Man(_)
            | Command::Shim { .. }
            | Command::ReadClaim { .. }
    );
    if !is_elsewhere {
        owner::become_owner()?;
    }
    match command {
        Command::Init(command) => board::scaffold::init(&command, &who),
        Command::Install(command) => board::scaffold::install(&command, &who),
        Command::Upgrade(command) => board::scaffold::upgrade(&command, &who),
        Command::Task(command) => board::task::run(&command, &who),
        Command::Assign(command) => board::task::assign(&command, &who),
        Command::Status(command) => board::status::run(&command, &who),
        Command::Report(command) => board::report::run(&command, &who),
        Command::Verify(command) => board::verify::run(&command, &who),
        Command::Trust(command) => configuration::trust::run(&command),
        Command::Archive(command) => board::archive::run(&command, &who),
        Command::Migrate(command) => board::migrate::run(&command, &who),
        Command::Import(command) => board::import::run(&command, &who),
        Command::Lint(command) => board::lint::run(&command, &who),
        Command::Run(command) => run::run(&command, &who),
        Command::Ps(command) => run::ps::run(&command),
        Command::Logs(command) => run::logs::run(&command, &who),
        Command::Cancel(command) => run::control::cancel(&command, &who),
        Command::Decide(command) => run::decide::run(&command, &who),
        Command::Retry(command) => run::control::retry(&command, &who),
        Command::Pause(command) => run::control::pause(&command),
        Command::Resume(command) => run::control::resume(&command),
        Command::Drain(command) => run::control::drain(&command),
        Command::Adopt(command) => run::adopt::run(&command),
        Command::Store(command) => run::store::run(&command),
        Command::Demo(command) => demo::run(&command),
        Command::Sandbox(command) => sandbox::run(&command),
        Command::Doctor(command) => doctor::run(&command),
        Command::Agents(command) => agents::run(&command),
        Command::Config(command) => configuration::explain::run(&command),
        Command::Completions(command) => manual::completions(&command),
        Command::Man(command) => manual::manual(&command),
        Command::Shim { folder, term } => run::shim(&folder, term),
        Command::ReadClaim { about } => run::read_claim::run(&about),
    }
}
