//! Who runs what, and when: dispatch, leases, the store, recovery and landing.
//!
//! An [`attempt`] is one try at a task. The [`store`] knows whose it is; [`landing`] brings its work onto a
//! branch exactly once. See `docs/architecture.md` for how the crates fit together.

pub mod attempt;
pub mod clock;
pub mod landing;
pub mod store;
