//! Work on its way to a branch, each on top of the one before.
//!
//! Work is verified as it will land, so only one can be verified on the branch as it is. Waiting for each other
//! would make the slowest check delay all. Instead, the next work is merged on top of what is about to land,
//! and verified there at the same time. If what is ahead lands, it has been verified exactly where it lands; if it
//! does not, the work on top of it is merged and verified again.
//!
//! This is a hint, and kept in memory only: what may land is decided by the references, each time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::attempt::TaskKey;

/// What is on its way to one branch.
#[derive(Debug, Default)]
pub(crate) struct Train {
    cars: Mutex<Vec<TrainCar>>,
    moved: Notify,
    /// Merging is done one at a time: each needs to know what it is merged with.
    pub(crate) coupling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct TrainCar {
    task: TaskKey,
    /// What it stands on: the branch, or the commit of another car.
    onto: String,
    commit: String,
    /// What it stands on does not come.
    broken: bool,
}

/// The result of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrainTurn {
    /// Nothing that it stands on is still on its way.
    Yours,
    /// What it was merged with does not come: it has to be merged again.
    Broken,
}

/// What was on its way at a moment: what each stands on, and its commit.
#[derive(Debug, Clone)]
pub(crate) struct TrainSnapshot(Vec<(String, String)>);

impl TrainSnapshot {
    /// The commit that the next work is merged with, on a branch that is here: the last that stands on it, or the
    /// branch itself.
    ///
    /// What stands on something else will not land as it is, and may even have the work in it that is to be merged.
    pub(crate) fn last<'a>(&'a self, tip: &'a str) -> &'a str {
        let (mut last, mut firm) = (tip, HashSet::from([tip]));
        for (onto, commit) in &self.0 {
            if firm.contains(onto.as_str()) {
                firm.insert(commit);
                last = commit;
            }
        }
        last
    }
}

impl Train {
    fn cars(&self) -> MutexGuard<'_, Vec<TrainCar>> {
        self.cars.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is on its way now. It is looked at before the branch is: what lands between the two is then seen twice,
    /// and never missed.
    pub(crate) fn snapshot(&self) -> TrainSnapshot {
        let whole = |car: &&TrainCar| !car.broken;
        TrainSnapshot(
            self.cars().iter().filter(whole).map(|car| (car.onto.clone(), car.commit.clone())).collect(),
        )
    }

    /// Joins with a commit that stands on another, ahead of those that stand on it. Work that was contained there has
    /// the same one.
    pub(crate) fn join(&self, task: &TaskKey, onto: &str, commit: &str) {
        let mut cars = self.cars();
        cars.retain(|car| car.task != *task);
        let stands_on_it = |car: &TrainCar| car.onto == commit && commit != onto;
        let place = cars.iter().position(stands_on_it).unwrap_or(cars.len());
        let (onto, commit) = (onto.to_owned(), commit.to_owned());
        cars.insert(place, TrainCar { task: task.clone(), onto, commit, broken: false });
    }

    /// Waits until what it stands on has landed or gone.
    pub(crate) async fn wait_for_turn(&self, task: &TaskKey) -> TrainTurn {
        loop {
            let moved = self.moved.notified();
            {
                let cars = self.cars();
                // Not from here: what it is merged with is seen when it lands.
                let Some(place) = cars.iter().position(|car| car.task == *task) else {
                    return TrainTurn::Yours;
                };
                let car = &cars[place];
                if car.broken {
                    return TrainTurn::Broken;
                }
                // It waits only for work ahead of it, so work never waits in a circle.
                if !cars[..place].iter().any(|ahead| ahead.commit == car.onto) {
                    return TrainTurn::Yours;
                }
            }
            moved.await;
        }
    }

    /// Leaves, landed or not. Those that stand on what did not land have to be merged again, and those on them.
    pub(crate) fn leave(&self, task: &TaskKey, landed: bool) {
        let mut cars = self.cars();
        if let Some(at) = cars.iter().position(|car| car.task == *task) {
            let gone = cars.remove(at);
            let mut missing = HashSet::from([gone.commit]);
            // In their order: a car that stands on another is behind it.
            for car in cars.iter_mut().filter(|_| !landed) {
                if missing.contains(&car.onto) {
                    car.broken = true;
                    missing.insert(car.commit.clone());
                }
            }
        }
        drop(cars);
        self.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str) -> TaskKey {
        TaskKey { protocol: "kodingx".into(), id: id.into() }
    }

    /// Every car stands on the one before.
    fn train(cars: &[(&str, &str, &str)]) -> Train {
        let train = Train::default();
        cars.iter().for_each(|(id, onto, commit)| train.join(&task(id), onto, commit));
        train
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_is_behind_waits_until_who_is_ahead_has_landed() {
        let train = train(&[("1", "tip", "a"), ("2", "a", "b")]);
        assert_eq!(train.snapshot().last("tip"), "b");
        let second = task("2");
        let waiting = train.wait_for_turn(&second);
        let landing = async {
            assert_eq!(train.wait_for_turn(&task("1")).await, TrainTurn::Yours);
            train.leave(&task("1"), true);
        };
        let (turn, ()) = tokio::join!(waiting, landing);
        assert_eq!(turn, TrainTurn::Yours);
        assert_eq!(train.snapshot().last("a"), "b");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_stands_on_something_that_fails_is_merged_again_and_nobody_else_is() {
        let train =
            train(&[("1", "tip", "a"), ("2", "a", "b"), ("3", "b", "c"), ("4", "c", "d"), ("5", "a", "e")]);
        train.leave(&task("2"), false);
        assert_eq!(train.wait_for_turn(&task("1")).await, TrainTurn::Yours);
        assert_eq!(train.wait_for_turn(&task("3")).await, TrainTurn::Broken);
        assert_eq!(train.wait_for_turn(&task("4")).await, TrainTurn::Broken);
        assert_eq!(train.snapshot().last("tip"), "e");
        // When the first of those is merged again, it breaks no other.
        train.leave(&task("3"), false);
        train.join(&task("3"), "e", "f");
        train.leave(&task("1"), true);
        assert_eq!(train.wait_for_turn(&task("5")).await, TrainTurn::Yours);
        train.leave(&task("5"), true);
        assert_eq!(train.wait_for_turn(&task("3")).await, TrainTurn::Yours);
        assert_eq!(train.wait_for_turn(&task("never joined")).await, TrainTurn::Yours);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn those_that_are_contained_in_the_same_do_not_wait_for_each_other() {
        let train = train(&[("1", "tip", "a"), ("2", "a", "a"), ("3", "a", "a")]);
        train.leave(&task("1"), true);
        assert_eq!(train.wait_for_turn(&task("2")).await, TrainTurn::Yours);
        train.leave(&task("2"), true);
        assert_eq!(train.wait_for_turn(&task("3")).await, TrainTurn::Yours);
    }

    #[test]
    fn nobody_is_merged_with_what_can_not_land_as_it_is() {
        // Merged by another run before us, on a branch that has moved since.
        let train = train(&[("1", "old", "a"), ("2", "a", "b"), ("3", "tip", "c"), ("4", "b", "d")]);
        assert_eq!(train.snapshot().last("tip"), "c");
        assert_eq!(train.snapshot().last("another"), "another");
        // What landed a moment ago is still seen.
        assert_eq!(train.snapshot().last("a"), "d");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_joins_late_is_ahead_of_those_that_stand_on_it() {
        let train = train(&[("3", "b", "c"), ("2", "a", "b"), ("1", "tip", "a")]);
        assert_eq!(train.snapshot().last("tip"), "c");
        for id in ["1", "2", "3"] {
            assert_eq!(train.wait_for_turn(&task(id)).await, TrainTurn::Yours);
            train.leave(&task(id), true);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_has_nothing_to_add_waits_for_what_has_it_all() {
        let train = train(&[("1", "tip", "a"), ("2", "a", "a")]);
        let second = task("2");
        let waiting = train.wait_for_turn(&second);
        let landing = async { train.leave(&task("1"), false) };
        let (turn, ()) = tokio::join!(waiting, landing);
        assert_eq!(turn, TrainTurn::Broken);
    }
}
