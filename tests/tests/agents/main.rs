//! The agents people use, for real: their own programs, started by `agency run`, against a scripted model on loopback.
//!
//! `scripts/install-agents` has put them in place, or has written down why not; then what needs them is skipped with
//! that reason.

mod documented;
mod first_hour;
mod given;
mod honest;
mod hostile;
mod listed;
mod offline;
mod parked;
mod shop;
mod transcript;
mod unwell;
