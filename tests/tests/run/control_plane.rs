//! What an agent may try on those who run it: forged reports, leases and proofs, locks, a wider scope. Each attempt is
//! a real one, and changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use agency_tests::adversary::{self, Outcome, Report};
use agency_tests::ground::Said;
use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};

mod handing_over;
mod holding;
mod secrets;

/// Says of every attempt whether it worked.
const TRY: &str = "try() { if \"$@\" 2>&1; then echo \"it worked: $*\"; else echo \"refused: $*\"; fi; }\n";
/// Waits until the test says so, on the board, where the agent can see it.
const WAIT: &str = "echo waiting; until grep -rqs 'go on now' .kodingx/inbox; do sleep 0.02; done\n";

/// Lets an agent that waits go on.
fn let_go(queue: &Queue, by: &str) {
    let file = queue.ground.file(by);
    let text = queue.ground.read(&file);
    queue.ground.write(&file, format!("{text}\ngo on now\n"));
}

/// A queue with one agent, whose task is tried once.
fn queue(script: &str) -> Queue {
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 1");
    queue.ground.commit_all();
    queue
}

/// A task with a Definition of Done of its own.
fn checked(queue: &Queue, profile: &str, more: &[&str]) -> String {
    queue.ground.task("A task", &[&["--assignee", "shell", "--dod-profile", profile], more].concat())
}

fn log(queue: &Queue, id: &str) -> String {
    let path = queue.records(id, 1).join("agent/output.log");
    String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned()
}

/// Waits until the agent has said something.
#[track_caller]
fn until_said(queue: &Queue, id: &str, word: &str) {
    assert!(wait_until(LONG, || log(queue, id).contains(word)), "{}", log(queue, id));
}

#[track_caller]
fn assert_failed(queue: &Queue, said: &Said, id: &str, code: i32, words: &[&str]) {
    assert_eq!(said.code, code, "{said:?}\n{}", log(queue, id));
    said.assert_names(words);
    assert_eq!(queue.landed().get(id), None);
    assert_eq!(queue.ground.status(id), "BLOCKED");
    queue.assert_nothing_left();
}

fn forged(task: &str, status: &str) -> String {
    format!(
        "cat > \"$AGENCY_REPORT_FILE\" <<'END'\n---\ntask_id: {task}\nagent: mallory\nstatus: {status}\n\
         started_at: 2001-01-01T00:00:00Z\nfinished_at: 2001-01-01T00:00:01Z\n\
         changes:\n  files_modified: [README.md, src/other]\ncommands_run: [make test]\n\
         verification:\n  dod_passed: true\nrisks: []\n---\n\n## Summary\nAll is well.\nEND\n"
    )
}

#[test]
fn a_forged_report_is_corrected_by_what_was_seen_and_is_nobody_elses() {
    // Beside its own it leaves one under another's name.
    let script = format!(
        "{}cp \"$AGENCY_REPORT_FILE\" \"$(dirname \"$AGENCY_REPORT_FILE\")/T0002-report.md\"\n{HONEST}",
        forged("T0002", "READY_FOR_REVIEW")
    );
    let queue = queue(&script);
    let (id, other) = (queue.task("shell", &[]), queue.task("shell", &[]));
    let before = queue.ground.read(&queue.ground.file(&other));
    let said = queue.run(&["--task", &id]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    queue.assert_nothing_left();
    assert_eq!(queue.ground.read(&queue.ground.file(&other)), before);
    let reports: Vec<String> =
        queue.ground.files(".kodingx/outbox").into_iter().filter(|file| file.contains("-report")).collect();
    assert_eq!(reports.len(), 1, "{reports:?}");
    let report = queue.ground.header(&reports[0]);
    assert_eq!((report["task_id"].as_str(), report["agent"].as_str()), (Some(id.as_str()), Some("shell")));
    let files = report["changes"]["files_modified"].as_sequence().expect("files");
    assert_eq!(files.iter().filter_map(|file| file.as_str()).collect::<Vec<_>>(), [format!("src/{id}")]);
    let text = queue.ground.read(&reports[0]);
    for said in ["about T0002", "by mallory", "did not change: README.md", "did not mention: src/T0001"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("2001-01-01"), "{text}");
}

/// Nor does a status that only people give.
#[test]
fn a_report_that_claims_the_checks_passed_does_not_make_them_pass() {
    for status in ["READY_FOR_REVIEW", "DONE"] {
        let queue = queue(&format!("{}{HONEST}", forged("T0001", status)));
        queue.ground.profile("strict", &["test ! -e src/T0001"]);
        queue.ground.commit_all();
        let id = checked(&queue, "strict", &[]);
        let said = queue.run(&[]);
        assert_failed(&queue, &said, &id, 10, &["checks failed", "test ! -e src/T0001"]);
    }
}

/// The same connection is made from outside, and answered.
#[test]
fn the_socket_of_its_own_shim_is_out_of_an_agents_reach() {
    let mut queue = Queue::new();
    // The state folder is there from the first command on.
    let socket = queue.records("T0001", 1).join("agent/control");
    // Its path is longer than the address of a socket can be.
    let folder = socket.parent().expect("a folder");
    let script = format!(
        "{TRY}{WAIT}adversary=$PWD/tools/adversary\n\
         try sh -c \"cd {} && $adversary unix-path control\"\n\
         find / -xdev -type s 2>/dev/null | while read found; do try tools/adversary unix-path \"$found\"; done\n\
         for fd in /proc/self/fd/* /proc/1/fd/*; do try tools/adversary unix-path \"$fd/control\"; done\n\
         try ls {}; ls -l /proc/self/fd; {HONEST}",
        folder.display(),
        queue.ground.state_home().display()
    );
    queue.agent("shell", &script, "");
    queue.ground.write("tools/adversary", fs::read(adversary::binary()).expect("read"));
    let program = queue.path().join("tools/adversary");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("a program");
    queue.ground.commit_all();
    let (id, other) = (queue.task("shell", &[]), queue.task("shell", &[]));
    let run = queue.start(&["--task", &id]);
    until_said(&queue, &id, "waiting");
    let output = adversary::native("unix-path", ["control"]).current_dir(folder).output().expect("it starts");
    assert_eq!(Report::from_output(&output).expect("a report").outcome, Outcome::Succeeded, "{output:?}");
    let_go(&queue, &other);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}\n{}", log(&queue, &id));
    let log = log(&queue, &id);
    assert!(log.contains(&format!("refused: sh -c cd {} &&", folder.display())), "{log}");
    assert!(!log.contains("it worked") && !log.contains("socket:["), "{log}");
    queue.assert_landed(&[id]);
    queue.assert_nothing_left();
}

/// In its own repository an agent may write what it likes.
#[test]
fn leases_and_landings_that_an_agent_writes_into_git_stay_with_it() {
    let script = format!(
        "set -e; id=$AGENCY_TASK_ID\n\
         test -z \"$(git for-each-ref refs/agency)\"; test ! -e .git/agency\n\
         git -c user.name=x -c user.email=x@x commit -qm 'Agency-Task: T0002' --trailer Agency-Task=T0002 --allow-empty\n\
         lease=$(echo \"agency lease 9 9\" | git hash-object -w --stdin)\n\
         for task in T0001 T0002; do\n\
         git update-ref refs/agency/lease/kodingx/$task $lease\n\
         git update-ref refs/agency/landed/kodingx/$task HEAD\n\
         done\n\
         git update-ref refs/heads/main HEAD; git branch mine; git tag theirs\n\
         {HONEST}; echo forged all of it"
    );
    let queue = queue(&script);
    let tasks = queue.tasks(2);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}\n{}", log(&queue, &tasks[0]));
    // Both went all the way: neither was taken for landed, nor for somebody else's.
    for id in &tasks {
        assert!(log(&queue, id).contains("forged all of it"));
    }
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    let refs = queue.ground.git(&["for-each-ref", "--format=%(refname)"]);
    assert!(!refs.contains("mine") && !refs.contains("theirs"), "{refs}");
    assert!(!queue.ground.git(&["log", "main", "--format=%an %s"]).contains("Agency-Task: T0002"));
}

/// Neither one that it writes, nor one that somebody left there before.
#[test]
fn a_forged_proof_convinces_nobody() {
    let script = format!(
        "{TRY}try mkdir .kodingx/verify/2001-01-01\n\
         for proof in $(find .kodingx/verify -name '*.json'); do try sh -c \"echo {{}} > $proof\"; done\n\
         try sh -c 'echo forged > .kodingx/verify/T0001.verify.json'\n{HONEST}"
    );
    let queue = queue(&script);
    queue.ground.profile("strict", &["test ! -e src/T0001"]);
    queue.ground.commit_all();
    let id = checked(&queue, "strict", &[]);
    let planted = queue.ground.artifact(&id, "pass");
    let said = queue.run(&[]);
    assert_failed(&queue, &said, &id, 10, &["checks failed"]);
    let log = log(&queue, &id);
    assert!(!log.contains("it worked") && log.matches("refused:").count() == 3, "{log}");
    let proofs: Vec<String> =
        queue.ground.files(".kodingx/verify").into_iter().filter(|file| *file != planted).collect();
    let own = proofs.iter().find(|file| file.ends_with(".json")).expect("its own");
    assert_eq!(queue.ground.json(own)["result"], "fail");
}

/// The repository's own profile can't be written; what a builtin one looks at is taken from before the work.
#[test]
fn the_checks_are_those_from_before_the_agent_came() {
    let makefile = "test:\n\t@echo it fails; false\n";
    let relax = format!(
        "{TRY}try sh -c 'echo \"commands: [true]\" > .kodingx/dod/profiles/strict.yml'\n\
         printf 'all:\\n\\ttrue\\n' > Makefile; {HONEST}"
    );
    let queue = queue(&relax);
    queue.ground.write("Makefile", makefile);
    queue.ground.profile("strict", &["test ! -e src/T0001"]);
    queue.ground.commit_all();
    let own = checked(&queue, "strict", &["--may-touch", "Makefile"]);
    let builtin = checked(&queue, "make", &["--may-touch", "Makefile"]);
    let said = queue.run(&["--parallel", "2"]);
    assert_failed(&queue, &said, &own, 10, &["`test ! -e src/T0001` ended with exit code 1"]);
    assert!(log(&queue, &own).contains("refused:"), "{}", log(&queue, &own));
    // It took the target away, and with it the reason to run it; it is run all the same.
    assert_failed(&queue, &said, &builtin, 10, &["`make test` ended with exit code 2"]);
    assert_eq!(queue.ground.read("Makefile"), makefile);
}
