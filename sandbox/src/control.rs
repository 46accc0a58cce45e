//! The controls a sandbox is made of, by name.
//!
//! A control is one thing that holds the agent and that can be told apart from the others: it can be asked
//! for, found missing, switched off for a test, and read back from the kernel. The names are part of the
//! attestation's format.

use std::fmt;
use std::str::FromStr;

macro_rules! controls {
    ($($variant:ident $name:literal $what:literal,)*) => {
        /// One control of a sandbox.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Control {
            $(#[doc = $what] $variant,)*
        }

        impl Control {
            pub const ALL: &[Control] = &[$(Control::$variant),*];

            /// The name in attestations and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Control::$variant => $name),* }
            }

            /// What it does, in a few words.
            pub const fn what(self) -> &'static str {
                match self { $(Control::$variant => $what),* }
            }
        }
    };
}

controls! {
    UserNamespace "user-namespace" "the agent is a user of its own, nobody on the host",
    MountNamespace "mount-namespace" "the agent has its own view of the file system",
    PidNamespace "pid-namespace" "the agent sees and signals only its own processes",
    IpcNamespace "ipc-namespace" "System V and POSIX message queues are private",
    UtsNamespace "uts-namespace" "the host name is private",
    CgroupNamespace "cgroup-namespace" "the agent sees its own cgroup as the root",
    Network "network" "what the agent can reach over the network",
    ReadOnlyHost "read-only-host" "nothing of the host can be written",
    Attributes "attributes" "modes, owners, times and extended attributes outside can't be changed",
    Scope "scope" "of the workspace only the scope's directories can be written",
    PrivateHome "private-home" "HOME is empty but for what the policy names",
    PrivateTmp "private-tmp" "/tmp, /var/tmp and /dev/shm are private and have a size",
    PrivateProc "private-proc" "/proc shows only the sandbox, and is read-only",
    MinimalDev "minimal-dev" "/dev holds only harmless devices",
    HiddenPaths "hidden-paths" "secrets and sockets of the host are out of sight",
    Landlock "landlock" "the kernel checks every file access a second time",
    Seccomp "seccomp" "system calls an agent has no use for are refused",
    NoNewPrivileges "no-new-privileges" "set-user-id programs and file capabilities give nothing",
    Capabilities "capabilities" "the agent holds no capability, in no set",
    Descriptors "descriptors" "no descriptor but standard input, output and error is inherited",
    Environment "environment" "only named variables are passed",
    Memory "memory" "how much memory all processes may use together",
    Processes "processes" "how many processes and threads may exist at once",
    ToolchainLocks "toolchain-locks" "locks and leases on files of toolchains stay inside",
    UserLimits "user-limits" "what the kernel counts for the whole user can't be used up",
    CoreDumps "core-dumps" "a crash writes no core and starts nothing on the host",
    FileSize "file-size" "how large one file may become",
    TmpSize "tmp-size" "how much the private folders may hold",
    Harvest "harvest" "every change is judged by the exact scope before it can leave",
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl serde::Serialize for Control {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A name that is no control's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no control `{0}`; the controls are {list}", list = names())]
pub struct UnknownControl(String);

fn names() -> String {
    Control::ALL.iter().map(|control| control.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Control {
    type Err = UnknownControl;

    fn from_str(name: &str) -> Result<Self, UnknownControl> {
        Control::ALL
            .iter()
            .copied()
            .find(|control| control.name() == name)
            .ok_or_else(|| UnknownControl(name.to_owned()))
    }
}

/// A set of controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ControlSet(u32);

impl ControlSet {
    pub const fn empty() -> Self {
        Self(0)
    }
    pub const fn contains(self, control: Control) -> bool {
        self.0 & (1 << control as u32) != 0
    }
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Control> for ControlSet {
    fn from_iter<I: IntoIterator<Item = Control>>(controls: I) -> Self {
        Self(controls.into_iter().fold(0, |set, control| set | 1 << control as u32))
    }
}

/// How far a control holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlStatus {
    Yes,
    Watched,
    /// Nothing does, and nothing could on this host.
    NotHere,
    No,
}

impl From<bool> for ControlStatus {
    fn from(held: bool) -> Self {
        if held { ControlStatus::Yes } else { ControlStatus::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_is_found_by_its_name_and_fits_the_set() {
        assert!(Control::ALL.len() <= 32);
        for control in Control::ALL {
            assert_eq!(control.name().parse(), Ok(*control));
            assert!(ControlSet::from_iter([*control]).contains(*control));
        }
        assert!("nothing".parse::<Control>().is_err());
    }
}
