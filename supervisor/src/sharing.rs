//! A board that git carries from clone to clone: what it wants is committed, told to the upstream, and brought up to
//! date before it is asked for anything.
//!
//! The upstream arbitrates. A commit is made known there before it is known here, while our own references are
//! locked: what others do not take has never happened, so there is nothing to undo. What they took and we died before
//! noticing comes back as theirs would. Where nobody can be reached, what must be known elsewhere is not done, and
//! everything else is done here and told later.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use agency_protocols::board::BoardError;
use agency_protocols::store::tree::Tree;
use agency_protocols::store::{Commit, Effects, Held, Store, StoreError};
use agency_sandbox::scope::{Judgement, Scope};

use crate::causes;
use crate::landing::board::{self, Draft, Outcome};
use crate::landing::land;
use crate::landing::lock_watch::LockWatch;
use crate::landing::merge::{self, Merged};
use crate::landing::names::{Oid, RefName};
use crate::landing::remote::{self, Pushed, Trusted, Upstream};
use crate::landing::repository::Repository;
use crate::landing::{self, commit, difference, refs};
use crate::settings::Committer;

/// How often somebody may be faster than us.
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

/// Whom a person hears it from when something could not be told.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// What it takes to share a board.
#[derive(Clone)]
pub struct Sharing {
    pub repository: Arc<Repository>,
    pub branch: RefName,
    pub committer: Committer,
    /// Globs of what is the board's own.
    pub own: Vec<String>,
    /// Where it may be shared.
    trusted: Trusted,
    pub tell: Tell,
    seen: Arc<Mutex<Seen>>,
    /// One of us asks at a time.
    asking: Arc<Mutex<()>>,
}

/// What was seen of the upstream so far.
#[derive(Debug, Default)]
struct Seen {
    looked: Option<Instant>,
    /// How long that took.
    takes: Duration,
    /// What was last told, so that it is told once.
    told: String,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("branch", &self.branch).finish_non_exhaustive()
    }
}

/// Something a board is asked, as often as need be.
pub type Verb<'a, T> = dyn FnMut(&Tree) -> Result<(T, Effects), BoardError> + 'a;

/// How we stand to the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// There is none.
    Alone,
    /// We have all it has.
    Current,
    /// Something keeps us from having it.
    Apart(String),
}

impl Sharing {
    pub fn new(
        repository: Arc<Repository>,
        branch: RefName,
        committer: Committer,
        own: Vec<String>,
        trusted: Trusted,
        tell: Tell,
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

    /// The same, heard by somebody else.
    pub fn told_to(mut self, tell: Tell) -> Self {
        self.tell = tell;
        self
    }

    /// Lets a board say what it wants, and does it: files, commit and push, or nothing.
    pub fn act<T>(&self, store: &Store, verb: &mut Verb<'_, T>) -> Result<T, BoardError> {
        let held = store.hold()?;
        board::recover(&self.repository).map_err(|error| unshared(&error))?;
        let mut last = String::new();
        let lock = LockWatch::begin(&self.repository, &self.branch);
        for attempt in 1..=TRIES {
            let standing = self.catch_up();
            let (answer, effects) = verb(held.tree())?;
            let Some(commit) = &effects.commit else {
                held.commit(&effects)?;
                return Ok(answer);
            };
            match self.commit(&held, &effects, commit, &standing)? {
                Made::Done => return Ok(answer),
                Made::Again(what) => last = what,
            }
            if lock.elapsed() > LOCKED
                && let Some(reason) = lock.stuck()
            {
                return Err(BoardError::Unshared { reason });
            }
            thread::sleep(PAUSE * attempt.min(LONGEST_PAUSE));
        }
        Err(BoardError::Unshared { reason: format!("somebody was faster {TRIES} times in a row: {last}") })
    }

    fn commit(
        &self,
        held: &Held<'_>,
        effects: &Effects,
        commit: &Commit,
        standing: &Standing,
    ) -> Result<Made, BoardError> {
        let upstream = match standing {
            Standing::Apart(why) if commit.is_needed => {
                return Err(BoardError::Unshared { reason: why.clone() });
            }
            Standing::Alone | Standing::Apart(_) => None,
            Standing::Current => self.upstream().unwrap_or_default(),
        };
        if let Standing::Apart(why) = standing {
            self.mention(&format!("{}: it is committed here, and not pushed: {why}", commit.message));
        }
        let who = self.committer.signature(crate::clock::wall());
        let draft = Draft { target: &self.branch, edits: &commit.edits, message: &commit.message, who: &who };
        let mut failure = None;
        let mut place = || match held.commit(effects) {
            Ok(()) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
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
        let committed = board::commit(&self.repository, &draft, &mut place, Some(&publish));
        if let Some(error) = failure {
            return Err(error.into());
        }
        match committed.map_err(|error| unshared(&error))? {
            Outcome::Committed { commit } => {
                if let Some(upstream) = &upstream {
                    remote::remember(&self.repository, upstream, &commit);
                }
                Ok(Made::Done)
            }
            Outcome::Behind => Ok(Made::Again("the upstream moved".to_owned())),
            Outcome::Again { what } => Ok(Made::Again(what)),
            Outcome::Unclean { path, place } if commit.is_needed => Err(BoardError::Refused {
                reason: format!("{path} has changes to these very lines that are not in {place}"),
                hint: Some(format!("commit {path}, or take your changes to it back")),
            }),
            Outcome::Unclean { path, place } => {
                held.commit(effects)?;
                let what = format!(
                    "{}: it is written, and not committed: {path} has changes to these very lines that are not in {place}",
                    commit.message
                );
                self.mention(&what);
                Ok(Made::Done)
            }
        }
    }

    /// `false` if somebody else was faster. What need not be known elsewhere is told later.
    fn push(&self, upstream: &Upstream, commit: &Oid, is_needed: bool) -> Result<bool, landing::Error> {
        match remote::push(&self.repository, upstream, commit) {
            Ok(Pushed::Taken) => Ok(true),
            Ok(Pushed::Behind) => Ok(false),
            Err(error) if is_needed => Err(error),
            Err(error) => {
                self.mention(&format!(
                    "it is done here, and not known elsewhere: {}",
                    causes::on_one_line(&error)
                ));
                Ok(true)
            }
        }
    }

    /// Whether others take a commit that is about to land.
    pub fn publish(&self, commit: &Oid) -> Result<bool, landing::Error> {
        match self.upstream() {
            Ok(Some(upstream)) => self.push(&upstream, commit, false),
            Ok(None) => Ok(true),
            Err(why) => {
                self.mention(&format!("it is done here, and not pushed: {why}"));
                Ok(true)
            }
        }
    }

    /// Where the branch is shared, if anywhere; or why it may not be.
    fn upstream(&self) -> Result<Option<Upstream>, String> {
        let upstream = remote::upstream(&self.repository, &self.branch);
        upstream.map(|upstream| upstream.check(&self.trusted).map(|()| upstream)).transpose()
    }

    /// Brings the branch up to date for somebody who reads, if that was not done just now.
    pub fn look(&self) {
        let due = {
            let seen = self.seen();
            seen.looked.is_none_or(|looked| looked.elapsed() > LOOK_EVERY.max(seen.takes * 10))
        };
        if due && let Standing::Apart(why) = self.catch_up() {
            self.mention(&why);
        }
    }

    /// Brings the branch up to date; `false` where that can't be done, and a person has to.
    pub fn refresh(&self) -> bool {
        match self.catch_up() {
            Standing::Apart(why) => {
                self.mention(&why);
                false
            }
            Standing::Alone | Standing::Current => true,
        }
    }

    fn catch_up(&self) -> Standing {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let standing = match self.upstream() {
            Err(why) => Standing::Apart(why),
            Ok(None) => Standing::Alone,
            Ok(Some(upstream)) => match self.bring(&upstream) {
                Ok(standing) => standing,
                Err(error) => Standing::Apart(causes::on_one_line(&error)),
            },
        };
        let mut seen = self.seen();
        (seen.looked, seen.takes) = (Some(Instant::now()), began.elapsed());
        standing
    }

    /// To the end: whoever has followed asks once more, so that little time passes between the last look and what comes
    /// of it. Who is slower would otherwise always be refused.
    fn bring(&self, upstream: &Upstream) -> Result<Standing, landing::Error> {
        let repository = &self.repository;
        let mut last = String::new();
        for _ in 0..FOLLOWED {
            let Some(theirs) = remote::fetch(repository, upstream)? else { return Ok(Standing::Current) };
            let Some(ours) = refs::at(repository, &self.branch)? else { return Ok(Standing::Alone) };
            if merge::is_ancestor(repository, &theirs, &ours)? {
                return Ok(Standing::Current);
            }
            let to = match merge::is_ancestor(repository, &ours, &theirs)? {
                true => theirs,
                false => match self.merged(&ours, &theirs)? {
                    Ok(merged) => merged,
                    Err(why) => {
                        return Ok(Standing::Apart(format!("{upstream} has gone another way: {why}")));
                    }
                },
            };
            let who = self.committer.signature(crate::clock::wall());
            match land::forward(repository, &self.branch, (&ours, &to), &who)? {
                land::Outcome::Landed { .. } => last = "it never stands still".to_owned(),
                land::Outcome::Waits { obstacles } => {
                    let all: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
                    return Ok(Standing::Apart(format!("{upstream} can't be followed: {}", all.join("; "))));
                }
                land::Outcome::Busy { what } => last = what,
                _ => last = "the branch moves".to_owned(),
            }
        }
        match last.starts_with("it never") {
            // It was followed as far as it came; whether that is enough is seen when it is told something.
            true => Ok(Standing::Current),
            false => Ok(Standing::Apart(format!("{upstream} can't be followed: {last}"))),
        }
    }

    /// Both ways as one, where one of them is nothing but the board's own. Anything else is a person's to merge.
    fn merged(&self, ours: &Oid, theirs: &Oid) -> Result<Result<Oid, String>, landing::Error> {
        let repository = &self.repository;
        let by_hand = |why: &str| Ok(Err(format!("{why}; merge it by hand")));
        let Some(base) = merge::base(repository, ours, theirs)? else {
            return by_hand("they have nothing in common");
        };
        let Ok(own) = Scope::parse(&self.own, &[]) else { return by_hand("the board's files can't be told") };
        let is_boards = |side: &Oid| {
            let changed = difference::between(repository, &base, side)?;
            Ok::<_, landing::Error>(changed.iter().all(|one| own.judge(&one.path) == Judgement::InScope))
        };
        if !is_boards(ours)? && !is_boards(theirs)? {
            return by_hand("both have commits that are not the board's");
        }
        let tree = match merge::onto(repository, &base, theirs, ours)? {
            Merged::Clean { tree } => tree,
            Merged::Contained => refs::tree_of(repository, ours)?,
            Merged::Conflict { paths } => {
                let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
                return by_hand(&format!("both changed {}", paths.join(", ")));
            }
        };
        let who = self.committer.signature(crate::clock::wall());
        Ok(Ok(commit::write_merge(
            repository,
            &tree,
            [ours, theirs],
            &who,
            "Merge what others did to the board",
        )?))
    }

    fn mention(&self, what: &str) {
        let mut seen = self.seen();
        if seen.told != what {
            what.clone_into(&mut seen.told);
            drop(seen);
            (self.tell)(what);
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of one try.
enum Made {
    Done,
    Again(String),
}

fn unshared(error: &landing::Error) -> BoardError {
    BoardError::Unshared { reason: causes::on_one_line(error) }
}
