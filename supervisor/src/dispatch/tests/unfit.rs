//! Checks on the base come before the first task of a profile; what can't work stops its own tasks and no others.

use super::*;
use crate::attempt::{AttemptFailure, FailureKind};

fn of_profile(id: u8, agent: &str, profile: &str) -> ReadyTask {
    ReadyTask { agent: AgentName::parse(agent).expect("a name"), profile: profile.to_owned(), ..ready(id) }
}

fn checking(ready: Vec<ReadyTask>) -> Play {
    let mut settings = settings();
    settings.checks_base = true;
    settings.agents.insert("other".into(), AgentSettings::default());
    Play::of(ready, RunOptions::default(), settings)
}

/// The profile whose checks are to run on the base.
fn checked(play: &Play) -> Option<String> {
    play.outstanding.iter().find_map(|question| match question {
        Question::CheckBase { profile } => Some(profile.clone()),
        _ => None,
    })
}

/// Answers everything but the checks on the base.
fn answer_others(play: &mut Play) {
    while let Some(asked) =
        play.outstanding.iter().map(Question::asked).find(|asked| *asked != Asked::BaseCheck)
    {
        play.answer(&asked);
    }
}

fn is_checked(play: &mut Play, result: BaseCheck) {
    let at = play.asks(&Asked::BaseCheck).expect("it is asked");
    let Question::CheckBase { profile } = play.outstanding.remove(at) else { unreachable!() };
    play.happens(DispatchEvent::Answered(Answer::BaseChecked { profile, result }));
}

fn unfit() -> BaseCheck {
    BaseCheck::Unfit { why: "`npm test` needs a program".into(), log: None, hint: None }
}

fn failed(kind: FailureKind) -> Result<OutcomeSoFar, DriveFault> {
    let failure = AttemptFailure::new(kind, "it is missing");
    Ok(OutcomeSoFar::Over(AttemptEnd::Failed { failure, given_up: Some(String::new()) }))
}

#[test]
fn the_first_task_of_a_profile_waits_for_its_checks_on_the_base_and_the_next_ones_do_not() {
    let mut play = checking(vec![of_profile(1, "shell", "node"), of_profile(2, "shell", "node")]);
    answer_others(&mut play);
    assert_eq!(checked(&play).as_deref(), Some("node"));
    assert!(play.driven.is_empty() && !play.is_over, "nothing starts before, and the run does not end");
    is_checked(&mut play, BaseCheck::Failing { what: "1 of 3 fails".into(), log: None });
    answer_others(&mut play);
    assert_eq!(play.driven.len(), 2, "tasks may be there to fix it");
    assert!(checked(&play).is_none(), "once is enough");
}

#[test]
fn a_profile_that_cannot_pass_stops_its_own_tasks_alone() {
    let mut play = checking(vec![of_profile(1, "shell", "node"), of_profile(2, "shell", "rust")]);
    answer_others(&mut play);
    is_checked(&mut play, unfit());
    answer_others(&mut play);
    assert_eq!(checked(&play).as_deref(), Some("rust"));
    is_checked(&mut play, BaseCheck::Passed);
    answer_others(&mut play);
    assert_eq!(play.driven, [(key(2), DriverSignal::GoOn)]);
    play.rests(2, Ok(OutcomeSoFar::Over(done())));
    answer_others(&mut play);
    assert!(play.is_over);
    let summary = play.queue.finish();
    let [(task, why)] = &summary.waiting[..] else { panic!("{:?}", summary.waiting) };
    assert_eq!((task.as_str(), why.as_str()), ("T0001", "the checks of `node` can't pass here"));
}

#[test]
fn a_run_that_is_told_to_stop_does_not_wait_for_checks_on_the_base() {
    let mut play = checking(vec![of_profile(1, "shell", "node")]);
    answer_others(&mut play);
    play.interrupted(Interrupt::Drain);
    assert!(play.is_over);
}

/// It has no end after which a person would start it again.
#[test]
fn a_run_that_watches_tries_again_what_did_not_work_and_says_it_once() {
    let mut settings = settings();
    settings.checks_base = true;
    let wishes = RunOptions { watch: true, ..RunOptions::default() };
    let mut play =
        Play::of(vec![of_profile(1, "shell", "node"), of_profile(2, "shell", "node")], wishes, settings);
    play.queue.limits.total = 1;
    for _ in 0..2 {
        answer_others(&mut play);
        assert_eq!(checked(&play).as_deref(), Some("node"));
        is_checked(&mut play, unfit());
        play.passes(Duration::from_secs(9 * 60));
        answer_others(&mut play);
        assert!(checked(&play).is_none() && !play.is_over, "not all the time");
        play.passes(Duration::from_secs(12 * 60));
    }
    answer_others(&mut play);
    is_checked(&mut play, BaseCheck::Passed);
    answer_others(&mut play);
    let said = play.told.iter().filter(|event| matches!(event, RunEvent::BaseChecked { .. }));
    assert_eq!(said.count(), 2, "unfit, and then not");
    play.rests(1, failed(FailureKind::Start));
    answer_others(&mut play);
    assert_eq!(play.driven.len(), 1);
    play.passes(Duration::from_secs(11 * 60));
    answer_others(&mut play);
    assert_eq!(play.driven.len(), 2, "its program may be there now");
}

/// The time of the run goes by while its checks run.
#[test]
fn a_run_whose_time_is_over_does_not_wait_for_checks_on_the_base() {
    let mut play = checking(vec![of_profile(1, "shell", "node")]);
    play.queue.settings.budget.run.time = Some(Duration::from_secs(60));
    answer_others(&mut play);
    assert_eq!(checked(&play).as_deref(), Some("node"));
    play.passes(Duration::from_secs(61));
    answer_others(&mut play);
    assert!(play.is_over && play.queue.used_up);
}

#[test]
fn an_agent_that_cannot_be_started_stops_its_own_tasks_alone() {
    let tasks = vec![of_profile(1, "shell", "x"), of_profile(2, "other", "x"), of_profile(3, "shell", "x")];
    let mut play = Play::of(tasks, RunOptions::default(), {
        let mut settings = settings();
        settings.parallel = 1;
        settings.agents.insert("other".into(), AgentSettings::default());
        settings
    });
    play.answer_all();
    play.rests(1, failed(FailureKind::Start));
    play.answer_all();
    play.rests(2, Ok(OutcomeSoFar::Over(done())));
    play.answer_all();
    assert!(play.is_over);
    assert_eq!(play.driven, [(key(1), DriverSignal::GoOn), (key(2), DriverSignal::GoOn)]);
    let summary = play.queue.finish();
    assert_eq!(summary.waiting, [("T0003".to_owned(), "`shell` can't be started: it is missing".to_owned())]);
}

#[test]
fn checks_that_could_not_run_have_every_profile_tried_again() {
    let mut play = checking(vec![of_profile(1, "shell", "node"), of_profile(2, "shell", "node")]);
    play.queue.limits.total = 1;
    answer_others(&mut play);
    is_checked(&mut play, BaseCheck::Passed);
    answer_others(&mut play);
    play.rests(1, failed(FailureKind::Checks));
    answer_others(&mut play);
    assert_eq!(checked(&play).as_deref(), Some("node"), "what landed may have broken it");
    is_checked(&mut play, unfit());
    answer_others(&mut play);
    assert!(play.is_over && play.driven.len() == 1);
}
