//! How a board is written: files under the lock of the store, and a commit and a push where git carries the board.

use std::sync::Arc;

use agency_protocols::board::{Board, BoardError};
use agency_protocols::store::Effects;
use agency_protocols::store::tree::RepoTree;
use agency_sandbox::host::HostUser;
use agency_supervisor::board_sync::BoardSync;
use agency_supervisor::startup::{self, StartupError};

use super::dialects::name_site;
use super::{RepoContext, board_error};
use crate::app::configuration::ConfigOptions;
use crate::app::configuration::trust::TrustRecord;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

impl RepoContext {
    /// Makes sure that this clone can tell its own claims from others'.
    pub(crate) fn ensure_clone_name(&self) -> Result<(), CommandError> {
        name_site(&self.state_folder()?).map_err(|error| CommandError::internal(&error))
    }

    /// Lets a board say what it wants, and does it.
    pub(crate) fn update_board<T>(
        &self,
        board: &dyn Board,
        verb: impl FnMut(&RepoTree) -> Result<(T, Effects), BoardError>,
    ) -> Result<T, CommandError> {
        match board.is_shared() {
            true => self.share(board, verb),
            false => self.update_files(verb),
        }
    }

    /// Lets a board that git carries say what it wants, and does it: files, commit and push.
    fn share<T>(
        &self,
        board: &dyn Board,
        mut verb: impl FnMut(&RepoTree) -> Result<(T, Effects), BoardError>,
    ) -> Result<T, CommandError> {
        let store = self.store()?;
        let done = match self.sharing(board)? {
            Ok(sharing) => sharing.act(&store, &mut verb),
            // Without a branch there is nothing to commit to; what must be a commit is not done.
            Err(why) => store.update(|tree| {
                let (answer, effects) = verb(tree)?;
                match effects.commit.as_ref().is_some_and(|commit| commit.is_needed) {
                    true => Err(BoardError::Refused {
                        reason: format!("a claim is a commit (§8.1), and none can be made: {why}"),
                        hint: None,
                    }),
                    false => Ok((answer, effects)),
                }
            }),
        };
        done.map_err(board_error)
    }

    /// What it takes to commit here, or why nothing can be.
    fn sharing(&self, board: &dyn Board) -> Result<Result<BoardSync, String>, CommandError> {
        if self.folder.repository.is_none() {
            return Ok(Err(format!("{} is not a git repository", self.folder.root.display())));
        }
        let host = HostUser::observe();
        let opened = startup::open_repository(&self.folder, &self.state_folder()?, &host.home);
        let opened = opened.and_then(|repository| {
            let branch = startup::branch(&repository, &self.folder)?;
            Ok((repository, branch))
        });
        match opened {
            Ok((repository, branch)) => Ok(Ok(BoardSync::new(
                Arc::new(repository),
                branch,
                self.committer()?,
                board.owned_globs(),
                TrustRecord::of(&self.folder.root)?.upstreams(&ConfigOptions::from_environment()),
                self.message_sink(),
            ))),
            Err(error @ (StartupError::Detached | StartupError::Unborn { .. })) => Ok(Err(error.to_string())),
            Err(error) if error.is_about_the_repository() => Err(CommandError::new(ErrorKind::Usage, &error)),
            Err(error) => Err(CommandError::internal(&error)),
        }
    }

    pub(crate) fn state_folder(&self) -> Result<std::path::PathBuf, CommandError> {
        Ok(state_folder::of_folder(&self.folder)?.path().to_owned())
    }
}
