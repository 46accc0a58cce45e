//! What becomes of the changes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use agency_sandbox::git::OwnGit;
use agency_sandbox::harvest::apply::{self, Apply, Mark, Recovery};
use agency_sandbox::harvest::{Harvest, patch};
use agency_sandbox::launch::Outcome;
use agency_sandbox::policy::Policy;
use agency_sandbox::supervise::End;
use agency_sandbox::workspace::ground::Ground;
use agency_sandbox::workspace::state::{Run, State};

use crate::arguments::Sandbox;
use crate::message::{self, Failure, OWN_FAILURE};

/// What became of the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Settled {
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
pub(super) struct Work<'a> {
    pub(super) command: &'a Sandbox,
    pub(super) policy: &'a Policy,
    pub(super) ground: &'a Ground,
    pub(super) run: &'a Run,
    pub(super) state: &'a State,
    pub(super) outcome: &'a Outcome,
    pub(super) live: OwnedFd,
}

impl Work<'_> {
    /// Every change, judged by the exact scope.
    pub(super) fn judge(&self) -> Result<Harvest, Failure> {
        self.ground.harvest(self.outcome.upper.as_fd(), self.policy).map_err(super::own_failure)
    }

    /// Applies, writes or throws away.
    pub(super) fn settle(&self, judged: &Harvest, started: Option<Mark>) -> Result<Settled, Failure> {
        if !judged.is_clean() {
            return Ok(Settled::Refused);
        }
        let wanted = self.command.apply || self.command.patch.is_some();
        if !wanted {
            return Ok(Settled::Discarded);
        }
        if !matches!(self.outcome.end, End::Exited(_)) {
            return Ok(Settled::Unfinished);
        }
        match (&self.command.patch, started) {
            (Some(file), _) => self.write_patch(file, judged).map(|()| Settled::Patched),
            (None, Some(started)) => self.apply(judged, started).map(|()| Settled::Applied),
            (None, None) => Ok(Settled::Discarded),
        }
    }

    fn apply(&self, judged: &Harvest, started: Mark) -> Result<(), Failure> {
        let journal = self.state.folder(JOURNAL).map_err(super::own_failure)?;
        let journal = open_folder(&journal)?;
        let work = Apply {
            changes: &judged.changes,
            upper: self.outcome.upper.as_fd(),
            live: self.live.as_fd(),
            started,
            journal: journal.as_fd(),
        };
        apply::apply(&work).map_err(super::own_failure)
    }

    /// Written beside its place and renamed: a patch is there whole or not at all.
    fn write_patch(&self, file: &Path, judged: &Harvest) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::new_message(OWN_FAILURE, format!("can't write {}: {error}", file.display()))
        };
        self.run.make().map_err(super::own_failure)?;
        let git =
            OwnGit::create(Path::new("git"), &self.run.path().join("git")).map_err(super::own_failure)?;
        let base = self.ground.base().map_err(super::own_failure)?;
        let mut beside = file.as_os_str().to_owned();
        beside.push(format!(".agency-{}", std::process::id()));
        let mut out = BufWriter::new(File::create(&beside).map_err(failed)?);
        patch::write(&git, &judged.changes, self.outcome.upper.as_fd(), &base, &mut out)
            .map_err(super::own_failure)?;
        out.flush().map_err(failed)?;
        out.get_ref().sync_all().map_err(failed)?;
        std::fs::rename(&beside, file).map_err(failed)
    }
}

/// Where an apply that a crash interrupted is found again.
const JOURNAL: &str = "apply";

/// Finishes or undoes an apply that a crash interrupted.
pub(super) fn recover(state: &State, live: BorrowedFd<'_>) -> Result<(), Failure> {
    let path = state.path().join(JOURNAL);
    if !path.is_dir() {
        return Ok(());
    }
    let journal = open_folder(&path)?;
    match apply::recover(journal.as_fd(), live).map_err(super::own_failure)? {
        Recovery::Nothing => {}
        Recovery::Finished => {
            message::notice("finished applying the changes of an earlier run that was interrupted");
        }
        Recovery::RolledBack { kept } if kept.is_empty() => {
            message::notice(
                "took back the changes of an earlier run that was interrupted while applying them",
            );
        }
        Recovery::RolledBack { kept } => {
            let kept = kept.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            message::notice(&format!(
                "took back the changes of an earlier run that was interrupted, but not {kept}: changed since; the originals are in {}",
                path.display()
            ));
        }
    }
    Ok(())
}

pub(super) fn open_folder(path: &Path) -> Result<OwnedFd, Failure> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Failure::new_message(OWN_FAILURE, format!("can't open {}: {error}", path.display())))
}
