//! When work is done: Definition-of-Done profiles, their detection, and the proof that they hold.
//!
//! The place is kept and nothing is in it yet; see `docs/architecture.md` for how the crates fit together.
