//! Our own references, all of those below `refs/agency`, read as files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use agency_sandbox::untrusted;

use super::error::{Error, untrusted};
use super::file_access::read_text;
use super::names::{OURS, Oid, RefName};

/// Checks that there are only regular files and folders where our references are: git would wait for ever for a pipe, and
/// write through a link.
pub(super) fn check(common: &Path) -> Result<(), Error> {
    const DEEPEST: usize = 32;
    /// The name of an object, or of another reference.
    const LARGEST: u64 = 4096;
    let ours = Path::new("refs/agency");
    let checked = untrusted::check_folder(common, ours, DEEPEST, LARGEST);
    checked.map_err(untrusted(common))
}

/// Reads all references of ours without git, and passes over those that it can't read: a caller need not wait until a
/// person has repaired them.
pub(super) fn read(common: &Path) -> Result<BTreeMap<RefName, Oid>, Error> {
    const DEEPEST: usize = 8;
    let parsed =
        |name: &str, text: &str| Some((RefName::parse(name).ok()?, Oid::parse(text.trim_end()).ok()?));
    let packed = read_text(&common.join("packed-refs"))?.unwrap_or_default();
    let packed = packed.lines().filter_map(|line| line.split_once(' '));
    let packed = packed.filter(|(_, name)| name.starts_with(OURS));
    let mut found: BTreeMap<RefName, Oid> = packed.filter_map(|(at, name)| parsed(name, at)).collect();
    let mut folders = vec![(OURS.trim_end_matches('/').to_owned(), DEEPEST)];
    while let Some((folder, depth)) = folders.pop() {
        if depth == 0 || untrusted::check_real(common, Path::new(&folder)).is_err() {
            continue;
        }
        for entry in fs::read_dir(common.join(&folder)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = format!("{folder}/{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((name, depth - 1)),
                Ok(kind) if kind.is_file() => {
                    let text = read_text(&entry.path()).ok().flatten().unwrap_or_default();
                    found.extend(parsed(&name, &text));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}
