//! A Definition of Done: commands that must all succeed, and what they may use (§10.1 of the specification).
//!
//! `name`, `description`, `commands`, `environment` and `platform` are the specification's. `timeout`,
//! `network`, `env`, `memory`, `image` and `caches` are ours, and so is a command that is more than a line: `{run, timeout,
//! network, when}`. A file without any of ours is a complete profile.
//!
//! A profile only states what it wants. The caller, who knows where the profile comes from, decides whether it gets
//! that: see [`Profile::widens`] and [`ProfileOrigin`].

mod condition;
mod definition;
mod error;
mod field_lines;
mod name;
mod read;
mod units;
mod write;

pub use condition::{WhenClause, WhenCondition, WhenRule};
pub use definition::{
    ExtraPermission, Platform, Profile, ProfileCommand, ProfileNetwork, ProfileOrigin, USUAL_MEMORY,
    USUAL_TIMEOUT,
};
pub use error::{ProfileError, ProfileLocation};
pub use name::{ProfileName, ProfileNameError};
pub use read::ParsedProfile;
pub(crate) use read::read_yaml;
