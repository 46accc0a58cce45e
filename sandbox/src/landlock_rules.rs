//! The Landlock rules of a sandbox: what may be read, what may be written, and nothing else.
//!
//! Over a view of its own the mounts already say the same. Landlock says it again at another place in the
//! kernel, per process and for good: a mistake in one is caught by the other. It also does what mounts can't:
//! no device node can be made even where files can, and signals and abstract sockets stay inside. Where there
//! are no mounts ([`crate::landlock_level`]) it is what holds the scope.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

use serde::{Deserialize, Serialize};

use crate::sys;

/// The newest ABI we know how to ask for. Older kernels get what they have, newer ones this.
const NEWEST: &[(u32, ABI)] =
    &[(1, ABI::V1), (2, ABI::V2), (3, ABI::V3), (4, ABI::V4), (5, ABI::V5), (6, ABI::V6), (7, ABI::V7)];

/// The ABI that is used on this kernel.
pub(crate) fn abi() -> Option<(u32, ABI)> {
    let kernel = sys::landlock_abi()?;
    NEWEST.iter().rev().find(|(number, _)| *number <= kernel).copied()
}

/// Why the rules could not be put in place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LandlockError {
    #[error("can't open a path for a Landlock rule")]
    Path(#[from] PathFdError),
    #[error("the kernel refused the Landlock rules")]
    Rules(#[from] RulesetError),
}

/// What may be done where. Everything else may not.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LandlockRules {
    /// Read and run, below these.
    pub(crate) read: Vec<PathBuf>,
    /// List what is there, below these, and no more.
    pub(crate) list: Vec<PathBuf>,
    /// Everything but making devices, below these.
    pub(crate) write: Vec<PathBuf>,
    /// Open for reading and writing, these or below these.
    pub(crate) devices: Vec<PathBuf>,
    /// No TCP, where the kernel can say so.
    pub(crate) no_network: bool,
}

/// Restricts this process and everything it starts.
pub(crate) fn restrict(rules: &LandlockRules) -> Result<(), LandlockError> {
    let Some((_, abi)) = abi() else {
        return Ok(());
    };
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    // No agent needs to make devices, not even the harmless one overlayfs marks deletions with.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let device = AccessFs::from_file(abi) & !AccessFs::Execute;
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if rules.no_network && abi >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let mut created = ruleset.create().map_err(LandlockError::Rules)?;
    for (paths, access, needed) in [
        (&rules.read, read, false),
        (&rules.list, AccessFs::ReadDir.into(), false),
        (&rules.write, write, true),
        (&rules.devices, device, true),
    ] {
        for path in paths {
            let held = match PathFd::new(path) {
                Ok(held) => held,
                // What can't be reached can't be read either, with or without a rule.
                Err(_) if !needed => continue,
                Err(error) => return Err(error.into()),
            };
            // A file has no directories to make in it.
            let folder = is_directory(held.as_fd());
            let access = if folder { access } else { access & AccessFs::from_file(abi) };
            created = created.add_rule(PathBeneath::new(held, access))?;
        }
    }
    created.restrict_self()?;
    Ok(())
}

fn is_directory(held: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(held).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
    })
}

/// Whether the rules hold: tries what no rule allows and nothing else forbids. Making the device node 0:0
/// takes no privilege, and a private folder lets files be made. Says how else it ended, zero for a success.
pub(crate) fn verify_enforced(private: &Path) -> Result<(), i32> {
    let probe = private.join(".agency-landlock-probe");
    let mode = rustix::fs::Mode::empty();
    let made = rustix::fs::mknodat(rustix::fs::CWD, &probe, rustix::fs::FileType::BlockDevice, mode, 0);
    match made {
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        Ok(()) => {
            let _ = rustix::fs::unlink(&probe);
            Err(0)
        }
        Err(error) => Err(error.raw_os_error()),
    }
}
