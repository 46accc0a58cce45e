//! Two clones and one upstream, after the same tasks.

use std::collections::BTreeMap;
use std::sync::Barrier;

use crate::site::{Site, ready};

const TASKS: usize = 50;

fn ids() -> Vec<String> {
    (1..=TASKS).map(|number| format!("FEAT-{number:03}")).collect()
}

/// Both ask at the same moment, fifty times: every other time for the same task, and each time for the next commit.
#[test]
fn two_clones_race_for_fifty_tasks_and_each_is_claimed_once() {
    let tasks: String = ids().iter().map(|id| ready(id).replace("agent:shell", "unassigned")).collect();
    let first = Site::new(&tasks);
    let remote = first.share();
    let second = Site::clone_of(&remote);
    let (ids, together) = (ids(), Barrier::new(2));
    let claims = |site: &Site, actor: &str, turned: bool| -> usize {
        let claimed = (0..TASKS).filter(|round| {
            let wanted = if turned && round % 2 == 1 { TASKS - 1 - round } else { *round };
            // Nobody is left with nothing only for being slower.
            together.wait();
            site.moves(&ids[wanted], "in_progress", actor, None).code == 0
        });
        claimed.count()
    };
    let (ours, theirs) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| claims(&first, "agent:one", false));
        let theirs = scope.spawn(|| claims(&second, "agent:two", true));
        (ours.join().expect("ended"), theirs.join().expect("ended"))
    });
    assert_eq!(ours + theirs, TASKS, "{ours} and {theirs}");
    assert!(ours > 0 && theirs > 0, "{ours} and {theirs}: nobody raced");
    let last = Site::clone_of(&remote);
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for task in last.ground.ok(&["task", "list", "--json"]).json()["tasks"].as_array().expect("tasks") {
        assert_eq!(task["state"], "in_progress", "no update is lost: {task}");
        *owners.entry(task["owner"].as_str().expect("an owner").to_owned()).or_default() += 1;
    }
    assert_eq!(owners, BTreeMap::from([("agent:one".into(), ours), ("agent:two".into(), theirs)]));
    // A line of commits, one for each claim, each of one block.
    let log = last.ground.git(&["log", "--format=%H %p %s"]);
    let claims: Vec<&str> =
        log.lines().filter(|line| line.contains(" todo -> in_progress by agent:")).collect();
    assert_eq!((claims.len(), log.lines().count()), (TASKS, TASKS + 1));
    for claim in claims {
        let words: Vec<&str> = claim.split(' ').collect();
        let id = words[2].trim_end_matches(':');
        let patch = last.ground.git(&["show", "--format=", "--unified=1", words[0]]);
        let gone: Vec<&str> =
            patch.lines().filter(|line| line.starts_with('-') && !line.starts_with("---")).collect();
        assert_eq!(gone, ["-  state: todo", "-  owner: unassigned"], "{patch}");
        assert!(patch.contains("+  claimed_at: "), "{patch}");
        assert_eq!(last.task(id)["state_transitions"].as_sequence().map(Vec::len), Some(1));
    }
    for site in [&first, &second] {
        assert_eq!(site.ground.git(&["status", "--porcelain"]), "");
        site.ground.git(&["fsck", "--strict"]);
    }
    last.ground.assert_compliant();
}

/// The same with agents at work: everything is done once, by one of them, and both end well.
#[test]
fn two_runs_share_the_work_and_nothing_lands_twice() {
    let ids: Vec<String> = (1..=8).map(|number| format!("FEAT-{number}")).collect();
    let tasks: String = ids.iter().map(|id| ready(id).replace("agent:shell", "unassigned")).collect();
    let first = Site::new(&tasks);
    first.configure(
        "echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID",
        "backoff = \"100ms\"\nparallel = 2\n",
    );
    let remote = first.share();
    let second = Site::clone_of(&remote);
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| first.ground.agency(&["run"]));
        let two = scope.spawn(|| second.ground.agency(&["run"]));
        (one.join().expect("ended"), two.join().expect("ended"))
    });
    let last = Site::clone_of(&remote);
    let landed = last.ground.git(&["log", "--format=%(trailers:key=Agency-Task,valueonly)"]);
    let mut landed: Vec<&str> = landed.split_whitespace().collect();
    landed.sort_unstable();
    let mut all: Vec<&str> = ids.iter().map(String::as_str).collect();
    all.sort_unstable();
    assert_eq!(landed, all, "{one:?}\n{two:?}");
    for id in &ids {
        assert_eq!(last.state(id), "done", "{one:?}\n{two:?}");
        assert_eq!(last.ground.read(&format!("src/{id}")), format!("by {id}\n"));
        let claims =
            last.log().iter().filter(|subject| **subject == format!("{id}: claimed by agent:shell")).count();
        assert_eq!(claims, 1, "{id}");
    }
    assert_eq!((one.code, two.code), (0, 0), "{one:?}\n{two:?}");
    last.ground.assert_compliant();
}
