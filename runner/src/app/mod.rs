//! What verbs are made of, without a terminal: nothing here prints, asks, or knows what was typed.

pub(crate) mod agent_trial;
pub(crate) mod agents;
pub(crate) mod approval;
pub(crate) mod attempt_store;
pub(crate) mod board;
pub(crate) mod configuration;
pub(crate) mod demo;
pub(crate) mod error;
pub(crate) mod front_end;
pub(crate) mod http;
pub(crate) mod import;
pub(crate) mod isolation;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod runtime;
pub(crate) mod scratch_repo;
pub(crate) mod state_folder;
pub(crate) mod units;
