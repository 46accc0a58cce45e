//! Things left in the scope for whoever collects them: special files, strange names, too much of everything.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::as_both;
use crate::ground::{Actor, CONTENT, Ground};
use crate::kernels;
use crate::run::{Ended, Sandbox};

/// Leaves something in the scope; it must be refused for this reason, and nothing applied.
fn refused(actor: Actor, attack: &str, arguments: &[&str], path: &str, reason: &str) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let ended = ground.sandbox().write("src/**").apply().attack(attack, &arguments);
    ended.assert_succeeded();
    ended.assert_refused(path, reason);
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

fn a_setuid_bit_is_refused(actor: Actor) {
    refused(actor, "setuid-bit", &["src/new"], "src/new", "set_id");
    refused(actor, "setuid-bit", &["src/main.rs"], "src/main.rs", "set_id");
    let ground = Ground::new(actor);
    let run = ground.sandbox().write("src/**").apply().without(&["harvest"]);
    run.attack("setuid-bit", ["src/new"]).assert_applied();
    // Even unjudged, nothing with such a bit is ever brought along.
    let there = fs::metadata(ground.real("src/new"));
    assert!(there.map_or(true, |meta| meta.mode() & 0o7000 == 0));
}

fn a_pipe_is_refused_and_nobody_waits_for_it(actor: Actor) {
    let started = Instant::now();
    refused(actor, "mkfifo", &["src/new"], "src/new", "fifo");
    // In place of a file that was there.
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let ended = ground.sandbox().write("src/**").apply().shell("rm src/main.rs && mkfifo src/main.rs");
    ended.assert_refused("src/main.rs", "fifo");
    before.assert_unchanged();
    assert!(started.elapsed() < Duration::from_secs(30), "somebody waited");
}

fn a_socket_is_refused(actor: Actor) {
    refused(actor, "unix-socket-file", &["src/new"], "src/new", "socket");
}

/// Denied by Landlock, by the missing capability, and by the harvest.
fn a_device_is_denied_and_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply();
    if actor.is_root() {
        let ended = run()
            .without(&actor.off(&["landlock", "capabilities", "seccomp"]))
            .attack("mknod-device", ["src/new"]);
        ended.assert_succeeded();
        ended.assert_refused("src/new", "device");
    }
    run().attack("mknod-device", ["src/new"]).assert_denied();
    run().without(&["landlock", "seccomp"]).attack("mknod-device", ["src/new"]).assert_denied();
    run().without(&["capabilities", "seccomp"]).attack("mknod-device", ["src/new"]).assert_denied();
    before.assert_unchanged();
}

/// What overlays take for a deletion must not become one.
fn a_whiteout_is_denied(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let attack = |path| ground.sandbox().write("src/**").apply().attack("mknod-whiteout", [path]);
    attack("docs/new").assert_denied();
    // An overlay refuses it, too.
    if kernels::landlock_refuses_whiteouts() || !actor.is_bare() {
        attack("src/new").assert_denied();
    } else {
        // Where it can be made, in scope, it deletes what is not there.
        attack("src/new").assert_succeeded();
    }
    if kernels::landlock_refuses_whiteouts() {
        // In a private folder, where only Landlock is in the way.
        ground.sandbox().without(&["landlock"]).attack("mknod-whiteout", ["/tmp/new"]).assert_succeeded();
        ground.sandbox().attack("mknod-whiteout", ["/tmp/new"]).assert_denied();
    }
    before.assert_unchanged();
}

fn file_capabilities_are_denied_and_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply();
    if actor.is_root() {
        let ended = run().without(&actor.off(&["capabilities"])).attack("file-capability", ["src/new"]);
        ended.assert_succeeded();
        ended.assert_refused("src/new", "capabilities");
        before.assert_unchanged();
    }
    // The file itself is in scope, and what was denied is not part of it.
    let ended = run().attack("file-capability", ["src/new"]);
    ended.assert_denied();
    ended.assert_applied();
    let mut value = [0; 64];
    assert!(rustix::fs::lgetxattr(ground.real("src/new"), "security.capability", &mut value[..]).is_err());
}

/// A change that keeps size and times is still a change.
fn forged_times_hide_no_change(actor: Actor) {
    let ground = Ground::new(actor);
    let ended = ground.sandbox().write("src/**").apply().attack("forge-mtime", ["src/main.rs"]);
    ended.assert_succeeded();
    ended.assert_applied();
    assert_ne!(fs::read_to_string(ground.real("src/main.rs")).expect("read"), CONTENT);
}

fn a_huge_file_is_denied_by_its_limit(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let terabyte = (1_u64 << 40).to_string();
    let run = || ground.sandbox().write("src/**").apply();
    let ended = run().without(&["file-size"]).attack("sparse", ["src/new", &terabyte]);
    ended.assert_succeeded();
    ended.assert_refused("src/new", "too_large");
    // The kernel's answer to who exceeds this limit is a signal.
    let ended = run().attack("sparse", ["src/new", &terabyte]);
    assert_eq!(ended.json()["end"], serde_json::json!({ "kind": "signaled", "signal": libc::SIGXFSZ }));
    // Smaller than that limit, larger than a change may be.
    let ended = run().option("--file-size", "1GiB").attack("sparse", ["src/new", &(512 << 20).to_string()]);
    ended.assert_refused("src/new", "too_large");
    before.assert_unchanged();
}

fn private_folders_cannot_be_filled_beyond_their_size(actor: Actor) {
    let ground = Ground::new(actor);
    let home = ground.home();
    let (small, large) = ("8MiB", (16 << 20).to_string());
    for folder in ["/tmp", "/var/tmp", "/dev/shm", home.to_str().expect("text")] {
        let run = || ground.sandbox().option("--tmp-size", small);
        run().without(&["tmp-size"]).attack("fill", [folder, &large]).assert_succeeded();
        let report = run().attack("fill", [folder, &large]).assert_denied();
        assert_eq!(report.errno, Some(Errno::ENOSPC as i32), "{folder}: {report:?}");
        assert!(!std::path::Path::new(folder).join("fill").exists(), "{folder}");
    }
    // An engine gives each its own size, which the attestation says; memory bounds them together.
    if actor.is_contained() {
        return;
    }
    // They share one size: four folders are not four times as much.
    let run = ground.sandbox().option("--tmp-size", small);
    let ended =
        run.shell("for d in /tmp /var/tmp /dev/shm \"$HOME\"; do head -c 4M /dev/zero >$d/f || exit 9; done");
    assert_eq!(ended.code(), Some(9), "{}", ended.stderr());
}

/// A million tiny ones, scaled down: names cost memory even where bytes do not.
fn private_folders_cannot_hold_countless_files(actor: Actor) {
    let ground = Ground::new(actor);
    let run = || ground.sandbox().option("--tmp-size", "8MiB");
    run().without(&["tmp-size"]).attack("tiny-files", ["/tmp", "6000"]).assert_succeeded();
    let report = run().attack("tiny-files", ["/tmp", "6000"]).assert_denied();
    assert_eq!(report.errno, Some(Errno::ENOSPC as i32), "{report:?}");
}

fn thousands_of_files_are_applied_or_refused_as_a_whole(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let ended = ground.sandbox().write("README.md").apply().attack("tiny-files", [".", "3000"]);
    // The folders it makes are its own; every file in them is out of scope.
    ended.assert_succeeded();
    ended.assert_refused("0000/0", "out_of_scope");
    before.assert_unchanged();
    // For people the list is cut, so that it can't drown what matters.
    let ended = ground.sandbox().write("README.md").attack("tiny-files", [".", "3000"]);
    assert!(ended.stderr().lines().count() < 40, "{}", ended.stderr());
    let ended = ground.sandbox().write("src/**").apply().attack("tiny-files", ["src/inner", "3000"]);
    ended.assert_applied();
    assert_eq!(fs::read_dir(ground.real("src/inner/0002")).expect("there").count(), 1000);
}

fn a_nest_deeper_than_a_path_can_name_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let ended = ground.sandbox().write("src/**").apply().attack("deep-nest", ["src", "200"]);
    ended.assert_succeeded();
    assert_eq!(ended.json()["result"], "refused");
    let violations = ended.json()["harvest"]["violations"].clone();
    assert!(
        violations.as_array().expect("a list").iter().any(|one| one["reason"] == "too_long"),
        "{violations:#}"
    );
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

/// Folders in folders end at a limit, and ten times as many cost no more than a few times as much: the harvest ran for
/// minutes when each folder was looked for from the top, under rules looked for from the top.
fn a_nest_of_thousands_of_folders_is_refused_soon(actor: Actor) {
    let ground = Ground::new(actor);
    ground.put("repo/.gitignore", "/target/\n*.o\n");
    let before = ground.fingerprint();
    let nested = |depth: &str| {
        let begun = Instant::now();
        let ended = ground.sandbox().write("src/**").apply().attack("narrow-nest", ["src", depth]);
        ended.assert_succeeded();
        let violations = ended.json()["harvest"]["violations"].clone();
        let reasons = violations.as_array().expect("a list").iter().map(|one| one["reason"].clone());
        assert_eq!(reasons.collect::<Vec<_>>(), ["too_deep"], "{violations:#}");
        begun.elapsed()
    };
    let (few, many) = (nested("300"), nested("3000"));
    assert!(many < few * 10 + Duration::from_secs(10), "{few:?} for 300 and {many:?} for 3,000");
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

/// Memory and reports do not grow with how long an agent makes its paths: 100,000 of them took 1.3 GB.
fn long_paths_fill_neither_memory_nor_reports(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    // The first is about what the program takes by itself; no other child of this process is larger.
    let peak = || peak_of_children();
    let made = |glob: &str, count: &str| {
        let ended = ground.sandbox().write(glob).apply().attack("long-paths", ["src", count]);
        ended.assert_succeeded();
        assert_eq!(ended.json()["result"], "refused");
        (ended.json()["harvest"]["violations"].clone(), ended.output.stdout.len())
    };
    made("src/main.rs", "10");
    let small = peak();
    let (violations, length) = made("src/main.rs", "30000");
    assert!(violations.as_array().is_some_and(|all| all.len() <= 301), "only so many are listed");
    assert!(length < 8 << 20, "a report of {length} bytes");
    let (violations, _) = made("src/**", "30000");
    let reasons: Vec<_> = violations.as_array().expect("a list").iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["too_many_bytes"], "{violations:#}");
    let large = peak();
    assert!(large < small + (200 << 20), "{} MiB, and {} MiB for few paths", large >> 20, small >> 20);
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

/// The most memory that any child of this process had, and any of theirs that they waited for.
fn peak_of_children() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).expect("told");
    u64::try_from(usage.max_rss()).unwrap_or(0) << 10
}

/// Names are bytes: they land as they are, and are shown so that they can't act on a terminal or a log.
fn odd_names_land_as_they_are_and_are_shown_escaped(actor: Actor) {
    let ground = Ground::new(actor);
    let odd = |run: Sandbox<'_>| run.attack("odd-names", ["src/inner"]);
    let shown = odd(ground.sandbox().write("src/**"));
    shown.assert_succeeded();
    assert_nothing_acts_on_a_terminal(&shown);
    let refused = odd(ground.sandbox().write("src/**").deny("src/inner/**").without(&["scope", "landlock"]));
    assert!(refused.is_elsewhere() || refused.code() == Some(20));
    assert_nothing_acts_on_a_terminal(&refused);

    // One of them begins with a dot, so it is spelled.
    let ended = odd(ground.sandbox().write("src/**").write("src/inner/...").apply());
    ended.assert_applied();
    assert_eq!(ended.json()["harvest"]["changes"].as_array().expect("a list").len(), 28);
    let made = fs::read_dir(ground.real("src/inner")).expect("there").count();
    assert_eq!(made, 28 + 2);
    ground.give(&ground.repo());
    ground.git(&["add", "--all"]);
}

#[track_caller]
fn assert_nothing_acts_on_a_terminal(ended: &Ended) {
    let text = &ended.output.stderr;
    let acting = |byte: &u8| (*byte < b' ' && *byte != b'\n') || *byte == 0x7f;
    assert!(!text.iter().any(acting), "{}", text.escape_ascii());
    let text = std::str::from_utf8(text).expect("names that are no text are escaped");
    assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{9b}']), "{}", text.escape_unicode());
    assert!(!text.lines().any(|line| line.starts_with("landed") || line.trim() == "task done"), "{text}");
}

fn names_that_are_one_where_case_is_ignored_are_noted(actor: Actor) {
    let ground = Ground::new(actor);
    let ended = ground.sandbox().write("src/**").apply().attack("case-names", ["src/inner"]);
    ended.assert_succeeded();
    ended.assert_applied();
    let warnings = ended.json()["harvest"]["warnings"].clone();
    assert_eq!(warnings.as_array().expect("a list").len(), 3, "{warnings:#}");
}

/// Folders and files without a permission bit are read, judged and cleaned up, also by who is not root.
fn a_locked_tree_is_judged_and_cleaned_up(actor: Actor) {
    let ground = Ground::new(actor);
    let script = "mkdir -p src/locked/deeper && echo x >src/locked/deeper/file && echo y >src/inner/mod.rs && exec \"$@\"";
    let lock =
        |run: Sandbox<'_>| run.prefix(&["/bin/sh", "-c", script, "sh"]).attack("lock-away", ["src/locked"]);
    let before = ground.fingerprint();
    lock(ground.sandbox().write("src/**")).assert_succeeded();
    ground.assert_no_run_is_left();
    let refused =
        lock(ground.sandbox().write("src/**").deny("src/locked/**").without(&["scope", "landlock"]).apply());
    refused.assert_refused("src/locked/deeper/file", "denied");
    before.assert_unchanged();
    ground.assert_no_run_is_left();
    // Scratch, which is thrown away without a look.
    ground.put("repo/.gitignore", "/target/\n");
    let scratch = ground.sandbox().prefix(&["/bin/sh", "-c", "mkdir -p target/a/b && exec \"$@\"", "sh"]);
    scratch.attack("lock-away", ["target/a"]).assert_succeeded();
    ground.assert_no_run_is_left();
    let applied = lock(ground.sandbox().write("src/**").apply());
    applied.assert_applied();
    assert_eq!(fs::read_to_string(ground.real("src/locked/deeper/file")).expect("read"), "x\n");
    ground.assert_no_run_is_left();
}

/// A passed secret does not land in a file, a link or a name.
fn a_passed_secret_does_not_land(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply().pass("TOKEN", "s3cr3t-of-the-caller");
    let cases = [
        ("printf 'x%sx' \"$TOKEN\" >src/new", "src/new", "secret"),
        ("ln -s \"$TOKEN\" src/new", "src/new", "secret"),
        ("echo >src/\"$TOKEN\"", "src", "secret_in_name"),
    ];
    for (script, path, reason) in cases {
        let ended = run().shell(script);
        ended.assert_refused(path, reason);
        let told = String::from_utf8_lossy(&ended.output.stdout).into_owned();
        assert!(!told.contains("s3cr3t"), "{told}");
    }
    before.assert_unchanged();
}

as_both! {
    a_setuid_bit_is_refused,
    a_pipe_is_refused_and_nobody_waits_for_it,
    a_socket_is_refused,
    a_device_is_denied_and_refused,
    a_whiteout_is_denied,
    file_capabilities_are_denied_and_refused,
    forged_times_hide_no_change,
    a_huge_file_is_denied_by_its_limit,
    private_folders_cannot_be_filled_beyond_their_size,
    private_folders_cannot_hold_countless_files,
    thousands_of_files_are_applied_or_refused_as_a_whole,
    a_nest_deeper_than_a_path_can_name_is_refused,
    a_nest_of_thousands_of_folders_is_refused_soon,
    long_paths_fill_neither_memory_nor_reports,
    odd_names_land_as_they_are_and_are_shown_escaped,
    names_that_are_one_where_case_is_ignored_are_noted,
    a_locked_tree_is_judged_and_cleaned_up,
    a_passed_secret_does_not_land,
}
