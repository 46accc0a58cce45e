//! What work is: tasks, scopes, reports and verdicts, and one dialect for each file protocol.
//!
//! The place is kept and nothing is in it yet; see `docs/architecture.md` for how the crates fit together.
