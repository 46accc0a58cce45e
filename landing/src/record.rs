//! Records: facts that references name, each a few lines of text in a blob.
//!
//! A blob, and not a commit: the same fact is the same object at any time and in any process, a person's `git log
//! --all` does not show it, and it has no history to grow. Only references outside `refs/heads` may name a blob, and
//! these are. They must have no reflog: `git gc` of git 2.39 fails over blobs there.
//!
//! ```text
//! agency lease 1
//! task kodingx:T0001
//! epoch 3
//! term 7
//! ```

use std::fmt::Display;

use super::error::Error;
use super::names::{HIGHEST, Oid};
use super::objects::ObjectReader;

const VERSION: &str = "1";

/// The text of a record: what it is, its version, and its fields, each on a line.
pub(super) fn text(kind: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut text = format!("agency {kind} {VERSION}\n");
    for (key, value) in fields {
        text.push_str(&format!("{key} {value}\n"));
    }
    text
}

/// The fields of a record, by their names.
#[derive(Debug)]
pub(super) struct RecordFields(Vec<(String, String)>);

impl RecordFields {
    pub(super) fn parse(kind: &str, text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != format!("agency {kind} {VERSION}") {
            return None;
        }
        let field = |line: &str| line.split_once(' ').map(|(key, value)| (key.to_owned(), value.to_owned()));
        lines.map(field).collect::<Option<_>>().map(Self)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// A count of attempts or owners. More than a store could ever count to was not counted.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok().filter(|number| *number <= HIGHEST)
    }
}

/// A record is a few lines; what a reference names may be anything.
const LARGEST: u64 = 64 << 10;

pub(super) fn read(objects: &mut ObjectReader, object: &Oid) -> Result<String, Error> {
    if objects.size_of(object)?.is_some_and(|size| size > LARGEST) {
        return Err(Error::Record { what: "a record", object: object.to_string() });
    }
    Ok(String::from_utf8_lossy(&objects.contents(object, "blob")?).into_owned())
}
