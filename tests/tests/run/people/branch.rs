//! People commit to the branch while agents work on what it was.

use agency_tests::queue::Queue;

use crate::gate;

fn parents(queue: &Queue) -> Vec<String> {
    queue.ground.git(&["log", "-1", "--format=%P", "main"]).split_whitespace().map(str::to_owned).collect()
}

/// Starts a run, lets a person do something while the agent works, and lets the agent go on.
fn meanwhile(queue: &Queue, id: &str, person: impl FnOnce()) -> agency_tests::ground::Said {
    let supervisor = queue.start(&[]);
    gate::begun(queue, id, 1);
    person();
    gate::open(queue);
    supervisor.end()
}

#[test]
fn what_people_commit_meanwhile_is_merged_with() {
    let queue = gate::queue("echo four >> src/a.txt");
    queue.ground.write("src/a.txt", "one\ntwo\nthree\n3a\n3b\n");
    queue.ground.commit_all();
    let tasks = queue.tasks(1);
    let said = meanwhile(&queue, &tasks[0], || {
        queue.ground.write("src/a.txt", "zero\none\ntwo\nthree\n3a\n3b\n");
        queue.ground.write("README.md", "By a person\n");
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    assert_eq!(queue.ground.read("src/a.txt"), "zero\none\ntwo\nthree\n3a\n3b\nfour\n");
    assert_eq!(queue.ground.read("README.md"), "By a person\n");
    let person = queue.ground.git(&["log", "--author=Ada", "-1", "--format=%H"]);
    assert_eq!(parents(&queue), [person.trim()], "it stands on what the person committed");
    assert!(!queue.records(&tasks[0], 2).exists());
    assert_eq!(queue.ground.git(&["status", "--porcelain", "src", "README.md"]), "");
}

/// The check holds for either change alone, and not for both.
#[test]
fn work_is_verified_together_with_what_people_committed_meanwhile() {
    let mut queue = gate::queue("echo by > src/mine");
    queue.settings("attempts = 1");
    queue.ground.profile("alone", &["test ! -e src/mine || test ! -e src/theirs"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "alone"]);
    let said = meanwhile(&queue, &id, || {
        queue.ground.write("src/theirs", "theirs\n");
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 10, "{said:?}");
    assert!(queue.landed().is_empty());
    assert_eq!(queue.ground.status(&id), "BLOCKED");
}

const FIRST_LINE: &str = "sed -i '1s/.*/agent/' src/a.txt";

#[test]
fn a_conflict_with_a_person_is_tried_again_from_what_they_committed() {
    let queue = gate::queue(&format!("{FIRST_LINE}; cp \"$AGENCY_PROMPT_FILE\" src/prompt"));
    let tasks = queue.tasks(1);
    let said = meanwhile(&queue, &tasks[0], || {
        queue.ground.write("src/a.txt", "person\ntwo\nthree\n");
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    said.assert_names(&["merge conflict in src/a.txt"]);
    assert_eq!(queue.ground.read("src/a.txt"), "agent\ntwo\nthree\n");
    let told = queue.ground.read("src/prompt");
    assert!(told.contains("merge conflict in src/a.txt"), "{told}");
    let log = queue.ground.git(&["log", "--format=%s", "-2", "main", "--", "src/a.txt"]);
    assert_eq!(log.lines().collect::<Vec<_>>(), ["A task", "x"], "the person's commit is still there");
}

#[test]
fn a_conflict_after_the_last_attempt_blocks_the_task_and_the_person_s_commit_stays() {
    let mut queue = gate::queue(FIRST_LINE);
    queue.settings("attempts = 1");
    let id = queue.tasks(1).remove(0);
    let said = meanwhile(&queue, &id, || {
        queue.ground.write("src/a.txt", "person\ntwo\nthree\n");
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    let task = queue.ground.read(&queue.ground.file(&id));
    assert!(task.contains("merge conflict in src/a.txt"), "{task}");
    assert_eq!(queue.ground.read("src/a.txt"), "person\ntwo\nthree\n");
    assert!(queue.landed().is_empty());
    queue.assert_nothing_left();
}

/// Git follows the rename, and would put the agent's lines where it may not write.
#[test]
fn a_rename_by_a_person_does_not_carry_an_edit_out_of_scope() {
    let queue = gate::queue("echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    let said = meanwhile(&queue, &id, || {
        queue.ground.git(&["mv", "src/a.txt", "moved.txt"]);
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 20, "{said:?}");
    said.assert_names(&["moved.txt would change on the branch, and no glob of the scope matches it"]);
    assert!(queue.landed().is_empty());
    assert_eq!(queue.ground.git(&["show", "main:moved.txt"]), "one\ntwo\nthree\n");
    assert_eq!(queue.ground.read("moved.txt"), "one\ntwo\nthree\n");
    assert_eq!(queue.ground.status(&id), "BLOCKED");
}

/// Within the scope it is followed.
#[test]
fn an_edit_follows_a_rename_within_its_scope() {
    let queue = gate::queue("echo four >> src/a.txt");
    let tasks = queue.tasks(1);
    let said = meanwhile(&queue, &tasks[0], || {
        queue.ground.git(&["mv", "src/a.txt", "src/moved.txt"]);
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    assert_eq!(queue.ground.read("src/moved.txt"), "one\ntwo\nthree\nfour\n");
    assert!(!queue.ground.exists("src/a.txt"));
}

/// The same for a folder: a new file stays where the agent was allowed to put it.
#[test]
fn a_folder_renamed_by_a_person_does_not_carry_a_new_file_out_of_scope() {
    let queue = gate::queue("echo by > src/new.txt");
    let tasks = queue.tasks(1);
    let said = meanwhile(&queue, &tasks[0], || {
        queue.ground.git(&["mv", "src", "moved"]);
        queue.ground.commit_all();
    });
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    assert_eq!(queue.ground.read("src/new.txt"), "by\n");
    assert_eq!(queue.ground.git(&["ls-tree", "-r", "--name-only", "main", "moved"]).trim(), "moved/a.txt");
}

/// Whoever changes to another branch takes the work tree along, not the work.
#[test]
fn work_lands_on_the_branch_it_started_from_whatever_is_checked_out_by_then() {
    let queue = gate::queue("echo by > src/new.txt");
    let tasks = queue.tasks(1);
    let said = meanwhile(&queue, &tasks[0], || {
        queue.ground.git(&["switch", "--quiet", "--create", "elsewhere"]);
    });
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks);
    assert_eq!(queue.ground.git(&["show", "main:src/new.txt"]), "by\n");
    assert!(!queue.ground.exists("src/new.txt"), "the work tree is on another branch");
    assert_eq!(queue.ground.git(&["branch", "--show-current"]).trim(), "elsewhere");
}
