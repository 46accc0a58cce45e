//! System calls that an agent has no use for and an exploit does.

use std::ffi::OsString;

use crate::NOT_SHOWN;
use crate::as_both;
use crate::files::{Arguments, HOST, denied, shown_without};
use crate::ground::{Actor, Ground};
use crate::kernels;

/// Everything that is between an agent and the kernel.
const ALL: &[&str] = &[
    "seccomp",
    "landlock",
    "capabilities",
    "no-new-privileges",
    "read-only-host",
    "private-home",
    "private-proc",
];

fn nothing(_: &Ground) -> Vec<OsString> {
    Vec::new()
}

/// Stopped by the filter, and shown by switching off the filter alone.
fn filtered(actor: Actor, attack: &str, arguments: Arguments) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    if kernels::host_allows(&ground, attack, arguments(&ground)) {
        ground.sandbox().without(&["seccomp"]).attack(attack, arguments(&ground)).assert_succeeded();
    }
    ground.sandbox().attack(attack, arguments(&ground)).assert_denied();
    ground.sandbox().without(&["landlock"]).attack(attack, arguments(&ground)).assert_denied();
    before.assert_unchanged();
}

/// Stopped by the filter and by the missing capability, each alone. It takes root to show it, or a namespace of
/// one's own in which one is root.
fn privileged(actor: Actor, attack: &str, arguments: Arguments, namespace: &[&str]) {
    let ground = Ground::new(actor);
    let mut open = ground.sandbox().write("src/**").without(&actor.off(ALL));
    if !actor.is_root() {
        open = open.prefix(namespace);
    }
    if actor.is_root() || !namespace.is_empty() {
        open.attack(attack, arguments(&ground)).assert_succeeded();
    }
    refused(&Ground::new(actor), attack, arguments);
}

fn refused(ground: &Ground, attack: &str, arguments: Arguments) {
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").read(ground.outside_folder());
    run().attack(attack, arguments(ground)).assert_denied();
    run().without(&["capabilities", "no-new-privileges"]).attack(attack, arguments(ground)).assert_denied();
    run().without(&["seccomp", "landlock"]).attack(attack, arguments(ground)).assert_denied();
    before.assert_unchanged();
}

/// For who is not root: a namespace in which one is.
const MOUNTS: &[&str] = &["unshare", "--user", "--map-root-user", "--mount"];
const UNSHOWN: &[&str] = &[];

fn a_nested_user_namespace_cannot_be_made(actor: Actor) {
    for attack in ["userns", "userns-clone", "userns-clone3", "seccomp-off"] {
        filtered(actor, attack, nothing);
    }
}

fn a_nested_user_namespace_cannot_be_mounted_in(actor: Actor) {
    let arguments: Arguments = |ground| vec![ground.outside("dir")];
    let ground = Ground::new(actor);
    ground.sandbox().without(&actor.off(ALL)).attack("userns-mount", arguments(&ground)).assert_succeeded();
    let before = ground.fingerprint();
    // The filter lets nobody make the namespace, and Landlock lets nobody mount in it.
    for without in [&[][..], &["landlock"], &["seccomp"], &["seccomp", "capabilities"]] {
        let run = ground.sandbox().read(ground.outside_folder()).without(without);
        run.attack("userns-mount", arguments(&ground)).assert_denied();
    }
    before.assert_unchanged();
}

fn nothing_can_be_mounted(actor: Actor) {
    privileged(actor, "mount", |ground| vec![ground.outside("dir")], MOUNTS);
    privileged(
        actor,
        "bind-mount-over",
        |ground| vec![ground.outside("file"), ground.outside("other")],
        MOUNTS,
    );
    privileged(actor, "mount-proc", |ground| vec![ground.outside("dir")], UNSHOWN);
}

fn nothing_can_be_mounted_by_the_newer_calls(actor: Actor) {
    privileged(actor, "fsopen", nothing, MOUNTS);
    privileged(actor, "fsmount", |ground| vec![ground.outside("dir")], MOUNTS);
    privileged(actor, "open-tree", |ground| vec![ground.outside("dir")], MOUNTS);
    privileged(actor, "move-mount", |ground| vec![ground.outside("dir"), ground.outside("target")], MOUNTS);
}

fn the_root_cannot_be_changed(actor: Actor) {
    privileged(actor, "pivot", |ground| vec![ground.outside("dir")], UNSHOWN);
    privileged(actor, "chroot", |ground| vec![ground.outside("dir")], MOUNTS);
}

/// A user can't show these: mounts that came with a namespace are locked in every nested one.
fn what_is_read_only_stays_so(actor: Actor) {
    privileged(actor, "remount-rw", |_| vec!["/usr".into()], UNSHOWN);
    privileged(actor, "mount-setattr-rw", |_| vec!["/usr".into()], UNSHOWN);
    privileged(actor, "umount", |_| vec!["/dev/pts".into()], UNSHOWN);
}

fn another_namespace_cannot_be_entered(actor: Actor) {
    privileged(actor, "setns", |_| vec!["/proc/self/ns/uts".into()], UNSHOWN);
    privileged(actor, "setns-pid", |_| vec!["1".into()], UNSHOWN);
}

fn io_uring_is_refused(actor: Actor) {
    filtered(actor, "io-uring", nothing);
}

fn keys_are_refused(actor: Actor) {
    filtered(actor, "keyctl", nothing);
    filtered(actor, "add-key", nothing);
}

fn userfaultfd_is_refused(actor: Actor) {
    filtered(actor, "userfaultfd", nothing);
}

fn perf_events_are_refused(actor: Actor) {
    filtered(actor, "perf", nothing);
}

fn bpf_is_refused(actor: Actor) {
    privileged(actor, "bpf", nothing, UNSHOWN);
}

/// A handle of what can't be seen can't be had.
fn what_is_out_of_sight_has_no_handle(actor: Actor) {
    let ground = Ground::new(actor);
    let open = actor.off(&["private-home"]);
    ground.sandbox().without(&open).attack("name-to-handle", [ground.outside("file")]).assert_succeeded();
    ground.sandbox().attack("name-to-handle", [ground.outside("file")]).assert_denied();
}

#[cfg(target_arch = "x86_64")]
fn other_system_call_tables_are_refused(actor: Actor) {
    filtered(actor, "i386-syscall", |_| vec!["unshare".into()]);
    filtered(actor, "i386-syscall", nothing);
    filtered(actor, "modify-ldt", nothing);
    unshown(actor, "x32-syscall", nothing);
}

/// Other machines have no second table.
#[cfg(not(target_arch = "x86_64"))]
fn other_system_call_tables_are_refused(actor: Actor) {
    let ground = Ground::new(actor);
    ground.sandbox().attack("i386-syscall", [""; 0]).assert_denied();
}

fn sockets_of_other_families_are_refused(actor: Actor) {
    for family in [libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_KEY] {
        let ground = Ground::new(actor);
        ground.sandbox().attack("socket-family", [family.to_string()]).assert_denied();
    }
    filtered(actor, "socket-family", |_| vec![libc::AF_NETLINK.to_string().into()]);
    filtered(actor, "netlink", |_| vec![libc::NETLINK_ROUTE.to_string().into()]);
    filtered(actor, "vsock", nothing);
    privileged(actor, "raw-socket", nothing, UNSHOWN);
    privileged(actor, "packet-socket", nothing, UNSHOWN);
    for attack in ["alg-socket", "bluetooth-socket", "can-socket"] {
        unshown(actor, attack, nothing);
    }
    // The three that work is done with are still there.
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        let ground = Ground::new(actor);
        ground.sandbox().attack("socket-family", [family.to_string()]).assert_succeeded();
    }
}

/// What changes the whole machine. Each is asked for something harmless where it is shown.
fn the_machine_cannot_be_changed(actor: Actor) {
    privileged(actor, "syslog", nothing, UNSHOWN);
    privileged(actor, "hostname-set", nothing, UNSHOWN);
    privileged(actor, "acct", |ground| vec![ground.inside("src/acct")], UNSHOWN);
    privileged(actor, "sysctl-write", |_| vec!["/proc/sys/kernel/hostname".into()], UNSHOWN);
    filtered(actor, "quotactl", nothing);
    for attack in ["kexec", "init-module", "sysrq", "clock-set", "iopl"] {
        unshown(actor, attack, nothing);
    }
    unshown(actor, "swapon", |ground| vec![ground.inside("src/swap")]);
}

/// Denied, though the machine at hand gives no way to show it to work otherwise.
fn unshown(actor: Actor, attack: &str, arguments: Arguments) {
    assert!(NOT_SHOWN.iter().any(|(name, _)| *name == attack), "{attack} is not shown, and does not say why");
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    ground.sandbox().write("src/**").attack(attack, arguments(&ground)).assert_denied();
    before.assert_unchanged();
}

/// No device but the harmless ones is there, and no node made elsewhere would be one.
fn devices_of_the_machine_cannot_be_opened(actor: Actor) {
    let ground = Ground::new(actor);
    if actor.is_root() {
        let open = actor.off(&[
            "minimal-dev",
            "private-tmp",
            "private-home",
            "tmp-size",
            "read-only-host",
            "landlock",
            "capabilities",
        ]);
        ground.sandbox().without(&open).attack("device-open", ["/dev/kmsg"]).assert_succeeded();
    }
    for device in
        ["/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/console"]
    {
        ground.sandbox().attack("device-open", [device]).assert_denied();
        ground.sandbox().without(&["landlock", "seccomp"]).attack("device-open", [device]).assert_denied();
    }
    for device in ["/dev/null", "/dev/zero", "/dev/urandom"] {
        ground.sandbox().attack("device-open", [device]).assert_succeeded();
    }
}

/// No control puts a hierarchy of cgroups into the view; asked for by name it is read-only.
fn a_cgroup_cannot_be_left(actor: Actor) {
    let ground = Ground::new(actor);
    let hierarchy = crate::processes::cgroup_hierarchy();
    ground.sandbox().attack("cgroup-escape", [&hierarchy]).assert_denied();
    for without in [&[][..], &["landlock", "seccomp", "capabilities"]] {
        let ended = ground.sandbox().read(&hierarchy).without(without).attack("cgroup-escape", [&hierarchy]);
        // Files whose owner can't be mapped can't be shown to root's agent at all.
        if !(actor.is_root() && ended.code() == Some(3)) {
            ended.assert_denied();
        }
    }
}

/// Rules that allow everything, added in the hope that the last word counts.
fn rules_of_its_own_do_not_widen_the_ones_it_has(actor: Actor) {
    shown_without(actor, HOST, "landlock-noop", |ground| vec![ground.outside("file")]);
    denied(actor, "landlock-noop", |ground| vec![ground.outside("file")]);
}

fn powers_that_were_given_up_do_not_come_back(actor: Actor) {
    privileged(actor, "capset-raise", nothing, UNSHOWN);
    privileged(actor, "setuid0", nothing, UNSHOWN);
    privileged(actor, "setgroups", nothing, UNSHOWN);
    let ground = Ground::new(actor);
    let open = ["private-proc", "read-only-host", "landlock"];
    ground.sandbox().without(&open).attack("prctl-dumpable", [""; 0]).assert_succeeded();
    ground.sandbox().attack("prctl-dumpable", [""; 0]).assert_denied();
}

/// A program that would make whoever runs it root.
fn a_setuid_program_gives_nothing(actor: Actor) {
    use std::os::unix::fs::PermissionsExt;
    let ground = Ground::new(actor);
    let program = ground.outside_folder().join("setuid");
    agency_tests::adversary::copy_program(&ground.bin().join("adversary"), &program).expect("copied");
    if nix::unistd::Uid::current().is_root() {
        std::os::unix::fs::chown(&program, Some(0), Some(0)).expect("root's");
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("set");
    for without in [&[][..], &["no-new-privileges", "landlock", "seccomp", "capabilities"]] {
        let run = ground.sandbox().read(ground.outside_folder()).without(without);
        if run.is_shown_elsewhere() {
            continue;
        }
        let output = run.command(&program).arg("whoami").output().expect("agency starts");
        let report = crate::run::Ended::new("whoami", output).assert_succeeded();
        let expected = match actor {
            Actor::Root => "Uid=1000,1000,1000,1000 ".to_owned(),
            // A number from the range of the agents' own, which one is chance.
            Actor::BareRoot | Actor::ContainedRoot if without.is_empty() => "Uid=19".to_owned(),
            // A container has no user namespace: with everything off that keeps the program from it, root is root.
            Actor::ContainedRoot | Actor::ContainedUser if !without.is_empty() => ",0,0,0 ".to_owned(),
            _ => format!("Uid={0},{0},{0},{0} ", ground.uid()),
        };
        assert!(report.detail.contains(&expected), "{report:?}");
        if without.is_empty() {
            assert!(report.detail.contains("CapEff=0000000000000000"), "{report:?}");
        }
    }
}

as_both! {
    a_nested_user_namespace_cannot_be_made,
    a_nested_user_namespace_cannot_be_mounted_in,
    nothing_can_be_mounted,
    nothing_can_be_mounted_by_the_newer_calls,
    the_root_cannot_be_changed,
    what_is_read_only_stays_so,
    another_namespace_cannot_be_entered,
    io_uring_is_refused,
    keys_are_refused,
    userfaultfd_is_refused,
    perf_events_are_refused,
    bpf_is_refused,
    what_is_out_of_sight_has_no_handle,
    other_system_call_tables_are_refused,
    sockets_of_other_families_are_refused,
    the_machine_cannot_be_changed,
    devices_of_the_machine_cannot_be_opened,
    a_cgroup_cannot_be_left,
    rules_of_its_own_do_not_widen_the_ones_it_has,
    powers_that_were_given_up_do_not_come_back,
    a_setuid_program_gives_nothing,
}
