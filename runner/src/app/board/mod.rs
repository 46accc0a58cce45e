//! The board around a folder: which protocols it speaks, how it is opened, and how it is written.
//!
//! A verb gets a [`RepoContext`], lets the protocol say what is to be written, and answers with the result.

mod board_writes;
mod dialects;
pub(crate) mod lost_commits;
mod short_id;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use agency_protocols::board::{Board, BoardError};
use agency_protocols::board_verbs::BoardVerbs;
use agency_protocols::detect::{self, Protocol};
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::layout::{MANIFEST, OLDER_MANIFEST, ROOT};
use agency_protocols::names::{Actor, TaskId};
use agency_protocols::store::tree::{RepoTree, RepoTreeError};
use agency_protocols::store::{BoardStore, BoardStoreError, Effects};
use agency_sandbox::file_writers::is_open_for_writing;
use agency_sandbox::git_config_query::{self, GitConfigError};
use agency_sandbox::host::HostUser;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_supervisor::board_sync::MessageSink;
use agency_supervisor::settings::Committer;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::front_end::FrontEnd;
use crate::app::state_folder;

pub(crate) fn protocol(name: &str) -> Result<Protocol, String> {
    Protocol::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect();
        format!("there is no protocol `{name}`; there are {}", known.join(", "))
    })
}

/// What helps where a board was made by hand.
pub(crate) const ADDS_MANIFEST: &str =
    "`agency upgrade --full` adds the manifest and what else is missing; tasks and your own text stay";

/// Who acts on which board.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// Which protocol, where a repository speaks several.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) actor: Option<Actor>,
}

impl Caller {
    pub(crate) fn actor(&self) -> Actor {
        self.actor.clone().unwrap_or(Actor::Orchestrator)
    }
}

/// The place a command was given in.
pub(crate) struct RepoContext {
    pub(crate) folder: WorkspaceFolder,
    /// To look without writing.
    tree: RepoTree,
    pub(crate) now: Zoned,
    /// The agent for unassigned tasks, where the user named one for this once.
    pub(crate) builder: Option<String>,
    front_end: Arc<dyn FrontEnd>,
}

impl RepoContext {
    /// The repository around a folder; where there is none, the folder a board is in, or this one.
    pub(crate) fn from_folder(current: &Path, front_end: Arc<dyn FrontEnd>) -> Result<Self, CommandError> {
        let mut folder =
            WorkspaceFolder::discover(current).map_err(|error| state_folder::folder_error(&error))?;
        if folder.repository.is_none()
            && let Some(above) = current.ancestors().find(|folder| has_board(folder))
        {
            folder = WorkspaceFolder::discover(above).map_err(|error| state_folder::folder_error(&error))?;
        }
        if folder.repository.is_none() {
            for part in markers(&folder.root) {
                folder.check_owner(&part).map_err(|error| state_folder::folder_error(&error))?;
            }
        }
        let tree = RepoTree::open(&folder.root).map_err(|error| CommandError::internal(&error))?;
        Ok(Self { folder, tree, now: Timestamp::now().to_zoned(TimeZone::UTC), builder: None, front_end })
    }

    /// Shows what a person should know although all went well.
    pub(crate) fn notice(&self, message: &str) {
        self.front_end.notice(message);
    }

    /// Asks a person a yes-or-no question; `None` if there is no person to ask.
    pub(crate) fn ask(&self, question: &str) -> Result<Option<bool>, CommandError> {
        self.front_end.ask(question)
    }

    pub(crate) fn message_sink(&self) -> MessageSink {
        let front_end = Arc::clone(&self.front_end);
        Arc::new(move |message| front_end.notice(message))
    }

    /// A setting of git's, as the user of this command has it.
    pub(crate) fn git_config(&self, key: &str) -> Result<Option<String>, CommandError> {
        let mut command = std::process::Command::new("git");
        command.args(["config", "--get", key]).current_dir(&self.folder.root).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let home = HostUser::observe().home;
        let own = [".gitconfig", ".config/git/config"].map(|name| home.join(name));
        let repository = self.folder.repository.iter();
        let sources: Vec<PathBuf> = repository.map(|one| one.common.join("config")).chain(own).collect();
        let output = match git_config_query::query(&mut command, &sources, Some(&home)) {
            // A user without git is not known to it.
            Err(GitConfigError::Start(_)) => return Ok(None),
            answer => answer.map_err(|error| CommandError::new(ErrorKind::Usage, &error))?,
        };
        let text = String::from_utf8(output.stdout).unwrap_or_default().trim().to_owned();
        Ok((!text.is_empty()).then_some(text))
    }

    /// Commits are made in the name of the person who runs this command, as git knows it.
    pub(crate) fn committer(&self) -> Result<Committer, CommandError> {
        Ok(Committer {
            name: self.git_config("user.name")?.unwrap_or_else(|| "agency".to_owned()),
            email: self.git_config("user.email")?.unwrap_or_else(|| "agency@localhost".to_owned()),
        })
    }

    pub(crate) fn tree(&self) -> &RepoTree {
        &self.tree
    }

    /// Where what is written goes through. A command that only reads needs none, even on a board it can't write.
    fn store(&self) -> Result<BoardStore, CommandError> {
        state_folder::check_writable(&self.folder)?;
        let state = state_folder::of_folder(&self.folder)?;
        BoardStore::open(&self.folder.root, state.path(), is_open_for_writing)
            .map_err(|error| CommandError::internal(&error))
    }

    /// The board, opened anew: a manifest may change while a process lives.
    pub(crate) fn board(&self, who: &Caller) -> Result<Box<dyn BoardVerbs>, CommandError> {
        match self.protocols(who)?.as_slice() {
            [one] => dialects::open(self, *one),
            several => {
                let names: Vec<&str> = several.iter().map(|protocol| protocol.as_str()).collect();
                Err(CommandError::usage(format!(
                    "this repository speaks several protocols: {}",
                    names.join(", ")
                ))
                .with_hint("say which one with --protocol NAME"))
            }
        }
    }

    /// Every board there is, for a command that only reads. One that is broken is told, and hides none of the others.
    pub(crate) fn boards(&self, who: &Caller) -> Result<Boards, CommandError> {
        let (boards, broken) = self.open_boards(who)?;
        for (protocol, failure) in broken {
            self.notice(&format!("{protocol}: {}", failure.message));
        }
        Ok(boards)
    }

    /// The same, with the boards that are broken; one at least is not.
    pub(crate) fn open_boards(&self, who: &Caller) -> Result<(Boards, Vec<BrokenBoard>), CommandError> {
        let protocols = self.protocols(who)?;
        if let [one] = protocols.as_slice() {
            return Ok((Boards::One(dialects::open(self, *one)?), Vec::new()));
        }
        let (mut boards, mut broken) = (Vec::new(), Vec::new());
        for protocol in protocols {
            match dialects::open(self, protocol) {
                Ok(board) => boards.push(board),
                Err(failure) => broken.push((protocol, failure)),
            }
        }
        match (boards.is_empty(), broken.pop()) {
            (true, Some((_, failure))) => Err(failure),
            (_, last) => {
                broken.extend(last);
                Ok((Boards::Several(boards), broken))
            }
        }
    }

    /// The protocol that the user named, or all whose markers are there.
    fn protocols(&self, who: &Caller) -> Result<Vec<Protocol>, CommandError> {
        let found = detect::detect(self.tree());
        match (self.named_protocol(who)?, found.as_slice()) {
            (Some(protocol), _) => Ok(vec![protocol]),
            (None, []) => {
                // A manifest that is a link, or a board behind one, marks nothing; but it should be said.
                if let Err(error @ BoardError::Tree(_)) = KodingX::open(self.tree()) {
                    return Err(board_error(error));
                }
                let root = self.folder.root.display();
                if self.tree().exists(ROOT) {
                    let missing = format!("{root} has {ROOT}/, and it has no {MANIFEST}");
                    return Err(
                        CommandError::new_message(ErrorKind::NoSuch, missing).with_hint(ADDS_MANIFEST)
                    );
                }
                Err(CommandError::new_message(ErrorKind::NoSuch, format!("there is no board in {root}"))
                    .with_hint("`agency init` makes one"))
            }
            (None, _) => Ok(found),
        }
    }

    /// Whether there is a KodingX board without a manifest, made by hand, and no other board is meant.
    pub(crate) fn lacks_manifest(&self, who: &Caller) -> Result<bool, CommandError> {
        let found = detect::detect(self.tree());
        let is_meant = match self.named_protocol(who)? {
            Some(protocol) => protocol == Protocol::Kodingx,
            None => found.is_empty(),
        };
        Ok(is_meant
            && !found.contains(&Protocol::Kodingx)
            && self.tree().exists(ROOT)
            && !self.tree().exists(OLDER_MANIFEST))
    }

    /// The protocol that the user named: on the command line, in the environment, or in the configuration.
    fn named_protocol(&self, who: &Caller) -> Result<Option<Protocol>, CommandError> {
        if who.protocol.is_some() {
            return Ok(who.protocol);
        }
        let configuration = Configuration::load(&self.folder.root, &ConfigOptions::default())?;
        let named = configuration.text("run.protocol").map(protocol).transpose();
        named.map_err(|reason| CommandError::usage(format!("run.protocol: {reason}")))
    }

    /// The board and its files, for a caller that keeps them.
    pub(crate) fn open(&self, who: &Caller) -> Result<(BoardStore, Box<dyn Board>), CommandError> {
        Ok((self.store()?, self.board(who)?))
    }

    /// Lets the board say what it wants under the lock, and does it.
    pub(crate) fn update_files<T>(
        &self,
        mut verb: impl FnMut(&RepoTree) -> Result<(T, Effects), BoardError>,
    ) -> Result<T, CommandError> {
        self.store()?.update(|tree| verb(tree)).map_err(board_error)
    }
}

/// A protocol whose board can't be opened, and why.
pub(crate) type BrokenBoard = (Protocol, CommandError);

/// What there is to look at.
#[derive(Debug)]
pub(crate) enum Boards {
    One(Box<dyn BoardVerbs>),
    /// Ids are shown with their protocol, also where only one of them could be read.
    Several(Vec<Box<dyn BoardVerbs>>),
}

impl Boards {
    pub(crate) fn all(self) -> Vec<Box<dyn BoardVerbs>> {
        match self {
            Self::One(board) => vec![board],
            Self::Several(boards) => boards,
        }
    }
}

/// Whether a board is in a folder: outside repositories that says where it begins.
pub(crate) fn has_board(folder: &Path) -> bool {
    markers(folder).next().is_some()
}

/// What marks a board in a folder.
fn markers(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let all =
        Protocol::ALL.iter().flat_map(|protocol| protocol.marker_files()).map(|marker| folder.join(marker));
    all.filter(|path| path.symlink_metadata().is_ok())
}

/// Which exit code a board's refusal is.
pub(crate) fn board_error(error: BoardError) -> CommandError {
    let code = match &error {
        BoardError::NoBoard | BoardError::NoSuchTask { .. } => ErrorKind::NoSuch,
        BoardError::Store(BoardStoreError::Tree(error)) | BoardError::Tree(error) if is_file_fault(error) => {
            ErrorKind::Usage
        }
        BoardError::Store(_) | BoardError::Tree(_) => ErrorKind::Internal,
        BoardError::Marker(_)
        | BoardError::Ambiguous { .. }
        | BoardError::Unreadable(_)
        | BoardError::Refused { .. } => ErrorKind::Usage,
        BoardError::Unshared { .. } | BoardError::Unreachable { .. } | BoardError::Apart { .. } => {
            ErrorKind::Undone
        }
    };
    let failure = CommandError::new(code, &error);
    match error {
        BoardError::Refused { hint: Some(hint), .. } => failure.with_hint(hint),
        BoardError::Ambiguous { files, .. } => {
            let file = files.last().cloned().unwrap_or_default();
            failure.with_hint(match file.starts_with(ROOT) {
                true => format!("`agency task renumber {file}` gives one of them another id"),
                false => format!("give one of them another id: {file}"),
            })
        }
        BoardError::NoSuchTask { .. } => failure.with_hint("`agency task list` shows what there is"),
        _ => failure,
    }
}

/// Whether it is the file that is at fault, and neither this program nor the machine.
pub(crate) fn is_file_fault(error: &RepoTreeError) -> bool {
    match error {
        RepoTreeError::Link { .. }
        | RepoTreeError::Irregular { .. }
        | RepoTreeError::Large { .. }
        | RepoTreeError::NotText { .. } => true,
        RepoTreeError::Open { .. } | RepoTreeError::Write { .. } | RepoTreeError::Exists { .. } => false,
    }
}

pub(crate) fn task_id(text: &str) -> Result<TaskId, String> {
    // Ids are shown with their protocol where a repository speaks several.
    let id = text.split_once(':').map_or(text, |(_, id)| id);
    TaskId::parse(id).map_err(|error| error.to_string())
}
