//! Thousands of tasks in one run: the supervisor's memory stays flat, and its rate does not fall.

use std::fs;
use std::time::{Duration, Instant};

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, Queue};

const TASKS: &str = "AGENCY_QUEUE_TASKS";

/// How often memory and landings are looked at.
const INTERVAL: Duration = Duration::from_secs(3);

/// The last quarter of the tasks may use so much more memory than the second, and land at so much less of its rate. The
/// first quarter is when caches fill.
const MEMORY: f64 = 1.5;
const RATE: f64 = 0.7;

/// What was seen of a run at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    landed: usize,
    /// In KiB, with pages of files and without.
    resident: u64,
    anonymous: u64,
}

impl Sample {
    fn of(queue: &Queue, pid: u32, began: Instant, before: usize) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        // A process that has ended has no memory.
        let (resident, anonymous) = (field("VmRSS:")?, field("RssAnon:")?);
        Some(Self { at: began.elapsed(), landed: commits(queue) - before, resident, anonymous })
    }
}

fn commits(queue: &Queue) -> usize {
    queue.ground.git(&["rev-list", "--count", "main"]).trim().parse().expect("a number")
}

/// So many tasks. One is made by `agency`, and the others as copies of it: a start for each would take longer than the run.
fn fill(queue: &Queue, count: usize) {
    let id = queue.task("shell", &[]);
    let name = queue.ground.file(&id);
    let text = queue.ground.read(&name);
    for number in 2..=count {
        let new = format!("T{number:04}");
        queue.ground.write(&name.replace(&id, &new), text.replace(&id, &new));
    }
    queue.ground.ok(&["lint", "--fix"]);
}

/// What one quarter of the tasks took.
#[derive(Debug, Clone, Copy)]
struct Quarter {
    /// Landings in a second.
    rate: f64,
    /// The mean, in KiB.
    anonymous: f64,
}

impl Quarter {
    fn of(samples: &[Sample], number: usize, count: usize) -> Self {
        let (from, to) = (count * number / 4, count * (number + 1) / 4);
        let inside: Vec<&Sample> =
            samples.iter().filter(|sample| sample.landed > from && sample.landed <= to).collect();
        let (first, last) = match inside[..] {
            [first, .., last] => (first, last),
            _ => panic!("too few samples of quarter {}: more tasks, or a slower agent", number + 1),
        };
        let seconds = (last.at - first.at).as_secs_f64();
        let total: u64 = inside.iter().map(|sample| sample.anonymous).sum();
        Self {
            rate: (last.landed - first.landed) as f64 / seconds,
            anonymous: total as f64 / inside.len() as f64,
        }
    }
}

#[allow(clippy::print_stdout)]
fn show(samples: &[Sample], quarters: &[Quarter]) {
    println!("minute  landed  in it  resident MiB  anonymous MiB");
    let mut before = 0;
    for minute in 0.. {
        let end = Duration::from_secs(60 * (minute + 1));
        let Some(last) = samples.iter().rfind(|sample| sample.at < end) else { break };
        let (resident, anonymous) = (last.resident as f64 / 1024.0, last.anonymous as f64 / 1024.0);
        println!(
            "{minute:6}  {:6}  {:5}  {resident:12.1}  {anonymous:13.1}",
            last.landed,
            last.landed - before
        );
        before = last.landed;
        if samples.last().is_some_and(|sample| sample.at < end) {
            break;
        }
    }
    println!("quarter  landings/s  anonymous MiB");
    for (number, quarter) in quarters.iter().enumerate() {
        println!("{:7}  {:10.2}  {:13.1}", number + 1, quarter.rate, quarter.anonymous / 1024.0);
    }
}

#[test]
#[ignore = "takes many minutes"]
fn memory_and_rate_hold_over_five_thousand_tasks() {
    let count = std::env::var(TASKS).map_or(5000, |text| text.parse().expect("a number"));
    let queue = Queue::with_agent(HONEST);
    fill(&queue, count);
    let before = commits(&queue);
    let mut run = queue.start(&["--parallel", "4"]);
    let began = Instant::now();
    let mut samples = Vec::new();
    while !wait_until(INTERVAL, || !run.is_alive()) {
        samples.extend(Sample::of(&queue, run.pid(), began, before));
    }
    let said = run.end();
    assert_eq!(said.code, 0, "{} landed: {}", commits(&queue) - before, said.err);
    let quarters: Vec<Quarter> = (0..4).map(|number| Quarter::of(&samples, number, count)).collect();
    show(&samples, &quarters);
    let landed = queue.landed();
    assert_eq!(landed.len(), count);
    assert!(landed.values().all(|times| *times == 1), "landed more than once");
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
    let (second, last) = (quarters[1], quarters[3]);
    assert!(last.anonymous <= second.anonymous * MEMORY, "memory grows: {quarters:?}");
    assert!(last.rate >= second.rate * RATE, "the rate falls: {quarters:?}");
}
