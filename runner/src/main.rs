//! `agency`: the command line.
//!
//! This crate parses what people type, calls the libraries, and prints; nothing else does. `agency sandbox`
//! must stay single-threaded until its command has started, so nothing here starts a runtime on the way in.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod app;
mod cli;
mod drop_root;
mod pager;

use std::io::Write;
use std::process::ExitCode;

use agency_sandbox::container::INIT_ARGUMENT;
use agency_sandbox::fsmonitor;
use agency_sandbox::init;

use crate::app::error::CommandError;
use cli::command_line::Arguments;
use cli::dispatch::dispatch;
use cli::exit::error_exit_code;
use cli::{message, usage_error};

fn main() -> ExitCode {
    if let Some(answer) = fsmonitor::answer(std::env::args_os()) {
        let told = std::io::stdout().write_all(&answer);
        return if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let typed: Vec<_> = std::env::args_os().collect();
    if typed.get(1).is_some_and(|word| word == INIT_ARGUMENT) {
        init::container::run()
    }
    let result = match Arguments::read(&typed) {
        Ok(arguments) => dispatch(arguments),
        Err(error) => usage_error::report(&error, &typed),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(CommandError { kind, message, hint }) => {
            message::print_error(&message, hint.as_deref());
            ExitCode::from(error_exit_code(kind))
        }
    }
}
