//! The KodingX protocol, kept: through the real binary, on real repositories.
//!
//! A test whose name begins with a section (`s06_1_…`) holds one sentence of the specification;
//! `docs/conformance/kodingx.md` lists them all, and a test of the law keeps list and tests together. The
//! others hold what a person relies on beyond its letter: that nothing is lost when many write at once or are
//! killed, that bad input is refused by name and changes nothing, that a repository can't trust itself.

mod adapters;
mod commands;
mod compliance;
mod concurrency;
mod edits;
mod examples;
mod install;
mod layout;
mod legacy;
mod lifecycle;
mod older;
mod overrides;
mod proofs;
mod refusals;
mod reports;
mod risks;
mod roles;
mod state;
mod tasks;
mod trust;
mod zones;

use agency_tests::ground;
