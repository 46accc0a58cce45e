//! The workspace: what the agent works on, as layers.
//!
//! The lower layers are somebody's and never change by our hand; whatever the agent writes lands in an upper
//! layer of its own, which is judged afterwards ([`crate::harvest`]) and thrown away. A [`folder`] workspace
//! lies over a live folder.

pub mod folder;
pub mod ignored;
mod private_git;
pub mod state;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::path::RelPath;

pub use private_git::PrivateGit;

/// One overlay: layers, and where the agent sees them.
#[derive(Debug, Clone)]
pub struct Overlay {
    /// Topmost first.
    pub lowers: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
    pub at: PathBuf,
    /// Overlays an ordinary user mounts keep their marks in `user.*` attributes.
    pub user_xattr: bool,
}

/// Everything a sandbox needs to know of a workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The root, as the agent sees it.
    pub path: PathBuf,
    /// The first is the workspace itself.
    pub overlays: Vec<Overlay>,
    /// Directories that are writable and never harvested.
    pub scratch: Vec<RelPath>,
    /// Paths that are out of sight.
    pub hidden: Vec<RelPath>,
    /// Where runs keep their files: hidden, should it be visible at all.
    pub state: PathBuf,
    /// User and group the lower layers' files belong to.
    pub owner: (u32, u32),
    /// The configuration of the private repository, where there is one.
    pub git: Option<PrivateGit>,
}

impl Workspace {
    /// The last touch before the agent comes: done through the mounted overlays, so that it lands in the
    /// upper layers. `resolve` opens a path as the agent will see it.
    pub(crate) fn prepare(&self, resolve: &dyn Fn(&Path) -> rustix::io::Result<OwnedFd>) -> io::Result<()> {
        match &self.git {
            Some(git) => git.write(resolve),
            None => Ok(()),
        }
    }
}
