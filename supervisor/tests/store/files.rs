//! The file of a store: what is taken for one, what is refused and left as it is, and what is not a panic.

use std::fs;
use std::future::{Future, poll_fn};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::pin::pin;
use std::task::Poll;

use agency_supervisor::attempt::{AttemptEnd, Epoch, HumanDecision, Phase, UsageTotals};
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::{AttemptStore, AttemptStoreError, ClaimResult, QueueMode};
use rustix::fs::{CWD, FileType, mknodat};

use crate::place::{
    Place, TTL, all_events, block_on, claim_after, end, enter, hold, owner, task, wall, whole,
};
use crate::sqlite::{InAFile, assert_intact, raw, rows, tamper};

/// What it says, with all causes.
#[track_caller]
fn unusable<T: std::fmt::Debug>(answer: Result<T, AttemptStoreError>) -> String {
    let error = answer.expect_err("it is refused");
    assert!(matches!(error, AttemptStoreError::Unusable { .. }), "{error:?}");
    let cause = std::error::Error::source(&error).expect("a cause");
    format!("{error}: {cause}")
}

async fn filled(place: &InAFile) {
    let store = place.open().await;
    let term = enter(&store).await;
    hold(&store, term, "T1").await;
    store.close().await.expect("closed");
}

#[test]
fn a_store_of_a_newer_schema_is_refused_and_left_as_it_is() {
    let place = InAFile::new();
    block_on(async {
        filled(&place).await;
        tamper(&place.path(), "CREATE TABLE news (text TEXT); PRAGMA user_version = 7").await;
        let before = fs::read(place.path()).expect("read");
        for _ in 0..2 {
            let refused = place.try_open().await.expect_err("it is newer");
            assert!(matches!(refused, AttemptStoreError::Newer { found: 7, known: 2, .. }), "{refused:?}");
            assert!(refused.to_string().contains(&place.path().display().to_string()), "{refused}");
        }
        assert_eq!(fs::read(place.path()).expect("read"), before);
        assert_intact(&place.path()).await;
    });
}

fn answer() -> HumanDecision {
    HumanDecision { pass: true, person: "ann".into(), reason: "yes".into() }
}

#[test]
fn a_store_that_becomes_newer_while_it_is_open_is_not_written_any_more() {
    let place = InAFile::new();
    block_on(async {
        let store = place.open().await;
        let (term, heir) = (enter(&store).await, enter(&store).await);
        let lease = hold(&store, term, "T1").await;
        tamper(&place.path(), "PRAGMA user_version = 3").await;
        let before = rows(&mut raw(&place.path()).await).await;
        let refused = [
            store.enter(&owner(1)).await.err(),
            store.leave(term).await.err(),
            claim_after(&store, term, "T2", None).await.err(),
            store.renew(term, TTL).await.err(),
            store.adopt(&lease, heir, TTL).await.err(),
            store.advance(&lease, &Phase::Started).await.err(),
            store.end(&lease, &AttemptEnd::Canceled, UsageTotals::default()).await.err(),
            store.answer(&task("T1"), Epoch(1), &answer()).await.err(),
            store.note(&lease, "a note").await.err(),
            store.ask_to_cancel(&task("T1")).await.err(),
            store.forgive(&task("T1")).await.err(),
            store.set_mode(QueueMode::Paused).await.err(),
            store.prune(i64::MAX).await.err(),
        ];
        for refused in refused {
            assert!(
                matches!(refused, Some(AttemptStoreError::Newer { found: 3, known: 2, .. })),
                "{refused:?}"
            );
        }
        assert_eq!(rows(&mut raw(&place.path()).await).await, before);
    });
}

#[test]
fn what_is_not_a_store_is_refused_and_left_as_it_is() {
    let text =
        b"# Tasks\n\nThis is a file somebody wrote, and it is long enough to be looked at.\n".repeat(100);
    for (bytes, says) in [(text.as_slice(), "not a database"), (b"", "it is empty")] {
        let place = InAFile::new();
        fs::write(place.path(), bytes).expect("written");
        let said = block_on(async { unusable(place.try_open().await) });
        assert!(said.contains(says), "{said}");
        assert_eq!(fs::read(place.path()).expect("read"), bytes);
    }
}

#[test]
fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    for mark in
        ["PRAGMA application_id = 0", "PRAGMA application_id = 1196444487", "PRAGMA journal_mode = WAL"]
    {
        let place = InAFile::new();
        block_on(async {
            fs::write(place.path(), b"").expect("made");
            tamper(
                &place.path(),
                "CREATE TABLE attempts (text TEXT); INSERT INTO attempts VALUES ('theirs')",
            )
            .await;
            tamper(&place.path(), mark).await;
            let before = fs::read(place.path()).expect("read");
            let said = unusable(place.try_open().await);
            assert!(said.contains("another program"), "{said}");
            assert_eq!(fs::read(place.path()).expect("read"), before);
        });
    }
}

#[test]
fn a_folder_a_link_and_a_pipe_are_not_stores() {
    let place = InAFile::new();
    let path = place.path();
    let refused = || block_on(async { unusable(place.try_open().await) });
    fs::create_dir(&path).expect("made");
    assert!(refused().contains("not a file"));
    fs::remove_dir(&path).expect("removed");
    symlink(place.folder().join("elsewhere"), &path).expect("linked");
    assert!(refused().contains("not a file"));
    assert!(!place.folder().join("elsewhere").exists());
    fs::remove_file(&path).expect("removed");
    mknodat(CWD, &path, FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).expect("made");
    assert!(refused().contains("not a file"));
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let place = InAFile::new();
    let path = place.folder().join("missing/store");
    let said = block_on(async { unusable(SqliteStore::open(&path, place.clock.clone(), wall).await) });
    assert!(said.contains("missing"), "{said}");
}

#[test]
fn a_store_that_was_cut_off_or_overwritten_is_an_error() {
    for damage in 0..6 {
        let place = InAFile::new();
        block_on(async {
            let store = place.open().await;
            let term = enter(&store).await;
            for _ in 0..40 {
                whole(&store, term, "T1", AttemptEnd::Canceled).await;
            }
            store.close().await.expect("closed");
            let mut bytes = fs::read(place.path()).expect("read");
            match damage {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.truncate(100),
                2 => bytes[4096..].fill(0),
                3 => bytes[4096..].fill(0xff),
                4 => bytes[..16].fill(0),
                _ => bytes[28..].fill(0x41),
            }
            fs::write(place.path(), &bytes).expect("written");
            let used = async {
                let store = place.try_open().await?;
                store.open().await?;
                store.latest().await?;
                store.events(0, 1000).await?;
                let term = store.enter(&owner(1)).await?;
                claim_after(&store, term, "T2", None).await?;
                store.prune(i64::MAX).await
            };
            let refused = used.await;
            assert!(
                matches!(
                    refused,
                    Err(AttemptStoreError::Unusable { .. }
                        | AttemptStoreError::Damaged { .. }
                        | AttemptStoreError::Unexpected { .. })
                ),
                "{damage}: {refused:?}"
            );
        });
    }
}

#[test]
fn what_is_not_understood_is_said_and_not_guessed() {
    let oddities = [
        ("UPDATE attempts SET facts = '{\"phase\":\"levitating\"}'", "levitating"),
        ("UPDATE attempts SET facts = 'no JSON'", "no JSON"),
        ("UPDATE leases SET until = -5", "-5"),
        ("UPDATE owners SET pid = 99999999999", "99999999999"),
        ("UPDATE charge SET mode = 'dancing'", "dancing"),
        ("UPDATE events SET epoch = -1", "-1"),
        ("UPDATE failures SET counted = -1", "-1"),
    ];
    for (statement, says) in oddities {
        let place = InAFile::new();
        block_on(async {
            filled(&place).await;
            let store = place.open().await;
            store.forgive(&task("T1")).await.expect("forgiven");
            tamper(&place.path(), &format!("PRAGMA foreign_keys = OFF; {statement}")).await;
            let read = async {
                store.open().await?;
                store.owners().await?;
                store.mode().await?;
                store.failures(&task("T1")).await?;
                store.events(0, 10).await
            };
            let refused = read.await.expect_err("it is odd");
            assert!(
                matches!(&refused, AttemptStoreError::Unexpected { what } if what.contains(says)),
                "{refused:?}"
            );
            // It is one row that is odd, and the store goes on.
            let term = enter(&store).await;
            hold(&store, term, "T2").await;
        });
    }
}

#[test]
fn a_store_is_nobody_elses_to_read() {
    let place = InAFile::new();
    block_on(async {
        let store = place.open().await;
        enter(&store).await;
        let mut names = Vec::new();
        for entry in fs::read_dir(place.folder()).expect("listed").flatten() {
            let mode = entry.metadata().expect("looked").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{entry:?}");
            names.push(entry.file_name().into_string().expect("a name"));
        }
        names.sort_unstable();
        assert_eq!(names, ["store", "store-journal"], "and nothing that is mapped into memory");
    });
}

#[test]
fn any_name_of_a_file_is_only_a_name() {
    let names: [&[u8]; 6] = [
        b"file:store?mode=memory",
        b":memory:",
        b"a b%41#c?d",
        b"two\nlines",
        "é日".as_bytes(),
        b"not \xff text",
    ];
    for name in names {
        let place = InAFile::new();
        let path = place.folder().join(std::ffi::OsStr::from_bytes(name));
        let opened = block_on(SqliteStore::open(&path, place.clock.clone(), wall));
        match opened {
            Ok(store) => {
                assert_eq!(block_on(enter(&store)).0, 1);
                assert!(path.is_file(), "{}", path.display());
            }
            // What SQLite can't name is refused.
            Err(error) => {
                assert!(std::str::from_utf8(name).is_err(), "{error:?}");
            }
        }
    }
}

/// Lets a future go on so many times and drops it then.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[test]
fn a_write_that_is_dropped_in_the_middle_happened_as_a_whole_or_not_at_all() {
    let place = InAFile::new();
    block_on(async {
        let store = place.open().await;
        let term = enter(&store).await;
        let (mut unfinished, mut finished) = (0, 0);
        for polls in 0..40 {
            let id = format!("T{polls}");
            let claimed = dropped_after(polls, claim_after(&store, term, &id, None)).await;
            match &claimed {
                None => unfinished += 1,
                Some(answer) => {
                    finished += 1;
                    assert!(matches!(answer, Ok(ClaimResult::Held(_))), "{answer:?}");
                }
            }
            let found = store.attempts(&task(&id)).await.expect("read");
            assert!(found.len() == 1 || claimed.is_none());
            // Whatever was begun, the next one is not held up by it.
            let lease = match found.first().and_then(|attempt| attempt.lease()) {
                Some(lease) => lease,
                None => match claim_after(&store, term, &id, None).await.expect("it answers") {
                    ClaimResult::Held(lease) => lease,
                    // It was still under way when it was looked for.
                    ClaimResult::Taken => {
                        store.attempts(&task(&id)).await.expect("read")[0].lease().expect("held")
                    }
                },
            };
            end(&store, &lease, AttemptEnd::Canceled).await;
        }
        assert!(unfinished > 3 && finished > 3, "{unfinished} were dropped, {finished} were not");
        let events = all_events(&store).await;
        assert_eq!(events.len(), 80, "two for each");
        store.close().await.expect("closed");
        assert_intact(&place.path()).await;
    });
}
