//! Definition-of-Done profiles: which of them fits a repository, and the proof that its checks pass.
//!
//! A [`profile`] names commands, and what they may use beyond the usual. Some come with the program ([`builtin`]). A
//! repository may bring its own; then a person has to trust them, because a hostile repository would like its commands
//! to be run. A [`library`] finds a profile by its name; for `auto` it looks at the files in the root of the repository
//! ([`detect`]).
//!
//! The files are read by [`project_files`]: bounded, never through a link, without running any program. With them a
//! profile is [`resolve`]d: conditions are decided, `{manager}` becomes `pnpm`, and the result is a list of plain
//! commands. An empty list is an error, and never a pass.
//!
//! [`prove()`](prove::prove) runs each command in a sandbox of its own, on the candidate as it is, and records the
//! results: a [`proof::Proof`], bound to the [`git_tree`] on which it was made. Continuous integration gets it as
//! [`junit`].
//!
//! Nothing here prints, asks a person or reads a clock: the caller does.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod builtin;
pub mod dependencies;
pub mod detect;
pub mod git_head;
pub mod git_tree;
pub mod junit;
pub mod library;
pub mod likeness;
mod manifests;
pub mod profile;
pub mod project_files;
pub mod proof;
pub mod prove;
pub mod resolve;
