//! What a layer does not show, written down when the sandbox is made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::path::RelPath;
use crate::workspace::{LongIndex, Workspace};

/// The workspace, as far as git's questions go. Paths are relative to its root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FsmonitorConfig {
    pub(super) root: PathBuf,
    /// Bytes of an object's name.
    pub(super) names: usize,
    /// Covered by something else, or another repository's: never as the commit has it.
    pub(super) always: Vec<Vec<u8>>,
    /// Folders of the real work tree.
    pub(super) live: Vec<Vec<u8>>,
    /// Folders that git ignores as a whole, for as long as the ignore rules are the commit's.
    pub(super) scratch: Vec<Vec<u8>>,
}

impl FsmonitorConfig {
    pub(crate) fn new<'a>(
        workspace: &Workspace,
        index: &LongIndex,
        hidden: impl Iterator<Item = &'a Path>,
    ) -> Self {
        let bytes = |path: &RelPath| path.as_bytes().to_vec();
        let hidden = hidden.map(|path| path.as_os_str().as_bytes().to_vec());
        Self {
            root: workspace.path.clone(),
            names: index.names,
            always: workspace.hidden.iter().chain(&index.submodules).map(bytes).chain(hidden).collect(),
            live: workspace.live.iter().map(bytes).collect(),
            scratch: workspace.scratch.iter().map(bytes).filter(|path| path != b".git").collect(),
        }
    }

    /// A letter for what it is, the thing itself, and a NUL.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut add = |letter: u8, thing: &[u8]| {
            text.push(letter);
            text.extend_from_slice(thing);
            text.push(0);
        };
        add(b'r', self.root.as_os_str().as_bytes());
        add(b'n', self.names.to_string().as_bytes());
        for (letter, paths) in [(b'a', &self.always), (b'l', &self.live), (b's', &self.scratch)] {
            paths.iter().for_each(|path| add(letter, path));
        }
        text
    }

    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let mut about = Self {
            root: PathBuf::new(),
            names: 0,
            always: Vec::new(),
            live: Vec::new(),
            scratch: Vec::new(),
        };
        for record in text.strip_suffix(b"\0")?.split(|byte| *byte == 0) {
            let (letter, thing) = record.split_first()?;
            match letter {
                b'r' => about.root = PathBuf::from(OsStr::from_bytes(thing)),
                b'n' => about.names = std::str::from_utf8(thing).ok()?.parse().ok()?,
                b'a' => about.always.push(thing.to_vec()),
                b'l' => about.live.push(thing.to_vec()),
                b's' => about.scratch.push(thing.to_vec()),
                _ => return None,
            }
        }
        Some(about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let about = FsmonitorConfig {
            root: PathBuf::from("/a b"),
            names: 20,
            always: vec![b"x\ny".to_vec(), b"\xff".to_vec()],
            live: vec![b"l/m".to_vec()],
            scratch: vec![b"target".to_vec()],
        };
        assert_eq!(FsmonitorConfig::read(&about.text()), Some(about));
        assert_eq!(FsmonitorConfig::read(b""), None);
        assert_eq!(FsmonitorConfig::read(b"r/a\0z\0"), None);
    }
}
