//! Decides which attempt runs where, and when.
//!
//! ```text
//! startup         takes charge of a repository for one run
//! own_terms       the terms under which a supervisor is in charge
//! dispatch        the queue: what can start, what can be taken over, what people want
//! driver          one attempt, from its claim to its end, step by step
//! job             a sandbox that runs for an attempt, and outlives the supervisor that sent it
//! base_check      a profile's checks, run on the branch as it is before its first task starts
//! budget          how much may be used, for a task and for a run
//! agent_slots     how many of an agent are at work, to build or to judge
//! store           whose an attempt is, and how far it has come
//! store_identity  which store a repository belongs to
//! rebuild         a damaged store, made anew from what git and the records say
//! retention       what is settled and old, and goes
//! board_thread    the board's files, one thing after the other
//! ```
//!
//! The protocols say what work is, the sandbox where it runs, the profiles when it is done; nothing of theirs is
//! decided here. See `docs/architecture.md` for how the crates fit together.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod agent_slots;
pub mod attempt;
pub mod base_check;
pub mod board_sync;
pub mod board_thread;
pub mod budget;
pub mod clock;
pub mod dispatch;
pub mod driver;
pub mod evidence;
mod failed_commands;
mod folder_watch;
pub mod host_fault;
pub mod job;
mod log_excerpt;
pub mod output_signals;
mod own_terms;
mod owner_lock;
mod prompt;
pub mod rebuild;
pub mod records;
mod retention;
pub mod run_event;
pub mod scope;
pub mod settings;
pub mod startup;
pub mod store;
pub mod store_identity;
pub mod trace;
mod train;
pub mod unmerged;
