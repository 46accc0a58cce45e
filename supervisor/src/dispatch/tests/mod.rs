//! What the queue decides, played through without a store, a board, git or a clock.

mod hanging;
mod unfit;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use agency_protocols::board::{BoardAgenda, ReadyTask, TaskRole, TaskScope};
use agency_protocols::names::{AgentName, TaskId};
use proptest::prelude::*;

use super::action::{
    Action, Actions, Answer, Asked, ClaimOutcome, DispatchEvent, DriveFault, Moment, OrphanSearch, Question,
    SettlingFacts, StoreNews,
};
use super::queue::{QueueFacts, QueueStart, RunQueue, RunningAttempt};
use super::{Interrupt, RunOptions, TaskResult};
use crate::attempt::{Attempt, AttemptEnd, Epoch, Lease, LeaseHolder, Phase, TaskKey, Term, UsageTotals};
use crate::clock::BootInstant;
use crate::driver::{DriverSignal, FaultDomain, OutcomeSoFar};
use crate::run_event::{BaseCheck, RunEvent};
use crate::settings::{AgentSettings, RunSettings};
use crate::store::QueueMode;

const OURS: Term = Term(7);

pub(super) fn ready(id: u8) -> ReadyTask {
    ReadyTask {
        task: TaskId::parse(&format!("T{id:04}")).expect("an id"),
        title: "x".into(),
        role: TaskRole::Builder,
        agent: AgentName::parse("shell").expect("a name"),
        file: "f".into(),
        scope: TaskScope::default(),
        profile: "auto".into(),
        urgency: 0,
        handed_in: false,
        may_change_nothing: false,
        branch: None,
    }
}

pub(super) fn settings() -> RunSettings {
    let mut settings = crate::settings::tests::settings();
    settings.agents.insert("shell".into(), AgentSettings::default());
    settings.parallel = 2;
    settings
}

fn key(id: u8) -> TaskKey {
    TaskKey { protocol: "kodingx".into(), id: format!("T{id:04}") }
}

fn done() -> AttemptEnd {
    AttemptEnd::Kept { candidate: "c".into() }
}

/// A run, with everything that it asked and said.
struct Play {
    queue: RunQueue,
    now: Moment,
    ready: Vec<ReadyTask>,
    outstanding: Vec<Question>,
    told: Vec<RunEvent>,
    driven: Vec<(TaskKey, DriverSignal)>,
    signals: Vec<(TaskKey, DriverSignal)>,
    is_over: bool,
}

impl Play {
    fn new(ids: impl IntoIterator<Item = u8>) -> Self {
        Self::with(ids, RunOptions::default())
    }

    fn with(ids: impl IntoIterator<Item = u8>, wishes: RunOptions) -> Self {
        Self::of(ids.into_iter().map(ready).collect(), wishes, settings())
    }

    fn of(ready: Vec<ReadyTask>, wishes: RunOptions, settings: RunSettings) -> Self {
        let queue = RunQueue::new(QueueStart {
            wishes,
            settings,
            protocol: "kodingx".to_owned(),
            terms: vec![OURS],
            began: BootInstant(0),
        });
        let mut play = Self {
            queue,
            now: Moment { boot: BootInstant(0), wall: 1000 },
            ready,
            outstanding: Vec::new(),
            told: Vec::new(),
            driven: Vec::new(),
            signals: Vec::new(),
            is_over: false,
        };
        let actions = play.queue.begin();
        play.carry_out(actions);
        play.decide();
        play
    }

    fn carry_out(&mut self, actions: Actions) {
        for action in actions.0 {
            assert!(!self.is_over, "{action:?} after the end");
            match action {
                Action::Ask(question) => {
                    assert!(self.asks(&question.asked()).is_none(), "{question:?} twice");
                    self.outstanding.push(question);
                }
                Action::Emit(event) => self.told.push(event),
                Action::Drive { attempt, wish, .. } => self.driven.push((attempt.task, wish)),
                Action::Signal { key, signal, .. } => self.signals.push((key, signal)),
                Action::Rejoin(_) | Action::RenewShims(_) => {}
                Action::End => self.is_over = true,
            }
        }
    }

    fn decide(&mut self) {
        let facts = QueueFacts {
            now: self.now,
            free_memory: u64::MAX,
            judging: HashMap::new(),
            unattended: HashSet::new(),
        };
        let actions = self.queue.decide(&facts);
        self.carry_out(actions);
    }

    fn happens(&mut self, event: DispatchEvent) {
        let actions = self.queue.on_event(event, self.now);
        self.carry_out(actions);
        if !self.is_over {
            self.decide();
        }
    }

    fn look(&mut self) {
        self.happens(DispatchEvent::Look { is_disk_full: false });
    }

    fn passes(&mut self, time: Duration) {
        self.now.boot = self.now.boot + time;
        self.look();
    }

    fn asks(&self, asked: &Asked) -> Option<usize> {
        self.outstanding.iter().position(|question| question.asked() == *asked)
    }

    fn claims(&self) -> Option<TaskKey> {
        self.outstanding.iter().find_map(|question| match question {
            Question::Claim { key, .. } => Some(key.clone()),
            _ => None,
        })
    }

    /// The usual answer to what is asked: nothing special is found, and every claim is granted.
    fn answer(&mut self, asked: &Asked) {
        let at = self.asks(asked).unwrap_or_else(|| panic!("{asked:?} of {:?}", self.outstanding));
        let answer = match self.outstanding.remove(at) {
            Question::GiveBackDrain => Answer::DrainGivenBack,
            Question::ReadStore { known, .. } => {
                let news =
                    StoreNews { mode: QueueMode::Running, latest: Vec::new(), forgiven: HashMap::new() };
                Answer::StoreRead { version: 1, news: known.is_none().then(|| Box::new(news)) }
            }
            Question::ReadAgenda => {
                let agenda = BoardAgenda { ready: self.ready.clone(), ..BoardAgenda::default() };
                Answer::AgendaRead { agenda: Box::new(agenda), took: Duration::ZERO }
            }
            Question::CheckWanted { .. } => Answer::WantedChecked { unwanted: Vec::new() },
            Question::FindOrphans { .. } => Answer::OrphansFound(OrphanSearch::default()),
            Question::RenewLeases => Answer::LeasesRenewed { leases: Vec::new() },
            Question::Claim { key, start, .. } => {
                let lease = Lease { task: key.clone(), epoch: Epoch(1), term: OURS };
                let outcome = ClaimOutcome::Held { lease, until: BootInstant(900) };
                Answer::Claimed { key, start, outcome }
            }
            Question::NoteWaiting { lease, .. } => Answer::WaitingNoted { key: lease.task },
            Question::Reread { key } => {
                let held = Some(LeaseHolder { term: OURS, until: BootInstant(900) });
                let attempt = Attempt { held, ..Attempt::sample(&key.id, "shell", Phase::Started) };
                Answer::Reread { key, attempt: Some(Box::new(attempt)) }
            }
            Question::Settle { attempt, .. } => {
                let facts = SettlingFacts { wanted: true, failures: 1, spent: UsageTotals::default() };
                Answer::Settled { key: attempt.task.clone(), facts }
            }
            Question::CheckBase { profile } => Answer::BaseChecked { profile, result: BaseCheck::Passed },
            Question::Abandon { key, .. } => {
                Answer::Abandoned { key, outcome: super::action::AbandonOutcome::NotOurs }
            }
        };
        self.happens(DispatchEvent::Answered(answer));
    }

    /// Answers everything, until nothing is asked any more.
    fn answer_all(&mut self) {
        while let Some(question) = self.outstanding.first().filter(|_| !self.is_over) {
            self.answer(&question.asked());
        }
    }

    fn lacks(&mut self, asked: &Asked) {
        let at = self.asks(asked).expect("it is asked");
        self.outstanding.remove(at);
        let what = "the disk is full".to_owned();
        self.happens(DispatchEvent::Unanswered { asked: asked.clone(), what });
    }

    fn rests(&mut self, id: u8, rest: Result<OutcomeSoFar, DriveFault>) {
        self.ready.retain(|ready| ready.task.as_str() != key(id).id);
        self.happens(DispatchEvent::Rested { key: key(id), rest: Box::new(rest) });
    }

    fn interrupted(&mut self, interrupt: Interrupt) {
        self.happens(DispatchEvent::Interrupted(interrupt));
    }
}

#[test]
fn what_has_to_be_known_is_asked_in_order_before_something_starts() {
    let mut play = Play::new([1]);
    for asked in [Asked::Drain, Asked::Store, Asked::Agenda, Asked::Orphans] {
        let outstanding: Vec<Asked> = play.outstanding.iter().map(Question::asked).collect();
        assert_eq!(outstanding, std::slice::from_ref(&asked));
        play.happens(DispatchEvent::Heartbeat);
        assert_eq!(play.outstanding.len(), 2, "{asked:?} is not asked twice, and nothing else before it");
        play.answer(&Asked::Leases);
        play.answer(&asked);
    }
    assert_eq!(play.claims(), Some(key(1)));
    assert!(play.driven.is_empty() && play.told.is_empty(), "{:?}", play.told);
    play.answer(&Asked::Claim);
    assert_eq!(play.driven, [(key(1), DriverSignal::GoOn)]);
    let RunEvent::Standing(status) = play.told.last().expect("told") else { panic!("{:?}", play.told) };
    assert_eq!(status.running, ["T0001"]);
}

#[test]
fn a_claim_is_answered_before_the_next_task_is_chosen() {
    let mut play = Play::new([1, 2, 3]);
    while play.claims().is_none() {
        let asked = play.outstanding[0].asked();
        play.answer(&asked);
    }
    play.look();
    assert_eq!(play.claims(), Some(key(1)));
    play.answer_all();
    let driven: Vec<TaskKey> = play.driven.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(driven, [key(1), key(2)], "two at a time");
}

#[test]
fn the_board_is_read_again_before_something_is_chosen_after_an_attempt_came_to_rest() {
    let mut play = Play::new([1, 2, 3]);
    play.answer_all();
    play.passes(Duration::from_secs(3));
    assert!(play.asks(&Asked::Agenda).is_some(), "it is time");
    play.rests(1, Ok(OutcomeSoFar::Over(done())));
    play.answer(&Asked::Agenda);
    assert!(play.claims().is_none(), "it was read before the attempt came to rest");
    assert!(play.asks(&Asked::Agenda).is_some(), "{:?}", play.outstanding);
    play.answer_all();
    assert_eq!(play.driven.last(), Some(&(key(3), DriverSignal::GoOn)));
}

#[test]
fn the_first_interrupt_starts_nothing_new_the_second_stops_what_runs_and_the_third_says_nothing() {
    let mut play = Play::new([1, 2, 3]);
    play.answer_all();
    play.told.clear();
    play.interrupted(Interrupt::Drain);
    assert_eq!(play.told, [RunEvent::Draining]);
    assert!(play.signals.is_empty() && !play.is_over);
    play.interrupted(Interrupt::Drain);
    assert_eq!(play.told, [RunEvent::Draining, RunEvent::Stopping]);
    let mut stopped = play.signals.clone();
    stopped.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(stopped, [(key(1), DriverSignal::Stop), (key(2), DriverSignal::Stop)]);
    play.interrupted(Interrupt::Drain);
    assert_eq!(play.told.len(), 2);
    play.rests(1, Ok(OutcomeSoFar::Interrupted));
    play.rests(2, Ok(OutcomeSoFar::Interrupted));
    play.answer_all();
    assert!(play.is_over);
    let summary = play.queue.finish();
    assert!(summary.interrupted && summary.tasks.values().all(|result| *result == TaskResult::Open));
}

#[test]
fn a_claim_that_is_granted_after_the_run_was_told_to_stop_is_driven_to_be_stopped() {
    let mut play = Play::new([1]);
    while play.claims().is_none() {
        let asked = play.outstanding[0].asked();
        play.answer(&asked);
    }
    play.interrupted(Interrupt::Drain);
    play.interrupted(Interrupt::Drain);
    assert!(!play.is_over, "the claim may be granted");
    play.answer(&Asked::Claim);
    assert_eq!(play.driven, [(key(1), DriverSignal::Stop)]);
}

#[test]
fn a_run_that_is_left_ends_at_once_whatever_is_asked() {
    let mut play = Play::new([1, 2]);
    play.answer_all();
    play.passes(Duration::from_secs(3));
    play.interrupted(Interrupt::Detach);
    assert!(play.is_over);
    let summary = play.queue.finish();
    assert_eq!(summary.tasks.values().filter(|result| **result == TaskResult::Open).count(), 2);
}

#[test]
fn a_run_that_was_told_to_stop_does_not_wait_for_ever_for_an_answer() {
    let mut play = Play::new([1]);
    play.interrupted(Interrupt::Drain);
    play.passes(Duration::from_secs(60));
    assert!(!play.is_over, "it may come");
    play.interrupted(Interrupt::Drain);
    play.passes(Duration::from_secs(2));
    assert!(!play.is_over);
    play.passes(Duration::from_secs(2));
    assert!(play.is_over);
}

#[test]
fn what_an_attempt_waits_for_is_news_again_after_another_supervisor_had_it() {
    let mut play = Play::new([1]);
    play.answer_all();
    play.happens(DispatchEvent::Rested {
        key: key(1),
        rest: Box::new(Ok(OutcomeSoFar::Waits("a file is edited".into()))),
    });
    play.answer_all();
    assert!(matches!(play.queue.summary.tasks.get(&key(1)), Some(TaskResult::Waits(_))));
    // It was being tried again when its lease was lost.
    let attempt = Attempt::sample("T0001", "shell", Phase::Started);
    play.queue.resting.clear();
    play.queue.running.insert(key(1), RunningAttempt { attempt, wish: DriverSignal::GoOn });
    let fault = DriveFault { blame: FaultDomain::Successor, what: "fenced".into() };
    play.happens(DispatchEvent::Rested { key: key(1), rest: Box::new(Err(fault)) });
    assert_eq!(play.queue.summary.tasks.get(&key(1)), None);
}

#[test]
fn a_claim_that_another_supervisor_has_is_left_until_the_store_changes() {
    let mut play = Play::new([1]);
    while play.claims().is_none() {
        let asked = play.outstanding[0].asked();
        play.answer(&asked);
    }
    let at = play.asks(&Asked::Claim).expect("claimed");
    let Question::Claim { key: claimed, start, .. } = play.outstanding.remove(at) else { panic!() };
    let answer = Answer::Claimed { key: claimed, start, outcome: ClaimOutcome::Taken };
    play.queue.wishes.watch = true;
    play.happens(DispatchEvent::Answered(answer));
    play.passes(Duration::from_millis(250));
    assert!(play.claims().is_none() && play.driven.is_empty());
    let at = play.asks(&Asked::Store).expect("looked");
    play.outstanding.remove(at);
    let news = StoreNews { mode: QueueMode::Running, latest: Vec::new(), forgiven: HashMap::new() };
    play.happens(DispatchEvent::Answered(Answer::StoreRead { version: 2, news: Some(Box::new(news)) }));
    assert_eq!(play.claims(), Some(key(1)), "it may be free again");
}

#[test]
fn what_the_machine_lacks_is_said_once_and_starts_nothing_for_a_while() {
    let mut play = Play::new([1]);
    while play.claims().is_none() {
        let asked = play.outstanding[0].asked();
        play.answer(&asked);
    }
    play.lacks(&Asked::Claim);
    assert!(play.claims().is_none() && !play.is_over);
    play.passes(Duration::from_millis(250));
    assert!(play.claims().is_none(), "not yet");
    play.passes(Duration::from_secs(1));
    assert_eq!(play.claims(), Some(key(1)));
    play.lacks(&Asked::Claim);
    let troubles = play.told.iter().filter(|event| matches!(event, RunEvent::Trouble { .. })).count();
    assert_eq!(troubles, 1, "{:?}", play.told);
    play.passes(Duration::from_millis(1100));
    assert!(play.claims().is_none(), "it waits longer each time");
    play.passes(Duration::from_secs(1));
    play.answer_all();
    play.rests(1, Ok(OutcomeSoFar::Over(done())));
    assert!(play.told.contains(&RunEvent::Resumed), "work has gone on");
}

#[test]
fn a_question_that_failed_is_asked_again_only_after_something_else_happened() {
    let mut play = Play::new([1]);
    play.answer(&Asked::Drain);
    play.answer(&Asked::Store);
    play.lacks(&Asked::Agenda);
    assert!(play.outstanding.is_empty(), "{:?}", play.outstanding);
    play.look();
    assert!(play.asks(&Asked::Agenda).is_some());
}

#[test]
fn a_run_ends_only_when_nothing_is_left() {
    let mut play = Play::new([1]);
    play.answer_all();
    assert!(!play.is_over, "it is at work");
    let away = DriveFault { blame: FaultDomain::Attempt, what: "records".into() };
    play.rests(1, Err(away));
    assert!(!play.is_over && play.asks(&Asked::Attempt(key(1))).is_some(), "it is re-read before it rests");
    play.answer_all();
    assert!(!play.is_over, "it is taken up again");
    play.passes(Duration::from_secs(1));
    play.answer_all();
    assert_eq!(play.driven.len(), 2);
    play.rests(1, Ok(OutcomeSoFar::Over(done())));
    assert!(!play.is_over, "the board may have more");
    play.answer_all();
    assert!(play.is_over);
    let watching = RunOptions { watch: true, ..RunOptions::default() };
    let mut play = Play::with([], watching);
    play.answer_all();
    assert!(!play.is_over, "something may come");
}

#[test]
fn a_task_that_failed_is_not_chosen_before_it_is_known_how_long_it_waits() {
    let mut play = Play::new([1]);
    play.answer_all();
    let failure = crate::attempt::AttemptFailure::new(crate::attempt::FailureKind::Exit, "1".to_owned());
    let failed = AttemptEnd::Failed { failure, given_up: None };
    play.happens(DispatchEvent::Rested { key: key(1), rest: Box::new(Ok(OutcomeSoFar::Over(failed))) });
    assert!(play.claims().is_none() && play.asks(&Asked::Agenda).is_none(), "{:?}", play.outstanding);
    play.answer(&Asked::Attempt(key(1)));
    play.answer(&Asked::Agenda);
    assert!(play.claims().is_none() && !play.is_over);
    play.passes(Duration::from_secs(1));
    play.answer_all();
    assert_eq!(play.driven.len(), 2);
}

#[test]
fn everything_that_is_adopted_is_in_the_train_before_the_first_is_driven() {
    let mut play = Play::new([]);
    play.answer(&Asked::Drain);
    play.answer(&Asked::Store);
    play.answer(&Asked::Agenda);
    let adopted = ["T0001", "T0002"].map(|id| Attempt::sample(id, "shell", Phase::Started)).to_vec();
    let search = OrphanSearch { adopted, ..OrphanSearch::default() };
    let event = DispatchEvent::Answered(Answer::OrphansFound(search));
    let actions = play.queue.on_event(event, play.now).0;
    let first_driven = actions.iter().position(|action| matches!(action, Action::Drive { .. }));
    let last_rejoined = actions.iter().rposition(|action| matches!(action, Action::Rejoin(_)));
    assert!(last_rejoined.is_some() && last_rejoined < first_driven, "{actions:?}");
    let driven = actions.iter().filter(|action| matches!(action, Action::Drive { .. })).count();
    assert_eq!(driven, 2);
}

#[test]
fn what_was_begun_while_the_store_was_read_is_not_forgotten_for_what_it_said() {
    let mut play = Play::new([1]);
    while play.claims().is_none() {
        let asked = play.outstanding[0].asked();
        play.answer(&asked);
    }
    play.look();
    let at = play.asks(&Asked::Store).expect("it is read");
    play.answer(&Asked::Claim);
    play.outstanding.remove(at.min(play.outstanding.len() - 1));
    let stale = Attempt { epoch: Epoch(0), ..Attempt::sample("T0001", "shell", Phase::Claimed) };
    let news = StoreNews { mode: QueueMode::Running, latest: vec![stale], forgiven: HashMap::new() };
    play.happens(DispatchEvent::Answered(Answer::StoreRead { version: 2, news: Some(Box::new(news)) }));
    assert_eq!(play.queue.latest[&key(1)].epoch, Epoch(1));
}

#[test]
fn an_attempt_that_is_re_read_while_the_store_changes_is_read_once_more() {
    let mut play = Play::new([1]);
    play.answer_all();
    let fault = DriveFault { blame: FaultDomain::Attempt, what: "records".into() };
    play.look();
    play.rests(1, Err(fault));
    let at = play.asks(&Asked::Store).expect("it is read");
    play.outstanding.remove(at);
    let canceled = Attempt { cancel: true, ..Attempt::sample("T0001", "shell", Phase::Started) };
    let news = StoreNews { mode: QueueMode::Running, latest: vec![canceled], forgiven: HashMap::new() };
    play.happens(DispatchEvent::Answered(Answer::StoreRead { version: 2, news: Some(Box::new(news)) }));
    play.answer(&Asked::Attempt(key(1)));
    assert!(play.asks(&Asked::Attempt(key(1))).is_some(), "{:?}", play.outstanding);
    play.answer_all();
    assert!(play.queue.resting.contains_key(&key(1)));
    play.passes(Duration::from_secs(1));
    play.answer_all();
    assert_eq!(play.driven.last(), Some(&(key(1), DriverSignal::Cancel)), "it is not forgotten");
}

proptest! {
    /// In any order of events, nothing is asked twice, nothing is claimed before what it depends on is known
    /// or after the run was told to end, and the run comes to its end when everything is answered.
    #[test]
    fn no_order_of_events_breaks_the_order_of_questions(steps in prop::collection::vec((0_u8..8, any::<u8>()), 0..60)) {
        let mut play = Play::new([1, 2, 3, 4]);
        let mut is_draining = false;
        for (step, which) in steps {
            if play.is_over {
                break;
            }
            let claimed = play.claims();
            let running: Vec<TaskKey> = play.queue.running.keys().cloned().collect();
            match step {
                0..=3 if !play.outstanding.is_empty() => {
                    let asked = play.outstanding[usize::from(which) % play.outstanding.len()].asked();
                    match step {
                        3 if which % 4 == 0 && !matches!(asked, Asked::Drain) => play.lacks(&asked),
                        _ => play.answer(&asked),
                    }
                }
                4 => play.passes(Duration::from_millis(u64::from(which) * 20)),
                5 => play.happens(DispatchEvent::Heartbeat),
                6 if which % 8 == 0 => {
                    play.interrupted(Interrupt::Drain);
                    is_draining = true;
                }
                7 if !running.is_empty() => {
                    let key = running[usize::from(which) % running.len()].clone();
                    let rest = match which % 4 {
                        0 => Ok(OutcomeSoFar::Over(done())),
                        1 => Ok(OutcomeSoFar::Waits("w".into())),
                        2 => Ok(OutcomeSoFar::Over(AttemptEnd::Lost { reason: "l".into() })),
                        _ => Err(DriveFault { blame: FaultDomain::Task, what: "t".into() }),
                    };
                    play.happens(DispatchEvent::Rested { key, rest: Box::new(rest) });
                }
                _ => {}
            }
            if play.claims().is_some() && play.claims() != claimed {
                prop_assert!(!is_draining, "a run that was told to end claims nothing");
                for asked in [Asked::Drain, Asked::Agenda, Asked::Wanted, Asked::Orphans] {
                    prop_assert!(play.asks(&asked).is_none(), "{asked:?} has to be known first");
                }
            }
            prop_assert!(play.queue.running.len() <= 2);
        }
        for _ in 0..200 {
            if play.is_over {
                break;
            }
            play.interrupted(Interrupt::Drain);
            play.answer_all();
            for key in play.queue.running.keys().cloned().collect::<Vec<_>>() {
                play.happens(DispatchEvent::Rested { key, rest: Box::new(Ok(OutcomeSoFar::Interrupted)) });
            }
            if !play.is_over {
                play.passes(Duration::from_secs(1));
            }
        }
        prop_assert!(play.is_over, "{:?}", play.outstanding);
    }
}
