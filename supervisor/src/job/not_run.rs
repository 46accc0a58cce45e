//! Why a sandbox was not started, and whose fault that is.

use std::error::Error;

use agency_sandbox::error_chain;
use agency_sandbox::git::GitError;
use agency_sandbox::launch::LaunchError;

use super::outcome::JobResult;
use super::{JobFolder, setup};
use crate::host_fault::HostFault;

/// Why nothing was run, and what may help.
pub(super) fn not_run(place: &JobFolder, error: &(dyn Error + 'static)) -> JobResult {
    let reason = error_chain::on_one_line(error);
    if let Some(fault) = HostFault::of(error, place.path()) {
        return JobResult::NoRoom { reason: format!("{reason}; {fault}") };
    }
    let launch = error_chain::chain(error).find_map(|cause| cause.downcast_ref::<LaunchError>());
    match launch {
        Some(LaunchError::Lost { .. }) => JobResult::Lost { reason },
        // It was killed from outside: that is not the task's fault.
        Some(error) if error.is_early_end() => JobResult::Lost { reason },
        Some(error) if error.is_transient() => JobResult::Away { reason },
        _ if was_killed(error) => JobResult::Lost { reason },
        _ => JobResult::NotRun {
            reason,
            hint: launch.and_then(LaunchError::hint),
            of_setup: setup::is_of_setup(error),
        },
    }
}

/// Whether a git was killed. That is not the task's fault.
pub(super) fn was_killed(error: &(dyn Error + 'static)) -> bool {
    error_chain::chain(error).any(|cause| cause.downcast_ref::<GitError>().is_some_and(GitError::was_killed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_that_is_killed_is_not_the_tasks_fault() {
        use std::os::unix::process::ExitStatusExt;
        let folder = tempfile::tempdir().expect("a folder");
        let place = JobFolder::new(folder.path().to_owned());
        let ended = |status| GitError::Failed {
            command: "ls-tree".into(),
            status: std::process::ExitStatus::from_raw(status),
            message: String::new(),
        };
        assert!(matches!(not_run(&place, &ended(9)), JobResult::Lost { .. }));
        assert!(matches!(not_run(&place, &ended(11)), JobResult::NotRun { .. }));
        assert!(matches!(not_run(&place, &ended(128 << 8)), JobResult::NotRun { .. }), "an exit code");
    }
}
