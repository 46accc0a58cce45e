//! System calls that an agent has no use for and an exploit does.

use std::ffi::OsString;

use crate::NOT_SHOWN;
use crate::as_both;
use crate::files::{Arguments, HOST, denied, shown_without};
use crate::ground::{Actor, Ground};
use crate::kernels;
use crate::run::Attack;

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

/// Stopped by the filter, and shown by switching off the filter alone. Each has a ground of its own; in a container one is
/// enough for all of them.
fn filtered(actor: Actor, attacks: &[(&str, Arguments)]) {
    for several in attacks.chunks(if actor.is_contained() { attacks.len() } else { 1 }) {
        let ground = Ground::new(actor);
        let before = ground.fingerprint();
        let mut all = said(&ground, several);
        ground.sandbox().deny_all(&all);
        ground.sandbox().without(&["landlock"]).deny_all(&all);
        before.assert_unchanged();
        all.retain(|(attack, arguments)| kernels::host_allows(&ground, attack, arguments.clone()));
        ground.sandbox().without(&["seccomp"]).succeed_all(&all);
        before.assert_unchanged();
    }
}

fn said<'a>(ground: &Ground, attacks: &[(&'a str, Arguments)]) -> Vec<Attack<'a>> {
    attacks.iter().map(|(attack, arguments)| (*attack, arguments(ground))).collect()
}

/// Stopped by the filter and by the missing capability, each alone. It takes root to show it, or a namespace of
/// one's own in which one is root.
fn privileged(actor: Actor, attacks: &[(&str, Arguments)], namespace: &[&str]) {
    for (attack, arguments) in attacks {
        let ground = Ground::new(actor);
        let mut open = ground.sandbox().write("src/**").without(&actor.off(ALL));
        if !actor.is_root() {
            open = open.prefix(namespace);
        }
        // In a container nobody is root, whatever is off.
        if open.is_shown_elsewhere() {
            break;
        }
        if actor.is_root() || !namespace.is_empty() {
            open.attack(attack, arguments(&ground)).assert_succeeded();
        }
    }
    for several in attacks.chunks(if actor.is_contained() { attacks.len() } else { 1 }) {
        refused(&Ground::new(actor), several);
    }
}

fn refused(ground: &Ground, attacks: &[(&str, Arguments)]) {
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").read(ground.outside_folder());
    let all = said(ground, attacks);
    run().deny_all(&all);
    run().without(&["capabilities", "no-new-privileges"]).deny_all(&all);
    run().without(&["seccomp", "landlock"]).deny_all(&all);
    before.assert_unchanged();
}

/// For who is not root: a namespace in which one is.
const MOUNTS: &[&str] = &["unshare", "--user", "--map-root-user", "--mount"];
const UNSHOWN: &[&str] = &[];

fn a_nested_user_namespace_cannot_be_made(actor: Actor) {
    let attacks = ["userns", "userns-clone", "userns-clone3", "seccomp-off"];
    filtered(actor, &attacks.map(|attack| (attack, nothing as Arguments)));
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
    let over: Arguments = |ground| vec![ground.outside("file"), ground.outside("other")];
    privileged(actor, &[("mount", |ground| vec![ground.outside("dir")]), ("bind-mount-over", over)], MOUNTS);
    privileged(actor, &[("mount-proc", |ground| vec![ground.outside("dir")])], UNSHOWN);
}

fn nothing_can_be_mounted_by_the_newer_calls(actor: Actor) {
    let folder: Arguments = |ground| vec![ground.outside("dir")];
    let two: Arguments = |ground| vec![ground.outside("dir"), ground.outside("target")];
    let attacks = [("fsopen", nothing as Arguments), ("fsmount", folder), ("open-tree", folder)];
    privileged(actor, &[&attacks[..], &[("move-mount", two)]].concat(), MOUNTS);
}

fn the_root_cannot_be_changed(actor: Actor) {
    privileged(actor, &[("pivot", |ground| vec![ground.outside("dir")])], UNSHOWN);
    privileged(actor, &[("chroot", |ground| vec![ground.outside("dir")])], MOUNTS);
}

/// A user can't show these: mounts that came with a namespace are locked in every nested one.
fn what_is_read_only_stays_so(actor: Actor) {
    let system: Arguments = |_| vec!["/usr".into()];
    let terminals: Arguments = |_| vec!["/dev/pts".into()];
    let attacks = [("remount-rw", system), ("mount-setattr-rw", system), ("umount", terminals)];
    privileged(actor, &attacks, UNSHOWN);
}

fn another_namespace_cannot_be_entered(actor: Actor) {
    let by_pid: Arguments = |_| vec!["1".into()];
    privileged(actor, &[("setns", |_| vec!["/proc/self/ns/uts".into()]), ("setns-pid", by_pid)], UNSHOWN);
}

fn io_uring_is_refused(actor: Actor) {
    filtered(actor, &[("io-uring", nothing)]);
}

fn keys_are_refused(actor: Actor) {
    filtered(actor, &[("keyctl", nothing), ("add-key", nothing)]);
}

fn userfaultfd_is_refused(actor: Actor) {
    filtered(actor, &[("userfaultfd", nothing)]);
}

fn perf_events_are_refused(actor: Actor) {
    filtered(actor, &[("perf", nothing)]);
}

fn bpf_is_refused(actor: Actor) {
    privileged(actor, &[("bpf", nothing)], UNSHOWN);
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
    let another: Arguments = |_| vec!["unshare".into()];
    filtered(actor, &[("i386-syscall", another), ("i386-syscall", nothing), ("modify-ldt", nothing)]);
    unshown(actor, &[("x32-syscall", nothing)]);
}

/// Other machines have no second table.
#[cfg(not(target_arch = "x86_64"))]
fn other_system_call_tables_are_refused(actor: Actor) {
    let ground = Ground::new(actor);
    ground.sandbox().attack("i386-syscall", [""; 0]).assert_denied();
}

fn sockets_of_other_families_are_refused(actor: Actor) {
    let families = |families: &[i32]| -> Vec<Attack<'_>> {
        families.iter().map(|family| ("socket-family", vec![family.to_string().into()])).collect()
    };
    let others = [libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_KEY];
    Ground::new(actor).sandbox().deny_all(&families(&others));
    let route: Arguments = |_| vec![libc::NETLINK_ROUTE.to_string().into()];
    let family: Arguments = |_| vec![libc::AF_NETLINK.to_string().into()];
    filtered(actor, &[("socket-family", family), ("netlink", route), ("vsock", nothing)]);
    privileged(actor, &[("raw-socket", nothing), ("packet-socket", nothing)], UNSHOWN);
    let attacks = ["alg-socket", "bluetooth-socket", "can-socket"];
    unshown(actor, &attacks.map(|attack| (attack, nothing as Arguments)));
    // The three that work is done with are still there.
    let ordinary = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    Ground::new(actor).sandbox().succeed_all(&families(&ordinary));
}

/// What changes the whole machine. Each is asked for something harmless where it is shown.
fn the_machine_cannot_be_changed(actor: Actor) {
    let settings: Arguments = |_| vec!["/proc/sys/kernel/hostname".into()];
    let accounts: Arguments = |ground| vec![ground.inside("src/acct")];
    let swap: Arguments = |ground| vec![ground.inside("src/swap")];
    let attacks = [("syslog", nothing as Arguments), ("hostname-set", nothing), ("acct", accounts)];
    privileged(actor, &[&attacks[..], &[("sysctl-write", settings)]].concat(), UNSHOWN);
    filtered(actor, &[("quotactl", nothing)]);
    let harmful = ["kexec", "init-module", "sysrq", "clock-set", "iopl"];
    let harmful = harmful.map(|attack| (attack, nothing as Arguments));
    unshown(actor, &[&harmful[..], &[("swapon", swap)]].concat());
}

/// Denied, though the machine at hand gives no way to show it to work otherwise.
fn unshown(actor: Actor, attacks: &[(&str, Arguments)]) {
    for (attack, _) in attacks {
        let said = NOT_SHOWN.iter().any(|(name, _)| name == attack);
        assert!(said, "{attack} is not shown, and does not say why");
    }
    for several in attacks.chunks(if actor.is_contained() { attacks.len() } else { 1 }) {
        let ground = Ground::new(actor);
        let before = ground.fingerprint();
        ground.sandbox().write("src/**").deny_all(&said(&ground, several));
        before.assert_unchanged();
    }
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
    let opening = |device: &'static str| ("device-open", vec![OsString::from(device)]);
    let devices =
        ["/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/console"];
    ground.sandbox().deny_all(&devices.map(opening));
    ground.sandbox().without(&["landlock", "seccomp"]).deny_all(&devices.map(opening));
    ground.sandbox().succeed_all(&["/dev/null", "/dev/zero", "/dev/urandom"].map(opening));
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
    let attacks = ["capset-raise", "setuid0", "setgroups"];
    privileged(actor, &attacks.map(|attack| (attack, nothing as Arguments)), UNSHOWN);
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
