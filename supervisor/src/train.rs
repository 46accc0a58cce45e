//! Work on its way to a branch, each on top of the one before.
//!
//! Work is verified as it will land, so only one can be verified on the branch as it is. Waiting for each other
//! would make the slowest check everybody's. Instead, whoever comes next is merged on top of what is about to land,
//! and verified there at the same time. If everything ahead lands, it has been verified exactly where it lands; if
//! something ahead does not, those behind are merged and verified again.
//!
//! This is a hint, and kept in memory only: what may land is decided by the references, each time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::attempt::TaskKey;

/// What is on its way to one branch.
#[derive(Debug, Default)]
pub(crate) struct Train {
    cars: Mutex<VecDeque<Car>>,
    moved: Notify,
    /// Merging is done one at a time: each needs to know what it is merged with.
    pub(crate) coupling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Car {
    task: TaskKey,
    commit: String,
    /// Something ahead did not land.
    broken: bool,
}

/// What becomes of whoever waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing is ahead any more.
    Yours,
    /// What it was merged with does not come: it has to be merged again.
    Broken,
}

impl Train {
    fn cars(&self) -> MutexGuard<'_, VecDeque<Car>> {
        self.cars.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The commit that whoever comes now is merged with; `None` if that is the branch itself.
    pub(crate) fn last(&self) -> Option<String> {
        self.cars().back().filter(|car| !car.broken).map(|car| car.commit.clone())
    }

    /// Joins at the end, with a commit on top of [`Train::last`].
    pub(crate) fn join(&self, task: &TaskKey, commit: &str) {
        let mut cars = self.cars();
        cars.retain(|car| car.task != *task);
        cars.push_back(Car { task: task.clone(), commit: commit.to_owned(), broken: false });
    }

    /// Waits until nothing is ahead.
    pub(crate) async fn turn(&self, task: &TaskKey) -> Turn {
        loop {
            let moved = self.moved.notified();
            {
                let cars = self.cars();
                match cars.iter().position(|car| car.task == *task) {
                    // Not from here: what it is merged with is seen when it lands.
                    None => return Turn::Yours,
                    Some(at) if cars[at].broken => return Turn::Broken,
                    Some(0) => return Turn::Yours,
                    Some(_) => {}
                }
            }
            moved.await;
        }
    }

    /// Leaves, landed or not. Those behind who were merged with what did not land have to be merged again.
    pub(crate) fn leave(&self, task: &TaskKey, landed: bool) {
        let mut cars = self.cars();
        if let Some(at) = cars.iter().position(|car| car.task == *task) {
            cars.remove(at);
            if !landed {
                cars.iter_mut().skip(at).for_each(|car| car.broken = true);
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

    #[tokio::test(flavor = "current_thread")]
    async fn who_is_behind_waits_until_who_is_ahead_has_landed() {
        let train = Train::default();
        train.join(&task("1"), "a");
        assert_eq!(train.last().as_deref(), Some("a"));
        train.join(&task("2"), "b");
        let second = task("2");
        let waiting = train.turn(&second);
        let landing = async {
            assert_eq!(train.turn(&task("1")).await, Turn::Yours);
            train.leave(&task("1"), true);
        };
        let (turn, ()) = tokio::join!(waiting, landing);
        assert_eq!(turn, Turn::Yours);
        assert_eq!(train.last().as_deref(), Some("b"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_is_behind_something_that_fails_is_merged_again_and_who_is_ahead_is_not() {
        let train = Train::default();
        for (id, commit) in [("1", "a"), ("2", "b"), ("3", "c")] {
            train.join(&task(id), commit);
        }
        train.leave(&task("2"), false);
        assert_eq!(train.turn(&task("1")).await, Turn::Yours);
        assert_eq!(train.turn(&task("3")).await, Turn::Broken);
        assert_eq!(train.last(), None);
        train.leave(&task("3"), false);
        assert_eq!(train.last().as_deref(), Some("a"));
        train.join(&task("3"), "d");
        train.leave(&task("1"), true);
        assert_eq!(train.turn(&task("3")).await, Turn::Yours);
        assert_eq!(train.turn(&task("never joined")).await, Turn::Yours);
    }
}
