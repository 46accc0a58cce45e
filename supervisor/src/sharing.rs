//! A board that git carries from clone to clone: what it wants is committed, told to the upstream, and brought up to
//! date before it is asked for anything.
//!
//! The upstream arbitrates. A commit is made known there before it is known here, while our own references are
//! locked: what others do not take has never happened, so there is nothing to undo. What they took and we died before
//! noticing comes back as theirs would. Where nobody can be reached, what must be known elsewhere (a claim, a landing) is
//! not done, and everything else is done here and told later.
//!
//! Two histories are brought together where git merges them without a conflict. Where it does not, a person has to:
//! until then nothing is claimed here and nothing lands.

use std::collections::HashSet;
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
/// How long an upstream that has answered before is waited for. One that never did is no outage.
const OUTAGE: Duration = Duration::from_mins(10);

/// So often does a push that is not answered, by an upstream that answers fetches, count as an outage.
const REFUSALS: u32 = 4;

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
    /// When it last answered.
    answered: Option<Instant>,
    /// Since when, and how often, no push was answered.
    unheard: Option<(Instant, u32)>,
    /// What a person has to do before anything is claimed or lands here.
    for_a_person: Option<String>,
    /// There are commits of ours that it does not have yet.
    untold: bool,
    /// What was told since we last had all it has, so that it is told once.
    told: HashSet<String>,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("branch", &self.branch).finish_non_exhaustive()
    }
}

/// Something a board is asked, as often as need be.
pub type Verb<'a, T> = dyn FnMut(&Tree) -> Result<(T, Effects), BoardError> + 'a;

/// How we stand to the upstream.
#[derive(Debug)]
enum Standing {
    /// There is none.
    Alone,
    /// We have all it has.
    Current,
    /// It does not answer.
    Unreachable(landing::Error),
    /// Nobody trusts it, or it has gone a way that only a person can bring together with ours.
    Apart { why: String, first: String },
    /// A person's files, or another program, keep us from following at the moment.
    Held(String),
}

impl Standing {
    /// Why we do not have what it has, and by which name that is told once: an outage is one, whichever commit met it.
    fn trouble(&self) -> Option<(String, String)> {
        match self {
            Self::Alone | Self::Current => None,
            Self::Unreachable(error) => Some((UNREACHABLE.to_owned(), causes::on_one_line(error))),
            Self::Apart { why, first } => Some((first.clone(), why.clone())),
            Self::Held(why) => Some((why.clone(), why.clone())),
        }
    }
}

/// What an outage is told by.
const UNREACHABLE: &str = "unreachable";

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
            Standing::Unreachable(error) if commit.is_needed => return Err(unshared(error)),
            Standing::Apart { why, .. } if commit.is_needed => {
                return Err(BoardError::Apart { reason: why.clone() });
            }
            Standing::Held(why) if commit.is_needed => {
                return Err(BoardError::Unshared { reason: why.clone() });
            }
            Standing::Current => self.upstream().unwrap_or_default(),
            Standing::Alone | Standing::Unreachable(_) | Standing::Apart { .. } | Standing::Held(_) => None,
        };
        if let Some((name, why)) = standing.trouble() {
            self.seen().untold = true;
            self.mention(&name, &format!("{}: it is committed here, and not pushed: {why}", commit.message));
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
        match committed.map_err(|error| unshared(&self.weigh(error)))? {
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
                self.mention(&what, &what);
                Ok(Made::Done)
            }
        }
    }

    /// `false` if somebody else was faster. What need not be known elsewhere is told later.
    fn push(&self, upstream: &Upstream, commit: &Oid, is_needed: bool) -> Result<bool, landing::Error> {
        let pushed = remote::push(&self.repository, upstream, commit);
        let mut seen = self.seen();
        match pushed {
            Ok(Pushed::Taken) => {
                (seen.answered, seen.untold, seen.unheard) = (Some(Instant::now()), false, None);
                Ok(true)
            }
            Ok(Pushed::Behind) => Ok(false),
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
                let why = causes::on_one_line(&error);
                let name = if let landing::Error::Unreachable { .. } = error { UNREACHABLE } else { &why };
                self.mention(name, &format!("it is done here, and not known elsewhere: {why}"));
                Ok(true)
            }
        }
    }

    /// Whether others take a commit that is about to land. Nothing lands that they do not: what was proved would have
    /// to be merged afterwards with what they landed, and nobody would have proved that.
    pub fn publish(&self, commit: &Oid) -> Result<bool, landing::Error> {
        match self.upstream() {
            Ok(Some(upstream)) => self.push(&upstream, commit, true).map_err(|error| self.weigh(error)),
            Ok(None) => Ok(true),
            // As if somebody were faster: when it is brought up to date, it is said what a person has to do.
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
        // Who can be asked, and never takes anything, refuses us.
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

    /// Brings the branch up to date for somebody who reads, if that was not done just now; says what a person has to do
    /// before anything can be claimed.
    pub fn look(&self) -> Option<String> {
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
            Standing::Alone => Ok(None),
            Standing::Current => {
                self.catch_up_others();
                Ok(None)
            }
            Standing::Unreachable(error) => Err(error),
            Standing::Apart { first, .. } => Ok(Some(first)),
            Standing::Held(why) => Ok(Some(why)),
        }
    }

    /// Tells the upstream what was committed here while it did not answer.
    fn catch_up_others(&self) {
        let Ok(Some(upstream)) = self.upstream() else { return };
        let missed = || -> Result<Option<Oid>, landing::Error> {
            let theirs = remote::last_seen(&self.repository, &upstream)?;
            let ours = refs::at(&self.repository, &self.branch)?;
            let (Some(theirs), Some(ours)) = (theirs, ours) else { return Ok(None) };
            // What a person has not pushed goes with our next commit, and not because somebody looked.
            let due = theirs != ours && (self.seen().untold || self.is_the_boards(&theirs, &ours)?);
            Ok(due.then_some(ours))
        };
        if let Ok(Some(ours)) = missed()
            && matches!(self.push(&upstream, &ours, true), Ok(true))
        {
            remote::remember(&self.repository, &upstream, &ours);
        }
    }

    /// Whether two commits differ in nothing but the board's own files.
    pub fn is_the_boards(&self, one: &Oid, other: &Oid) -> Result<bool, landing::Error> {
        let Ok(own) = Scope::parse(&self.own, &[]) else { return Ok(false) };
        let changed = difference::between(&self.repository, one, other)?;
        Ok(changed.iter().all(|one| own.judge(&one.path) == Judgement::InScope))
    }

    fn catch_up(&self) -> Standing {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let standing = match self.upstream() {
            Err(why) => Standing::Apart { first: why.clone(), why },
            Ok(None) => Standing::Alone,
            Ok(Some(upstream)) => match self.bring(&upstream) {
                Ok(standing) => standing,
                Err(error @ landing::Error::Unreachable { .. }) => Standing::Unreachable(self.weigh(error)),
                Err(error) => Standing::Held(causes::on_one_line(&error)),
            },
        };
        let mut seen = self.seen();
        (seen.looked, seen.takes) = (Some(Instant::now()), began.elapsed());
        match &standing {
            Standing::Apart { first, .. } => seen.for_a_person = Some(first.clone()),
            // What a person had to do before, they still have to.
            Standing::Unreachable(_) | Standing::Held(_) => {}
            Standing::Alone | Standing::Current => {
                seen.for_a_person = None;
                seen.told.clear();
            }
        }
        standing
    }

    /// To the end: whoever has followed asks once more, so that little time passes between the last look and what comes
    /// of it. Who is slower would otherwise always be refused.
    fn bring(&self, upstream: &Upstream) -> Result<Standing, landing::Error> {
        let repository = &self.repository;
        let mut last = String::new();
        for _ in 0..FOLLOWED {
            let fetched = remote::fetch(repository, upstream)?;
            self.seen().answered = Some(Instant::now());
            let Some(theirs) = fetched else { return Ok(Standing::Current) };
            let Some(ours) = refs::at(repository, &self.branch)? else { return Ok(Standing::Alone) };
            if merge::is_ancestor(repository, &theirs, &ours)? {
                return Ok(Standing::Current);
            }
            let to = match merge::is_ancestor(repository, &ours, &theirs)? {
                true => theirs,
                false => match self.merged(&ours, &theirs)? {
                    Ok(merged) => merged,
                    Err(why) => {
                        let why = format!(
                            "{upstream} has gone another way: {why}. Nothing is claimed and nothing lands here until then"
                        );
                        return Ok(Standing::Apart {
                            why,
                            first: format!("{upstream} has to be merged first"),
                        });
                    }
                },
            };
            let who = self.committer.signature(crate::clock::wall());
            match land::forward(repository, &self.branch, (&ours, &to), &who)? {
                land::Outcome::Landed { .. } => last = "it never stands still".to_owned(),
                land::Outcome::Waits { obstacles } => {
                    let all: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
                    return Ok(Standing::Held(format!("{upstream} can't be followed: {}", all.join("; "))));
                }
                land::Outcome::Busy { what } => last = what,
                _ => last = "the branch moves".to_owned(),
            }
        }
        match last.starts_with("it never") {
            // It was followed as far as it came; whether that is enough is seen when it is told something.
            true => Ok(Standing::Current),
            false => Ok(Standing::Held(format!("{upstream} can't be followed: {last}"))),
        }
    }

    /// Both ways as one, where git merges them without a conflict. Anything else is a person's to merge.
    ///
    /// Nobody proves the result, as nobody proves what `git pull` makes. It needs no proof of ours: nothing of ours lands
    /// unless the upstream takes it at the same moment, so what we have alone is the board's, or a person's.
    fn merged(&self, ours: &Oid, theirs: &Oid) -> Result<Result<Oid, String>, landing::Error> {
        let repository = &self.repository;
        let by_hand = |why: &str| Ok(Err(format!("{why}; merge it by hand (`git pull --no-rebase`)")));
        let Some(base) = merge::base(repository, ours, theirs)? else {
            return by_hand("they have nothing in common");
        };
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

    /// Tells it, if nothing of that name was told since all was well.
    fn mention(&self, name: &str, what: &str) {
        let news = self.seen().told.insert(name.to_owned());
        if news {
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
    let reason = causes::on_one_line(error);
    match error {
        landing::Error::Unreachable { .. } => BoardError::Unreachable { reason },
        _ => BoardError::Unshared { reason },
    }
}
