//! A task's whole life in `agency run`, with an agent that attacks what it may not touch.

use crate::site::{Site, ready, task};

const RULES: &str = r#"{"file_scope": {"include": ["**"], "exclude": ["secrets/**", "*.key", ".env"]}}"#;

#[test]
fn a_build_goes_from_its_claim_to_done_while_its_agent_attacks_what_is_excluded() {
    let site = Site::with_rules(RULES, &(ready("FEAT-1") + "  priority: high\n"));
    site.ground.write("secrets/token", "secret\n");
    site.share();
    let attack = "echo stolen > secrets/token 2>> src/refused; rm -rf secrets 2>> src/refused; mv secrets elsewhere 2>> src/refused; echo new > secrets/new 2>> src/refused; chmod 777 secrets 2>> src/refused; ";
    site.agent(&format!(
        "{attack} echo made > src/made; printf -- '---\\nstatus: done\\nsummary: Made it\\nartifacts:\\n  - path: src/made\\n    type: code\\n---\\n\\nAs asked.\\n' > \"$AGENCY_REPORT_FILE\""
    ));
    site.ground.git(&["push", "--quiet", "origin", "main"]);
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.ground.files("secrets"), ["secrets/token"]);
    assert_eq!(
        (site.ground.read("secrets/token"), site.ground.read("src/made")),
        ("secret\n".into(), "made\n".into())
    );
    assert!(site.ground.read("src/refused").contains("Read-only file system"), "the kernel refused it");
    let done = site.task("FEAT-1");
    assert_eq!((done["state"].as_str(), done["owner"].as_str()), (Some("done"), Some("agent:shell")));
    assert!(done["completed_at"].as_str().is_some() && done["claimed_at"].as_str().is_some());
    assert_eq!(done["artifacts"][0]["path"].as_str(), Some("src/made"));
    let notes = done["execution_notes"].as_sequence().expect("notes");
    assert_eq!(notes[0]["summary"].as_str(), Some("Made it"));
    assert!(notes.iter().all(|note| note["summary"].as_str().is_some_and(|one| one.chars().count() <= 120)));
    let moves: Vec<&str> = done["state_transitions"]
        .as_sequence()
        .expect("moves")
        .iter()
        .filter_map(|one| one["to"].as_str())
        .collect();
    assert_eq!(moves, ["in_progress", "to_be_tested", "done"]);
    site.ground.assert_compliant();
    // History: each step is a commit, one block each, and all of it is known elsewhere.
    let log = site.log();
    assert_eq!(
        log[..5],
        [
            "FEAT-1: to_be_tested -> done by agent:shell",
            "Task FEAT-1",
            "FEAT-1: verified, pass",
            "FEAT-1: in_progress -> to_be_tested by agent:shell",
            "FEAT-1: claimed by agent:shell",
        ]
    );
    assert_eq!(site.ground.git(&["rev-parse", "main"]), site.ground.git(&["rev-parse", "origin/main"]));
    assert_eq!(site.ground.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_change_to_an_excluded_file_beside_writable_ones_lands_nothing() {
    let site = Site::with_rules(RULES, &ready("FEAT-1"));
    site.ground.write("host.key", "key\n");
    site.agent("echo stolen > host.key; echo x > src/x");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 20, "{said:?}");
    said.assert_names(&["host.key"]);
    assert_eq!(site.ground.read("host.key"), "key\n");
    assert!(!site.ground.exists("src/x"));
    let task = site.task("FEAT-1");
    assert_eq!(task["state"].as_str(), Some("in_progress"));
    assert!(task["execution_notes"][0]["note"].as_str().expect("a note").contains("host.key"));
}

#[test]
fn the_board_itself_is_not_the_agents_to_write() {
    for file in ["work.md", "codifica.json", "codifica-spec.md"] {
        let site = Site::with_rules(r#"{"file_scope": {"include": ["**"]}}"#, &ready("FEAT-1"));
        site.agent(&format!("echo forged >> {file}; echo x > src/x"));
        let before = site.ground.git(&["show", &format!("HEAD:{file}")]);
        let said = site.ground.agency(&["run"]);
        assert_eq!(said.code, 20, "{file}: {said:?}");
        let now = site.ground.read(file);
        // What the runner itself said about the task is all that may differ.
        assert!(!now.contains("forged") && (file == "work.md" || now == before), "{file}: {now}");
        assert!(!site.ground.exists("src/x"));
    }
}

#[test]
fn an_investigation_may_have_nothing_to_show_but_what_it_says() {
    let site = Site::new(&task("INV-1", "investigate", "todo", "unassigned"));
    site.agent("printf -- '---\\nsummary: It is the cache\\n---\\n\\nLooked everywhere.\\n' > \"$AGENCY_REPORT_FILE\"");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    let done = site.task("INV-1");
    assert_eq!(done["state"].as_str(), Some("done"));
    assert_eq!(done["execution_notes"][0]["summary"].as_str(), Some("It is the cache"));
    let build = Site::new(&ready("FEAT-1"));
    build.agent("true");
    assert_eq!(build.ground.agency(&["run"]).code, 10, "a build that changes nothing is none");
}

#[test]
fn s03_1_branches_are_named_by_the_pattern() {
    let rules = r#"{"branch_pattern": "{type}/{id}-{slug}"}"#;
    let site = Site::with_rules(rules, &ready("FEAT-1"));
    site.agent("echo x > src/x");
    let said = site.ground.agency(&["run", "--land", "branch"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.ground.git(&["show", "build/FEAT-1-task-feat-1:src/x"]), "x\n");
    assert!(!site.ground.exists("src/x"));
}

#[test]
fn a_failed_check_sends_it_back_and_the_next_attempt_claims_it_anew() {
    let site = Site::new(&ready("FEAT-1"));
    site.ground.write("Makefile", "check:\n\tgrep -q right src/x\n");
    site.configure(
        "if grep -q wrong src/x 2>/dev/null; then echo right > src/x; else echo wrong > src/x; fi",
        "backoff = \"100ms\"\nattempts = 2\n",
    );
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    let done = site.task("FEAT-1");
    let moves: Vec<&str> = done["state_transitions"]
        .as_sequence()
        .expect("moves")
        .iter()
        .filter_map(|one| one["to"].as_str())
        .collect();
    assert_eq!(moves, ["in_progress", "to_be_tested", "todo", "in_progress", "to_be_tested", "done"]);
    assert!(done["state_transitions"][2]["reason"].as_str().is_some_and(|why| why.contains("make check")));
}

#[test]
fn a_task_that_was_given_up_is_tried_again_when_somebody_says_so() {
    let site = Site::new(&ready("FEAT-1"));
    site.agent("exit 3");
    assert_eq!(site.ground.agency(&["run"]).code, 10);
    let note = site.task("FEAT-1")["execution_notes"][0]["note"].as_str().expect("a note").to_owned();
    assert!(note.starts_with("Recommend blocking: it ended with exit code 3"), "{note}");
    site.agent("echo x > src/x");
    assert_eq!(site.ground.agency(&["run"]).code, 10, "nobody said so yet");
    site.ground.ok(&["retry", "FEAT-1"]);
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    assert_eq!(site.state("FEAT-1"), "done");
}

#[test]
fn a_profile_of_the_repositorys_own_is_run_once_it_is_trusted() {
    let site = Site::new(&(ready("FEAT-1") + "  dod_profile: quick\n"));
    site.ground.write(
        ".codifica/profiles/quick.yml",
        "name: quick\ndescription: x\ncommands: [\"test -f src/x\"]\n",
    );
    site.ground.refused(2, &["verify", "--task", "FEAT-1"]).assert_names(&["is not trusted as it is"]);
    site.agent("echo x > src/x");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.ground.json("assets/FEAT-1/verify-FEAT-1-1-1.json")["profile"], "quick");
}

/// A person who takes a task away during a run has the last word.
#[test]
fn a_task_that_a_person_blocks_during_a_run_is_stopped_and_nothing_lands() {
    let site = Site::new(&ready("FEAT-1"));
    site.agent("echo x > src/x; sleep 60");
    let blocked = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.ground.agency(&["run"]));
        let working = || site.state("FEAT-1") == "in_progress";
        assert!(agency_tests::processes::wait_until(std::time::Duration::from_secs(60), working));
        assert_eq!(site.moves("FEAT-1", "blocked", "human", Some("stop")).code, 0);
        run.join().expect("ended")
    });
    assert!(!site.ground.exists("src/x"), "{blocked:?}");
    assert_eq!(site.state("FEAT-1"), "blocked");
}

/// Both sides go on by themselves while an agent works, with commits of people: git merges them, and what the agent did
/// is proved on top of that and lands, for everybody.
#[test]
fn work_lands_on_a_merge_when_the_upstream_has_gone_another_way_meanwhile() {
    let site = Site::new(&ready("FEAT-1"));
    site.agent(
        "until test -e .git/go 2>/dev/null || test $((i+=1)) -gt 30; do sleep 0.1; done; echo x > src/x",
    );
    let remote = site.share();
    let other = Site::clone_of(&remote);
    let said = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.ground.agency(&["run"]));
        let working = || site.state("FEAT-1") == "in_progress";
        assert!(agency_tests::processes::wait_until(std::time::Duration::from_secs(60), working));
        other.ground.git(&["pull", "--quiet"]);
        for (here, name) in [(&other, "theirs.txt"), (&site, "mine.txt")] {
            here.ground.write(name, "by hand\n");
            here.ground.git(&["add", name]);
            here.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--message=By hand"]);
        }
        other.ground.git(&["push", "--quiet"]);
        run.join().expect("ended")
    });
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains("by hand"), "{said:?}");
    assert_eq!((site.state("FEAT-1"), site.ground.read("src/x")), ("done".into(), "x\n".into()));
    assert_eq!(site.log().iter().filter(|subject| *subject == "Task FEAT-1").count(), 1);
    let last = Site::clone_of(&remote);
    assert_eq!((last.state("FEAT-1"), last.ground.read("src/x")), ("done".into(), "x\n".into()));
    assert!(last.ground.exists("mine.txt") && last.ground.exists("theirs.txt"));
    assert_eq!(site.ground.git(&["rev-parse", "main"]), last.ground.git(&["rev-parse", "main"]));
}

/// §8.2: an agent that begins has the files of the tasks that its own builds on.
#[test]
fn s08_2_a_task_waits_until_the_branch_it_builds_on_is_merged() {
    let site = Site::new(&(ready("A-1") + &ready("B-1") + "  depends_on: [A-1]\n"));
    site.agent("cat src/made-A-1 >> src/seen 2>/dev/null; echo x > src/made-$AGENCY_TASK_ID");
    let said = site.ground.agency(&["run", "--land", "branch"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["B-1", "whose work is on agency/A-1 and not on main", "git merge agency/A-1"]);
    assert_eq!((site.state("A-1"), site.state("B-1")), ("done".into(), "todo".into()));
    let dry = site.ground.ok(&["run", "--dry-run", "--land", "branch"]).out;
    assert!(dry.contains("not:\n  B-1") && dry.contains("git merge agency/A-1"), "{dry}");
    site.ground.git(&["-c", "user.name=Ada", "merge", "--quiet", "--no-edit", "agency/A-1"]);
    let said = site.ground.agency(&["run", "--land", "branch"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.ground.git(&["show", "agency/B-1:src/seen"]), "x\n");
}

/// A person who squashes a branch and deletes it has brought its work here in another commit.
#[test]
fn a_branch_that_is_gone_holds_nothing_back() {
    let site = Site::new(&(ready("A-1") + &ready("B-1") + "  depends_on: [A-1]\n"));
    site.agent("echo x > src/made-$AGENCY_TASK_ID");
    assert_eq!(site.ground.agency(&["run", "--land", "branch"]).code, 10);
    site.ground.git(&["branch", "--quiet", "-D", "agency/A-1"]);
    assert_eq!(site.ground.agency(&["run", "--land", "branch"]).code, 0);
    assert_eq!(site.state("B-1"), "done");
}

/// An attempt that goes on with earlier work reports what it added; the outcome has all that landed.
#[test]
fn a_report_names_all_files_that_landed_and_their_commit() {
    let site = Site::new(&ready("FEAT-1"));
    site.ground.write("Makefile", "check:\n\ttest -e src/two\n");
    site.configure(
        "if test -e src/one; then echo x > src/two; else echo x > src/one; fi",
        "backoff = \"100ms\"\nattempts = 2\n",
    );
    let open = site.ground.agency(&["report", "FEAT-1", "--json"]).json();
    assert_eq!((open["outcome"]["state"].as_str(), open["outcome"]["commit"].as_str()), (Some("todo"), None));
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    let outcome = site.ground.ok(&["report", "FEAT-1", "--json"]).json()["outcome"].clone();
    assert_eq!(outcome["state"], "done");
    assert_eq!(outcome["files"], serde_json::json!(["src/one", "src/two"]));
    let commit = outcome["commit"].as_str().expect("a commit").to_owned();
    let said = site.ground.ok(&["report", "FEAT-1"]);
    said.assert_names(&["FEAT-1 is done: landed on main as", &commit[..12], "src/one, src/two"]);
    // A person who opens it again has work that has not landed.
    assert_eq!(site.moves("FEAT-1", "todo", "human", None).code, 0);
    let outcome = site.ground.ok(&["report", "FEAT-1", "--json"]).json()["outcome"].clone();
    assert_eq!((outcome["state"].as_str(), outcome["commit"].as_str()), (Some("todo"), None));
}

/// A branch of a task's own is not the one that is shared.
#[test]
fn an_undo_on_a_branch_of_its_own_leaves_the_shared_branch_alone() {
    let site = Site::new(&ready("A-1"));
    site.agent("echo x > src/made-$AGENCY_TASK_ID");
    let remote = site.share();
    assert_eq!(site.ground.agency(&["run", "--land", "branch"]).code, 0);
    let said = site.ground.agency(&["undo", "A-1", "--reason", "no", "--as", "human:ann"]);
    assert_eq!(said.code, 0, "{said:?}");
    let shared = site.ground.git(&["--git-dir", &remote, "log", "--format=%s", "main"]);
    assert!(!shared.contains("Revert") && shared.starts_with("A-1: done -> todo"), "{shared}");
    assert_eq!(site.ground.git(&["log", "--format=%s", "-1", "agency/A-1"]), "Revert \"Task A-1\"\n");
}
