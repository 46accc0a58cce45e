//! Decides whether work may land, from observed facts only.

use std::fmt;
use std::path::PathBuf;

use agency_sandbox::path::RelPath;
use agency_sandbox::scope::Scope;
use serde::Serialize;

use super::commit::Signature;
use super::index::IndexAt;
use super::landed_record::LandedRecord;
use super::lease::GitLease;
use super::names::{Oid, RefName};
use super::obstacle::{Obstacle, ObstacleKind};
use super::refs::RefCommand;
use super::scope::{self, RefusedPath};
use super::tree_diff::TreeDiff;
use super::worktree::GitOperation;

/// A request to land: the work, the branch, and the lease.
#[derive(Debug, Clone)]
pub struct LandRequest<'a> {
    pub lease: &'a GitLease,
    /// A person's branch, or the task's own ([`super::names::TaskName::branch`]).
    pub target: &'a RefName,
    /// Where the branch was when the work was merged and verified; `None` if it was not there.
    pub expected: Option<&'a Oid>,
    pub work: LandWork<'a>,
    pub scope: &'a Scope,
    /// The attempt that landed before a person opened the task again. Without it, a task lands once.
    pub reopened_after: Option<u64>,
    pub who: &'a Signature,
}

#[derive(Debug, Clone, Copy)]
pub enum LandWork<'a> {
    /// A commit, and its parent.
    Commit { commit: &'a Oid, base: &'a Oid },
    /// The branch has the work already; only the record is to be written.
    Contained,
}

/// The observed facts.
#[derive(Debug, Clone, Default)]
pub struct LandFacts {
    /// The object that the lease names.
    pub lease: Option<Oid>,
    /// The commit of the branch.
    pub target: Option<Oid>,
    pub landed: Option<LandedRecord>,
    /// A branch whose name is a folder in this branch's name.
    pub taken: Option<RefName>,
    /// The real parents of the commit.
    pub parents: Vec<Oid>,
    /// Whether the branch is in the commit's history.
    pub forward: bool,
    /// Whether the branch is at the commit that took the last landing back, right on top of it.
    pub undone: bool,
    /// What the commit changes.
    pub difference: TreeDiff,
    /// The work trees that have the branch checked out.
    pub checkouts: Vec<CheckoutFacts>,
}

/// The facts about one work tree that has the branch.
#[derive(Debug, Clone)]
pub struct CheckoutFacts {
    pub root: PathBuf,
    pub condition: CheckoutCondition,
}

#[derive(Debug, Clone)]
pub enum CheckoutCondition {
    Homeless,
    Away,
    Operation(GitOperation),
    Locked,
    /// There is no index, so nothing was ever checked out.
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

/// Whether a file has its old content, its new content or another.
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

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LandDecision {
    /// Land, and move this work tree along.
    Go {
        checkout: Option<usize>,
    },
    /// This attempt has landed already.
    AlreadyLanded(LandedRecord),
    /// Another attempt has landed, and the task was not opened again.
    LandedBefore(LandedRecord),
    /// Another attempt holds the lease, or none does.
    Stale {
        found: Option<Oid>,
    },
    /// The branch has moved; merge and verify again.
    Moved {
        found: Option<Oid>,
    },
    Refused(LandRefusal),
    Waits(Vec<Obstacle>),
}

/// Why the work will never land as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "refused", rename_all = "snake_case")]
pub enum LandRefusal {
    Scope {
        outside: Vec<RefusedPath>,
    },
    /// The commit is not made on the given base.
    NotOnBase {
        commit: Oid,
    },
    /// The branch has no commit to land on.
    Unborn {
        branch: RefName,
    },
    /// The task's own branch has commits that are not in the work's history.
    NotOurs {
        branch: RefName,
        at: Oid,
    },
    /// The branch can't exist beside that one.
    NameTaken {
        branch: RefName,
        by: RefName,
    },
}

impl fmt::Display for LandRefusal {
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
                write!(f, "the branch {branch} is at {at}, which another process put there")
            }
            Self::NameTaken { branch, by } => {
                write!(f, "there can be no branch {branch} while there is a branch {by}")
            }
        }
    }
}

/// Decides about a request. A person's change makes the landing wait, a fault of the attempt refuses it, and a lost
/// lease or a moved branch is reported. The branch moves only when there is none of these.
pub fn decide(request: &LandRequest<'_>, facts: &LandFacts) -> LandDecision {
    let landed = facts.landed.as_ref();
    if let Some(landed) = landed.filter(|landed| landed.epoch == request.lease.epoch) {
        return LandDecision::AlreadyLanded(landed.clone());
    }
    if facts.lease.as_ref() != Some(&request.lease.object) {
        return LandDecision::Stale { found: facts.lease.clone() };
    }
    if let Some(landed) = landed.filter(|landed| request.reopened_after != Some(landed.epoch)) {
        return LandDecision::LandedBefore(landed.clone());
    }
    if let Some(refusal) = refusal(request, facts) {
        return LandDecision::Refused(refusal);
    }
    if facts.target.as_ref() != request.expected {
        return LandDecision::Moved { found: facts.target.clone() };
    }
    if let LandWork::Contained = request.work {
        return LandDecision::Go { checkout: None };
    }
    let replaces = |at: &Oid| {
        landed
            .is_some_and(|landed| landed.branch == *request.target && (landed.commit == *at || facts.undone))
    };
    if let Some(at) = request.expected.filter(|at| !facts.forward && !replaces(at)) {
        let branch = request.target.clone();
        return LandDecision::Refused(LandRefusal::NotOurs { branch, at: at.clone() });
    }
    let obstacles = obstacles(&facts.checkouts);
    if !obstacles.is_empty() {
        return LandDecision::Waits(obstacles);
    }
    let files = |checkout: &CheckoutFacts| matches!(checkout.condition, CheckoutCondition::Files(_));
    LandDecision::Go { checkout: facts.checkouts.iter().position(files) }
}

fn refusal(request: &LandRequest<'_>, facts: &LandFacts) -> Option<LandRefusal> {
    let branch = || request.target.clone();
    if let Some(by) = &facts.taken {
        return Some(LandRefusal::NameTaken { branch: branch(), by: by.clone() });
    }
    let own = *request.target == request.lease.task.branch();
    if request.expected.is_none() && !own {
        return Some(LandRefusal::Unborn { branch: branch() });
    }
    let LandWork::Commit { commit, base } = request.work else { return None };
    // On a person's branch, a commit between the branch and the work would land unseen.
    let on_branch = own || request.expected == Some(base);
    if facts.parents != [base.clone()] || !on_branch {
        return Some(LandRefusal::NotOnBase { commit: commit.clone() });
    }
    let outside = scope::refused_paths(request.scope, &facts.difference);
    (!outside.is_empty()).then_some(LandRefusal::Scope { outside })
}

pub(super) fn obstacles(checkouts: &[CheckoutFacts]) -> Vec<Obstacle> {
    if checkouts.len() > 1 {
        let twice =
            |checkout: &CheckoutFacts| Obstacle { root: checkout.root.clone(), what: ObstacleKind::Twice };
        return checkouts.iter().map(twice).collect();
    }
    let mut found = Vec::new();
    for CheckoutFacts { root, condition } in checkouts {
        let whole = match condition {
            CheckoutCondition::Homeless => Some(ObstacleKind::Homeless),
            CheckoutCondition::Away => Some(ObstacleKind::Away),
            CheckoutCondition::Operation(operation) => {
                Some(ObstacleKind::Operation { operation: *operation })
            }
            CheckoutCondition::Locked => Some(ObstacleKind::Locked),
            CheckoutCondition::Empty | CheckoutCondition::Files(_) => None,
        };
        let paths = match condition {
            CheckoutCondition::Files(paths) => &paths[..],
            _ => &[],
        };
        let all = whole.into_iter().chain(paths.iter().filter_map(in_the_way));
        found.extend(all.map(|what| Obstacle { root: root.clone(), what }));
    }
    found
}

/// A person's change at a path. Where the file has its new content already, nothing can be lost; where only the index
/// has, a person took the file back.
fn in_the_way(facts: &PathFacts) -> Option<ObstacleKind> {
    let path = facts.path.clone();
    if let Some(filter) = &facts.filter {
        return Some(ObstacleKind::Filtered { path, filter: filter.clone() });
    }
    match (facts.index, &facts.file) {
        (_, FileAt::Edited) => Some(ObstacleKind::Edited { path }),
        (_, FileAt::Deleted) => Some(ObstacleKind::Deleted { path }),
        (_, FileAt::Untracked) => Some(ObstacleKind::Untracked { path }),
        (_, FileAt::Hidden) => Some(ObstacleKind::Hidden { path }),
        (_, FileAt::Unreadable(error)) => Some(ObstacleKind::Unreadable { path, error: error.clone() }),
        (IndexAt::Other, _) => Some(ObstacleKind::Staged { path }),
        (IndexAt::To, FileAt::From) => Some(ObstacleKind::Edited { path }),
        (IndexAt::From, FileAt::From | FileAt::To | FileAt::LeftOut)
        | (IndexAt::To, FileAt::To | FileAt::LeftOut) => None,
    }
}

/// The commands of the transaction: it verifies the lease, moves the branch, and records the landing.
///
/// The first line is the fence. The branch's own value proves nothing: it is the same when no other attempt landed
/// since the lease was lost. The last line is the record. Git carries the lines out one by one. If git is killed in
/// between, work that is on the branch without a record is found there, and work that has a record is on the branch.
pub fn lines(request: &LandRequest<'_>, facts: &LandFacts, record: &Oid) -> Vec<RefCommand> {
    let lease =
        RefCommand::Verify { name: request.lease.task.lease(), at: Some(request.lease.object.clone()) };
    let name = request.target.clone();
    let branch = match (request.work, request.expected) {
        (LandWork::Commit { commit, .. }, expected) => {
            Some(RefCommand::Update { name, from: expected.cloned(), to: commit.clone() })
        }
        (LandWork::Contained, Some(at)) => Some(RefCommand::Verify { name, at: Some(at.clone()) }),
        (LandWork::Contained, None) => None,
    };
    let from = facts.landed.as_ref().map(|landed| landed.object.clone());
    let landed = RefCommand::Update { name: request.lease.task.landed(), from, to: record.clone() };
    [lease].into_iter().chain(branch).chain([landed]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::TaskName;
    use crate::tree_diff::{ChangedPath, GitTreeEntry, GitTreeEntryKind};
    use proptest::prelude::*;

    fn oid(digit: char) -> Oid {
        Oid::parse(&digit.to_string().repeat(40)).expect("a name")
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn changed(text: &str) -> ChangedPath {
        let new = Some(GitTreeEntry { kind: GitTreeEntryKind::File, object: oid('9') });
        ChangedPath { path: path(text), old: None, new, target: None }
    }

    /// Everything as it should be, and what a test changes about it.
    struct LandPlanCase {
        lease: GitLease,
        target: RefName,
        expected: Option<Oid>,
        contained: bool,
        reopened_after: Option<u64>,
        facts: LandFacts,
    }

    impl LandPlanCase {
        fn new() -> Self {
            let task = TaskName::new("kodingx", "T1").expect("a task");
            let lease = GitLease { task, epoch: 3, term: 1, object: oid('1') };
            let facts = LandFacts {
                lease: Some(oid('1')),
                target: Some(oid('b')),
                parents: vec![oid('b')],
                forward: true,
                difference: TreeDiff {
                    changed: vec![changed("src/a")],
                    links: Some(Default::default()),
                    ..TreeDiff::default()
                },
                ..LandFacts::default()
            };
            let target = RefName::branch("main").expect("a name");
            Self { lease, target, expected: Some(oid('b')), contained: false, reopened_after: None, facts }
        }

        fn decide(&self) -> LandDecision {
            let (commit, base) = (oid('c'), oid('b'));
            let work = match self.contained {
                true => LandWork::Contained,
                false => LandWork::Commit { commit: &commit, base: &base },
            };
            let scope = Scope::parse(&["src/**"], &[]).expect("globs");
            let who = Signature::new("", "", 0, 0);
            let request = LandRequest {
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

    fn landed(epoch: u64) -> LandedRecord {
        let branch = RefName::branch("main").expect("a name");
        LandedRecord { epoch, term: 1, branch, commit: oid('d'), object: oid('e') }
    }

    fn checkout(condition: CheckoutCondition) -> CheckoutFacts {
        CheckoutFacts { root: "/r".into(), condition }
    }

    #[test]
    fn with_nothing_against_it_work_lands() {
        assert_eq!(LandPlanCase::new().decide(), LandDecision::Go { checkout: None });
    }

    #[test]
    fn what_landed_is_told_even_to_who_lost_the_lease() {
        let mut case = LandPlanCase::new();
        case.facts.landed = Some(landed(3));
        case.facts.lease = None;
        assert_eq!(case.decide(), LandDecision::AlreadyLanded(landed(3)));
        case.facts.landed = Some(landed(2));
        assert_eq!(case.decide(), LandDecision::Stale { found: None });
        case.facts.lease = Some(oid('1'));
        assert_eq!(case.decide(), LandDecision::LandedBefore(landed(2)));
        case.reopened_after = Some(2);
        assert_eq!(case.decide(), LandDecision::Go { checkout: None });
    }

    #[test]
    fn a_person_never_waits_for_work_that_is_refused() {
        let mut case = LandPlanCase::new();
        case.facts.difference.changed.push(changed("Makefile"));
        case.facts.checkouts.push(checkout(CheckoutCondition::Locked));
        assert!(
            matches!(case.decide(), LandDecision::Refused(LandRefusal::Scope { outside }) if outside.len() == 1)
        );
    }

    #[test]
    fn only_the_tasks_own_branch_is_made() {
        let mut case = LandPlanCase::new();
        (case.expected, case.facts.target) = (None, None);
        assert!(matches!(case.decide(), LandDecision::Refused(LandRefusal::Unborn { .. })));
        case.target = case.lease.task.branch();
        assert_eq!(case.decide(), LandDecision::Go { checkout: None });
        case.facts.taken = Some(RefName::branch("agency").expect("a name"));
        assert!(matches!(case.decide(), LandDecision::Refused(LandRefusal::NameTaken { .. })));
    }

    #[test]
    fn the_tasks_own_branch_is_replaced_where_it_has_its_last_landing_or_the_undo_of_it() {
        let mut case = LandPlanCase::new();
        case.target = case.lease.task.branch();
        (case.expected, case.facts.target) = (Some(oid('a')), Some(oid('a')));
        (case.facts.forward, case.reopened_after) = (false, Some(2));
        case.facts.landed = Some(LandedRecord { branch: case.target.clone(), ..landed(2) });
        assert!(matches!(case.decide(), LandDecision::Refused(LandRefusal::NotOurs { .. })));
        case.facts.undone = true;
        assert_eq!(case.decide(), LandDecision::Go { checkout: None });
        case.facts.undone = false;
        case.facts.landed = case.facts.landed.map(|landed| LandedRecord { commit: oid('a'), ..landed });
        assert_eq!(case.decide(), LandDecision::Go { checkout: None });
    }

    #[test]
    fn a_commit_that_is_not_on_top_of_the_branch_is_refused() {
        let mut case = LandPlanCase::new();
        case.facts.parents.push(oid('f'));
        assert!(matches!(case.decide(), LandDecision::Refused(LandRefusal::NotOnBase { .. })));
        let mut case = LandPlanCase::new();
        (case.expected, case.facts.target) = (Some(oid('a')), Some(oid('a')));
        assert!(matches!(case.decide(), LandDecision::Refused(LandRefusal::NotOnBase { .. })));
    }

    #[test]
    fn the_lease_is_verified_first_and_the_landing_is_recorded_with_the_move() {
        let case = LandPlanCase::new();
        let (commit, base, scope) = (oid('c'), oid('b'), Scope::default());
        let who = Signature::new("", "", 0, 0);
        let request = |work| LandRequest {
            lease: &case.lease,
            target: &case.target,
            expected: case.expected.as_ref(),
            work,
            scope: &scope,
            reopened_after: None,
            who: &who,
        };
        let fence = RefCommand::Verify { name: case.lease.task.lease(), at: Some(oid('1')) };
        let record = RefCommand::Update { name: case.lease.task.landed(), from: None, to: oid('7') };
        let work = LandWork::Commit { commit: &commit, base: &base };
        let moved = RefCommand::Update { name: case.target.clone(), from: Some(oid('b')), to: oid('c') };
        assert_eq!(lines(&request(work), &case.facts, &oid('7')), [fence.clone(), moved, record.clone()]);
        let there = RefCommand::Verify { name: case.target.clone(), at: Some(oid('b')) };
        assert_eq!(lines(&request(LandWork::Contained), &case.facts, &oid('7')), [fence, there, record]);
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

    fn condition() -> impl Strategy<Value = CheckoutCondition> {
        let index = prop_oneof![Just(IndexAt::From), Just(IndexAt::To), Just(IndexAt::Other)];
        let filter = prop::option::weighted(0.1, Just("lfs".to_owned()));
        let facts = (index, file_at(), filter).prop_map(|(index, file, filter)| PathFacts {
            path: path("src/a"),
            index,
            file,
            filter,
        });
        prop_oneof![
            Just(CheckoutCondition::Homeless),
            Just(CheckoutCondition::Away),
            Just(CheckoutCondition::Operation(GitOperation::Merge)),
            Just(CheckoutCondition::Locked),
            Just(CheckoutCondition::Empty),
            prop::collection::vec(facts, 0..4).prop_map(CheckoutCondition::Files),
        ]
    }

    /// What may be written over: a file that is exactly as the branch had it.
    fn is_harmless(condition: &CheckoutCondition) -> bool {
        match condition {
            CheckoutCondition::Empty => true,
            CheckoutCondition::Files(paths) => paths.iter().all(|facts| {
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
        /// In every case, the branch moves only under its lease, from where it was, once, and over
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
            let mut case = LandPlanCase::new();
            case.contained = contained;
            case.reopened_after = reopened_after;
            case.facts.lease = lease.map(oid);
            case.facts.target = target.map(oid);
            case.facts.landed = epoch.map(landed);
            case.facts.forward = forward;
            case.facts.taken = taken.then(|| RefName::branch("a").expect("a name"));
            case.facts.difference.changed.extend(outside.then(|| changed("outside")));
            case.facts.checkouts = checkouts.iter().cloned().map(checkout).collect();
            let goes = matches!(case.decide(), LandDecision::Go { .. });
            let once = epoch.is_none_or(|epoch| epoch != 3 && reopened_after == Some(epoch));
            let held = lease == Some('1') && target == Some('b') && once && !taken;
            let clean = checkouts.len() < 2 && checkouts.iter().all(is_harmless);
            prop_assert_eq!(goes, held && (contained || (!outside && forward && clean)));
        }
    }
}
