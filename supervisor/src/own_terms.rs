//! The terms under which this supervisor is in charge.
//!
//! Along an attempt, terms only grow: the lease in git and the shims of the attempt obey the greater term, so that a
//! supervisor that was stopped and wakes up late changes nothing any more. A supervisor that takes an attempt over from
//! a newer supervisor therefore enters the store once more, and has one term more.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::attempt::{Lease, Term};
use crate::owner_lock::{self, OwnerLock};
use crate::store::{AttemptStore, AttemptStoreError};

/// Every term of this supervisor, the oldest first.
#[derive(Debug)]
pub(crate) struct OwnTerms {
    state: PathBuf,
    entered: Mutex<Vec<EnteredTerm>>,
}

#[derive(Debug)]
struct EnteredTerm {
    term: Term,
    /// Whether it had no lease when leases were last renewed. A claim that was under way then has ended since.
    was_idle: bool,
    /// Shows that the supervisor is alive.
    _lock: OwnerLock,
}

impl OwnTerms {
    /// Takes charge.
    pub(crate) async fn enter<S: AttemptStore>(store: &S, state: &Path) -> Result<Self, AttemptStoreError> {
        let terms = Self { state: state.to_owned(), entered: Mutex::default() };
        terms.enter_again(store).await?;
        Ok(terms)
    }

    /// The oldest first.
    pub(crate) fn all(&self) -> Vec<Term> {
        self.entered().iter().map(|entered| entered.term).collect()
    }

    pub(crate) fn contains(&self, term: Term) -> bool {
        self.entered().iter().any(|entered| entered.term == term)
    }

    /// The term for new attempts.
    pub(crate) fn newest(&self) -> Term {
        self.entered().last().map_or(Term(0), |entered| entered.term)
    }

    /// A term greater than another supervisor's.
    pub(crate) async fn above<S: AttemptStore>(
        &self,
        other: Term,
        store: &S,
    ) -> Result<Term, AttemptStoreError> {
        if self.newest() <= other {
            self.enter_again(store).await?;
        }
        Ok(self.newest())
    }

    /// Renews the leases of every term. An older term without leases is given up: only the newest gets any.
    pub(crate) async fn renew<S: AttemptStore>(
        &self,
        store: &S,
        ttl: std::time::Duration,
    ) -> Result<Vec<Lease>, AttemptStoreError> {
        let mut leases = Vec::new();
        for term in self.all() {
            let renewed = store.renew(term, ttl).await?;
            if self.is_spent(term, renewed.is_empty()) {
                store.leave(term).await?;
                self.entered().retain(|entered| entered.term != term);
            }
            leases.extend(renewed);
        }
        Ok(leases)
    }

    /// Whether an older term has had no lease twice.
    fn is_spent(&self, term: Term, is_idle: bool) -> bool {
        let newest = self.newest();
        let mut entered = self.entered();
        let Some(own) = entered.iter_mut().find(|own| own.term == term) else { return false };
        let was_idle = std::mem::replace(&mut own.was_idle, is_idle);
        is_idle && was_idle && term < newest
    }

    /// Gives up every term. The locks stay until [`release`](Self::release).
    pub(crate) async fn leave<S: AttemptStore>(&self, store: &S) -> Result<(), AttemptStoreError> {
        for term in self.all() {
            store.leave(term).await?;
        }
        Ok(())
    }

    /// Removes the locks: other supervisors see that this one is gone.
    pub(crate) fn release(&self) {
        self.entered().clear();
    }

    async fn enter_again<S: AttemptStore>(&self, store: &S) -> Result<(), AttemptStoreError> {
        let term = store.enter(&owner_lock::this_process()).await?;
        // Other supervisors see the lock before this one holds any lease under the term.
        let lock = OwnerLock::acquire(&self.state, term).map_err(|source| AttemptStoreError::Unusable {
            path: self.state.display().to_string(),
            source: source.into(),
        })?;
        self.entered().push(EnteredTerm { term, was_idle: false, _lock: lock });
        Ok(())
    }

    /// The terms of a supervisor that entered before.
    #[cfg(test)]
    pub(crate) fn sample(state: &Path, term: Term) -> Self {
        let lock = OwnerLock::acquire(state, term).expect("a lock");
        Self {
            state: state.to_owned(),
            entered: Mutex::new(vec![EnteredTerm { term, was_idle: false, _lock: lock }]),
        }
    }

    fn entered(&self) -> MutexGuard<'_, Vec<EnteredTerm>> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::attempt::{Epoch, TaskKey};
    use crate::store::sqlite::open_store;
    use crate::store::{ClaimRequest, ClaimResult};

    const TTL: Duration = Duration::from_secs(60);

    #[test]
    fn a_term_above_another_is_entered_once_and_an_idle_one_is_given_up() {
        let state = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = open_store(state.path()).await.expect("a store");
            let older = OwnTerms::enter(&store, state.path()).await.expect("entered");
            let newer = OwnTerms::enter(&store, state.path()).await.expect("entered");
            let task = TaskKey { protocol: "kodingx".to_owned(), id: "T0001".to_owned() };
            let claim =
                ClaimRequest { task: &task, title: "A task", agent: "shell", after: None, beyond: Epoch(0) };
            let claimed = store.claim(&claim, newer.newest(), TTL).await.expect("claimed");
            let ClaimResult::Held(lease) = claimed else { panic!("{claimed:?}") };
            let term = older.above(lease.term, &store).await.expect("a term");
            assert!(term > lease.term && older.contains(term) && older.newest() == term);
            assert_eq!(older.above(lease.term, &store).await.expect("the same"), term);
            let adopted = store.adopt(&lease, term, TTL).await.expect("asked").expect("adopted");
            // The first term is idle, once and then again.
            for terms in [2, 1] {
                assert_eq!(older.renew(&store, TTL).await.expect("renewed"), std::slice::from_ref(&adopted));
                assert_eq!(older.all().len(), terms);
            }
            assert!(newer.renew(&store, TTL).await.expect("renewed").is_empty());
            assert_eq!(newer.all().len(), 1, "the newest is kept");
            older.leave(&store).await.expect("left");
            older.release();
            assert!(owner_lock::is_dead(state.path(), term, &owner_lock::this_process()));
        });
    }
}
