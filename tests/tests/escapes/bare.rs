//! What is another matter at the level `landlock`: which tests of the suite, and why; and what is so instead.

use std::process::Stdio;

use agency_tests::processes::{Marker, VARIABLE, wait_until};
use agency_tests::repository::skip;

use crate::ground::{Actor, DEADLINE, Ground};

const CLAIMED: &[&str] = &[
    "network",
    "read-only-host",
    "scope",
    "private-home",
    "private-tmp",
    "minimal-dev",
    "hidden-paths",
    "landlock",
    "seccomp",
    "no-new-privileges",
    "capabilities",
    "descriptors",
    "environment",
    "processes",
    "file-size",
    "user-limits",
    "core-dumps",
    "harvest",
];

/// Actors at this level that can be played here.
fn actors() -> Vec<Actor> {
    let root = nix::unistd::Uid::current().is_root();
    if root { vec![Actor::BareRoot, Actor::BareUser] } else { vec![Actor::BareUser] }
}

fn statement(report: &serde_json::Value, control: &str) -> serde_json::Value {
    let controls = report["attestation"]["controls"].as_array().cloned().unwrap_or_default();
    controls.into_iter().find(|one| one["control"] == control).unwrap_or_default()
}

#[test]
fn what_is_claimed_is_held_and_what_is_not_is_said() {
    for actor in actors() {
        let ground = Ground::new(actor);
        let report = ground.sandbox().write("src/**").flag("--json").shell("true").json();
        assert_eq!(report["attestation"]["level"], "landlock");
        for control in CLAIMED {
            let statement = statement(&report, control);
            assert_eq!(statement["requested"], true, "{statement}");
            assert_eq!(statement["enforced"], "enforced", "{statement}");
        }
        for control in ["user-namespace", "mount-namespace", "pid-namespace", "tmp-size", "private-proc"] {
            let statement = statement(&report, control);
            assert_eq!((&statement["requested"], &statement["enforced"]), (&false.into(), &"off".into()));
            assert!(statement["how"].as_str().is_some_and(|how| how.contains("not at this level")));
        }
        let attributes = statement(&report, "attributes");
        assert_eq!(attributes["enforced"], if actor.is_root() { "enforced" } else { "off" }, "{attributes}");
    }
}

#[test]
fn a_switched_off_control_is_not_claimed() {
    for actor in actors() {
        let ground = Ground::new(actor);
        for control in ["landlock", "seccomp", "scope", "environment"] {
            let mut command = ground.sandbox().flag("--json").flag("--without").flag(control).command("true");
            let output = command.output().expect("agency starts");
            // Without Landlock nothing holds the host, and without the filter nothing the network; what was
            // asked for and is not held is refused.
            if matches!(control, "landlock" | "seccomp") {
                assert_eq!(output.status.code(), Some(3), "{output:?}");
                continue;
            }
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
            let statement = statement(&report, control);
            assert_eq!((&statement["requested"], &statement["enforced"]), (&false.into(), &"off".into()));
        }
    }
}

#[test]
fn what_is_denied_in_the_copy_is_refused() {
    for actor in actors() {
        let ground = Ground::new(actor);
        let before = ground.fingerprint();
        let script = "mv src/inner src/moved && mkdir -p src/inner/secrets && echo x >src/inner/secrets/key";
        let run = ground.sandbox().write("src/**").deny("src/inner/secrets/**").apply();
        run.shell(script).assert_refused("src/inner/secrets/key", "denied");
        let neighbours = ground.sandbox().write("README.md").apply().shell("echo x >docs/guide.md");
        neighbours.assert_refused("docs/guide.md", "out_of_scope");
        before.assert_unchanged();
        ground.assert_no_run_is_left();
    }
}

#[test]
fn a_linked_worktree_is_a_copy_of_both() {
    for actor in actors() {
        let ground = Ground::new(actor);
        let tree = ground.home().join("tree");
        ground.git(&["worktree", "add", "--quiet", tree.to_str().expect("text"), "-b", "linked"]);
        let run = || ground.sandbox().folder(&tree).write("src/**").apply();
        assert_eq!(run().shell("true").code(), Some(0));
        let script = "set -e; git status --porcelain; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
                      GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; echo x >src/main.rs; \
                      git commit --quiet --all --message=inside; git log --oneline | wc -l";
        let ended = run().shell(script);
        ended.assert_applied();
        assert!(ended.stderr().starts_with("2\n"), "{}", ended.stderr());
        assert_eq!(ground.git(&["log", "--format=%s", "--all"]), "base\n");
        assert_eq!(std::fs::read_to_string(tree.join("src/main.rs")).expect("read"), "x\n");
    }
}

#[test]
fn pairs_and_pipes_are_all_there_is() {
    for actor in actors() {
        let ground = Ground::new(actor);
        ground.sandbox().attack("socketpair-inside", [""; 0]).assert_succeeded();
        ground.sandbox().attack("loopback-inside", [""; 0]).assert_denied();
        assert_eq!(ground.sandbox().shell("echo x | cat").output.stdout, b"x\n");
    }
}

/// Tests of what only namespaces and mounts have, and what is so instead.
const NOT_CLAIMED: &[(&str, &str)] = &[
    (
        "every_control_is_asked_for_and_held_by_default",
        "see `what_is_claimed_is_held_and_what_is_not_is_said`",
    ),
    (
        "a_control_that_is_switched_off_is_not_claimed_and_others_are",
        "see `a_switched_off_control_is_not_claimed`",
    ),
    ("what_cannot_be_switched_off_is_refused", "there are no mounts to do without"),
    (
        "a_control_that_others_need_is_refused_alone_and_nothing_changes",
        "there are no namespaces to do without",
    ),
    ("no_folder_of_the_host_changes_hands", "it watches folders that other tests' copies are made in"),
    ("processes_outside_cannot_be_seen", "the host's process table is in sight"),
    (
        "nobody_outside_can_be_signalled_by_chance",
        "kill(-1) says yes whomever it reached; single signals are tested",
    ),
    ("the_process_is_nobody_and_can_do_nothing", "it asks for namespaces"),
    ("what_is_out_of_sight_has_no_handle", "names can be looked up everywhere, only not opened"),
    (
        "files_in_temporary_folders_of_the_host_are_not_there",
        "names can be looked up everywhere, only not opened",
    ),
    ("sockets_of_other_families_are_refused", "so are those of ordinary families"),
    ("a_lock_on_a_toolchain_blocks_nobody_outside", "files that can be read can be locked"),
    ("a_lock_inside_blocks_nobody_outside", "the agent can't open the real files at all"),
    ("objects_of_the_real_repository_cannot_be_damaged", "the copy borrows them and has none of its own"),
    (
        "packed_objects_of_the_real_repository_cannot_be_damaged",
        "the copy borrows them and has none of its own",
    ),
    (
        "the_repository_of_a_linked_worktree_stays_as_it_is",
        "it attacks the real path; see `a_linked_worktree_is_a_copy_of_both`",
    ),
    ("modes_and_times_out_of_scope_cannot_be_changed", "the copy is the agent's, and modes do not land"),
    (
        "a_neighbour_of_a_file_in_scope_is_refused_at_the_harvest",
        "folders beside it are open too; the harvest refuses them",
    ),
    (
        "a_parent_renamed_around_a_protected_path_is_refused",
        "the copy can be rearranged; see `what_is_denied_in_the_copy_is_refused`",
    ),
    ("who_listens_inside_is_heard_by_nobody", "nobody can listen inside"),
    (
        "its_own_processes_can_talk_to_each_other",
        "only through pipes and pairs; see `pairs_and_pipes_are_all_there_is`",
    ),
    ("a_socket_is_refused", "none can be made"),
    ("private_folders_cannot_be_filled_beyond_their_size", "nothing bounds what is written to disk"),
    ("private_folders_cannot_hold_countless_files", "nothing bounds what is written to disk"),
];

/// What an ordinary user's agent is not kept from without namespaces.
const NOT_HELD_FOR_A_USER: &[(&str, &str)] = &[
    ("the_mode_of_a_file_outside_cannot_be_changed", "landlock does not look at modes"),
    ("the_times_of_a_file_outside_cannot_be_changed", "landlock does not look at times"),
    ("attributes_of_a_file_outside_cannot_be_set", "landlock does not look at extended attributes"),
    (
        "commits_and_branches_made_inside_stay_inside",
        "git touches the times of objects it finds in the real repository",
    ),
];

pub(crate) fn is_another_matter(test: &str, actor: Actor) -> bool {
    let reason =
        |table: &[(&str, &'static str)]| table.iter().find(|(name, _)| *name == test).map(|(_, why)| *why);
    match reason(NOT_CLAIMED).or_else(|| reason(NOT_HELD_FOR_A_USER).filter(|_| !actor.is_root())) {
        Some(reason) => {
            skip(&format!("{test} at the level landlock"), reason);
            true
        }
        None => false,
    }
}

/// Zero is oneself where a process is meant. Of users it would be everything that the agent's has, on the whole host.
#[test]
fn everything_of_a_user_is_not_slowed_at_once() {
    for actor in actors() {
        let ground = Ground::new(actor);
        let victim = ground.victim();
        let condition = victim.condition();
        ground.sandbox().attack("renice-everything", [""; 0]).assert_denied();
        assert_eq!(victim.condition(), condition);
        assert_eq!(ground.sandbox().shell("nice -n 5 true").code(), Some(0), "one's own is one's own");
    }
}

/// Agents of one user could change modes in each other's copies. Nothing of ours says where one is, and nobody can guess.
#[test]
fn the_copy_of_another_agent_is_named_nowhere() {
    for actor in actors() {
        let (ground, marker) = (Ground::new(actor), Marker::new());
        let other = ground.sandbox().pass(VARIABLE, marker.as_str()).option("--memory", "512MiB");
        let mut running = other.direct("/bin/sleep").arg("50").stdout(Stdio::null()).spawn().expect("starts");
        let sleeper = || marker.alive().into_iter().find(|one| one.command.starts_with("/bin/sleep"));
        assert!(wait_until(DEADLINE, || sleeper().is_some()));
        let pid = sleeper().expect("it was there").pid;
        let copy = std::fs::read_link(format!("/proc/{pid}/cwd")).expect("a folder");
        let own =
            copy.parent().and_then(|run| run.file_name()).expect("a name").to_string_lossy().into_owned();
        assert!(own.len() == 32 && copy.ends_with(format!("{own}/tree")), "{}", copy.display());
        let parent = copy.ancestors().nth(2).expect("a parent").display().to_string();
        let script = format!(
            "for p in /proc/[0-9]*; do cat $p/cmdline $p/environ $p/cgroup $p/maps $p/mountinfo $p/stat $p/status; \
             readlink $p/cwd $p/root $p/exe $p/fd/*; done 2>/dev/null; \
             cat /proc/net/unix /proc/locks /proc/self/mountinfo 2>/dev/null; ls -R {parent} 2>/dev/null; echo looked"
        );
        let ended = ground.sandbox().shell(&script);
        let seen = String::from_utf8_lossy(&ended.output.stdout).into_owned();
        assert!(seen.contains("/bin/sleep") && seen.contains("looked"), "{seen}");
        assert!(!seen.contains(&own), "it is named");
        let report = ground.sandbox().flag("--json").shell("true").json();
        let how = statement(&report, "attributes")["how"].as_str().unwrap_or_default().to_owned();
        let said = if actor.is_root() {
            "the agent's user owns nothing outside"
        } else {
            "another agent of this user"
        };
        assert!(how.contains(said), "{how}");
        running.kill().expect("killed");
        running.wait().expect("ended");
        marker.gone_within(DEADLINE).expect("nobody is left");
    }
}

/// Root's agent may use the host's shared memory, as a user that owns nothing in it, and leaves nothing there.
#[test]
fn shared_memory_is_left_as_it_was_found() {
    if !actors().contains(&Actor::BareRoot) {
        return;
    }
    let ground = Ground::new(Actor::BareRoot);
    let name = format!("/dev/shm/agency-left-{}", std::process::id());
    let script = format!(
        "mkdir -p {name}/deep && echo x >{name}/deep/file && ln -s / {name}.link && echo x >{name}.file"
    );
    assert_eq!(ground.sandbox().shell(&script).code(), Some(0));
    for left in [name.clone(), format!("{name}.link"), format!("{name}.file")] {
        assert!(std::fs::symlink_metadata(&left).is_err(), "{left} is left");
    }
    assert!(std::path::Path::new("/etc/passwd").exists());
}
