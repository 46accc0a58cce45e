//! What git's questions are answered from ([`crate::fsmonitor`]): the program that does it, the layer that catches
//! what the agent writes, and what else there is to know. All of it can only be read, and none of it is new to the
//! agent, whose own writing it is.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::handles::{clone_of, clone_tree, restrict};
use super::{NewRoot, READ_ONLY, Result, at};
use crate::fsmonitor::{self, FsmonitorConfig};
use crate::mount_plan::MountStep;
use crate::workspace::{self, Workspace};

impl NewRoot<'_> {
    /// Lets git ask, in a workspace that has a program to answer. `covers` are about to be mounted.
    pub(crate) fn add_fsmonitor(
        &self,
        workspace: &Workspace,
        upper: &OwnedFd,
        covers: &[MountStep],
    ) -> Result<()> {
        let (Some(program), Some(index)) = (&workspace.answering, &workspace.index) else {
            return Ok(());
        };
        let hidden = covers.iter().filter_map(|step| match step {
            MountStep::Hide { at } => at.strip_prefix(&workspace.path).ok(),
            _ => None,
        });
        let about = FsmonitorConfig::new(workspace, index, hidden);
        self.make_target(Path::new(fsmonitor::FOLDER), true)?;
        let path = Path::new(fsmonitor::ABOUT);
        self.within_own(path, |folder, name| {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o644))?;
            let text = about.text();
            let mut rest = text.as_slice();
            while !rest.is_empty() {
                rest = &rest[rustix::io::write(&file, rest)?..];
            }
            Ok(())
        })
        .map_err(at("can't write", path))?;

        let (path, tree) =
            (Path::new(workspace::FSMONITOR_PROGRAM), clone_of(program).map_err(at("can't bind", program))?);
        restrict(tree.as_fd(), READ_ONLY, false).map_err(at("can't restrict", program))?;
        self.make_target(path, false)?;
        self.attach_inside(tree.as_fd(), path)?;

        let path = Path::new(fsmonitor::LAYER);
        let tree = clone_tree(upper.as_fd()).map_err(at("can't bind", path))?;
        restrict(tree.as_fd(), READ_ONLY | libc::MOUNT_ATTR_NOEXEC, false)
            .map_err(at("can't restrict", path))?;
        self.make_target(path, true)?;
        self.attach_inside(tree.as_fd(), path)
    }
}
