//! A whole tree, checked out once.
//!
//! Files are raw blobs, with git's two modes; a submodule is an empty folder. All of them say that they were
//! changed in the same second, shortly before the layer was begun, and the index says so too and is itself a
//! second younger. Git trusts an index entry only if it is older than the index ("racy git"): had files and
//! index been written in the same second, the first `git status` would read every file again.
//!
//! The second is the present one and not the commit's: build tools take a file for unchanged that is older
//! than what they made of it, so a file of a later layer must be younger than one of an earlier.
//!
//! A snapshot that replaces another is checked out anew as well, rather than copied or linked from it: it
//! depends on nothing but its objects, and a file that should have been spoilt is not handed down.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::{SnapshotError, SnapshotResult, at};
use super::index::{GitIndex, ObjectFormat};
use super::index_extensions::{self, IndexContext};
use super::layer::LayerWriter;
use super::objects::{LINK, SUBMODULE, SnapshotObjects};
use super::store::{LayerFacts, LayerFolderLock, LockedLayer, make_file, make_folder};

/// What the agent's git stores is what a harvest finds: bytes. Attributes of the tree that would convert
/// them are overruled; this file has the last word.
const ATTRIBUTES: &[u8] = b"* -text -eol -ident -filter -working-tree-encoding\n";

/// The second before last.
pub(super) fn recent_second() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs().saturating_sub(2)).unwrap_or(u32::MAX - 1).max(1)
}

/// Builds the snapshot of a tree.
pub(super) fn build(
    site: &LayerFolderLock<'_>,
    objects: &SnapshotObjects,
    commit: &str,
    tree: &str,
) -> SnapshotResult<LockedLayer> {
    let folder = site.start(tree)?;
    let time = recent_second();
    let mut index = objects.index_of(tree, &folder.join("index"))?;
    let layer = folder.join("layer");
    let mut writer = LayerWriter::new(&layer, time)?;
    let mut submodules = Vec::new();
    let mut sizes = vec![0; index.len()];
    {
        let entries: Vec<_> = index.entries().enumerate().collect();
        let (folders, blobs): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(_, entry)| entry.mode == SUBMODULE);
        let mut folders = folders.into_iter().peekable();
        let mut make_before = |writer: &mut LayerWriter, path: Option<&[u8]>| -> SnapshotResult<()> {
            while let Some((_, entry)) =
                folders.next_if(|(_, entry)| path.is_none_or(|path| entry.path < path))
            {
                writer.directory(entry.path)?;
                submodules.push(entry.path.to_vec());
            }
            Ok(())
        };
        objects.blobs(
            &blobs,
            |(_, entry)| (hexadecimal(entry.object), entry.path),
            |(number, entry), size, content| {
                make_before(&mut writer, Some(entry.path))?;
                sizes[*number] = size;
                match entry.mode {
                    LINK => writer.link(entry.path, size, content),
                    0o100644 => writer.file(entry.path, false, content),
                    0o100755 => writer.file(entry.path, true, content),
                    _ => Err(SnapshotError::Hostile {
                        path: entry.path.to_vec(),
                        reason: "has no mode of git's",
                    }),
                }
            },
        )?;
        make_before(&mut writer, None)?;
    }
    index.set_stat(&sizes, time);
    let git = layer.join(".git");
    skeleton(&git, objects.format)?;
    let facts = LayerFacts::new(index.len(), time);
    write_index(&folder, objects, index, time)?;
    make_file(&git.join("HEAD"), 0o644, format!("{commit}\n").as_bytes())?;
    site.finish(&folder, tree, &facts, &submodules)
}

/// A repository without objects and references.
fn skeleton(git: &Path, format: ObjectFormat) -> SnapshotResult<()> {
    for name in ["", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"] {
        make_folder(&git.join(name), 0o755)?;
    }
    make_file(&git.join("info/attributes"), 0o644, ATTRIBUTES)?;
    let (version, extension) = match format {
        ObjectFormat::Sha1 => (0, ""),
        ObjectFormat::Sha256 => (1, "[extensions]\n\tobjectformat = sha256\n"),
    };
    // Stat data must survive another user and another device.
    let config = format!("[core]\n\trepositoryformatversion = {version}\n\tcheckStat = minimal\n{extension}");
    make_file(&git.join("config"), 0o644, config.as_bytes())
}

/// Writes an index that is a second younger than the youngest of its files. A long one also says what git need not
/// look at, and the folder of the layer where that is so.
pub(super) fn write_index(
    folder: &Path,
    objects: &SnapshotObjects,
    index: GitIndex,
    youngest: u32,
) -> SnapshotResult<()> {
    let path = folder.join("layer/.git/index");
    let place =
        IndexContext::of(&objects.repository).filter(|_| index_extensions::is_large_enough(index.len()));
    let extensions = match &place {
        Some(place) => place.extensions(objects.format, index.entries()),
        None => Vec::new(),
    };
    if let Some(place) = &place {
        make_file(&folder.join(index_extensions::PLACE), 0o600, place.root.as_os_str().as_bytes())?;
    }
    make_file(&path, 0o644, &index.with_extensions(&extensions))?;
    let time = UNIX_EPOCH + Duration::from_secs(u64::from(youngest) + 1);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_modified(time))
        .map_err(at("can't set the time of", &path))
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
