//! Attempts in one SQLite file, for all supervisors of one machine.
//!
//! Readers see the last commit, and wait only for a commit that is being made; one writes at a time, and the
//! others wait for it. A write that returned is on the disk (`synchronous=FULL`): a lease that a power cut took back
//! would be given out twice. Nothing of it is mapped into memory: on a disk without room, that kills. See
//! `docs/decisions/018-store.md` and `040-rollback-journal.md`.
//!
//! `store_file` is the file, `schema` what is in it, `connection` the connection; `rows` reads and `writes` writes.

mod connection;
mod error;
mod rows;
mod schema;
mod store_file;
mod writes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, query, query_scalar};

use self::connection::{ConnectionGuard, StoreConnection};
use self::error::WithStorePath;
use self::store_file::{NewStoreFile, StoreFileError};
use self::writes::signed;
use super::{
    AttemptStore, AttemptStoreError, ClaimRequest, ClaimResult, QueueMode, StoreEvent, SupervisorProcess,
};
use crate::attempt::{Attempt, AttemptEnd, Epoch, HumanDecision, Lease, Phase, TaskKey, Term, UsageTotals};
use crate::clock::{self, BootClock, BootInstant, Clock};

/// A store in a file.
#[derive(Debug)]
pub struct SqliteStore {
    line: StoreConnection,
    clock: Arc<dyn Clock>,
    /// Seconds since 1970.
    wall: fn() -> i64,
}

impl SqliteStore {
    /// Opens the store in this file, and makes it if there is none. The folder has to be there.
    pub async fn open(
        path: &Path,
        clock: Arc<dyn Clock>,
        wall: fn() -> i64,
    ) -> Result<Self, AttemptStoreError> {
        // SQLite takes a name that begins with `file:` for an address.
        let absolute = std::path::absolute(path).map_err(|source| StoreFileError::Files {
            doing: "find",
            path: path.to_owned(),
            source,
        });
        let path = absolute.at(path)?;
        if !store_file::look(&path).at(&path)? {
            make(&path).await?;
        }
        let mut connection = connection::connect(&path).await.at(&path)?;
        schema::bring_up(&mut connection, &path).await?;
        Ok(Self { line: StoreConnection::new(path, connection), clock, wall })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        self.line.path()
    }

    /// Whether it is whole. Reads every page: some milliseconds for thousands of attempts.
    pub async fn check(&self) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.reading().await?;
        connection::check(turn.connection(), self.path()).await?;
        turn.end();
        Ok(())
    }

    /// The next supervisor gets a term after this one, even if the store knows of none so high.
    pub async fn count_terms_from(&self, last: Term) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let counted = query("UPDATE charge SET last_term = $1 WHERE last_term < $1")
            .bind(signed(last.0))
            .execute(turn.connection())
            .await;
        counted.at(self.path())?;
        turn.commit().await
    }

    /// Waits until the file is let go. A store that is dropped lets it go a moment later.
    pub async fn close(self) -> Result<(), AttemptStoreError> {
        self.line.close().await
    }

    fn at(&self) -> i64 {
        (self.wall)()
    }

    fn until(&self, ttl: Duration) -> BootInstant {
        self.clock.now() + ttl
    }

    /// A number that is kept for a task; zero where nothing is.
    async fn number(&self, statement: &'static str, task: &TaskKey) -> Result<i64, AttemptStoreError> {
        let mut turn = self.line.reading().await?;
        let number: Option<i64> = query_scalar(statement)
            .bind(&task.protocol)
            .bind(&task.id)
            .fetch_optional(turn.connection())
            .await
            .at(self.path())?;
        turn.end();
        Ok(number.unwrap_or(0))
    }

    async fn all<T>(
        &self,
        statement: &'static str,
        task: Option<&TaskKey>,
        read: impl Fn(&SqliteRow) -> Result<T, AttemptStoreError>,
    ) -> Result<Vec<T>, AttemptStoreError> {
        let mut query = query(statement);
        if let Some(task) = task {
            query = query.bind(&task.protocol).bind(&task.id);
        }
        let mut turn = self.line.reading().await?;
        let found = query.fetch_all(turn.connection()).await.at(self.path())?;
        turn.end();
        found.iter().map(read).collect()
    }

    /// A turn for a term that may take attempts on.
    async fn in_charge(&self, term: Term) -> Result<ConnectionGuard<'_>, AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        if writes::is_in_charge(turn.connection(), term).await.at(self.path())? {
            return Ok(turn);
        }
        turn.undo().await?;
        Err(AttemptStoreError::NotInCharge(term))
    }
}

async fn make(path: &Path) -> Result<(), AttemptStoreError> {
    let draft = NewStoreFile::beside(path).at(path)?;
    let mut connection = connection::connect(draft.path()).await.at(path)?;
    schema::make(&mut connection, path).await?;
    connection.close().await.at(path)?;
    draft.put(path).at(path)
}

impl AttemptStore for SqliteStore {
    async fn now(&self) -> Result<BootInstant, AttemptStoreError> {
        Ok(self.clock.now())
    }

    async fn enter(&self, owner: &SupervisorProcess) -> Result<Term, AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let term = writes::enter(turn.connection(), owner).await.at(self.path())?;
        turn.commit().await?;
        rows::counted(term, "term").map(Term)
    }

    async fn leave(&self, term: Term) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        writes::leave(turn.connection(), term, self.at()).await.at(self.path())?;
        turn.commit().await
    }

    async fn owners(&self) -> Result<Vec<(Term, SupervisorProcess)>, AttemptStoreError> {
        self.all(rows::OWNERS, None, rows::owner).await
    }

    async fn claim(
        &self,
        claim: &ClaimRequest<'_>,
        term: Term,
        ttl: Duration,
    ) -> Result<ClaimResult, AttemptStoreError> {
        let mut turn = self.in_charge(term).await?;
        let epoch = writes::claim(turn.connection(), claim, term, self.until(ttl), self.at()).await;
        let Some(epoch) = epoch.at(self.path())? else {
            turn.undo().await?;
            return Ok(ClaimResult::Taken);
        };
        turn.commit().await?;
        Ok(ClaimResult::Held(Lease { task: claim.task.clone(), epoch, term }))
    }

    async fn renew(&self, term: Term, ttl: Duration) -> Result<Vec<Lease>, AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let kept = writes::renew(turn.connection(), term, self.until(ttl)).await.at(self.path())?;
        turn.commit().await?;
        let mut kept = kept.iter().map(|row| rows::lease(row, term)).collect::<Result<Vec<_>, _>>()?;
        kept.sort_by(|one, other| one.task.cmp(&other.task));
        Ok(kept)
    }

    async fn adopt(
        &self,
        seen: &Lease,
        term: Term,
        ttl: Duration,
    ) -> Result<Option<Lease>, AttemptStoreError> {
        let mut turn = self.in_charge(term).await?;
        let adopted = writes::adopt(turn.connection(), seen, term, self.until(ttl), self.at()).await;
        if !adopted.at(self.path())? {
            turn.undo().await?;
            return Ok(None);
        }
        turn.commit().await?;
        Ok(Some(Lease { term, ..seen.clone() }))
    }

    async fn advance(&self, lease: &Lease, phase: &Phase) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        if writes::advance(turn.connection(), lease, phase, self.at()).await.at(self.path())? {
            return turn.commit().await;
        }
        turn.undo().await?;
        Err(AttemptStoreError::Fenced(lease.clone()))
    }

    async fn end(
        &self,
        lease: &Lease,
        ending: &AttemptEnd,
        spent: UsageTotals,
    ) -> Result<(), AttemptStoreError> {
        let over = Phase::Over(ending.clone());
        let mut turn = self.line.writing().await?;
        if writes::advance(turn.connection(), lease, &over, self.at()).await.at(self.path())? {
            writes::spend(turn.connection(), lease, spent).await.at(self.path())?;
            return turn.commit().await;
        }
        turn.undo().await?;
        Err(AttemptStoreError::Fenced(lease.clone()))
    }

    async fn note(&self, lease: &Lease, text: &str) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        if writes::tell(turn.connection(), lease, self.at(), "note", text).await.at(self.path())? {
            return turn.commit().await;
        }
        turn.undo().await?;
        Err(AttemptStoreError::Fenced(lease.clone()))
    }

    async fn holds(&self, lease: &Lease) -> Result<bool, AttemptStoreError> {
        let mut turn = self.line.reading().await?;
        let term: Option<i64> = query_scalar(rows::HOLDER)
            .bind(&lease.task.protocol)
            .bind(&lease.task.id)
            .bind(signed(lease.epoch.0))
            .fetch_optional(turn.connection())
            .await
            .at(self.path())?;
        turn.end();
        Ok(term == Some(signed(lease.term.0)))
    }

    async fn open(&self) -> Result<Vec<Attempt>, AttemptStoreError> {
        self.all(rows::OPEN, None, rows::attempt).await
    }

    async fn attempts(&self, task: &TaskKey) -> Result<Vec<Attempt>, AttemptStoreError> {
        self.all(rows::OF_A_TASK, Some(task), rows::attempt).await
    }

    async fn latest(&self) -> Result<Vec<Attempt>, AttemptStoreError> {
        self.all(rows::LATEST, None, rows::attempt).await
    }

    async fn events(&self, after: u64, most: usize) -> Result<Vec<StoreEvent>, AttemptStoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut turn = self.line.reading().await?;
        let found = query(rows::EVENTS).bind(signed(after)).bind(most).fetch_all(turn.connection()).await;
        let found = found.at(self.path())?;
        turn.end();
        found.iter().map(rows::happening).collect()
    }

    async fn ask_to_cancel(&self, task: &TaskKey) -> Result<bool, AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let asked = writes::ask_to_cancel(turn.connection(), task, self.at()).await.at(self.path())?;
        turn.commit().await?;
        Ok(asked.is_some())
    }

    async fn answer(
        &self,
        task: &TaskKey,
        epoch: Epoch,
        answer: &HumanDecision,
    ) -> Result<bool, AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let heard = writes::answer(turn.connection(), task, epoch, answer, self.at()).await.at(self.path())?;
        turn.commit().await?;
        Ok(heard)
    }

    async fn spent(&self, task: &TaskKey) -> Result<UsageTotals, AttemptStoreError> {
        Ok(self.all(rows::SPENT, Some(task), rows::spent).await?.into_iter().sum())
    }

    async fn forgive(&self, task: &TaskKey) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        writes::forgive(turn.connection(), task).await.at(self.path())?;
        turn.commit().await
    }

    async fn forgiven(&self, task: &TaskKey) -> Result<Epoch, AttemptStoreError> {
        Ok(Epoch(self.number(rows::FORGIVEN, task).await?.unsigned_abs()))
    }

    async fn failures(&self, task: &TaskKey) -> Result<u32, AttemptStoreError> {
        rows::counted(self.number(rows::FAILURES, task).await?, "the number of failures")
    }

    async fn mode(&self) -> Result<QueueMode, AttemptStoreError> {
        let mut turn = self.line.reading().await?;
        let mode: String = query_scalar(rows::MODE).fetch_one(turn.connection()).await.at(self.path())?;
        turn.end();
        rows::named(mode, "mode")
    }

    async fn set_mode(&self, mode: QueueMode) -> Result<(), AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let set = query("UPDATE charge SET mode = $1").bind(mode.name()).execute(turn.connection()).await;
        set.at(self.path())?;
        turn.commit().await
    }

    async fn version(&self) -> Result<u64, AttemptStoreError> {
        let mut turn = self.line.reading().await?;
        let version = turn.version().await?;
        turn.end();
        Ok(version)
    }

    async fn prune(&self, before: i64) -> Result<u64, AttemptStoreError> {
        let mut turn = self.line.writing().await?;
        let gone = writes::prune(turn.connection(), before).await.at(self.path())?;
        turn.commit().await?;
        Ok(gone)
    }
}

/// Where the store of a repository is.
pub fn store_path(state: &Path) -> PathBuf {
    state.join("store.sqlite")
}

/// Opens the store of a repository.
pub async fn open_store(state: &Path) -> Result<SqliteStore, AttemptStoreError> {
    SqliteStore::open(&store_path(state), Arc::new(BootClock), clock::wall_seconds).await
}
