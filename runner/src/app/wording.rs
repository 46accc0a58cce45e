//! Words for phases and outcomes of attempts, used by `run`, `status` and the live view.

use agency_supervisor::attempt::{AttemptEnd, ParkDetails, Phase};
use agency_supervisor::dispatch::TaskResult;

use crate::app::plain_line;
use crate::app::units;

/// The most characters of an outcome in a list.
const LONGEST_OUTCOME: usize = 300;

/// What an attempt is at, for people. A phase is what is certain, and this is what follows from it.
pub(crate) fn phase_label(phase: &Phase) -> &'static str {
    match phase {
        Phase::Claimed => "preparing",
        Phase::Started => "working",
        Phase::Ended(_) => "collecting",
        Phase::Auditing(_) => "auditing",
        Phase::Undecided { .. } => "undecided",
        Phase::Audited { .. } => "merging",
        Phase::Merged(_) => "verifying",
        Phase::Proved { .. } => "landing",
        Phase::Landed { .. } => "finishing",
        Phase::Over(_) => "over",
    }
}

/// The result of a task, after its name.
pub(crate) fn fate_text(fate: &TaskResult) -> String {
    match fate {
        TaskResult::Ended(AttemptEnd::Done { commit }) => format!("done, {}", short_commit(commit)),
        TaskResult::Ended(AttemptEnd::Kept { candidate }) => {
            format!("verified and kept, {}", short_commit(candidate))
        }
        TaskResult::Ended(AttemptEnd::Blocked { reason }) => format!("blocked: {reason}"),
        TaskResult::Ended(AttemptEnd::Failed { failure, given_up }) => {
            let log = failure.log.as_ref();
            let log = log.map_or_else(String::new, |log| format!(" (log: {})", log.display()));
            format!("failed: {}{}{log}", failure.reason, given_up.as_deref().unwrap_or_default())
        }
        TaskResult::Ended(AttemptEnd::Lost { reason }) => format!("lost: {reason}"),
        TaskResult::Ended(AttemptEnd::Parked(parked)) => put_off(parked),
        TaskResult::Ended(AttemptEnd::Canceled) => "canceled".to_owned(),
        TaskResult::Waits(why) => format!("waits: {why}"),
        TaskResult::Open => "is still open; `agency run` takes it up again".to_owned(),
    }
}

/// How an attempt ended, for a list of attempts. `None` while it goes on.
pub(crate) fn outcome_text(phase: &Phase) -> Option<String> {
    let Phase::Over(ending) = phase else { return None };
    let text = match ending {
        AttemptEnd::Done { commit } => format!("landed as {}", short_commit(commit)),
        other => fate_text(&TaskResult::Ended(other.clone())),
    };
    Some(plain_line::line(&text, LONGEST_OUTCOME))
}

/// An attempt that does not count, because its agent could not work.
fn put_off(parked: &ParkDetails) -> String {
    match parked.until {
        Some(until) => format!("put off until {}: {}", units::local_time(until), parked.reason),
        None => format!("put off: {}", parked.reason),
    }
}

/// A commit as people name it.
pub(crate) fn short_commit(commit: &str) -> &str {
    &commit[..commit.floor_char_boundary(12)]
}
