//! What is read: the statements, and how rows become facts again.

use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::attempt::{Attempt, Epoch, HumanDecision, Lease, LeaseHolder, TaskKey, Term, UsageTotals};
use crate::clock::BootInstant;
use crate::store::{AttemptStoreError, StoreEvent, SupervisorProcess};

/// Attempts with their leases; what follows says which, and in which order.
macro_rules! attempts {
    ($which:literal) => {
        concat!(
            "SELECT a.protocol, a.task, a.epoch, a.title, a.agent, a.facts, a.cancel, a.answer, ",
            "a.time_ms, a.tokens, a.cost_micros, a.claimed_at, a.recorded_at, l.term, l.until FROM attempts a LEFT JOIN leases l ",
            "ON l.protocol = a.protocol AND l.task = a.task AND l.epoch = a.epoch ",
            $which
        )
    };
}

pub(super) const OPEN: &str = attempts!("WHERE l.term IS NOT NULL ORDER BY a.began");

pub(super) const OF_A_TASK: &str = attempts!("WHERE a.protocol = $1 AND a.task = $2 ORDER BY a.epoch");

pub(super) const LATEST: &str = attempts!(
    "WHERE a.epoch = (SELECT MAX(b.epoch) FROM attempts b WHERE b.protocol = a.protocol AND b.task = a.task) \
     ORDER BY a.protocol, a.task"
);

pub(super) const EVENTS: &str = "SELECT number, protocol, task, epoch, term, at, what, detail FROM events \
     WHERE number > $1 ORDER BY number LIMIT $2";

pub(super) const OWNERS: &str = "SELECT term, host, boot, pid FROM owners ORDER BY term";

pub(super) const HOLDER: &str = "SELECT term FROM leases WHERE protocol = $1 AND task = $2 AND epoch = $3";

pub(super) const FAILURES: &str = "SELECT counted FROM failures WHERE protocol = $1 AND task = $2";

pub(super) const FORGIVEN: &str = "SELECT forgiven FROM failures WHERE protocol = $1 AND task = $2";

pub(super) const SPENT: &str = "SELECT time_ms, tokens, cost_micros FROM attempts a \
     WHERE protocol = $1 AND task = $2 AND epoch > COALESCE((SELECT forgiven FROM failures f \
     WHERE f.protocol = a.protocol AND f.task = a.task), 0)";

pub(super) const MODE: &str = "SELECT mode FROM charge";

pub(super) fn attempt(row: &SqliteRow) -> Result<Attempt, AttemptStoreError> {
    let (task, epoch) = (task(row)?, Epoch(count(row, "epoch")?));
    let until: Option<i64> = value(row, "until")?;
    let held = match until {
        Some(_) => {
            Some(LeaseHolder { term: Term(count(row, "term")?), until: BootInstant(count(row, "until")?) })
        }
        None => None,
    };
    let facts: &str = value(row, "facts")?;
    let phase = serde_json::from_str(facts).map_err(|_| AttemptStoreError::Unexpected {
        what: format!("attempt {epoch} at {task} is in the phase {facts}"),
    })?;
    Ok(Attempt {
        task,
        epoch,
        title: value(row, "title")?,
        agent: value(row, "agent")?,
        phase,
        held,
        cancel: value(row, "cancel")?,
        answer: answer(row)?,
        spent: spent(row)?,
        claimed_at: value(row, "claimed_at")?,
        recorded_at: value(row, "recorded_at")?,
    })
}

fn answer(row: &SqliteRow) -> Result<Option<HumanDecision>, AttemptStoreError> {
    let text: Option<&str> = value(row, "answer")?;
    let odd = |_| AttemptStoreError::Unexpected { what: format!("the answer {}", text.unwrap_or_default()) };
    text.map(serde_json::from_str).transpose().map_err(odd)
}

pub(super) fn spent(row: &SqliteRow) -> Result<UsageTotals, AttemptStoreError> {
    Ok(UsageTotals {
        time_ms: count(row, "time_ms")?,
        tokens: count(row, "tokens")?,
        cost_micros: count(row, "cost_micros")?,
    })
}

pub(super) fn happening(row: &SqliteRow) -> Result<StoreEvent, AttemptStoreError> {
    Ok(StoreEvent {
        number: count(row, "number")?,
        task: task(row)?,
        epoch: Epoch(count(row, "epoch")?),
        term: Term(count(row, "term")?),
        at: value(row, "at")?,
        what: value(row, "what")?,
        detail: value(row, "detail")?,
    })
}

pub(super) fn owner(row: &SqliteRow) -> Result<(Term, SupervisorProcess), AttemptStoreError> {
    let pid = count(row, "pid")?;
    let pid =
        u32::try_from(pid).map_err(|_| AttemptStoreError::Unexpected { what: format!("a process {pid}") })?;
    Ok((
        Term(count(row, "term")?),
        SupervisorProcess { host: value(row, "host")?, boot: value(row, "boot")?, pid },
    ))
}

/// Of a row that names task and epoch.
pub(super) fn lease(row: &SqliteRow, term: Term) -> Result<Lease, AttemptStoreError> {
    Ok(Lease { task: task(row)?, epoch: Epoch(count(row, "epoch")?), term })
}

fn task(row: &SqliteRow) -> Result<TaskKey, AttemptStoreError> {
    Ok(TaskKey { protocol: value(row, "protocol")?, id: value(row, "task")? })
}

fn value<'r, T>(row: &'r SqliteRow, column: &str) -> Result<T, AttemptStoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(column).map_err(|error| AttemptStoreError::Unexpected { what: error.to_string() })
}

fn count(row: &SqliteRow, column: &str) -> Result<u64, AttemptStoreError> {
    counted(value(row, column)?, column)
}

/// Numbers are kept with a sign, and none has one.
pub(super) fn counted<T: TryFrom<i64>>(number: i64, what: &str) -> Result<T, AttemptStoreError> {
    T::try_from(number).map_err(|_| AttemptStoreError::Unexpected { what: format!("{what} is {number}") })
}

/// A name as serde spells it.
pub(super) fn named<T: DeserializeOwned>(name: String, what: &str) -> Result<T, AttemptStoreError> {
    let odd = AttemptStoreError::Unexpected { what: format!("{what} is {name}") };
    serde_json::from_value(serde_json::Value::String(name)).map_err(|_| odd)
}
