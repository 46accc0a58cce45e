//! Reaching what lies outside by another way than its name, and looking at what is hidden.

use std::ffi::OsString;

use crate::as_both;
use crate::files::{Arguments, HOST, denied, held, shown_without};
use crate::ground::{Actor, Ground};

fn file(ground: &Ground) -> Vec<OsString> {
    vec![ground.outside("file")]
}

fn a_readable_descriptor_cannot_be_reopened_for_writing(actor: Actor) {
    held(actor, "reopen-fd", file);
}

fn a_path_descriptor_cannot_be_reopened_for_writing(actor: Actor) {
    held(actor, "reopen-path-fd", file);
}

fn nothing_can_be_made_beneath_a_descriptor_of_a_folder_outside(actor: Actor) {
    held(actor, "reopen-dirfd", |ground| vec![ground.outside("dir"), "new".into()]);
}

fn the_root_in_proc_leads_nowhere_else(actor: Actor) {
    held(actor, "write-via-proc-self-root", file);
}

fn the_current_folder_in_proc_leads_nowhere_else(actor: Actor) {
    held(actor, "write-via-proc-self-cwd", |ground| vec![ground.outside("dir"), "../file".into()]);
}

fn dots_from_a_descriptor_lead_nowhere_else(actor: Actor) {
    held(actor, "openat2-dotdot", |ground| vec![ground.outside("dir"), "../file".into()]);
}

fn dots_from_the_workspace_lead_nowhere_else(actor: Actor) {
    held(actor, "openat2-dotdot", |ground| vec![ground.inside("src"), "../../outside/file".into()]);
}

fn a_file_without_a_name_cannot_be_given_one_outside(actor: Actor) {
    held(actor, "tmpfile-linkat", |ground| vec![ground.outside("dir"), "new".into()]);
}

fn a_file_outside_cannot_be_written_through_a_mapping(actor: Actor) {
    held(actor, "mmap-shared-write", file);
}

fn a_file_outside_cannot_be_grown(actor: Actor) {
    held(actor, "fallocate", file);
}

fn a_file_outside_cannot_be_sent_into(actor: Actor) {
    held(actor, "sendfile-into", file);
}

fn a_file_outside_cannot_be_copied_into(actor: Actor) {
    held(actor, "copy-file-range-into", |ground| vec![ground.outside("file"), ground.outside("other")]);
}

fn a_file_outside_cannot_be_spliced_into(actor: Actor) {
    held(actor, "splice-into", file);
}

/// Shows an attack that reads, then that there is nothing to be read.
fn unseen(actor: Actor, controls: &[&'static str], attack: &str, arguments: Arguments) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**");
    run().without(&actor.off(controls)).attack(attack, arguments(&ground)).assert_succeeded();
    run().attack(attack, arguments(&ground)).assert_denied();
    run().without(&["landlock", "seccomp"]).attack(attack, arguments(&ground)).assert_denied();
    before.assert_unchanged();
}

fn a_file_outside_cannot_be_read(actor: Actor) {
    unseen(actor, &["private-home"], "read", |ground| vec![ground.home().join(".ssh/id_rsa").into()]);
}

fn a_folder_outside_cannot_be_listed(actor: Actor) {
    unseen(actor, &["private-home"], "read-dir", |ground| vec![ground.outside("")]);
}

/// Handles name files whatever is mounted in front of them. The kernel gives them out to anybody and takes
/// them back only from root.
fn a_handle_opens_nothing(actor: Actor) {
    let without = &[HOST, &["capabilities", "seccomp"]].concat()[..];
    let arguments: Arguments = |ground| vec![ground.outside("file")];
    let anchor: Arguments = |ground| vec![ground.outside("")];
    let ground = Ground::new(actor);
    for (attack, arguments) in [("open-by-handle", arguments), ("open-root-by-handle", anchor)] {
        if actor.is_root() {
            let run = ground.sandbox().without(&actor.off(without));
            run.attack(attack, arguments(&ground)).assert_succeeded();
        }
        denied(actor, attack, arguments);
        // Neither of the two that stop it needs the other.
        let in_sight = ground.sandbox().read(ground.outside_folder());
        in_sight.clone().without(&["seccomp"]).attack(attack, arguments(&ground)).assert_denied();
        in_sight.without(&["capabilities"]).attack(attack, arguments(&ground)).assert_denied();
    }
}

/// Without these nothing is out of sight: what is hidden by name lies in what is hidden by absence.
const SIGHT: &[&str] = &["hidden-paths", "private-home", "private-tmp", "tmp-size", "read-only-host"];

/// `--hide`: of the host, where `--read` shows the folder around it, and of the workspace.
fn what_is_hidden_by_name_cannot_be_read(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let hidden = ground.outside_folder().join("dir");
    let inside = ground.repo().join("docs");
    let run = || {
        let seen = ground.sandbox().write("**").option("--hide", &inside);
        match actor.is_contained() {
            false => seen.read(ground.outside_folder()).option("--hide", &hidden),
            true => seen,
        }
    };
    if actor.is_contained() {
        // Nothing can be mounted over what an engine shows: who asks for both is refused, and nothing starts.
        let both = run().read(ground.outside_folder()).option("--hide", &hidden);
        let ended = both.shell("echo started");
        assert_eq!((ended.code(), ended.output.stdout.len()), (Some(3), 0), "{}", ended.stderr());
        assert!(ended.stderr().contains("hidden-paths") && ended.stderr().contains("outside/dir"));
    }
    // What is hidden of a workspace is not in its copy at all.
    assert_ne!(run().shell("test -e docs/guide.md && cat docs/guide.md").code(), Some(0));
    for path in [hidden.join("deeper/protected"), inside.join("guide.md")] {
        run().without(SIGHT).attack("read", [&path]).assert_succeeded();
        let attacks = ["read", "write", "reopen-path-fd"];
        run().deny_all(&attacks.map(|attack| (attack, vec![path.clone().into_os_string()])));
    }
    for path in [&hidden, &inside] {
        let words = |path: &std::path::Path| path.as_os_str().to_owned();
        run().deny_all(&[
            ("read-dir", vec![words(path)]),
            ("delete", vec![words(path)]),
            ("rename", vec![words(path), words(&path.with_extension("moved"))]),
        ]);
    }
    before.assert_unchanged();
}

/// `/proc/PID/root` of a process outside would lead out.
fn the_root_of_a_process_outside_leads_nowhere(actor: Actor) {
    let ground = Ground::new(actor);
    let victim = ground.victim();
    let (read, write) = ("proc-root-read", "proc-root-write");
    let target = || [victim.pid(), ground.outside("file")];
    if actor.is_root() {
        let open =
            actor.off(&["pid-namespace", "private-proc", "read-only-host", "capabilities", "landlock"]);
        for attack in [read, write] {
            ground.sandbox().without(&open).attack(attack, target()).assert_succeeded();
        }
    }
    let before = ground.fingerprint();
    for attack in [read, write] {
        ground.sandbox().attack(attack, target()).assert_denied();
        let in_sight = ground.sandbox().without(&["pid-namespace", "private-proc", "read-only-host"]);
        in_sight.attack(attack, target()).assert_denied();
        // The init of the sandbox was a process of the host a moment ago.
        ground.sandbox().attack(attack, ["1".into(), ground.outside("file")]).assert_denied();
    }
    before.assert_unchanged();
}

/// The shown half of the tests above that only [`denied`] is used in: links and renames across the boundary.
fn the_host_can_be_written_when_nothing_holds(actor: Actor) {
    shown_without(actor, HOST, "create", |ground| vec![ground.outside("new")]);
}

as_both! {
    a_readable_descriptor_cannot_be_reopened_for_writing,
    a_path_descriptor_cannot_be_reopened_for_writing,
    nothing_can_be_made_beneath_a_descriptor_of_a_folder_outside,
    the_root_in_proc_leads_nowhere_else,
    the_current_folder_in_proc_leads_nowhere_else,
    dots_from_a_descriptor_lead_nowhere_else,
    dots_from_the_workspace_lead_nowhere_else,
    a_file_without_a_name_cannot_be_given_one_outside,
    a_file_outside_cannot_be_written_through_a_mapping,
    a_file_outside_cannot_be_grown,
    a_file_outside_cannot_be_sent_into,
    a_file_outside_cannot_be_copied_into,
    a_file_outside_cannot_be_spliced_into,
    a_file_outside_cannot_be_read,
    a_folder_outside_cannot_be_listed,
    a_handle_opens_nothing,
    what_is_hidden_by_name_cannot_be_read,
    the_root_of_a_process_outside_leads_nowhere,
    the_host_can_be_written_when_nothing_holds,
}
