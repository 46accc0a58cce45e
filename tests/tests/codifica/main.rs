//! The Codifica protocol, kept: through the real binary, on real repositories.
//!
//! A test whose name begins with a section (`s07_1_…`) holds one sentence of the specification;
//! `docs/conformance/codifica.md` lists them all, and a test of the law keeps list and tests together. The others hold
//! what a person relies on beyond its letter: that two clones never take the same task, that no byte outside a task
//! changes, that bad input is refused by name and hides nothing.

mod claims;
mod contract;
mod crashes;
mod edits;
mod evidence;
mod outage;
mod prompts;
mod race;
mod real_boards;
mod refusals;
mod run;
mod several;
mod site;
mod stuck;
mod tasks;
mod transitions;
