//! The store reference: it names the store to which the references below `refs/agency` belong.
//!
//! Leases, landings and candidates in git are facts of one store. A repository that was copied, restored or packed
//! brings such references along, and by trusting them we would let a stranger decide what has landed. So
//! `refs/agency/store` names the store to which they belong. Where it names another store, no task is claimed until a
//! person runs `agency adopt`. Where it is missing, an unknown store made the references: they are moved out of the
//! way, and stay readable there.

use super::error::{Error, git};
use super::names::{OURS, Oid, RefName};
use super::objects::ObjectKind;
use super::own_refs;
use super::record::{self, RecordFields};
use super::refs::{self, RefCommand};
use super::repository::LandingRepository;

const NAME: &str = "refs/agency/store";
/// The folder for references that belong to no known store.
const ASIDE: &str = "refs/agency-aside/";
const KIND: &str = "store";

/// The store that a repository names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreRefState {
    /// This store.
    Ours,
    /// Another one.
    Other { id: String, at: Oid },
    /// The repository names no store; `others` counts its references of ours.
    Missing { others: usize },
}

/// Reads which store the repository names.
pub fn read_state(repository: &LandingRepository, id: &str) -> Result<StoreRefState, Error> {
    own_refs::check(&repository.real.common)?;
    let Some(at) = refs::at(repository, &name()?)? else {
        return Ok(StoreRefState::Missing { others: others(repository)?.len() });
    };
    let text = match repository.ask(|objects| record::read(objects, &at)) {
        // A name that can't be read is that of an unknown store.
        Err(Error::Record { .. } | Error::Missing { .. }) => String::new(),
        text => text?,
    };
    let named = RecordFields::parse(KIND, &text).and_then(|fields| fields.text("id").map(str::to_owned));
    match named {
        Some(named) if named == id => Ok(StoreRefState::Ours),
        named => Ok(StoreRefState::Other { id: named.unwrap_or_else(|| "unreadable".to_owned()), at }),
    }
}

/// Names this store in the repository, if the reference has the value `from` until then.
pub fn set(repository: &LandingRepository, id: &str, from: Option<Oid>) -> Result<(), Error> {
    let record = record::text(KIND, &[("id", &id)]);
    let to = repository.write_object(ObjectKind::Blob, record.as_bytes())?;
    refs::transact(repository, &[RefCommand::Update { name: name()?, from, to }])
}

/// Moves references of an unknown store out of the way. Returns how many, and where to.
pub fn set_aside(repository: &LandingRepository, id: &str) -> Result<(usize, String), Error> {
    let found = others(repository)?;
    let to = format!("{ASIDE}{id}/");
    let mut lines = Vec::new();
    for (name, at) in &found {
        let rest = name.as_str().strip_prefix(OURS).unwrap_or_default();
        let aside = RefName::parse(&format!("{to}{rest}"))?;
        lines.push(RefCommand::Update { name: aside, from: None, to: at.clone() });
        lines.push(RefCommand::Delete { name: name.clone(), at: at.clone() });
    }
    // All at once: each transaction that deletes writes the file of packed references anew.
    refs::transact(repository, &lines)?;
    Ok((found.len(), to))
}

/// Every reference below `refs/agency` but the one that names the store.
fn others(repository: &LandingRepository) -> Result<Vec<(RefName, Oid)>, Error> {
    own_refs::check(&repository.real.common)?;
    let listed = repository.refs.run(["for-each-ref", "--format=%(objectname) %(refname)", OURS]);
    let listed = listed.map_err(git("list references"))?;
    let text = String::from_utf8_lossy(&listed);
    let lines = text.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| *name != NAME);
    lines.map(|(object, name)| Ok((RefName::parse(name)?, Oid::parse(object)?))).collect()
}

fn name() -> Result<RefName, Error> {
    RefName::parse(NAME)
}
