//! Who runs what, and when: dispatch, leases, the store, recovery and landing.
//!
//! The place is kept and nothing is in it yet; see `docs/architecture.md` for how the crates fit together.
