//! How much may be used, for a task and for a run. What is used up stops what would be started next; the time
//! that is left also bounds what is started.

use std::time::Duration;

use crate::attempt::UsageTotals;

/// What people are willing to spend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// For each task, all its attempts together.
    pub task: Allowance,
    /// For one run, all its tasks together.
    pub run: Allowance,
}

impl Budget {
    /// What an attempt counts for the run. `impossible` is the part of it that stands for claims of more than can be.
    ///
    /// If an agent claims the impossible, what it used is unknown. Its own task pays for all of it; the run, which
    /// others need, too, pays what the task was allowed, and nothing if no allowance is set.
    pub fn counts_for_the_run(&self, spent: UsageTotals, impossible: UsageTotals) -> UsageTotals {
        let part = |spent: u64, impossible: u64, allowed: Option<u64>| {
            spent.saturating_sub(impossible).saturating_add(impossible.min(spent).min(allowed.unwrap_or(0)))
        };
        UsageTotals {
            time_ms: spent.time_ms,
            tokens: part(spent.tokens, impossible.tokens, self.task.tokens),
            cost_micros: part(spent.cost_micros, impossible.cost_micros, self.task.cost_micros),
        }
    }
}

/// `None` is as much as it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowance {
    /// For a task, how long its agents are at work; for a run, how long it goes on.
    pub time: Option<Duration>,
    /// How many attempts are begun.
    pub attempts: Option<u64>,
    pub tokens: Option<u64>,
    pub cost_micros: Option<u64>,
}

impl Allowance {
    /// Whether there is nothing to count.
    pub fn is_boundless(&self) -> bool {
        *self == Self::default()
    }

    /// What is used up, in words.
    pub fn used_up(&self, spent: &UsageTotals, attempts: u64) -> Option<String> {
        let time = Duration::from_millis(spent.time_ms);
        if let Some(most) = self.time.filter(|most| time >= *most) {
            return Some(format!("{} of {}", seconds(time), seconds(most)));
        }
        let counts = [(self.attempts, attempts, "attempts"), (self.tokens, spent.tokens, "tokens")];
        for (most, used, what) in counts {
            if let Some(most) = most.filter(|most| used >= *most) {
                return Some(format!("{used} of {most} {what}"));
            }
        }
        let most = self.cost_micros.filter(|most| spent.cost_micros >= *most)?;
        Some(format!("a cost of {} of {}", money(spent.cost_micros), money(most)))
    }

    /// How much time is left; `None` is as much as it takes.
    pub fn time_left(&self, used: Duration) -> Option<Duration> {
        self.time.map(|most| most.saturating_sub(used))
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        whole if whole >= 60 && whole % 60 == 0 => format!("{} min", whole / 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn money(micros: u64) -> String {
    format!("{}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole() -> Allowance {
        Allowance {
            time: Some(Duration::from_secs(120)),
            attempts: Some(4),
            tokens: Some(1000),
            cost_micros: Some(2_500_000),
        }
    }

    fn spent(time_ms: u64, tokens: u64, cost_micros: u64) -> UsageTotals {
        UsageTotals { time_ms, tokens, cost_micros }
    }

    #[test]
    fn each_of_them_is_used_up_by_itself() {
        let left = whole();
        assert_eq!(left.used_up(&spent(119_999, 999, 2_499_999), 3), None);
        for (used, attempts, what) in [
            (spent(120_000, 0, 0), 0, "2 min of 2 min"),
            (spent(0, 0, 0), 4, "4 of 4 attempts"),
            (spent(0, 1200, 0), 0, "1200 of 1000 tokens"),
            (spent(0, 0, 2_600_000), 0, "a cost of 2.60 of 2.50"),
        ] {
            assert_eq!(left.used_up(&used, attempts).as_deref(), Some(what));
            assert_eq!(Allowance::default().used_up(&used, attempts), None, "nobody set a bound");
        }
    }

    #[test]
    fn a_claim_of_the_impossible_costs_the_run_what_its_task_was_allowed() {
        let (used, claim) = (spent(5, 1_000_300, 40), spent(0, 1_000_000, 0));
        let budget = Budget { task: whole(), run: Allowance::default() };
        assert_eq!(budget.counts_for_the_run(used, claim), spent(5, 1300, 40));
        assert_eq!(Budget::default().counts_for_the_run(used, claim), spent(5, 300, 40));
        let honest = UsageTotals::default();
        assert_eq!(budget.counts_for_the_run(used, honest), used, "what can be counts, whatever it is");
        assert!(budget.task.used_up(&used, 0).is_some(), "its own task pays");
    }

    proptest! {
        #[test]
        fn what_is_used_up_stays_so(time in any::<u64>(), tokens in any::<u64>(), cost in any::<u64>(), more in any::<u64>()) {
            let used = spent(time, tokens, cost);
            let mut further = used;
            further += spent(more, more, more);
            if whole().used_up(&used, 0).is_some() {
                prop_assert!(whole().used_up(&further, 0).is_some());
            }
        }
    }
}
