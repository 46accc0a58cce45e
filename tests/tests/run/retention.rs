//! What a repository still has of tasks that were settled long ago.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use agency_tests::queue::Queue;

/// Long ago.
const THEN: &str = "1600000000 +0000";

fn put(queue: &Queue, arguments: &[&str], input: &str) -> String {
    let mut command = queue.ground.program(Path::new("git"));
    command.args(arguments);
    command.envs([("GIT_AUTHOR_DATE", THEN), ("GIT_COMMITTER_DATE", THEN)]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git runs");
    child.stdin.take().expect("input").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("git ends");
    assert!(output.status.success(), "git {arguments:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A task that nobody has touched for years: so many attempts, of which the last one may have landed.
fn settled(queue: &Queue, id: &str, attempts: u64, landed: bool) {
    let mut last = String::new();
    for epoch in 1..=attempts {
        last = put(queue, &["commit-tree", "HEAD^{tree}", "-p", "HEAD"], &format!("{id}, attempt {epoch}"));
        queue.ground.git(&["update-ref", &format!("refs/agency/kodingx/{id}/{epoch}"), &last]);
    }
    let named = |kind: &str, text: &str| {
        let text = format!("agency {kind} 1\ntask kodingx:{id}\nepoch {attempts}\nterm 1\n{text}");
        put(queue, &["hash-object", "-w", "--stdin"], &text)
    };
    queue.ground.git(&["update-ref", &format!("refs/agency/pin/kodingx/{id}"), &last]);
    let lease = named("released", "");
    queue.ground.git(&["update-ref", &format!("refs/agency/lease/kodingx/{id}"), &lease]);
    if landed {
        let record = named("landed", &format!("branch refs/heads/main\ncommit {last}\n"));
        queue.ground.git(&["update-ref", &format!("refs/agency/landed/kodingx/{id}"), &record]);
    }
}

fn references(queue: &Queue) -> Vec<String> {
    let listed = queue.ground.git(&["for-each-ref", "--format=%(refname)", "refs/agency"]);
    listed.lines().map(|name| name.trim_start_matches("refs/agency/").to_owned()).collect()
}

#[test]
fn of_tasks_that_landed_long_ago_only_that_is_left_and_of_others_everything() {
    let queue = Queue::new();
    settled(&queue, "OLD1", 3, true);
    settled(&queue, "OLD2", 1, true);
    settled(&queue, "NEVER", 2, false);
    queue.ground.git(&["pack-refs", "--all"]);
    settled(&queue, "OLD3", 2, true);
    queue.ground.ok(&["adopt", "--yes"]);
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    let expected = |id: &str| {
        let mut names = vec![
            "kodingx/NEVER/1".to_owned(),
            "kodingx/NEVER/2".to_owned(),
            format!("kodingx/{id}/1"),
            "landed/kodingx/OLD1".to_owned(),
            "landed/kodingx/OLD2".to_owned(),
            "landed/kodingx/OLD3".to_owned(),
            format!("landed/kodingx/{id}"),
            "lease/kodingx/NEVER".to_owned(),
            format!("lease/kodingx/{id}"),
            "pin/kodingx/NEVER".to_owned(),
            format!("pin/kodingx/{id}"),
            "store".to_owned(),
        ];
        names.sort();
        names
    };
    assert_eq!(references(&queue), expected(&id));
    // Once more, and without the store: what is young stays, as git alone knows it.
    fs::remove_dir_all(queue.state()).expect("thrown away");
    queue.ground.ok(&["adopt", "--yes"]);
    assert_eq!(queue.run(&[]).code, 0);
    assert_eq!(references(&queue), expected(&id));
    queue.assert_landed(&[id]);
}

/// What could not be removed is no reason not to work.
#[test]
fn a_run_goes_on_where_old_references_are_locked() {
    let queue = Queue::new();
    settled(&queue, "OLD1", 1, true);
    queue.ground.ok(&["adopt", "--yes"]);
    let lock = queue.path().join(".git/packed-refs.lock");
    fs::write(&lock, "").expect("locked");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&[id]);
    assert!(lock.exists() && references(&queue).contains(&"lease/kodingx/OLD1".to_owned()));
    fs::remove_file(&lock).expect("unlocked");
    assert_eq!(queue.run(&[]).code, 0);
    assert!(!references(&queue).contains(&"lease/kodingx/OLD1".to_owned()));
}
