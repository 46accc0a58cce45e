//! Tells git inside a sandbox which files may have changed, so that it need not look at a hundred thousand.
//!
//! Git asks a program of its configuration (`core.fsmonitor`, see `githooks(5)`) and believes its answer. Here the
//! program need not watch files for that. A workspace is an overlay: what is not in the layer that catches writing
//! is as the commit has it. So the layer is shown to the agent, read-only, and `agency`, started by the name of
//! `FSMONITOR_PROGRAM`, lists it (`layer`). Three things are not in the layer:
//!
//! - what is mounted over the tree: covers, and folders of the real work tree. They are named each time (`config`).
//! - what was made there and is gone again. It can only matter if the index has it (`index_paths`).
//! - another work tree, or an index that was last compared with one. Then everything may have changed.
//!
//! All of this happens inside, as the agent and with its rights. An agent that replaces the program, or lies to it,
//! fools its own git; no git outside reads its index, and the harvest looks at the layer itself.

#![allow(clippy::disallowed_methods, reason = "opens the agent's, inside its sandbox")]

mod config;
mod index_paths;
mod layer;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::workspace::{FSMONITOR_PROGRAM, FSMONITOR_TOKEN};
pub(crate) use config::FsmonitorConfig;
use layer::LayerScan;

/// Where an agent finds what this takes.
pub(crate) const FOLDER: &str = "/run/agency-git";
/// The layer that catches what the agent writes.
pub(crate) const LAYER: &str = "/run/agency-git/layer";
pub(crate) const ABOUT: &str = "/run/agency-git/about";

/// Of an index that was compared with another work tree.
const ELSEWHERE: &str = "agency:elsewhere";

/// What to answer if git is asking, by the arguments of this process; `None` if it was started for something else.
pub fn answer(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<u8>> {
    arguments.next().filter(|name| name == FSMONITOR_PROGRAM)?;
    // Another version of the question has no word for the moment.
    if arguments.next().as_deref() != Some(OsStr::new("2")) {
        return Some(b"/\0".to_vec());
    }
    let since = arguments.next().unwrap_or_default();
    let about = std::fs::read(ABOUT).ok().and_then(|text| FsmonitorConfig::read(&text));
    let here = std::env::current_dir().ok();
    let Some(about) = about.filter(|about| here.as_deref() == Some(&about.root)) else {
        return Some(everything(ELSEWHERE));
    };
    if since != FSMONITOR_TOKEN {
        return Some(everything(FSMONITOR_TOKEN));
    }
    Some(changes(&about).unwrap_or_else(|| everything(FSMONITOR_TOKEN)))
}

fn everything(moment: &str) -> Vec<u8> {
    [moment.as_bytes(), b"\0/\0"].concat()
}

/// Everything that may not be as the commit has it; `None` if that can't be told.
fn changes(about: &FsmonitorConfig) -> Option<Vec<u8>> {
    let mut out = FsmonitorAnswer::since(FSMONITOR_TOKEN);
    for path in &about.always {
        out.name(path);
        out.content(path);
    }
    for path in &about.live {
        out.name(path);
        layer::folders_below(path, &mut out);
    }
    let seen = LayerScan::scan(Path::new(LAYER), Path::new("."), &about.scratch, &mut out);
    if let Some(path) = index() {
        let bytes = std::fs::read(path).ok()?;
        let entries = index_paths::paths(&bytes, about.names)?;
        seen.missing(entries, &mut out)?;
    }
    Some(out.bytes)
}

/// The index git is about to believe, unless it is the commit's own, in which nothing can be missing.
fn index() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let repository = variable("GIT_DIR").unwrap_or_else(|| ".git".into());
    let named = variable("GIT_INDEX_FILE").unwrap_or_else(|| repository.join("index"));
    let own = Path::new(".git").canonicalize().ok()?.join("index");
    let is_own =
        named.parent().and_then(|folder| folder.canonicalize().ok()).map(|folder| folder.join("index"))
            == Some(own)
            && named.file_name() == Some(OsStr::new("index"));
    match is_own {
        true => Some(Path::new(LAYER).join(".git/index")).filter(|path| path.is_file()),
        false => Some(named),
    }
}

/// What git is told: a moment, and paths from the root of the work tree, each ended by a NUL.
#[derive(Debug)]
pub(crate) struct FsmonitorAnswer {
    bytes: Vec<u8>,
}

/// A name for "something in this folder". Git forgets what else it knew to be there.
const SOMETHING: &[u8] = b".agency-changed";

impl FsmonitorAnswer {
    fn since(moment: &str) -> Self {
        Self { bytes: [moment.as_bytes(), b"\0"].concat() }
    }

    /// A path changed: itself, and what the index has below it, should it be a folder or have been one.
    fn name(&mut self, path: &[u8]) {
        for end in [&b"\0"[..], b"/\0"] {
            self.bytes.extend_from_slice(path);
            self.bytes.extend_from_slice(end);
        }
    }

    /// Something came into a folder, or went, that git does not track.
    fn content(&mut self, folder: &[u8]) {
        self.bytes.extend_from_slice(&below(folder, SOMETHING));
        self.bytes.push(0);
    }
}

/// A name in a folder.
fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder.is_empty() {
        true => name.to_vec(),
        false => [folder, b"/", name].concat(),
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_called_by_the_name_answers() {
        let asked = |words: &[&str]| answer(words.iter().map(OsString::from));
        assert_eq!(asked(&["agency", "2", FSMONITOR_TOKEN]), None);
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[FSMONITOR_PROGRAM, "1", "17"]), Some(b"/\0".to_vec()));
        // Nothing is known outside of a sandbox.
        assert_eq!(
            asked(&[FSMONITOR_PROGRAM, "2", FSMONITOR_TOKEN]),
            Some(b"agency:elsewhere\0/\0".to_vec())
        );
    }
}
