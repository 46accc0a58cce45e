//! The place of whoever is at work on an attempt ([`crate::roster`]): had by one that works, waited for by one that is to
//! begin, and kept with one that works on while nobody looks after its attempt.

use super::next::Next;
use super::{Life, LifeError, odd};
use crate::attempt::{Attempt, Auditing, Phase};
use crate::errand::{Place, Standing};
use crate::roster::{Duty, Seat};
use crate::store::Store;

/// An agent at work that nobody looks after at the moment. It has its place for as long as it is.
#[derive(Debug)]
pub(crate) struct Left {
    place: Place,
    pub(crate) seat: Seat,
}

impl Left {
    /// Whether it is known to be. Nobody waits for a place that may never be free.
    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.place.standing(), Ok(Standing::Alive))
    }
}

/// Who is at work on an attempt, or is to be next, and at what.
fn worker<'a>(attempt: &'a Attempt, next: &Next) -> Option<(&'a str, Duty)> {
    match (&attempt.phase, next) {
        (Phase::Claimed | Phase::Started, Next::Begin | Next::Send | Next::Await) => {
            Some((&attempt.agent, Duty::Build))
        }
        (Phase::Auditing(Auditing { audit, .. }), Next::Ask | Next::Await) => {
            Some((&audit.auditor, Duty::Judge))
        }
        _ => None,
    }
}

impl<S: Store> Life<'_, S> {
    /// Whoever is at work has a place, whether we began it or found it; nobody else keeps one. Who is yet to begin
    /// waits for one then.
    pub(super) fn take_place(&mut self, next: &Next) {
        let worker = worker(&self.attempt, next);
        self.seat = self
            .seat
            .take()
            .filter(|seat| worker.is_some_and(|(agent, duty)| seat.is_for(agent, duty)))
            .or_else(|| {
                let (agent, duty) = worker.filter(|_| *next == Next::Await)?;
                Some(self.shop.roster.found(agent, duty))
            });
    }

    /// Who is still at work when nothing more can be done about it now.
    pub(super) fn left(mut self) -> Option<Left> {
        if !self.is_at_work().is_ok_and(|at_work| at_work) {
            return None;
        }
        // What was in the way may have come before anybody looked.
        self.take_place(&Next::Await);
        let place = self.current_place();
        self.seat.map(|seat| Left { place, seat })
    }

    /// Waits until one more of an agent may be at work; `false` if somebody wants something else meanwhile.
    pub(super) async fn wait_for_place(&mut self, agent: &str, duty: Duty) -> Result<bool, LifeError> {
        if self.seat.is_some() {
            return Ok(true);
        }
        tokio::select! {
            // Whoever has a wish is heard before anything is begun.
            biased;
            changed = self.wanted.changed() => match changed {
                Ok(()) => Ok(false),
                Err(_) => Err(odd("nobody is in charge of this attempt any more")),
            },
            seat = self.shop.roster.wait(agent, duty) => {
                self.seat = Some(seat);
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Audit, Work};

    #[test]
    fn a_place_is_for_who_is_at_work_or_about_to_be() {
        let work = Work { base: "a".into(), candidate: "b".into() };
        let audit = Audit { auditor: "judge".into(), number: 1, answer: None };
        let auditing = Phase::Auditing(Auditing { work, audit, unheard: 0, why: None, put_off: 0 });
        let of = |phase: &Phase, next| {
            worker(&Attempt::sample("T1", "builder", phase.clone()), &next)
                .map(|(agent, duty)| (agent.to_owned(), duty))
        };
        let (building, judging) =
            (Some(("builder".to_owned(), Duty::Build)), Some(("judge".to_owned(), Duty::Judge)));
        assert_eq!(of(&Phase::Claimed, Next::Begin), building);
        assert_eq!(of(&Phase::Started, Next::Send), building);
        assert_eq!(of(&Phase::Started, Next::Await), building);
        assert_eq!(of(&auditing, Next::Ask), judging);
        assert_eq!(of(&auditing, Next::Await), judging);
        let over = [(Phase::Started, Next::Collect), (Phase::Claimed, Next::Settle), (auditing, Next::Heed)];
        for (phase, next) in over {
            assert_eq!(of(&phase, next), None, "its agent is not at work");
        }
    }
}
