//! §8: claims, stale ones, handoffs, and what a commit of ours may touch.

use crate::site::{Site, ready, task, work};

#[test]
fn s08_1_a_claim_is_one_commit_of_state_owner_and_time() {
    let site = Site::new(&(ready("A-1").replace("agent:shell", "unassigned") + &ready("B-1")));
    let before = site.log().len();
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    assert_eq!(site.log().len(), before + 1);
    let claimed = site.task("A-1");
    assert_eq!(claimed["state"].as_str(), Some("in_progress"));
    assert_eq!(claimed["owner"].as_str(), Some("agent:shell"));
    assert!(claimed["claimed_at"].as_str().is_some_and(|at| at.starts_with("20")));
    let patch = site.last_patch();
    let touched: Vec<&str> =
        patch.lines().filter(|line| line.starts_with('-') && !line.starts_with("---")).collect();
    assert_eq!(touched, ["-  state: todo", "-  owner: unassigned"]);
    assert!(!patch.contains("B-1"), "{patch}");
    assert_eq!(site.ground.git(&["status", "--porcelain"]), "", "the checkout comes along");
}

/// Whoever gives somebody a repository with its `.git` has a say in where it is pushed to. Git runs the hooks it finds
/// there, as the person who pushes.
#[test]
fn an_upstream_inside_the_repository_runs_nothing() {
    for inside in [".git/shared.git", "src/shared.git"] {
        let site = Site::new(&ready("A-1"));
        let remote = site.ground.path().join(inside);
        site.share_at(&remote);
        let ran = site.ground.user().join("ran");
        for hook in ["pre-receive", "update", "post-receive"] {
            let script = format!("#!/bin/sh\ntouch {}\n", ran.display());
            site.ground.write_program(&format!("{inside}/hooks/{hook}"), &script);
        }
        let said = site.moves("A-1", "in_progress", "agent:shell", None);
        assert_ne!(said.code, 0, "{said:?}");
        said.assert_names(&["origin/main", "it lies in this very repository"]);
        assert_eq!((site.state("A-1").as_str(), ran.exists()), ("todo", false));
        // That they would have run is shown by git itself.
        site.ground.git(&["push", "--quiet", "--force", "origin", "HEAD~0:refs/heads/other"]);
        assert!(ran.exists());
    }
}

#[test]
fn s08_1_a_claim_is_pushed_and_a_refused_push_leaves_nothing() {
    let site = Site::new(&(ready("A-1") + &ready("B-1")));
    let remote = site.share();
    let other = Site::clone_of(&remote);
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    assert_eq!(
        site.ground
            .git(&["rev-parse", "main", "origin/main"])
            .lines()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        1
    );
    // The other clone is behind, and asks for the same task: it is brought up to date, and told whose it is.
    let said = other.moves("A-1", "in_progress", "agent:other", None);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(other.ground.git(&["status", "--porcelain"]), "");
    assert_eq!(other.ground.git(&["rev-parse", "HEAD"]), site.ground.git(&["rev-parse", "HEAD"]));
    assert_eq!(other.moves("B-1", "in_progress", "agent:shell", None).code, 0, "another task can be had");
}

#[test]
fn s08_1_without_a_way_to_tell_others_nothing_is_claimed() {
    let site = Site::new(&ready("A-1"));
    site.share();
    site.ground.git(&["remote", "set-url", "origin", "/nowhere/at/all.git"]);
    let said = site.moves("A-1", "in_progress", "agent:shell", None);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["which is not trusted", "agency trust --upstream /nowhere/at/all.git"]);
    site.trust();
    let said = site.moves("A-1", "in_progress", "agent:shell", None);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["can't fetch from origin/main"]);
    assert_eq!(
        (site.state("A-1"), site.ground.git(&["status", "--porcelain"])),
        ("todo".into(), String::new())
    );
    // What a person does is done here, and told later.
    assert_eq!(site.moves("A-1", "blocked", "human", Some("offline")).code, 0);
    assert_eq!(site.log()[0], "A-1: todo -> blocked by human");
}

#[test]
fn s08_1_a_task_in_progress_is_somebodys() {
    let tasks = task("A-1", "test", "in_progress", "unassigned") + &task("B-1", "test", "todo", "unassigned");
    let site = Site::new(&tasks);
    site.ground.assert_found("work.md", "8.1", "in_progress and unassigned");
    assert_eq!(site.moves("B-1", "in_progress", "human", None).code, 0);
    assert_eq!(site.task("B-1")["owner"].as_str(), Some("human"));
}

fn claimed(hours_ago: i64) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let at = i64::try_from(at).expect("a time") - hours_ago * 3600;
    let (days, rest) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    // Days to a date, as calendars have it since 1582.
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let time = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    format!("  claimed_at: {year:04}-{month:02}-{day:02}T{time}Z\n")
}

#[test]
fn s08_1_1_a_stale_claim_is_shown_and_only_a_person_reclaims_it() {
    let held = |id: &str, hours: i64| ready(id).replace("todo", "in_progress") + &claimed(hours);
    let site = Site::with_rules(r#"{"stale_claim_hours": 12}"#, &(held("OLD-1", 13) + &held("NEW-1", 1)));
    let status = site.ground.ok(&["status"]).out;
    assert!(
        status.contains("stale: OLD-1: agent:shell has it") && !status.contains("stale: NEW-1"),
        "{status}"
    );
    for actor in ["agent:shell", "agent:other"] {
        let said = site.moves("OLD-1", "todo", actor, Some("mine now"));
        assert_eq!(said.code, 2);
        said.assert_names(&["is for a person", "§8.1.1"]);
    }
    site.moves("NEW-1", "todo", "human", Some("too slow")).assert_names(&["it is not stale", "§8.1.1"]);
    site.moves("OLD-1", "todo", "human", None).assert_names(&["needs a reason", "§8.1.1"]);
    assert_eq!(site.moves("OLD-1", "todo", "human", Some("Agent unresponsive, reclaiming")).code, 0);
    let step = site.task("OLD-1")["state_transitions"][0].clone();
    assert_eq!(step["reason"].as_str(), Some("Agent unresponsive, reclaiming"));
    // Any agent may take it now; whose it was is in the transition.
    let task = site.task("OLD-1");
    assert_eq!(task["owner"].as_str(), Some("unassigned"));
    assert!(task["claimed_at"].is_null(), "{task:?}");
}

#[test]
fn s08_1_1_what_somebody_else_holds_is_not_dispatched() {
    let site = Site::new(&(ready("A-1").replace("todo", "in_progress") + &claimed(1)));
    site.agent("echo should not run > src/never");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!site.ground.exists("src/never"));
    assert_eq!(site.state("A-1"), "in_progress");
}

#[test]
fn s08_2_an_agent_reads_what_the_task_before_it_left() {
    let tasks = ready("A-1") + &ready("B-1") + "  depends_on: [A-1]\n";
    let site = Site::new(&tasks);
    let report = "---\\nstatus: done\\nsummary: The API is in src/api\\nartifacts:\\n  - path: src/prompt-A-1\\n    type: code\\n---\\n\\nAll of it.\\n";
    let script =
        format!("cp \"$0\" src/prompt-$AGENCY_TASK_ID; printf -- '{report}' > \"$AGENCY_REPORT_FILE\"");
    let command = serde_json::json!(["sh", "-c", script, "{prompt_file}"]);
    site.ground.write("agency.toml", format!("[run]\nattempts = 1\n[agents.shell]\ncommand = {command}\n"));
    site.ground.ok(&["trust", "--yes"]);
    site.ground.commit_all();
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    let first = site.task("A-1");
    assert_eq!(first["execution_notes"][0]["summary"].as_str(), Some("The API is in src/api"));
    assert_eq!(first["artifacts"][0]["type"].as_str(), Some("code"));
    let told = site.ground.ok(&["report", "A-1"]).out;
    assert!(told.contains("The API is in src/api") && told.contains("src/prompt-A-1"), "{told}");
    assert_eq!((site.state("A-1"), site.state("B-1")), ("done".into(), "done".into()));
    let prompt = site.ground.read("src/prompt-B-1");
    for part in
        ["It depends on A-1:", "agent:shell: The API is in src/api", "artifact: src/prompt-A-1 (code)"]
    {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!site.ground.read("src/prompt-A-1").contains("It depends on"));
}

#[test]
fn s08_3_a_commit_of_ours_touches_one_tasks_block_and_keeps_what_a_person_has_open() {
    let site = Site::new(&(ready("A-1") + &ready("B-1")));
    // Somebody writes a new task, stages another file, and edits a third.
    let mine =
        site.ground.read("work.md").replace("```\n\n## Done", &format!("{}```\n\n## Done", ready("C-1")));
    site.ground.write("work.md", &mine);
    site.ground.write("src/staged.txt", "staged\n");
    site.ground.git(&["add", "src/staged.txt"]);
    site.ground.write("src/a.txt", "edited\n");
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    let patch = site.last_patch();
    assert!(!patch.contains("B-1") && !patch.contains("C-1") && !patch.contains("staged"), "{patch}");
    assert_eq!(site.ground.git(&["show", "--format=", "--name-only", "HEAD"]).trim(), "work.md");
    assert_eq!(site.ground.git(&["status", "--porcelain"]), " M src/a.txt\nA  src/staged.txt\n M work.md\n");
    assert!(site.ground.read("work.md").contains("- id: C-1\n"));
    // A task that is not committed yet can't be claimed: others would not know it.
    let said = site.moves("C-1", "in_progress", "agent:shell", None);
    assert_eq!(said.code, 2);
    said.assert_names(&["work.md has changes to these very lines", "commit work.md"]);
    assert_eq!(site.state("C-1"), "todo");
}

#[test]
fn s08_3_the_latest_state_is_pulled_before_anything_is_written() {
    let site = Site::new(&(ready("A-1") + &ready("B-1")));
    let other = Site::clone_of(&site.share());
    assert_eq!(site.moves("A-1", "blocked", "human", Some("wait")).code, 0);
    assert_eq!(other.moves("B-1", "in_progress", "agent:shell", None).code, 0);
    assert_eq!(other.state("A-1"), "blocked", "what others did is here now");
    assert_eq!(
        other.log()[..2],
        ["B-1: todo -> in_progress by agent:shell", "A-1: todo -> blocked by human"]
    );
}

#[test]
fn s08_4_a_conflict_on_the_same_task_is_left_to_a_person() {
    let site = Site::new(&ready("A-1"));
    let other = Site::clone_of(&site.share());
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    // Somebody commits another idea of the same task, without looking.
    other.ground.edit("work.md", "state: todo", "state: blocked\n  blocked_reason: mine");
    other.ground.commit_all();
    let before = other.ground.git(&["rev-parse", "HEAD"]);
    let said = other.moves("A-1", "in_progress", "human", None);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["has gone another way", "work.md", "merge it by hand"]);
    assert_eq!(other.ground.git(&["rev-parse", "HEAD~1"]), before, "nothing was merged");
    let claim = other.moves("A-1", "in_progress", "agent:other", None);
    assert_eq!(claim.code, 2, "{claim:?}");
    assert_eq!(
        site.ground.git(&["log", "--format=%s", "-1", "origin/main"]).trim(),
        "A-1: todo -> in_progress by agent:shell"
    );
}

#[test]
fn s08_4_edits_of_different_tasks_in_two_clones_are_merged() {
    let between = (0..6).map(|number| ready(&format!("M-{number}"))).collect::<String>();
    let site = Site::with(crate::site::CONTRACT, &work(&(ready("A-1") + &between + &ready("Z-1"))));
    let other = Site::clone_of(&site.share());
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    // Offline, another clone goes on.
    let url = other.ground.git(&["remote", "get-url", "origin"]);
    other.ground.git(&["remote", "set-url", "origin", "/nowhere.git"]);
    assert_eq!(other.moves("Z-1", "blocked", "human", Some("wait")).code, 0);
    other.ground.git(&["remote", "set-url", "origin", url.trim()]);
    assert_eq!(other.moves("M-3", "in_progress", "agent:shell", None).code, 0);
    assert_eq!((other.state("A-1"), other.state("Z-1")), ("in_progress".into(), "blocked".into()));
    assert_eq!(other.ground.git(&["rev-parse", "main"]), other.ground.git(&["rev-parse", "origin/main"]));
}
