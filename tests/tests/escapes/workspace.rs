//! Crossing the scope inside the workspace: what the operating system refuses early, and what only the harvest
//! can tell.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::as_both;
use crate::files::Arguments;
use crate::ground::{Actor, CONTENT, Ground};
use crate::run::{Ended, Sandbox};

/// Shows that an attack on `docs` gets through, all the way into the real folder, when neither the mounts nor
/// the harvest hold the scope; that the mounts alone deny it; and that the harvest alone refuses it.
fn out_of_scope(actor: Actor, attack: &str, arguments: Arguments, violation: (&str, &str)) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = ground.sandbox().write("src/**").apply().without(&["scope", "landlock", "harvest"]);
    let ended = run.attack(attack, arguments(&ground));
    ended.assert_succeeded();
    ended.assert_applied();
    before.assert_changed();

    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply();
    let held = [run(), run().without(&["landlock"]), run().without(&["landlock", "seccomp", "harvest"])];
    for run in held {
        let ended = run.attack(attack, arguments(&ground));
        ended.assert_denied();
    }
    let judged = run().without(&["scope", "landlock"]).attack(attack, arguments(&ground));
    judged.assert_succeeded();
    judged.assert_refused(violation.0, violation.1);
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

fn guide(ground: &Ground) -> Vec<OsString> {
    vec![ground.inside("docs/guide.md")]
}

const GUIDE: (&str, &str) = ("docs/guide.md", "out_of_scope");

fn a_file_out_of_scope_cannot_be_written(actor: Actor) {
    out_of_scope(actor, "write", guide, GUIDE);
}

fn a_file_out_of_scope_cannot_be_created(actor: Actor) {
    let new: Arguments = |ground| vec![ground.inside("docs/new.md")];
    out_of_scope(actor, "create", new, ("docs/new.md", "out_of_scope"));
}

fn a_file_out_of_scope_cannot_be_deleted(actor: Actor) {
    out_of_scope(actor, "delete", guide, GUIDE);
}

fn a_folder_out_of_scope_cannot_be_deleted(actor: Actor) {
    out_of_scope(actor, "delete", |ground| vec![ground.inside("docs")], GUIDE);
}

fn a_file_out_of_scope_cannot_be_truncated(actor: Actor) {
    out_of_scope(actor, "truncate", guide, GUIDE);
}

fn a_file_out_of_scope_cannot_be_renamed_into_it(actor: Actor) {
    let arguments: Arguments = |ground| vec![ground.inside("docs/guide.md"), ground.inside("src/guide.md")];
    out_of_scope(actor, "rename", arguments, GUIDE);
}

fn a_file_of_the_scope_cannot_be_renamed_out_of_it(actor: Actor) {
    let arguments: Arguments = |ground| vec![ground.inside("src/main.rs"), ground.inside("docs/main.rs")];
    out_of_scope(actor, "rename", arguments, ("docs/main.rs", "out_of_scope"));
}

fn files_cannot_be_exchanged_across_the_scope(actor: Actor) {
    let arguments: Arguments = |ground| vec![ground.inside("src/main.rs"), ground.inside("docs/guide.md")];
    let changed = |ground: &Ground| ground.put("repo/src/main.rs", "another content\n");
    // The two must differ for the exchange to be a change.
    let ground = Ground::new(actor);
    changed(&ground);
    let run = || ground.sandbox().write("src/**").apply();
    run().without(&["scope", "landlock", "harvest"]).attack("exchange", arguments(&ground)).assert_applied();
    let main = fs::read_to_string(ground.repo().join("src/main.rs")).expect("read");
    assert!(actor.is_bare() || main == CONTENT, "{main}");

    let ground = Ground::new(actor);
    changed(&ground);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply();
    run().attack("exchange", arguments(&ground)).assert_denied();
    run().without(&["landlock"]).attack("exchange", arguments(&ground)).assert_denied();
    let judged = run().without(&["scope", "landlock"]).attack("exchange", arguments(&ground));
    judged.assert_refused(GUIDE.0, GUIDE.1);
    before.assert_unchanged();
}

fn a_file_out_of_scope_cannot_be_linked_into_it_and_written_through(actor: Actor) {
    let arguments: Arguments = |ground| vec![ground.inside("docs/guide.md"), ground.inside("src/link")];
    out_of_scope(actor, "append-through-hardlink", arguments, GUIDE);
}

fn a_change_out_of_scope_with_forged_times_is_found_by_its_content(actor: Actor) {
    out_of_scope(actor, "forge-mtime", guide, GUIDE);
}

/// Modes other than the executable bit are nothing git keeps: denied early, and never applied.
fn modes_and_times_out_of_scope_cannot_be_changed(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for attack in ["chmod", "utime", "setxattr"] {
        // Files in memory have no attributes of users before Linux 6.6.
        let run = || ground.sandbox().write("src/**").option("--layer", "disk").apply();
        run().without(&["scope", "landlock"]).attack(attack, guide(&ground)).assert_succeeded();
        run().attack(attack, guide(&ground)).assert_denied();
        run().without(&["landlock", "seccomp"]).attack(attack, guide(&ground)).assert_denied();
    }
    before.assert_unchanged();
}

/// A single file in scope opens its folder, since editors save by renaming; the harvest tells its neighbours.
fn a_neighbour_of_a_file_in_scope_is_refused_at_the_harvest(actor: Actor) {
    let ground = Ground::new(actor);
    ground.put("repo/notes.txt", CONTENT);
    let before = ground.fingerprint();
    for (attack, name) in
        [("write", "notes.txt"), ("delete", "notes.txt"), ("forge-mtime", "notes.txt"), ("create", "new.txt")]
    {
        let run = ground.sandbox().write("README.md").apply();
        let ended = run.attack(attack, [ground.inside(name)]);
        ended.assert_succeeded();
        ended.assert_refused(name, "out_of_scope");
    }
    // Folders beside it are not even open.
    ground.sandbox().write("README.md").attack("write", guide(&ground)).assert_denied();
    before.assert_unchanged();
    let run = ground.sandbox().write("README.md").apply().without(&["harvest"]);
    run.attack("write", [ground.inside("notes.txt")]).assert_applied();
    before.assert_changed();
}

/// One path out of scope, and nothing of the attempt lands.
fn work_in_scope_does_not_land_with_work_out_of_scope(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let ended = ground.sandbox().write("README.md").apply().shell("echo good >README.md; echo bad >new");
    ended.assert_refused("new", "out_of_scope");
    before.assert_unchanged();
    let ended = ground.sandbox().write("README.md").apply().shell("echo good >README.md");
    ended.assert_applied();
    let changes = before.changes();
    let [folder, file] = &changes[..] else { panic!("{changes:?}") };
    assert!(folder.starts_with("repo: mtime") && file.starts_with("repo/README.md: "), "{changes:?}");
}

fn denied_paths(sandbox: Sandbox<'_>) -> Sandbox<'_> {
    sandbox.write("src/**").deny("src/inner/secrets/**").apply()
}

fn a_parent_renamed_around_a_protected_path_is_refused(actor: Actor) {
    let attack = |run: Sandbox<'_>, ground: &Ground| {
        let parent = ground.inside("src/inner");
        run.attack("rename-parent-and-rebuild", [parent, "secrets/key".into()])
    };
    // Folders of a lower layer can't be renamed in an overlay; programs copy them and delete the original.
    let by_copying = "cp -r src/inner src/inner.moved && rm -r src/inner && mkdir -p src/inner/secrets && \
                      echo rebuilt >src/inner/secrets/key";
    let ground = Ground::new(actor);
    let shown = denied_paths(ground.sandbox()).without(&["scope", "landlock", "harvest"]).shell(by_copying);
    shown.assert_applied();
    let key = ground.repo().join("src/inner/secrets/key");
    assert_eq!(fs::read_to_string(key).expect("read"), "rebuilt\n");

    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    attack(denied_paths(ground.sandbox()), &ground).assert_denied();
    attack(denied_paths(ground.sandbox()).without(&["landlock", "seccomp"]), &ground).assert_denied();
    let unmounted = attack(denied_paths(ground.sandbox()).without(&["scope", "landlock"]), &ground);
    match actor.is_contained() {
        false => drop(unmounted.assert_denied()),
        // A copy has no lower layer: without the mounts its folders can be renamed, and the harvest judges.
        true => {
            unmounted.assert_succeeded();
            unmounted.assert_refused("src/inner/secrets/key", "denied");
        }
    }
    let unkept = ground.sandbox().write("src/**").deny("src/inner/secrets/**").shell(by_copying);
    assert_ne!(unkept.code(), Some(0));
    let judged = denied_paths(ground.sandbox()).without(&["scope", "landlock"]).shell(by_copying);
    judged.assert_refused("src/inner/secrets/key", "denied");
    before.assert_unchanged();
}

/// The folder that is swapped is one the agent made: those of a lower layer can't be renamed.
fn swapped(run: Sandbox<'_>, ground: &Ground) -> Ended {
    let run = run.prefix(&["/bin/sh", "-c", "mkdir -p src/fresh && exec \"$@\"", "sh"]);
    run.attack("symlink-swap", [ground.inside("src/fresh"), ground.outside("target")])
}

fn a_scope_directory_swapped_for_a_link_that_leads_out_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let open = actor.off(crate::files::HOST);
    let shown = swapped(ground.sandbox().write("src/**").without(&open), &ground);
    shown.assert_succeeded();
    if !shown.is_elsewhere() {
        before.assert_changed();
    }

    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for run in [
        ground.sandbox(),
        ground.sandbox().read(ground.outside_folder()),
        ground.sandbox().read(ground.outside_folder()).without(&["landlock", "seccomp"]),
    ] {
        let ended = swapped(run.write("src/**").apply(), &ground);
        let report = ended.assert_denied();
        let through = report.detail.contains("write through the link");
        assert!(ended.is_elsewhere() || through, "{report:?}");
        ended.assert_refused("src/fresh", "link_leaves_tree");
    }
    before.assert_unchanged();
}

/// Links that do not look as if they led out, and do.
fn every_kind_of_link_that_leads_out_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let targets = [
        "/etc/passwd",
        "../../outside/file",
        "../src/../../outside",
        "/proc/self/root",
        "/",
        "..//../outside",
        "../.git/config",
        "../.git",
        "inner/../../../outside",
    ];
    // In a container all of them at once, each refused for itself.
    for several in targets.chunks(if actor.is_contained() { targets.len() } else { 1 }) {
        let links = several.iter().enumerate();
        let script: Vec<String> = links.map(|(n, target)| format!("ln -s '{target}' src/link{n}")).collect();
        let ended = ground.sandbox().write("src/**").apply().shell(&script.join(" && "));
        for n in 0..several.len() {
            ended.assert_refused(&format!("src/link{n}"), "link_leaves_tree");
        }
    }
    // Two harmless links that together lead out.
    let ended =
        ground.sandbox().write("src/**").apply().shell("ln -s inner src/a && ln -s a/../../docs src/b");
    ended.assert_refused("src/b", "link_leaves_tree");
    before.assert_unchanged();
    // And one that stays.
    ground.sandbox().write("src/**").apply().shell("ln -s inner/mod.rs src/link").assert_applied();
}

fn a_link_raced_against_the_harvest_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply();
    // Left in place.
    let ended = run().attack("race-symlink", [ground.inside("src"), ground.outside("target"), "50".into()]);
    ended.assert_succeeded();
    ended.assert_refused("src/race", "link_leaves_tree");
    // Still running when the command ends: wherever it stood still, the link is there under one of two names.
    let adversary = ground.bin().join("adversary");
    let script = format!(
        "{} race-symlink src {} 60000 & until [ -L src/race.link ] || [ -L src/race ]; do :; done",
        adversary.display(),
        ground.outside_folder().join("target").display(),
    );
    for _ in 0..5 {
        let ended = run().shell(&script);
        assert_eq!(ended.code(), Some(20), "{}", ended.stderr());
        let violations = ended.json()["harvest"]["violations"].clone();
        let link = violations.as_array().expect("a list").iter().any(|one| {
            one["reason"] == "link_leaves_tree"
                && (one["path"] == "src/race" || one["path"] == "src/race.link")
        });
        assert!(link, "{violations:#}");
    }
    before.assert_unchanged();
}

/// A name in the workspace that shares its file with one outside: changing it must not change the other, not
/// while the agent runs and not when its work is applied.
fn a_hard_link_that_was_there_before_leads_nowhere(actor: Actor) {
    let link = |ground: &Ground| {
        fs::hard_link(ground.outside("file"), ground.real("src/linked")).expect("linked");
        [ground.outside("file"), ground.inside("src/linked")]
    };
    let ground = Ground::new(actor);
    let paths = link(&ground);
    ground.native("append-through-hardlink", paths).assert_succeeded();
    assert_ne!(fs::read_to_string(ground.outside("file")).expect("read"), CONTENT);

    let ground = Ground::new(actor);
    let paths = link(&ground);
    let outside = || agency_tests::tree::Tree::of(&ground.outside_folder()).expect("read");
    let before = outside();
    let run = ground.sandbox().write("src/**").read(ground.outside_folder()).apply();
    let ended = run.attack("append-through-hardlink", paths);
    ended.assert_denied();
    ended.assert_applied();
    let changes = before.diff(&outside());
    // That the name in the workspace is another file now is all there is to see.
    assert_eq!(changes, ["file: link count 2 is now 1"]);
    assert_eq!(fs::read_to_string(ground.outside("file")).expect("read"), CONTENT);
    assert_ne!(fs::read_to_string(ground.real("src/linked")).expect("read"), CONTENT);
    assert_eq!(fs::metadata(ground.real("src/linked")).expect("there").nlink(), 1);
}

fn a_scope_that_leads_out_is_a_mistake_and_nothing_starts(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for glob in [
        "..",
        "../**",
        "../outside/**",
        "src/../../outside/**",
        "src/..",
        "/etc/**",
        "/",
        "//outside",
        "src//main.rs",
        "{src,../outside}/**",
        "src/{a,..}/x",
        "",
        ".",
        "!src/**",
        "!(src)/**",
    ] {
        for flag in ["--write", "--deny"] {
            let ended = ground.sandbox().option(flag, glob).shell("echo started");
            assert_eq!(ended.code(), Some(2), "{flag} {glob:?}: {:?}", ended.output);
            assert!(ended.output.stdout.is_empty(), "{flag} {glob:?}");
        }
    }
    // A folder below the root may not name what lies beside it either.
    let ended = ground.sandbox().folder(ground.repo().join("src")).write("../docs/**").shell("echo started");
    assert_eq!((ended.code(), ended.output.stdout.len()), (Some(2), 0), "{}", ended.stderr());
    before.assert_unchanged();
}

/// A scope that names a link opens what the link is, not what it leads to.
fn a_scope_through_a_link_opens_nothing_outside(actor: Actor) {
    let ground = Ground::new(actor);
    std::os::unix::fs::symlink(ground.outside("target"), ground.real("link")).expect("linked");
    ground.give(&ground.repo());
    let before = ground.fingerprint();
    for glob in ["link/**", "link", "link/*"] {
        for run in [ground.sandbox(), ground.sandbox().read(ground.outside_folder())] {
            let ended = run.write(glob).apply().attack("create", [ground.inside("link/new")]);
            ended.assert_denied();
        }
    }
    before.assert_unchanged();
}

as_both! {
    a_file_out_of_scope_cannot_be_written,
    a_file_out_of_scope_cannot_be_created,
    a_file_out_of_scope_cannot_be_deleted,
    a_folder_out_of_scope_cannot_be_deleted,
    a_file_out_of_scope_cannot_be_truncated,
    a_file_out_of_scope_cannot_be_renamed_into_it,
    a_file_of_the_scope_cannot_be_renamed_out_of_it,
    files_cannot_be_exchanged_across_the_scope,
    a_file_out_of_scope_cannot_be_linked_into_it_and_written_through,
    a_change_out_of_scope_with_forged_times_is_found_by_its_content,
    modes_and_times_out_of_scope_cannot_be_changed,
    a_neighbour_of_a_file_in_scope_is_refused_at_the_harvest,
    work_in_scope_does_not_land_with_work_out_of_scope,
    a_parent_renamed_around_a_protected_path_is_refused,
    a_scope_directory_swapped_for_a_link_that_leads_out_is_refused,
    every_kind_of_link_that_leads_out_is_refused,
    a_link_raced_against_the_harvest_is_refused,
    a_hard_link_that_was_there_before_leads_nowhere,
    a_scope_that_leads_out_is_a_mistake_and_nothing_starts,
    a_scope_through_a_link_opens_nothing_outside,
}
