//! What a queue costs: tasks per second of `agency run`, beside GNU parallel over a script that makes a worktree,
//! runs `bwrap`, commits and removes the worktree; the memory of our own for each agent that runs; the time of the
//! processor that fifty of them take while they wait. `bench_run [ROUNDS [TASKS]]`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};

const FILES: usize = 2000;
const PARALLEL: &str = "4";
/// Running at the same time, while their memory and their time are looked at.
const AGENTS: usize = 50;

/// The work of one task, as people do it by hand. Nothing is verified and nothing is merged. Several gits that add
/// worktrees at once sometimes trip over each other, and then it is tried again.
const BY_HAND: &str = r#"
set -e
until git worktree add -q --detach "$WORKTREES/$1" main 2>/dev/null; do rm -rf "$WORKTREES/$1"; done
bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind "$WORKTREES/$1" "$WORKTREES/$1" \
  --chdir "$WORKTREES/$1" --unshare-all --die-with-parent sh -c "echo by $1 > src/by-hand-$1"
git -C "$WORKTREES/$1" add -A
git -C "$WORKTREES/$1" -c user.name=x -c user.email=x@x commit -q -m "$1"
git -C "$WORKTREES/$1" branch -q "by-hand-$1"
git worktree remove --force "$WORKTREES/$1"
"#;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, usual: usize| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(usual);
    match measure(number(0, 3), number(1, 100)) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_run: {error}");
            ExitCode::from(1)
        }
    }
}

fn measure(rounds: usize, tasks: usize) -> io::Result<Vec<String>> {
    let mut queue = Queue::with_agent(HONEST);
    for number in 0..FILES {
        queue
            .ground
            .write(&format!("lib/{}/{number}.txt", number % 50), format!("file {number}\n").repeat(20));
    }
    queue.ground.commit_all();
    let (mut ours, mut theirs, mut done) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        theirs.push(by_hand(&queue, round, tasks.min(40))?);
        queue.tasks(tasks);
        done += tasks;
        let start = Instant::now();
        let said = queue.run(&["--parallel", PARALLEL]);
        ours.push(tasks as f64 / start.elapsed().as_secs_f64());
        if said.code != 0 || queue.landed().len() != done {
            return Err(io::Error::other(format!("{} of {done} landed: {said:?}", queue.landed().len())));
        }
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let ratio = ours / theirs;
    let held = |holds: bool| if holds { "held" } else { "not held" };
    let mut lines = vec![format!(
        "{done} tasks on {FILES} files: {ours:.1} tasks/s, by hand {theirs:.1} tasks/s, ratio {ratio:.1}, target 5: {}",
        held(ratio >= 5.0)
    )];
    let (memory, share) = at_work(&mut queue)?;
    lines.push(format!(
        "memory for each of {AGENTS} agents: {:.1} MiB, target 8: {}",
        memory as f64 / 1048576.0,
        held(memory <= 8 << 20)
    ));
    let percent = share * 100.0;
    lines.push(format!("processor while they work: {percent:.2} %, target 1: {}", held(percent < 1.0)));
    Ok(lines)
}

/// Tasks per second.
fn by_hand(queue: &Queue, round: usize, tasks: usize) -> io::Result<f64> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("task");
    fs::write(&script, BY_HAND)?;
    let names = (0..tasks).map(|number| format!("{round}-{number}\n")).collect::<String>();
    let list = folder.path().join("tasks");
    fs::write(&list, names)?;
    let start = Instant::now();
    let status = Command::new("parallel")
        .args(["--will-cite", "-j", PARALLEL, "-a"])
        .arg(&list)
        .args(["bash"])
        .arg(&script)
        .arg("{}")
        .env("WORKTREES", folder.path())
        .current_dir(queue.path())
        .stdin(Stdio::null())
        .status()?;
    let elapsed = start.elapsed().as_secs_f64();
    let made = queue.ground.git(&["branch", "--list", &format!("by-hand-{round}-*")]).lines().count();
    if !status.success() || made != tasks {
        return Err(io::Error::other(format!("by hand: {status}, {made} of {tasks}")));
    }
    Ok(tasks as f64 / elapsed)
}

/// Bytes of our own for each agent, and the share of one processor that all of ours take, while agents do nothing.
fn at_work(queue: &mut Queue) -> io::Result<(u64, f64)> {
    queue.agent("shell", "echo ready; sleep 600", "");
    queue.tasks(AGENTS);
    let mut supervisor = queue.start(&["--parallel", &AGENTS.to_string()]);
    let ready = |one: &serde_json::Value| {
        let log = queue.records(one["task"]["id"].as_str().unwrap_or_default(), 1).join("agent/output.log");
        fs::read_to_string(log).is_ok_and(|text| text.contains("ready"))
    };
    let all = || queue.open_attempts().iter().filter(|one| ready(one)).count() == AGENTS;
    if !wait_until(LONG, all) {
        return Err(io::Error::other("not all agents started"));
    }
    let ours = ours(queue);
    let memory: u64 = ours.iter().map(|pid| memory_of(*pid)).sum();
    let before: u64 = ours.iter().map(|pid| ticks_of(*pid)).sum();
    let start = Instant::now();
    // What is measured is what happens while time passes.
    std::thread::sleep(Duration::from_secs(20));
    let ticks = ours.iter().map(|pid| ticks_of(*pid)).sum::<u64>() - before;
    let share = ticks as f64 / 100.0 / start.elapsed().as_secs_f64();
    for _ in 0..2 {
        supervisor.signal(nix::sys::signal::Signal::SIGINT);
        std::thread::sleep(Duration::from_millis(200));
    }
    supervisor.gone();
    Ok((memory / AGENTS as u64, share))
}

/// The supervisor and its shims, with what they keep running: every process that is not in a sandbox.
fn ours(queue: &Queue) -> Vec<u32> {
    let own = fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let alive = queue.marker().alive().into_iter().map(|alive| alive.pid);
    alive.filter(|pid| fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|other| other == own)).collect()
}

/// Its proportional share, in bytes.
fn memory_of(pid: u32) -> u64 {
    let text =
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// User and system time, in hundredths of a second.
fn ticks_of(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
