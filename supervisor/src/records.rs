//! The folders of attempts that are over, and for how long they are kept.
//!
//! The folder of an attempt holds its orders, its output, its patch and what was seen of it. The oldest go first:
//! by age, and where all of them together are too large.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::attempt::Attempt;
use crate::store::AttemptStore;

/// How long they are kept.
pub(crate) const AGE: Duration = Duration::from_secs(30 * 86_400);
/// The folder of checks on the base, in the state folder.
pub(crate) const BASE_CHECKS: &str = "base-checks";
/// How much all of them may hold.
const SIZE: u64 = 2 << 30;

/// One folder of records.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordFolder {
    path: PathBuf,
    age: Duration,
    size: u64,
}

/// The folder of an attempt's records.
pub fn folder_of(state: &Path, attempt: &Attempt) -> PathBuf {
    let name = format!("{}.{}.{}", attempt.task.protocol, attempt.task.id, attempt.epoch);
    // Ids come from files; what could lead elsewhere is taken out.
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    state.join("runs").join(name.chars().map(safe).collect::<String>())
}

/// Removes what is too old or too much. Attempts that are open keep theirs.
pub(crate) async fn prune(state: &Path, store: &impl AttemptStore) -> io::Result<()> {
    let open = store.open().await.map_err(io::Error::other)?;
    let held: Vec<PathBuf> = open.iter().map(|attempt| folder_of(state, attempt)).collect();
    for path in superfluous(kept(&state.join("runs"))?.into_iter().filter(|one| !held.contains(&one.path))) {
        agency_sandbox::erase::tree(&path)?;
    }
    // Nothing depends on the result of a base check: the next run makes it again.
    for path in superfluous(kept(&state.join(BASE_CHECKS))?.into_iter()) {
        agency_sandbox::erase::tree(&path)?;
    }
    Ok(())
}

fn kept(runs: &Path) -> io::Result<Vec<RecordFolder>> {
    let entries = match fs::read_dir(runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let now = SystemTime::now();
    let mut kept = Vec::new();
    for entry in entries {
        let entry = entry?;
        let found = match entry.metadata() {
            // Another run removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        let age = now.duration_since(found.modified()?).unwrap_or_default();
        kept.push(RecordFolder { size: size(&entry.path()), path: entry.path(), age });
    }
    Ok(kept)
}

fn size(folder: &Path) -> u64 {
    let one = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    fs::read_dir(folder).into_iter().flatten().flatten().map(one).sum()
}

/// The oldest, until what is left is young and small enough.
fn superfluous(kept: impl Iterator<Item = RecordFolder>) -> Vec<PathBuf> {
    let mut kept: Vec<RecordFolder> = kept.collect();
    kept.sort_by_key(|one| one.age);
    let mut total = 0;
    let stays = |one: &RecordFolder| {
        total += one.size;
        one.age <= AGE && total <= SIZE
    };
    let young = kept.iter().map(stays).take_while(|stays| *stays).count();
    kept.into_iter().skip(young).map(|one| one.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_by_age_and_by_size() {
        let one = |name: &str, days: u64, size: u64| RecordFolder {
            path: name.into(),
            age: Duration::from_secs(days * 86_400),
            size,
        };
        let gone = superfluous([one("old", 31, 1), one("young", 1, 1), one("middle", 20, 1)].into_iter());
        assert_eq!(gone, [PathBuf::from("old")]);
        let gone =
            superfluous([one("a", 3, 1 << 30), one("b", 2, 1 << 30), one("c", 1, 1 << 30)].into_iter());
        assert_eq!(gone, [PathBuf::from("a")]);
    }
}
