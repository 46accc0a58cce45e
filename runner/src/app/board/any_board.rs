//! A board, in the protocol it is written in. Each verb does what it means there; one that means nothing there is
//! refused by name.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use agency_protocols::board::{Board, BoardError};
use agency_protocols::codifica::{Codifica, CodificaSettings};
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::names::AgentName;
use agency_protocols::store::Effects;
use agency_protocols::store::tree::RepoTree;
use agency_sandbox::host::HostUser;
use agency_supervisor::board_sync::BoardSync;
use agency_supervisor::startup::{self, StartupError};

use super::{RepoContext, board_error};
use crate::app::configuration::trust::TrustRecord;
use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

#[derive(Debug)]
pub(crate) enum AnyBoard {
    Kodingx(Box<KodingX>),
    Codifica(Box<Codifica>),
}

impl AnyBoard {
    pub(crate) fn open(here: &RepoContext, protocol: Protocol) -> Result<Self, CommandError> {
        let opened = match protocol {
            Protocol::Kodingx => KodingX::open(here.tree()).map(Box::new).map(Self::Kodingx),
            Protocol::Codifica => {
                Codifica::open(here.tree(), codifica_setting(here)?).map(Box::new).map(Self::Codifica)
            }
            Protocol::ReviewLoop | Protocol::Contract | Protocol::Collaboration => {
                return Err(CommandError::usage(format!("the protocol `{protocol}` is not supported yet")));
            }
        };
        opened.map_err(|error| match error {
            BoardError::NoBoard => {
                let how = match protocol {
                    Protocol::Kodingx => "`agency init` makes a board".to_owned(),
                    other => format!("`agency init --protocol {other}` makes a board"),
                };
                board_error(error).or_hint(&how)
            }
            error => board_error(error),
        })
    }

    pub(crate) fn as_board(&self) -> &dyn Board {
        match self {
            Self::Kodingx(board) => board.as_ref(),
            Self::Codifica(board) => board.as_ref(),
        }
    }

    pub(crate) fn into_board(self) -> Box<dyn Board> {
        match self {
            Self::Kodingx(board) => board,
            Self::Codifica(board) => board,
        }
    }

    /// For a verb that only one protocol has.
    pub(crate) fn require_kodingx(self, verb: &str) -> Result<KodingX, CommandError> {
        match self {
            Self::Kodingx(board) => Ok(*board),
            Self::Codifica(_) => Err(unsupported_verb(verb)),
        }
    }
}

/// A verb that the protocol does not have.
pub(crate) fn unsupported_verb(verb: &str) -> CommandError {
    CommandError::usage(format!("the protocol `codifica` has no `{verb}`"))
}

/// What a Codifica repository does not say.
fn codifica_setting(here: &RepoContext) -> Result<CodificaSettings, CommandError> {
    let configuration = Configuration::load(&here.folder.root, &ConfigOptions::default())?;
    let named = here.builder.clone().or_else(|| configuration.text("roles.builder").map(str::to_owned));
    let agent = named.map(|name| AgentName::parse(&name)).transpose();
    let agent = agent.map_err(|error| CommandError::usage(format!("roles.builder: {error}")))?;
    // Whoever only looks may not be able to write, and a clone that never claimed anything has no name.
    let state =
        here.folder.repository.as_ref().and_then(|real| state_folder::home().ok()?.existing(&real.common));
    Ok(CodificaSettings { site: state.and_then(|state| site(state.path())), agent })
}

/// The name of this clone, kept in its state folder.
const SITE: &str = "site";

fn site(state: &Path) -> Option<String> {
    let text = fs::read_to_string(state.join(SITE)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Gives this clone a name, if it has none yet.
fn name_site(state: &Path) -> std::io::Result<()> {
    if site(state).is_some() {
        return Ok(());
    }
    let mut bytes = [0; 6];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // With a letter first it needs no quotes wherever it is written.
    let name = format!("c{name}");
    let next = state.join(format!("{SITE}.{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&next)?;
    file.write_all(format!("{name}\n").as_bytes())?;
    file.sync_all()?;
    // Whoever was first has named it.
    let linked = fs::hard_link(&next, state.join(SITE));
    fs::remove_file(&next)?;
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        // On the disk before a claim is made in its name.
        _ => fs::File::open(state)?.sync_all(),
    }
}

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
