//! People change the branch's history after work has landed on it.

use std::fs;

use agency_tests::queue::Queue;

fn landed(queue: &Queue) -> Vec<String> {
    let tasks = queue.tasks(2);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    tasks
}

/// `reset --hard` keeps nothing of the board that is not committed, so it is.
fn commit_board(queue: &Queue) {
    queue.ground.git(&["add", ".kodingx"]);
    queue.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--message=The board"]);
}

/// A branch that was moved back is told by whoever looks, with a command that helps.
#[test]
fn work_that_has_left_its_branch_is_told_and_the_remedy_brings_it_back() {
    let queue = Queue::new();
    let before = queue.ground.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let tasks = landed(&queue);
    let gone = &tasks[1];
    queue.ground.git(&["reset", "--quiet", "--hard", &before]);
    queue.ground.git(&["cherry-pick", &format!("refs/agency/pin/kodingx/{}", tasks[0])]);
    // The first one is there again, as another commit; the second one is not.
    let remedy = format!("git cherry-pick refs/agency/pin/kodingx/{gone}");
    for verb in ["lint", "status"] {
        let said = queue.ground.agency(&[verb]);
        let text = said.out.clone() + &said.err;
        assert_eq!(said.code, 10, "{said:?}");
        assert!(text.contains(&remedy) && text.contains("which is not there any more"), "{verb}: {text}");
        assert!(!text.contains(&format!("pin/kodingx/{}", tasks[0])), "{verb}: {text}");
    }
    let said = queue.run(&[]);
    assert_eq!(said.err.matches(&remedy).count(), 2, "at the beginning and at the end: {said:?}");
    assert!(!queue.records(gone, 2).exists(), "it was begun again");
    // After a garbage collection, too.
    queue.ground.git(&["reflog", "expire", "--expire=now", "--all"]);
    queue.ground.git(&["gc", "--quiet", "--prune=now"]);
    queue.ground.git(&["cherry-pick", &format!("refs/agency/pin/kodingx/{gone}")]);
    // The lists of tasks went back with the branch.
    queue.ground.ok(&["lint", "--fix"]);
    queue.assert_landed(&tasks);
}

/// Rebased, squashed or amended, the work is still on its branch.
#[test]
fn work_that_a_person_rewrote_is_not_missed() {
    let queue = Queue::new();
    let before = queue.ground.git(&["rev-parse", "HEAD"]).trim().to_owned();
    landed(&queue);
    let assert_nothing_missed = || {
        assert_eq!(queue.ground.agency(&["lint"]).code, 0, "{:?}", queue.ground.agency(&["lint"]));
        assert!(!queue.run(&[]).err.contains("not there any more"));
    };
    let as_ada = |arguments: &[&str]| queue.ground.git(&[&["-c", "user.name=Ada"], arguments].concat());
    as_ada(&["commit", "--quiet", "--amend", "--reset-author", "--no-edit"]);
    assert_nothing_missed();
    let messages = queue.ground.git(&["log", "--format=%B", &format!("{before}..")]);
    queue.ground.git(&["reset", "--quiet", "--soft", &before]);
    as_ada(&["commit", "--quiet", &format!("--message={messages}")]);
    assert_nothing_missed();
}

/// Work that landed on rewritten work, and was rewritten itself.
#[test]
fn work_below_other_work_that_a_person_rewrote_is_not_missed() {
    let queue = Queue::new();
    let amend = ["-c", "user.name=Ada", "commit", "--quiet", "--amend", "--reset-author", "--no-edit"];
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.extend(queue.tasks(1));
        assert_eq!(queue.run(&[]).code, 0);
        queue.ground.git(&amend);
    }
    queue.assert_landed(&tasks);
    assert!(!queue.run(&[]).err.contains("not there any more"));
}

/// The message that `git merge --squash` proposes has the lines set in.
#[test]
fn work_that_a_person_squashed_is_not_missed() {
    let queue = Queue::new();
    let before = queue.ground.git(&["rev-parse", "HEAD"]).trim().to_owned();
    landed(&queue);
    queue.ground.git(&["branch", "side"]);
    queue.ground.git(&["reset", "--quiet", "--soft", &before]);
    queue.ground.git(&["reset", "--quiet", "--", "src"]);
    queue.ground.git(&["clean", "--quiet", "--force", "src"]);
    queue.ground.git(&["merge", "--squash", "--quiet", "side"]);
    queue.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--no-edit"]);
    assert_eq!(queue.ground.agency(&["lint"]).code, 0, "{:?}", queue.ground.agency(&["lint"]));
}

/// A record that can't be looked for hides no other.
#[test]
fn a_record_without_its_history_hides_nothing() {
    let queue = Queue::new();
    let before = queue.ground.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let tasks = landed(&queue);
    queue.ground.git(&["reset", "--quiet", "--soft", &before]);
    let tree = queue.ground.git(&["rev-parse", "HEAD^{tree}"]).trim().to_owned();
    let put = |kind: &str, text: String| {
        queue.ground.write("object", text);
        let object =
            queue.ground.git(&["hash-object", "-w", "-t", kind, "--literally", "object"]).trim().to_owned();
        queue.ground.remove("object");
        object
    };
    let who = "a <a@b> 1 +0000";
    let commit = put(
        "commit",
        format!("tree {tree}\nparent {}\nauthor {who}\ncommitter {who}\n\nx\n", "12".repeat(20)),
    );
    let record = put(
        "blob",
        format!(
            "agency landed 1\ntask kodingx:T9999\nepoch 1\nterm 1\nbranch refs/heads/main\ncommit {commit}\n"
        ),
    );
    queue.ground.git(&["update-ref", "refs/agency/landed/kodingx/T9999", &record]);
    let said = queue.ground.agency(&["lint"]);
    assert!(said.out.contains(&format!("cherry-pick refs/agency/pin/kodingx/{}", tasks[0])), "{said:?}");
}

/// A task that is not done, and a branch that is gone, are nobody's loss.
#[test]
fn what_is_archived_or_canceled_is_not_missed() {
    let queue = Queue::new();
    let before = queue.ground.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let tasks = landed(&queue);
    commit_board(&queue);
    queue.ground.git(&["reset", "--quiet", "--soft", &before]);
    assert_eq!(queue.ground.agency(&["lint"]).code, 10);
    for id in &tasks {
        let file = queue.ground.file(id);
        let text = queue.ground.read(&file);
        queue.ground.write(&file, text.replace("status: DONE", "status: CANCELED"));
    }
    queue.ground.ok(&["lint", "--fix"]);
    assert_eq!(queue.ground.agency(&["status"]).code, 0);
}

/// What a person begins just before the branch moves keeps it from moving.
#[test]
fn a_rebase_that_has_begun_is_waited_for() {
    for trace in ["rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "BISECT_LOG"] {
        let queue = crate::gate::queue("echo by > src/mine");
        let id = queue.tasks(1).remove(0);
        let run = queue.start(&[]);
        crate::gate::begun(&queue, &id, 1);
        let path = queue.path().join(".git").join(trace);
        match trace.starts_with("rebase") {
            true => fs::create_dir(&path).expect("made"),
            false => fs::write(&path, "").expect("written"),
        }
        crate::gate::open(&queue);
        let said = run.end();
        assert_eq!(said.code, 10, "{trace}: {said:?}");
        said.assert_names(&["is under way"]);
        assert!(queue.landed().is_empty(), "{trace}");
        let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
        assert_eq!(queue.run(&[]).code, 0, "{trace}");
        queue.assert_landed(&[id]);
    }
}
