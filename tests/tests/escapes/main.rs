//! What a sandboxed agent tries, and what comes of it: nothing.
//!
//! Every test goes through the real `agency sandbox`, with the adversary as its command, once as root and once
//! as an ordinary user, at the levels `process`, `landlock` and `container`. Each first shows its attack to work with the
//! controls that stop it switched off (`--without`), so that a broken attack can't pass for a fence; then that
//! it is denied, or refused when the work is harvested; and that nothing outside changed. Where an attack can't
//! be shown, the reason is in [`NOT_SHOWN`], or it is one that the adversary itself says takes root. At the
//! level `landlock` the same attacks are not shown again, and what that level does not hold is in [`bare`]. In a container
//! they are shown again where that level has a switch for the control; where it has none, and what it does not hold, is in
//! [`contained`].

mod attestation;
mod bare;
mod contained;
mod environment;
mod files;
mod git;
mod ground;
mod handover;
mod harvest;
mod indirect;
mod kernel;
mod kernels;
mod lifetimes;
mod network;
mod others;
mod processes;
mod run;
mod terminal;
mod workspace;

use agency_tests::adversary;

/// The parts of every test: as root and as somebody who is not, with namespaces, without, and in a container.
macro_rules! as_both {
    ($($name:ident,)*) => {
        mod as_root {
            use crate::ground::Actor;
            $(#[test] fn $name() { Actor::Root.carry_out(stringify!($name), super::$name) })*
        }
        mod as_a_user {
            use crate::ground::Actor;
            $(#[test] fn $name() { Actor::User.carry_out(stringify!($name), super::$name) })*
        }
        mod as_root_by_landlock {
            use crate::ground::Actor;
            $(#[test] fn $name() { Actor::BareRoot.carry_out(stringify!($name), super::$name) })*
        }
        mod as_a_user_by_landlock {
            use crate::ground::Actor;
            $(#[test] fn $name() { Actor::BareUser.carry_out(stringify!($name), super::$name) })*
        }
        mod as_root_in_a_container {
            use crate::ground::Actor;
            $(#[test] fn $name() { Actor::ContainedRoot.carry_out(stringify!($name), super::$name) })*
        }
        mod as_a_user_in_a_container {
            use crate::ground::Actor;
            $(#[test] fn $name() { Actor::ContainedUser.carry_out(stringify!($name), super::$name) })*
        }
    };
}
pub(crate) use as_both;

/// Attacks that can't be shown to work on the machines this runs on, and why. That they are denied is asserted
/// all the same.
pub(crate) const NOT_SHOWN: &[(&str, &str)] = &[
    ("x32-syscall", "the kernel is built without x32"),
    ("alg-socket", "the kernel is built without AF_ALG"),
    ("bluetooth-socket", "the kernel is built without Bluetooth"),
    ("can-socket", "the kernel is built without CAN"),
    ("init-module", "the kernel is built without modules"),
    ("iopl", "the kernel is built without iopl"),
    ("kexec", "it would drop a crash kernel that the machine has loaded"),
    ("sysrq", "it reaches the machine's own keyboard handler"),
    ("swapon", "the whole machine would swap to it for a moment"),
    ("clock-set", "it sets the machine's clock"),
    ("tioclinux", "it needs a virtual console"),
    ("cgroup-escape", "no control puts a hierarchy of cgroups into the view"),
    ("resolve", "it needs a name server; `dns` asks one by hand"),
    ("renice-everything", "it slows every process of whoever runs the tests"),
    ("kill-init", "an init is immune to its own namespace whatever is switched off"),
];

/// Attacks of the list that belong to other suites: nothing of this one is in their way.
const ELSEWHERE: &[(&str, &str)] = &[
    ("proxy-connect", "lists of hosts have a suite of their own"),
    ("proxy-get", "lists of hosts have a suite of their own"),
];

#[test]
fn every_attack_of_the_adversary_has_a_test() {
    let sources = [
        include_str!("bare.rs"),
        include_str!("environment.rs"),
        include_str!("files.rs"),
        include_str!("git.rs"),
        include_str!("harvest.rs"),
        include_str!("indirect.rs"),
        include_str!("kernel.rs"),
        include_str!("network.rs"),
        include_str!("others.rs"),
        include_str!("processes.rs"),
        include_str!("terminal.rs"),
        include_str!("workspace.rs"),
    ]
    .concat();
    let known = adversary::list();
    let untested: Vec<&str> = known
        .iter()
        .map(|one| one.attack.as_str())
        .filter(|attack| !ELSEWHERE.iter().any(|(elsewhere, _)| elsewhere == attack))
        .filter(|attack| !sources.contains(&format!("\"{attack}\"")))
        .collect();
    assert_eq!(untested, Vec::<&str>::new(), "no test names these attacks");
    for (attack, _) in NOT_SHOWN.iter().chain(ELSEWHERE) {
        assert!(known.iter().any(|one| one.attack == *attack), "there is no attack {attack}");
    }
}

#[test]
#[allow(clippy::print_stderr, reason = "the table is there to be read")]
fn what_is_not_shown_says_why() {
    for (attack, reason) in NOT_SHOWN {
        eprintln!("{attack}: not shown to work: {reason}");
    }
    for one in adversary::list().iter().filter(|one| one.root) {
        eprintln!("{}: shown as root only: it takes root", one.attack);
    }
}
