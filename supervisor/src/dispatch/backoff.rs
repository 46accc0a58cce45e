//! How long a task that failed waits for its next attempt.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::attempt::{Epoch, TaskKey};

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);

/// Twice as long each time, and a little more or less for each task: those that failed together do not come back
/// together.
pub(super) fn pause(first: Duration, failures: u32, task: &TaskKey, epoch: Epoch) -> Duration {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST);
    let mut hasher = DefaultHasher::new();
    (task, epoch).hash(&mut hasher);
    let percent = 75 + u32::try_from(hasher.finish() % 51).unwrap_or(25);
    doubled * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_waits_longer_up_to_a_bound_and_never_exactly_like_another() {
        let task = |id: &str| TaskKey { protocol: "kodingx".into(), id: id.into() };
        let first = Duration::from_secs(4);
        let wait = |failures, id: &str| pause(first, failures, &task(id), Epoch(1));
        for (failures, seconds) in [(1, 4), (2, 8), (3, 16), (30, 300)] {
            let waited = wait(failures, "T1").as_secs_f64() / f64::from(seconds);
            assert!((0.75..=1.25).contains(&waited), "{failures}: {waited}");
        }
        let several: std::collections::HashSet<_> = (0..50).map(|n| wait(1, &format!("T{n}"))).collect();
        assert!(several.len() > 10);
    }
}
