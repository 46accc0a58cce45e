//! `agency`: the command line.
//!
//! This crate parses what people type, calls the libraries, and prints; nothing else does. `agency sandbox`
//! must stay single-threaded until its command has started, so nothing here starts a runtime on the way in.

mod arguments;
mod doctor;
mod message;
mod sandbox;
mod units;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use message::Failure;

fn main() -> ExitCode {
    let result = match Arguments::try_parse() {
        Ok(arguments) => match arguments.command {
            Command::Sandbox(command) => sandbox::run(&command),
            Command::Doctor(command) => doctor::run(&command),
        },
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
