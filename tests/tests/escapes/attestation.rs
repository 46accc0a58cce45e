//! A control that is switched off is not claimed, and no other is touched by it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::Command;

use serde_json::Value;

use crate::as_both;
use crate::ground::{Actor, Ground};
use crate::run::Ended;

/// Controls that can't be switched off alone, and what has to go with them.
const TOGETHER: &[(&str, &[&str])] = &[
    // Its limit is counted in the namespace.
    ("user-namespace", &["processes", "user-limits"]),
    // A home that is bound as a whole has its toolchains in it.
    ("private-home", &["toolchain-locks"]),
    // A fresh /proc shows the namespace it was mounted in, and the host's can be written.
    ("pid-namespace", &["private-proc", "read-only-host"]),
    ("private-proc", &["read-only-host"]),
    // The size is that of the private folders, and the home of these tests lies in one of them.
    ("private-tmp", &["private-home", "toolchain-locks", "tmp-size", "read-only-host"]),
    ("minimal-dev", &["private-tmp", "private-home", "toolchain-locks", "tmp-size", "read-only-host"]),
    ("hidden-paths", &["private-tmp", "private-home", "toolchain-locks", "tmp-size", "read-only-host"]),
    // Landlock and the filter ask for it themselves.
    ("no-new-privileges", &["landlock", "seccomp"]),
];

/// The same in a container.
const TOGETHER_IN_A_CONTAINER: &[(&str, &[&str])] = &[
    // A fresh /proc shows the namespace it was mounted in.
    ("pid-namespace", &["private-proc"]),
    // The size is that of the private folders, and Landlock is tried in one of them.
    ("private-tmp", &["tmp-size", "landlock"]),
    ("no-new-privileges", &["landlock", "seccomp"]),
];

/// Controls of a container that nothing switches off, and what the attempt is answered.
const FIXED_IN_A_CONTAINER: &[&str] =
    &["user-namespace", "mount-namespace", "minimal-dev", "attributes", "user-limits", "toolchain-locks"];

/// What holds in a container although nobody asks for it: an engine passes nothing of the caller's on, and mounts no
/// other /proc than that of the namespace; and the home of these tests lies in the private /tmp.
const HELD_ANYWAY_IN_A_CONTAINER: &[&str] = &["descriptors", "private-proc", "private-home"];

fn together(actor: Actor) -> &'static [(&'static str, &'static [&'static str])] {
    if actor.is_contained() { TOGETHER_IN_A_CONTAINER } else { TOGETHER }
}

type Statements = BTreeMap<String, (bool, String)>;

fn statements(report: &Value) -> Statements {
    let controls = report["attestation"]["controls"].as_array().expect("controls");
    controls
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().expect("text").to_owned();
            assert!(!text("how").is_empty(), "{one}");
            (text("control"), (one["requested"].as_bool().expect("a flag"), text("enforced")))
        })
        .collect()
}

/// Whatever is switched off, it is this level that is asked.
fn run(ground: &Ground, without: &[&'static str], command: &[&str]) -> Ended {
    let run = ground.sandbox().option("--memory", "256MiB").flag("--json").without(without);
    let output = run.command(command[0]).args(&command[1..]).output().expect("agency starts");
    Ended::new(&command.join(" "), output)
}

fn attested(ground: &Ground, without: &[&'static str]) -> Statements {
    let ended = run(ground, without, &["true"]);
    assert_eq!(ended.code(), Some(0), "--without {}: {}", without.join(","), ended.stderr());
    statements(&ended.json())
}

/// A descriptor that whoever is started from here inherits, so that there is something to be held back.
fn inheritable() -> OwnedFd {
    let null = std::fs::File::open("/dev/null").expect("opened");
    let fd = rustix::io::fcntl_dupfd_cloexec(&null, 60).expect("a descriptor");
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).expect("kept open");
    fd
}

fn every_control_is_asked_for_and_held_by_default(actor: Actor) {
    let (ground, _open) = (Ground::new(actor), inheritable());
    for (control, (requested, enforced)) in attested(&ground, &[]) {
        // An engine makes none, and the attestation says so.
        if actor.is_contained()
            && ["user-namespace", "user-limits", "toolchain-locks"].contains(&control.as_str())
        {
            let held = control == "user-limits" && actor.is_root();
            assert_eq!(
                (requested, enforced.as_str()),
                (false, if held { "enforced" } else { "off" }),
                "{control}"
            );
            continue;
        }
        assert!(requested, "{control}");
        let watched = control == "memory" && !actor.is_root();
        assert!(enforced == "enforced" || (watched && enforced == "watched"), "{control} is {enforced}");
    }
    // A limit that nobody wants is not claimed.
    let ended = ground.sandbox().option("--memory", "none").flag("--json").shell("true");
    assert_eq!(statements(&ended.json())["memory"], (false, "off".to_owned()));
}

fn a_control_that_is_switched_off_is_not_claimed_and_others_are(actor: Actor) {
    let (ground, _open) = (Ground::new(actor), inheritable());
    let before = ground.fingerprint();
    let usual = attested(&ground, &[]);
    let mut tried = 0;
    for control in usual.keys() {
        let control: &'static str = control.clone().leak();
        if actor.is_contained() && FIXED_IN_A_CONTAINER.contains(&control) {
            continue;
        }
        if control == "mount-namespace" || (control == "user-namespace" && !actor.is_root()) {
            continue;
        }
        // Held by what makes the host read-only: there is nothing of its own to switch off.
        if control == "attributes" {
            continue;
        }
        let mut off = vec![control];
        let more = together(actor).iter().find(|(name, _)| *name == control);
        off.extend(more.map_or(&[][..], |(_, more)| more));
        let mut named = off.clone();
        if off.contains(&"read-only-host") {
            off.push("attributes");
            // In a container it has no switch, and goes with the mounts by itself.
            named.extend((!actor.is_contained()).then_some("attributes"));
        }
        let now = attested(&ground, &named);
        assert_eq!(now.len(), usual.len());
        for (name, statement) in &now {
            if off.contains(&name.as_str()) {
                let anyway = actor.is_contained()
                    && HELD_ANYWAY_IN_A_CONTAINER.contains(&name.as_str())
                    && !off.contains(&"pid-namespace");
                let enforced = if anyway { "enforced" } else { "off" };
                assert_eq!(*statement, (false, enforced.to_owned()), "{name} without {off:?}");
            } else {
                assert_eq!(statement, &usual[name], "{name} without {off:?}");
            }
        }
        tried += 1;
    }
    assert!(tried >= if actor.is_contained() { 22 } else { 23 }, "{tried}");
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

/// What can't be done without is refused, before anything starts, with the reason.
fn what_cannot_be_switched_off_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let run = |control: &'static str| ground.sandbox().without(&[control]).shell("echo started");
    let ended = run("mount-namespace");
    assert_eq!((ended.code(), ended.output.stdout.len()), (Some(2), 0), "{}", ended.stderr());
    if actor.is_contained() {
        for control in FIXED_IN_A_CONTAINER {
            let mut command = ground.sandbox().without(&[control]).command("echo");
            let output = command.arg("started").output().expect("agency starts");
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{control}: {output:?}");
        }
    } else if !actor.is_root() {
        let ended = run("user-namespace");
        assert_eq!((ended.code(), ended.output.stdout.len()), (Some(3), 0), "{}", ended.stderr());
    }
    let ended = ground.sandbox().option("--without", "no-such-control").shell("echo started");
    assert_eq!((ended.code(), ended.output.stdout.len()), (Some(2), 0), "{}", ended.stderr());
    before.assert_unchanged();
}

/// Alone, these are refused because something that was asked for would not be held. Refusing changes nothing.
fn a_control_that_others_need_is_refused_alone_and_nothing_changes(actor: Actor) {
    let ground = Ground::new(actor);
    // Switched off alone, this one is carried out on the host's own /dev: see the test below.
    for (control, _) in together(actor).iter().filter(|(control, _)| *control != "minimal-dev") {
        if *control == "user-namespace" && !actor.is_root() {
            continue;
        }
        let before = ground.fingerprint();
        let ended = run(&ground, &[control], &["echo", "started"]);
        match ended.code() {
            // Capabilities are gone all the same, a cgroup counts processes where the namespace would, and toolchains
            // are not claimed in a home that is not private.
            Some(0) => {
                assert!(
                    ["no-new-privileges", "user-namespace", "private-home"].contains(control),
                    "{control}"
                );
            }
            Some(3) => {
                assert!(ended.output.stdout.is_empty());
                assert!(
                    ended.stderr().contains("would not enforce"),
                    "--without {control}: {}",
                    ended.stderr()
                );
            }
            other => panic!("--without {control} gives {other:?}: {}", ended.stderr()),
        }
        before.assert_unchanged();
    }
}

/// Folders of the host that lie where the agent gets private ones keep their owner and mode, whichever controls
/// are off. As root, in a mount namespace whose folders are nobody's, because this is about harm to the host.
fn no_folder_of_the_host_changes_hands(actor: Actor) {
    if !actor.is_root() {
        return;
    }
    let ground = Ground::new(actor);
    let cases = [
        "minimal-dev",
        "hidden-paths,read-only-host",
        "private-tmp",
        "hidden-paths",
        "private-tmp,minimal-dev",
    ];
    let mut harmed = Vec::new();
    for without in cases {
        let agency = ground.sandbox().option("--without", without).direct("true");
        let script = r#"
            for d in /dev/shm /var/tmp /root /tmp; do mount -t tmpfs -o mode=1777 none $d || exit 9; done
            mkdir -m 755 /root/agency-home /tmp/agency-home /root/folder; cd /root/folder
            look() { stat -c '%n %u:%g %a' /dev/shm /var/tmp /tmp /root /root/agency-home /tmp/agency-home; }
            before=$(look)
            for home in /root /root/agency-home /tmp/agency-home; do HOME=$home "$@" >/dev/null 2>&1; done
            after=$(look)
            [ "$before" = "$after" ] || { echo "$after" | grep -vxF "$before"; exit 1; }
        "#;
        // A copy that can be seen although /tmp is another.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-c", script, "sh"]);
        command
            .arg(agency_tests::adversary::agency())
            .args(agency.get_args().filter(|word| *word != ground.bin() && *word != "--read"));
        let output = command.output().expect("unshare starts");
        assert_ne!(output.status.code(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            harmed.push(format!("--without {without}: {}", String::from_utf8_lossy(&output.stdout).trim()));
        }
    }
    assert!(harmed.is_empty(), "folders of the host changed:\n{}", harmed.join("\n"));
}

as_both! {
    every_control_is_asked_for_and_held_by_default,
    a_control_that_is_switched_off_is_not_claimed_and_others_are,
    what_cannot_be_switched_off_is_refused,
    a_control_that_others_need_is_refused_alone_and_nothing_changes,
    no_folder_of_the_host_changes_hands,
}
