//! A commit of a board's own: some bytes of its files, and nothing else that anybody has there.
//!
//! People write in these files too. Whatever they have edited or staged and not committed stays theirs: the commit is
//! the last one with these bytes in place of those, the index is what it was with the same bytes in it, and so is
//! the file. Where the bytes are not there just once, somebody is at work on the same lines, and nothing is done.
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
//! Before the branch moves, the next one takes everything back and asks the board again, which wants the same or, if
//! others were told in time, nothing.

use std::collections::{BTreeMap, HashSet};

use agency_protocols::store::exchange::Exchange;
use agency_protocols::store::tree::Tree;
use agency_protocols::store::{Edit, StoreError};
use agency_sandbox::path::RelPath;
use agency_sandbox::writers::is_open_for_writing;

use super::bench::Bench;
use super::board_journal::{Entries, Pending};
use super::commit::{self, Signature};
use super::difference::{Changed, Entry, Kind};
use super::error::Error;
use super::index::{self, IndexAt, Listing, Next};
use super::land::Publish;
use super::names::{Oid, RefName};
use super::objects::{ObjectKind, Objects};
use super::refs::{self, Line, Reason, Transaction};
use super::repository::Repository;
use super::stamp::Stamp;
use super::tree;
use super::undo;
use super::worktree::{Head, Worktree};

/// What is to be committed.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    pub target: &'a RefName,
    pub edits: &'a [Edit],
    pub message: &'a str,
    pub who: &'a Signature,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Committed {
        commit: Oid,
    },
    /// What is to be replaced is not there just once, in the last commit or in the index.
    Unclean {
        path: String,
        place: &'static str,
    },
    /// The upstream has gone on.
    Behind,
    /// Something changed while we looked, or is in use.
    Again {
        what: String,
    },
}

/// The moments at which a test may kill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Announce,
    LockIndex,
    Prepare,
    Publish,
    PlaceFiles,
    PlaceIndex,
    Commit,
    Forget,
}

impl Step {
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

/// Told each step when its effect is durable. When it breaks, everything is left as a crash would leave it.
pub type Observer<'a> = &'a mut dyn FnMut(Step) -> std::ops::ControlFlow<()>;

/// Commits. `place` puts the files in place, and says whether it could.
pub fn commit(
    repository: &Repository,
    draft: &Draft<'_>,
    place: &mut dyn FnMut() -> Result<bool, Error>,
    publish: Option<Publish<'_>>,
) -> Result<Outcome, Error> {
    commit_observed(repository, draft, place, publish, &mut |_| std::ops::ControlFlow::Continue(()))
}

/// The same, with somebody who looks on.
pub fn commit_observed(
    repository: &Repository,
    draft: &Draft<'_>,
    place: &mut dyn FnMut() -> Result<bool, Error>,
    publish: Option<Publish<'_>>,
    observer: Observer<'_>,
) -> Result<Outcome, Error> {
    let _turn = match repository.landing.take() {
        Err(Error::Busy { what }) => return Ok(Outcome::Again { what }),
        other => other?,
    };
    undo_both(repository)?;
    let drawn = match draw(repository, draft) {
        Ok(Ok(drawn)) => drawn,
        Ok(Err(outcome)) => return Ok(outcome),
        Err(Error::Busy { what }) => return Ok(Outcome::Again { what }),
        Err(error) => return Err(error),
    };
    let mut tell = |step: Step| match observer(step) {
        std::ops::ControlFlow::Continue(()) => Ok(()),
        std::ops::ControlFlow::Break(()) => Err(Error::Stopped),
    };
    drawn.pending.write(repository)?;
    tell(Step::Announce)?;
    match drawn.carry_out(repository, draft, place, publish, &mut tell) {
        Ok(None) => {
            Pending::forget(repository)?;
            tell(Step::Forget)?;
            Ok(Outcome::Committed { commit: drawn.commit })
        }
        Ok(Some(outcome)) => {
            take_back(repository)?;
            Ok(outcome)
        }
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) => {
            take_back(repository)?;
            Err(error)
        }
    }
}

/// Takes back what was interrupted. Every commit does so first.
pub fn recover(repository: &Repository) -> Result<(), Error> {
    let _turn = repository.landing.take()?;
    undo_both(repository)
}

fn undo_both(repository: &Repository) -> Result<(), Error> {
    undo::undo(repository, &mut |_| std::ops::ControlFlow::Continue(()))?;
    take_back(repository)
}

/// A commit that is ready to be made known.
struct Drawn {
    commit: Oid,
    parent: Oid,
    worktree: Option<(Worktree, Head, Stamp, Next)>,
    pending: Pending,
}

/// Makes the commit and the next index; nothing refers to either yet.
fn draw(repository: &Repository, draft: &Draft<'_>) -> Result<Result<Drawn, Outcome>, Error> {
    let target = refs::resolve(repository, draft.target)?;
    let Some(parent) = refs::at(repository, &target)? else {
        return Err(Error::Missing { kind: "commit".to_owned(), object: target.as_str().to_owned() });
    };
    let mut by_path: BTreeMap<&str, Vec<&Edit>> = BTreeMap::new();
    for edit in draft.edits {
        by_path.entry(&edit.path).or_default().push(edit);
    }
    let mut changed = Vec::new();
    for (path, edits) in &by_path {
        let unclean = || Outcome::Unclean { path: (*path).to_owned(), place: "the last commit" };
        let at =
            RelPath::parse(path.as_bytes()).map_err(|_| Error::Answer { doing: "name a board's file" })?;
        let old = repository.ask(|objects| {
            let tree = objects.tree_of(&parent)?;
            objects.file(&tree, &at)
        })?;
        let text = old.as_ref().map(|old| text(repository, old)).transpose()?;
        let Some(new) = spliced(text.as_deref(), edits) else { return Ok(Err(unclean())) };
        let entry = |object: Oid| Entry { kind: Kind::File, object };
        let new = repository.write_object(ObjectKind::Blob, new.as_bytes())?;
        changed.push(Changed { path: at, old: old.map(entry), new: Some(entry(new)), target: None });
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
    let pending = Pending {
        target: target.clone(),
        parent: parent.clone(),
        commit: commit.clone(),
        root: repository.root.clone().unwrap_or_default(),
        git: worktree.as_ref().map(|(here, ..)| here.git.clone()),
        index: worktree.as_ref().map(|(.., next)| next.file),
        edits: draft.edits.to_vec(),
        entries,
    };
    Ok(Ok(Drawn { commit, parent, worktree, pending }))
}

/// The work tree we stand in, if it has the branch checked out.
fn worktree_on(repository: &Repository, target: &RefName) -> Result<Option<Worktree>, Error> {
    let Some(root) = repository.root.clone() else { return Ok(None) };
    let here = Worktree { root: Some(root), git: repository.real.git.clone(), locked: false };
    match here.head() {
        Head::Branch(name) if refs::resolve(repository, &name)? == *target => Ok(Some(here)),
        Head::Branch(_) | Head::Detached => Ok(None),
    }
}

type Indexed = (Stamp, Next, Entries);

/// The index as it will be: the same bytes in whatever a person has staged.
fn next_index(
    repository: &Repository,
    here: &Worktree,
    changed: &[Changed],
    by_path: &BTreeMap<&str, Vec<&Edit>>,
) -> Result<Result<Indexed, Outcome>, Error> {
    if let Some(operation) = here.operation() {
        return Ok(Err(Outcome::Again { what: format!("{operation} is under way") }));
    }
    if index::is_locked(&here.git) {
        return Ok(Err(Outcome::Again { what: "git is at work".to_owned() }));
    }
    let bench = Bench::new(repository, here)?;
    let Some(stamp) = index::copy(&bench, &here.git)? else {
        return Ok(Err(Outcome::Again { what: "nothing is checked out".to_owned() }));
    };
    let listing = Listing::read(&bench, changed)?;
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
                    return Ok(Err(Outcome::Unclean { path, place: "what is staged" }));
                };
                let object = repository.write_object(ObjectKind::Blob, new.as_bytes())?;
                let new = Some(Entry { kind: Kind::File, object });
                moves.push(Changed { old: staged.cloned(), new, ..one.clone() });
            }
        }
    }
    let bytes = index::rewrite(&bench, &moves.iter().collect::<Vec<_>>(), &HashSet::new())?;
    let next = Next::write(&here.git, &bytes)?;
    let object = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.object.clone());
    let entries = moves.iter().map(|one| (one.path.clone(), object(&one.old), object(&one.new)));
    Ok(Ok((stamp, next, entries.collect())))
}

impl Drawn {
    /// `None` when it is committed.
    fn carry_out(
        &self,
        repository: &Repository,
        draft: &Draft<'_>,
        place: &mut dyn FnMut() -> Result<bool, Error>,
        publish: Option<Publish<'_>>,
        tell: &mut dyn FnMut(Step) -> Result<(), Error>,
    ) -> Result<Option<Outcome>, Error> {
        let again = |what: &str| Ok(Some(Outcome::Again { what: what.to_owned() }));
        if let Some((here, _, stamp, next)) = &self.worktree {
            if !next.lock()? || Stamp::of(&here.git.join("index"))? != Some(*stamp) {
                return again("the index is in use");
            }
            tell(Step::LockIndex)?;
        }
        let line = Line::Update {
            name: self.pending.target.clone(),
            from: Some(self.parent.clone()),
            to: self.commit.clone(),
        };
        let reason = Reason { who: draft.who, text: format!("agency: {}", draft.message) };
        let collector = repository.collector();
        let transaction = match Transaction::prepare(repository, &[line], &reason) {
            Err(Error::Refs { message }) => return again(&message),
            other => other?,
        };
        tell(Step::Prepare)?;
        if let Some(publish) = publish
            && !publish(&self.commit)?
        {
            return Ok(Some(Outcome::Behind));
        }
        tell(Step::Publish)?;
        if !place()? {
            return again("somebody saved a file of the board");
        }
        tell(Step::PlaceFiles)?;
        if let Some((here, head, _, next)) = &self.worktree {
            next.place()?;
            tell(Step::PlaceIndex)?;
            if here.head() != *head {
                return again("the work tree changes its branch");
            }
        }
        transaction.commit()?;
        tell(Step::Commit)?;
        repository.outlast(collector, &[&self.commit]);
        Ok(None)
    }
}

/// Takes back what an interrupted one left, if the branch is still where it was. The turn is the caller's.
fn take_back(repository: &Repository) -> Result<(), Error> {
    let Some(pending) = Pending::read(repository)? else { return Ok(()) };
    if let (Some(git), Some(index)) = (&pending.git, &pending.index) {
        index::unlock(git, index)?;
    }
    let still = refs::at(repository, &pending.target)?.as_ref() == Some(&pending.parent);
    // Lines that went can't be found again; they are in the last commit, and a person sees that they are gone.
    let findable = pending.edits.iter().all(|edit| !edit.after.is_empty());
    if still && findable && pending.root.is_dir() {
        files_back(&pending)?;
        index_back(repository, &pending)?;
    }
    Pending::forget(repository)
}

fn files_back(pending: &Pending) -> Result<(), Error> {
    let odd = |error: StoreError| Error::Board { reason: error.to_string() };
    let tree = Tree::open(&pending.root).map_err(|error| odd(error.into()))?;
    let exchange = Exchange { tree: &tree, check: is_open_for_writing };
    for edit in pending.edits.iter().rev() {
        let Some(text) = tree.read_text(&edit.path).map_err(|error| odd(error.into()))? else { continue };
        if edit.before.is_empty() {
            if text == edit.after {
                exchange.put(&edit.path, &text, None).map_err(odd)?;
            }
        } else if let Some(back) = replaced(&text, &edit.after, &edit.before) {
            exchange.put(&edit.path, &text, Some(&back)).map_err(odd)?;
        }
    }
    Ok(())
}

fn index_back(repository: &Repository, pending: &Pending) -> Result<(), Error> {
    let Some(git) = &pending.git else { return Ok(()) };
    let entry = |object: &Option<Oid>| object.clone().map(|object| Entry { kind: Kind::File, object });
    let changed: Vec<Changed> = pending
        .entries
        .iter()
        .map(|(path, old, new)| Changed {
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
    let bench = Bench::new(repository, &here)?;
    let Some(stamp) = index::copy(&bench, git)? else { return Ok(()) };
    let listing = Listing::read(&bench, &changed)?;
    let moves: Vec<&Changed> = changed.iter().filter(|one| listing.at(one) == IndexAt::From).collect();
    if moves.is_empty() {
        return Ok(());
    }
    let bytes = index::rewrite(&bench, &moves, &HashSet::new())?;
    let next = Next::write(git, &bytes)?;
    let pending = Pending { index: Some(next.file), ..pending.clone() };
    pending.write(repository)?;
    if !next.lock()? || Stamp::of(&git.join("index"))? != Some(stamp) {
        index::unlock(git, &next.file)?;
        return Err(Error::Busy { what: git.join("index.lock").display().to_string() });
    }
    next.place()
}

fn text(repository: &Repository, object: &Oid) -> Result<String, Error> {
    let bytes = repository.ask(|objects: &mut Objects| objects.contents(object, "blob"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A text with every edit in it; `None` if one of them finds not just what it is to replace.
fn spliced(text: Option<&str>, edits: &[&Edit]) -> Option<String> {
    let mut text = text.map(str::to_owned);
    for edit in edits {
        text = match (&text, edit.before.is_empty()) {
            (None, true) => Some(edit.after.clone()),
            (Some(text), false) => Some(replaced(text, &edit.before, &edit.after)?),
            (Some(text), true) if *text == edit.after => Some(text.clone()),
            _ => return None,
        };
    }
    text
}

/// Replaces whole lines that are there once. A work tree may end its lines otherwise than a commit does.
fn replaced(text: &str, before: &str, after: &str) -> Option<String> {
    let windows = |part: &str| part.replace("\r\n", "\n").replace('\n', "\r\n");
    let unix = |part: &str| part.replace("\r\n", "\n");
    let pairs = [
        (before.to_owned(), after.to_owned()),
        (unix(before), unix(after)),
        (windows(before), windows(after)),
    ];
    pairs.iter().find_map(|(before, after)| {
        let mut found = text.match_indices(before.as_str()).map(|(at, _)| at);
        let starts =
            |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n' || before.starts_with('\u{feff}');
        let at = found.by_ref().find(starts)?;
        match found.any(|at| starts(&at)) {
            true => None,
            false => Some([&text[..at], after, &text[at + before.len()..]].concat()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_replaced_where_they_are_there_once() {
        assert_eq!(replaced("a\nb\nc\n", "b\n", "x\ny\n").as_deref(), Some("a\nx\ny\nc\n"));
        assert_eq!(replaced("a\nb\nb\n", "b\n", "x\n"), None, "twice");
        assert_eq!(replaced("a\nab\n", "b\n", "x\n"), None, "no whole line");
        assert_eq!(replaced("a\r\nb\r\n", "b\n", "x\ny\n").as_deref(), Some("a\r\nx\r\ny\r\n"));
        assert_eq!(replaced("a\nb\n", "b\r\n", "x\r\n").as_deref(), Some("a\nx\n"));
    }

    #[test]
    fn a_file_that_was_not_there_is_made_and_one_that_was_is_not() {
        let edit = Edit { path: "p".into(), before: String::new(), after: "new".into() };
        assert_eq!(spliced(None, &[&edit]).as_deref(), Some("new"));
        assert_eq!(spliced(Some("other"), &[&edit]), None);
        assert_eq!(spliced(Some("new"), &[&edit]).as_deref(), Some("new"));
    }
}
