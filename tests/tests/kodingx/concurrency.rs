//! Many at once, and some of them killed: no id twice, no file lost, none torn.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agency_tests::processes::wait_until;

use crate::ground::{Ground, header};

/// Far more than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    /// SplitMix64.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// How a swarm did.
#[derive(Debug)]
struct Outcome {
    /// Ids that were told to whoever asked for them.
    told: Vec<String>,
    killed: usize,
}

/// `workers` at once make `each` tasks, one after the other. If there is a seed, of every ten processes one is
/// killed: half of those at any moment of what one usually takes, which is mostly waiting; the others while they
/// hold the lock and write.
fn swarm(ground: &Ground, workers: usize, each: usize, seed: Option<u64>) -> Outcome {
    let killed = AtomicUsize::new(0);
    // What a process took lately, in microseconds, at this load.
    let usual = AtomicU64::new(50_000);
    let worker = |worker: usize| -> Vec<String> {
        let mut dice = Dice(seed.unwrap_or_default().wrapping_add(worker as u64 * 7919));
        let mut told = Vec::new();
        for number in 0..each {
            let title = format!("Task {number} of worker {worker}");
            let mut command = ground.command(&["task", "new", "--title", &title, "--must-touch", "src/**"]);
            let started = Instant::now();
            let mut child =
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("agency starts");
            let kill = seed.is_some() && dice.roll().is_multiple_of(10);
            if kill {
                let any = usual.load(Ordering::Relaxed);
                let writes = dice.roll().is_multiple_of(2) && holds_the_lock(&mut child);
                let late = dice.roll() % if writes { WRITING } else { any.max(1) };
                std::thread::sleep(Duration::from_micros(late));
                child.kill().expect("killed");
            }
            let output = child.wait_with_output().expect("it ends");
            if output.status.success() {
                usual.store(started.elapsed().as_micros() as u64, Ordering::Relaxed);
                told.push(String::from_utf8(output.stdout).expect("text").trim().to_owned());
            } else {
                assert!(kill && output.status.signal() == Some(9), "{output:?}");
                killed.fetch_add(1, Ordering::Relaxed);
            }
        }
        told
    };
    let told = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|number| scope.spawn(move || worker(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    Outcome { told, killed: killed.into_inner() }
}

/// About as long as the lock is held, in microseconds.
const WRITING: u64 = 15_000;

/// Waits until a process has the lock, as the kernel tells; false if it ended before anybody saw it.
fn holds_the_lock(child: &mut Child) -> bool {
    let pid = child.id().to_string();
    let mut has_it = false;
    wait_until(DEADLINE, || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        // `1: FLOCK  ADVISORY  WRITE 1234 …`; who waits has an arrow before it.
        has_it = locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1) == Some(&"FLOCK") && words.get(4) == Some(&pid.as_str())
        });
        has_it || child.try_wait().is_ok_and(|ended| ended.is_some())
    });
    has_it
}

/// What is so afterwards, whatever happened: the ids of the tasks that are there.
fn assert_whole(ground: &Ground, outcome: &Outcome) -> BTreeSet<String> {
    let told: BTreeSet<String> = outcome.told.iter().cloned().collect();
    assert_eq!(told.len(), outcome.told.len(), "an id was told twice");
    let files: Vec<String> =
        ground.files(".kodingx/inbox").into_iter().filter(|f| f.ends_with(".md")).collect();
    let mut there = BTreeSet::new();
    for file in &files {
        let text = ground.read(file);
        let header = header(&text).unwrap_or_else(|| panic!("{file} is torn: {text:?}"));
        let id = header["id"].as_str().expect("an id").to_owned();
        assert!(file.rsplit('/').next().is_some_and(|name| name.starts_with(&format!("{id}-"))), "{file}");
        assert!(text.ends_with("## Notes\n"), "{file} is torn: {text:?}");
        assert!(there.insert(id), "{file}: its id is there twice");
    }
    assert!(told.is_subset(&there), "lost: {:?}", told.difference(&there).collect::<Vec<_>>());
    let consecutive: BTreeSet<String> = (1..=there.len()).map(|number| format!("T{number:04}")).collect();
    assert_eq!(there, consecutive, "ids are given out one after the other");
    let state = ground.header(".kodingx/STATE.md");
    let active: Vec<&str> =
        state["active_tasks"].as_sequence().expect("a list").iter().filter_map(|id| id.as_str()).collect();
    assert_eq!(active, there.iter().map(String::as_str).collect::<Vec<_>>());
    for place in [ground.path().join(".kodingx"), ground.state()] {
        assert_eq!(temporary(&place), Vec::<String>::new());
    }
    ground.assert_compliant();
    there
}

/// Files that are only there while something is written.
fn temporary(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(temporary(&entry.path()));
        } else {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("agency-new") || name.contains("journal") {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

fn undisturbed(workers: usize, each: usize) {
    let ground = Ground::new();
    let outcome = swarm(&ground, workers, each, None);
    assert_eq!(outcome.told.len(), workers * each);
    assert_eq!(assert_whole(&ground, &outcome).len(), workers * each);
}

/// How many tasks are there of processes that were killed before they could tell.
fn disturbed(workers: usize, each: usize, seed: u64) -> usize {
    let ground = Ground::new();
    let mut outcome = swarm(&ground, workers, each, Some(seed));
    // Whoever comes next finishes what was interrupted, and cleans up.
    outcome.told.push(ground.task("One more", &[]));
    let there = assert_whole(&ground, &outcome);
    assert!(outcome.killed > 0, "nobody was killed in time: {outcome:?}");
    let most = outcome.told.len() + outcome.killed;
    assert!((outcome.told.len()..=most).contains(&there.len()), "{} of {outcome:?}", there.len());
    there.len() - outcome.told.len()
}

#[test]
fn s15_2_ids_never_collide_between_processes() {
    undisturbed(16, 5);
}

#[test]
fn s15_2_ids_never_collide_when_processes_are_killed() {
    for seed in [1, 2, 3] {
        disturbed(16, 5, seed);
    }
}

#[test]
fn sixty_four_processes_make_1280_tasks_at_once() {
    undisturbed(64, 20);
}

#[test]
fn sixty_four_processes_of_which_a_tenth_is_killed_lose_and_tear_nothing() {
    // Some had written down what they were about to do, and others did it for them.
    assert!(disturbed(64, 20, 64) > 0, "nobody was killed while writing");
}

/// Different verbs at once on the same tasks: each is done or refused as a whole.
#[test]
fn moves_of_the_same_task_at_once_happen_one_after_the_other() {
    let ground = Ground::new();
    let ids: Vec<String> = (0..4).map(|number| ground.task(&format!("Task {number}"), &[])).collect();
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|number| {
                let (ground, id) = (&ground, &ids[number % 4]);
                scope
                    .spawn(move || ground.agency(&["task", "move", id, "ASSIGNED", "--reason", "first"]).code)
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<i32>>()
    });
    assert_eq!(done.iter().filter(|code| **code == 0).count(), 4, "{done:?}");
    assert!(done.iter().all(|code| [0, 2].contains(code)), "{done:?}");
    for id in &ids {
        let text = ground.read(&ground.file(id));
        assert_eq!(text.matches("NEW → ASSIGNED by orchestrator: first").count(), 1, "{text}");
    }
    ground.assert_compliant();
}
