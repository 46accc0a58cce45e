//! What people have not committed is theirs: it is not overwritten, and agents don't see it.

use agency_tests::queue::Queue;

use crate::gate;

/// What an agent does to a file that people edit, too.
const FOURTH: &str = "echo begun; echo four >> src/a.txt";

/// Nothing has landed, and the task says for which file it waits.
#[track_caller]
fn assert_waits(queue: &Queue, id: &str, file: &str) {
    let before = queue.ground.git(&["rev-parse", "main"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&format!("{id} waits: {file}")]);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    assert!(queue.landed().is_empty());
    assert_eq!(queue.ground.status(id), "READY_FOR_REVIEW");
}

/// What is out of the way lands with the next run, without another start of its agent.
#[track_caller]
fn assert_lands(queue: &Queue, id: &str) {
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id.to_owned()]);
    assert_eq!(gate::starts(queue, id, 1), 1);
    assert!(!queue.records(id, 2).exists(), "it was begun again");
    queue.assert_nothing_left();
}

#[test]
fn an_edit_in_the_way_is_waited_for_and_stays() {
    let queue = Queue::with_agent(FOURTH);
    let id = queue.tasks(1).remove(0);
    queue.ground.write("src/a.txt", "mine\n");
    assert_waits(&queue, &id, "src/a.txt has been edited");
    assert_eq!(queue.ground.read("src/a.txt"), "mine\n");
    // Asked again, it says so again.
    assert_waits(&queue, &id, "src/a.txt has been edited");
    assert_eq!(queue.ground.read("src/a.txt"), "mine\n");
    queue.ground.git(&["checkout", "--quiet", "src/a.txt"]);
    assert_lands(&queue, &id);
    assert_eq!(queue.ground.read("src/a.txt"), "one\ntwo\nthree\nfour\n");
}

#[test]
fn an_edit_that_is_staged_is_waited_for_and_stays() {
    let queue = Queue::with_agent(FOURTH);
    let id = queue.tasks(1).remove(0);
    queue.ground.write("src/a.txt", "mine\n");
    queue.ground.git(&["add", "src/a.txt"]);
    queue.ground.write("src/a.txt", "one\ntwo\nthree\n");
    assert_waits(&queue, &id, "src/a.txt has staged changes");
    assert_eq!(queue.ground.git(&["show", ":src/a.txt"]), "mine\n");
    queue.ground.git(&["reset", "--quiet", "src/a.txt"]);
    assert_lands(&queue, &id);
}

/// A file that git does not know has no other copy anywhere.
#[test]
fn an_untracked_file_in_the_way_is_waited_for_and_stays() {
    let queue = Queue::with_agent("echo begun; echo by > src/new.txt");
    let id = queue.tasks(1).remove(0);
    queue.ground.write("src/new.txt", "mine\n");
    assert_waits(&queue, &id, "src/new.txt is in");
    assert_eq!(queue.ground.read("src/new.txt"), "mine\n");
    queue.ground.remove("src/new.txt");
    assert_lands(&queue, &id);
    assert_eq!(queue.ground.read("src/new.txt"), "by\n");
}

/// A person who commits the edit instead has it merged with.
#[test]
fn an_edit_in_the_way_may_also_be_committed() {
    let queue = Queue::with_agent(FOURTH);
    let id = queue.tasks(1).remove(0);
    queue.ground.write("src/a.txt", "zero\none\ntwo\nthree\n");
    assert_waits(&queue, &id, "src/a.txt has been edited");
    queue.ground.commit_all();
    assert_lands(&queue, &id);
    assert_eq!(queue.ground.read("src/a.txt"), "zero\none\ntwo\nthree\nfour\n");
}

#[test]
fn uncommitted_changes_elsewhere_stop_nothing_and_agents_do_not_see_them() {
    let queue = Queue::with_agent("cat README.md > src/seen; ls > src/listed");
    let tasks = queue.tasks(1);
    queue.ground.write("README.md", "Not yet\n");
    queue.ground.write("notes.txt", "Mine\n");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["agents start from the last commit, and don't see your changes to README.md"]);
    queue.assert_landed(&tasks);
    assert_eq!(queue.ground.read("src/seen"), "Hello\n");
    assert!(!queue.ground.read("src/listed").contains("notes.txt"));
    assert_eq!(queue.ground.read("README.md"), "Not yet\n");
    assert_eq!(queue.ground.read("notes.txt"), "Mine\n");
    let changed = queue.ground.git(&["diff", "--name-only", "HEAD", "--", "src", "README.md"]);
    assert_eq!(changed.trim(), "README.md", "nothing of it was committed");
}

/// Only what waits is held up.
#[test]
fn others_land_beside_a_task_that_waits_for_a_person() {
    let script =
        "if [ $AGENCY_TASK_ID = T0001 ]; then echo four >> src/a.txt; else echo by > src/$AGENCY_TASK_ID; fi";
    let queue = Queue::with_agent(script);
    let tasks = queue.tasks(3);
    queue.ground.write("src/a.txt", "mine\n");
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["T0001 waits: src/a.txt", "2 of 3 tasks done"]);
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks[1..]);
    assert_eq!(queue.ground.read("src/a.txt"), "mine\n");
    queue.ground.git(&["checkout", "--quiet", "src/a.txt"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
}
