//! Room on the disk: how much there is, and whether something failed for want of it.
//!
//! That is nobody's fault but the machine's. What was not begun can be begun again, and what is done waits until
//! somebody makes room.

use std::error::Error;
use std::io;
use std::path::Path;

use agency_sandbox::git::GitError;

/// With less than this on a disk, nothing can be counted on.
pub(crate) const LITTLE: u64 = 64 << 10;

/// Whether an error comes from a disk, or a share of one, that is full.
pub(crate) fn is_missing(error: &(dyn Error + 'static)) -> bool {
    // Git says it in words, at the end of a line; its lines come to us escaped.
    let said =
        |text: &str| ["No space left on device", "Disk quota exceeded"].iter().any(|it| text.ends_with(it));
    let mut next = Some(error);
    while let Some(cause) = next {
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        let by_git = |error: &GitError| match error {
            GitError::Failed { message, .. } => message.split("\\n").any(|line| said(line.trim_end())),
            _ => false,
        };
        if cause.downcast_ref().is_some_and(full) || cause.downcast_ref().is_some_and(by_git) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// How many bytes there are for us where a folder lies, if that can be known.
pub(crate) fn left(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_by_the_kernels_word_and_by_gits() {
        use std::os::unix::process::ExitStatusExt;
        let git = |message: &str| GitError::Failed {
            command: "hash-object".to_owned(),
            status: std::process::ExitStatus::from_raw(256),
            message: message.to_owned(),
        };
        let wrapped = io::Error::other(io::Error::from(io::ErrorKind::NotFound));
        assert!(is_missing(&io::Error::from_raw_os_error(28)));
        assert!(is_missing(&git(
            "error: unable to write file x: No space left on device\\nfatal: unable to write"
        )));
        assert!(!is_missing(&git("fatal: 'No space left on device' did not match any file")));
        assert!(!is_missing(&wrapped) && !is_missing(&io::Error::from_raw_os_error(13)));
    }

    #[test]
    fn there_is_room_somewhere_and_nowhere_is_not_known() {
        assert!(left(&std::env::temp_dir()).is_some());
        assert_eq!(left(Path::new("/no/such/folder")), None);
    }
}
