//! What verbs are made of, without a terminal: nothing here prints, asks, or knows what was typed.

pub(crate) mod agents;
pub(crate) mod approval;
pub(crate) mod archive;
pub(crate) mod board;
mod closed_globs;
pub(crate) mod configuration;
pub(crate) mod doctor;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod front_end;
pub(crate) mod http;
pub(crate) mod import;
pub(crate) mod import_tasks;
pub(crate) mod isolation;
pub(crate) mod lint;
pub(crate) mod migrate;
pub(crate) mod reports;
pub(crate) mod runtime;
pub(crate) mod scaffold;
pub(crate) mod scratch_repo;
pub(crate) mod state_folder;
pub(crate) mod status;
pub(crate) mod tasks;
pub(crate) mod trust;
pub(crate) mod units;
pub(crate) mod verify;
pub(crate) mod wording;
