//! The identity of a store: a name that no other has, and the repository it was made for.
//!
//! The name is in the state folder and in the repository ([`agency_landing::store_ref`]); if the two disagree, the
//! repository was moved or copied, or another user works on it. The path tells which: if a repository is not where it
//! was, its store is looked for by its name.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agency_sandbox::nonce::nonce;
use agency_sandbox::workspace::state::{StateFolder, StateHome};
use serde::{Deserialize, Serialize};

use crate::owner_lock;
use agency_landing::store_ref::{self, StoreRefState};
use agency_landing::{self, repository::LandingRepository};
use agency_sandbox::durable;

const FILE: &str = "identity.json";
const VERSION: u32 = 1;

/// Who a store is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreIdentity {
    version: u32,
    pub id: String,
    /// The common directory of its repository.
    pub repository: PathBuf,
}

/// Why a repository can't be worked on with a store.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("this repository names another store ({id}) than the one in {}: it was moved or copied, or another user works on it", state.display())]
    OtherStore { id: String, state: PathBuf },
    #[error("a run is still at work with the store in {}", state.display())]
    InUse { state: PathBuf },
    #[error("can't use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Landing(#[from] agency_landing::Error),
}

/// Where references went that no store had made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAsideRefs {
    pub count: usize,
    pub to: String,
}

/// How a repository came to its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdoptionSource {
    /// It had it already.
    Nothing,
    /// The store that the repository names was found, and moved along.
    Store,
    /// What the repository's references say is believed, by a new store.
    References,
}

impl StoreIdentity {
    /// The identity of a state folder, made at its first use.
    fn of(state: &Path, common: &Path) -> Result<Self, IdentityError> {
        let path = state.join(FILE);
        let failed = |source| IdentityError::Io { path: path.clone(), source };
        if let Some(known) = Self::read(state).map_err(failed)? {
            return Ok(known);
        }
        let made = Self { version: VERSION, id: nonce(), repository: common.to_owned() };
        made.create(&path).map_err(failed)?;
        // Another process may have been faster.
        Self::read(state).map_err(failed)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    fn read(state: &Path) -> io::Result<Option<Self>> {
        match fs::read(state.join(FILE)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whole and durable before it has its name, which only one gets.
    fn create(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension(format!("{}.new", self.id));
        durable::write(&draft, &serde_json::to_vec_pretty(self)?)?;
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => durable::sync_folder(path),
        }
    }
}

/// Whether a repository's references belong to the store in `state`. Nothing is changed.
pub fn is_confirmed(repository: &LandingRepository, state: &Path) -> bool {
    let known = StoreIdentity::read(state).ok().flatten();
    known.is_some_and(|known| matches!(store_ref::read_state(repository, &known.id), Ok(StoreRefState::Ours)))
}

/// Makes sure that a repository's references belong to the store in `state`. Says what it moved out of the way.
pub fn confirm(
    repository: &LandingRepository,
    state: &Path,
    common: &Path,
) -> Result<Option<SetAsideRefs>, IdentityError> {
    let id = StoreIdentity::of(state, common)?.id;
    match store_ref::read_state(repository, &id)? {
        StoreRefState::Ours => Ok(None),
        StoreRefState::Other { id, .. } => Err(IdentityError::OtherStore { id, state: state.to_owned() }),
        StoreRefState::Missing { others } => {
            let moved = match others {
                0 => None,
                _ => Some(store_ref::set_aside(repository, &id)?),
            };
            match store_ref::set(repository, &id, None) {
                // Another run of ours was faster.
                Err(_) if store_ref::read_state(repository, &id)? == StoreRefState::Ours => {}
                other => other?,
            }
            Ok(moved.map(|(count, to)| SetAsideRefs { count, to }))
        }
    }
}

/// Takes over the store that a repository names: its state folder, if it is here and its repository is gone from where
/// it was; else what its references say, with a store of its own.
pub fn adopt(
    repository: &LandingRepository,
    home: &StateHome,
    state: &StateFolder,
    common: &Path,
) -> Result<AdoptionSource, IdentityError> {
    let own = StoreIdentity::of(state.path(), common)?;
    let (named, from) = match store_ref::read_state(repository, &own.id)? {
        StoreRefState::Ours => return Ok(AdoptionSource::Nothing),
        StoreRefState::Other { id, at } => (Some(id), Some(at)),
        StoreRefState::Missing { .. } => (None, None),
    };
    if let Some(found) = named.and_then(|id| left_behind(home, &id)) {
        move_along(&found, state.path(), common)?;
        return Ok(AdoptionSource::Store);
    }
    store_ref::set(repository, &own.id, from)?;
    Ok(AdoptionSource::References)
}

/// The state folder of a store whose repository is not where it was made for.
fn left_behind(home: &StateHome, id: &str) -> Option<PathBuf> {
    let states =
        home.repositories().into_iter().filter_map(|path| Some((StoreIdentity::read(&path).ok()??, path)));
    let (identity, path) = states.into_iter().find(|(identity, _)| identity.id == id)?;
    let still_there = home.existing(&identity.repository).is_some_and(|state| state.path() == path);
    (!still_there).then_some(path)
}

/// Puts a store in the place of a new one, which nothing was done with yet.
fn move_along(found: &Path, place: &Path, common: &Path) -> Result<(), IdentityError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| IdentityError::Io { path, source }
    };
    if owner_lock::is_any_supervisor_alive(found) {
        return Err(IdentityError::InUse { state: found.to_owned() });
    }
    // Renamed over, it would have to be empty.
    let mut aside = place.as_os_str().to_owned();
    aside.push(".replaced");
    let aside = PathBuf::from(aside);
    fs::rename(place, &aside).map_err(failed(place))?;
    fs::rename(found, place).map_err(failed(found))?;
    agency_sandbox::erase::tree(&aside).map_err(failed(&aside))?;
    let identity = StoreIdentity::read(place).map_err(failed(place))?;
    let moved = identity.map(|identity| StoreIdentity { repository: common.to_owned(), ..identity });
    let text = serde_json::to_vec_pretty(&moved).map_err(io::Error::from).map_err(failed(place))?;
    durable::write(&place.join(FILE), &text).map_err(failed(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_whoever_asks() {
        let folder = tempfile::tempdir().expect("a folder");
        let ask = || StoreIdentity::of(folder.path(), Path::new("/r/.git")).expect("an identity");
        let all: Vec<StoreIdentity> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            asked.into_iter().map(|one| one.join().expect("joins")).collect()
        });
        assert!(all.iter().all(|one| *one == all[0] && one.id.len() == 32), "{all:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}
