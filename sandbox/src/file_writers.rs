//! Who writes to a file that is about to be replaced.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Whether a process has a file open for writing. `file` is open to read only, and belongs to the caller.
pub fn is_open_for_writing(file: BorrowedFd<'_>) -> io::Result<bool> {
    sys::is_open_for_writing(file)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_is_open_for_writing_until_its_last_writer_closes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "text").expect("written");
        let file = File::open(&path).expect("opened");
        let is_written = || is_open_for_writing(file.as_fd()).expect("asked");
        assert!(!is_written());
        let reader = File::open(&path).expect("opened");
        assert!(!is_written(), "who reads does not write");
        let writers: Vec<File> =
            (0..2).map(|_| File::options().append(true).open(&path).expect("opened")).collect();
        for writer in writers {
            assert!(is_written());
            drop(writer);
        }
        assert!(!is_written());
        drop(reader);
    }
}
