//! Whose attempts are whose: taking over what nobody looks after, and holding on to what is ours.

use std::collections::HashMap;

use super::{Dispatcher, RunError, TRY_EVERY};
use crate::attempt::{Attempt, Held};
use crate::clock::{BootClock, Clock, Instant};
use crate::errand::{Place, send};
use crate::notice::Notice;
use crate::owner;
use crate::store::Store;

impl<S: Store> Dispatcher<S> {
    /// Takes over what nobody looks after: of owners that are dead, or whose time is up.
    pub(super) async fn look_for_orphans(&mut self, now: Instant) -> Result<(), RunError> {
        if self.looked_for_orphans.is_some_and(|at| now.since(at) < TRY_EVERY) {
            return Ok(());
        }
        self.looked_for_orphans = Some(now);
        let open = self.shop.store.open().await?;
        let others: Vec<&Attempt> = open
            .iter()
            .filter(|attempt| attempt.task.protocol == self.shop.desk.protocol)
            .filter(|attempt| attempt.held.is_some_and(|held| held.term != self.shop.term))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let owners: HashMap<_, _> = self.shop.store.owners().await?.into_iter().collect();
        let time = self.shop.store.now().await?;
        let mut adopted = Vec::new();
        for attempt in others {
            let (Some(held), Some(lease)) = (attempt.held, attempt.lease()) else { continue };
            let dead = match owners.get(&held.term) {
                Some(owner) => owner::is_dead(&self.shop.settings.state, held.term, owner),
                None => true,
            };
            if !dead && held.until > time {
                self.taken.insert(attempt.task.clone());
                continue;
            }
            let ttl = self.shop.settings.leases.ttl;
            let Some(lease) = self.shop.store.adopt(&lease, self.shop.term, ttl).await? else { continue };
            let attempt =
                Attempt { held: Some(Held { term: lease.term, until: time + ttl }), ..attempt.clone() };
            self.taken.remove(&attempt.task);
            self.renew_shims(&attempt);
            self.shop.teller.tell(&Notice::Adopted { attempt: attempt.clone() });
            adopted.push(attempt);
        }
        // They may stand on each other: all of them are in their places before the first goes on.
        adopted.iter().for_each(|attempt| self.shop.rejoin(attempt));
        adopted.into_iter().for_each(|attempt| self.live(attempt, None));
        Ok(())
    }

    /// Puts the end of all our leases off, in the store and with every shim.
    pub(super) async fn heartbeat(&mut self) -> Result<(), RunError> {
        let leases = self.shop.store.renew(self.shop.term, self.shop.settings.leases.ttl).await?;
        for running in self.running.values() {
            let ours = running.attempt.lease().is_some_and(|lease| leases.contains(&lease));
            if ours {
                self.renew_shims(&running.attempt);
            }
        }
        Ok(())
    }

    /// Nobody waits for it: a shim that takes its time holds up only itself.
    fn renew_shims(&self, attempt: &Attempt) {
        let until = BootClock.now() + self.shop.settings.leases.ttl;
        let folder = self.shop.records(attempt);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (place, term) = (Place::new(entry.path()), self.shop.term);
            tokio::spawn(async move {
                // Whoever does not answer has nothing to be put off.
                if let Err(error) = send::renew(&place, term, until).await {
                    tracing::debug!(%error, "a shim does not answer");
                }
            });
        }
    }
}
