//! Notices when a folder is removed or renamed while it is used.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is asked whether the folder is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A folder as it was when the watch began. Another one may have its name later.
pub(crate) struct FolderWatch {
    path: PathBuf,
    number: (u64, u64),
}

impl FolderWatch {
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), number: Self::number(path)? })
    }

    fn number(path: &Path) -> io::Result<(u64, u64)> {
        let stat = std::fs::symlink_metadata(path)?;
        Ok((stat.dev(), stat.ino()))
    }

    pub(crate) fn is_gone(&self) -> bool {
        Self::number(&self.path)
            .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |now| now != self.number)
    }

    /// Returns when the folder is gone.
    pub(crate) async fn wait_until_gone(&self) {
        while !self.is_gone() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
