//! The record of a landing, as text.

use serde::Serialize;

use super::error::Error;
use super::names::{Oid, RefName, TaskName};
use super::objects::ObjectReader;
use super::record::{self, RecordFields};

/// A landing that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LandedRecord {
    pub epoch: u64,
    pub term: u64,
    pub branch: RefName,
    /// The commit that has the work.
    pub commit: Oid,
    /// The record itself.
    pub object: Oid,
}

pub(super) fn parse(objects: &mut ObjectReader, object: Oid) -> Result<LandedRecord, Error> {
    let text = record::read(objects, &object)?;
    let unknown = || Error::Record { what: "a landing", object: object.to_string() };
    let fields = RecordFields::parse("landed", &text).ok_or_else(unknown)?;
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let names = fields.text("branch").zip(fields.text("commit"));
    let ((epoch, term), (branch, commit)) = numbers.zip(names).ok_or_else(unknown)?;
    Ok(LandedRecord { epoch, term, branch: RefName::parse(branch)?, commit: Oid::parse(commit)?, object })
}

pub(super) fn text(task: &TaskName, (epoch, term): (u64, u64), branch: &RefName, commit: &Oid) -> String {
    record::text(
        "landed",
        &[
            ("task", task),
            ("epoch", &epoch),
            ("term", &term),
            ("branch", &branch.as_str()),
            ("commit", commit),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_as_it_always_was() {
        let oid = Oid::parse(&"a1".repeat(20)).expect("a name");
        let task = TaskName::new("kodingx", "T0001").expect("a task");
        let branch = RefName::branch("main").expect("a name");
        assert_eq!(
            text(&task, (3, 7), &branch, &oid),
            format!(
                "agency landed 1\ntask kodingx:T0001\nepoch 3\nterm 7\nbranch refs/heads/main\ncommit {}\n",
                "a1".repeat(20)
            )
        );
    }
}
