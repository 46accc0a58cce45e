//! A board that git carries from clone to clone: what it wants is committed, told to the upstream, and brought up to
//! date before it is asked for anything.
//!
//! The upstream arbitrates. A commit is made known there before it is known here, while our own references are
//! locked: a commit that the upstream does not take has never happened, so there is nothing to undo. If the upstream
//! took it and we died before we noticed it, it comes back like another clone's commit. If the upstream can't be
//! reached, we do not do what must be known elsewhere (a claim, a landing); we do everything else here and tell the
//! upstream later.
//!
//! Two histories are brought together where git merges them without a conflict. Where it does not, a person has to:
//! until then nothing is claimed here and nothing lands.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use agency_protocols::board::BoardError;
use agency_protocols::store::exchange::FileExchange;
use agency_protocols::store::tree::RepoTree;
use agency_protocols::store::{BoardCommit, BoardStore, BoardStoreError, BoardStoreGuard, Effects};
use agency_sandbox::file_writers::is_open_for_writing;
use agency_sandbox::scope::Scope;

use crate::settings::Committer;
use agency_landing::board_commit::{self, BoardCommitDraft, BoardCommitOutcome, CommitEdit};
use agency_landing::land;
use agency_landing::lock_watch::LockWatch;
use agency_landing::merge::{self, MergeOutcome};
use agency_landing::names::{Oid, RefName};
use agency_landing::remote::{self, PushResult, TrustedUpstreams, Upstream};
use agency_landing::repository::LandingRepository;
use agency_landing::{self as landing, commit, refs, tree_diff};
use agency_sandbox::error_chain;

/// How often another clone may be faster than us.
const TRIES: u32 = 40;
/// How long one and the same lock on the branch is waited for.
const LOCKED: Duration = Duration::from_secs(5);
/// How long is waited after that, the first time; longer each time, up to so often.
const PAUSE: Duration = Duration::from_millis(8);
const LONGEST_PAUSE: u32 = 16;
/// How often an upstream that moves all the time is followed.
const FOLLOWED: usize = 8;
/// How often a board that is only read is brought up to date.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long an upstream that has answered before is waited for. One that never did is no outage.
const OUTAGE: Duration = Duration::from_mins(10);

/// So often does a push that is not answered, by an upstream that answers fetches, count as an outage.
const REFUSALS: u32 = 4;

/// Whom a person hears it from when something could not be told.
pub type MessageSink = Arc<dyn Fn(&str) + Send + Sync>;

/// What it takes to share a board.
#[derive(Clone)]
pub struct BoardSync {
    pub repository: Arc<LandingRepository>,
    pub branch: RefName,
    pub committer: Committer,
    /// Globs of what is the board's own.
    pub own: Vec<String>,
    /// Where it may be shared.
    trusted: TrustedUpstreams,
    pub tell: MessageSink,
    seen: Arc<Mutex<UpstreamState>>,
    /// One of us asks at a time.
    asking: Arc<Mutex<()>>,
}

/// What was seen of the upstream so far.
#[derive(Debug, Default)]
struct UpstreamState {
    looked: Option<Instant>,
    /// How long that took.
    takes: Duration,
    /// When it last answered.
    answered: Option<Instant>,
    /// Since when, and how often, no push was answered.
    unheard: Option<(Instant, u32)>,
    /// The lock by which it refuses pushes, and since when.
    locked: Option<(Instant, String)>,
    /// What a person has to do before anything is claimed or lands here.
    for_a_person: Option<String>,
    /// There are commits of ours that it does not have yet.
    untold: bool,
    /// What was told since we last had all it has, so that it is told once.
    told: HashSet<String>,
}

impl std::fmt::Debug for BoardSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoardSync").field("branch", &self.branch).finish_non_exhaustive()
    }
}

/// Something a board is asked, as often as need be.
pub type BoardAction<'a, T> = dyn FnMut(&RepoTree) -> Result<(T, Effects), BoardError> + 'a;

/// How we stand to the upstream.
#[derive(Debug)]
enum UpstreamStatus {
    /// There is none.
    Alone,
    /// We have all it has.
    Current,
    /// It does not answer.
    Unreachable(landing::Error),
    /// We do not trust it, or it has gone a way that only a person can bring together with ours.
    Apart { why: String, first: String },
    /// A person's files, or another program, keep us from following at the moment.
    Held(String),
}

impl UpstreamStatus {
    /// Why we do not have what it has, and the name by which that is told once: an outage is one, with any commit.
    fn trouble(&self) -> Option<(String, String)> {
        match self {
            Self::Alone | Self::Current => None,
            Self::Unreachable(error) => Some((UNREACHABLE.to_owned(), error_chain::on_one_line(error))),
            Self::Apart { why, first } => Some((first.clone(), why.clone())),
            Self::Held(why) => Some((why.clone(), why.clone())),
        }
    }
}

/// The name by which an outage is told once.
const UNREACHABLE: &str = "unreachable";
/// The name by which it is told once that the upstream answers and takes nothing. Its reasons name the commit, so they
/// differ each time.
const REFUSED: &str = "refused";

impl BoardSync {
    pub fn new(
        repository: Arc<LandingRepository>,
        branch: RefName,
        committer: Committer,
        own: Vec<String>,
        trusted: TrustedUpstreams,
        tell: MessageSink,
    ) -> Self {
        Self {
            repository,
            branch,
            committer,
            own,
            trusted,
            tell,
            seen: Arc::default(),
            asking: Arc::default(),
        }
    }

    /// The same, with its messages to another sink.
    pub fn with_messages_to(mut self, tell: MessageSink) -> Self {
        self.tell = tell;
        self
    }

    /// Lets a board say what it wants, and does it: files, commit and push, or nothing.
    pub fn act<T>(&self, store: &BoardStore, verb: &mut BoardAction<'_, T>) -> Result<T, BoardError> {
        let held = store.lock_for_update()?;
        board_commit::recover(&self.repository, revert_edits).map_err(|error| unshared(&error))?;
        let mut last = String::new();
        let lock = LockWatch::begin(&self.repository, &self.branch);
        for attempt in 1..=TRIES {
            let standing = self.catch_up();
            let (answer, effects) = held.ask(&mut *verb)?;
            let Some(commit) = &effects.commit else {
                held.commit(&effects)?;
                return Ok(answer);
            };
            match self.commit(&held, &effects, commit, &standing)? {
                CommitAttempt::Done => return Ok(answer),
                CommitAttempt::Again(what) => last = what,
            }
            if lock.elapsed() > LOCKED
                && let Some(reason) = lock.stuck_reason()
            {
                return Err(BoardError::Unshared { reason });
            }
            if let Some(reason) = self.locked_upstream() {
                return Err(BoardError::Unshared { reason });
            }
            thread::sleep(PAUSE * attempt.min(LONGEST_PAUSE));
        }
        Err(BoardError::Unshared {
            reason: format!("another clone was faster {TRIES} times in a row: {last}"),
        })
    }

    fn commit(
        &self,
        held: &BoardStoreGuard<'_>,
        effects: &Effects,
        commit: &BoardCommit,
        standing: &UpstreamStatus,
    ) -> Result<CommitAttempt, BoardError> {
        let upstream = match standing {
            UpstreamStatus::Unreachable(error) if commit.is_needed => return Err(unshared(error)),
            UpstreamStatus::Apart { why, .. } if commit.is_needed => {
                return Err(BoardError::Apart { reason: why.clone() });
            }
            UpstreamStatus::Held(why) if commit.is_needed => {
                return Err(BoardError::Unshared { reason: why.clone() });
            }
            UpstreamStatus::Current => self.upstream().unwrap_or_default(),
            UpstreamStatus::Alone
            | UpstreamStatus::Unreachable(_)
            | UpstreamStatus::Apart { .. }
            | UpstreamStatus::Held(_) => None,
        };
        if let Some((name, why)) = standing.trouble() {
            self.seen().untold = true;
            self.mention(&name, &format!("{}: it is committed here, and not pushed: {why}", commit.message));
        }
        let who = self.committer.signature(crate::clock::wall_seconds());
        let edits: Vec<CommitEdit> = commit.edits.iter().map(edit_of).collect();
        let draft = BoardCommitDraft {
            target: &self.branch,
            edits: &edits,
            message: &commit.message,
            who: &who,
            take_out: revert_edits,
        };
        let mut failure = None;
        let mut place = || match held.commit(effects) {
            Ok(()) => Ok(true),
            Err(BoardStoreError::Conflict { .. }) => Ok(false),
            Err(error) => {
                let reason = error.to_string();
                failure = Some(error);
                Err(landing::Error::Board { reason })
            }
        };
        let publish = |made: &Oid| match &upstream {
            Some(upstream) => self.push(upstream, made, commit.is_needed),
            None => Ok(true),
        };
        let committed = board_commit::commit(&self.repository, &draft, &mut place, Some(&publish));
        if let Some(error) = failure {
            return Err(error.into());
        }
        match committed.map_err(|error| unshared(&self.weigh(error)))? {
            BoardCommitOutcome::Committed { commit } => {
                if let Some(upstream) = &upstream {
                    remote::remember(&self.repository, upstream, &commit);
                }
                Ok(CommitAttempt::Done)
            }
            BoardCommitOutcome::Behind => Ok(CommitAttempt::Again("the upstream moved".to_owned())),
            BoardCommitOutcome::Again { what } => Ok(CommitAttempt::Again(what)),
            BoardCommitOutcome::Unclean { path, place } if commit.is_needed => Err(BoardError::Refused {
                reason: format!("{path} has changes to these very lines that are not in {place}"),
                hint: Some(format!("commit {path}, or take your changes to it back")),
            }),
            BoardCommitOutcome::Unclean { path, place } => {
                held.commit(effects)?;
                let what = format!(
                    "{}: it is written, and not committed: {path} has changes to these very lines that are not in {place}",
                    commit.message
                );
                self.mention(&what, &what);
                Ok(CommitAttempt::Done)
            }
        }
    }

    /// What a person has to do about a lock of the upstream that stays.
    fn locked_upstream(&self) -> Option<String> {
        let seen = self.seen();
        let (since, file) = seen.locked.as_ref()?;
        (since.elapsed() > LOCKED).then(|| {
            format!(
                "the upstream's branch is locked by {file} there, for more than {} s; if no git is at work in the upstream, remove that file",
                LOCKED.as_secs()
            )
        })
    }

    /// Pushes a commit; `false` if another clone was faster. What need not be known elsewhere is told later.
    fn push(&self, upstream: &Upstream, commit: &Oid, is_needed: bool) -> Result<bool, landing::Error> {
        let pushed = remote::push(&self.repository, upstream, commit);
        let mut seen = self.seen();
        match pushed {
            Ok(PushResult::Taken) => {
                seen.locked = None;
                (seen.answered, seen.untold, seen.unheard) = (Some(Instant::now()), false, None);
                Ok(true)
            }
            Ok(PushResult::Behind) => {
                seen.locked = None;
                Ok(false)
            }
            Ok(PushResult::Locked { file }) => {
                let since = seen.locked.take().filter(|(_, known)| *known == file).map(|(since, _)| since);
                seen.locked = Some((since.unwrap_or_else(Instant::now), file));
                Ok(false)
            }
            Err(error) if is_needed => {
                if let landing::Error::Unreachable { .. } = error {
                    let (since, times) = seen.unheard.unwrap_or((Instant::now(), 0));
                    seen.unheard = Some((since, times + 1));
                }
                Err(error)
            }
            Err(error) => {
                seen.untold = true;
                drop(seen);
                let why = error_chain::on_one_line(&error);
                let name = match error {
                    landing::Error::Unreachable { .. } => UNREACHABLE,
                    _ => REFUSED,
                };
                self.mention(name, &format!("it is done here, and not known elsewhere: {why}"));
                Ok(true)
            }
        }
    }

    /// Whether the upstream takes a commit that is about to land. If it does not, nothing lands: we would have to merge
    /// what was proved with what others landed, and no check would have proved the result.
    pub fn publish(&self, commit: &Oid) -> Result<bool, landing::Error> {
        match self.upstream() {
            Ok(Some(upstream)) => self.push(&upstream, commit, true).map_err(|error| self.weigh(error)),
            Ok(None) => Ok(true),
            // As if another clone were faster: bringing it up to date says what a person has to do.
            Err(_) => Ok(false),
        }
    }

    /// An upstream that does not answer and never did, or not for long, is no outage that passes.
    fn weigh(&self, error: landing::Error) -> landing::Error {
        match error {
            landing::Error::Unreachable { doing, remote, message } if !self.is_outage() => {
                landing::Error::Remote { doing, remote, message }
            }
            error => error,
        }
    }

    /// Whether an upstream that does not answer now is worth waiting for.
    fn is_outage(&self) -> bool {
        let seen = self.seen();
        // An upstream that answers, and never takes a commit, refuses us.
        let is_heard = |answered: Instant| {
            seen.unheard.is_none_or(|(since, times)| times < REFUSALS || answered < since)
        };
        seen.answered.is_some_and(|answered| answered.elapsed() < OUTAGE && is_heard(answered))
    }

    /// Where the branch is shared, if anywhere; or why it may not be.
    fn upstream(&self) -> Result<Option<Upstream>, String> {
        let upstream = remote::upstream(&self.repository, &self.branch);
        upstream.map(|upstream| upstream.check(&self.trusted).map(|()| upstream)).transpose()
    }

    /// Brings the branch up to date for a reader, if that was not done just now; returns what a person has to do
    /// before anything can be claimed.
    pub fn refresh_if_stale(&self) -> Option<String> {
        let due = {
            let seen = self.seen();
            seen.looked.is_none_or(|looked| looked.elapsed() > LOOK_EVERY.max(seen.takes * 10))
        };
        if due {
            // An upstream that does not answer is said; who claims something hears of it.
            let _ = self.refresh();
        }
        self.seen().for_a_person.clone()
    }

    /// Brings the branch up to date, and tells the upstream what it missed. Says what a person has to do where that can't
    /// be done; the same is told once.
    pub fn refresh(&self) -> Result<Option<String>, landing::Error> {
        let standing = self.catch_up();
        if let Some((name, why)) = standing.trouble() {
            self.mention(&name, &why);
        }
        match standing {
            UpstreamStatus::Alone => Ok(None),
            UpstreamStatus::Current => {
                self.catch_up_others();
                Ok(None)
            }
            UpstreamStatus::Unreachable(error) => Err(error),
            UpstreamStatus::Apart { first, .. } => Ok(Some(first)),
            UpstreamStatus::Held(why) => Ok(Some(why)),
        }
    }

    /// Tells the upstream what was committed here while it did not answer.
    fn catch_up_others(&self) {
        let Ok(Some(upstream)) = self.upstream() else { return };
        let missed = || -> Result<Option<Oid>, landing::Error> {
            let theirs = remote::last_seen(&self.repository, &upstream)?;
            let ours = refs::at(&self.repository, &self.branch)?;
            let (Some(theirs), Some(ours)) = (theirs, ours) else { return Ok(None) };
            // What a person has not pushed goes with our next commit, and not because of a look.
            let due = theirs != ours && (self.seen().untold || self.differs_only_in_board(&theirs, &ours)?);
            Ok(due.then_some(ours))
        };
        if let Ok(Some(ours)) = missed()
            && matches!(self.push(&upstream, &ours, true), Ok(true))
        {
            remote::remember(&self.repository, &upstream, &ours);
        }
    }

    /// Whether two commits differ in nothing but the board's own files.
    pub fn differs_only_in_board(&self, one: &Oid, other: &Oid) -> Result<bool, landing::Error> {
        let Ok(own) = Scope::parse(&self.own, &[]) else { return Ok(false) };
        tree_diff::differs_only_in(&self.repository, &own, one, other)
    }

    fn catch_up(&self) -> UpstreamStatus {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let standing = match self.upstream() {
            Err(why) => UpstreamStatus::Apart { first: why.clone(), why },
            Ok(None) => UpstreamStatus::Alone,
            Ok(Some(upstream)) => match self.bring(&upstream) {
                Ok(standing) => standing,
                Err(error @ landing::Error::Unreachable { .. }) => {
                    UpstreamStatus::Unreachable(self.weigh(error))
                }
                Err(error) => UpstreamStatus::Held(error_chain::on_one_line(&error)),
            },
        };
        let mut seen = self.seen();
        (seen.looked, seen.takes) = (Some(Instant::now()), began.elapsed());
        match &standing {
            UpstreamStatus::Apart { first, .. } => seen.for_a_person = Some(first.clone()),
            // What a person had to do before, they still have to.
            UpstreamStatus::Unreachable(_) | UpstreamStatus::Held(_) => {}
            UpstreamStatus::Alone | UpstreamStatus::Current => {
                seen.for_a_person = None;
                let is_refused = seen.untold;
                seen.told.retain(|name| is_refused && name == REFUSED);
            }
        }
        standing
    }

    /// Brings it up to date to the end: after it followed, it asks once more, so that little time passes between the
    /// last look and its use. A slower clone would otherwise always be refused.
    fn bring(&self, upstream: &Upstream) -> Result<UpstreamStatus, landing::Error> {
        let repository = &self.repository;
        let mut last = String::new();
        for _ in 0..FOLLOWED {
            let fetched = remote::fetch(repository, upstream)?;
            self.seen().answered = Some(Instant::now());
            let Some(theirs) = fetched else { return Ok(UpstreamStatus::Current) };
            let Some(ours) = refs::at(repository, &self.branch)? else { return Ok(UpstreamStatus::Alone) };
            if merge::is_ancestor(repository, &theirs, &ours)? {
                return Ok(UpstreamStatus::Current);
            }
            let to = match merge::is_ancestor(repository, &ours, &theirs)? {
                true => theirs,
                false => match self.merged(&ours, &theirs)? {
                    Ok(merged) => merged,
                    Err(why) => {
                        let why = format!(
                            "{upstream} has gone another way: {why}. Nothing is claimed and nothing lands here until then"
                        );
                        return Ok(UpstreamStatus::Apart {
                            why,
                            first: format!("{upstream} has to be merged first"),
                        });
                    }
                },
            };
            let who = self.committer.signature(crate::clock::wall_seconds());
            match land::fast_forward(repository, &self.branch, (&ours, &to), &who)? {
                land::LandOutcome::Landed { .. } => last = "it never stands still".to_owned(),
                land::LandOutcome::Waits { obstacles } => {
                    let all: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
                    return Ok(UpstreamStatus::Held(format!(
                        "{upstream} can't be followed: {}",
                        all.join("; ")
                    )));
                }
                land::LandOutcome::Busy { what } => last = what,
                _ => last = "the branch moves".to_owned(),
            }
        }
        match last.starts_with("it never") {
            // It was followed as far as it came; whether that is enough is seen when it is told something.
            true => Ok(UpstreamStatus::Current),
            false => Ok(UpstreamStatus::Held(format!("{upstream} can't be followed: {last}"))),
        }
    }

    /// Both ways as one, where git merges them without a conflict. Anything else is a person's to merge.
    ///
    /// No check proves the result, as none proves what `git pull` makes. It needs no proof of ours: nothing of ours
    /// lands unless the upstream takes it at the same moment, so what we have alone is the board's, or a person's.
    fn merged(&self, ours: &Oid, theirs: &Oid) -> Result<Result<Oid, String>, landing::Error> {
        let repository = &self.repository;
        let by_hand = |why: &str| Ok(Err(format!("{why}; merge it by hand (`git pull --no-rebase`)")));
        let Some(base) = merge::merge_base(repository, ours, theirs)? else {
            return by_hand("they have nothing in common");
        };
        let tree = match merge::merge_candidate(repository, &base, theirs, ours)? {
            MergeOutcome::Clean { tree } => tree,
            MergeOutcome::Contained => refs::tree_of(repository, ours)?,
            MergeOutcome::Conflict { paths } => {
                let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
                return by_hand(&format!("both changed {}", paths.join(", ")));
            }
        };
        let who = self.committer.signature(crate::clock::wall_seconds());
        Ok(Ok(commit::write_merge(
            repository,
            &tree,
            [ours, theirs],
            &who,
            "Merge what others did to the board",
        )?))
    }

    /// Tells it, if nothing of that name was told since all was well.
    fn mention(&self, name: &str, what: &str) {
        let news = self.seen().told.insert(name.to_owned());
        if news {
            (self.tell)(what);
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, UpstreamState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn edit_of(edit: &agency_protocols::store::FileEdit) -> CommitEdit {
    CommitEdit { path: edit.path.clone(), before: edit.before.clone(), after: edit.after.clone() }
}

/// Takes edits that were not committed out of the board's files again, as the board's store writes them.
pub fn revert_edits(root: &Path, edits: &[CommitEdit]) -> Result<(), landing::Error> {
    let odd = |error: BoardStoreError| landing::Error::Board { reason: error.to_string() };
    let tree = RepoTree::open(root).map_err(|error| odd(error.into()))?;
    let exchange = FileExchange { tree: &tree, check: is_open_for_writing };
    for edit in edits.iter().rev() {
        let Some(text) = tree.read_text(&edit.path).map_err(|error| odd(error.into()))? else { continue };
        if let Some(without) = edit.revert_in(&text) {
            exchange.put(&edit.path, &text, without.as_deref()).map_err(odd)?;
        }
    }
    Ok(())
}

/// The result of one try.
enum CommitAttempt {
    Done,
    Again(String),
}

fn unshared(error: &landing::Error) -> BoardError {
    let reason = error_chain::on_one_line(error);
    match error {
        landing::Error::Unreachable { .. } => BoardError::Unreachable { reason },
        _ => BoardError::Unshared { reason },
    }
}
