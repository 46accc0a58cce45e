//! Room on the disk: how much there is, and whether something failed for want of it.
//!
//! That is nobody's fault but the machine's. What was not begun can be begun again, and what is done waits until
//! somebody makes room.

use std::error::Error;
use std::io;
use std::path::Path;

use agency_sandbox::git::GitError;
use agency_sandbox::launch::LaunchError;
use rustix::io::Errno;

use crate::causes;

/// With less than this on a disk, nothing can be counted on.
const LITTLE: u64 = 64 << 10;

/// Whether an error comes from a disk, or a share of one, that is full. `at` is on it.
pub(crate) fn is_missing(error: &(dyn Error + 'static), at: &Path) -> bool {
    let full =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    // Git says it in words or not at all, and so it is looked at.
    let by_git = |error: &GitError| matches!(error, GitError::Failed { .. }) && is_full(at);
    // The first process of a sandbox tells what it could not do in words, with the number at their end.
    let numbers = [Errno::NOSPC, Errno::DQUOT].map(|errno| format!("(os error {})", errno.raw_os_error()));
    let inside = |error: &LaunchError| match error {
        LaunchError::Unavailable { what, .. } => numbers.iter().any(|number| what.ends_with(number)),
        _ => false,
    };
    causes::all(error).any(|cause| {
        cause.downcast_ref().is_some_and(full)
            || cause.downcast_ref().is_some_and(by_git)
            || cause.downcast_ref().is_some_and(inside)
    })
}

/// Whether next to nothing can be written where a folder lies.
pub(crate) fn is_full(folder: &Path) -> bool {
    left(folder).is_some_and(|left| left < LITTLE)
}

/// How many bytes there are for us where a folder lies, if that can be known.
fn left(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_by_the_kernels_word() {
        let here = std::env::temp_dir();
        let inside = |what: &str| LaunchError::Unavailable { what: what.to_owned(), hint: String::new() };
        assert!(is_missing(&io::Error::from_raw_os_error(28), &here));
        assert!(is_missing(&inside("can't mount it: No space left on device (os error 28)"), &here));
        assert!(!is_missing(&inside("can't mount it: Operation not permitted (os error 1)"), &here));
        assert!(!is_missing(&io::Error::from_raw_os_error(13), &here));
    }

    #[test]
    fn there_is_room_somewhere_and_nowhere_is_not_known() {
        assert!(left(&std::env::temp_dir()).is_some());
        assert_eq!(left(Path::new("/no/such/folder")), None);
    }
}
