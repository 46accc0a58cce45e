//! A board's commit: it changes some bytes of the board's files, and nothing else in them.
//!
//! People write in these files, too. Edits that a person has made or staged and not committed stay theirs: the commit
//! is the last commit with the new bytes in place of the old ones, and the index and the file get the same replacement.
//! Where a file has the old bytes not exactly once, a person may be editing the same lines, and the board commits
//! nothing.
//!
//! ```text
//!                             a crash after it leaves
//! Announce    journal         nothing else
//! LockIndex   index.lock      a lock that is known as ours
//! Prepare     reference lock  the same: git gives it back
//! Publish     the upstream    the commit there; it comes back when the branch is next brought up to date
//! PlaceFiles  files           the edit, not committed; it is taken back
//! PlaceIndex  index           the same, staged
//! Commit      the branch      a commit: nothing is left to do but to forget
//! Forget      journal         nothing
//! ```
//!
//! If the crash was before the branch moved, the next commit takes everything back and asks the board again. The board
//! wants the same change or, if the upstream took the commit in time, none.

use std::collections::{BTreeMap, HashSet};

use agency_sandbox::path::RelPath;

pub use super::board_edit::{CommitEdit, RevertEdits};

use super::board_edit::spliced;
use super::board_journal::{IndexChanges, PendingBoardCommit};
use super::checkout_staging::CheckoutStaging;
use super::commit::{self, Signature};
use super::error::Error;
use super::file_stamp::FileStamp;
use super::index::{self, IndexAt, IndexListing, NextIndex};
use super::land::PublishCheck;
use super::names::{Oid, RefName};
use super::objects::{ObjectKind, ObjectReader};
use super::refs::{self, RefCommand, RefTransaction, ReflogReason};
use super::repository::LandingRepository;
use super::spare_objects;
use super::tree;
use super::tree_diff::{ChangedPath, GitTreeEntry, GitTreeEntryKind};
use super::undo;
use super::worktree::{Worktree, WorktreeHead};

/// What is to be committed.
#[derive(Debug, Clone, Copy)]
pub struct BoardCommitDraft<'a> {
    pub target: &'a RefName,
    pub edits: &'a [CommitEdit],
    pub message: &'a str,
    pub who: &'a Signature,
    /// Restores the files if the commit fails.
    pub take_out: RevertEdits,
}

/// The outcome of a board's commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoardCommitOutcome {
    Committed {
        commit: Oid,
    },
    /// The last commit or the index has the bytes to be replaced not exactly once.
    Unclean {
        path: String,
        place: &'static str,
    },
    /// The upstream has commits that the branch does not have.
    Behind,
    /// Something changed during the preparation, or another program uses it.
    Again {
        what: String,
    },
}

/// The steps of a commit. A test can kill the process at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoardCommitStep {
    Announce,
    LockIndex,
    Prepare,
    Publish,
    PlaceFiles,
    PlaceIndex,
    Commit,
    Forget,
}

impl BoardCommitStep {
    pub const ALL: [Self; 8] = [
        Self::Announce,
        Self::LockIndex,
        Self::Prepare,
        Self::Publish,
        Self::PlaceFiles,
        Self::PlaceIndex,
        Self::Commit,
        Self::Forget,
    ];
}

/// Gets each step when its effect is durable. When it answers `Break`, everything is left as a crash would leave it.
pub type BoardCommitObserver<'a> = &'a mut dyn FnMut(BoardCommitStep) -> std::ops::ControlFlow<()>;

/// Commits. `place` writes the files in the work tree, and returns whether it could.
pub fn commit(
    repository: &LandingRepository,
    draft: &BoardCommitDraft<'_>,
    place: &mut dyn FnMut() -> Result<bool, Error>,
    publish: Option<PublishCheck<'_>>,
) -> Result<BoardCommitOutcome, Error> {
    commit_observed(repository, draft, place, publish, &mut |_| std::ops::ControlFlow::Continue(()))
}

/// Like [`commit()`], and reports each step to the observer.
pub fn commit_observed(
    repository: &LandingRepository,
    draft: &BoardCommitDraft<'_>,
    place: &mut dyn FnMut() -> Result<bool, Error>,
    publish: Option<PublishCheck<'_>>,
    observer: BoardCommitObserver<'_>,
) -> Result<BoardCommitOutcome, Error> {
    let _turn = match repository.landing.acquire() {
        Err(Error::Busy { what }) => return Ok(BoardCommitOutcome::Again { what }),
        other => other?,
    };
    undo_both(repository, draft.take_out)?;
    let drawn = match prepare(repository, draft) {
        Ok(Ok(drawn)) => drawn,
        Ok(Err(outcome)) => return Ok(outcome),
        Err(Error::Busy { what }) => return Ok(BoardCommitOutcome::Again { what }),
        Err(error) => return Err(error),
    };
    let mut tell = |step: BoardCommitStep| match observer(step) {
        std::ops::ControlFlow::Continue(()) => Ok(()),
        std::ops::ControlFlow::Break(()) => Err(Error::Stopped),
    };
    drawn.pending.write(repository)?;
    tell(BoardCommitStep::Announce)?;
    match drawn.carry_out(repository, draft, place, publish, &mut tell) {
        Ok(None) => {
            PendingBoardCommit::forget(repository)?;
            tell(BoardCommitStep::Forget)?;
            Ok(BoardCommitOutcome::Committed { commit: drawn.commit })
        }
        Ok(Some(outcome)) => {
            take_back(repository, draft.take_out)?;
            Ok(outcome)
        }
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) => {
            take_back(repository, draft.take_out)?;
            Err(error)
        }
    }
}

/// Takes back an interrupted commit. Every commit does so first.
pub fn recover(repository: &LandingRepository, take_out: RevertEdits) -> Result<(), Error> {
    let _turn = repository.landing.acquire()?;
    undo_both(repository, take_out)
}

fn undo_both(repository: &LandingRepository, take_out: RevertEdits) -> Result<(), Error> {
    undo::undo(repository, &mut |_| std::ops::ControlFlow::Continue(()))?;
    take_back(repository, take_out)
}

/// A commit that is written and that no reference names yet.
struct PreparedCommit {
    commit: Oid,
    parent: Oid,
    worktree: Option<(Worktree, WorktreeHead, FileStamp, NextIndex)>,
    pending: PendingBoardCommit,
}

/// Writes the commit and the next index. No reference and no lock names them yet.
fn prepare(
    repository: &LandingRepository,
    draft: &BoardCommitDraft<'_>,
) -> Result<Result<PreparedCommit, BoardCommitOutcome>, Error> {
    let target = refs::resolve(repository, draft.target)?;
    let Some(parent) = refs::at(repository, &target)? else {
        return Err(Error::Missing { kind: "commit".to_owned(), object: target.as_str().to_owned() });
    };
    let mut by_path: BTreeMap<&str, Vec<&CommitEdit>> = BTreeMap::new();
    for edit in draft.edits {
        by_path.entry(&edit.path).or_default().push(edit);
    }
    let mut changed = Vec::new();
    for (path, edits) in &by_path {
        let unclean = || BoardCommitOutcome::Unclean { path: (*path).to_owned(), place: "the last commit" };
        let at =
            RelPath::parse(path.as_bytes()).map_err(|_| Error::Answer { doing: "name a board's file" })?;
        let old = repository.ask(|objects| {
            let tree = objects.tree_of(&parent)?;
            objects.file(&tree, &at)
        })?;
        let text = old.as_ref().map(|old| text(repository, old)).transpose()?;
        let Some(new) = spliced(text.as_deref(), edits) else { return Ok(Err(unclean())) };
        let entry = |object: Oid| GitTreeEntry { kind: GitTreeEntryKind::File, object };
        let new = repository.write_object(ObjectKind::Blob, new.as_bytes())?;
        changed.push(ChangedPath { path: at, old: old.map(entry), new: Some(entry(new)), target: None });
    }
    let tree = repository.ask(|objects| {
        let base = objects.tree_of(&parent)?;
        let puts = changed.iter().map(|one| (one.path.as_bytes(), one.new.clone())).collect();
        tree::write(repository, objects, &base, puts)
    })?;
    let message = format!("{}\n", draft.message.lines().next().unwrap_or("Board").trim());
    let written = commit::text(&tree, Some(&parent), draft.who, draft.who, &message);
    let commit = repository.write_object(ObjectKind::Commit, written.as_bytes())?;
    let here = worktree_on(repository, &target)?;
    let (worktree, entries) = match here {
        None => (None, Vec::new()),
        Some(here) => match next_index(repository, &here, &changed, &by_path)? {
            Ok((stamp, next, entries)) => {
                let head = here.head();
                (Some((here, head, stamp, next)), entries)
            }
            Err(outcome) => return Ok(Err(outcome)),
        },
    };
    let pending = PendingBoardCommit {
        target: target.clone(),
        parent: parent.clone(),
        commit: commit.clone(),
        root: repository.root.clone().unwrap_or_default(),
        git: worktree.as_ref().map(|(here, ..)| here.git.clone()),
        index: worktree.as_ref().map(|(.., next)| next.file),
        edits: draft.edits.to_vec(),
        entries,
    };
    Ok(Ok(PreparedCommit { commit, parent, worktree, pending }))
}

/// The work tree of this repository, if it has the branch checked out.
fn worktree_on(repository: &LandingRepository, target: &RefName) -> Result<Option<Worktree>, Error> {
    let Some(root) = repository.root.clone() else { return Ok(None) };
    let here = Worktree { root: Some(root), git: repository.real.git.clone(), locked: false };
    match here.head() {
        WorktreeHead::Branch(name) if refs::resolve(repository, &name)? == *target => Ok(Some(here)),
        WorktreeHead::Branch(_) | WorktreeHead::Detached => Ok(None),
    }
}

type PreparedIndex = (FileStamp, NextIndex, IndexChanges);

/// Prepares the next index: the same replacement in the files that a person has staged.
fn next_index(
    repository: &LandingRepository,
    here: &Worktree,
    changed: &[ChangedPath],
    by_path: &BTreeMap<&str, Vec<&CommitEdit>>,
) -> Result<Result<PreparedIndex, BoardCommitOutcome>, Error> {
    if let Some(operation) = here.operation() {
        return Ok(Err(BoardCommitOutcome::Again { what: format!("{operation} is under way") }));
    }
    if index::is_locked(&here.git) {
        return Ok(Err(BoardCommitOutcome::Again { what: "git is at work".to_owned() }));
    }
    let bench = CheckoutStaging::new(repository, here)?;
    let Some(stamp) = index::copy(&bench, &here.git)? else {
        return Ok(Err(BoardCommitOutcome::Again { what: "nothing is checked out".to_owned() }));
    };
    let listing = IndexListing::read(&bench, changed)?;
    let mut moves = Vec::new();
    for one in changed {
        match listing.at(one) {
            IndexAt::To => {}
            IndexAt::From => moves.push(one.clone()),
            IndexAt::Other => {
                let path = one.path.to_string();
                let staged = listing.entry(&one.path);
                let old = staged.map(|entry| text(repository, &entry.object)).transpose()?;
                let edits = by_path.get(path.as_str()).map(Vec::as_slice).unwrap_or_default();
                let new = staged.and_then(|_| spliced(old.as_deref(), edits));
                let Some(new) = new else {
                    return Ok(Err(BoardCommitOutcome::Unclean { path, place: "what is staged" }));
                };
                let object = repository.write_object(ObjectKind::Blob, new.as_bytes())?;
                let new = Some(GitTreeEntry { kind: GitTreeEntryKind::File, object });
                moves.push(ChangedPath { old: staged.cloned(), new, ..one.clone() });
            }
        }
    }
    let bytes = index::rewrite(&bench, &moves.iter().collect::<Vec<_>>(), &HashSet::new())?;
    let next = NextIndex::write(&here.git, &bytes)?;
    let object = |entry: &Option<GitTreeEntry>| entry.as_ref().map(|entry| entry.object.clone());
    let entries = moves.iter().map(|one| (one.path.clone(), object(&one.old), object(&one.new)));
    Ok(Ok((stamp, next, entries.collect())))
}

impl PreparedCommit {
    /// Carries the commit out step by step. Returns `None` when it is committed, otherwise the reason against it.
    fn carry_out(
        &self,
        repository: &LandingRepository,
        draft: &BoardCommitDraft<'_>,
        place: &mut dyn FnMut() -> Result<bool, Error>,
        publish: Option<PublishCheck<'_>>,
        tell: &mut dyn FnMut(BoardCommitStep) -> Result<(), Error>,
    ) -> Result<Option<BoardCommitOutcome>, Error> {
        let again = |what: &str| Ok(Some(BoardCommitOutcome::Again { what: what.to_owned() }));
        if let Some((here, _, stamp, next)) = &self.worktree {
            if !next.lock()? || FileStamp::of(&here.git.join("index"))? != Some(*stamp) {
                return again("the index is in use");
            }
            tell(BoardCommitStep::LockIndex)?;
        }
        let line = RefCommand::Update {
            name: self.pending.target.clone(),
            from: Some(self.parent.clone()),
            to: self.commit.clone(),
        };
        let reason = ReflogReason { who: draft.who, text: format!("agency: {}", draft.message) };
        let collector = spare_objects::running_gc(repository);
        let transaction = match RefTransaction::prepare(repository, &[line], &reason) {
            Err(Error::Refs { message }) => return again(&message),
            other => other?,
        };
        tell(BoardCommitStep::Prepare)?;
        if let Some(publish) = publish
            && !publish(&self.commit)?
        {
            return Ok(Some(BoardCommitOutcome::Behind));
        }
        tell(BoardCommitStep::Publish)?;
        if !place()? {
            return again("a person saved a file of the board");
        }
        tell(BoardCommitStep::PlaceFiles)?;
        if let Some((here, head, _, next)) = &self.worktree {
            next.place()?;
            tell(BoardCommitStep::PlaceIndex)?;
            if here.head() != *head {
                return again("the work tree changes its branch");
            }
        }
        transaction.commit()?;
        tell(BoardCommitStep::Commit)?;
        spare_objects::recheck_after_gc(repository, collector, &[&self.commit]);
        Ok(None)
    }
}

/// Takes back the traces of an interrupted commit, if the branch did not move. The caller holds the landing lock.
fn take_back(repository: &LandingRepository, take_out: RevertEdits) -> Result<(), Error> {
    let Some(pending) = PendingBoardCommit::read(repository)? else { return Ok(()) };
    if let (Some(git), Some(index)) = (&pending.git, &pending.index) {
        index::unlock(git, index)?;
    }
    let still = refs::at(repository, &pending.target)?.as_ref() == Some(&pending.parent);
    // Removed lines have no place in the text by which to find them. The last commit has them, and a person sees that
    // they are gone.
    let findable = pending.edits.iter().all(|edit| !edit.after.is_empty());
    if still && findable && pending.root.is_dir() {
        take_out(&pending.root, &pending.edits)?;
        index_back(repository, &pending)?;
    }
    PendingBoardCommit::forget(repository)
}

fn index_back(repository: &LandingRepository, pending: &PendingBoardCommit) -> Result<(), Error> {
    let Some(git) = &pending.git else { return Ok(()) };
    let entry = |object: &Option<Oid>| {
        object.clone().map(|object| GitTreeEntry { kind: GitTreeEntryKind::File, object })
    };
    let changed: Vec<ChangedPath> = pending
        .entries
        .iter()
        .map(|(path, old, new)| ChangedPath {
            path: path.clone(),
            old: entry(new),
            new: entry(old),
            target: None,
        })
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let here = Worktree { root: Some(pending.root.clone()), git: git.clone(), locked: false };
    let bench = CheckoutStaging::new(repository, &here)?;
    let Some(stamp) = index::copy(&bench, git)? else { return Ok(()) };
    let listing = IndexListing::read(&bench, &changed)?;
    let moves: Vec<&ChangedPath> = changed.iter().filter(|one| listing.at(one) == IndexAt::From).collect();
    if moves.is_empty() {
        return Ok(());
    }
    let bytes = index::rewrite(&bench, &moves, &HashSet::new())?;
    let next = NextIndex::write(git, &bytes)?;
    let pending = PendingBoardCommit { index: Some(next.file), ..pending.clone() };
    pending.write(repository)?;
    if !next.lock()? || FileStamp::of(&git.join("index"))? != Some(stamp) {
        index::unlock(git, &next.file)?;
        return Err(Error::Busy { what: git.join("index.lock").display().to_string() });
    }
    next.place()
}

fn text(repository: &LandingRepository, object: &Oid) -> Result<String, Error> {
    let bytes = repository.ask(|objects: &mut ObjectReader| objects.contents(object, "blob"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
