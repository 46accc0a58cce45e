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
//! the branch moved meanwhile ([`land::Outcome::Moved`]), it begins again with the merge. Each of these may be
//! repeated after a crash. [`docs/decisions/017-landing.md`] says why it is done in this order.
//!
//! Git runs in repositories of our own ([`repository`]): nothing the real one is configured to run ever runs
//! here, and nothing an agent wrote is a name that git would look up.
//!
//! [`docs/decisions/017-landing.md`]: https://github.com/agency-runner/agency/blob/main/docs/decisions/017-landing.md

mod bench;
pub mod board;
mod board_journal;
pub mod candidate;
mod checkout;
pub mod commit;
mod compare;
pub mod difference;
mod error;
mod index;
mod journal;
mod kept;
pub mod land;
pub mod landed;
pub mod lease;
mod left_locks;
pub mod lock_watch;
pub mod merge;
pub mod names;
mod objects;
pub mod obstacle;
pub mod pin;
pub mod plan;
mod record;
pub mod refs;
pub mod remote;
pub mod repository;
pub mod scope;
mod settings;
pub mod settled;
pub mod spare;
mod stamp;
pub mod steps;
pub mod store_ref;
pub mod strayed;
mod tree;
mod turns;
pub mod uncommitted;
pub mod undo;
pub mod worktree;

pub use error::Error;
pub use index::IndexAt;
pub(crate) use record::HIGHEST as HIGHEST_COUNT;
pub use undo::Undone;
