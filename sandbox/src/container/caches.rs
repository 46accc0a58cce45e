//! What package managers keep, so that a check need not fetch it every time.
//!
//! A cache is a named volume of the engine's whose files lie in our own state folder. No two containers have the same
//! one at the same time: a container that comes while it is taken gets another of its kind. What one check leaves there
//! the next one finds, so a cache is only for a check that asks for it, and nothing of it is ever part of a workspace.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::OURS;

/// A package manager, and the variable by which it is told where its files are.
const KNOWN: &[(&str, &str)] = &[
    ("cargo", "CARGO_HOME"),
    ("go", "GOMODCACHE"),
    ("npm", "npm_config_cache"),
    ("pip", "PIP_CACHE_DIR"),
    ("pnpm", "npm_config_store_dir"),
    ("uv", "UV_CACHE_DIR"),
];

/// A cache that a container is given, for as long as this is there.
#[derive(Debug)]
pub(crate) struct CacheVolume {
    /// The volume's name.
    pub(crate) volume: String,
    /// Where its files are.
    pub(crate) folder: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) variable: &'static str,
    _taken: File,
}

/// Whether there is such a cache, or what there is instead.
pub fn check(name: &str) -> Result<(), String> {
    match KNOWN.iter().any(|(known, _)| *known == name) {
        true => Ok(()),
        false => {
            let known: Vec<&str> = KNOWN.iter().map(|(known, _)| *known).collect();
            Err(format!("there is no cache `{name}`; there are {}", known.join(", ")))
        }
    }
}

/// Takes the first free cache of this name, in a repository whose state is kept here, and makes it the
/// user's.
pub(crate) fn take(name: &str, state: &Path, user: (u32, u32)) -> io::Result<Option<CacheVolume>> {
    let Some((name, variable)) = KNOWN.iter().find(|(known, _)| *known == name) else { return Ok(None) };
    let all = state.join("caches").join(name);
    let make = |folder: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    make(&all)?;
    for number in 0.. {
        let lock = all.join(format!("{number}.lock"));
        let taken = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock)?;
        if flock(&taken, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let folder = all.join(number.to_string());
        make(&folder)?;
        if folder.metadata()?.uid() != user.0 {
            give(&folder, user)?;
        }
        // A folder's path is no name of a volume; a number made of it is part of one.
        let place = state.as_os_str().as_encoded_bytes().iter();
        let place = place.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        return Ok(Some(CacheVolume {
            volume: format!("agency-{place:016x}-{name}-{number}"),
            folder,
            target: Path::new(OURS).join("caches").join(name),
            variable,
            _taken: taken,
        }));
    }
    Ok(None)
}

/// Gives a folder and everything in it to a user; links are given, not followed.
fn give(path: &Path, user: (u32, u32)) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user)?;
        }
    }
    lchown(path, Some(user.0), Some(user.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_one_containers_at_a_time_and_the_next_ones_then() {
        let state = tempfile::tempdir().expect("a folder");
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let take = || take("cargo", state.path(), user).expect("taken").expect("known");
        let (first, second) = (take(), take());
        assert_eq!((first.target.to_str(), first.variable), (Some("/.agency/caches/cargo"), "CARGO_HOME"));
        assert_ne!((&first.folder, &first.volume), (&second.folder, &second.volume));
        let folder = first.folder.clone();
        fs::write(folder.join("kept"), "x").expect("written");
        drop(first);
        let third = take();
        assert_eq!(third.folder, folder);
        assert!(third.folder.join("kept").exists());
    }

    #[test]
    fn what_is_no_cache_is_told_with_what_is() {
        let state = tempfile::tempdir().expect("a folder");
        assert!(take("../x", state.path(), (0, 0)).expect("looked").is_none());
        assert!(check("pip").is_ok());
        assert!(check("apt").expect_err("unknown").contains("there are cargo, go, npm, pip"));
    }
}
