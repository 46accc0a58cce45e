//! How git is configured, asked of git itself, which reads every file it is told to.
//!
//! A configuration includes other files, and a repository's configuration may include a pipe that never answers, a device
//! that never ends, or a file of gigabytes. So the files are looked at before git is asked, and git is asked within
//! bounds of time, output and memory: a file that was hidden from the look, or exchanged after it, costs no more.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::git::{BoundedOutput, CommandBounds, output_within};
use crate::untrusted::FileKind;

/// What git may cost that reads its configuration, however busy the machine is.
const BOUNDS: CommandBounds =
    CommandBounds { time: Duration::from_secs(5), output: 4 << 20, memory: Some(256 << 20) };

/// So much may all files of a configuration hold together. The largest in use have some ten thousand bytes.
const MOST: u64 = 1 << 20;

/// So many files are looked at.
const FILES: usize = 100;

/// Why git did not say how it is configured.
#[derive(Debug, thiserror::Error)]
pub enum GitConfigError {
    #[error("git can't be started")]
    Start(#[source] io::Error),
    #[error("git's configuration includes {}, which is {kind}; remove it, or the `include` that names it", path.display())]
    Kind { path: PathBuf, kind: FileKind },
    #[error("git's configuration has more than {MOST} bytes with {}; make it smaller, or remove the `include` that names it", path.display())]
    TooLarge { path: PathBuf },
    #[error("git gave no answer within {} s when it was asked how it is configured; is one of the files it reads for that out of reach?", BOUNDS.time.as_secs())]
    Unanswered,
    #[error("git's configuration has more than {} bytes", BOUNDS.output)]
    TooMuch,
}

/// Runs a `git config` within bounds. `sources` are the files that it begins with.
pub fn query(
    command: &mut Command,
    sources: &[PathBuf],
    home: Option<&Path>,
) -> Result<Output, GitConfigError> {
    examine(sources, home)?;
    match output_within(command, BOUNDS).map_err(GitConfigError::Start)? {
        BoundedOutput::Ended(output) => Ok(output),
        BoundedOutput::TooLong => Err(GitConfigError::Unanswered),
        BoundedOutput::TooMuch => Err(GitConfigError::TooMuch),
    }
}

/// That these files and what they include are regular, and not large.
fn examine(sources: &[PathBuf], home: Option<&Path>) -> Result<(), GitConfigError> {
    let mut waiting: VecDeque<PathBuf> = sources.iter().cloned().collect();
    let mut left = MOST;
    for _ in 0..FILES {
        let Some(path) = waiting.pop_front() else { break };
        // What can't be found or opened is git's to complain about.
        let Ok(held) = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        let Ok(stat) = rustix::fs::fstat(&held) else { continue };
        match FileKind::of(&stat) {
            None => {}
            Some(kind) if kind.is_folder() => continue,
            Some(kind) => return Err(GitConfigError::Kind { path, kind }),
        }
        let Some(rest) = u64::try_from(stat.st_size).ok().and_then(|size| left.checked_sub(size)) else {
            return Err(GitConfigError::TooLarge { path });
        };
        left = rest;
        let text = read(&File::from(held)).unwrap_or_default();
        waiting.extend(included(&text).map(|name| match (name.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            // An absolute path stays what it is.
            _ => path.parent().unwrap_or(Path::new("/")).join(name),
        }));
    }
    Ok(())
}

/// What a configuration includes, under any condition: `path = …` in a section `include` or `includeIf`.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let mut includes = false;
    text.lines().filter_map(move |line| {
        let mut entry = line.trim();
        if let Some(header) = entry.strip_prefix('[') {
            let (name, rest) = split_header(header);
            includes = name.eq_ignore_ascii_case("include") || name.eq_ignore_ascii_case("includeIf");
            entry = rest;
        }
        let (key, value) = entry.split_once('=').filter(|_| includes)?;
        key.trim().eq_ignore_ascii_case("path").then(|| value.trim().trim_matches('"'))
    })
}

/// The name of a section, and what stands behind its header on the same line.
fn split_header(header: &str) -> (&str, &str) {
    let mut quoted = false;
    let end = header.find(|c| {
        quoted ^= c == '"';
        c == ']' && !quoted
    });
    let (inside, rest) = end.map_or((header, ""), |end| (&header[..end], &header[end + 1..]));
    let name = inside.split([' ', '\t', '"', '.']).next().unwrap_or_default();
    (name, rest)
}

/// The contents of a regular file that is held: what was looked at, and not what has its name by now.
fn read(held: &File) -> io::Result<String> {
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn make_pipe(path: &Path) {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    }

    #[test]
    fn a_pipe_is_found_through_what_includes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let sources = [at("none"), at("config")];
        let examined = || examine(&sources, Some(folder.path())).map_err(|error| error.to_string());
        fs::write(at("config"), "[core]\n\tbare = false\n[include] path = \"more\"\n").expect("written");
        // In a circle, too.
        fs::write(at("more"), "[include]\n\tpath = config\n[includeIf \"gitdir:/]x\"]\n\tPath=~/pipe\n")
            .expect("written");
        assert_eq!(examined(), Ok(()));
        make_pipe(&at("pipe"));
        let said = examined().expect_err("a pipe");
        assert!(said.contains(&format!("{}, which is a pipe", at("pipe").display())), "{said}");
        // A path that no `include` names is not read as configuration.
        fs::write(at("more"), "[submodule \"x\"]\n\tpath = pipe\n").expect("written");
        assert_eq!(examined(), Ok(()));
    }

    #[test]
    fn a_configuration_that_is_too_large_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("config"), "[include]\n\tpath = large\n").expect("written");
        File::create(at("large")).and_then(|file| file.set_len(MOST)).expect("long");
        let said = examine(&[at("config")], None).expect_err("too large").to_string();
        assert!(said.contains(&format!("bytes with {}", at("large").display())), "{said}");
    }

    /// Our look at a configuration need not understand all of it: what git waits for, it does not wait for long.
    #[test]
    fn a_pipe_that_is_hidden_from_the_look_costs_its_bounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("config");
        make_pipe(&folder.path().join("pipe"));
        fs::write(&config, "[include]\n\tpath = \\\npipe\n").expect("written");
        let mut command = Command::new("git");
        command.args(["config", "--includes", "--list", "--file"]).arg(&config);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let asked = query(&mut command, &[config], None);
        assert!(matches!(asked, Err(GitConfigError::Unanswered)), "{asked:?}");
    }
}
