//! What is another matter at the level `container`: which tests of the suite, and why; and what is so instead. What only
//! a container could give away has a suite of its own.

use std::time::Duration;

use agency_tests::engine::Engine;
use agency_tests::processes::{Marker, VARIABLE};
use agency_tests::repository::skip;

use crate::ground::{Actor, Ground};

/// Tests of what a container does not have, and what is so instead.
const NOT_CLAIMED: &[(&str, &str)] = &[
    ("a_lock_on_a_toolchain_blocks_nobody_outside", "an image has its own toolchains"),
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

pub(crate) fn is_another_matter(test: &str) -> bool {
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

/// Actors at this level that can be played here.
fn actors(test: &str) -> Vec<Actor> {
    match (is_another_matter(test), nix::unistd::Uid::current().is_root()) {
        (true, _) => Vec::new(),
        (false, true) => vec![Actor::ContainedRoot, Actor::ContainedUser],
        (false, false) => vec![Actor::ContainedUser],
    }
}

/// Its first process ends everyone it can see when its command has ended. Without a namespace that would be every process
/// of the caller's, were it not the engine that ends them then.
#[test]
fn without_a_namespace_of_processes_its_own_end_and_nobody_elses() {
    for actor in actors("without_a_namespace_of_processes_its_own_end_and_nobody_elses") {
        let ground = Ground::new(actor);
        let loose = || ground.sandbox().without(actor.seeing_processes());
        for (script, refused, code) in [
            // Without a namespace, whoever holds the output open would hold the run open.
            ("setsid sleep 600 >/dev/null 2>&1 & echo left", false, Some(0)),
            ("kill -9 $$", false, Some(137)),
            // Refused at the gate, which is an end as well: the fresh /proc that was asked for is not.
            ("true", true, Some(3)),
        ] {
            let (victim, marker) = (ground.victim(), Marker::new());
            let condition = victim.condition();
            let run = if refused { ground.sandbox().without(&["pid-namespace"]) } else { loose() };
            let ended = run.pass(VARIABLE, marker.as_str()).shell(script);
            assert_eq!(ended.code(), code, "{script}: {}", ended.stderr());
            assert_eq!(victim.condition(), condition, "{script}");
            assert!(condition.starts_with("well"), "{condition}");
            marker.gone_within(Duration::from_secs(5)).unwrap_or_else(|left| panic!("{script}: {left:?}"));
        }
    }
}

/// The private folders have a size each, and the attestation says that it is each.
#[test]
fn every_private_folder_has_a_size_of_its_own() {
    for actor in actors("every_private_folder_has_a_size_of_its_own") {
        let ground = Ground::new(actor);
        let report = ground.sandbox().option("--tmp-size", "8MiB").flag("--json").shell("true").json();
        let controls = report["attestation"]["controls"].as_array().cloned().unwrap_or_default();
        let size = controls.iter().find(|one| one["control"] == "tmp-size").expect("a statement");
        assert_eq!((&size["enforced"], &size["how"]), (&"enforced".into(), &"tmpfs size=8192k, each".into()));
    }
}

/// A folder that may be read costs the agent its sockets on paths, also those of its own; a file does not.
#[test]
fn where_a_folder_is_shown_there_are_no_sockets_on_paths() {
    for actor in actors("where_a_folder_is_shown_there_are_no_sockets_on_paths") {
        let ground = Ground::new(actor);
        let family = [("socket-family", vec![libc::AF_UNIX.to_string().into()])];
        ground.sandbox().succeed_all(&family);
        let shown = || ground.sandbox().read(ground.outside_folder());
        shown().deny_all(&family);
        shown().succeed_all(&[("socketpair-inside", Vec::new())]);
        shown().without(&["seccomp"]).succeed_all(&family);
    }
}
