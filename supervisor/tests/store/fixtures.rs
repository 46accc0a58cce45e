//! Stores that older programs made: they are opened for ever. `tests/fixtures/store` has one of each schema, with
//! what is to be read of it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::memory::InMemory;
use crate::place::{Place, block_on, enter, hold};
use crate::sample;
use crate::sqlite::{InAFile, assert_intact};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/store").join(name)
}

fn expected(schema: u32) -> Value {
    let text = fs::read_to_string(fixture(&format!("schema-{schema}.json"))).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_store_of_schema_1_reads_as_it_did_when_it_was_written() {
    let place = InAFile::new();
    fs::copy(fixture("schema-1.sqlite"), place.path()).expect("copied");
    block_on(async {
        let store = place.open().await;
        assert_eq!(without_spent(sample::read(&store).await), expected(1));
        // And it goes on where it was.
        let term = enter(&store).await;
        assert_eq!(term.0, 3);
        assert_eq!(hold(&store, term, "T22").await.epoch.0, 3);
        assert_intact(&place.path()).await;
    });
}

#[test]
fn a_store_of_schema_2_reads_as_it_did_when_it_was_written() {
    let place = InAFile::new();
    fs::copy(fixture("schema-2.sqlite"), place.path()).expect("copied");
    block_on(async {
        let store = place.open().await;
        assert_eq!(sample::read(&store).await, expected(2));
        assert_intact(&place.path()).await;
    });
}

/// Nothing was known of that.
fn without_spent(mut read: Value) -> Value {
    let spent = read.as_object_mut().and_then(|fields| fields.remove("spent")).expect("what was spent");
    let nothing = |spent: &Value| spent["tokens"] == 0 && spent["time_ms"] == 0;
    assert!(spent.as_array().is_some_and(|all| all.iter().all(nothing)), "{spent}");
    read
}

#[test]
fn what_is_written_now_reads_as_it_did_then() {
    block_on(async {
        let file = InAFile::new();
        let store = file.open().await;
        sample::fill(&file, &store).await;
        assert_eq!(sample::read(&store).await, expected(2));
    });
}

#[test]
fn the_simple_store_reads_the_same() {
    block_on(async {
        let memory = InMemory::new();
        let store = memory.open().await;
        sample::fill(&memory, &store).await;
        assert_eq!(sample::read(&store).await, expected(2));
    });
}
