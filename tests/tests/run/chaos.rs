//! Supervisors that are killed: at every step of an attempt's life, and at any moment.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use agency_tests::adversary;
use agency_tests::dice::Dice;
use agency_tests::queue::{HONEST, Queue};

use crate::audit;

/// Every step there is, asked of the program.
pub(crate) fn steps() -> Vec<String> {
    let output = Command::new(adversary::supervisor()).arg("steps").output().expect("it starts");
    let steps: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    assert!(steps.len() > 10, "{steps:?}");
    steps
}

/// What a supervisor that was killed at a moment left is brought to its end by the next one.
fn killed_at(step: &str, side: &str) {
    let mut queue = Queue::new();
    queue.auditor(audit::PASS);
    let tasks = queue.tasks(3);
    let (script, judge) = (format!("script={HONEST}"), format!("auditor={}", audit::PASS));
    let mut first = queue.supervise_here(&[&script, &judge, "parallel=2", &format!("kill={step}:{side}")]);
    let status = first.gone();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "{step}:{side} was never come to"
    );
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 0, "{step}:{side}: {said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    // One attempt each: none was begun again.
    for id in &tasks {
        assert!(!queue.records(id, 2).exists(), "{step}:{side}: {id} was begun again: {said:?}");
    }
}

macro_rules! at_every_step {
    ($($step:ident)*) => {
        $(mod $step {
            #[test]
            fn killed_before() {
                super::killed_at(stringify!($step), "before");
            }

            #[test]
            fn killed_after() {
                super::killed_at(stringify!($step), "after");
            }
        })*

        /// A step without its test is found here.
        #[test]
        fn every_step_has_its_tests() {
            let tested: BTreeSet<String> = [$(stringify!($step).to_owned()),*].into();
            assert_eq!(tested, steps().into_iter().collect());
        }
    };
}

at_every_step!(claim announce order send permit begin keep report collect ask heed merge prove attest land settle release);

/// At least so many tasks: where they are done before the last kill, there are more.
fn killed_at_random(count: usize, kills: usize, seed: u64) {
    let queue = Queue::new();
    let mut tasks = queue.tasks(count);
    let mut dice = Dice::new(seed);
    let mut killed = 0;
    while killed < kills {
        let mut supervisor = queue.start(&["--parallel", "8"]);
        let end = Instant::now() + Duration::from_millis(20 + dice.below(1200));
        // A moment of the clock is what this test is about.
        while Instant::now() < end && supervisor.is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if supervisor.is_alive() {
            supervisor.kill();
            killed += 1;
        } else {
            tasks.extend(queue.tasks(count / 4));
        }
    }
    let said = queue.run(&["--parallel", "8"]);
    assert_eq!(said.code, 0, "after {killed} kills: {said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

#[test]
fn killed_at_any_moment_nothing_is_lost_and_nothing_is_done_twice() {
    killed_at_random(40, 10, 1);
}

#[test]
#[ignore = "takes minutes"]
fn two_hundred_tasks_and_fifty_kills() {
    killed_at_random(200, 50, 7);
}
