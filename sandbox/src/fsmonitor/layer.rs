//! The layer that catches what an agent writes, as a list of what changed.
//!
//! A folder in it lies over the commit's own and adds to that, or it stands for itself: because it is new, or because
//! it was removed and made again. Not every user can read what the kernel marks that with. But a folder with one
//! under it always has one link, where any other has two at least, on file systems that count them; where they do
//! not, a folder is taken to stand for itself, which costs git a few more looks and is never wrong.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{FsmonitorAnswer, as_path, below};

/// Files that say what git ignores.
const RULES: &[u8] = b".gitignore";
const REPOSITORY: &[u8] = b".git";

/// What was found in a layer.
#[derive(Debug, Default)]
pub(super) struct LayerScan {
    /// Folders that add to the commit's, with every name that is in the layer or in sight. Of those that could not
    /// be read there are none.
    merged: HashMap<Vec<u8>, HashSet<Vec<u8>>>,
}

impl LayerScan {
    /// Lists a layer that is seen, over others, at `root`.
    pub(super) fn scan(layer: &Path, root: &Path, scratch: &[Vec<u8>], out: &mut FsmonitorAnswer) -> Self {
        let mut seen = Self::default();
        let mut rules = fs::symlink_metadata(layer.join(".git/info/exclude")).is_ok();
        let mut waiting = vec![(Vec::new(), true)];
        let mut ignored = Vec::new();
        while let Some((folder, merged)) = waiting.pop().or_else(|| ignored.pop().filter(|_| rules)) {
            out.content(&folder);
            let Ok(entries) = list(&layer.join(as_path(&folder))) else {
                out.name(&folder);
                continue;
            };
            for (name, is_folder) in &entries {
                if name == REPOSITORY {
                    continue;
                }
                rules |= name == RULES;
                let path = below(&folder, name);
                if !is_folder {
                    if merged {
                        out.name(&path);
                    }
                } else if scratch.contains(&path) {
                    out.name(&path);
                    ignored.push((path, false));
                } else {
                    let merged = merged && lies_over_another(layer, root, &path);
                    if !merged {
                        out.name(&path);
                    }
                    waiting.push((path, merged));
                }
            }
            if merged && let Ok(shown) = list(&root.join(as_path(&folder))) {
                let names = entries.into_iter().chain(shown).map(|(name, _)| name).collect();
                seen.merged.insert(folder, names);
            }
        }
        seen
    }

    /// Adds what an index has and neither the layer nor the commit: it was made, and is gone without a trace. `None`
    /// if a folder on the way could not be read.
    pub(super) fn missing(&self, paths: Vec<Vec<u8>>, out: &mut FsmonitorAnswer) -> Option<()> {
        // Paths come in order, so what is below one folder comes together.
        let mut decided: Option<Vec<u8>> = None;
        for path in paths {
            if decided.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            let mut names = self.merged.get(&b""[..])?;
            let mut start = 0;
            loop {
                let slash = memchr::memchr(b'/', &path[start..]).map(|at| start + at);
                let end = slash.unwrap_or(path.len());
                if let (Some(slash), Some(inner)) = (slash, self.merged.get(&path[..end])) {
                    (names, start) = (inner, slash + 1);
                    continue;
                }
                if !names.contains(&path[start..end]) {
                    out.name(&path[..end]);
                }
                decided = slash.map(|slash| path[..=slash].to_vec());
                break;
            }
        }
        Some(())
    }
}

/// Whether a folder of the layer adds to one below.
fn lies_over_another(layer: &Path, root: &Path, path: &[u8]) -> bool {
    let links = |root: &Path| fs::symlink_metadata(root.join(as_path(path))).map(|found| found.nlink());
    matches!((links(root), links(layer)), (Ok(1), Ok(own)) if own > 1)
}

/// Says of every folder below one of the work tree that something in it may have changed.
pub(super) fn folders_below(top: &[u8], out: &mut FsmonitorAnswer) {
    let mut waiting = vec![top.to_vec()];
    while let Some(folder) = waiting.pop() {
        out.content(&folder);
        for (name, is_folder) in list(as_path(&folder)).unwrap_or_default() {
            if is_folder && name != REPOSITORY {
                waiting.push(below(&folder, &name));
            }
        }
    }
}

/// The names in a folder, and which are folders.
fn list(folder: &Path) -> io::Result<Vec<(Vec<u8>, bool)>> {
    fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().into_vec(), entry.file_type()?.is_dir()))
        })
        .collect()
}
