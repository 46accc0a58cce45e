//! Adapters: files that tell a coding tool how to orchestrate by the protocol (§12, §13). One set of rules, in each
//! tool's own format and place.
//!
//! [`adapters()`] says which files a tool reads, [`plan_install()`] which of them are added to a repository that has
//! files of its own (§22.3), [`missing_parts`] what a file lacks after people have edited it. Nothing here
//! touches a file.

pub mod aider;
mod install;
mod parts;
mod rules;
mod tools;

pub use install::{AdapterAction, AdapterStep, ExistingFiles, plan_install};
pub use parts::{AdapterPart, missing_parts};
pub use tools::{Adapter, AdapterContent, Orchestrator, adapters};

#[cfg(test)]
mod tests;
