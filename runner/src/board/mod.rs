//! What people do to a board: one file for each verb.
//!
//! A verb finds the board around the current folder ([`Here`]), lets the protocol say what is to be written,
//! and tells what came of it, for people or as JSON.

#![allow(clippy::disallowed_methods, reason = "opens what a person names on the command line")]

pub(crate) mod archive;
mod codifica;
pub(crate) mod import;
pub(crate) mod lint;
pub(crate) mod migrate;
pub(crate) mod report;
pub(crate) mod scaffold;
pub(crate) mod spoken;
pub(crate) mod status;
mod strayed;
pub(crate) mod task;
pub(crate) mod verify;
mod watch;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use agency_protocols::board::{Board, BoardError};
use agency_protocols::detect::{self, Protocol};
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::KodingX;
use agency_protocols::names::{Actor, TaskId};
use agency_protocols::store::tree::{Tree, TreeError};
use agency_protocols::store::{Effects, Store, StoreError};
use agency_sandbox::configured::{self, ConfigError};
use agency_sandbox::host::Host;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::writers::is_open_for_writing;
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use crate::configuration::{Configuration, Operator};
use crate::message::{self, Failure, INTERNAL, NO_SUCH, UNDONE, USAGE};
use crate::state;
use spoken::Spoken;

/// Who acts on which board.
#[derive(Debug, Clone, Args)]
pub(crate) struct Who {
    /// Which protocol, where a repository speaks several
    #[arg(long, global = true, value_name = "NAME", value_parser = protocol, env = Who::PROTOCOL, hide_env = true,
        help_heading = "Board"
    )]
    pub(crate) protocol: Option<Protocol>,
    /// Who acts: `orchestrator` (the default), `human[:NAME]` or `agent:NAME`
    #[arg(long = "as", global = true, value_name = "WHO", value_parser = Actor::parse, help_heading = "Board")]
    pub(crate) actor: Option<Actor>,
}

fn protocol(name: &str) -> Result<Protocol, String> {
    Protocol::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect();
        format!("there is no protocol `{name}`; there are {}", known.join(", "))
    })
}

impl Who {
    /// The variable that says which protocol, where no option does.
    pub(crate) const PROTOCOL: &str = "AGENCY_PROTOCOL";

    pub(crate) fn actor(&self) -> Actor {
        self.actor.clone().unwrap_or(Actor::Orchestrator)
    }
}

/// The place a command was given in.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) folder: Folder,
    /// To look without writing.
    tree: Tree,
    pub(crate) now: Zoned,
    /// Who does what is unassigned, where somebody said so for this once.
    pub(crate) builder: Option<String>,
}

impl Here {
    /// The repository around the current folder; where there is none, the folder a board is in, or this one.
    pub(crate) fn find() -> Result<Self, Failure> {
        Self::at(&std::env::current_dir().map_err(|error| Failure::new(USAGE, &error))?)
    }

    /// The same, as seen from another folder.
    pub(crate) fn at(current: &Path) -> Result<Self, Failure> {
        let mut folder = Folder::around(current).map_err(|error| state::refused(&error))?;
        if folder.repository.is_none()
            && let Some(above) = current.ancestors().find(|folder| marked(folder))
        {
            folder = Folder::around(above).map_err(|error| state::refused(&error))?;
        }
        if folder.repository.is_none() {
            for part in markers(&folder.root) {
                folder.check_owner(&part).map_err(|error| state::refused(&error))?;
            }
        }
        let tree = Tree::open(&folder.root).map_err(|error| Failure::new(INTERNAL, &error))?;
        Ok(Self { folder, tree, now: Timestamp::now().to_zoned(TimeZone::UTC), builder: None })
    }

    /// A setting of git's, as whoever acts here has it.
    pub(crate) fn git_says(&self, key: &str) -> Result<Option<String>, Failure> {
        let mut command = std::process::Command::new("git");
        command.args(["config", "--get", key]).current_dir(&self.folder.root).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let home = Host::observe().home;
        let own = [".gitconfig", ".config/git/config"].map(|name| home.join(name));
        let repository = self.folder.repository.iter();
        let sources: Vec<PathBuf> = repository.map(|one| one.common.join("config")).chain(own).collect();
        let output = match configured::answer(&mut command, &sources, Some(&home)) {
            // Whoever has no git is not known to it.
            Err(ConfigError::Start(_)) => return Ok(None),
            answer => answer.map_err(|error| Failure::new(USAGE, &error))?,
        };
        let text = String::from_utf8(output.stdout).unwrap_or_default().trim().to_owned();
        Ok((!text.is_empty()).then_some(text))
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Where what is written goes through. Who only looks needs none, and may look at what they can't write.
    fn store(&self) -> Result<Store, Failure> {
        state::check_writable(&self.folder)?;
        let state = state::of(&self.folder)?;
        Store::open(&self.folder.root, state.path(), is_open_for_writing)
            .map_err(|error| Failure::new(INTERNAL, &error))
    }

    /// The board, opened anew: a manifest may change while a process lives.
    pub(crate) fn board(&self, who: &Who) -> Result<Spoken, Failure> {
        match self.protocols(who)?.as_slice() {
            [one] => Spoken::open(self, *one),
            several => {
                let names: Vec<&str> = several.iter().map(|protocol| protocol.as_str()).collect();
                Err(Failure::usage(format!("this repository speaks several protocols: {}", names.join(", ")))
                    .with_hint("say which one with --protocol NAME"))
            }
        }
    }

    /// Every board there is, for whoever only looks. One that is broken is told, and hides none of the others.
    pub(crate) fn boards(&self, who: &Who) -> Result<Boards, Failure> {
        let protocols = self.protocols(who)?;
        if let [one] = protocols.as_slice() {
            return Ok(Boards::One(Spoken::open(self, *one)?));
        }
        let (mut boards, mut last) = (Vec::new(), None);
        for protocol in protocols {
            match Spoken::open(self, protocol) {
                Ok(board) => boards.push(board),
                Err(failure) => {
                    message::notice(&format!("{protocol}: {}", failure.message));
                    last = Some(failure);
                }
            }
        }
        match (boards.is_empty(), last) {
            (true, Some(failure)) => Err(failure),
            _ => Ok(Boards::Several(boards)),
        }
    }

    /// The protocol somebody named, or all whose markers are there.
    fn protocols(&self, who: &Who) -> Result<Vec<Protocol>, Failure> {
        let found = detect::detect(self.tree());
        match (self.named_protocol(who)?, found.as_slice()) {
            (Some(protocol), _) => Ok(vec![protocol]),
            (None, []) => {
                // A manifest that is a link, or a board behind one, marks nothing; but it should be said.
                if let Err(error @ BoardError::Tree(_)) = KodingX::open(self.tree()) {
                    return Err(refused(error));
                }
                let root = self.folder.root.display();
                Err(Failure::new_message(NO_SUCH, format!("there is no board in {root}"))
                    .with_hint("`agency init` makes one"))
            }
            (None, _) => Ok(found),
        }
    }

    /// The protocol somebody named: on the command line, in the environment, or in the configuration.
    fn named_protocol(&self, who: &Who) -> Result<Option<Protocol>, Failure> {
        if who.protocol.is_some() {
            return Ok(who.protocol);
        }
        let configuration = Configuration::load(&self.folder.root, &Operator::default())?;
        let named = configuration.text("run.protocol").map(protocol).transpose();
        named.map_err(|reason| Failure::usage(format!("run.protocol: {reason}")))
    }

    /// The board and its files, to be handed to somebody who keeps them.
    pub(crate) fn open(&self, who: &Who) -> Result<(Store, Box<dyn Board>), Failure> {
        Ok((self.store()?, self.board(who)?.into_board()))
    }

    /// Lets the board say what it wants under the lock, and does it.
    pub(crate) fn act<T>(
        &self,
        mut verb: impl FnMut(&Tree) -> Result<(T, Effects), BoardError>,
    ) -> Result<T, Failure> {
        self.store()?.update(|tree| verb(tree)).map_err(refused)
    }
}

/// What there is to look at.
#[derive(Debug)]
pub(crate) enum Boards {
    One(Spoken),
    /// Ids are shown with their protocol, also where only one of them could be read.
    Several(Vec<Spoken>),
}

impl Boards {
    pub(crate) fn all(self) -> Vec<Spoken> {
        match self {
            Self::One(board) => vec![board],
            Self::Several(boards) => boards,
        }
    }
}

/// Whether a board is in a folder: outside repositories that says where it begins.
pub(crate) fn marked(folder: &Path) -> bool {
    markers(folder).next().is_some()
}

/// What marks a board in a folder.
fn markers(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let all = Protocol::ALL.iter().flat_map(|protocol| protocol.markers()).map(|marker| folder.join(marker));
    all.filter(|path| path.symlink_metadata().is_ok())
}

/// Which exit code a board's refusal is.
pub(crate) fn refused(error: BoardError) -> Failure {
    let code = match &error {
        BoardError::NoBoard | BoardError::NoSuchTask { .. } => NO_SUCH,
        BoardError::Store(StoreError::Tree(error)) | BoardError::Tree(error) if is_odd(error) => USAGE,
        BoardError::Store(_) | BoardError::Tree(_) => INTERNAL,
        BoardError::Marker(_)
        | BoardError::Ambiguous { .. }
        | BoardError::Unreadable(_)
        | BoardError::Refused { .. } => USAGE,
        BoardError::Unshared { .. } | BoardError::Unreachable { .. } | BoardError::Apart { .. } => UNDONE,
    };
    let failure = Failure::new(code, &error);
    match error {
        BoardError::Refused { hint: Some(hint), .. } => failure.with_hint(hint),
        BoardError::Ambiguous { files, .. } => {
            let file = files.last().cloned().unwrap_or_default();
            failure.with_hint(match file.starts_with(agency_protocols::kodingx::layout::ROOT) {
                true => format!("`agency task renumber {file}` gives one of them another id"),
                false => format!("give one of them another id: {file}"),
            })
        }
        BoardError::NoSuchTask { .. } => failure.with_hint("`agency task list` shows what there is"),
        _ => failure,
    }
}

/// Whether it is the file that is at fault, and neither this program nor the machine.
pub(crate) fn is_odd(error: &TreeError) -> bool {
    match error {
        TreeError::Link { .. }
        | TreeError::Irregular { .. }
        | TreeError::Large { .. }
        | TreeError::NotText { .. } => true,
        TreeError::Open { .. } | TreeError::Write { .. } | TreeError::Exists { .. } => false,
    }
}

pub(crate) fn task_id(text: &str) -> Result<TaskId, String> {
    // Ids are shown with their protocol where a repository speaks several.
    let id = text.split_once(':').map_or(text, |(_, id)| id);
    TaskId::parse(id).map_err(|error| error.to_string())
}

/// A document for programs, on standard output. Every one says which version of its format it is.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer(&mut out, document)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    told(written)
}

/// Text for people, on standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    told(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Somebody who stopped reading is no failure of ours.
fn told(written: std::io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(INTERNAL, &error)),
        _ => Ok(()),
    }
}

/// What could not be read, on standard error; it keeps nothing else from being done.
pub(crate) fn mention(findings: &[Finding]) {
    for finding in findings {
        message::notice(&finding.to_string());
    }
}

/// The code of a command that ended, and found something amiss.
pub(crate) fn code(findings: &[Finding]) -> u8 {
    if findings.iter().any(Finding::is_error) { UNDONE } else { 0 }
}

/// What is done only by people: `--as human` says so, and at a terminal one is asked.
pub(crate) fn person(who: &Who, what: &str) -> Result<Option<String>, Failure> {
    match who.actor() {
        Actor::Human(name) => return Ok(name),
        Actor::Agent(_) => return Err(Failure::usage(format!("{what} is for people, not for agents"))),
        Actor::Orchestrator => {}
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(
            Failure::usage(format!("{what} is for people")).with_hint("a person says so with --as human")
        );
    }
    if confirmed(&format!("{what}. Are you a person who may decide this?"))? {
        Ok(None)
    } else {
        Err(Failure::usage("nothing was done"))
    }
}

/// The person who answers for an act that is reserved to people.
pub(crate) fn approver(given: Option<&str>, who: &Who, here: &Here, what: &str) -> Result<String, Failure> {
    let name = person(who, what)?;
    let known = match given.map(str::to_owned).or(name) {
        Some(known) => Some(known),
        None => here.git_says("user.email")?,
    };
    known.ok_or_else(|| {
        Failure::usage("nobody is named who approves this")
            .with_hint("say --approver NAME, or set git's user.email")
    })
}

/// Asks a person at a terminal before something is done that can't be undone. `verb` is the command that does not ask, and
/// `otherwise` what became of a no.
pub(crate) fn ask_person(deed: &str, verb: &str, question: &str, otherwise: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{deed} is for a person at a terminal"))
            .with_hint(format!("`{verb}` does not ask")));
    }
    match confirmed(question)? {
        true => Ok(()),
        false => Err(Failure::usage(otherwise)),
    }
}

/// Asks at the terminal.
pub(crate) fn confirmed(question: &str) -> Result<bool, Failure> {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "agency: {question} [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| Failure::new(INTERNAL, &error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The text of a file somebody named on the command line.
pub(crate) fn text_of(path: &PathBuf) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("can't read {}: {error}", path.display())))
}
