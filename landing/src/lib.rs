//! Bringing an agent's commit onto a branch, exactly once.
//!
//! ```text
//! lease       a claim moves refs/agency/lease/<protocol>/<id>
//! candidate   what was harvested becomes a commit at refs/agency/<protocol>/<id>/<epoch>
//! merge       three-way onto the branch as it is now: a tree, a conflict, or nothing to do
//! commit      that tree, on the branch, with its trailers
//! scope       what would change on the branch is judged again
//! land        one transaction: the lease is verified, the branch moves, the landing is recorded;
//!             a person's checkout comes along, or nothing happens
//! ```
//!
//! The caller holds the store, the clock and the order: it merges, has the result verified, and lands it; when
//! the branch moved meanwhile ([`land::LandOutcome::Moved`]), it begins again with the merge. Each of these may be
//! repeated after a crash. `docs/decisions/017-landing.md` says why it is done in this order.
//!
//! Git runs in repositories of our own ([`repository`]): nothing the real one is configured to run ever runs
//! here, and nothing an agent wrote is a name that git would look up.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod board_commit;
pub mod board_edit;
mod board_journal;
pub mod candidate;
mod checkout;
mod checkout_staging;
pub mod commit;
mod error;
mod file_access;
mod file_stamp;
mod git_pool;
mod git_settings;
mod index;
mod journal;
mod journal_file;
pub mod land;
mod landed_format;
pub mod landed_record;
pub mod landed_work;
pub mod lease;
pub mod lock_watch;
pub mod lost_landings;
pub mod merge;
pub mod names;
mod objects;
pub mod obstacle;
mod own_refs;
mod path_content;
pub mod pin;
pub mod plan;
mod process_lock;
mod record;
mod ref_mover;
pub mod refs;
pub mod remote;
pub mod repository;
pub mod revert;
pub mod scope;
pub mod settled_refs;
mod signature;
pub mod spare_objects;
mod spare_store;
mod stale_locks;
pub mod steps;
pub mod store_ref;
mod tree;
pub mod tree_diff;
pub mod uncommitted_files;
pub mod undo;
mod undo_commit;
pub mod worktree;

pub use error::Error;
pub use index::IndexAt;
pub use names::HIGHEST as HIGHEST_COUNT;
pub use undo::UndoOutcome;
