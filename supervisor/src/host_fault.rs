//! What the machine lacks: room on a disk, file descriptors, processes, memory, a disk that can be read and written.
//!
//! A host fault is no task's fault. An attempt that met one is lost and not failed, nothing new is started while the
//! machine lacks something, and the run goes on by itself when it is there again. The kernel says it with an error number;
//! git and SQLite say it in words, or only fail.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use agency_sandbox::git::GitError;
use agency_sandbox::launch::LaunchError;
use rustix::io::Errno;
use sqlx::error::DatabaseError as _;
use sqlx::sqlite::SqliteError;

use agency_sandbox::error_chain;

/// Something that the machine has no more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostFault {
    Disk,
    Descriptors,
    Processes,
    Memory,
    /// The disk, or what leads to it, fails.
    Device,
}

impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk is full",
            Self::Descriptors => "there are no file descriptors left",
            Self::Processes => "no more processes can be started",
            Self::Memory => "there is no memory left",
            Self::Device => "the disk can't be read or written; `dmesg` may say why",
        })
    }
}

impl HostFault {
    const ALL: [Self; 5] = [Self::Disk, Self::Descriptors, Self::Processes, Self::Memory, Self::Device];

    /// The fault that an error comes from, if it comes from one. `at` lies on the disk that is written to.
    pub(crate) fn of(error: &(dyn Error + 'static), at: &Path) -> Option<Self> {
        error_chain::chain(error).find_map(|cause| {
            let by_kernel = || cause.downcast_ref::<io::Error>().and_then(Self::of_kernel);
            let by_git = || cause.downcast_ref::<GitError>().and_then(|error| Self::of_git(error, at));
            let by_store = || {
                cause
                    .downcast_ref::<SqliteError>()
                    .and_then(|error| Self::of_sqlite(error.code()?.parse().ok()?))
            };
            let inside = || cause.downcast_ref::<LaunchError>().and_then(Self::of_launch);
            by_kernel().or_else(by_git).or_else(inside).or_else(by_store)
        })
    }

    /// Whether it is likely to be over soon. A disk that fails does not heal: no attempt with work waits for it.
    pub(crate) fn is_transient(self) -> bool {
        self != Self::Device
    }

    fn numbers(self) -> &'static [Errno] {
        match self {
            Self::Disk => &[Errno::NOSPC, Errno::DQUOT],
            Self::Descriptors => &[Errno::MFILE, Errno::NFILE],
            // Of all calls whose errors come as far as here, only those that start a process answer with it.
            Self::Processes => &[Errno::AGAIN],
            Self::Memory => &[Errno::NOMEM],
            Self::Device => &[Errno::IO],
        }
    }

    fn of_kernel(error: &io::Error) -> Option<Self> {
        let number = Errno::from_io_error(error)?;
        Self::ALL.into_iter().find(|fault| fault.numbers().contains(&number))
    }

    /// The C library's words for the numbers, as git repeats them.
    fn of_git(error: &GitError, at: &Path) -> Option<Self> {
        let GitError::Failed { message, .. } = error else { return None };
        // At the end of a line, after a colon: in the middle there may be a name that a user chose.
        let lines: Vec<&str> =
            message.lines().flat_map(|line| line.split("\\n")).map(str::trim_end).collect();
        let says = |words: &str| lines.iter().any(|line| line.ends_with(&format!(": {words}")));
        match message {
            _ if says("No space left on device") || says("Disk quota exceeded") => Some(Self::Disk),
            _ if says("Too many open files") => Some(Self::Descriptors),
            _ if says("Resource temporarily unavailable") => Some(Self::Processes),
            _ if says("Cannot allocate memory") || says("Out of memory") => Some(Self::Memory),
            _ if says("Input/output error") => Some(Self::Device),
            // A git that can't write often does not say why.
            _ => is_full(at).then_some(Self::Disk),
        }
    }

    /// The first process of a sandbox tells what it could not do in words, with the number at their end.
    fn of_launch(error: &LaunchError) -> Option<Self> {
        let LaunchError::Unavailable { what, .. } = error else { return None };
        let ends_with = |number: &Errno| what.ends_with(&format!("(os error {})", number.raw_os_error()));
        Self::ALL.into_iter().find(|fault| fault.numbers().iter().any(ends_with))
    }

    /// SQLite's numbers; what comes above the lowest byte says in which way.
    fn of_sqlite(code: u32) -> Option<Self> {
        match code & 0xff {
            7 => Some(Self::Memory),
            10 => Some(Self::Device),
            13 => Some(Self::Disk),
            // A file could not be opened that could be before. It does not say why, and asking comes too late.
            14 => Some(Self::Descriptors),
            _ => None,
        }
    }
}

/// The least that is left free: with less, nothing can be counted on.
const LEAST: u64 = 64 << 10;
/// The most that is left free of a large disk.
const MOST: u64 = 64 << 20;
/// Of a disk, one part in so many is left free.
const SHARE: u64 = 100;
/// So many files can still be made.
const FILES: u64 = 32;
/// So many times of that is free when something new is started.
const TO_BEGIN: u64 = 4;

/// Whether next to nothing can be written where a folder lies.
pub(crate) fn is_full(folder: &Path) -> bool {
    DiskSpace::of(folder).is_some_and(|disk| disk.free < LEAST)
}

/// Whether the disk of a folder is so full that an agent may have been refused a write, or will be soon.
pub(crate) fn is_nearly_full(folder: &Path) -> bool {
    DiskSpace::of(folder).is_some_and(|disk| disk.has_less_than(1))
}

/// Whether nothing new is to be started where a folder lies. An agent needs room at once when it begins; with only the
/// room at which an agent is stopped, one attempt after the other would be lost, and each leaves records.
pub(crate) fn is_too_full_to_begin(folder: &Path) -> bool {
    DiskSpace::of(folder).is_some_and(|disk| disk.has_less_than(TO_BEGIN))
}

/// A file system, as it counts itself.
struct DiskSpace {
    size: u64,
    free: u64,
    /// How many files can be made; `None` where they are not counted.
    files: Option<u64>,
}

impl DiskSpace {
    /// Whether less is free than so many times what is to be left.
    fn has_less_than(&self, times: u64) -> bool {
        let room = (self.size / SHARE).clamp(LEAST, MOST);
        self.free < times * room || self.files.is_some_and(|files| files < times * FILES)
    }

    fn of(folder: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(folder).ok()?;
        Some(Self {
            size: found.f_blocks.checked_mul(found.f_frsize)?,
            free: found.f_bavail.checked_mul(found.f_frsize)?,
            files: (found.f_files > 0).then_some(found.f_favail),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_known_by_the_kernels_number_wherever_it_is_said() {
        let here = std::env::temp_dir();
        let inside = |what: &str| LaunchError::Unavailable { what: what.to_owned(), hint: String::new() };
        let numbers = [(28, HostFault::Disk), (24, HostFault::Descriptors), (23, HostFault::Descriptors)];
        for (number, fault) in numbers.into_iter().chain([
            (11, HostFault::Processes),
            (12, HostFault::Memory),
            (5, HostFault::Device),
        ]) {
            assert_eq!(HostFault::of(&io::Error::from_raw_os_error(number), &here), Some(fault), "{number}");
            let told = inside(&format!("can't do it: {} (os error {number})", "Some words"));
            assert_eq!(HostFault::of(&told, &here), Some(fault), "{number}");
        }
        for number in [1, 2, 13] {
            assert_eq!(HostFault::of(&io::Error::from_raw_os_error(number), &here), None);
        }
        assert_eq!(
            HostFault::of(&inside("can't mount it: Operation not permitted (os error 1)"), &here),
            None
        );
    }

    #[test]
    fn git_says_it_in_words_and_the_store_by_a_number() {
        let here = std::env::temp_dir();
        let git = |message: &str| GitError::Failed {
            command: "gc".into(),
            status: std::process::ExitStatus::default(),
            message: message.to_owned(),
        };
        let said = git("fatal: unable to create thread: Resource temporarily unavailable");
        assert_eq!(HostFault::of(&said, &here), Some(HostFault::Processes));
        assert_eq!(HostFault::of(&git("fatal: not a repository"), &here), None);
        assert_eq!(HostFault::of(&git("fatal: No space left on device is no branch"), &here), None);
        let unread = git("error: unable to read object: Input/output error");
        assert_eq!(HostFault::of(&unread, &here), Some(HostFault::Device));
        // What could not be read, written or synced stands above the lowest byte.
        assert_eq!(HostFault::of_sqlite(10 | 4 << 8), Some(HostFault::Device));
        assert_eq!(HostFault::of_sqlite(13), Some(HostFault::Disk));
        assert_eq!(HostFault::of_sqlite(11), None, "damage is none");
    }

    /// What a program of an agent's writes is no fault of the machine's.
    #[test]
    fn words_that_others_wrote_count_for_nothing() {
        let said =
            io::Error::other("the setup failed: JavaScript heap out of memory; database or disk is full");
        assert_eq!(HostFault::of(&said, &std::env::temp_dir()), None);
    }

    #[test]
    fn beginning_takes_more_room_than_going_on() {
        let disk = |free, files| DiskSpace { size: 24 << 20, free, files };
        let room = (24 << 20) / SHARE;
        for (disk, stops, starts) in [
            (disk(room - 1, None), true, false),
            (disk(room, None), false, false),
            (disk(4 * room - 1, None), false, false),
            (disk(4 * room, None), false, true),
            (disk(4 * room, Some(31)), true, false),
            (disk(4 * room, Some(127)), false, false),
            (disk(4 * room, Some(128)), false, true),
        ] {
            assert_eq!(
                (disk.has_less_than(1), !disk.has_less_than(TO_BEGIN)),
                (stops, starts),
                "{}",
                disk.free
            );
        }
    }

    #[test]
    fn there_is_room_somewhere_and_nowhere_is_not_known() {
        assert!(
            DiskSpace::of(&std::env::temp_dir()).is_some() && !is_nearly_full(Path::new("/no/such/folder"))
        );
    }
}
