//! The board is people's: agents see it and can't write it, and what people write there counts.

use agency_tests::queue::{HONEST, Queue};

use crate::gate;

#[test]
fn a_task_that_a_person_cancels_in_its_file_is_stopped_and_stays_canceled() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let before = queue.ground.git(&["rev-parse", "main"]);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    queue.ground.set_status(&id, "CANCELED");
    // The gate stays shut: only somebody who stops the agent ends this.
    let said = supervisor.end();
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "canceled"]);
    assert_eq!(queue.ground.status(&id), "CANCELED");
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    queue.assert_nothing_left();
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!queue.records(&id, 2).exists(), "it was begun again");
}

/// Beside others that go on.
#[test]
fn canceling_a_task_in_its_file_stops_no_other() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    let supervisor = queue.start(&["--parallel", "2"]);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    queue.ground.set_status(&tasks[0], "CANCELED");
    supervisor.says(&format!("{} canceled", tasks[0]));
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks[1..]);
    assert_eq!(queue.ground.status(&tasks[0]), "CANCELED");
}

/// What an agent may do is what its order says. The folder is writable, so only the judgement holds it.
#[test]
fn a_scope_that_is_widened_while_an_agent_runs_does_not_widen_its_attempt() {
    let queue = gate::queue("echo by > src/other.txt; echo four >> src/a.txt");
    let arguments =
        ["task", "new", "--title", "A task", "--assignee", "shell", "--dod-profile", "quick", "--must-touch"];
    let id = queue.ground.ok(&[&arguments[..], &["src/a.txt"]].concat()).out.trim().to_owned();
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    let file = queue.ground.file(&id);
    queue.ground.edit(&file, "src/a.txt", "src/**");
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 20, "{said:?}");
    said.assert_names(&["src/other.txt"]);
    assert!(queue.landed().is_empty());
    assert!(!queue.ground.exists("src/other.txt"));
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    // A new attempt has the new scope.
    queue.ground.ok(&["retry", &id]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
    assert!(queue.ground.exists("src/other.txt"));
}

/// Nobody has committed the task, and its agent sees it.
#[test]
fn a_task_file_that_is_not_committed_is_seen_by_its_agent() {
    let queue =
        Queue::with_agent("cp \"$AGENCY_TASK_FILE\" src/task; ls .kodingx/inbox/shell/* > src/listed");
    queue.ground.write("body.md", "Count the zebras.\n");
    let id = queue.task("shell", &["--body", "body.md"]);
    let other = queue.task("shell", &["--depends-on", &id]);
    let untracked = queue.ground.git(&["ls-files", "--others", ".kodingx/inbox"]);
    assert!(untracked.contains(&id), "{untracked}");
    let said = queue.run(&["--task", &id]);
    assert_eq!(said.code, 0, "{said:?}");
    let seen = queue.ground.read("src/task");
    assert!(seen.contains("Count the zebras.") && seen.contains(&id), "{seen}");
    assert!(queue.ground.read("src/listed").contains(&other));
}

#[test]
fn an_agent_can_not_write_to_the_board() {
    let script = "\
        (echo 'status: DONE' >> \"$AGENCY_TASK_FILE\") 2>/dev/null && echo wrote\n\
        rm -f \"$AGENCY_TASK_FILE\" 2>/dev/null && echo removed\n\
        touch .kodingx/mine 2>/dev/null && echo touched\n\
        mkdir .kodingx/folder 2>/dev/null && echo made\n\
        mv .kodingx src/board 2>/dev/null && echo moved\n\
        chmod 777 \"$AGENCY_TASK_FILE\" 2>/dev/null && echo changed\n\
        ln \"$AGENCY_TASK_FILE\" src/link 2>/dev/null && echo linked\n\
        echo tried; echo by > src/$AGENCY_TASK_ID";
    let queue = Queue::with_agent(script);
    // Even where its scope would let it.
    let id = queue.task("shell", &["--may-touch", "**"]);
    let permissions = |file: &str| {
        std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(queue.path().join(file)).expect("there").permissions(),
        )
    };
    let mode = permissions(&queue.ground.file(&id));
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(gate::output(&queue, &id, 1), "tried\n");
    queue.assert_landed(std::slice::from_ref(&id));
    assert!(!queue.ground.exists(".kodingx/mine") && !queue.ground.exists(".kodingx/folder"));
    assert_eq!(permissions(&queue.ground.file(&id)), mode);
    let changed = queue.ground.git(&["show", "--name-only", "--format=", "main"]);
    assert_eq!(changed.trim(), format!("src/{id}"));
}
