//! Whether work may land, decided over what was seen, and over nothing else.

use std::fmt;
use std::path::PathBuf;

use agency_sandbox::path::RelPath;
use agency_sandbox::scope::Scope;
use serde::Serialize;

use super::commit::Signature;
use super::difference::Difference;
use super::index::IndexAt;
use super::landed::Landed;
use super::lease::Lease;
use super::names::{Oid, RefName};
use super::obstacle::{Obstacle, What};
use super::refs::Line;
use super::scope::{self, Outside};
use super::worktree::Operation;

/// What is to land, where, and on whose claim.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub lease: &'a Lease,
    /// A person's branch, or the task's own ([`super::names::Task::branch`]).
    pub target: &'a RefName,
    /// Where the branch was when the work was merged and verified; `None` if it was not there.
    pub expected: Option<&'a Oid>,
    pub work: Work<'a>,
    pub scope: &'a Scope,
    /// The attempt after whose landing a person opened the task again. Without it, a task lands once.
    pub reopened_after: Option<u64>,
    pub who: &'a Signature,
}

#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// A commit, and the one it was made on.
    Commit { commit: &'a Oid, base: &'a Oid },
    /// The branch has it already; only that is to be recorded.
    Contained,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Where the lease is.
    pub lease: Option<Oid>,
    /// Where the branch is.
    pub target: Option<Oid>,
    pub landed: Option<Landed>,
    /// A branch that has the name of a folder this one needs.
    pub taken: Option<RefName>,
    /// What the commit was really made on.
    pub parents: Vec<Oid>,
    /// Whether the branch is in the commit's history.
    pub forward: bool,
    /// What the commit changes.
    pub difference: Difference,
    /// The work trees that have the branch checked out.
    pub checkouts: Vec<CheckoutFacts>,
}

/// One work tree with the branch.
#[derive(Debug, Clone)]
pub struct CheckoutFacts {
    pub root: PathBuf,
    pub condition: Condition,
}

#[derive(Debug, Clone)]
pub enum Condition {
    Homeless,
    Away,
    Operation(Operation),
    Locked,
    /// There is no index, so no file of the branch was ever put there.
    Empty,
    Files(Vec<PathFacts>),
}

/// One path that is to change in a work tree.
#[derive(Debug, Clone)]
pub struct PathFacts {
    pub path: RelPath,
    pub index: IndexAt,
    pub file: FileAt,
    /// A program that the person's git runs on it.
    pub filter: Option<String>,
}

/// Where a file is on the way from one tree to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAt {
    From,
    To,
    /// A sparse checkout leaves it out, on both sides.
    LeftOut,
    Edited,
    Deleted,
    Untracked,
    Hidden,
    Unreadable(String),
}

/// What is to be done about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// All of it, with the files of this work tree.
    Go {
        checkout: Option<usize>,
    },
    /// This very attempt has landed.
    AlreadyLanded(Landed),
    /// Another attempt has, and nobody opened the task again.
    LandedBefore(Landed),
    /// The lease is somebody else's, or nobody's.
    Stale {
        found: Option<Oid>,
    },
    /// The branch is not where it was; merge and verify again.
    Moved {
        found: Option<Oid>,
    },
    Refused(Refusal),
    Waits(Vec<Obstacle>),
}

/// Work that will never land as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "refused", rename_all = "snake_case")]
pub enum Refusal {
    Scope {
        outside: Vec<Outside>,
    },
    /// The commit is not one on top of the commit it is said to be.
    NotOnBase {
        commit: Oid,
    },
    /// The branch has no commit to land on.
    Unborn {
        branch: RefName,
    },
    /// The branch has somebody's commits that the work does not know.
    NotOurs {
        branch: RefName,
        at: Oid,
    },
    /// No branch can have this name while there is that one.
    NameTaken {
        branch: RefName,
        by: RefName,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scope { outside } => match &outside[..] {
                [first, rest @ ..] if !rest.is_empty() => write!(f, "{first}; and {} more", rest.len()),
                [first, ..] => write!(f, "{first}"),
                [] => f.write_str("something is out of scope"),
            },
            Self::NotOnBase { commit } => write!(f, "{commit} is not a commit on top of what was verified"),
            Self::Unborn { branch } => write!(f, "the branch {branch} has no commit yet"),
            Self::NotOurs { branch, at } => {
                write!(f, "the branch {branch} is at {at}, which somebody else put there")
            }
            Self::NameTaken { branch, by } => {
                write!(f, "there can be no branch {branch} while there is a branch {by}")
            }
        }
    }
}

/// Decides. What a person did is waited for, what an attempt did wrong is refused, and whoever lost the lease
/// or the race is told so; only when there is none of that, the branch moves.
pub fn decide(request: &Request<'_>, facts: &Facts) -> Decision {
    let landed = facts.landed.as_ref();
    if let Some(landed) = landed.filter(|landed| landed.epoch == request.lease.epoch) {
        return Decision::AlreadyLanded(landed.clone());
    }
    if facts.lease.as_ref() != Some(&request.lease.object) {
        return Decision::Stale { found: facts.lease.clone() };
    }
    if let Some(landed) = landed.filter(|landed| request.reopened_after != Some(landed.epoch)) {
        return Decision::LandedBefore(landed.clone());
    }
    if let Some(refusal) = refusal(request, facts) {
        return Decision::Refused(refusal);
    }
    if facts.target.as_ref() != request.expected {
        return Decision::Moved { found: facts.target.clone() };
    }
    if let Work::Contained = request.work {
        return Decision::Go { checkout: None };
    }
    let replaces =
        |at: &Oid| landed.is_some_and(|landed| landed.commit == *at && landed.branch == *request.target);
    if let Some(at) = request.expected.filter(|at| !facts.forward && !replaces(at)) {
        let branch = request.target.clone();
        return Decision::Refused(Refusal::NotOurs { branch, at: at.clone() });
    }
    let obstacles = obstacles(&facts.checkouts);
    if !obstacles.is_empty() {
        return Decision::Waits(obstacles);
    }
    let files = |checkout: &CheckoutFacts| matches!(checkout.condition, Condition::Files(_));
    Decision::Go { checkout: facts.checkouts.iter().position(files) }
}

fn refusal(request: &Request<'_>, facts: &Facts) -> Option<Refusal> {
    let branch = || request.target.clone();
    if let Some(by) = &facts.taken {
        return Some(Refusal::NameTaken { branch: branch(), by: by.clone() });
    }
    let own = *request.target == request.lease.task.branch();
    if request.expected.is_none() && !own {
        return Some(Refusal::Unborn { branch: branch() });
    }
    let Work::Commit { commit, base } = request.work else { return None };
    // On a person's branch, anything between the branch and the work would land unseen.
    let on_branch = own || request.expected == Some(base);
    if facts.parents != [base.clone()] || !on_branch {
        return Some(Refusal::NotOnBase { commit: commit.clone() });
    }
    let outside = scope::outside(request.scope, &facts.difference);
    (!outside.is_empty()).then_some(Refusal::Scope { outside })
}

pub(super) fn obstacles(checkouts: &[CheckoutFacts]) -> Vec<Obstacle> {
    if checkouts.len() > 1 {
        let twice = |checkout: &CheckoutFacts| Obstacle { root: checkout.root.clone(), what: What::Twice };
        return checkouts.iter().map(twice).collect();
    }
    let mut found = Vec::new();
    for CheckoutFacts { root, condition } in checkouts {
        let whole = match condition {
            Condition::Homeless => Some(What::Homeless),
            Condition::Away => Some(What::Away),
            Condition::Operation(operation) => Some(What::Operation { operation: *operation }),
            Condition::Locked => Some(What::Locked),
            Condition::Empty | Condition::Files(_) => None,
        };
        let paths = match condition {
            Condition::Files(paths) => &paths[..],
            _ => &[],
        };
        let all = whole.into_iter().chain(paths.iter().filter_map(in_the_way));
        found.extend(all.map(|what| Obstacle { root: root.clone(), what }));
    }
    found
}

/// What is a person's at a path. Where the file already is what it will be, nothing can be lost; where only
/// the index is, somebody took the file back.
fn in_the_way(facts: &PathFacts) -> Option<What> {
    let path = facts.path.clone();
    if let Some(filter) = &facts.filter {
        return Some(What::Filtered { path, filter: filter.clone() });
    }
    match (facts.index, &facts.file) {
        (_, FileAt::Edited) => Some(What::Edited { path }),
        (_, FileAt::Deleted) => Some(What::Deleted { path }),
        (_, FileAt::Untracked) => Some(What::Untracked { path }),
        (_, FileAt::Hidden) => Some(What::Hidden { path }),
        (_, FileAt::Unreadable(error)) => Some(What::Unreadable { path, error: error.clone() }),
        (IndexAt::Other, _) => Some(What::Staged { path }),
        (IndexAt::To, FileAt::From) => Some(What::Edited { path }),
        (IndexAt::From, FileAt::From | FileAt::To | FileAt::LeftOut)
        | (IndexAt::To, FileAt::To | FileAt::LeftOut) => None,
    }
}

/// What moves, all at once: the lease is verified, the branch goes on, and that it did is recorded.
///
/// The first line is the fence. The branch's own value proves nothing: it is the same when nobody landed since
/// the lease was lost. The last line is the record: git carries them out one by one, and if it is killed in
/// between, work that is on the branch unrecorded is found there, and work that is recorded is on the branch.
pub fn lines(request: &Request<'_>, facts: &Facts, record: &Oid) -> Vec<Line> {
    let lease = Line::Verify { name: request.lease.task.lease(), at: Some(request.lease.object.clone()) };
    let name = request.target.clone();
    let branch = match (request.work, request.expected) {
        (Work::Commit { commit, .. }, expected) => {
            Some(Line::Update { name, from: expected.cloned(), to: commit.clone() })
        }
        (Work::Contained, Some(at)) => Some(Line::Verify { name, at: Some(at.clone()) }),
        (Work::Contained, None) => None,
    };
    let from = facts.landed.as_ref().map(|landed| landed.object.clone());
    let landed = Line::Update { name: request.lease.task.landed(), from, to: record.clone() };
    [lease].into_iter().chain(branch).chain([landed]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landing::difference::{Changed, Entry, Kind};
    use crate::landing::names::Task;
    use proptest::prelude::*;

    fn oid(digit: char) -> Oid {
        Oid::parse(&digit.to_string().repeat(40)).expect("a name")
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn changed(text: &str) -> Changed {
        let new = Some(Entry { kind: Kind::File, object: oid('9') });
        Changed { path: path(text), old: None, new, target: None }
    }

    /// Everything as it should be, and what a test changes about it.
    struct Case {
        lease: Lease,
        target: RefName,
        expected: Option<Oid>,
        contained: bool,
        reopened_after: Option<u64>,
        facts: Facts,
    }

    impl Case {
        fn new() -> Self {
            let task = Task::new("kodingx", "T1").expect("a task");
            let lease = Lease { task, epoch: 3, term: 1, object: oid('1') };
            let facts = Facts {
                lease: Some(oid('1')),
                target: Some(oid('b')),
                parents: vec![oid('b')],
                forward: true,
                difference: Difference {
                    changed: vec![changed("src/a")],
                    links: Some(Default::default()),
                    ..Difference::default()
                },
                ..Facts::default()
            };
            let target = RefName::branch("main").expect("a name");
            Self { lease, target, expected: Some(oid('b')), contained: false, reopened_after: None, facts }
        }

        fn decide(&self) -> Decision {
            let (commit, base) = (oid('c'), oid('b'));
            let work = match self.contained {
                true => Work::Contained,
                false => Work::Commit { commit: &commit, base: &base },
            };
            let scope = Scope::parse(&["src/**"], &[]).expect("globs");
            let who = Signature::new("", "", 0, 0);
            let request = Request {
                lease: &self.lease,
                target: &self.target,
                expected: self.expected.as_ref(),
                work,
                scope: &scope,
                reopened_after: self.reopened_after,
                who: &who,
            };
            decide(&request, &self.facts)
        }
    }

    fn landed(epoch: u64) -> Landed {
        let branch = RefName::branch("main").expect("a name");
        Landed { epoch, term: 1, branch, commit: oid('d'), object: oid('e') }
    }

    fn checkout(condition: Condition) -> CheckoutFacts {
        CheckoutFacts { root: "/r".into(), condition }
    }

    #[test]
    fn with_nothing_against_it_work_lands() {
        assert_eq!(Case::new().decide(), Decision::Go { checkout: None });
    }

    #[test]
    fn what_landed_is_told_even_to_who_lost_the_lease() {
        let mut case = Case::new();
        case.facts.landed = Some(landed(3));
        case.facts.lease = None;
        assert_eq!(case.decide(), Decision::AlreadyLanded(landed(3)));
        case.facts.landed = Some(landed(2));
        assert_eq!(case.decide(), Decision::Stale { found: None });
        case.facts.lease = Some(oid('1'));
        assert_eq!(case.decide(), Decision::LandedBefore(landed(2)));
        case.reopened_after = Some(2);
        assert_eq!(case.decide(), Decision::Go { checkout: None });
    }

    #[test]
    fn a_person_never_waits_for_work_that_is_refused() {
        let mut case = Case::new();
        case.facts.difference.changed.push(changed("Makefile"));
        case.facts.checkouts.push(checkout(Condition::Locked));
        assert!(matches!(case.decide(), Decision::Refused(Refusal::Scope { outside }) if outside.len() == 1));
    }

    #[test]
    fn only_the_tasks_own_branch_is_made() {
        let mut case = Case::new();
        (case.expected, case.facts.target) = (None, None);
        assert!(matches!(case.decide(), Decision::Refused(Refusal::Unborn { .. })));
        case.target = case.lease.task.branch();
        assert_eq!(case.decide(), Decision::Go { checkout: None });
        case.facts.taken = Some(RefName::branch("agency").expect("a name"));
        assert!(matches!(case.decide(), Decision::Refused(Refusal::NameTaken { .. })));
    }

    #[test]
    fn a_commit_that_is_not_on_top_of_the_branch_is_refused() {
        let mut case = Case::new();
        case.facts.parents.push(oid('f'));
        assert!(matches!(case.decide(), Decision::Refused(Refusal::NotOnBase { .. })));
        let mut case = Case::new();
        (case.expected, case.facts.target) = (Some(oid('a')), Some(oid('a')));
        assert!(matches!(case.decide(), Decision::Refused(Refusal::NotOnBase { .. })));
    }

    #[test]
    fn the_lease_is_verified_first_and_the_landing_is_recorded_with_the_move() {
        let case = Case::new();
        let (commit, base, scope) = (oid('c'), oid('b'), Scope::default());
        let who = Signature::new("", "", 0, 0);
        let request = |work| Request {
            lease: &case.lease,
            target: &case.target,
            expected: case.expected.as_ref(),
            work,
            scope: &scope,
            reopened_after: None,
            who: &who,
        };
        let fence = Line::Verify { name: case.lease.task.lease(), at: Some(oid('1')) };
        let record = Line::Update { name: case.lease.task.landed(), from: None, to: oid('7') };
        let work = Work::Commit { commit: &commit, base: &base };
        let moved = Line::Update { name: case.target.clone(), from: Some(oid('b')), to: oid('c') };
        assert_eq!(lines(&request(work), &case.facts, &oid('7')), [fence.clone(), moved, record.clone()]);
        let there = Line::Verify { name: case.target.clone(), at: Some(oid('b')) };
        assert_eq!(lines(&request(Work::Contained), &case.facts, &oid('7')), [fence, there, record]);
    }

    fn file_at() -> impl Strategy<Value = FileAt> {
        prop_oneof![
            Just(FileAt::From),
            Just(FileAt::To),
            Just(FileAt::LeftOut),
            Just(FileAt::Edited),
            Just(FileAt::Deleted),
            Just(FileAt::Untracked),
            Just(FileAt::Hidden),
            Just(FileAt::Unreadable("why".into())),
        ]
    }

    fn condition() -> impl Strategy<Value = Condition> {
        let index = prop_oneof![Just(IndexAt::From), Just(IndexAt::To), Just(IndexAt::Other)];
        let filter = prop::option::weighted(0.1, Just("lfs".to_owned()));
        let facts = (index, file_at(), filter).prop_map(|(index, file, filter)| PathFacts {
            path: path("src/a"),
            index,
            file,
            filter,
        });
        prop_oneof![
            Just(Condition::Homeless),
            Just(Condition::Away),
            Just(Condition::Operation(Operation::Merge)),
            Just(Condition::Locked),
            Just(Condition::Empty),
            prop::collection::vec(facts, 0..4).prop_map(Condition::Files),
        ]
    }

    /// What may be written over: a file that is exactly as the branch had it.
    fn is_harmless(condition: &Condition) -> bool {
        match condition {
            Condition::Empty => true,
            Condition::Files(paths) => paths.iter().all(|facts| {
                let settled = matches!(
                    (facts.index, &facts.file),
                    (IndexAt::From, FileAt::From | FileAt::To | FileAt::LeftOut)
                        | (IndexAt::To, FileAt::To | FileAt::LeftOut)
                );
                settled && facts.filter.is_none()
            }),
            _ => false,
        }
    }

    proptest! {
        /// Whatever else is true: the branch moves only under its lease, from where it was, once, and over
        /// nothing of a person's.
        #[test]
        fn the_branch_moves_only_when_everything_speaks_for_it(
            lease in prop::option::of(prop_oneof![4 => Just('1'), 1 => Just('2')]),
            target in prop::option::of(prop_oneof![4 => Just('b'), 1 => Just('f')]),
            epoch in prop::option::weighted(0.3, 1..5u64),
            reopened_after in prop::option::of(1..5u64),
            outside in prop::bool::weighted(0.2),
            forward in prop::bool::weighted(0.8),
            taken in prop::bool::weighted(0.1),
            contained in any::<bool>(),
            checkouts in prop::collection::vec(condition(), 0..3),
        ) {
            let mut case = Case::new();
            case.contained = contained;
            case.reopened_after = reopened_after;
            case.facts.lease = lease.map(oid);
            case.facts.target = target.map(oid);
            case.facts.landed = epoch.map(landed);
            case.facts.forward = forward;
            case.facts.taken = taken.then(|| RefName::branch("a").expect("a name"));
            case.facts.difference.changed.extend(outside.then(|| changed("outside")));
            case.facts.checkouts = checkouts.iter().cloned().map(checkout).collect();
            let goes = matches!(case.decide(), Decision::Go { .. });
            let once = epoch.is_none_or(|epoch| epoch != 3 && reopened_after == Some(epoch));
            let held = lease == Some('1') && target == Some('b') && once && !taken;
            let clean = checkouts.len() < 2 && checkouts.iter().all(is_harmless);
            prop_assert_eq!(goes, held && (contained || (!outside && forward && clean)));
        }
    }
}
