//! What is another matter at the level `container`: which tests of the suite, and why; and what is so instead.

use agency_tests::engine::Engine;
use agency_tests::repository::skip;

use crate::ground::Actor;

/// Tests of what a container does not have, and what is so instead.
const NOT_CLAIMED: &[(&str, &str)] = &[
    (
        "no_folder_of_the_host_changes_hands",
        "an engine does not see the mount namespace it is tried in, and changes no folder of the host",
    ),
    (
        "objects_of_the_real_repository_cannot_be_damaged",
        "the copy borrows them; see `inside::borrowed_objects_can_be_read_and_nothing_else`",
    ),
    (
        "packed_objects_of_the_real_repository_cannot_be_damaged",
        "the copy borrows them; see `inside::borrowed_objects_can_be_read_and_nothing_else`",
    ),
];

pub(crate) fn is_another_matter(test: &str, _actor: Actor) -> bool {
    let reason = match NOT_CLAIMED.iter().find(|(name, _)| *name == test) {
        Some((_, reason)) => (*reason).to_owned(),
        None => match Engine::find() {
            Ok(_) => return false,
            Err(reason) => reason,
        },
    };
    skip(&format!("{test} at the level container"), &reason);
    true
}
