//! What is written: each function is the inside of one transaction.
//!
//! A statement that asks for the owner and one that changes it are the same statement, or stand behind `BEGIN
//! IMMEDIATE`, after which no other connection writes. The text is SQL that PostgreSQL understands, too.

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{query, query_as, query_scalar};

use crate::attempt::{AttemptEnd, Epoch, HumanDecision, Lease, Phase, TaskKey, Term, UsageTotals};
use crate::clock::BootInstant;
use crate::store::{ClaimRequest, SupervisorProcess};

/// The largest there is stands for all larger ones; nothing is ever counted that far.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) async fn enter(connection: &mut SqliteConnection, owner: &SupervisorProcess) -> sqlx::Result<i64> {
    let term: i64 = query_scalar("UPDATE charge SET last_term = last_term + 1 RETURNING last_term")
        .fetch_one(&mut *connection)
        .await?;
    query("INSERT INTO owners (term, host, boot, pid) VALUES ($1, $2, $3, $4)")
        .bind(term)
        .bind(&owner.host)
        .bind(&owner.boot)
        .bind(i64::from(owner.pid))
        .execute(connection)
        .await?;
    Ok(term)
}

pub(super) async fn leave(connection: &mut SqliteConnection, term: Term, at: i64) -> sqlx::Result<()> {
    query("UPDATE owners SET left_at = $2 WHERE term = $1 AND left_at IS NULL")
        .bind(signed(term.0))
        .bind(at)
        .execute(&mut *connection)
        .await?;
    // Before any time of any clock.
    query("UPDATE leases SET until = 0 WHERE term = $1").bind(signed(term.0)).execute(connection).await?;
    Ok(())
}

pub(super) async fn is_in_charge(connection: &mut SqliteConnection, term: Term) -> sqlx::Result<bool> {
    let found: Option<i64> = query_scalar("SELECT term FROM owners WHERE term = $1 AND left_at IS NULL")
        .bind(signed(term.0))
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// The epoch of the new attempt; `None` if the task is taken.
pub(super) async fn claim(
    connection: &mut SqliteConnection,
    claim: &ClaimRequest<'_>,
    term: Term,
    until: BootInstant,
    at: i64,
) -> sqlx::Result<Option<Epoch>> {
    let last: Option<(i64, Option<i64>)> = query_as(
        "SELECT a.epoch, l.term FROM attempts a LEFT JOIN leases l \
         ON l.protocol = a.protocol AND l.task = a.task AND l.epoch = a.epoch \
         WHERE a.protocol = $1 AND a.task = $2 ORDER BY a.epoch DESC LIMIT 1",
    )
    .bind(&claim.task.protocol)
    .bind(&claim.task.id)
    .fetch_optional(&mut *connection)
    .await?;
    let epoch = match last {
        Some((_, Some(_))) => return Ok(None),
        Some((epoch, None)) if Some(epoch) == claim.after.map(|after| signed(after.0)) => epoch + 1,
        None if claim.after.is_none() => signed(claim.beyond.0) + 1,
        Some(_) | None => return Ok(None),
    };
    let epoch = Epoch(epoch.unsigned_abs());
    let number = next_event(connection).await?;
    let facts = json(&Phase::Claimed)?;
    query(
        "INSERT INTO attempts (protocol, task, epoch, title, agent, phase, facts, cancel, began, claimed_at, \
         recorded_at) VALUES ($1, $2, $3, $4, $5, $6, $7, FALSE, $8, $9, $9)",
    )
    .bind(&claim.task.protocol)
    .bind(&claim.task.id)
    .bind(signed(epoch.0))
    .bind(claim.title)
    .bind(claim.agent)
    .bind(Phase::Claimed.name())
    .bind(&facts)
    .bind(number)
    .bind(at)
    .execute(&mut *connection)
    .await?;
    query("INSERT INTO leases (protocol, task, epoch, term, until) VALUES ($1, $2, $3, $4, $5)")
        .bind(&claim.task.protocol)
        .bind(&claim.task.id)
        .bind(signed(epoch.0))
        .bind(signed(term.0))
        .bind(signed(until.0))
        .execute(&mut *connection)
        .await?;
    let lease = Lease { task: claim.task.clone(), epoch, term };
    record(connection, number, &lease, at, Phase::Claimed.name(), &facts).await?;
    Ok(Some(epoch))
}

pub(super) async fn renew(
    connection: &mut SqliteConnection,
    term: Term,
    until: BootInstant,
) -> sqlx::Result<Vec<SqliteRow>> {
    query(
        "UPDATE leases SET until = $2 WHERE term = $1 \
         AND EXISTS (SELECT 1 FROM owners WHERE owners.term = $1 AND owners.left_at IS NULL) \
         RETURNING protocol, task, epoch",
    )
    .bind(signed(term.0))
    .bind(signed(until.0))
    .fetch_all(connection)
    .await
}

/// `false` if it is not as it was seen.
pub(super) async fn adopt(
    connection: &mut SqliteConnection,
    seen: &Lease,
    term: Term,
    until: BootInstant,
    at: i64,
) -> sqlx::Result<bool> {
    let changed = query(
        "UPDATE leases SET term = $5, until = $6 \
         WHERE protocol = $1 AND task = $2 AND epoch = $3 AND term = $4",
    )
    .bind(&seen.task.protocol)
    .bind(&seen.task.id)
    .bind(signed(seen.epoch.0))
    .bind(signed(seen.term.0))
    .bind(signed(term.0))
    .bind(signed(until.0))
    .execute(&mut *connection)
    .await?;
    let lease = Lease { term, ..seen.clone() };
    Ok(changed.rows_affected() == 1
        && tell(connection, &lease, at, "adopted", &format!("from term {}", seen.term)).await?)
}

/// `false` if the lease is lost.
pub(super) async fn advance(
    connection: &mut SqliteConnection,
    lease: &Lease,
    phase: &Phase,
    at: i64,
) -> sqlx::Result<bool> {
    let facts = json(phase)?;
    if !tell(connection, lease, at, phase.name(), &facts).await? {
        return Ok(false);
    }
    query("UPDATE attempts SET phase = $4, facts = $5 WHERE protocol = $1 AND task = $2 AND epoch = $3")
        .bind(&lease.task.protocol)
        .bind(&lease.task.id)
        .bind(signed(lease.epoch.0))
        .bind(phase.name())
        .bind(&facts)
        .execute(&mut *connection)
        .await?;
    let Phase::Over(ending) = phase else { return Ok(true) };
    query("DELETE FROM leases WHERE protocol = $1 AND task = $2")
        .bind(&lease.task.protocol)
        .bind(&lease.task.id)
        .execute(&mut *connection)
        .await?;
    if matches!(ending, AttemptEnd::Failed { .. }) {
        query(
            "INSERT INTO failures (protocol, task, counted, forgiven) VALUES ($1, $2, 1, 0) \
             ON CONFLICT (protocol, task) DO UPDATE SET counted = failures.counted + 1 \
             WHERE failures.forgiven < $3",
        )
        .bind(&lease.task.protocol)
        .bind(&lease.task.id)
        .bind(signed(lease.epoch.0))
        .execute(connection)
        .await?;
    }
    Ok(true)
}

/// Records that something happened, if the lease still counts.
pub(super) async fn tell(
    connection: &mut SqliteConnection,
    lease: &Lease,
    at: i64,
    what: &str,
    detail: &str,
) -> sqlx::Result<bool> {
    let changed = query(
        "UPDATE attempts SET recorded_at = $5 WHERE protocol = $1 AND task = $2 AND epoch = $3 \
         AND EXISTS (SELECT 1 FROM leases WHERE protocol = $1 AND task = $2 AND epoch = $3 AND term = $4)",
    )
    .bind(&lease.task.protocol)
    .bind(&lease.task.id)
    .bind(signed(lease.epoch.0))
    .bind(signed(lease.term.0))
    .bind(at)
    .execute(&mut *connection)
    .await?;
    if changed.rows_affected() == 0 {
        return Ok(false);
    }
    let number = next_event(connection).await?;
    record(connection, number, lease, at, what, detail).await?;
    Ok(true)
}

/// Records what an attempt's agents used. The lease was asked for before.
pub(super) async fn spend(
    connection: &mut SqliteConnection,
    lease: &Lease,
    spent: UsageTotals,
) -> sqlx::Result<()> {
    query(
        "UPDATE attempts SET time_ms = $4, tokens = $5, cost_micros = $6 \
         WHERE protocol = $1 AND task = $2 AND epoch = $3",
    )
    .bind(&lease.task.protocol)
    .bind(&lease.task.id)
    .bind(signed(lease.epoch.0))
    .bind(signed(spent.time_ms))
    .bind(signed(spent.tokens))
    .bind(signed(spent.cost_micros))
    .execute(connection)
    .await
    .map(drop)
}

/// Whether there is an attempt that waits for an answer.
pub(super) async fn answer(
    connection: &mut SqliteConnection,
    task: &TaskKey,
    epoch: Epoch,
    answer: &HumanDecision,
    at: i64,
) -> sqlx::Result<bool> {
    let open: Option<(i64, i64)> = query_as(
        "SELECT l.epoch, l.term FROM leases l JOIN attempts a \
         ON l.protocol = a.protocol AND l.task = a.task AND l.epoch = a.epoch \
         WHERE l.protocol = $1 AND l.task = $2 AND l.epoch = $3 AND a.phase = 'undecided'",
    )
    .bind(&task.protocol)
    .bind(&task.id)
    .bind(signed(epoch.0))
    .fetch_optional(&mut *connection)
    .await?;
    let Some((epoch, term)) = open else { return Ok(false) };
    let said = serde_json::to_string(answer).map_err(|error| sqlx::Error::Encode(error.into()))?;
    query("UPDATE attempts SET answer = $4 WHERE protocol = $1 AND task = $2 AND epoch = $3")
        .bind(&task.protocol)
        .bind(&task.id)
        .bind(epoch)
        .bind(&said)
        .execute(&mut *connection)
        .await?;
    let lease =
        Lease { task: task.clone(), epoch: Epoch(epoch.unsigned_abs()), term: Term(term.unsigned_abs()) };
    tell(connection, &lease, at, "answer", &said).await
}

/// `None` if there is no open attempt; else whether this changed anything.
pub(super) async fn ask_to_cancel(
    connection: &mut SqliteConnection,
    task: &TaskKey,
    at: i64,
) -> sqlx::Result<Option<bool>> {
    let open: Option<(i64, i64, bool)> = query_as(
        "SELECT l.epoch, l.term, a.cancel FROM leases l JOIN attempts a \
         ON l.protocol = a.protocol AND l.task = a.task AND l.epoch = a.epoch \
         WHERE l.protocol = $1 AND l.task = $2",
    )
    .bind(&task.protocol)
    .bind(&task.id)
    .fetch_optional(&mut *connection)
    .await?;
    let Some((epoch, term, asked)) = open else { return Ok(None) };
    if asked {
        return Ok(Some(false));
    }
    query("UPDATE attempts SET cancel = TRUE WHERE protocol = $1 AND task = $2 AND epoch = $3")
        .bind(&task.protocol)
        .bind(&task.id)
        .bind(epoch)
        .execute(&mut *connection)
        .await?;
    let lease =
        Lease { task: task.clone(), epoch: Epoch(epoch.unsigned_abs()), term: Term(term.unsigned_abs()) };
    tell(connection, &lease, at, "cancel", "").await.map(Some)
}

pub(super) async fn forgive(connection: &mut SqliteConnection, task: &TaskKey) -> sqlx::Result<()> {
    query(
        "INSERT INTO failures (protocol, task, counted, forgiven) VALUES ($1, $2, 0, \
         (SELECT COALESCE(MAX(epoch), 0) FROM attempts WHERE protocol = $1 AND task = $2)) \
         ON CONFLICT (protocol, task) DO UPDATE SET counted = 0, forgiven = excluded.forgiven",
    )
    .bind(&task.protocol)
    .bind(&task.id)
    .execute(connection)
    .await
    .map(drop)
}

pub(super) async fn prune(connection: &mut SqliteConnection, before: i64) -> sqlx::Result<u64> {
    let gone = query(
        "DELETE FROM attempts WHERE phase = 'over' AND recorded_at < $1 AND epoch < (SELECT MAX(b.epoch) \
         FROM attempts b WHERE b.protocol = attempts.protocol AND b.task = attempts.task)",
    )
    .bind(before)
    .execute(&mut *connection)
    .await?;
    query(
        "DELETE FROM owners WHERE left_at < $1 \
         AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.term = owners.term)",
    )
    .bind(before)
    .execute(connection)
    .await?;
    Ok(gone.rows_affected())
}

async fn next_event(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    query_scalar("UPDATE charge SET last_event = last_event + 1 RETURNING last_event")
        .fetch_one(connection)
        .await
}

async fn record(
    connection: &mut SqliteConnection,
    number: i64,
    lease: &Lease,
    at: i64,
    what: &str,
    detail: &str,
) -> sqlx::Result<()> {
    query(
        "INSERT INTO events (number, protocol, task, epoch, term, at, what, detail) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(number)
    .bind(&lease.task.protocol)
    .bind(&lease.task.id)
    .bind(signed(lease.epoch.0))
    .bind(signed(lease.term.0))
    .bind(at)
    .bind(what)
    .bind(detail)
    .execute(connection)
    .await
    .map(drop)
}

fn json(phase: &Phase) -> sqlx::Result<String> {
    serde_json::to_string(phase).map_err(|error| sqlx::Error::Encode(error.into()))
}
