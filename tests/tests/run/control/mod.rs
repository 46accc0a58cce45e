//! What people say to a supervisor that runs, by commands and by signals.

mod commands;
mod logs;
mod modes;
mod signals;
