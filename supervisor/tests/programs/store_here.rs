//! Uses a store as a supervisor would, and prints what came of it. It is a program of its own because the tests
//! kill it, run several at once, and run it where the disk is full.
//!
//! `store_here path=FILE act=ACT`: `open` opens it and enters; `claim` enters, waits for a line, and claims T1; `work`
//! takes tasks on and ends them until it is killed, and prints each write once it returned; `fill` writes until
//! the disk is full, then goes on when the file `ballast=FILE` is removed.

use std::error::Error;
use std::io::stdin;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agency_supervisor::attempt::{
    AttemptEnd, AttemptFailure, Epoch, FailureKind, Lease, Phase, TaskKey, Term,
};
use agency_supervisor::clock::{BootClock, wall_seconds};
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::{AttemptStore, ClaimRequest, ClaimResult, SupervisorProcess};
use serde_json::{Value, json};

const TTL: Duration = Duration::from_secs(900);

#[allow(clippy::print_stdout)]
fn say(value: &Value) {
    println!("{value}");
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |key: &'static str| {
        arguments.iter().find_map(|one| one.strip_prefix(key)?.strip_prefix('=')).ok_or(key)
    };
    let path = Path::new(value("path")?);
    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        let opened = SqliteStore::open(path, Arc::new(BootClock), wall_seconds).await;
        let store = match opened {
            Ok(store) => store,
            Err(error) => {
                say(&json!({ "error": chain(&error) }));
                return Ok(());
            }
        };
        match value("act")? {
            "open" => {
                let entered = enter(&store).await;
                store.close().await?;
                say(&match entered {
                    Ok(_) => json!({ "opened": true }),
                    Err(error) => json!({ "error": chain(&*error) }),
                });
            }
            "claim" => claim(&store).await?,
            "work" => work(&store).await?,
            "fill" => fill(store, Path::new(value("ballast")?)).await?,
            other => return Err(format!("can't {other}").into()),
        }
        Ok(())
    })
}

fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(deeper) = cause {
        text.push_str(&format!(": {deeper}"));
        cause = deeper.source();
    }
    text
}

fn task(id: &str) -> TaskKey {
    TaskKey { protocol: "sample".into(), id: id.into() }
}

async fn enter(store: &impl AttemptStore) -> Result<Term, Box<dyn Error>> {
    let owner = SupervisorProcess { host: "host".into(), boot: "boot".into(), pid: std::process::id() };
    Ok(store.enter(&owner).await?)
}

/// The next attempt at a task, over the last one there is.
async fn take(store: &impl AttemptStore, id: &str, term: Term) -> Result<ClaimResult, Box<dyn Error>> {
    let task = task(id);
    let after = store.attempts(&task).await?.last().map(|attempt| attempt.epoch);
    let claim = ClaimRequest { task: &task, title: "A title", agent: "an agent", after, beyond: Epoch(0) };
    Ok(store.claim(&claim, term, TTL).await?)
}

async fn claim(store: &impl AttemptStore) -> Result<(), Box<dyn Error>> {
    let term = enter(store).await?;
    say(&json!({ "entered": term }));
    stdin().read_line(&mut String::new())?;
    match take(store, "T1", term).await? {
        ClaimResult::Held(lease) => say(&json!({ "held": lease })),
        ClaimResult::Taken => say(&json!({ "taken": true })),
    }
    Ok(())
}

fn told(lease: &Lease, what: &str, detail: &str) {
    say(
        &json!({ "task": lease.task.id, "epoch": lease.epoch, "term": lease.term, "what": what, "detail": detail }),
    );
}

async fn advance(store: &impl AttemptStore, lease: &Lease, phase: &Phase) -> Result<(), Box<dyn Error>> {
    store.advance(lease, phase).await?;
    told(lease, phase.name(), &serde_json::to_string(phase)?);
    Ok(())
}

async fn work(store: &impl AttemptStore) -> Result<(), Box<dyn Error>> {
    let term = enter(store).await?;
    say(&json!({ "entered": term }));
    let failure = AttemptFailure::new(FailureKind::Exit, "it ended with 1");
    let over = [Phase::Over(AttemptEnd::failed(failure)), Phase::Over(AttemptEnd::Canceled)];
    for left in store.open().await?.iter().filter_map(|attempt| attempt.lease()) {
        let lease = store.adopt(&left, term, TTL).await?.ok_or("somebody else is here")?;
        told(&lease, "adopted", &format!("from term {}", left.term));
        advance(store, &lease, &over[0]).await?;
    }
    for number in 0_usize.. {
        let ClaimResult::Held(lease) = take(store, &format!("T{}", number % 5), term).await? else {
            return Err("somebody else is here".into());
        };
        told(&lease, "claimed", &serde_json::to_string(&Phase::Claimed)?);
        advance(store, &lease, &Phase::Started).await?;
        store.renew(term, TTL).await?;
        let note = format!("note {number}");
        store.note(&lease, &note).await?;
        told(&lease, "note", &note);
        advance(store, &lease, &over[number % 2]).await?;
    }
    Ok(())
}

async fn fill(store: SqliteStore, ballast: &Path) -> Result<(), Box<dyn Error>> {
    let term = enter(&store).await?;
    let ClaimResult::Held(lease) = take(&store, "T1", term).await? else { return Err("it is taken".into()) };
    let text = "x".repeat(1000);
    let mut written = 0_u32;
    let error = loop {
        match store.note(&lease, &text).await {
            Ok(()) => written += 1,
            Err(error) => break chain(&error),
        }
    };
    // One of a few bytes may find room where a long one does not.
    let again = store.note(&lease, &text).await.err().map(|error| chain(&error));
    let read_when_full =
        store.events(0, usize::MAX).await.map(|events| events.len()).map_err(|error| chain(&error));
    std::fs::remove_file(ballast)?;
    let after = store.note(&lease, &text).await.err().map(|error| chain(&error));
    let path = store.path().to_owned();
    store.close().await?;
    let store = SqliteStore::open(&path, Arc::new(BootClock), wall_seconds).await?;
    let read = store.events(0, usize::MAX).await?.len();
    store.close().await?;
    say(&json!({
        "written": written, "error": error, "again": again, "read_when_full": read_when_full.ok(),
        "after": after, "read": read,
    }));
    Ok(())
}
