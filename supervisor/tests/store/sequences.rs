//! Whatever several supervisors do, in whatever order and over whatever connections, a store in a file answers as
//! the simple one does.

use std::time::Duration;

use agency_supervisor::attempt::{
    AgentWork, AttemptEnd, Audit, Epoch, HumanDecision, Lease, Phase, Term, UsageTotals,
};
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::{AttemptStore, ClaimRequest, QueueMode};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::memory::{InMemory, Memory};
use crate::place::{Place, TTL, block_on, owner, task, wall};
use crate::sample;
use crate::sqlite::{InAFile, assert_intact};

const TASKS: [&str; 3] = ["T1", "T2", "T3"];

/// What somebody wants to do, before it is known which terms and leases there are.
#[derive(Debug, Clone)]
enum Wish {
    Enter,
    Leave(Index),
    Claim { task: usize, term: Index, after: After },
    Renew(Index),
    Adopt { lease: Index, term: Index },
    Advance { lease: Index, phase: Phase },
    End { lease: Index, tokens: u64 },
    Note(Index),
    Answer { task: usize, epoch: u64 },
    Cancel(usize),
    Forgive(usize),
    Mode(QueueMode),
    Prune { ago: i64 },
    Pass { seconds: u64 },
}

/// What the claimer takes for the last attempt.
#[derive(Debug, Clone, Copy)]
enum After {
    Last,
    OneBefore,
    None,
}

fn phase() -> impl Strategy<Value = Phase> {
    let failed = crate::place::failed();
    let work = AgentWork { base: "b".into(), candidate: "c".into() };
    let audit = Audit { auditor: "gemini".into(), number: 1, answer: None };
    prop_oneof![
        Just(Phase::Started),
        Just(Phase::Landed { commit: "c".into() }),
        Just(Phase::Undecided { work, audit, why: "?".into() }),
        Just(Phase::Over(failed)),
        Just(Phase::Over(AttemptEnd::Canceled)),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let task = || 0..TASKS.len();
    let after = prop_oneof![6 => Just(After::Last), 1 => Just(After::OneBefore), 1 => Just(After::None)];
    let mode = prop_oneof![Just(QueueMode::Running), Just(QueueMode::Paused), Just(QueueMode::Draining)];
    prop_oneof![
        2 => Just(Wish::Enter),
        2 => any::<Index>().prop_map(Wish::Leave),
        8 => (task(), any::<Index>(), after).prop_map(|(task, term, after)| Wish::Claim { task, term, after }),
        2 => any::<Index>().prop_map(Wish::Renew),
        4 => (any::<Index>(), any::<Index>()).prop_map(|(lease, term)| Wish::Adopt { lease, term }),
        8 => (any::<Index>(), phase()).prop_map(|(lease, phase)| Wish::Advance { lease, phase }),
        2 => (any::<Index>(), 0..900_u64).prop_map(|(lease, tokens)| Wish::End { lease, tokens }),
        2 => any::<Index>().prop_map(Wish::Note),
        2 => (task(), 1..4_u64).prop_map(|(task, epoch)| Wish::Answer { task, epoch }),
        1 => task().prop_map(Wish::Cancel),
        1 => task().prop_map(Wish::Forgive),
        1 => mode.prop_map(Wish::Mode),
        1 => (-1..900_i64).prop_map(|ago| Wish::Prune { ago }),
        1 => (1..600_u64).prop_map(|seconds| Wish::Pass { seconds }),
    ]
}

/// Every term and lease that was ever given, and one of each that was not.
#[derive(Debug)]
struct Known {
    terms: Vec<Term>,
    leases: Vec<Lease>,
}

impl Known {
    /// Most leases that are asked for should be recent ones: the old ones are all lost.
    fn lease(&self, index: &Index) -> &Lease {
        let recent = self.leases.len().saturating_sub(4);
        index.get(&self.leases[recent..])
    }
}

/// The answer, as text.
async fn grant(store: &impl AttemptStore, wish: &Wish, known: &Known, last: [Option<u64>; 3]) -> String {
    let term = |index: &Index| *index.get(&known.terms);
    match wish {
        Wish::Enter => format!("{:?}", store.enter(&owner(1)).await),
        Wish::Leave(index) => format!("{:?}", store.leave(term(index)).await),
        Wish::Claim { task: of, term: index, after } => {
            let after = match after {
                After::Last => last[*of],
                After::OneBefore => last[*of].map(|last| last - 1),
                After::None => None,
            };
            let task = task(TASKS[*of]);
            let claim = ClaimRequest {
                task: &task,
                title: "title",
                agent: "agent",
                after: after.map(Epoch),
                beyond: Epoch(0),
            };
            format!("{:?}", store.claim(&claim, term(index), TTL).await)
        }
        Wish::Renew(index) => format!("{:?}", store.renew(term(index), TTL).await),
        Wish::Adopt { lease, term: index } => {
            format!("{:?}", store.adopt(known.lease(lease), term(index), TTL).await)
        }
        Wish::Advance { lease, phase } => format!("{:?}", store.advance(known.lease(lease), phase).await),
        Wish::End { lease, tokens } => {
            let spent = UsageTotals { tokens: *tokens, ..UsageTotals::default() };
            format!("{:?}", store.end(known.lease(lease), &AttemptEnd::Canceled, spent).await)
        }
        Wish::Answer { task: of, epoch } => {
            let answer = HumanDecision { pass: true, person: "ann".into(), reason: "yes".into() };
            format!("{:?}", store.answer(&task(TASKS[*of]), Epoch(*epoch), &answer).await)
        }
        Wish::Note(lease) => format!("{:?}", store.note(known.lease(lease), "a note").await),
        Wish::Cancel(of) => format!("{:?}", store.ask_to_cancel(&task(TASKS[*of])).await),
        Wish::Forgive(of) => format!("{:?}", store.forgive(&task(TASKS[*of])).await),
        Wish::Mode(mode) => format!("{:?}", store.set_mode(*mode).await),
        Wish::Prune { ago } => format!("{:?}", store.prune(wall() - ago).await),
        Wish::Pass { .. } => String::new(),
    }
}

async fn last(store: &Memory) -> [Option<u64>; 3] {
    let latest = store.latest().await.expect("read");
    TASKS.map(|id| latest.iter().find(|one| one.task == task(id)).map(|one| one.epoch.0))
}

async fn versions(stores: &[SqliteStore]) -> Vec<u64> {
    let mut versions = Vec::new();
    for store in stores {
        versions.push(store.version().await.expect("asked"));
    }
    versions
}

async fn compare(wishes: Vec<(usize, Wish)>) -> Result<(), TestCaseError> {
    let place = InAFile::without_a_disk();
    let stores = [place.open().await, place.open().await, place.open().await];
    let simple = InMemory::by(&place.clock).open().await;
    let nobody = Lease { task: task("T1"), epoch: Epoch(1), term: Term(99) };
    let mut known = Known { terms: vec![Term(99)], leases: vec![nobody] };
    let mut before = sample::read(&simple).await;
    for (over, wish) in wishes {
        if let Wish::Pass { seconds } = wish {
            place.pass(Duration::from_secs(seconds));
        }
        let (seen, last) = (versions(&stores).await, last(&simple).await);
        let expected = grant(&simple, &wish, &known, last).await;
        let answer = grant(&stores[over], &wish, &known, last).await;
        prop_assert_eq!(&answer, &expected, "{:?}", wish);
        let after = sample::read(&simple).await;
        for (number, store) in stores.iter().enumerate() {
            prop_assert_eq!(&sample::read(store).await, &after, "{:?}", wish);
            let version = store.version().await.expect("asked");
            prop_assert!(number == over || after == before || version != seen[number], "{:?}", wish);
        }
        before = after;
        learn(&simple, &mut known).await;
    }
    assert_intact(&place.path()).await;
    Ok(())
}

async fn learn(simple: &Memory, known: &mut Known) {
    let owners = simple.owners().await.expect("read");
    for term in owners.into_iter().map(|(term, _)| term) {
        if !known.terms.contains(&term) {
            known.terms.push(term);
        }
    }
    for lease in simple.open().await.expect("read").iter().filter_map(|attempt| attempt.lease()) {
        if !known.leases.contains(&lease) {
            known.leases.push(lease);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_in_a_file_answers_as_the_simple_one_does(
        wishes in prop::collection::vec((0..3_usize, wish()), 1..60),
    ) {
        let wishes = [vec![(0, Wish::Enter), (1, Wish::Enter)], wishes].concat();
        block_on(compare(wishes))?;
    }
}

/// What the sequences are worth: among them are enough of the answers that matter.
#[test]
fn random_sequences_meet_every_kind_of_answer() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut met =
        [("Held(", 0), ("Ok(Taken)", 0), ("Fenced", 0), ("NotInCharge", 0), ("Ok(Some", 0), ("Ok(None)", 0)];
    for _ in 0..48 {
        let wishes = prop::collection::vec(wish(), 60).new_tree(&mut runner).expect("wishes").current();
        block_on(async {
            let simple = InMemory::new().open().await;
            let nobody = Lease { task: task("T1"), epoch: Epoch(1), term: Term(99) };
            let mut known = Known { terms: vec![Term(99)], leases: vec![nobody] };
            for wish in [Wish::Enter, Wish::Enter].iter().chain(&wishes) {
                let answer = grant(&simple, wish, &known, last(&simple).await).await;
                for (kind, count) in &mut met {
                    *count += usize::from(answer.contains(*kind));
                }
                learn(&simple, &mut known).await;
            }
        });
    }
    assert!(met.iter().all(|(_, count)| *count > 20), "{met:?}");
}
