//! What an agent shares with its user and its host beside files: counts of the kernel, and what a crash sets off.

#![allow(clippy::disallowed_methods, reason = "opens /proc")]

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};

use super::{AgentProcess, AttestationRequest};
use crate::backend::SandboxBackend;
use crate::channel::ReadyReport;
use crate::control::{Control, ControlStatus};
use crate::user_limits::{self, InotifyLimits};

/// Counted for a user on the whole host, in every namespace.
const BEYOND: &str = "not held: epoll's watches, room in pipes, descriptors under way in sockets";

impl AgentProcess {
    /// A limit of one keeps the kernel from handing a core to a program; zero does not. A file is written with neither.
    pub(super) fn core_dumps(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let limit = self.early.limit("Max core file size");
        if asked.policy.without.contains(Control::CoreDumps) {
            return (ControlStatus::No, format!("RLIMIT_CORE {limit}, as the caller has it"));
        }
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let filtered = self.status("Seccomp") == "2";
        match (pattern.as_bytes().first(), limit) {
            (Some(b'@'), "0" | "1") => (
                ControlStatus::NotHere,
                format!(
                    "RLIMIT_CORE {limit}; not held: the kernel tells the socket of this host's core handler of every crash, whatever the limit"
                ),
            ),
            (Some(b'|'), "1") if filtered => {
                (ControlStatus::Yes, "RLIMIT_CORE 1, at which no core is piped; the filter keeps it".into())
            }
            (Some(b'|'), "1") => (
                ControlStatus::NotHere,
                "RLIMIT_CORE 1; not held: without the filter it can be lowered to 0, at which cores are piped"
                    .into(),
            ),
            (Some(b'|'), "0") => (
                ControlStatus::NotHere,
                "RLIMIT_CORE 0; not held: this host pipes cores at 0 and not at 1, and the caller's hard limit (`ulimit -H -c`) is 0".into(),
            ),
            (_, "0" | "1") => (ControlStatus::Yes, format!("RLIMIT_CORE {limit}; cores of this host are files")),
            (_, _) => (ControlStatus::No, format!("RLIMIT_CORE {limit}")),
        }
    }

    /// An agent can't use up what is counted for a whole user if it has an eighth of it, or is a user of its own.
    pub(super) fn user_limits(
        &self,
        asked: &AttestationRequest<'_>,
        ready: &ReadyReport,
    ) -> (ControlStatus, String) {
        let own = rustix::process::geteuid().as_raw().to_string();
        let theirs = self.status("Uid").split_whitespace().next().unwrap_or_default();
        let off = [Control::UserLimits, Control::UserNamespace];
        if off.iter().any(|control| asked.policy.without.contains(*control)) {
            return (ControlStatus::No, "those of every process of the user".into());
        }
        if theirs != own {
            return (ControlStatus::Yes, format!("a host user of its own, {theirs}"));
        }
        if let SandboxBackend::Container(_) = asked.place {
            return (
                ControlStatus::No,
                "not held: without a user namespace it is counted with the caller".into(),
            );
        }
        let mut parts = Vec::new();
        for (resource, name) in user_limits::COUNTED {
            let limit = self.early.limit(name);
            let most =
                nix::sys::resource::getrlimit(*resource).map_or(0, |(_, most)| user_limits::share_of(most));
            if !limit.parse().is_ok_and(|limit: u64| limit <= most) {
                return (ControlStatus::No, format!("{resource:?} {limit}"));
            }
            parts.push(format!("{resource:?} {limit}"));
        }
        let parts = parts.join(", ");
        match (asked.place, ready.inotify) {
            (SandboxBackend::Bare(_), _) => {
                let refused = ready.tried.as_ref().is_some_and(|tried| tried.inotify_refused);
                let how = if refused { "refused" } else { "not refused" };
                (refused.into(), format!("inotify {how}, {parts}; {BEYOND}"))
            }
            (SandboxBackend::View | SandboxBackend::Container(_), found) => {
                let part = of_users().map(InotifyLimits::share);
                match (found, part) {
                    (Some(found), Some(part)) if found.is_within(part) => {
                        let InotifyLimits { instances, watches } = found;
                        let inotify = format!("{instances} of inotify's instances, {watches} watches");
                        (ControlStatus::Yes, format!("{inotify}, {parts}; {BEYOND}"))
                    }
                    _ => (
                        ControlStatus::NotHere,
                        format!("{parts}; not held: inotify, whose limits can't be set here; {BEYOND}"),
                    ),
                }
            }
        }
    }
}

fn of_users() -> Option<InotifyLimits> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty()).ok()?;
    InotifyLimits::of_users(proc.as_fd()).ok()
}
