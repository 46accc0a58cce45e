//! What differs between kernels, so that the suite says the same on an old one as far as it can, and by name
//! what it can't. Everything here is about a second fence, or about an attack that can't be shown: what the
//! first fence does is asserted on every kernel.

use std::ffi::OsString;

use agency_sandbox::doctor;
use agency_tests::adversary::Outcome;
use agency_tests::repository::skip;

use crate::ground::Ground;

/// The version of Landlock's interface.
fn landlock() -> u32 {
    let finding =
        doctor::findings().into_iter().find(|finding| finding.name == "landlock").expect("a finding");
    finding.detail.strip_prefix("abi ").and_then(|abi| abi.parse().ok()).unwrap_or(0)
}

/// Whether Landlock keeps signals and abstract sockets inside, which it does since ABI 6 (Linux 6.12). Before,
/// namespaces do; and without them, as an ordinary user, nothing does, which the attestation says.
pub(crate) fn landlock_has_scopes(test: &str) -> bool {
    let has = landlock() >= 6;
    if !has {
        skip(test, "Landlock alone keeps signals and abstract sockets inside from ABI 6 on");
    }
    has
}

/// Whether Landlock refuses to make the node that overlays take for a deletion. On Linux 6.1 (ABI 2) it does
/// not; what comes of such a node is then judged like any deletion.
pub(crate) fn landlock_refuses_whiteouts() -> bool {
    landlock() >= 3
}

/// Whether this host lets an agent without capabilities do what an attack does. What it refuses to everybody
/// can't be shown.
pub(crate) fn host_allows(ground: &Ground, attack: &str, arguments: Vec<OsString>) -> bool {
    let allows = match attack {
        // Debian's kernels know a level at which it takes a capability.
        "perf" => std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
            .is_ok_and(|level| level.trim().parse::<i32>().is_ok_and(|level| level <= 2)),
        // The module may be missing. Outside, a socket of its own harms nobody.
        "vsock" => ground.native(attack, arguments).report().outcome == Outcome::Succeeded,
        _ => true,
    };
    if !allows {
        skip(attack, "this kernel refuses it to everybody, so it can't be shown");
    }
    allows
}
