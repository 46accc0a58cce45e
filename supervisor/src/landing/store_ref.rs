//! Which store the references below `refs/agency` belong to.
//!
//! Leases, landings and candidates in git are facts of one store. A repository that was copied, restored or packed by
//! somebody brings such references along, and believing them would mean that a stranger says what has landed. So
//! `refs/agency/store` names the store they belong to. Where it names another one, nothing is claimed until a person
//! says so (`agency adopt`). Where it is missing, the others were made by nobody we know: they are moved out of the way,
//! and stay readable there.

use super::error::{Error, git};
use super::names::{Oid, RefName};
use super::objects::ObjectKind;
use super::record::{self, Fields};
use super::refs::{self, Line};
use super::repository::Repository;

const NAME: &str = "refs/agency/store";
const OURS: &str = "refs/agency/";
/// Where references go that belong to no store.
const ASIDE: &str = "refs/agency-aside/";
const KIND: &str = "store";

/// What a repository says about its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    /// This very store.
    Ours,
    /// Another one.
    Other { id: String, at: Oid },
    /// None; so many other references are there nevertheless.
    Missing { others: usize },
}

/// Reads which store is named.
pub fn look(repository: &Repository, id: &str) -> Result<Naming, Error> {
    refs::check_ours(repository)?;
    let Some(at) = refs::at(repository, &name()?)? else {
        return Ok(Naming::Missing { others: others(repository)?.len() });
    };
    let text = match repository.ask(|objects| record::read(objects, &at)) {
        // A name that can't be read is nobody's we know.
        Err(Error::Record { .. } | Error::Missing { .. }) => String::new(),
        text => text?,
    };
    let named = Fields::parse(KIND, &text).and_then(|fields| fields.text("id").map(str::to_owned));
    match named {
        Some(named) if named == id => Ok(Naming::Ours),
        named => Ok(Naming::Other { id: named.unwrap_or_else(|| "unreadable".to_owned()), at }),
    }
}

/// Names a store, if the repository names this one, or none, until then.
pub fn set(repository: &Repository, id: &str, from: Option<Oid>) -> Result<(), Error> {
    let record = record::text(KIND, &[("id", &id)]);
    let to = repository.write_object(ObjectKind::Blob, record.as_bytes())?;
    refs::transact(repository, &[Line::Update { name: name()?, from, to }])
}

/// Moves references that belong to no store out of the way. Says how many, and where to.
pub fn set_aside(repository: &Repository, id: &str) -> Result<(usize, String), Error> {
    let found = others(repository)?;
    let to = format!("{ASIDE}{id}/");
    let mut lines = Vec::new();
    for (name, at) in &found {
        let rest = name.as_str().strip_prefix(OURS).unwrap_or_default();
        let aside = RefName::parse(&format!("{to}{rest}"))?;
        lines.push(Line::Update { name: aside, from: None, to: at.clone() });
        lines.push(Line::Delete { name: name.clone(), at: at.clone() });
    }
    // All at once: each transaction that deletes writes the file of packed references anew.
    refs::transact(repository, &lines)?;
    Ok((found.len(), to))
}

/// Every reference below `refs/agency` but the one that names the store.
fn others(repository: &Repository) -> Result<Vec<(RefName, Oid)>, Error> {
    refs::check_ours(repository)?;
    let listed = repository.refs.run(["for-each-ref", "--format=%(objectname) %(refname)", OURS]);
    let listed = listed.map_err(git("list references"))?;
    let text = String::from_utf8_lossy(&listed);
    let lines = text.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| *name != NAME);
    lines.map(|(object, name)| Ok((RefName::parse(name)?, Oid::parse(object)?))).collect()
}

fn name() -> Result<RefName, Error> {
    RefName::parse(NAME)
}
