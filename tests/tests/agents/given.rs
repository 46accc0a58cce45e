//! What an agent is given: files it may read in its HOME, variables, and no others.

use std::fs;

use agency_tests::ground::Said;
use agency_tests::queue::Queue;

const TOKEN: &str = "tok-8c2f61b9d04e7a35";

/// Runs a script as an agent with a file of credentials.
fn run(script: &str) -> (Queue, String, Said) {
    let mut queue = Queue::new();
    let home = tempfile::tempdir().expect("a home");
    fs::create_dir(home.path().join(".tool")).expect("made");
    fs::write(home.path().join(".tool/auth.json"), format!("{{\"token\":\"{TOKEN}\"}}")).expect("written");
    fs::write(home.path().join(".tool/history"), "not for agents").expect("written");
    queue.agent(
        "shell",
        script,
        "credentials = [\"~/.tool/auth.json\", \"~/.other/auth.json\"]\nvariables = [\"COLOR=blue\", \"PASSED\"]\n",
    );
    let id = queue.tasks(1).remove(0);
    let home = home.path().display().to_string();
    let said = queue.start_with(&[("HOME", &home), ("PASSED", "on"), ("KEPT", "back")], &[]).end();
    (queue, id, said)
}

fn log(queue: &Queue, id: &str) -> String {
    fs::read_to_string(queue.records(id, 1).join("agent/output.log")).expect("a log")
}

#[test]
fn credentials_can_be_read_and_not_written_and_what_lies_beside_them_is_the_agents_own() {
    let (queue, id, said) = run("grep -o tok- ~/.tool/auth.json; cat ~/.tool/auth.json
        ls -A ~/.tool; echo x > ~/.tool/auth.json; rm -f ~/.tool/auth.json; echo mine > ~/.tool/state && cat ~/.tool/state
        echo \"$COLOR $PASSED $KEPT.\"; ls -A ~/.other; echo fine > src/fine");
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    let log = log(&queue, &id);
    assert!(log.starts_with("tok-\n{\"token\":\"[redacted"), "{log}");
    assert!(log.contains("auth.json\n") && !log.contains("history") && log.contains("mine\n"), "{log}");
    assert!(log.contains("Read-only file system") && log.contains("busy"), "{log}");
    assert!(log.contains("blue on .\n"), "{log}");
    assert!(!log.contains(TOKEN), "{log}");
}

#[test]
fn work_that_holds_something_of_its_credentials_is_refused() {
    let (queue, id, said) = run("cat ~/.tool/auth.json > src/stolen");
    assert_eq!(said.code, 20, "{said:?}");
    said.assert_names(&[&id, "src/stolen", "auth.json"]);
    assert!(queue.landed().is_empty());
}
