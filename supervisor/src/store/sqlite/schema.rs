//! The schema, and how an older one becomes this one.
//!
//! Each step is a file of `store/schema`, and is never changed once it was released. `user_version` counts the
//! steps a store has been through; `application_id` says that it is one.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, query_scalar, raw_sql};

use super::error::WithStorePath;
use super::store_file::StoreFileError;
use crate::store::AttemptStoreError;

const STEPS: &[&str] = &[include_str!("../schema/0001.sql"), include_str!("../schema/0002.sql")];

/// `AGNC`.
const MARK: i64 = 0x4147_4e43;

/// How many steps this program knows.
fn known(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

/// Whether it is a store.
pub(super) async fn is_marked(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    let mark: i64 = query_scalar("PRAGMA application_id").fetch_one(connection).await?;
    Ok(mark == MARK)
}

/// Makes a store of an empty file.
pub(super) async fn make(connection: &mut SqliteConnection, path: &Path) -> Result<(), AttemptStoreError> {
    raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.at(path)?;
    raw_sql(AssertSqlSafe(format!("PRAGMA application_id = {MARK}")))
        .execute(&mut *connection)
        .await
        .at(path)?;
    climb(connection, STEPS, 0).await.at(path)?;
    raw_sql("COMMIT").execute(connection).await.at(path)?;
    Ok(())
}

/// Brings a store that was found to this program's schema, if it is one.
pub(super) async fn bring_up(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), AttemptStoreError> {
    bring_up_by(connection, STEPS, path).await
}

async fn bring_up_by(
    connection: &mut SqliteConnection,
    steps: &'static [&'static str],
    path: &Path,
) -> Result<(), AttemptStoreError> {
    if !is_marked(connection).await.at(path)? {
        return Err(StoreFileError::Foreign).at(path);
    }
    if version(connection, steps, path).await? == known(steps) {
        return Ok(());
    }
    raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.at(path)?;
    // Another program may have done it while this one waited.
    let found = version(connection, steps, path).await?;
    climb(connection, steps, found).await.at(path)?;
    raw_sql("COMMIT").execute(connection).await.at(path)?;
    Ok(())
}

/// Refuses a store that became newer while it was open: a program that is being replaced may still run.
pub(super) async fn still_known(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), AttemptStoreError> {
    version(connection, STEPS, path).await.map(drop)
}

async fn version(
    connection: &mut SqliteConnection,
    steps: &[&str],
    path: &Path,
) -> Result<i64, AttemptStoreError> {
    let found: i64 = query_scalar("PRAGMA user_version").fetch_one(connection).await.at(path)?;
    let known = known(steps);
    if found > known {
        return Err(AttemptStoreError::Newer { path: path.display().to_string(), found, known });
    }
    Ok(found)
}

async fn climb(
    connection: &mut SqliteConnection,
    steps: &'static [&'static str],
    found: i64,
) -> sqlx::Result<()> {
    for step in &steps[usize::try_from(found).unwrap_or(0)..] {
        raw_sql(*step).execute(&mut *connection).await?;
    }
    raw_sql(AssertSqlSafe(format!("PRAGMA user_version = {}", known(steps)))).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::connection;
    use super::*;

    const MORE: &[&str] =
        &[STEPS[0], STEPS[1], "CREATE TABLE more (number BIGINT); INSERT INTO more VALUES (7);"];
    const BROKEN: &[&str] =
        &[STEPS[0], STEPS[1], "CREATE TABLE more (number BIGINT); INSERT INTO nothing VALUES (7);"];

    async fn made(path: &Path) -> SqliteConnection {
        std::fs::write(path, b"").expect("made");
        let mut connection = connection::connect(path).await.expect("connected");
        make(&mut connection, path).await.expect("a store");
        connection
    }

    async fn number(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
        query_scalar("SELECT number FROM more").fetch_one(connection).await
    }

    fn run(future: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future);
    }

    #[test]
    fn an_older_store_is_brought_up_once() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("store");
            let mut connection = made(&path).await;
            for _ in 0..2 {
                bring_up_by(&mut connection, MORE, &path).await.expect("brought up");
                assert_eq!(number(&mut connection).await.expect("one row"), 7);
            }
            let refused = still_known(&mut connection, &path).await.expect_err("newer than this program");
            assert!(matches!(refused, AttemptStoreError::Newer { found: 3, known: 2, .. }), "{refused:?}");
        });
    }

    #[test]
    fn a_step_that_fails_leaves_the_store_as_it_was() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("store");
            let mut connection = made(&path).await;
            bring_up_by(&mut connection, BROKEN, &path).await.expect_err("no such table");
            drop(connection);
            let mut connection = connection::connect(&path).await.expect("connected");
            assert!(number(&mut connection).await.is_err());
            bring_up(&mut connection, &path).await.expect("as it was");
        });
    }
}
