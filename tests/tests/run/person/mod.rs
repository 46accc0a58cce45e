//! A person works in a repository while a run does, and runs are killed: nothing that the person wrote is lost, and the
//! queue ends.
//!
//! What holds is looked at from outside, when everybody has ended: by git, files and processes alone.

mod acts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use acts::Person;
use agency_tests::dice::{Dice, SeedOnFailure};
use agency_tests::ground::header;
use agency_tests::processes::{emulated, wait_until};
use agency_tests::queue::{LONG, Queue};

/// Long enough that a person meets one at work.
const AGENT: &str = "sleep 0.2; mkdir -p src && echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID";

/// A landing that had begun when its task was taken away may end: so many seconds.
const UNDER_WAY: u64 = 2;

const SEED: &str = "AGENCY_PERSON_SEED";
const ROUNDS: &str = "AGENCY_PERSON_ROUNDS";
const TASKS: &str = "AGENCY_PERSON_TASKS";

/// How a task stands, as its file says; nothing if there is none.
fn status(queue: &Queue, id: &str) -> Option<String> {
    let name =
        queue.ground.files(".kodingx/inbox").into_iter().find(|name| name.contains(&format!("/{id}-")))?;
    let text = fs::read_to_string(queue.path().join(name)).ok()?;
    header(&text)?["status"].as_str().map(str::to_owned)
}

fn is_over(queue: &Queue, id: &str) -> bool {
    status(queue, id).is_none_or(|status| ["DONE", "CANCELED", "BLOCKED"].contains(&status.as_str()))
}

/// Runs are begun, killed and begun again until the queue has ended; everything they said.
fn run_and_kill(
    queue: &Queue,
    tasks: &[String],
    on_main: &Mutex<()>,
    kills: usize,
    dice: &mut Dice,
) -> String {
    let mut said = String::new();
    let mut killed = 0;
    let end = Instant::now()
        + emulated(
            Duration::from_secs(120)
                + Duration::from_secs(3) * u32::try_from(tasks.len()).unwrap_or(u32::MAX),
        );
    while !tasks.iter().all(|id| is_over(queue, id)) {
        assert!(
            Instant::now() < end,
            "the queue does not end:\n{said}\n{:?}",
            queue.ground.agency(&["status"])
        );
        let mut run = {
            let _on_main = on_main.lock().unwrap_or_else(PoisonError::into_inner);
            let mut run = queue.start(&["--parallel", "4"]);
            // By its first word it knows the branch it is to land on.
            wait_until(LONG, || !run.said_so_far().is_empty() || !run.is_alive());
            run
        };
        let moment = match killed < kills {
            true => Duration::from_millis(dice.below(900)),
            false => LONG,
        };
        // A moment of the clock is what this test is about.
        wait_until(moment, || !run.is_alive());
        if run.is_alive() && killed < kills {
            run.signal(nix::sys::signal::Signal::SIGKILL);
            killed += 1;
        }
        run.gone();
        // While a person keeps it from beginning, a run says the same again and again.
        let words = run.said_so_far() + "--\n";
        if !said.ends_with(&words) {
            said.push_str(&words);
        }
    }
    assert!(killed > 0, "everything was done before the first kill");
    said
}

/// Everything that a person can find again: files of the work tree, and what branches, the stash and reflogs reach.
struct Corpus {
    files: BTreeMap<String, String>,
    history: String,
}

impl Corpus {
    fn of(queue: &Queue) -> Self {
        let names = queue.ground.files("").into_iter();
        let read = |name: &String| fs::read(queue.path().join(name)).unwrap_or_default();
        let files =
            names.map(|name| (name.clone(), String::from_utf8_lossy(&read(&name)).into_owned())).collect();
        let objects =
            queue.ground.git(&["rev-list", "--objects", "--no-object-names", "--branches", "--reflog"]);
        let mut command = queue.ground.program(Path::new("git"));
        command.args(["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut git = command.spawn().expect("git starts");
        let mut input = git.stdin.take().expect("a pipe");
        let writer = thread::spawn(move || input.write_all(objects.as_bytes()));
        let output = git.wait_with_output().expect("git ends");
        writer.join().expect("written").expect("written");
        Self { files, history: String::from_utf8_lossy(&output.stdout).into_owned() }
    }
}

/// When each task landed on `main`, in seconds since 1970, as the branch's reflog says.
fn landings(queue: &Queue) -> BTreeMap<String, u64> {
    let log = queue.ground.git(&["reflog", "show", "--date=unix", "--format=%gd %gs", "main"]);
    let of_line = |line: &str| {
        let (place, what) = line.split_once(' ')?;
        let id = what.strip_prefix("agency: kodingx:")?.split(' ').next()?;
        let time = place.split_once("@{")?.1.strip_suffix('}')?.parse().ok()?;
        Some((id.to_owned(), time))
    };
    log.lines().filter_map(of_line).collect()
}

/// How often each task landed on `main`, as its commits say.
///
/// Not counted is a copy that the person's rebase made of a landing and that changes nothing. `git rebase HEAD~2` finds
/// what `HEAD~2` is twice: for the commits to copy, and for the commit to put them on. Where a task lands in between, the
/// second is one commit further on, and the first to be copied as well: what was on the branch already is copied onto
/// itself. Git drops such a copy, but keeps it with `--exec`. No landing can prevent that: git has written nothing yet.
fn landed(queue: &Queue) -> BTreeMap<String, usize> {
    let git = |arguments: &[&str]| queue.ground.git(arguments);
    let copies =
        git(&["log", "--walk-reflogs", "--grep-reflog=^rebase (pick): ", "--format=%H", "HEAD", "--"]);
    let copies: BTreeSet<&str> = copies.lines().collect();
    let changes_nothing = |commit: &str| {
        let trees = git(&["rev-parse", &format!("{commit}^{{tree}}"), &format!("{commit}~^{{tree}}")]);
        trees.lines().collect::<BTreeSet<_>>().len() == 1
    };
    let mut landed = BTreeMap::new();
    for line in git(&["log", "--format=%H %(trailers:key=Agency-Task,valueonly,separator= )", "main"]).lines()
    {
        let mut words = line.split_whitespace();
        let commit = words.next().unwrap_or_default();
        for task in words {
            let is_counted = !copies.contains(commit) || !changes_nothing(commit);
            *landed.entry(task.to_owned()).or_default() += usize::from(is_counted);
        }
    }
    landed.retain(|_, times| *times > 0);
    landed
}

/// Every word that the person wrote is where they can find it, except in tasks that they deleted.
fn assert_every_word_found(queue: &Queue, person: &Person<'_>, said: &str) {
    let corpus = Corpus::of(queue);
    let is_deleted = |file: &str| {
        let mut deleted = person.taken.iter().filter(|(_, taken)| taken.deleted);
        deleted.any(|(id, _)| file.contains(&format!("/{id}-")))
    };
    // Nobody looks for a line of theirs in a file that a change of ours left beside the real one.
    let is_named =
        |name: &str| !name.ends_with(".agency-swap") && (!name.contains(".saved-") || said.contains(name));
    let is_found = |word: &str| {
        corpus.history.contains(word)
            || corpus.files.iter().any(|(name, text)| is_named(name) && text.contains(word))
    };
    let lost: Vec<_> = person
        .written
        .iter()
        .filter(|(word, file)| !is_deleted(file) && !is_found(&format!("{word}\n")))
        .collect();
    assert!(lost.is_empty(), "{} of {} words are lost: {lost:?}", lost.len(), person.written.len());
}

/// What has left the branch is reported with a command; it is run, and helps.
fn bring_back(queue: &Queue) {
    for finding in queue.ground.lint() {
        let message = finding["message"].as_str().unwrap_or_default().to_owned();
        if message.contains("not there any more") {
            let command = message.split('`').nth(1).unwrap_or_else(|| panic!("no command: {message}"));
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(words[0], "git", "{message}");
            let mut git = queue.ground.program(Path::new("git"));
            let output = git.args(&words[1..]).output().expect("git starts");
            assert!(
                output.status.success(),
                "{message}: {output:?}\n{}",
                queue.ground.git(&[
                    "log",
                    "--stat",
                    "--format=%h %an %s %(trailers:key=Agency-Task)",
                    "main"
                ])
            );
        }
    }
}

/// The board is as it should be, except for what belonged to tasks whose files the person deleted.
fn assert_compliant(queue: &Queue, person: &Person<'_>) {
    let deleted: Vec<&String> =
        person.taken.iter().filter(|(_, taken)| taken.deleted).map(|(id, _)| id).collect();
    let mut findings = queue.ground.lint();
    findings.retain(|finding| {
        let message = finding["message"].as_str().unwrap_or_default();
        !deleted.iter().any(|id| message.ends_with(&format!("there is no task {id}")))
    });
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Whether the person committed a task's work with their own: a landing that is killed before it moves the branch leaves
/// its files staged until the next run.
fn is_in_a_commit_of_theirs(queue: &Queue, id: &str) -> bool {
    let name = format!("src/{id}");
    let of_file = |format: &str| queue.ground.git(&["log", "-1", format, "main", "--", &name]);
    let is_theirs =
        of_file("--format=%an").trim() == "Ada" && of_file("--format=%s").starts_with("Add person/");
    is_theirs && queue.ground.git(&["show", &format!("main:{name}")]) == format!("by {id}\n")
}

/// Everything that has to hold when the person and the runs have ended.
fn assert_holds(queue: &Queue, tasks: &[String], person: &Person<'_>, said: &str) {
    assert_every_word_found(queue, person, said);
    queue.ground.agency(&["lint", "--fix"]);
    bring_back(queue);
    let (landed, moments) = (landed(queue), landings(queue));
    let twice: Vec<_> = landed.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "landed more than once: {twice:?}");
    for id in tasks {
        match (person.taken.get(id), landed.contains_key(id)) {
            (None, true) => assert_eq!(status(queue, id).as_deref(), Some("DONE"), "{id} landed"),
            (None, false) => {
                let status = status(queue, id);
                let is_there = status.as_deref() == Some("DONE") && is_in_a_commit_of_theirs(queue, id);
                assert!(is_there, "{id} is {status:?} and has not landed");
            }
            (Some(taken), true) => {
                let moment = moments.get(id).copied().unwrap_or(u64::MAX);
                assert!(moment <= taken.at + UNDER_WAY, "{id} landed at {moment}: {taken:?}");
            }
            (Some(_), false) => {
                let status = status(queue, id);
                assert!(status.as_deref().is_none_or(|status| status == "CANCELED"), "{id}: {status:?}");
            }
        }
    }
    let unknown: BTreeSet<_> = landed.keys().filter(|id| !tasks.contains(id)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    queue.ground.git(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
    assert_compliant(queue, person);
    queue.assert_nothing_left();
}

/// A test that fails shows what the runs said, and how the branch came to be what it is.
struct Shown<'s> {
    said: &'s str,
    queue: &'s Queue,
}

impl Drop for Shown<'_> {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        eprintln!("what the runs said:\n{}", self.said);
        let format = "--format=%h %p %an: %s %(trailers:key=Agency-Task,key=Agency-Attempt,separator=%x20)";
        let of_reflog = "--format=%h %gd: %gs";
        for arguments in [
            &["log", "--graph", format, "main", "--glob=refs/agency/pin"][..],
            &["reflog", "show", "--date=iso-strict", of_reflog, "main"][..],
            &["reflog", "show", "--date=iso-strict", of_reflog, "HEAD"][..],
            &["for-each-ref", "refs/agency"][..],
        ] {
            eprintln!("git {}:\n{}", arguments.join(" "), self.queue.ground.git(arguments));
        }
    }
}

fn person_at_work(count: usize, kills: usize, seed: u64) {
    let _told = SeedOnFailure { suite: "person", seed };
    let queue = Queue::with_agent(AGENT);
    let tasks = queue.tasks(count);
    let (stop, on_main) = (AtomicBool::new(false), Mutex::new(()));
    let mut dice = Dice::new(seed);
    let person = Person::new(&queue, &tasks, &on_main, dice.below(u64::MAX));
    let (mut said, person) = thread::scope(|scope| {
        let person = scope.spawn(|| person.work(&stop));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run_and_kill(&queue, &tasks, &on_main, kills, &mut dice)
        }));
        stop.store(true, Ordering::Relaxed);
        let person = person.join().expect("the person ends");
        (ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), person)
    });
    let last = queue.run(&["--parallel", "4"]);
    said.push_str(&last.err);
    let _shown = Shown { said: &said, queue: &queue };
    assert_holds(&queue, &tasks, &person, &said);
}

#[test]
fn nothing_that_a_person_writes_while_runs_are_killed_is_lost() {
    person_at_work(16, 3, 1);
}

#[test]
fn only_a_copy_of_a_rebase_that_changes_nothing_is_no_second_landing() {
    let queue = Queue::new();
    let git = |arguments: &[&str]| queue.ground.git(arguments);
    git(&["config", "user.name", "Ada"]);
    let commit = |id: &str, arguments: &[&str]| {
        let message = format!("--message=A task\n\nAgency-Task: {id}");
        git(&[&["commit", "--quiet", &message], arguments].concat());
    };
    for id in ["T0001", "T0002"] {
        queue.ground.write(&format!("src/{id}"), format!("by {id}\n"));
        git(&["add", "src"]);
        commit(id, &[]);
    }
    let times = |one, two| BTreeMap::from([("T0001".to_owned(), one), ("T0002".to_owned(), two)]);
    // What `git rebase HEAD~2` does when it finds the commit to copy onto after a landing.
    git(&["rebase", "--quiet", "--force-rebase", "--exec", "true", "--onto", "HEAD~1", "HEAD~2"]);
    assert_eq!((queue.landed(), landed(&queue)), (times(2, 1), times(1, 1)));
    commit("T0002", &["--allow-empty"]);
    assert_eq!(landed(&queue), times(1, 2), "no rebase made it");
    git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    git(&["rm", "--quiet", "src/T0001"]);
    git(&["commit", "--quiet", "--message=Take it back"]);
    git(&["cherry-pick", "HEAD~3"]);
    git(&["rebase", "--quiet", "--force-rebase", "HEAD~2"]);
    assert_eq!(landed(&queue), times(2, 1), "it changes something");
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_tasks_beside_a_person() {
    let number = |name: &str, usual: u64| {
        std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
    };
    let count = usize::try_from(number(TASKS, 100)).expect("a number");
    for round in 0..number(ROUNDS, 1) {
        person_at_work(count, 3.max(count / 5), number(SEED, 1) + round);
    }
}
