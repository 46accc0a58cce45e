//! What is another matter at the level `container`: which tests of the suite, and why; and what is so instead.

use agency_tests::engine::Engine;
use agency_tests::repository::skip;

use crate::ground::Actor;

const NOT_CLAIMED: &[(&str, &str)] = &[];

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
