//! The front ends of verbs: one file for each, with what can be typed and what is printed.

pub(crate) mod agents;
mod argument_file;
pub(crate) mod board;
pub(crate) mod caller;
pub(crate) mod command_line;
pub(crate) mod demo;
pub(crate) mod dispatch;
pub(crate) mod doctor;
pub(crate) mod exit;
pub(crate) mod explain;
mod help;
pub(crate) mod history;
pub(crate) mod manual;
pub(crate) mod message;
pub(crate) mod output;
pub(crate) mod prompt;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod telemetry;
pub(crate) mod terminal;
pub(crate) mod trust;
pub(crate) mod usage_error;
