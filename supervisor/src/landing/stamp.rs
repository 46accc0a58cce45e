//! Telling a file, as it is, from every other and from what it is later.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::{Error, files};

/// One state of a file under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    file: Identity,
    changed: (i64, i64),
}

/// One state of a file under any name. The number of an inode alone is given to another file soon after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    pub(super) fn of(stat: &Metadata) -> Self {
        Self { inode: stat.ino(), size: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) }
    }

    /// Whether it is at a path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|stat| Self::of(&stat) == *self)
    }
}

/// When a file was made, moved here or touched: that time is the kernel's, and nobody can set it.
pub(super) fn made(stat: &Metadata) -> SystemTime {
    let part = |time: i64| u64::try_from(time).unwrap_or(0);
    UNIX_EPOCH + Duration::from_secs(part(stat.ctime())) + Duration::from_nanos(part(stat.ctime_nsec()))
}

impl Stamp {
    /// Of what is at a path, if anything is.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Error> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        match fs::metadata(path) {
            Ok(stat) => {
                let changed = (stat.ctime(), stat.ctime_nsec());
                Ok(Some(Self { file: Identity::of(&stat), changed }))
            }
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
            Err(error) => Err(files("look at", path)(error)),
        }
    }
}
