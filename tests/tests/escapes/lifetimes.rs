//! When `agency sandbox` goes, everything goes: processes, mounts, cgroups, files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use agency_tests::engine::Engine;
use agency_tests::processes::{Marker, VARIABLE, emulated, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::as_both;
use crate::ground::{Actor, DEADLINE, Ground};
use crate::processes::{assert_no_cgroup_is_left_of, cgroups};

/// How long anything may be left.
fn afterlife() -> Duration {
    emulated(Duration::from_secs(1))
}

/// A sandbox with a daemon, a locked tree and a cgroup of its own, and everything to find them by.
struct Running {
    child: Child,
    /// Kept open, so that its last words are heard.
    _stderr: BufReader<ChildStderr>,
    marker: Marker,
    mounts: String,
    group: String,
    engine: Option<Engine>,
}

/// A test that fails leaves nothing running either.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").expect("mounts")
}

fn start(ground: &Ground) -> Running {
    let (marker, mounts) = (Marker::new(), mounts());
    // Scratch is kept on disk while a run lasts.
    ground.put("repo/.gitignore", "/target/\n");
    let adversary = ground.bin().join("adversary");
    let script = format!(
        "mkdir -p src/locked/deeper target/locked/deeper && {0} daemon src/beat >/dev/null && \
         {0} lock-away src/locked >/dev/null && {0} lock-away target/locked >/dev/null && {0} ignore-term 100",
        adversary.display()
    );
    let run = ground.sandbox().write("src/**").pass(VARIABLE, marker.as_str()).option("--memory", "512MiB");
    let mut command = run.direct("/bin/sh");
    command.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("agency starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
    let ready = stderr.by_ref().lines().map_while(Result::ok).any(|line| line == "ready");
    assert!(ready, "it did not start");
    // Groups are named after the process that made them.
    let group = format!("-{:x}", child.id());
    // A container's group is the engine's, and goes with it.
    if ground.actor.is_root() && !ground.actor.is_contained() {
        assert!(!cgroups(&group).is_empty(), "root has a controller here, and no group is made");
    }
    assert!(marker.alive().len() >= 3, "{:?}", marker.alive());
    let engine = ground.engine().cloned();
    Running { child, _stderr: stderr, marker, mounts, group, engine }
}

fn nothing_is_left(mut running: Running) -> std::process::ExitStatus {
    assert!(wait_until(DEADLINE, || running.child.try_wait().expect("a state").is_some()));
    let ended = Instant::now();
    running.marker.gone_within(afterlife()).expect("every process is dead");
    assert_no_cgroup_is_left_of(&running.group);
    if let Some(engine) = &running.engine {
        let pid = running.child.id();
        let gone = wait_until(afterlife(), || engine.containers_of(Some(pid)).is_empty());
        assert!(gone, "a container is left");
    }
    assert!(ended.elapsed() < afterlife() * 3);
    // Other tests mount nothing on the host either.
    assert_eq!(mounts(), running.mounts);
    running.child.wait().expect("ended")
}

fn asked_to_end(actor: Actor, signal: Signal) {
    let ground = Ground::new(actor);
    let running = start(&ground);
    let before = ground.fingerprint();
    let started = Instant::now();
    kill(Pid::from_raw(running.child.id() as i32), signal).expect("sent");
    let status = nothing_is_left(running);
    assert_eq!(status.code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    ground.assert_no_run_is_left();
    before.assert_unchanged();
}

fn an_interrupt_leaves_nothing(actor: Actor) {
    asked_to_end(actor, Signal::SIGINT);
}

fn a_termination_leaves_nothing(actor: Actor) {
    asked_to_end(actor, Signal::SIGTERM);
}

fn a_hangup_leaves_nothing(actor: Actor) {
    asked_to_end(actor, Signal::SIGHUP);
}

/// Nobody is there to clean up: the kernel and the janitor do, and the next run sweeps the files.
fn a_kill_leaves_nothing_but_files_and_those_are_swept(actor: Actor) {
    let ground = Ground::new(actor);
    let running = start(&ground);
    let before = ground.fingerprint();
    kill(Pid::from_raw(running.child.id() as i32), Signal::SIGKILL).expect("sent");
    nothing_is_left(running);
    before.assert_unchanged();
    assert_eq!(ground.sandbox().shell("true").code(), Some(0));
    ground.assert_no_run_is_left();
    before.assert_unchanged();
}

/// Killed together with whoever cleans up after it: its whole process group.
fn a_kill_of_the_whole_group_leaves_no_process(actor: Actor) {
    use std::os::unix::process::CommandExt;
    let (ground, marker) = (Ground::new(actor), Marker::new());
    let run = ground.sandbox().pass(VARIABLE, marker.as_str()).option("--memory", "512MiB");
    let mut command = run.direct("/bin/sleep");
    let mut child = command.arg("100").process_group(0).spawn().expect("agency starts");
    let asleep = || marker.alive().iter().any(|one| one.command.starts_with("/bin/sleep"));
    assert!(wait_until(DEADLINE, asleep));
    kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL).expect("sent");
    child.wait().expect("ended");
    marker.gone_within(afterlife()).expect("every process is dead");
    // A cgroup may be left by this; the next run must not mind, nor leave one more.
    assert_eq!(ground.sandbox().option("--memory", "512MiB").shell("true").code(), Some(0));
    ground.assert_no_run_is_left();
}

/// Every way a command can end.
fn an_ordinary_end_leaves_nothing(actor: Actor) {
    let ground = Ground::new(actor);
    let (before, mounts_before) = (ground.fingerprint(), mounts());
    for (script, code) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -SEGV $$", 139)] {
        let ended = ground.sandbox().write("src/**").option("--memory", "512MiB").shell(script);
        assert_eq!(ended.code(), Some(code), "{}", ended.stderr());
        ground.assert_no_run_is_left();
    }
    let ended = ground.sandbox().command("/no/such/program").status().expect("agency starts");
    assert_eq!(ended.code(), Some(127));
    ground.assert_no_run_is_left();
    assert_eq!(mounts(), mounts_before);
    before.assert_unchanged();
}

as_both! {
    an_interrupt_leaves_nothing,
    a_termination_leaves_nothing,
    a_hangup_leaves_nothing,
    a_kill_leaves_nothing_but_files_and_those_are_swept,
    a_kill_of_the_whole_group_leaves_no_process,
    an_ordinary_end_leaves_nothing,
}
