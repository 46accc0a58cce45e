//! Kills of anything that belongs to a queue, and stops of a supervisor beside others: everything lands once, and
//! nothing is left.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use agency_tests::dice::{Dice, SeedOnFailure};
use agency_tests::processes::{emulated, wait_until};
use agency_tests::queue::{LONG, Queue, Supervisor};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Long enough that it is met at work.
const AGENT: &str = "sleep 0.2; mkdir -p src && echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID";

const SEED: &str = "AGENCY_KILLS_SEED";
const ROUNDS: &str = "AGENCY_KILLS_ROUNDS";
const TASKS: &str = "AGENCY_KILLS_TASKS";

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Supervisor,
    Shim,
    /// The first process of a sandbox, with which everything in it ends.
    First,
    Agent,
    /// A git that a supervisor runs.
    Git,
    /// A supervisor and what it runs, at once.
    Group,
}

const VICTIMS: [Victim; 6] =
    [Victim::Supervisor, Victim::Shim, Victim::First, Victim::Agent, Victim::Git, Victim::Group];

/// A process of the queue.
struct Process {
    pid: u32,
    parent: u32,
    command: String,
    /// Its process id as the innermost namespace sees it, where it is in another one than ours.
    inner: Option<u32>,
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
        let status = String::from_utf8_lossy(&read("status")?).into_owned();
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let numbers: Vec<u32> =
            field("NSpid:")?.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        Some(Self {
            pid,
            parent: field("PPid:")?.trim().parse().ok()?,
            command: String::from_utf8_lossy(&read("cmdline")?).replace('\0', " "),
            inner: numbers.get(1..)?.last().copied(),
        })
    }

    fn is(&self, victim: Victim, supervisor: u32) -> bool {
        match victim {
            Victim::Supervisor | Victim::Group => self.pid == supervisor,
            Victim::Shim => self.inner.is_none() && self.command.contains("agency shim "),
            Victim::First => self.inner == Some(1),
            Victim::Agent => self.inner.is_some_and(|pid| pid > 1) && self.command.starts_with("sh -c "),
            Victim::Git => {
                let program = self.command.split(' ').next().unwrap_or_default();
                self.parent == supervisor && program.rsplit('/').next() == Some("git")
            }
        }
    }
}

/// Every process of the queue. Gits know nothing of the marker, but their parents do.
fn processes(queue: &Queue, supervisor: u32) -> Vec<Process> {
    let marked: Vec<u32> = queue.marker().alive().into_iter().map(|alive| alive.pid).collect();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = names.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?));
    all.filter(|one| marked.contains(&one.pid) || one.parent == supervisor).collect()
}

/// Kills one, if there is one.
fn strike(queue: &Queue, supervisor: &Supervisor, victim: Victim, dice: &mut Dice) -> bool {
    let all = processes(queue, supervisor.pid());
    let found: Vec<&Process> = all.iter().filter(|one| one.is(victim, supervisor.pid())).collect();
    let chosen = usize::try_from(dice.below(found.len().max(1) as u64)).unwrap_or_default();
    let Some(one) = found.get(chosen) else { return false };
    let pid = Pid::from_raw(i32::try_from(one.pid).expect("a process"));
    match victim {
        Victim::Group => killpg(pid, Signal::SIGKILL).is_ok(),
        _ => kill(pid, Signal::SIGKILL).is_ok(),
    }
}

/// What is not the task's fault does not block it here, however often it happens.
fn queue() -> Queue {
    let mut queue = Queue::with_agent(AGENT);
    queue.settings("attempts = 100\nrepeats = 100");
    queue.ground.commit_all();
    queue
}

/// A test that fails shows what the runs said.
struct ShownIfFailed(String);

impl Drop for ShownIfFailed {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the runs said, after {}", self.0);
        }
    }
}

/// A last run that nobody disturbs ends everything.
fn assert_ends(queue: &Queue, tasks: &[String], done: &str) {
    let said = queue.run(&["--parallel", "8"]);
    assert_eq!(said.code, 0, "after {done}: {said:?}");
    let _shown = ShownIfFailed(format!("{done}\nthe last run: {}", said.err));
    queue.ground.git(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
    queue.assert_landed(tasks);
    queue.assert_nothing_left();
}

/// At least so many tasks: where they are done before the last kill, there are more.
fn kill_anything(victims: &[Victim], count: usize, kills: usize, seed: u64) {
    let _told = SeedOnFailure { suite: "kills", seed };
    let queue = queue();
    let mut tasks = queue.tasks(count);
    let mut dice = Dice::new(seed);
    let mut said = String::new();
    let mut killed: BTreeMap<Victim, usize> = BTreeMap::new();
    let mut run = queue.start_group(&["--parallel", "6"]);
    let end = Instant::now() + emulated(LONG + Duration::from_secs(4) * u32::try_from(kills).unwrap_or(1));
    while killed.values().sum::<usize>() < kills {
        assert!(Instant::now() < end, "{killed:?} of {kills} kills: {}", run.said_so_far());
        let victim = victims[usize::try_from(dice.below(victims.len() as u64)).unwrap_or_default()];
        // A moment of the clock is what this test is about.
        wait_until(Duration::from_millis(dice.below(400)), || !run.is_alive());
        if run.is_alive() {
            if strike(&queue, &run, victim, &mut dice) {
                *killed.entry(victim).or_default() += 1;
            }
            if matches!(victim, Victim::Supervisor | Victim::Group) {
                run.gone();
            }
        } else {
            said.push_str(&run.said_so_far());
            if queue.landed().len() == tasks.len() {
                tasks.extend(queue.tasks(count / 4 + 1));
            }
            run = queue.start_group(&["--parallel", "6"]);
        }
    }
    run.gone();
    said.push_str(&run.said_so_far());
    assert_ends(&queue, &tasks, &format!("{killed:?} and\n{said}"));
}

/// One of three supervisors sleeps for longer than its leases last, while the two others go on.
fn stop_one_of_three(count: usize, stops: usize, seed: u64) {
    let _told = SeedOnFailure { suite: "kills", seed };
    let mut queue = queue();
    queue.settings("lease = \"2s\"");
    queue.ground.commit_all();
    let mut tasks = queue.tasks(count);
    let mut dice = Dice::new(seed);
    let mut three: Vec<Supervisor> = (0..3).map(|_| queue.start(&["--parallel", "2"])).collect();
    let mut said = String::new();
    for _ in 0..stops {
        // A moment of the clock is what this test is about.
        std::thread::sleep(Duration::from_millis(dice.below(700)));
        if queue.landed().len() == tasks.len() {
            tasks.extend(queue.tasks(count / 4 + 1));
        }
        for one in &mut three {
            if !one.is_alive() {
                said.push_str(&one.said_so_far());
                *one = queue.start(&["--parallel", "2"]);
            }
        }
        let one = usize::try_from(dice.below(3)).unwrap_or_default();
        three[one].signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(2500 + dice.below(1500)));
        three[one].signal(Signal::SIGCONT);
    }
    for one in &mut three {
        let status = one.gone();
        assert!(status.code().is_some(), "{status}: {}", one.said_so_far());
        said.push_str(&one.said_so_far());
    }
    assert_ends(&queue, &tasks, &format!("{stops} stops and\n{said}"));
}

/// Without kills of git: one that is killed can leave the lock of the branch behind, and work waits for a person then.
#[test]
fn killed_whatever_it_is_but_git_everything_lands_once() {
    kill_anything(&VICTIMS[..4], 16, 12, 1);
}

#[test]
fn stopped_past_its_lease_beside_two_others_everything_lands_once() {
    stop_one_of_three(24, 2, 1);
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
#[ignore = "takes minutes"]
fn three_hundred_tasks_and_any_kill() {
    let count = usize::try_from(number(TASKS, 300)).expect("a number");
    for round in 0..number(ROUNDS, 1) {
        kill_anything(&VICTIMS, count, count * 3 / 4, number(SEED, 1) + round);
    }
}

#[test]
#[ignore = "takes minutes"]
fn three_hundred_tasks_and_stops_past_the_lease() {
    let count = usize::try_from(number(TASKS, 300)).expect("a number");
    for round in 0..number(ROUNDS, 1) {
        stop_one_of_three(count, count / 12, number(SEED, 1) + round);
    }
}
