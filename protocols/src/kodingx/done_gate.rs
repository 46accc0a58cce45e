//! §9.2: the gate of DONE. It takes a report, and a verification that passed or that a person overrode.

use jiff::Zoned;

use super::KodingX;
use super::artifact::DoneObstacle;
use super::layout::BoardFileKind;
use super::report::ReportStatus;
use crate::board::BoardError;
use crate::names::TaskId;
use crate::store::tree::RepoTree;

/// What the gate of DONE has to go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DoneGate {
    /// Files that anybody may have written: the report and the time of the artifact are judged too.
    Claimed,
    /// A proof that the engine made of the very commit that landed. A report from outside of a run may have any time.
    Landed,
}

impl KodingX {
    pub(super) fn check_done_gate(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        gate: DoneGate,
        now: &Zoned,
    ) -> Result<(), BoardError> {
        let refused = |why: &dyn std::fmt::Display| BoardError::refused(format!("{id} can't be DONE: {why}"));
        let (reports, findings) = self.reports(tree, id)?;
        let Some(report) = reports.last() else {
            if let Some(finding) = findings.iter().find(|finding| finding.is_error()) {
                return Err(refused(&format!("its report can't be read: {finding}")));
            }
            return Err(refused(&"there is no report on it (§18)").with_hint(format!(
                "a report belongs to {}/AGENT/DATE/",
                BoardFileKind::Report.folders()[0]
            )));
        };
        if gate == DoneGate::Claimed && report.value.status == ReportStatus::Blocked {
            let path = &report.place.path;
            return Err(refused(&format!("its last report says BLOCKED (§3.5), see {path}")).with_hint(
                format!("agency task move {id} IN_PROGRESS --reason … gives it back to its builder"),
            ));
        }
        self.no_open_p0(tree, &self.find(tree, id)?.value)?;
        let Some(artifact) = self.artifact(tree, id)? else {
            return Err(
                refused(&"it was never verified (§9.2)").with_hint(format!("agency verify --task {id}"))
            );
        };
        let judged = artifact.value.check_done().and_then(|()| match gate {
            DoneGate::Claimed => {
                artifact.value.check_time(report.value.finished_at, now.timestamp(), self.zone())
            }
            DoneGate::Landed => Ok(()),
        });
        judged.map_err(|obstacle| {
            let hint = match &obstacle {
                DoneObstacle::NotPassed(_) => {
                    "mend it and verify again, or override it: --override --reason … --followup …".to_owned()
                }
                _ => format!("agency verify --task {id}"),
            };
            refused(&format!("{obstacle}, see {}", artifact.place.path)).with_hint(hint)
        })
    }
}
