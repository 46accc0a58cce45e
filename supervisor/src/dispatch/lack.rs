//! A machine that lacks something: nothing new is started for a while, and it is tried again.

use std::time::Duration;

use super::rest::Resting;
use super::{Dispatcher, RunError};
use crate::attempt::TaskKey;
use crate::causes;
use crate::clock::{BootClock, Clock, Instant};
use crate::host_fault::HostFault;
use crate::life::Blame;
use crate::notice::Notice;
use crate::store::Store;

/// How long nothing is started at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So often may an attempt lack something that others have.
const ALONE: u32 = 5;

/// What the machine lacked when it was last asked.
#[derive(Debug)]
pub(super) struct Lack {
    until: Instant,
    pause: Duration,
}

impl<S: Store> Dispatcher<S> {
    /// Whether nothing is started now. A disk is looked at before anything fails for want of room.
    pub(super) fn lacks(&self, now: Instant) -> bool {
        self.full || self.lack.as_ref().is_some_and(|lack| now < lack.until)
    }

    /// Something failed for want of something. It is said once, and nothing is started for a while.
    fn note(&mut self, task: Option<&TaskKey>, what: &str) -> Instant {
        let pause = match &self.lack {
            Some(lack) => (lack.pause * 2).min(LONGEST_PAUSE),
            None => {
                let what = format!("{what}; nothing new is started until there is");
                self.shop.teller.tell(&Notice::Trouble { task: task.cloned(), what });
                FIRST_PAUSE
            }
        };
        let until = BootClock.now() + pause;
        self.lack = Some(Lack { until, pause });
        until
    }

    /// The run itself met an error. One that is the machine's passes; every other ends the run.
    pub(super) fn outlast(&mut self, error: RunError) -> Result<(), RunError> {
        match HostFault::of(&error, &self.shop.settings.state) {
            Some(fault) => {
                self.note(None, &format!("{}; {fault}", causes::on_one_line(&error)));
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Whether the run ends although it can't even ask what there is to do: its budget is used up, and nobody works.
    pub(super) fn is_out_of_time(&mut self) -> bool {
        let Some(used) = self.what_the_run_used_up(BootClock.now()) else { return false };
        if !self.used_up {
            self.end_for_want(&used);
        }
        self.running.is_empty()
    }

    /// Takes up the attempts again that could not be read.
    pub(super) async fn read_again(&mut self, now: Instant) -> Result<(), RunError> {
        let unread: Vec<TaskKey> = self.unread.iter().cloned().collect();
        for key in unread {
            if let Some(attempt) = self.reread(&key).await? {
                let why = "what came of it could not be written down".to_owned();
                let resting = Resting { attempt, why, for_a_person: false, put_off: false, again_at: now };
                self.resting.insert(key.clone(), resting);
            }
            self.unread.remove(&key);
        }
        Ok(())
    }

    /// An attempt met a host fault. It counts for nothing, and is taken up again. One that lacks something again and
    /// again, while others do not, is in trouble of its own.
    pub(super) async fn met_host_fault(&mut self, key: TaskKey, what: String) -> Result<(), RunError> {
        let (since, alone) = self.lacked_alone.entry(key.clone()).or_insert((self.went_on, 0));
        if *since != self.went_on {
            (*since, *alone) = (self.went_on, *alone + 1);
        }
        if *alone >= ALONE {
            return self.set_aside(key, Blame::Attempt, what).await;
        }
        let until = self.note(Some(&key), &what);
        if let Some(attempt) = self.reread(&key).await? {
            let resting =
                Resting { attempt, why: what, for_a_person: false, put_off: false, again_at: until };
            self.resting.insert(key, resting);
        }
        Ok(())
    }

    /// Work went on, so it is there again.
    pub(super) fn lacks_nothing(&mut self) {
        self.went_on += 1;
        if self.lack.take().is_some() {
            self.shop.teller.tell(&Notice::Resumed);
        }
    }
}
