//! The part of the private repository that belongs to one run: a thin layer on top of the others.
//!
//! Which commit the agent starts from, which branches there are and how the repository is configured changes
//! from run to run while the files stay the same, so it is not kept with them. The layer is made in memory for
//! each run: HEAD, detached at the commit; branches, tags and remote branches as they are now; the
//! configuration without what could run a program or carry a secret ([`crate::workspace::private_git`]); and
//! where the real objects are seen, which are bound there read-only.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::SnapshotResult;
use super::index::ObjectFormat;
use super::objects::SnapshotObjects;
use crate::path::RelPath;
use crate::untrusted;
use crate::workspace::folder::RepositoryPaths;
use crate::workspace::git_config;
use crate::workspace::private_git::sanitize;
use crate::workspace::{FolderMount, LayerAddition};

/// Everything is checked out, as raw bytes, on a file system that knows modes and links.
const OVERRULED: &str = "[core]\n\tbare = false\n\tfileMode = true\n\tsymlinks = true\n\tignoreCase = false\n\
    \tautocrlf = false\n\tsafecrlf = false\n\tsparseCheckout = false\n\tsparseCheckoutCone = false\n\
    [index]\n\tsparse = false\n";

/// The kinds of references an agent gets to see. Others (a person's stash, other attempts) are not its
/// business.
const KINDS: [&str; 3] = ["refs/heads", "refs/tags", "refs/remotes"];

/// Listing a directory through an overlay costs more than asking whether it changed, so where there are many git only
/// asks after its first look.
const LONG: &str = "[core]\n\tuntrackedCache = true\n";

/// The largest list of references, of patterns or of commits that is read. A million references take 70 MiB.
const LARGEST_LIST: u64 = 256 << 20;
/// A reference is one line.
const ONE_REFERENCE: u64 = 4096;

/// What is put over the layers, and which objects are bound into it for it to be of use. `long` is what the index is
/// from some thousand files on.
pub(super) fn additions(
    root: &Path,
    objects: &SnapshotObjects,
    commit: &str,
    long: bool,
) -> SnapshotResult<(Vec<LayerAddition>, Vec<FolderMount>)> {
    let repository = &objects.repository;
    let git = RelPath::root().join(b".git");
    let refs = SnapshotReferences::read(repository, objects.format)?;
    let config = config(repository)? + if long { LONG } else { "" };
    let mut added = vec![
        LayerAddition::File(git.join(b"HEAD"), format!("{commit}\n").into_bytes()),
        LayerAddition::File(git.join(b"packed-refs"), refs.packed()),
        LayerAddition::File(git.join(b"config"), config.into_bytes()),
    ];
    for (name, target) in &refs.links {
        let path = name.split(|byte| *byte == b'/').fold(git.clone(), |path, part| path.join(part));
        added.push(LayerAddition::File(path, format!("ref: {target}\n").into_bytes()));
    }
    let copies = [(git.join(b"shallow"), "shallow"), (git.join(b"info").join(b"exclude"), "info/exclude")];
    for (path, from) in copies {
        if let Some(contents) = repository.read(from, LARGEST_LIST)? {
            added.push(LayerAddition::File(path, contents));
        }
    }

    let mut alternates = String::new();
    let mut shared = Vec::new();
    for (number, found) in repository.object_folders()?.into_iter().enumerate() {
        // One that another names by its path has to be where that path leads.
        let at = if found.absolute && !found.path.starts_with(root) {
            found.path.clone()
        } else {
            let folder = git.join(b"base").join(number.to_string().as_bytes());
            alternates.push_str(&format!("../base/{number}\n"));
            added.push(LayerAddition::Directory(folder.clone()));
            root.join(folder.as_path())
        };
        shared.push(FolderMount { source: found.path, at });
    }
    let list = git.join(b"objects").join(b"info").join(b"alternates");
    added.push(LayerAddition::File(list, alternates.into_bytes()));
    Ok((added, shared))
}

fn config(repository: &RepositoryPaths) -> SnapshotResult<String> {
    let real = repository.read("config", git_config::LARGEST)?.unwrap_or_default();
    let mut config: String = sanitize(&String::from_utf8_lossy(&real))
        .lines()
        // A second name for each object is kept in files we do not copy.
        .filter(|line| !line.trim().to_ascii_lowercase().starts_with("compatobjectformat"))
        .flat_map(|line| [line, "\n"])
        .collect();
    config.push_str(OVERRULED);
    Ok(config)
}

/// Branches, tags and remote branches.
#[derive(Debug, Default)]
pub(super) struct SnapshotReferences {
    /// The commit that is checked out.
    pub(super) head: Option<String>,
    direct: BTreeMap<Vec<u8>, String>,
    /// References to references, such as `refs/remotes/origin/HEAD`.
    links: Vec<(Vec<u8>, String)>,
}

impl SnapshotReferences {
    pub(super) fn read(repository: &RepositoryPaths, format: ObjectFormat) -> SnapshotResult<Self> {
        let mut refs = Self::default();
        let text = repository.read("packed-refs", LARGEST_LIST)?.unwrap_or_default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((object, name)) = line.split_at_checked(2 * format.bytes())
                && let Some(name) = name.strip_prefix(b" ")
            {
                refs.add(name, object, format);
            }
        }
        for kind in KINDS {
            let mut waiting: Vec<PathBuf> = vec![PathBuf::from(kind)];
            while let Some(folder) = waiting.pop() {
                for entry in fs::read_dir(repository.common.join(&folder)).into_iter().flatten().flatten() {
                    let (name, Ok(file_type)) = (folder.join(entry.file_name()), entry.file_type()) else {
                        continue;
                    };
                    if file_type.is_dir() {
                        waiting.push(name);
                    } else if file_type.is_file() && !name.as_os_str().as_bytes().ends_with(b".lock") {
                        // One that goes while we look is gone.
                        let Ok(Some(text)) = untrusted::read(&repository.common, &name, ONE_REFERENCE) else {
                            continue;
                        };
                        refs.add(name.as_os_str().as_bytes(), text.trim_ascii_end(), format);
                    }
                }
            }
        }
        let head = untrusted::read(&repository.git, "HEAD", ONE_REFERENCE)?.unwrap_or_default();
        let head = head.trim_ascii();
        refs.head = match head.strip_prefix(b"ref:") {
            Some(name) => refs.direct.get(name.trim_ascii()).cloned(),
            None => format.is_name(head).then(|| String::from_utf8_lossy(head).into_owned()),
        };
        Ok(refs)
    }

    fn add(&mut self, name: &[u8], value: &[u8], format: ObjectFormat) {
        let known = KINDS.iter().any(|kind| {
            name.strip_prefix(kind.as_bytes()).is_some_and(|rest| rest.starts_with(b"/") && rest.len() > 1)
        });
        if !known || !is_reference_name(name) {
            return;
        }
        if format.is_name(value) {
            self.direct.insert(name.to_vec(), String::from_utf8_lossy(value).into_owned());
        } else if let Some(target) =
            value.strip_prefix(b"ref: refs/").filter(|target| is_reference_name(target))
        {
            self.direct.remove(name);
            self.links.push((name.to_vec(), format!("refs/{}", String::from_utf8_lossy(target))));
        }
    }

    /// What a name stands for, looked for where git looks for it (`gitrevisions(7)`).
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        if name == "HEAD" {
            return self.head.as_deref();
        }
        let places = ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"];
        let full = places.iter().map(|place| format!("{place}{name}"));
        let full = full.chain([format!("refs/remotes/{name}/HEAD")]);
        full.into_iter().find_map(|full| {
            let link = self.links.iter().find(|(link, _)| *link == full.as_bytes());
            let full = link.map_or(full.as_bytes(), |(_, target)| target.as_bytes());
            self.direct.get(full).map(String::as_str)
        })
    }

    /// As git packs them.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut out = b"# pack-refs with: sorted \n".to_vec();
        for (name, object) in &self.direct {
            out.extend_from_slice(object.as_bytes());
            out.push(b' ');
            out.extend_from_slice(name);
            out.push(b'\n');
        }
        out
    }
}

/// No more than what keeps it one line of a file and one path below a folder.
fn is_reference_name(name: &[u8]) -> bool {
    !name.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
        && name.split(|byte| *byte == b'/').all(|part| !part.is_empty() && !part.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_stays_one_line_and_below_its_folder() {
        for name in
            ["refs/heads/a\nb", "refs/heads/../../config", "refs/heads/", "refs/stash", "refs/heads/a b"]
        {
            let mut refs = SnapshotReferences::default();
            refs.add(name.as_bytes(), &[b'a'; 40], ObjectFormat::Sha1);
            assert!(refs.direct.is_empty(), "{name:?}");
        }
    }
}
