//! How git is configured, asked of git itself, which reads whatever files it is told to.
//!
//! A configuration names others that are part of it, and any of them may be a pipe that nobody ever writes to. Git
//! waits for such a one for ever, and whoever asked git waits with it. So nobody asks without an end, and whoever was
//! not answered says for what: the pipe is looked for then, where git would have found it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::git::output_within;

/// No git reads its configuration for so long, however busy the machine is.
pub const LONGEST: Duration = Duration::from_secs(8);

/// Why git did not say how it is configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("git can't be started")]
    Start(#[source] io::Error),
    #[error("git has waited for {} for {} s, which is a pipe; remove it, or the `include` that names it", pipe.display(), LONGEST.as_secs())]
    Pipe { pipe: PathBuf },
    #[error("git gave no answer for {} s when it was asked how it is configured; is one of the files it reads for that out of reach?", LONGEST.as_secs())]
    Unanswered,
}

/// Runs a `git config` to its end, or for as long as anybody would wait. `sources` are the files that it begins with.
pub fn answer(
    command: &mut Command,
    sources: &[PathBuf],
    home: Option<&Path>,
) -> Result<Output, ConfigError> {
    match output_within(command, LONGEST).map_err(ConfigError::Start)? {
        Some(output) => Ok(output),
        None => Err(match pipe(sources, home) {
            Some(pipe) => ConfigError::Pipe { pipe },
            None => ConfigError::Unanswered,
        }),
    }
}

/// So many files are looked through for a pipe, and so much of each.
const FILES: usize = 100;
const BYTES: u64 = 1 << 20;

/// The first pipe among these files and what they include.
fn pipe(sources: &[PathBuf], home: Option<&Path>) -> Option<PathBuf> {
    let mut waiting: VecDeque<PathBuf> = sources.iter().cloned().collect();
    for _ in 0..FILES {
        let path = waiting.pop_front()?;
        if path.metadata().is_ok_and(|stat| stat.file_type().is_fifo()) {
            return Some(path);
        }
        let text = read(&path).unwrap_or_default();
        waiting.extend(included(&text).map(|name| match (name.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            // An absolute path stays what it is.
            _ => path.parent().unwrap_or(Path::new("/")).join(name),
        }));
    }
    None
}

/// What a configuration includes, whatever the conditions: `path = …`, also behind the head of its section.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let key = key.rsplit([']', ' ', '\t']).find(|part| !part.is_empty())?;
        key.eq_ignore_ascii_case("path").then(|| value.trim().trim_matches('"'))
    })
}

/// A plain file. Nothing else is opened: there are devices that act on that alone.
fn read(path: &Path) -> io::Result<String> {
    let held = File::from(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !held.metadata()?.is_file() {
        return Ok(String::new());
    }
    // What was looked at, whatever has its name by now.
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_pipe_is_found_through_what_includes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let sources = [at("none"), at("config")];
        fs::write(at("config"), "[core]\n\tbare = false\n[include] path = \"more\"\n").expect("written");
        // In a circle, too.
        fs::write(at("more"), "[include]\n\tpath = config\n[includeIf \"gitdir:/x\"]\n\tPath=~/pipe\n")
            .expect("written");
        assert_eq!(pipe(&sources, Some(folder.path())), None);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("a pipe");
        assert_eq!(pipe(&sources, Some(folder.path())), Some(at("pipe")));
        assert_eq!(pipe(&[at("pipe")], None), Some(at("pipe")));
    }

    /// A socket can't be opened, and whoever tries is told so.
    #[test]
    fn what_is_no_plain_file_is_not_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        fs::write(at("file"), "[core]\n").expect("written");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("linked");
        assert_eq!(read(&at("socket")).expect("looked at"), "");
        assert_eq!(read(&at("link")).expect("read"), "[core]\n");
        assert!(read(&at("none")).is_err());
    }
}
