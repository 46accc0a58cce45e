//! What is done with the changes: judged, then applied, written as a patch or discarded.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use agency_sandbox::git::IsolatedGit;
use agency_sandbox::harvest::apply::{self, ApplyRecovery, ApplyRequest, FileClockTime};
use agency_sandbox::harvest::{Harvest, patch};
use agency_sandbox::launch::LaunchOutcome;
use agency_sandbox::policy::Policy;
use agency_sandbox::session::SandboxSession;
use agency_sandbox::supervise::CommandExit;
use agency_sandbox::workspace::state::StateFolder;

use crate::app::error::{CommandError, ErrorKind};
use crate::app::front_end::FrontEnd;
use crate::app::sandbox::{KeptChanges, sandbox_failed};

/// What was done with the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ChangesOutcome {
    /// Thrown away, as asked.
    Discarded,
    Applied,
    Patched,
    /// Thrown away, because something was out of scope.
    Refused,
    /// Thrown away, because the command was stopped before it had ended.
    Unfinished,
}

/// A run that is over, and what is needed to deal with what it left.
#[derive(Debug)]
pub(super) struct FinishedRun<'a> {
    pub(super) keep: &'a KeptChanges,
    pub(super) policy: &'a Policy,
    pub(super) session: &'a SandboxSession,
    pub(super) state: &'a StateFolder,
    pub(super) outcome: &'a LaunchOutcome,
    pub(super) live: OwnedFd,
}

impl FinishedRun<'_> {
    /// Every change, judged by the exact scope.
    pub(super) fn judge(&self) -> Result<Harvest, CommandError> {
        self.session.ground.harvest(self.outcome.upper.as_fd(), self.policy).map_err(sandbox_failed)
    }

    /// Applies the changes, writes the patch or discards.
    pub(super) fn settle(
        &self,
        judged: &Harvest,
        started: Option<FileClockTime>,
    ) -> Result<ChangesOutcome, CommandError> {
        if !judged.is_clean() {
            return Ok(ChangesOutcome::Refused);
        }
        if *self.keep == KeptChanges::None {
            return Ok(ChangesOutcome::Discarded);
        }
        if !matches!(self.outcome.end, CommandExit::Exited(_)) {
            return Ok(ChangesOutcome::Unfinished);
        }
        match (self.keep, started) {
            (KeptChanges::Patch(file), _) => self.write_patch(file, judged).map(|()| ChangesOutcome::Patched),
            (KeptChanges::Apply, Some(started)) => {
                self.apply(judged, started).map(|()| ChangesOutcome::Applied)
            }
            (KeptChanges::Apply, None) | (KeptChanges::None, _) => Ok(ChangesOutcome::Discarded),
        }
    }

    fn apply(&self, judged: &Harvest, started: FileClockTime) -> Result<(), CommandError> {
        let journal = self.state.folder(JOURNAL).map_err(sandbox_failed)?;
        let journal = open_folder(&journal)?;
        let work = ApplyRequest {
            changes: &judged.changes,
            upper: self.outcome.upper.as_fd(),
            live: self.live.as_fd(),
            started,
            journal: journal.as_fd(),
        };
        apply::apply(&work).map_err(sandbox_failed)
    }

    /// Written beside its place and renamed: a patch is there whole or not at all.
    fn write_patch(&self, file: &Path, judged: &Harvest) -> Result<(), CommandError> {
        let failed = |error: std::io::Error| {
            CommandError::new_message(
                ErrorKind::SandboxFailed,
                format!("can't write {}: {error}", file.display()),
            )
        };
        self.session.run().make().map_err(sandbox_failed)?;
        let git = IsolatedGit::create(Path::new("git"), &self.session.run().path().join("git"))
            .map_err(sandbox_failed)?;
        let base = self.session.ground.base().map_err(sandbox_failed)?;
        let mut beside = file.as_os_str().to_owned();
        beside.push(format!(".agency-{}", std::process::id()));
        let mut out = BufWriter::new(File::create(&beside).map_err(failed)?);
        patch::write(&git, &judged.changes, self.outcome.upper.as_fd(), &base, &mut out)
            .map_err(sandbox_failed)?;
        out.flush().map_err(failed)?;
        out.get_ref().sync_all().map_err(failed)?;
        std::fs::rename(&beside, file).map_err(failed)
    }
}

/// Where an apply that a crash interrupted is found again.
const JOURNAL: &str = "apply";

/// Finishes or undoes an apply that a crash interrupted.
pub(super) fn recover(
    state: &StateFolder,
    live: BorrowedFd<'_>,
    front_end: &dyn FrontEnd,
) -> Result<(), CommandError> {
    let path = state.path().join(JOURNAL);
    if !path.is_dir() {
        return Ok(());
    }
    let journal = open_folder(&path)?;
    match apply::recover(journal.as_fd(), live).map_err(sandbox_failed)? {
        ApplyRecovery::Nothing => {}
        ApplyRecovery::Finished => {
            front_end.notice("finished applying the changes of an earlier run that was interrupted");
        }
        ApplyRecovery::RolledBack { kept } if kept.is_empty() => {
            front_end
                .notice("took back the changes of an earlier run that was interrupted while applying them");
        }
        ApplyRecovery::RolledBack { kept } => {
            let kept = kept.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            front_end.notice(&format!(
                "took back the changes of an earlier run that was interrupted, but not {kept}: changed since; the originals are in {}",
                path.display()
            ));
        }
    }
    Ok(())
}

pub(super) fn open_folder(path: &Path) -> Result<OwnedFd, CommandError> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(
        |error| {
            CommandError::new_message(
                ErrorKind::SandboxFailed,
                format!("can't open {}: {error}", path.display()),
            )
        },
    )
}
