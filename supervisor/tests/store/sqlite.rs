//! A store in a file of a folder that goes with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agency_supervisor::clock::{BootInstant, ManualClock};
use agency_supervisor::store::sqlite::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, query_scalar, raw_sql};
use tempfile::TempDir;

use crate::place::{Picture, Place, pass_wall, wall};

#[derive(Debug)]
pub(crate) struct InAFile {
    folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
}

impl InAFile {
    fn under(parent: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("agency-store-").tempdir_in(parent).expect("a folder");
        Self { folder, clock: Arc::new(ManualClock::at(BootInstant(1_000_000))) }
    }

    /// Where writing costs nothing, for what is not about the disk.
    pub(crate) fn without_a_disk() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::under(memory) } else { Self::new() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder().join("store")
    }

    pub(crate) async fn try_open(&self) -> Result<SqliteStore, agency_supervisor::store::AttemptStoreError> {
        SqliteStore::open(&self.path(), self.clock.clone(), wall).await
    }
}

impl Place for InAFile {
    type Store = SqliteStore;

    fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    async fn open(&self) -> SqliteStore {
        self.try_open().await.expect("a store")
    }

    /// Every row, and every byte of the file and its journal.
    async fn picture(&self) -> Picture {
        let mut connection = raw(&self.path()).await;
        let rows = rows(&mut connection).await;
        connection.close().await.expect("closed");
        let mut bytes = fs::read(self.path()).expect("read");
        // There is none before the first change.
        bytes.extend(fs::read(self.folder().join("store-journal")).unwrap_or_default());
        Picture { rows, bytes }
    }

    fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
        pass_wall(duration);
    }
}

/// SQLite without anything of ours.
pub(crate) async fn raw(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
    options.connect().await.expect("connected")
}

/// Does something to a store that it would not do itself.
pub(crate) async fn tamper(path: &Path, statement: &str) {
    let mut connection = raw(path).await;
    raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.expect("done");
    connection.close().await.expect("closed");
}

/// Every row of every table, as text.
pub(crate) async fn rows(connection: &mut SqliteConnection) -> String {
    let tables: Vec<String> =
        query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            .fetch_all(&mut *connection)
            .await
            .expect("read");
    let mut text = String::new();
    for table in tables {
        let columns: Vec<String> = query_scalar("SELECT 'quote(' || name || ')' FROM pragma_table_info($1)")
            .bind(&table)
            .fetch_all(&mut *connection)
            .await
            .expect("read");
        let statement = format!("SELECT {} FROM {table} ORDER BY 1", columns.join(" || ' ' || "));
        let found: Vec<String> =
            query_scalar(AssertSqlSafe(statement)).fetch_all(&mut *connection).await.expect("read");
        for row in found {
            text.push_str(&format!("{table}: {row}\n"));
        }
    }
    text
}

/// What SQLite itself thinks of the file.
pub(crate) async fn assert_intact(path: &Path) {
    let mut connection = raw(path).await;
    let said: Vec<String> =
        query_scalar("PRAGMA integrity_check").fetch_all(&mut connection).await.expect("asked");
    assert_eq!(said, ["ok"]);
    let broken = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut connection).await.expect("asked");
    assert!(broken.is_empty(), "{} references lead nowhere", broken.len());
    connection.close().await.expect("closed");
}
