//! The backend of a sandbox: where its agent works, with what that level made for it.

use crate::container::running::RunningContainer;
use crate::landlock_level::LandlockSetup;
use crate::landlock_level::replica::Replica;

/// Where the agent works.
#[derive(Debug)]
pub(crate) enum SandboxBackend {
    /// In an overlay, in a view of its own.
    View,
    /// On a copy, on the host.
    Bare(Box<LandlockSetup>),
    /// On a copy, in a container.
    Container(Box<RunningContainer>),
}

impl SandboxBackend {
    pub(crate) fn replica(&self) -> Option<&Replica> {
        match self {
            SandboxBackend::View => None,
            SandboxBackend::Bare(bare) => Some(&bare.replica),
            SandboxBackend::Container(contained) => Some(&contained.replica),
        }
    }

    pub(crate) fn landlock_setup(&self) -> Option<&LandlockSetup> {
        match self {
            SandboxBackend::Bare(bare) => Some(bare),
            SandboxBackend::View | SandboxBackend::Container(_) => None,
        }
    }
}
