//! Whose trouble it is when an attempt can't be taken further. A run ends only for trouble of its own.

use std::path::Path;

use agency_protocols::board::BoardError;

use super::DriveError;
use crate::host_fault::HostFault;
use crate::job::JobError;
use crate::store::AttemptStoreError;
use agency_protocols::store::BoardStoreError;

/// Which person or part has to do something about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultDomain {
    /// Another owner has the attempt now.
    Successor,
    /// No person: the machine lacks something, and will have it again.
    Host,
    /// The person who changed the task's file: it is gone, moved, or can't be read.
    Task,
    /// This attempt alone: its records or its work can't be read.
    Attempt,
    /// The run: its store, its repository, its disk.
    Run,
}

impl DriveError {
    /// Whether another owner has the attempt now.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Store(AttemptStoreError::Fenced(_)))
    }

    /// `state` lies on the disk that is written to.
    pub(crate) fn blame(&self, state: &Path) -> FaultDomain {
        if self.is_fenced() {
            return FaultDomain::Successor;
        }
        let away = matches!(
            self,
            Self::Host { .. }
                | Self::Board(BoardError::Unreachable { .. })
                // A person's program keeps a file of the board open: nothing can be told to the board meanwhile.
                | Self::Board(BoardError::Store(BoardStoreError::Open { .. }))
                | Self::Landing(agency_landing::Error::Unreachable { .. })
        );
        if away || HostFault::of(self, state).is_some() {
            return FaultDomain::Host;
        }
        match self {
            Self::Board(
                BoardError::NoSuchTask { .. }
                | BoardError::Refused { .. }
                | BoardError::Ambiguous { .. }
                | BoardError::Unreadable(_),
            ) => FaultDomain::Task,
            Self::Job(JobError::Unexpected { .. } | JobError::File { doing: "read", .. })
            | Self::Landing(agency_landing::Error::Missing { .. } | agency_landing::Error::Record { .. })
            | Self::Unexpected { .. } => FaultDomain::Attempt,
            Self::Store(_) | Self::Job(_) | Self::Landing(_) | Self::Board(_) => FaultDomain::Run,
            Self::Away { .. } => FaultDomain::Run,
            Self::Host { .. } => FaultDomain::Host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_run_answers_for_its_store_and_its_repository_and_for_nothing_else() {
        let state = std::env::temp_dir();
        let blame = |error: DriveError| error.blame(&state);
        let file = |number| JobError::File {
            doing: "read",
            path: "order.json".into(),
            source: io::Error::from_raw_os_error(number),
        };
        assert_eq!(blame(file(2).into()), FaultDomain::Attempt);
        assert_eq!(blame(file(28).into()), FaultDomain::Host, "whatever it happened to");
        assert_eq!(blame(file(5).into()), FaultDomain::Host, "a disk that fails is no task's fault");
        assert_eq!(blame(BoardError::NoSuchTask { id: "T1".into() }.into()), FaultDomain::Task);
        assert_eq!(blame(BoardError::NoBoard.into()), FaultDomain::Run);
        let missing = agency_landing::Error::Missing { kind: "tree".into(), object: "a".into() };
        assert_eq!(blame(missing.into()), FaultDomain::Attempt);
        assert_eq!(blame(agency_landing::Error::Refs { message: "locked".into() }.into()), FaultDomain::Run);
        assert_eq!(blame(DriveError::Unexpected { what: "?".into() }), FaultDomain::Attempt);
    }
}
