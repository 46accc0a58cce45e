//! Which containers are ours, and how those of a dead owner are removed.
//!
//! A container ends with its owner, and an engine removes one that ended. Killed between making a container and starting
//! it, or together with the engine, an owner leaves one behind all the same. So each is written down first, in our own
//! state folder, under a number that can't be guessed; the container has that number in its name and in a label. The
//! owner holds a lock on its record for as long as it lives. The next process removes what a dead owner wrote
//! down, if name, label and, where it came to that, the engine's own id all agree. A label alone says nothing: an image
//! brings any it likes.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::engine::{ContainerEngine, EngineError};
use crate::boot;
use crate::nonce::{is_nonce, nonce};

/// The label that says to people whose a container is.
pub(crate) const OWNER: &str = "io.agency.owner";
/// The label with the number it is written down by.
pub(crate) const NONCE: &str = "io.agency.nonce";

/// Where containers are written down, in the state folder of a workspace.
const FOLDER: &str = "containers";
/// How long an engine may take to make a container for an owner that asked for it and then died.
const ON_ITS_WAY: Duration = Duration::from_secs(600);
/// More than a socket's path and an id.
const LARGEST: u64 = 8 * 1024;

/// This process, for people who look at an engine's list.
pub(crate) fn owner_label() -> String {
    let boot = boot::id().unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    // Times begin after the name, which may hold anything.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let started =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)).unwrap_or_default();
    format!("{boot}/{namespace}/{}/{started}", std::process::id())
}

/// A container that is written down. Dropping it leaves the record, for the next process.
#[derive(Debug)]
pub(crate) struct ContainerRecord {
    path: PathBuf,
    /// Locked until its owner is dead.
    file: File,
    pub(crate) nonce: String,
}

impl ContainerRecord {
    /// Writes a container down before it is made.
    pub(crate) fn begin(state: &Path, engine: &Path) -> io::Result<Self> {
        let folder = state.join(FOLDER);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let nonce = nonce();
        let path = folder.join(&nonce);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        writeln!(file, "{}", engine.display())?;
        Ok(Self { path, file, nonce })
    }

    /// What the engine calls it, once it is made.
    pub(crate) fn set_container_id(&mut self, id: &str) -> io::Result<()> {
        writeln!(self.file, "{id}")
    }

    /// The container is gone, and so is what was written of it.
    pub(crate) fn delete(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The name that a container has by its number.
pub(crate) fn name(nonce: &str) -> String {
    format!("agency-{nonce}")
}

/// What a dead owner wrote down.
#[derive(Debug, PartialEq, Eq)]
struct StaleContainer {
    engine: PathBuf,
    /// `None` where it died before it knew.
    id: Option<String>,
}

impl StaleContainer {
    fn read(text: &str) -> Option<Self> {
        // A line that was not finished is none.
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let engine = lines.next().filter(|path| path.starts_with('/'))?.into();
        let is_id = |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        Some(Self { engine, id: lines.next().filter(is_id).map(str::to_owned) })
    }
}

/// Removes the containers that the dead wrote down in a state folder. How many there were.
pub(crate) fn sweep(engine: &ContainerEngine, state: &Path) -> Result<usize, EngineError> {
    let mut swept = 0;
    for entry in fs::read_dir(state.join(FOLDER)).into_iter().flatten().flatten() {
        let (path, nonce) = (entry.path(), entry.file_name());
        let Some(nonce) = nonce.to_str().filter(|nonce| is_nonce(nonce)) else { continue };
        // An owner that still holds it is alive.
        let Some((_held, age, text)) = take(&path) else { continue };
        let left = StaleContainer::read(&text).filter(|left| left.engine == engine.socket);
        let Some(left) = left else { continue };
        match engine.find_own(&name(nonce), NONCE, nonce)? {
            Some(id) => {
                let is_it = left.id.is_none_or(|written| written == id);
                // A container that can't be removed blocks nothing, and the next sweep tries again.
                if !is_it || engine.remove(&id).is_err() {
                    continue;
                }
                swept += 1;
            }
            None if left.id.is_none() && age < ON_ITS_WAY => continue,
            None => {}
        }
        let _ = fs::remove_file(&path);
    }
    Ok(swept)
}

/// Takes what a dead owner wrote: held, how old it is, and what it says.
fn take(path: &Path) -> Option<(File, Duration, String)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut text = String::new();
    (&file).take(LARGEST).read_to_string(&mut text).ok()?;
    let age = about.modified().ok()?.elapsed().unwrap_or_default();
    Some((file, age, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_the_livings_until_they_are_dead() {
        let state = tempfile::tempdir().expect("a folder");
        let mut record = ContainerRecord::begin(state.path(), Path::new("/run/engine")).expect("written");
        let path = record.path.clone();
        assert!(is_nonce(&record.nonce) && take(&path).is_none(), "its owner lives");
        record.set_container_id("c0ffee").expect("written");
        drop(record);
        let (_, _, text) = take(&path).expect("its owner is gone");
        let left = StaleContainer::read(&text).expect("understood");
        assert_eq!(left, StaleContainer { engine: "/run/engine".into(), id: Some("c0ffee".into()) });
        let other = ContainerRecord::begin(state.path(), Path::new("/run/engine")).expect("written");
        assert_ne!(other.path, path);
        other.delete();
        assert!(!other.path.exists());
    }

    #[test]
    fn what_was_not_finished_is_not_believed() {
        let left = |text| StaleContainer::read(text);
        assert_eq!(left("/run/eng"), None);
        assert_eq!(left("relative\n"), None);
        assert_eq!(
            left("/run/engine\nc0ff"),
            Some(StaleContainer { engine: "/run/engine".into(), id: None })
        );
        assert_eq!(
            left("/run/engine\n../x\n"),
            Some(StaleContainer { engine: "/run/engine".into(), id: None })
        );
        // Planted links and pipes are not followed, nor waited for.
        let state = tempfile::tempdir().expect("a folder");
        let (link, pipe) = (state.path().join("link"), state.path().join("pipe"));
        std::os::unix::fs::symlink("/etc/passwd", &link).expect("linked");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).expect("made");
        assert!(take(&link).is_none() && take(&pipe).is_none());
    }
}
