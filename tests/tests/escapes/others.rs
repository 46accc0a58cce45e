//! Reaching into other processes: of the same user outside, of another agent, of the supervisor.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Stdio;

use agency_tests::processes::{Marker, VARIABLE, wait_until};
use agency_tests::system_v::{Object, SystemV};

use crate::as_both;
use crate::ground::{Actor, DEADLINE, Ground};
use crate::kernels;
use crate::run::Attack;

/// Without these an agent sees, and if it is root can do anything to, every process of the host.
fn open(actor: Actor) -> Vec<&'static str> {
    let held = ["landlock", "seccomp", "capabilities", "no-new-privileges"];
    actor.off(&[actor.seeing_processes(), &held].concat())
}

/// Who can show an attack to work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    ByBoth,
    /// The user namespace, which a user can't do without, stops it by itself: the kernel lets nobody look into a
    /// process of a namespace further out.
    ByRoot,
}

/// The attack on a process of the same user outside.
fn held(actor: Actor, attack: &str, shown: Shown) {
    let ground = Ground::new(actor);
    // A container has no user namespace: its agent is the user itself, and only lacks the capability that one attack takes.
    let by_user = shown == Shown::ByBoth || (actor == Actor::ContainedUser && attack != "process-madvise");
    if actor.is_root() || by_user {
        let victim = ground.victim();
        ground.sandbox().without(&open(actor)).attack(attack, [victim.pid()]).assert_succeeded();
    }
    let victim = ground.victim();
    let condition = victim.condition();
    let before = ground.fingerprint();
    ground.sandbox().attack(attack, [victim.pid()]).assert_denied();
    // It is not only that the process has no number inside.
    ground.sandbox().without(&["landlock", "seccomp"]).attack(attack, [victim.pid()]).assert_denied();
    // Of a signal, Landlock is the second fence; of everything else, the user.
    if !attack.contains("signal") || kernels::landlock_has_scopes("a_process_outside_cannot_be_signalled") {
        let seen = actor.seeing_processes();
        ground.sandbox().without(seen).attack(attack, [victim.pid()]).assert_denied();
    }
    before.assert_unchanged();
    assert_eq!(victim.condition(), condition);
}

fn a_process_outside_cannot_be_signalled(actor: Actor) {
    if signals_reach_the_same_user(actor) {
        return;
    }
    held(actor, "signal", Shown::ByBoth);
    held(actor, "pidfd-signal", Shown::ByBoth);
}

/// Without namespaces, as an ordinary user, on a kernel whose Landlock has no scopes, nothing keeps signals
/// inside. The attestation says so.
fn signals_reach_the_same_user(actor: Actor) -> bool {
    let reach = actor == Actor::BareUser && !kernels::landlock_has_scopes("signals by landlock as a user");
    if reach {
        let report = Ground::new(actor).sandbox().flag("--json").shell("true").json();
        let controls = report["attestation"]["controls"].as_array().cloned().unwrap_or_default();
        let processes = controls.iter().find(|one| one["control"] == "pid-namespace").expect("a statement");
        let how = processes["how"].as_str().unwrap_or_default();
        assert!(how.contains("not held: signals reach other processes of this user"), "{processes}");
    }
    reach
}

/// A signal to everybody reaches nobody.
fn nobody_outside_can_be_signalled_by_chance(actor: Actor) {
    let ground = Ground::new(actor);
    let _victim = ground.victim();
    ground.sandbox().without(&open(actor)).attack("signal-all", [""; 0]).assert_succeeded();
    ground.sandbox().attack("signal-all", [""; 0]).assert_denied();
}

fn a_process_outside_cannot_be_traced(actor: Actor) {
    held(actor, "ptrace-attach", Shown::ByRoot);
}

fn the_memory_of_a_process_outside_cannot_be_written(actor: Actor) {
    held(actor, "vm-write", Shown::ByRoot);
    held(actor, "proc-mem", Shown::ByRoot);
    held(actor, "process-madvise", Shown::ByRoot);
}

fn descriptors_of_a_process_outside_cannot_be_taken(actor: Actor) {
    held(actor, "pidfd-getfd", Shown::ByRoot);
    held(actor, "proc-fd", Shown::ByRoot);
}

fn the_environment_of_a_process_outside_cannot_be_read(actor: Actor) {
    held(actor, "proc-environ", Shown::ByRoot);
}

fn the_folder_of_a_process_outside_cannot_be_entered(actor: Actor) {
    held(actor, "proc-cwd", Shown::ByRoot);
}

/// Landlock has no word on these. The namespaces hold them, and where there are none the filter does.
fn a_process_outside_cannot_be_slowed_or_limited(actor: Actor) {
    for attack in ["renice", "prlimit", "affinity", "scheduler", "scheduler-attributes", "io-priority"] {
        let ground = Ground::new(actor);
        let victim = ground.victim();
        ground.sandbox().without(&open(actor)).attack(attack, [victim.pid()]).assert_succeeded();
        let victim = ground.victim();
        let condition = victim.condition();
        ground.sandbox().attack(attack, [victim.pid()]).assert_denied();
        ground.sandbox().without(&["landlock", "seccomp"]).attack(attack, [victim.pid()]).assert_denied();
        assert_eq!(victim.condition(), condition);
    }
}

/// Found by their numbers, which are small, and open to everybody.
fn objects_of_system_v_cannot_be_reached(actor: Actor) {
    let ground = Ground::new(actor);
    let make = |object| SystemV::new(&mut ground.command("/usr/bin/ipcmk"), object);
    for (attack, object) in [
        ("sysv-memory", Object::Memory),
        ("sysv-message", Object::Messages),
        ("sysv-semaphore", Object::Semaphores),
        ("sysv-remove", Object::Memory),
    ] {
        let shown = make(object);
        // To remove what is another user's takes more than its mode.
        if attack != "sysv-remove" || !actor.is_root() {
            ground.sandbox().without(&["ipc-namespace"]).attack(attack, [&shown.id]).assert_succeeded();
        }
        let held = make(object);
        ground.sandbox().attack(attack, [&held.id]).assert_denied();
        ground.sandbox().without(&["landlock", "seccomp"]).attack(attack, [&held.id]).assert_denied();
        assert!(held.exists(), "{attack}");
    }
}

fn processes_outside_cannot_be_seen(actor: Actor) {
    let ground = Ground::new(actor);
    let _victim = ground.victim();
    ground.sandbox().without(actor.seeing_processes()).attack("proc-list", ["sleep"]).assert_succeeded();
    ground.sandbox().attack("proc-list", ["sleep"]).assert_denied();
    ground.sandbox().attack("proc-list", ["agency"]).assert_succeeded();
}

/// The sandbox's first process was the supervisor a moment ago, and still has its environment in memory.
fn the_first_process_cannot_be_looked_into(actor: Actor) {
    let ground = Ground::new(actor);
    if actor.is_root() {
        let open = actor.off(&["capabilities", "landlock", "seccomp"]);
        ground.sandbox().without(&open).attack("dumpable-pid1", [""; 0]).assert_succeeded();
    }
    ground.sandbox().attack("dumpable-pid1", [""; 0]).assert_denied();
    ground.sandbox().without(&["landlock", "seccomp"]).attack("dumpable-pid1", [""; 0]).assert_denied();
    let attacks = ["proc-environ", "proc-mem", "ptrace-attach", "vm-write", "pidfd-getfd", "proc-fd"]
        .map(|attack| (attack, vec!["1".into()]));
    ground.sandbox().deny_all(&attacks);
    ground.sandbox().without(&["landlock", "seccomp"]).deny_all(&attacks);
}

fn the_first_process_cannot_be_killed(actor: Actor) {
    let ground = Ground::new(actor);
    for without in [&[][..], &["landlock", "seccomp"]] {
        let ended = ground.sandbox().without(without).attack("kill-init", [""; 0]);
        // With nothing but the kernel's own rule in the way, asking it to end ends the sandbox itself.
        if without.is_empty() && kernels::landlock_has_scopes("the_first_process_cannot_be_killed") {
            ended.assert_denied();
        }
        assert_ne!(ended.code(), Some(125), "{}", ended.stderr());
    }
}

/// An agent against another of the same caller.
fn another_agent_cannot_be_reached(actor: Actor) {
    let (ground, marker) = (Ground::new(actor), Marker::new());
    let neighbour = ground.sandbox().pass(VARIABLE, marker.as_str()).option("--timeout", "60s");
    let mut running = neighbour.direct("/bin/sleep").arg("50").stdout(Stdio::null()).spawn().expect("starts");
    let sleeper = || marker.alive().into_iter().find(|one| one.command.starts_with("/bin/sleep"));
    assert!(wait_until(DEADLINE, || sleeper().is_some()));
    let pid = sleeper().expect("it was there").pid.to_string();
    let supervisor = running.id().to_string();
    let mut attacks = vec!["ptrace-attach", "vm-write", "proc-environ", "proc-mem", "proc-cwd", "prlimit"];
    if !signals_reach_the_same_user(actor) {
        attacks.push("signal");
    }
    for target in [&pid, &supervisor] {
        let each: Vec<Attack<'_>> = attacks.iter().map(|attack| (*attack, vec![target.into()])).collect();
        ground.sandbox().deny_all(&each);
    }
    assert!(running.try_wait().expect("a state").is_none() && sleeper().is_some());
    running.kill().expect("killed");
    running.wait().expect("ended");
    marker.gone_within(DEADLINE).expect("nobody is left");
}

/// A descriptor that the caller left open is not passed on.
fn descriptors_of_the_caller_are_not_inherited(actor: Actor) {
    let ground = Ground::new(actor);
    let secret = File::open(ground.outside("file")).expect("opened");
    let inheritable = rustix::io::fcntl_dupfd_cloexec(&secret, 50).expect("a descriptor");
    rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).expect("kept open");
    let mark = format!("{}=", inheritable.as_raw_fd());
    let shown = ground.sandbox().without(&["descriptors"]).attack("inherited-fds", [""; 0]);
    match actor.is_contained() {
        false => assert!(actor.is_bare() || shown.assert_succeeded().detail.contains(&mark), "{shown:?}"),
        // It is the engine that starts a container, and nothing of the caller's is there to be passed on.
        true => drop(shown.assert_denied()),
    }
    ground.sandbox().attack("inherited-fds", [""; 0]).assert_denied();
    ground.sandbox().without(&["landlock", "seccomp"]).attack("inherited-fds", [""; 0]).assert_denied();
}

/// What a standard stream is leads nowhere either: the agent's are pipes of the supervisor's own.
fn standard_streams_are_not_the_callers_files(actor: Actor) {
    let ground = Ground::new(actor);
    let log = ground.put("log", "before\n");
    let file = File::options().append(true).open(&log).expect("opened");
    let mut command = ground.sandbox().command("/bin/sh");
    command.args(["-c", "readlink /proc/self/fd/1; : >/proc/self/fd/1; echo end"]).stdout(file);
    assert!(command.status().expect("agency starts").success());
    let text = std::fs::read_to_string(&log).expect("read");
    assert!(text.starts_with("before\npipe:") && text.ends_with("end\n"), "{text}");
}

/// The victim's own words: nothing of its environment is in what an agent can print.
fn secrets_of_the_caller_are_in_nobodys_memory(actor: Actor) {
    let ground = Ground::new(actor);
    let run = ground.sandbox().variable("SECRET", "of-the-caller");
    let script = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true";
    let ended = run.shell(script);
    let text = String::from_utf8_lossy(&ended.output.stdout).into_owned();
    assert!(text.contains("HOME=") && !text.contains("of-the-caller"), "{text}");
    let open = run.without(&["environment"]).shell(script);
    assert!(open.is_elsewhere() || String::from_utf8_lossy(&open.output.stdout).contains("of-the-caller"));
}

as_both! {
    a_process_outside_cannot_be_signalled,
    nobody_outside_can_be_signalled_by_chance,
    a_process_outside_cannot_be_traced,
    the_memory_of_a_process_outside_cannot_be_written,
    descriptors_of_a_process_outside_cannot_be_taken,
    the_environment_of_a_process_outside_cannot_be_read,
    the_folder_of_a_process_outside_cannot_be_entered,
    a_process_outside_cannot_be_slowed_or_limited,
    objects_of_system_v_cannot_be_reached,
    processes_outside_cannot_be_seen,
    the_first_process_cannot_be_looked_into,
    the_first_process_cannot_be_killed,
    another_agent_cannot_be_reached,
    descriptors_of_the_caller_are_not_inherited,
    standard_streams_are_not_the_callers_files,
    secrets_of_the_caller_are_in_nobodys_memory,
}
