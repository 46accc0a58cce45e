//! A store made anew, from what git and the records of attempts say.
//!
//! What a damaged store said is not believed. What is certain without it: which attempts there were (leases, candidates
//! and landings in git, and the folders of records), and which of them landed. So every task gets its last attempt back,
//! as landed or as lost; an attempt that had landed and was not told to the board yet is left open, for the next run to
//! tell. Epochs and terms go on above everything that is found. What only the store knew is gone: how often a task failed,
//! what it used, and what happened when.
//!
//! The new store is made beside its place and exchanged with the old one, which is kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use crate::attempt::{AttemptEnd, Epoch, Lease, Phase, TaskKey, Term, UsageTotals};
use crate::clock::{self, BootClock};
use crate::host_fault::HostFault;
use crate::job::JobFolder;
use crate::job::order::JobKind;
use crate::owner_lock;
use crate::store::sqlite::{SqliteStore, open_store, store_path};
use crate::store::{AttemptStore, AttemptStoreError, ClaimRequest, ClaimResult, SupervisorProcess};
use agency_landing::repository::LandingRepository;
use agency_landing::{self, settled_refs};

/// What is beside a store while it is used, or was left beside it.
const SIDES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Why a lost attempt is over.
const LOST: &str = "the store was rebuilt while it was open";

/// The result of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebuildSummary {
    /// Where the damaged store lies now.
    pub kept: Option<PathBuf>,
    /// How many tasks have an attempt.
    pub tasks: usize,
    /// How many of them landed.
    pub landed: usize,
    /// How many had an attempt that was not over, and is now.
    pub lost: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error("a run is still at work with the store in {}", state.display())]
    InUse { state: PathBuf },
    #[error("an agent of {task} is still at work")]
    AtWork { task: String },
    #[error("can't {doing} {}", path.display())]
    Files { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Landing(#[from] agency_landing::Error),
    #[error(transparent)]
    Store(#[from] AttemptStoreError),
}

/// What is known of a task without the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RecoveredTask {
    /// The last attempt there was.
    epoch: u64,
    /// The attempt that landed last, and its commit.
    landed: Option<(u64, String)>,
    /// The lease in git was not given back.
    held: Option<u64>,
    agent: String,
    title: String,
}

impl RecoveredTask {
    fn saw(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
    }

    /// How its last attempt stands.
    fn phase(&self) -> Phase {
        match &self.landed {
            Some((epoch, commit)) if *epoch == self.epoch => match self.held == Some(*epoch) {
                // The board may not know yet.
                true => Phase::Landed { commit: commit.clone() },
                false => Phase::Over(AttemptEnd::Done { commit: commit.clone() }),
            },
            _ => Phase::Over(AttemptEnd::Lost { reason: LOST.to_owned() }),
        }
    }
}

/// Whether the store can be used as it is.
async fn is_whole(state: &Path) -> Result<bool, AttemptStoreError> {
    if !store_path(state).exists() {
        return Ok(false);
    }
    let looked = async {
        let store = open_store(state).await?;
        store.check().await?;
        store.open().await?;
        store.latest().await?;
        store.close().await
    };
    match looked.await {
        Ok(()) => Ok(true),
        // Neither is damage, nor is a machine that lacks something.
        Err(error @ (AttemptStoreError::Newer { .. } | AttemptStoreError::Busy { .. })) => Err(error),
        Err(error) if HostFault::of(&error, state).is_some_and(HostFault::is_transient) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Makes the store of a state folder anew, if it is damaged or gone; `None` if it is whole.
pub async fn rebuild(
    repository: &LandingRepository,
    state: &Path,
) -> Result<Option<RebuildSummary>, RebuildError> {
    if owner_lock::is_any_supervisor_alive(state) {
        return Err(RebuildError::InUse { state: state.to_owned() });
    }
    if is_whole(state).await? {
        return Ok(None);
    }
    let (known, last_term) = look(repository, state)?;
    let place = store_path(state);
    let draft = beside(&place, ".rebuilt");
    remove(&draft)?;
    fill(&draft, &known, last_term).await?;
    for side in SIDES {
        remove_file(&beside(&draft, side))?;
    }
    let kept = put(&draft, &place)?;
    let landed =
        known.values().filter(|one| one.landed.as_ref().is_some_and(|(epoch, _)| *epoch == one.epoch));
    let landed = landed.count();
    let lost = known.values().filter(|one| one.held == Some(one.epoch)).count();
    let told = known.values().filter(|one| matches!(one.phase(), Phase::Landed { .. })).count();
    Ok(Some(RebuildSummary { kept, tasks: known.len(), landed, lost: lost - told }))
}

/// What git and the records say, and the last term they know of.
fn look(
    repository: &LandingRepository,
    state: &Path,
) -> Result<(BTreeMap<TaskKey, RecoveredTask>, Term), RebuildError> {
    let mut all: BTreeMap<TaskKey, RecoveredTask> = BTreeMap::new();
    let mut last_term = 0;
    for named in settled_refs::task_refs(repository)? {
        let key = TaskKey { protocol: named.task.protocol().to_owned(), id: named.task.id().to_owned() };
        let one = all.entry(key).or_default();
        named.candidates.keys().for_each(|epoch| one.saw(*epoch));
        let Some(known) = settled_refs::read_facts(repository, &named)? else { continue };
        if let Some(last) = known.lease {
            one.saw(last.lease.epoch);
            one.held = (!last.released).then_some(last.lease.epoch);
            last_term = last_term.max(last.lease.term);
        }
        if let Some(landed) = known.landed {
            one.saw(landed.epoch);
            last_term = last_term.max(landed.term);
            one.landed = Some((landed.epoch, landed.commit.to_string()));
        }
    }
    for entry in entries(&state.join("runs"))? {
        let Some((key, epoch, order)) = attempt_of(&entry) else { continue };
        for job in entries(&entry)? {
            if JobFolder::new(job).is_alive().unwrap_or(false) {
                return Err(RebuildError::AtWork { task: key.id });
            }
        }
        let one = all.entry(key).or_default();
        one.saw(epoch);
        if let Some((agent, title)) = order
            && one.epoch == epoch
        {
            (one.agent, one.title) = (agent, title);
        }
    }
    for entry in entries(&state.join("owners"))? {
        let term = entry.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0);
        last_term = last_term.max(term);
    }
    all.retain(|_, one| one.epoch > 0);
    Ok((all, Term(last_term)))
}

/// The attempt a folder of records belongs to, and what its agent was asked: by its order, and else by its name.
#[expect(clippy::type_complexity, reason = "read once, right above")]
fn attempt_of(folder: &Path) -> Option<(TaskKey, u64, Option<(String, String)>)> {
    if let Ok(order) = JobFolder::new(folder.join("agent")).read_order() {
        let asked = match order.what {
            JobKind::Agent(asked) => Some((asked.agent, asked.subject)),
            _ => None,
        };
        return (order.epoch.0 <= agency_landing::HIGHEST_COUNT).then_some((
            order.task,
            order.epoch.0,
            asked,
        ));
    }
    let name = folder.file_name()?.to_str()?;
    let (protocol, rest) = name.split_once('.')?;
    let (id, epoch) = rest.rsplit_once('.')?;
    let key = TaskKey { protocol: protocol.to_owned(), id: id.to_owned() };
    Some((key, epoch.parse().ok().filter(|epoch| *epoch <= agency_landing::HIGHEST_COUNT)?, None))
}

/// A new store that knows this.
async fn fill(
    path: &Path,
    known: &BTreeMap<TaskKey, RecoveredTask>,
    last: Term,
) -> Result<(), AttemptStoreError> {
    let store = SqliteStore::open(path, std::sync::Arc::new(BootClock), clock::wall_seconds).await?;
    store.count_terms_from(last).await?;
    // Of no boot: the next supervisor takes over at once what is left open.
    let nobody = SupervisorProcess { host: String::new(), boot: String::new(), pid: 0 };
    let term = store.enter(&nobody).await?;
    for (task, one) in known {
        let beyond = Epoch(one.epoch - 1);
        let claim = ClaimRequest { task, title: &one.title, agent: &one.agent, after: None, beyond };
        let ClaimResult::Held(Lease { epoch, .. }) =
            store.claim(&claim, term, std::time::Duration::ZERO).await?
        else {
            continue;
        };
        let lease = Lease { task: task.clone(), epoch, term };
        match one.phase() {
            Phase::Over(ending) => store.end(&lease, &ending, UsageTotals::default()).await?,
            phase => store.advance(&lease, &phase).await?,
        }
    }
    store.leave(term).await?;
    store.check().await?;
    store.close().await
}

/// Puts a store in the place of a damaged one, and says where that is kept. What lay beside it goes first: SQLite would
/// take an old journal for one of the new store.
fn put(draft: &Path, place: &Path) -> Result<Option<PathBuf>, RebuildError> {
    let kept = free(place);
    for side in SIDES {
        let (from, to) = (beside(place, side), beside(&kept, side));
        match fs::rename(&from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(files("move", &from)(error)),
            _ => {}
        }
    }
    let there = place.symlink_metadata().is_ok();
    let flags = if there { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    renameat_with(CWD, draft, CWD, place, flags)
        .map_err(|error| files("put in place", place)(error.into()))?;
    if there {
        renameat_with(CWD, draft, CWD, &kept, RenameFlags::NOREPLACE)
            .map_err(|error| files("move", draft)(error.into()))?;
    }
    agency_sandbox::durable::sync_folder(place).map_err(files("sync the folder of", place))?;
    Ok(there.then_some(kept))
}

/// A name for a damaged store that no other has: none of them is ever removed by us.
fn free(place: &Path) -> PathBuf {
    let now = clock::wall_seconds();
    let mut name = beside(place, &format!(".damaged-{now}"));
    let mut number = 1;
    while [""].iter().chain(&SIDES).any(|side| beside(&name, side).symlink_metadata().is_ok()) {
        number += 1;
        name = beside(place, &format!(".damaged-{now}.{number}"));
    }
    name
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, RebuildError> {
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(files("list", folder))?,
    };
    listed.map(|entry| Ok(entry.map_err(files("list", folder))?.path())).collect()
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn remove(draft: &Path) -> Result<(), RebuildError> {
    remove_file(draft)?;
    SIDES.iter().try_for_each(|side| remove_file(&beside(draft, side)))
}

fn remove_file(path: &Path) -> Result<(), RebuildError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files("remove", path)(error)),
        _ => Ok(()),
    }
}

fn files(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> RebuildError {
    move |source| RebuildError::Files { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(epoch: u64, landed: Option<u64>, held: Option<u64>) -> RecoveredTask {
        let landed = landed.map(|epoch| (epoch, "c".to_owned()));
        RecoveredTask { epoch, landed, held, ..RecoveredTask::default() }
    }

    #[test]
    fn what_landed_stays_landed_and_what_was_open_is_lost() {
        let name = |one: RecoveredTask| match one.phase() {
            Phase::Over(ending) => ending.name(),
            phase => phase.name(),
        };
        assert_eq!(name(known(2, Some(2), None)), name(known(1, Some(1), None)));
        assert_eq!(name(known(2, Some(2), Some(2))), "landed", "the board is told by the next run");
        assert_eq!(
            name(known(3, Some(2), Some(3))),
            name(known(1, None, Some(1))),
            "a later attempt is lost"
        );
    }

    #[test]
    fn a_damaged_store_never_takes_the_place_of_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("store");
        for _ in 0..3 {
            let name = free(&place);
            assert!(!name.exists());
            fs::write(name, "x").expect("written");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 3);
    }

    #[test]
    fn a_folder_of_records_names_its_attempt() {
        let of =
            |name: &str| attempt_of(Path::new(name)).map(|(key, epoch, _)| (key.protocol, key.id, epoch));
        assert_eq!(of("/runs/codifica.A.1-x.12"), Some(("codifica".into(), "A.1-x".into(), 12)));
        assert_eq!(of("/runs/kodingx"), None);
        assert_eq!(of("/runs/kodingx.T0001.x"), None);
    }
}
