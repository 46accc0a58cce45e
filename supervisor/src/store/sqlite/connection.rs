//! The one connection of a store, used by one caller at a time.
//!
//! It is used again only after its last use ended well. A caller that fails or is cancelled in the middle takes it
//! along: closing it undoes what was begun, and the next caller opens another. We do not rely on how sqlx
//! counts transactions: SQLite undoes one by itself when the disk is full, and the count would be wrong
//! from then on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, query_scalar, raw_sql};
use tokio::sync::{Mutex, MutexGuard};

use super::error::{BUSY, WithStorePath};
use super::schema;
use crate::store::AttemptStoreError;

/// Longer than any write of another program, and shorter than a lease.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct StoreConnection {
    path: PathBuf,
    slot: Mutex<IdleConnection>,
}

#[derive(Debug)]
struct IdleConnection {
    idle: Option<SqliteConnection>,
    /// How many there were.
    opened: u64,
}

/// How long we wait for a store in an older mode: a program that has it open keeps it from being changed.
const AT_ONCE: Duration = Duration::ZERO;

pub(super) async fn connect(path: &Path) -> sqlx::Result<SqliteConnection> {
    let mut connection = open(path, PATIENCE).await?;
    let mode: String = query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
    // What is another program's is left as it is.
    if mode == "wal" && schema::is_marked(&mut connection).await? {
        connection.close().await?;
        let left = leave_log(path).await?;
        connection = open(path, PATIENCE).await?;
        if left {
            keep_journal(&mut connection).await?;
        }
    }
    if mode != "wal" {
        keep_journal(&mut connection).await?;
    }
    Ok(connection)
}

/// Of this connection alone, unlike a log, which is a property of the file.
async fn keep_journal(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    raw_sql("PRAGMA journal_mode = PERSIST").execute(connection).await.map(drop)
}

/// Brings a store of an older version to a rollback journal: its log has an index in memory that programs share, and a
/// full disk kills a program that writes there (SIGBUS). `false` while another program has it open; the next one tries.
async fn leave_log(path: &Path) -> sqlx::Result<bool> {
    let mut alone = open(path, AT_ONCE).await?;
    let left: sqlx::Result<String> =
        query_scalar("PRAGMA journal_mode = PERSIST").fetch_one(&mut alone).await;
    alone.close().await?;
    match left {
        Ok(mode) => Ok(mode != "wal"),
        Err(error) => match super::error::code(&error) {
            Some(BUSY) => Ok(false),
            _ => Err(error),
        },
    }
}

async fn open(path: &Path, patience: Duration) -> sqlx::Result<SqliteConnection> {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(patience)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        // 256 KiB: what is worked on is small, and an idle supervisor should be, too.
        .pragma("cache_size", "-256")
        .pragma("temp_store", "MEMORY")
        // The file lies where others may write, and is not believed.
        .pragma("cell_size_check", "ON")
        .pragma("trusted_schema", "OFF")
        .statement_cache_capacity(32)
        .thread_name(|_| "agency-store".to_owned())
        .disable_statement_logging()
        .connect()
        .await
}

impl StoreConnection {
    pub(super) fn new(path: PathBuf, connection: SqliteConnection) -> Self {
        Self { path, slot: Mutex::new(IdleConnection { idle: Some(connection), opened: 1 }) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A turn for one statement that reads.
    pub(super) async fn reading(&self) -> Result<ConnectionGuard<'_>, AttemptStoreError> {
        let mut slot = self.slot.lock().await;
        let connection = match slot.idle.take() {
            Some(connection) => connection,
            None => {
                slot.opened += 1;
                let mut connection = connect(&self.path).await.at(&self.path)?;
                // The last one did not end well. What the disk made of that is asked before anything is believed.
                check(&mut connection, &self.path).await?;
                connection
            }
        };
        Ok(ConnectionGuard { connection, slot, path: &self.path })
    }

    /// A turn that writes: no other caller writes until it is over.
    pub(super) async fn writing(&self) -> Result<ConnectionGuard<'_>, AttemptStoreError> {
        let mut turn = self.reading().await?;
        // A transaction that begins as a reader and then writes fails when another wrote in between; one that
        // begins as a writer waits.
        turn.execute("BEGIN IMMEDIATE").await?;
        schema::still_known(&mut turn.connection, &self.path).await?;
        Ok(turn)
    }

    pub(super) async fn close(self) -> Result<(), AttemptStoreError> {
        match self.slot.into_inner().idle {
            Some(connection) => connection.close().await.at(&self.path),
            None => Ok(()),
        }
    }
}

/// Whether a store is whole, as far as its pages and tables tell.
pub(super) async fn check(connection: &mut SqliteConnection, path: &Path) -> Result<(), AttemptStoreError> {
    let found: String = query_scalar("PRAGMA quick_check(1)").fetch_one(connection).await.at(path)?;
    match found.as_str() {
        "ok" => Ok(()),
        damage => {
            let what = damage.lines().find(|line| !line.starts_with("***")).unwrap_or(damage).to_owned();
            Err(AttemptStoreError::Damaged { path: path.display().to_string(), what })
        }
    }
}

/// The use of the connection. One that is dropped closes it.
#[derive(Debug)]
pub(super) struct ConnectionGuard<'a> {
    connection: SqliteConnection,
    slot: MutexGuard<'a, IdleConnection>,
    path: &'a Path,
}

impl ConnectionGuard<'_> {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    async fn execute(&mut self, statement: &'static str) -> Result<(), AttemptStoreError> {
        raw_sql(statement).execute(&mut self.connection).await.at(self.path).map(drop)
    }

    /// Ends a turn that read.
    pub(super) fn end(self) {
        let Self { connection, mut slot, .. } = self;
        slot.idle = Some(connection);
    }

    /// Ends a turn that wrote: from here on it is durable.
    pub(super) async fn commit(mut self) -> Result<(), AttemptStoreError> {
        self.execute("COMMIT").await?;
        self.end();
        Ok(())
    }

    /// Ends a turn that was to write and does not.
    pub(super) async fn undo(mut self) -> Result<(), AttemptStoreError> {
        self.execute("ROLLBACK").await?;
        self.end();
        Ok(())
    }

    /// Another number after every change that did not come over this connection. SQLite's own number is
    /// only comparable with others of one connection.
    pub(super) async fn version(&mut self) -> Result<u64, AttemptStoreError> {
        let version: i64 =
            query_scalar("PRAGMA data_version").fetch_one(&mut self.connection).await.at(self.path)?;
        Ok((self.slot.opened << 32) | (version.unsigned_abs() & u64::from(u32::MAX)))
    }
}
