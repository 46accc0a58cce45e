//! What an agent-to-be at this level tries before it is let go, and what that says.
//!
//! There is no view to read back from mountinfo. So the process, already restricted, tries what it must not
//! be able to do, on the real paths, and the kernel's answers are the attestation.

use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use serde::{Deserialize, Serialize};

use super::LandlockSetup;
use crate::control::{Control, ControlStatus};
use crate::landlock_rules;
use crate::policy::{NetworkPolicy, Policy};

/// The kernel's answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ProbeResults {
    /// Making a file in the real workspace was refused.
    outside_refused: bool,
    /// The first host path that must not be readable and is.
    readable: Option<PathBuf>,
    /// How many such paths were tried.
    tried: usize,
    internet_refused: bool,
    unix_refused: bool,
    pub(crate) inotify_refused: bool,
}

impl ProbeResults {
    /// Tries everything, in the restricted process.
    pub(crate) fn run(bare: &LandlockSetup) -> Self {
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            bare.outside.join(".agency-probe"),
            rustix::fs::FileType::RegularFile,
            Mode::RUSR,
            0,
        );
        if made.is_ok() {
            let _ = rustix::fs::unlink(bare.outside.join(".agency-probe"));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let is_readable = |path: &&PathBuf| rustix::fs::open(path.as_path(), flags, Mode::empty()).is_ok();
        let refused = |family| rustix::net::socket(family, SocketType::STREAM, None).is_err();
        Self {
            outside_refused: matches!(made, Err(Errno::ACCESS)),
            readable: bare.secrets.iter().find(is_readable).cloned(),
            tried: bare.secrets.len(),
            internet_refused: refused(AddressFamily::INET) && refused(AddressFamily::INET6),
            unix_refused: refused(AddressFamily::UNIX),
            inotify_refused: rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).is_err(),
        }
    }

    /// What the answers say about a control; `None` for one that is observed as at every level.
    pub(crate) fn observe(
        &self,
        control: Control,
        policy: &Policy,
        bare: &LandlockSetup,
        root: bool,
    ) -> Option<(ControlStatus, String)> {
        let abi = landlock_rules::abi().map_or(0, |(abi, _)| abi);
        Some(match control {
            Control::Network if policy.network == NetworkPolicy::Full => {
                let how = "host network, as asked; sockets by path are refused";
                (self.unix_refused.into(), how.into())
            }
            Control::Network => {
                let how = "the system call filter refuses every socket but pairs";
                ((self.internet_refused && self.unix_refused).into(), how.into())
            }
            Control::ReadOnlyHost => (
                self.outside_refused.into(),
                format!(
                    "landlock abi {abi}: making a file in the real workspace was {}",
                    refused(self.outside_refused)
                ),
            ),
            Control::Scope => self.scope(policy, bare),
            Control::PrivateHome | Control::HiddenPaths => match &self.readable {
                Some(path) => (ControlStatus::No, format!("{} can be read", path.display())),
                None => {
                    (ControlStatus::Yes, format!("landlock abi {abi}: {} paths tried, none can be read", self.tried))
                }
            },
            Control::PrivateTmp => {
                let own = !bare.rules.write.iter().any(|path| path == "/tmp" || path == "/");
                (own.into(), format!("TMPDIR is {}", bare.replica.tmp.display()))
            }
            Control::MinimalDev => {
                let few = !bare.rules.devices.iter().any(|path| path == "/dev");
                let how = format!("landlock abi {abi}: {} devices", bare.rules.devices.len());
                let how = if root { how } else { format!("{how}; not held: other terminals of this user") };
                (few.into(), how)
            }
            Control::Attributes => match root {
                true => (ControlStatus::Yes, "the agent's user owns nothing outside".into()),
                false => (
                    ControlStatus::No,
                    "landlock does not look at modes, owners, times and extended attributes; another agent of this user that learns the path of this copy, from a command line in it, can change them there".into(),
                ),
            },
            Control::PidNamespace => {
                let how = match (abi >= 6, root) {
                    (true, _) => "not at this level; signals stay inside by landlock's scope",
                    (false, true) => "not at this level; signals reach only the agent's own user",
                    (false, false) => {
                        "not at this level; not held: signals reach other processes of this user"
                    }
                };
                (ControlStatus::No, how.into())
            }
            Control::IpcNamespace => {
                (ControlStatus::No, "not at this level; System V objects and message queues are refused".into())
            }
            Control::UserNamespace => {
                let how =
                    if root { "not at this level; a host user of its own" } else { "not at this level" };
                (ControlStatus::No, how.into())
            }
            Control::MountNamespace
            | Control::UtsNamespace
            | Control::CgroupNamespace
            | Control::PrivateProc => (ControlStatus::No, "not at this level".into()),
            Control::ToolchainLocks => {
                (ControlStatus::No, "not at this level: files that can be read can be locked".into())
            }
            Control::TmpSize => {
                (ControlStatus::No, "not at this level: nothing bounds what is written to disk".into())
            }
            _ => return None,
        })
    }

    fn scope(&self, policy: &Policy, bare: &LandlockSetup) -> (ControlStatus, String) {
        let tree = &bare.replica.tree;
        let open = bare.rules.write.iter().filter_map(|path| path.strip_prefix(tree).ok());
        let list: Vec<_> = open
            .map(|path| if path.as_os_str().is_empty() { ".".into() } else { path.display().to_string() })
            .collect();
        let list = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        let how = format!(
            "a private copy, writable by landlock: {list}; what is denied below them and single files are judged at harvest"
        );
        ((self.outside_refused && policy.requires(Control::Scope)).into(), how)
    }
}

fn refused(refused: bool) -> &'static str {
    if refused { "refused" } else { "not refused" }
}
