//! Work on boards: tasks, scopes, reports and verdicts, and one dialect for each file protocol.
//!
//! [`board`] is what the dialects have in common and the engine works with, and [`board_verbs`] what front ends
//! work with; [`kodingx`] is the native one, and
//! [`codifica`] keeps its tasks in files that git carries from clone to clone.
//! Below them lie the [`store`], which is the only way a file is written, and [`text`], which edits files
//! that people write too. Nothing here starts a program, opens a connection or prints.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod board;
pub mod board_verbs;
pub mod claim;
pub mod claim_reader;
pub mod codifica;
mod cycles;
pub mod detect;
pub mod finding;
pub mod kodingx;
pub mod names;
pub mod scope_glob;
pub mod store;
pub mod text;
pub mod timestamp;
pub mod verdict;
