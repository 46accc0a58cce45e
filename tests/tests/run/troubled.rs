//! An attempt in trouble ends alone: the queue goes on, nothing of it lands later, and a person can try it again.

use std::fs;
use std::path::Path;

use agency_tests::processes::{emulated, wait_until};
use agency_tests::queue::{HONEST, LONG, Queue};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Waits until the agent of the first attempt needs nobody any more.
fn until_begun(queue: &Queue, id: &str) {
    let begun = queue.records(id, 1).join("agent/started");
    assert!(wait_until(LONG, || begun.exists()), "{id} is not begun: {:?}", queue.open_attempts());
}

/// A run that is stopped while the agent of its first task comes to its end; what was done meanwhile; and how the run
/// went on.
fn while_it_is_stopped(queue: &Queue, id: &str, meanwhile: impl FnOnce()) -> agency_tests::ground::Said {
    let mut run = queue.start(&["--parallel", "1"]);
    until_begun(queue, id);
    run.signal(Signal::SIGSTOP);
    run.stopped();
    let outcome = queue.records(id, 1).join("agent/outcome.json");
    assert!(wait_until(LONG, || outcome.exists()), "its agent does not end");
    meanwhile();
    run.signal(Signal::SIGCONT);
    run.end()
}

/// One that takes long enough to be stopped beside.
const SLOW: &str = "sleep 1; mkdir -p src; echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID";

/// Tasks go on beside one that a person took away at the last moment, and no later run lands it.
fn taken_away(away: impl Fn(&Queue, &str), back: impl Fn(&Queue, &str)) {
    let mut queue = Queue::with_agent(HONEST);
    queue.agent("early", SLOW, "");
    queue.ground.commit_all();
    let id = queue.task("early", &[]);
    let others = queue.tasks(2);
    let said = while_it_is_stopped(&queue, &id, || away(&queue, &id));
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&format!("{id}: canceled")]);
    // What a person changed by hand, the lists of tasks do not know.
    queue.ground.ok(&["lint", "--fix"]);
    queue.assert_landed(&others);
    assert!(queue.open_attempts().is_empty(), "{:?}", queue.open_attempts());
    // Putting it back by hand begins anew: what was canceled does not land.
    back(&queue, &id);
    queue.ground.ok(&["lint", "--fix"]);
    let again = queue.run(&[]);
    assert_eq!(again.code, 0, "{again:?}");
    let all: Vec<String> = others.into_iter().chain([id.clone()]).collect();
    queue.assert_landed(&all);
    assert!(queue.records(&id, 2).exists(), "the work of the first attempt landed");
}

#[test]
fn a_task_that_is_canceled_when_its_agent_ends_stops_nothing_else() {
    let set = |queue: &Queue, id: &str, from: &str, to: &str| {
        let file = queue.ground.file(id);
        let text = queue.ground.read(&file);
        assert!(text.contains(from), "{text}");
        queue.ground.write(&file, text.replace(from, to));
    };
    taken_away(
        |queue, id| set(queue, id, "status: IN_PROGRESS", "status: CANCELED"),
        |queue, id| set(queue, id, "status: CANCELED", "status: ASSIGNED"),
    );
}

#[test]
fn a_task_that_is_deleted_when_its_agent_ends_stops_nothing_else() {
    let taken = std::cell::RefCell::new((String::new(), String::new()));
    taken_away(
        |queue, id| {
            let file = queue.ground.file(id);
            *taken.borrow_mut() = (file.clone(), queue.ground.read(&file));
            queue.ground.remove(&file);
        },
        |queue, _| {
            let (file, text) = &*taken.borrow();
            queue.ground.write(file, text.replace("status: IN_PROGRESS", "status: ASSIGNED"));
        },
    );
}

/// A merge that waits for a person lands after `git gc --prune=now`, which takes everything that has no name.
fn outlives_a_garbage_collection(before: impl FnOnce(&Queue, &str)) {
    let queue = Queue::with_agent("echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    queue.ground.write("src/a.txt", "mine\n");
    assert_eq!(queue.run(&[]).code, 10);
    before(&queue, &id);
    queue.ground.git(&["gc", "--quiet", "--prune=now"]);
    queue.ground.git(&["checkout", "--quiet", "src/a.txt"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert!(!queue.records(&id, 2).exists(), "it was begun again");
}

#[test]
fn a_merge_that_waits_for_a_person_outlives_a_garbage_collection() {
    outlives_a_garbage_collection(|queue, _| {
        queue.ground.git(&["reflog", "expire", "--expire=now", "--all"]);
    });
}

/// The same when a person has removed the name, too: the merge is made again.
#[test]
fn a_merge_that_is_gone_is_made_again() {
    outlives_a_garbage_collection(|queue, id| {
        queue.ground.git(&["update-ref", "-d", &format!("refs/agency/pin/kodingx/{id}")]);
    });
}

/// What an agent works on has a name, whatever the person does to the branch meanwhile.
#[test]
fn a_base_that_a_person_amends_away_outlives_a_garbage_collection() {
    let queue = Queue::with_agent("sleep 1; echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    queue.until_phase(&id, "started");
    queue.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--amend", "--message=Amended"]);
    queue.ground.git(&["reflog", "expire", "--expire=now", "--all"]);
    queue.ground.git(&["gc", "--quiet", "--prune=now"]);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
}

/// Records that can't be read are set aside with a reason, and `agency retry` tries again.
fn unreadable(file: &str, spoil: fn(&Path)) {
    let mut queue = Queue::with_agent(HONEST);
    queue.agent("early", SLOW, "");
    queue.ground.commit_all();
    let id = queue.task("early", &[]);
    let mut others = queue.tasks(2);
    let run = queue.start(&["--parallel", "1"]);
    until_begun(&queue, &id);
    run.kill();
    let records = queue.records(&id, 1).join("agent");
    assert!(wait_until(LONG, || records.join("outcome.json").exists()), "its agent does not end");
    spoil(&records.join(file));
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&format!("{id}: blocked: "), file]);
    queue.assert_landed(&others);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    assert!(queue.open_attempts().is_empty(), "{:?}", queue.open_attempts());
    assert!(queue.ground.agency(&["ps", "--all"]).out.contains(&id));
    queue.ground.ok(&["retry", &id]);
    assert_eq!(queue.run(&[]).code, 0);
    others.push(id);
    queue.assert_landed(&others);
}

#[test]
fn an_outcome_that_cannot_be_read_is_set_aside() {
    unreadable("outcome.json", |path| fs::write(path, "{\"version\": 1,").expect("spoilt"));
}

#[test]
fn an_order_that_cannot_be_read_is_set_aside() {
    unreadable("order.json", |path| fs::write(path, "").expect("spoilt"));
}

/// A garbage collection that listed the references before a lease was taken removes the lease's record afterwards.
#[test]
fn a_record_that_a_garbage_collection_took_away_is_written_again() {
    let queue = Queue::with_agent("sleep 1; echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    queue.until_phase(&id, "started");
    let record = queue.ground.git(&["rev-parse", &format!("refs/agency/lease/kodingx/{id}")]);
    let (folder, name) = record.trim().split_at(2);
    queue.ground.remove(&format!(".git/objects/{folder}/{name}"));
    run.kill();
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert!(!queue.records(&id, 2).exists(), "it was begun again");
    queue.ground.git(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
}

/// An agent that ends while no supervisor is there leaves work that nothing names yet, and a garbage collection takes it.
fn takes_work_without_a_name(before: impl FnOnce(&Queue)) -> (Queue, String) {
    let queue = Queue::with_agent("sleep 1; echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    queue.until_phase(&id, "started");
    run.kill();
    let outcome = queue.records(&id, 1).join("agent/outcome.json");
    assert!(wait_until(LONG, || outcome.exists()), "the agent ends");
    before(&queue);
    queue.ground.git(&["gc", "--quiet", "--prune=now"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    queue.ground.git(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
    (queue, id)
}

#[test]
fn work_that_has_no_name_yet_outlives_a_garbage_collection() {
    let (queue, id) = takes_work_without_a_name(|_| {});
    assert!(!queue.records(&id, 2).exists(), "it was begun again");
}

/// Large work has no copies, and those of small work go after ten minutes.
#[test]
fn work_that_is_gone_for_good_is_lost_and_tried_again() {
    let (queue, id) = takes_work_without_a_name(|queue| {
        fs::remove_dir_all(queue.state().join("landing/spares")).expect("removed");
    });
    assert!(queue.records(&id, 2).exists(), "it was not begun again");
}

/// Copies are not synced. One that is cut off is none, and stops nobody.
#[test]
fn work_whose_copies_are_cut_off_is_lost_and_tried_again() {
    let (queue, id) = takes_work_without_a_name(|queue| {
        for copy in fs::read_dir(queue.state().join("landing/spares")).expect("listed").flatten() {
            let file = fs::File::options().write(true).open(copy.path()).expect("opens");
            file.set_len(copy.metadata().expect("looked at").len() - 3).expect("cut off");
        }
    });
    assert!(queue.records(&id, 2).exists(), "it was not begun again");
}

/// The shim of a task's first attempt.
fn shim_of(queue: &Queue, id: &str) -> Pid {
    let folder = queue.records(id, 1).join("agent").display().to_string();
    let is_shim = |pid: u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(" shim ") && command.contains(&folder)
    };
    // The first process of its sandbox was forked from it, and looks the same.
    let found = queue.marker().alive().into_iter().map(|alive| alive.pid).filter(|pid| is_shim(*pid)).min();
    Pid::from_raw(i32::try_from(found.expect("a shim")).expect("a process"))
}

/// More than a shim collects in a moment.
const MANY: &str =
    "mkdir -p src/many; i=0; while [ $i -lt 1500 ]; do echo $i > src/many/$i; i=$((i+1)); done";

/// What an agent did is in its layer, whoever looks at it.
#[test]
fn a_shim_that_is_killed_while_it_collects_loses_nothing() {
    for level in ["process", "landlock"] {
        let mut queue = Queue::with_agent(MANY);
        queue.settings(&format!("isolation = \"{level}\""));
        queue.ground.commit_all();
        let id = queue.tasks(1).remove(0);
        let run = queue.start(&[]);
        let ended = queue.records(&id, 1).join("agent/ended.json");
        assert!(wait_until(LONG, || ended.exists()), "its agent does not end");
        kill(shim_of(&queue, &id), Signal::SIGKILL).expect("killed");
        assert!(!queue.records(&id, 1).join("agent/outcome.json").exists(), "it was too fast for this test");
        let said = run.end();
        assert_eq!(said.code, 0, "{level}: {said:?}");
        queue.assert_landed(std::slice::from_ref(&id));
        assert!(!queue.records(&id, 2).exists(), "{level}: it was begun again: {said:?}");
        assert_eq!(queue.ground.git(&["ls-files", "src/many"]).lines().count(), 1500);
        queue.assert_nothing_at_work();
        let (own, copies) = (queue.state().join("sandboxes"), queue.ground.state_home().join("sandboxes"));
        for layers in [own, copies].into_iter().filter(|folder| folder.is_dir()) {
            assert_eq!(fs::read_dir(&layers).expect("listed").count(), 0, "{level}: {}", layers.display());
        }
    }
}

/// What a shim has to be sure of before it collects another's agent, and what was done to it.
type Spoiling = fn(run: &Path, ended: &mut serde_json::Value);
const SPOILED: [(&str, Spoiling); 4] = [
    ("somebody began to remove it", |run, _| {
        fs::remove_file(run.join("kept")).expect("removed");
        fs::remove_dir_all(run.join("upper")).expect("removed");
        fs::create_dir_all(run.join("upper/src")).expect("made");
    }),
    ("its secrets have changed", |_, ended| ended["secrets"]["digest"] = "another".into()),
    ("it was stopped", |_, ended| ended["stopped"] = "signal".into()),
    ("the machine was started again", |run, ended| {
        ended["boot"] = "another".into();
        let kept = fs::read_to_string(run.join("kept")).expect("read");
        let (_, needed) = kept.split_once('\n').expect("a boot and a path");
        fs::write(run.join("kept"), format!("another\n{needed}")).expect("written");
    }),
];

/// Half of an agent's work is none, and so is work that nobody can judge as its own shim would have.
#[test]
fn what_a_killed_shim_left_is_collected_as_it_would_have_been_or_not_at_all() {
    for (what, spoil) in SPOILED {
        let queue = Queue::with_agent(MANY);
        let id = queue.tasks(1).remove(0);
        let run = queue.start(&[]);
        let records = queue.records(&id, 1).join("agent");
        assert!(wait_until(LONG, || records.join("ended.json").exists()), "its agent does not end");
        let shim = shim_of(&queue, &id);
        run.kill();
        kill(shim, Signal::SIGKILL).expect("killed");
        assert!(!records.join("outcome.json").exists(), "it was too fast for this test");
        let text = fs::read(records.join("ended.json")).expect("read");
        let mut ended: serde_json::Value = serde_json::from_slice(&text).expect("a record");
        let layers = ended["run"].as_str().expect("a path").to_owned();
        spoil(Path::new(&layers), &mut ended);
        fs::write(records.join("ended.json"), ended.to_string()).expect("written");
        let said = queue.run(&[]);
        assert_eq!(said.code, 0, "{what}: {said:?}");
        queue.assert_landed(std::slice::from_ref(&id));
        assert!(queue.records(&id, 2).exists(), "{what}: it was believed: {said:?}");
        assert_eq!(queue.ground.git(&["ls-files", "src/many"]).lines().count(), 1500, "{what}");
        assert!(!Path::new(&layers).exists(), "{what}: its layer is left");
    }
}

/// A mark that is lost together with everybody who knew better.
#[test]
fn an_agent_whose_mark_is_lost_is_not_begun_twice_in_one_attempt() {
    let queue = Queue::with_agent("sleep 1; echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    until_begun(&queue, &id);
    let shim = shim_of(&queue, &id);
    run.kill();
    kill(shim, Signal::SIGKILL).expect("killed");
    fs::remove_file(queue.records(&id, 1).join("agent/started")).expect("removed");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert!(queue.records(&id, 2).exists(), "it was begun again in its first attempt: {said:?}");
}

/// `gc.pid` may have come with the repository. It is waited for once, whatever it says.
#[test]
fn a_garbage_collection_that_never_ends_is_waited_for_once() {
    let queue = Queue::new();
    let tasks = queue.tasks(6);
    queue.ground.git(&["config", "gc.pruneExpire", "now"]);
    queue.ground.write(".git/gc.pid", format!("{} elsewhere", std::process::id()));
    let began = std::time::Instant::now();
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    // Each task moves references half a dozen times, and the wait is three seconds.
    assert!(began.elapsed() < emulated(std::time::Duration::from_secs(20)), "{:?}", began.elapsed());
}
