//! Who runs what, and when.
//!
//! ```text
//! charge    takes charge of a repository for one run
//! dispatch  the loop: what can start, what can be taken over, what people want
//! life      one attempt, from its claim to its end, step by step
//! errand    a sandbox that runs for an attempt, and outlives whoever sent it
//! landing   an attempt's work on a branch, exactly once
//! budget    how much may be used, for a task and for a run
//! roster    how many of an agent are at work, whatever they do
//! store     whose an attempt is, and how far it has come
//! identity  which store a repository belongs to
//! rebuild   a store that was damaged, made anew from what git and the records say
//! retention what is settled and old, and goes
//! desk      the board's files, one thing after the other
//! ```
//!
//! The protocols say what work is, the sandbox where it runs, the profiles when it is done; nothing of theirs is
//! decided here. See `docs/architecture.md` for how the crates fit together.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod attempt;
pub mod budget;
pub mod causes;
pub mod charge;
pub mod clock;
pub mod desk;
pub mod dispatch;
mod durable;
pub mod errand;
pub mod evidence;
mod folder_watch;
pub mod hearing;
pub mod host_fault;
pub mod identity;
pub mod landing;
pub mod life;
pub mod notice;
mod owner;
mod prompt;
pub mod rebuild;
mod records;
mod retention;
mod roster;
mod said;
pub mod scope;
pub mod settings;
pub mod sharing;
pub mod store;
pub mod trace;
mod train;
