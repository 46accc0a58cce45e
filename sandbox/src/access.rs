//! The Landlock rules of a view: read everything there is to see, write only what is open.
//!
//! The mounts already say the same. Landlock says it again at another place in the kernel, per process and
//! for good: a mistake in one is caught by the other. It also does what mounts can't: no device node can be
//! made even where files can, and signals and abstract sockets stay inside.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};

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
pub(crate) enum AccessError {
    #[error("can't open a path for a Landlock rule")]
    Path(#[from] PathFdError),
    #[error("the kernel refused the Landlock rules")]
    Rules(#[from] RulesetError),
}

/// Restricts this process and everything it starts. Below a `writable` directory everything but making
/// devices is allowed; what lies in `devices` can be opened for writing.
pub(crate) fn restrict(writable: &[PathBuf], devices: &Path) -> Result<(), AccessError> {
    let Some((_, abi)) = abi() else {
        return Ok(());
    };
    let all = AccessFs::from_all(abi);
    // Nobody needs to make devices, not even the harmless one overlayfs marks deletions with.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let device = AccessFs::from_file(abi) & !AccessFs::Execute;
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let read = AccessFs::from_read(abi);
    let mut created = ruleset.create().map_err(AccessError::Rules)?;
    created = created.add_rule(PathBeneath::new(PathFd::new("/")?, read))?;
    for path in writable {
        created = created.add_rule(PathBeneath::new(PathFd::new(path)?, write))?;
    }
    created = created.add_rule(PathBeneath::new(PathFd::new(devices)?, device))?;
    created.restrict_self()?;
    Ok(())
}

/// Whether the rules hold: tries what no rule allows and nothing else forbids. Making the device node 0:0
/// takes no privilege, and the private /tmp lets files be made.
pub(crate) fn holds() -> bool {
    let probe = "/tmp/.agency-landlock-probe";
    let mode = rustix::fs::Mode::empty();
    let made = rustix::fs::mknodat(rustix::fs::CWD, probe, rustix::fs::FileType::CharacterDevice, mode, 0);
    match made {
        Err(rustix::io::Errno::ACCESS) => true,
        Ok(()) => {
            let _ = rustix::fs::unlink(probe);
            false
        }
        Err(_) => false,
    }
}
