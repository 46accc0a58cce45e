//! Stamps of files: they tell one state of a file from other files and from its later states.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::{Error, files};

/// One state of a file under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    file: FileIdentity,
    changed: (i64, i64),
}

/// One state of a file under any name. The inode's number alone is not enough: the file system reuses it soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileIdentity {
    pub(super) fn of(stat: &Metadata) -> Self {
        Self { inode: stat.ino(), size: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) }
    }

    /// Whether a path has this file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|stat| Self::of(&stat) == *self)
    }
}

/// When a file was made, moved here or touched. The kernel sets that time; no program can.
pub(super) fn change_time(stat: &Metadata) -> SystemTime {
    let part = |time: i64| u64::try_from(time).unwrap_or(0);
    UNIX_EPOCH + Duration::from_secs(part(stat.ctime())) + Duration::from_nanos(part(stat.ctime_nsec()))
}

impl FileStamp {
    /// The stamp of the file at a path; `None` where there is none.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Error> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        match fs::metadata(path) {
            Ok(stat) => {
                let changed = (stat.ctime(), stat.ctime_nsec());
                Ok(Some(Self { file: FileIdentity::of(&stat), changed }))
            }
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
            Err(error) => Err(files("look at", path)(error)),
        }
    }
}
