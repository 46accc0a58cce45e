//! When work is done: Definition-of-Done profiles, which of them fits a repository, and the proof that it holds.
//!
//! A [`profile`] names commands, and what they may use beyond the usual. Some come with the program
//! ([`builtin`]); a repository may bring its own, and then somebody has to trust them, because a command is
//! what a hostile repository would like to have run. A [`library`] finds a profile by its name; `auto` is
//! answered by looking at the files in the root of the repository ([`detect`]).
//!
//! What is looked at is [`sight`]: bounded, never through a link, never by running anything. From it a profile
//! is [`resolve`]d: conditions are decided, `{manager}` becomes `pnpm`, and what is left is a list of plain
//! commands. A list with nothing on it is an error. Nothing to check is never a pass.
//!
//! [`prove()`](prove::prove) runs each of them in a sandbox of its own, on the candidate as it is, and writes
//! down what it saw: a [`proof::Proof`], bound to the [`tree`] it was made on. Continuous integration gets it
//! as [`junit`].
//!
//! Nothing here prints, asks a person or keeps a clock: who calls does.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod builtin;
pub mod detect;
pub mod head;
pub mod junit;
pub mod library;
mod manifests;
pub mod profile;
pub mod proof;
pub mod prove;
pub mod resolve;
pub mod sight;
pub mod tree;
