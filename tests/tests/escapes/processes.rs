//! Outliving the deadline, exceeding the limits, and drowning whoever reads the output.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use agency_tests::adversary::Outcome;
use agency_tests::processes::{Marker, VARIABLE, wait_until};
use agency_tests::repository::skip;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::as_both;
use crate::ground::{Actor, DEADLINE, Ground};
use crate::run::{Ended, Sandbox};

/// How long anything may live on after its sandbox.
const AFTERLIFE: Duration = Duration::from_secs(1);

/// Without these nothing but a process group holds an agent's processes together.
const LOOSE: &[&str] = &["pid-namespace", "private-proc", "read-only-host", "private-home", "landlock"];

/// Out of the process group, which is ended as a whole even without a namespace.
const AWAY: &[&str] = &["setsid", "--wait"];

fn marked<'a>(ground: &'a Ground, marker: &Marker) -> Sandbox<'a> {
    ground.sandbox().write("src/**").pass(VARIABLE, marker.as_str())
}

/// Ends what an attack without its controls left running.
fn end_all(marker: &Marker) {
    for one in marker.alive() {
        let _ = kill(Pid::from_raw(one.pid as i32), Signal::SIGKILL);
    }
    marker.gone_within(DEADLINE).expect("killed");
}

/// It does not listen to a polite signal, or can't: it is ended all the same, after a grace of five seconds.
fn deadline(actor: Actor, attack: &str, flag: &str, why: &str) {
    let (ground, marker) = (Ground::new(actor), Marker::new());
    let before = ground.fingerprint();
    let started = Instant::now();
    let ended = marked(&ground, &marker).option(flag, "500ms").apply().attack(attack, [""; 0]);
    marker.gone_within(AFTERLIFE).expect("nobody outlives the deadline");
    assert_eq!(ended.code(), Some(124), "{}", ended.stderr());
    let report = ended.json();
    assert_eq!(report["end"], json!({ "kind": "stopped", "why": why }));
    assert_eq!(report["exit"], json!({ "code": 124, "by": "agency" }));
    let took = started.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(30), "{took:?}");
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

fn who_ignores_the_polite_signal_is_killed(actor: Actor) {
    deadline(actor, "ignore-term", "--timeout", "wall");
}

fn who_stops_itself_is_killed(actor: Actor) {
    deadline(actor, "stop-self", "--timeout", "wall");
}

fn who_stops_itself_shows_no_sign_of_life(actor: Actor) {
    deadline(actor, "stop-self", "--stall", "stall");
}

/// Two forks and a session of its own.
fn a_daemon_does_not_outlive_its_sandbox(actor: Actor) {
    let (ground, marker) = (Ground::new(actor), Marker::new());
    let beat = ground.outside_folder().join("beat");
    let loose = marked(&ground, &marker).without(&actor.off(LOOSE)).attack("daemon", [&beat]);
    let beats = || fs::metadata(&beat).map_or(0, |meta| meta.len());
    let seen = beats();
    let goes_on = loose.is_elsewhere() || wait_until(DEADLINE, || beats() > seen + 2);
    let alive = marker.alive();
    end_all(&marker);
    loose.assert_succeeded();
    assert!(
        loose.is_elsewhere() || goes_on && !alive.is_empty(),
        "the daemon is dead although nothing holds it"
    );

    let marker = Marker::new();
    let ended = marked(&ground, &marker).apply().attack("daemon", ["src/beat"]);
    marker.gone_within(AFTERLIFE).expect("the daemon is dead");
    ended.assert_succeeded();
    ended.assert_applied();
    assert_eq!(ended.code(), Some(0));
    // What it wrote while it lived is there, as it was when it died.
    let landed = fs::read(ground.real("src/beat")).expect("read");
    assert!(!landed.is_empty() && landed.iter().all(|byte| *byte == b'.'));
    // Killed at the deadline, too.
    let marker = Marker::new();
    let run = marked(&ground, &marker).option("--timeout", "500ms");
    let adversary = ground.bin().join("adversary");
    let ended = run.shell(&format!("{} daemon src/beat2 && sleep 60", adversary.display()));
    marker.gone_within(AFTERLIFE).expect("the daemon is dead");
    assert_eq!(ended.code(), Some(124));
    ground.assert_no_run_is_left();
}

fn who_holds_the_output_open_does_not_hold_the_run_open(actor: Actor) {
    let (ground, marker) = (Ground::new(actor), Marker::new());
    let started = Instant::now();
    let loose = marked(&ground, &marker).without(&actor.off(LOOSE)).prefix(AWAY).attack("hold-stdout", ["3"]);
    let waited = started.elapsed();
    end_all(&marker);
    loose.assert_succeeded();
    assert!(loose.is_elsewhere() || waited >= Duration::from_secs(3), "nobody held it: {waited:?}");

    let (marker, started) = (Marker::new(), Instant::now());
    let ended = marked(&ground, &marker).attack("hold-stdout", ["100"]);
    marker.gone_within(AFTERLIFE).expect("the holder is dead");
    ended.assert_succeeded();
    assert!(started.elapsed() < Duration::from_secs(30), "somebody waited");
}

/// In milliseconds: later than any end, also on an emulated machine.
const LATE: &str = "3000";

/// "Done", and then a write.
fn nothing_is_written_after_the_end(actor: Actor) {
    let (ground, marker) = (Ground::new(actor), Marker::new());
    let late = ground.outside_folder().join("late");
    let loose = marked(&ground, &marker).without(&actor.off(LOOSE)).prefix(AWAY);
    let loose = loose.attack("late-write", [late.as_os_str(), LATE.as_ref()]);
    loose.assert_succeeded();
    let written = loose.is_elsewhere() || wait_until(DEADLINE, || late.exists());
    end_all(&marker);
    assert!(written, "the late write did not come although nothing stops it");

    let (marker, before) = (Marker::new(), ground.fingerprint());
    let ended = marked(&ground, &marker).apply().attack("late-write", ["src/late", LATE]);
    marker.gone_within(AFTERLIFE).expect("the late writer is dead");
    ended.assert_applied();
    assert_eq!(ended.json()["harvest"]["changes"], json!([]));
    before.assert_unchanged();
}

/// The limit counts the agent's own user: nobody else's processes are in its way, nor its in theirs.
fn bombs_of_processes_and_threads_stop_at_the_limit(actor: Actor) {
    let ground = Ground::new(actor);
    for attack in ["fork-bomb", "thread-bomb"] {
        let run = || ground.sandbox().option("--processes", "32");
        run().without(&["processes"]).attack(attack, ["200"]).assert_succeeded();
        let report = run().attack(attack, ["200"]).assert_denied();
        assert_eq!(report.errno, Some(Errno::EAGAIN as i32), "{report:?}");
        // Two at a time do not share one limit.
        run().attack(attack, ["16"]).assert_succeeded();
    }
}

/// Held by a controller where there is one, otherwise watched: either way it does not get there.
fn a_memory_bomb_stops_at_the_limit(actor: Actor) {
    let ground = Ground::new(actor);
    let run = || ground.sandbox().option("--memory", "96MiB").flag("--json");
    let bytes = (192_u64 << 20).to_string();
    run().without(&["memory"]).attack("memory-bomb", [&bytes]).assert_succeeded();
    let how = run().shell("true").json()["attestation"]["controls"]
        .as_array()
        .and_then(|controls| controls.iter().find(|one| one["control"] == "memory").cloned())
        .expect("a statement");
    if how["enforced"] == "enforced" {
        let ended = run().attack("memory-bomb", [&bytes]);
        // The kernel may pick the bomb or all of its group.
        let killed = ended.json()["end"]["kind"] != "exited";
        assert!(killed || ended.report().outcome == Outcome::Denied, "{how}: {}", ended.stderr());
    } else {
        assert_eq!(how["enforced"], "watched");
    }
    // What stays is noticed in any case.
    let hold = "x=$(head -c 201326592 /dev/zero | tr '\\0' x); sleep 600; echo survived";
    let (marker, started) = (Marker::new(), Instant::now());
    let mut command = run().pass(VARIABLE, marker.as_str()).direct("/bin/sh");
    command.args(["-c", hold]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("agency starts");
    // Groups are named after the process that made them.
    let group = format!("-{:x}", child.id());
    let ended = Ended::new(hold, child.wait_with_output().expect("it ends"));
    marker.gone_within(AFTERLIFE).expect("it is dead");
    assert!(!ended.stderr().contains("survived"), "{how}: {}", ended.stderr());
    assert!(started.elapsed() < Duration::from_secs(110), "{how}: nobody stopped it");
    if how["enforced"] == "watched" {
        assert_eq!((ended.code(), &ended.json()["end"]["why"]), (Some(124), &json!("memory")));
    }
    assert_no_cgroup_is_left_of(&group);
}

/// No group of this process in any hierarchy.
#[track_caller]
pub(crate) fn assert_no_cgroup_is_left_of(run: &str) {
    assert!(wait_until(AFTERLIFE, || cgroups(run).is_empty()), "{:?}", cgroups(run));
}

/// Where processes can be moved between groups: the unified hierarchy, wherever it is mounted.
pub(crate) fn cgroup_hierarchy() -> std::path::PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let line =
        mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).expect("cgroup v2 is mounted");
    line.split(' ').nth(1).expect("a path").into()
}

/// Groups of ours with this in their name.
pub(crate) fn cgroups(part: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("agency-") && name.contains(part) {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

/// In the scope, in a private folder, and by the path where it would be on the host.
fn no_core_is_dropped(actor: Actor) {
    let ground = Ground::new(actor);
    // Where cores go to a program, they go nowhere that could be looked at.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with('|') {
        ground.native("core-dump", [ground.outside("dir")]).assert_succeeded();
    }
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for folder in ["src", "/tmp"] {
        ground.sandbox().write("src/**").apply().attack("core-dump", [folder]).assert_denied();
    }
    let open = actor.off(&["landlock", "seccomp", "capabilities", "no-new-privileges"]);
    ground.sandbox().write("src/**").without(&open).attack("core-dump", ["/tmp"]).assert_denied();
    before.assert_unchanged();
}

/// Lowered to none, it would let a crash start the host's core handler. Whoever asks for that is told that it is so.
fn the_limit_on_cores_can_neither_be_raised_nor_lowered(actor: Actor) {
    let ground = Ground::new(actor);
    ground.sandbox().without(&["core-dumps"]).attack("core-limit", [""; 0]).assert_succeeded();
    ground.sandbox().attack("core-limit", [""; 0]).assert_denied();
    let script = "ulimit -c 0 && ulimit -c unlimited && grep '^Max core' /proc/self/limits";
    let ended = ground.sandbox().shell(script);
    let text = String::from_utf8_lossy(&ended.output.stdout).into_owned();
    let limits: Vec<&str> = text.split_whitespace().skip(4).take(2).collect();
    assert_eq!((ended.code(), limits), (Some(0), vec!["1", "1"]), "{text}{}", ended.stderr());
}

/// The variable that lets tests change a setting of the host for a moment.
const SETTINGS: &str = "AGENCY_TEST_HOST_SETTINGS";

/// The host's core pattern, which is put back.
struct Pattern(String);

impl Drop for Pattern {
    fn drop(&mut self) {
        let _ = fs::write("/proc/sys/kernel/core_pattern", &self.0);
    }
}

/// With the host's cores piped to a program, that program is not started, whatever limit the agent asks for.
#[test]
fn a_crash_starts_nothing_on_the_host() {
    if !nix::unistd::Uid::current().is_root() || std::env::var_os(SETTINGS).is_none() {
        return skip(
            "a_crash_starts_nothing_on_the_host",
            &format!("it sets the host's core pattern: {SETTINGS}=1, as root"),
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (program, log) = (folder.path().join("handler"), folder.path().join("log"));
    let script = format!("#!/bin/sh\necho started >>{}\ncat >/dev/null\n", log.display());
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("runs");
    let actors = [Actor::Root, Actor::User, Actor::BareRoot, Actor::BareUser];
    let contained = [Actor::ContainedRoot, Actor::ContainedUser];
    let contained = contained.into_iter().filter(|_| agency_tests::engine::Engine::find().is_ok());
    for actor in actors.into_iter().chain(contained) {
        let ground = Ground::new(actor);
        let pattern = Pattern(fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern"));
        fs::write("/proc/sys/kernel/core_pattern", format!("|{}", program.display())).expect("set");
        let crash = "ulimit -c 0; kill -SEGV $$";
        // The kernel waits for nobody, so what is asserted first is that the handler is heard of.
        let open = ground.sandbox().without(&["core-dumps"]);
        if !open.is_shown_elsewhere() {
            open.shell(crash);
            assert!(wait_until(DEADLINE, || log.exists()), "{actor:?}: the handler never starts here");
            fs::remove_file(&log).expect("removed");
        }
        let ended = ground.sandbox().shell(crash);
        assert_eq!(ended.code(), Some(128 + libc::SIGSEGV), "{actor:?}: {}", ended.stderr());
        // One that crashes outside after it is handed over after it.
        let native = ground.command("/bin/sh").args(["-c", crash]).status().expect("sh starts");
        assert!(!native.success());
        assert!(wait_until(DEADLINE, || log.exists()));
        drop(pattern);
        assert_eq!(
            fs::read_to_string(&log).expect("a log"),
            "started\n",
            "{actor:?}: once, and not for the agent"
        );
        fs::remove_file(&log).expect("removed");
    }
}

/// An ordinary user's agent is that user, and what it uses up is missing to the user.
fn notifications_of_the_user_cannot_be_used_up(actor: Actor) {
    let ground = Ground::new(actor);
    let report = ground.sandbox().flag("--json").shell("true").json();
    let controls = report["attestation"]["controls"].as_array().cloned().unwrap_or_default();
    let limits = controls.iter().find(|one| one["control"] == "user-limits").expect("a statement");
    let how = limits["how"].as_str().unwrap_or_default();
    if actor.is_root() {
        assert!(limits["enforced"] == "enforced" && how.contains("a host user of its own"), "{limits}");
        return;
    }
    if actor.is_contained() {
        // An engine makes no user namespace, and without one there is nothing to count in.
        assert!(
            limits["enforced"] == "off" && how.contains("not held: without a user namespace"),
            "{limits}"
        );
        return;
    }
    assert!(limits["enforced"] == "enforced" && how.contains("inotify"), "{limits}");
    let all = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").expect("a limit");
    let more = (all.trim().parse::<u64>().expect("a number") / 8 + 1).to_string();
    ground.sandbox().without(&["user-limits"]).attack("inotify", [&more]).assert_succeeded();
    ground.sandbox().attack("inotify", [&more]).assert_denied();
    ground.sandbox().without(&["landlock", "seccomp"]).attack("inotify", [&more]).assert_denied();
    if !actor.is_bare() {
        ground.sandbox().attack("inotify", ["2"]).assert_succeeded();
    }
}

/// A bomb that nobody set a limit for stops before the machine does.
fn memory_has_a_limit_although_nobody_asks_for_one(actor: Actor) {
    let ground = Ground::new(actor);
    let memory = |flags: &[&str]| {
        let run = flags.iter().fold(ground.sandbox().flag("--json"), |run, flag| run.flag(flag));
        let controls = run.shell("true").json()["attestation"]["controls"].as_array().cloned();
        controls.unwrap_or_default().into_iter().find(|one| one["control"] == "memory").expect("a statement")
    };
    let usual = memory(&[]);
    let expected = if actor.is_contained() { "enforced" } else { "watched" };
    assert_eq!((&usual["requested"], &usual["enforced"]), (&json!(true), &json!(expected)), "{usual}");
    let how = usual["how"].as_str().unwrap_or_default();
    assert!(how.contains("by default three quarters of this machine's"), "{usual}");
    let limit: u64 = how
        .split(|c: char| !c.is_ascii_digit())
        .find(|digits| digits.len() > 6)
        .expect("a size")
        .parse()
        .expect("a number");
    let whole = fs::read_to_string("/proc/meminfo").expect("memory");
    let whole: u64 = whole.split_whitespace().nth(1).expect("a size").parse().expect("a number");
    assert!(limit <= whole * 1024 / 4 * 3 && limit > whole * 1024 / 8, "{limit} of {whole} KiB");
    assert_eq!(memory(&["--memory", "none"])["enforced"], "off");
    let asked = memory(&["--memory", "512MiB"]);
    assert!(!asked["how"].as_str().unwrap_or_default().contains("by default"), "{asked}");
}

/// One endless line or a million short ones: all of it comes through, none of it is kept.
fn a_flood_of_output_passes_without_being_kept(actor: Actor) {
    let ground = Ground::new(actor);
    let bytes = 64_u64 << 20;
    for newlines in [None, Some("newlines")] {
        let mut command = ground.sandbox().direct(ground.bin().join("adversary"));
        command.arg("flood").arg(bytes.to_string()).args(newlines).stdout(Stdio::piped());
        let mut child = command.spawn().expect("agency starts");
        let mut stdout = child.stdout.take().expect("stdout");
        let (mut read, mut most) = (0, 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            match stdout.read(&mut buffer).expect("read") {
                0 => break,
                length => read += length as u64,
            }
            most = most.max(kept(child.id()));
        }
        assert!(child.wait().expect("ended").success());
        assert!(read > bytes, "{read}");
        assert!(most < 8 << 10, "the supervisor keeps {most} KiB");
    }
    // Nobody reads at all: it is ended at its deadline all the same, and what it said is still to be had.
    let marker = Marker::new();
    let run = ground.sandbox().option("--timeout", "500ms").pass(VARIABLE, marker.as_str());
    let mut command = run.direct(ground.bin().join("adversary"));
    command.args(["flood", "1000000000"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("agency starts");
    let mut stdout = child.stdout.take().expect("stdout");
    let flooding = || marker.alive().iter().any(|one| one.command.contains("adversary flood"));
    assert!(wait_until(DEADLINE, flooding));
    let inside = || marker.alive().into_iter().filter(|one| one.pid != child.id()).collect::<Vec<_>>();
    let ended = wait_until(DEADLINE, || inside().is_empty());
    let left = inside();
    std::io::copy(&mut stdout, &mut std::io::sink()).expect("read");
    assert_eq!(child.wait().expect("ended").code(), Some(124));
    assert!(ended, "who does not read keeps it alive: {left:?}");
}

/// Memory that a process has filled, without its program's own file.
fn kept(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Whatever it prints, the report is ours alone.
fn output_cannot_forge_the_report(actor: Actor) {
    let ground = Ground::new(actor);
    let run = ground.sandbox().write("src/**").flag("--json");
    let ended = run.attack("escapes-output", [""; 0]);
    ended.assert_succeeded();
    let text = String::from_utf8(ended.output.stdout.clone()).expect("JSON is text");
    assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{}", text.escape_debug());
    assert_eq!(ended.json()["result"], "discarded");
    // Not by its own words in the report either.
    let forged = "x\u{1b}[2J\", \"result\": \"applied\"";
    let output = run.command("/bin/true").arg(forged).output().expect("agency starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["result"], "discarded");
    assert!(!output.stdout.contains(&0x1b));
}

as_both! {
    who_ignores_the_polite_signal_is_killed,
    who_stops_itself_is_killed,
    who_stops_itself_shows_no_sign_of_life,
    a_daemon_does_not_outlive_its_sandbox,
    who_holds_the_output_open_does_not_hold_the_run_open,
    nothing_is_written_after_the_end,
    bombs_of_processes_and_threads_stop_at_the_limit,
    a_memory_bomb_stops_at_the_limit,
    no_core_is_dropped,
    the_limit_on_cores_can_neither_be_raised_nor_lowered,
    notifications_of_the_user_cannot_be_used_up,
    memory_has_a_limit_although_nobody_asks_for_one,
    a_flood_of_output_passes_without_being_kept,
    output_cannot_forge_the_report,
}
