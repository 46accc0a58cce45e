//! A machine that lacks something: nothing new is started for a while, and it is tried again.

use std::time::Duration;

use super::action::{Actions, Moment, Question};
use super::queue::RunQueue;
use super::waiting::{Rest, Settling};
use crate::attempt::TaskKey;
use crate::clock::BootInstant;
use crate::driver::FaultDomain;
use crate::run_event::RunEvent;

/// How long nothing is started at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So often may an attempt lack something that others have.
const ALONE: u32 = 5;

/// What the machine lacked when it was last asked.
#[derive(Debug)]
pub(super) struct HostShortage {
    until: BootInstant,
    pause: Duration,
}

impl RunQueue {
    /// Whether nothing is started now. A disk is looked at before anything fails for want of room.
    pub(super) fn lacks(&self, now: BootInstant) -> bool {
        self.full || self.lack.as_ref().is_some_and(|lack| now < lack.until)
    }

    /// Something failed for want of something. It is said once, and nothing is started for a while.
    pub(super) fn note_shortage(
        &mut self,
        task: Option<&TaskKey>,
        what: &str,
        now: Moment,
        actions: &mut Actions,
    ) -> BootInstant {
        let pause = match &self.lack {
            Some(lack) => (lack.pause * 2).min(LONGEST_PAUSE),
            None => {
                let what = format!("{what}; nothing new is started until there is");
                actions.emit(RunEvent::Trouble { task: task.cloned(), what });
                FIRST_PAUSE
            }
        };
        let until = now.boot + pause;
        self.lack = Some(HostShortage { until, pause });
        until
    }

    /// What waits for room goes on by itself, and people should know what for.
    pub(super) fn disk_was_looked_at(&mut self, is_full: bool, actions: &mut Actions) {
        if is_full && !self.full {
            let state = self.settings.state.display();
            let what = format!("the disk is full at {state}; make room there, and it goes on");
            actions.emit(RunEvent::Trouble { task: None, what });
        }
        self.full = is_full;
    }

    /// Whether the run ends although it can't even ask what there is to do: its budget is used up, and no attempt runs.
    pub(super) fn is_out_of_time(&mut self, now: BootInstant, actions: &mut Actions) -> bool {
        let Some(used) = self.what_the_run_used_up(now) else { return false };
        if !self.used_up {
            self.end_for_want(&used, actions);
        }
        self.has_nothing_at_hand()
    }

    /// Takes up the attempts again that could not be read.
    pub(super) fn read_again(&mut self, now: BootInstant, actions: &mut Actions) {
        let unread: Vec<TaskKey> =
            self.unread.iter().filter(|key| !self.settling.contains_key(*key)).cloned().collect();
        for key in unread {
            let why = "what came of it could not be written down".to_owned();
            let rest = Rest { why, for_a_person: false, put_off: false, again_at: now };
            self.settling.insert(key.clone(), Settling::resting(rest, None));
            self.ask(Question::Reread { key }, actions);
        }
    }

    /// An attempt met a host fault. It counts for nothing, and is taken up again. One that lacks something again and
    /// again, while others do not, is in trouble of its own.
    pub(super) fn met_host_fault(&mut self, key: TaskKey, what: String, now: Moment, actions: &mut Actions) {
        let (since, alone) = self.lacked_alone.entry(key.clone()).or_insert((self.went_on, 0));
        if *since != self.went_on {
            (*since, *alone) = (self.went_on, *alone + 1);
        }
        if *alone >= ALONE {
            return self.abandon(key, FaultDomain::Attempt, what, actions);
        }
        let again_at = self.note_shortage(Some(&key), &what, now, actions);
        let rest = Rest { why: what, for_a_person: false, put_off: false, again_at };
        self.settling.insert(key.clone(), Settling::resting(rest, None));
        self.ask(Question::Reread { key }, actions);
    }

    /// Work went on, so it is there again.
    pub(super) fn lacks_nothing(&mut self, actions: &mut Actions) {
        self.went_on += 1;
        if self.lack.take().is_some() {
            actions.emit(RunEvent::Resumed);
        }
    }
}
