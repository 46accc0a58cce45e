//! §2 and §3: what makes a repository Codifica-enabled, and where its state is.

use crate::site::{CONTRACT, Site, ready, work};
use agency_tests::ground::Ground;

#[test]
fn s02_a_repository_with_contract_and_state_is_enabled_and_nothing_else_is_needed() {
    let site = Site::new(&ready("FEAT-1"));
    let listed = site.ground.ok(&["task", "list", "--json"]).json();
    assert_eq!(listed["tasks"][0]["id"], "FEAT-1");
    assert_eq!(site.ground.ok(&["status", "--json"]).json()["protocol"], "codifica");
}

#[test]
fn s02_init_makes_a_board_that_complies_and_a_second_time_changes_nothing() {
    let ground = Ground::without_board(&[]);
    ground.ok(&["init", "--protocol", "codifica", "--builders", "shell"]);
    assert_eq!(ground.json("codifica.json")["version"], "0.2");
    assert!(ground.read("codifica-spec.md").contains("## 11. Agent Contract (Mandatory)"));
    ground.assert_compliant();
    ground.refused(2, &["init", "--protocol", "codifica"]).assert_names(&["codifica.json is there already"]);
    let id = ground.ok(&["task", "new", "--title", "First", "--acceptance", "it works"]).out;
    assert_eq!(id.trim(), "FEAT-001");
    ground.assert_compliant();
}

#[test]
fn s03_1_a_contract_that_is_missing_or_wrong_stops_everything() {
    let site = Site::new(&ready("FEAT-1"));
    for (text, named) in [
        ("{", "codifica.json:1: it is not JSON"),
        (r#"{"protocol": "other"}"#, "`protocol` is `other`"),
        (&CONTRACT.replace("0.2", "7"), "`version` is `7`"),
        (&CONTRACT.replace("\"state\"", "\"where\""), "`state` is missing"),
        (&CONTRACT.replace("\"work.md\"", "7"), "`state` must be"),
        (&CONTRACT.replace("codifica-spec.md", "gone.md"), "`spec` names gone.md"),
    ] {
        site.ground.write("codifica.json", text);
        for verb in
            [&["status"][..], &["task", "list"], &["lint"], &["run"], &["task", "move", "FEAT-1", "todo"]]
        {
            site.ground.refused(2, verb).assert_names(&[named]);
        }
    }
    site.ground.remove("codifica.json");
    site.ground.refused(4, &["status"]).assert_names(&["there is no board", "agency init"]);
}

#[test]
fn s03_1_rules_may_be_a_word_or_an_object_with_defaults() {
    for rules in ["\"strict\"", "\"permissive\"", "{}", r#"{"allowed_agents": []}"#] {
        Site::with_rules(rules, &ready("FEAT-1")).ground.assert_compliant();
    }
    let site = Site::with_rules("\"loose\"", &ready("FEAT-1"));
    site.ground.refused(2, &["lint"]).assert_names(&["`rules.mode` is `loose`", "§3.1"]);
}

#[test]
fn s03_1_agents_that_are_not_allowed_stop() {
    let site = Site::with_rules(r#"{"allowed_agents": ["agent:writer"]}"#, &ready("FEAT-1"));
    let said = site.moves("FEAT-1", "in_progress", "agent:shell", None);
    assert_eq!(said.code, 2);
    said.assert_names(&["agent:shell is not among `allowed_agents`", "§3.1"]);
    site.agent("true");
    let said = site.ground.agency(&["run", "--dry-run", "--json"]);
    let waiting = said.json()["waiting"].to_string();
    assert!(waiting.contains("allowed_agents"), "{waiting}");
}

#[test]
fn s03_1_globs_that_could_not_be_held_are_refused_by_name() {
    for (glob, named) in [("!(a)", "extended glob"), ("../x", "escapes"), ("[a", "can't be read")] {
        let rules = format!("{{\"file_scope\": {{\"exclude\": [\"{glob}\"]}}}}");
        let site = Site::with_rules(&rules, &ready("FEAT-1"));
        site.ground.refused(2, &["status"]).assert_names(&["rules.file_scope.exclude", named]);
    }
}

#[test]
fn s03_2_state_is_a_path_a_pattern_or_a_list_and_all_of_it_is_scanned() {
    for (state, files) in [
        ("\"work.md\"", &["work.md"][..]),
        ("\"work/*.md\"", &["work/a.md", "work/b.md"]),
        ("[\"work/a.md\", \"work.md\"]", &["work/a.md", "work.md"]),
    ] {
        let site = Site::with(&CONTRACT.replace("\"work.md\"", state), &work(""));
        for (number, file) in files.iter().enumerate() {
            site.ground.write(file, work(&ready(&format!("FEAT-{number}"))));
        }
        let listed = site.ground.ok(&["task", "list", "--json"]).json();
        let found: Vec<&str> = listed["tasks"]
            .as_array()
            .expect("tasks")
            .iter()
            .filter_map(|task| task["file"].as_str())
            .collect();
        assert_eq!(found, files, "{state}");
    }
}

#[test]
fn s03_2_tasks_are_found_in_several_blocks_in_bare_yaml_and_around_nested_fences() {
    let nested = "  description: |\n    Like:\n    ```yaml\n    - id: NOT-1\n    ```\n";
    let text = format!(
        "{}\n```html\n<p>\n```\n\n## More\n\n```yml\n{}```\n",
        work(&(ready("A-1") + nested)),
        ready("A-2")
    );
    let site = Site::with(CONTRACT, &text);
    let ids = |site: &Site| -> Vec<String> {
        let listed = site.ground.ok(&["task", "list", "--json"]).json();
        let tasks = listed["tasks"].as_array().expect("tasks").clone();
        tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&site), ["A-1", "A-2"]);
    site.ground.write("work.md", ready("B-1") + &ready("B-2"));
    assert_eq!(ids(&site), ["B-1", "B-2"]);
    site.ground.write("codifica.json", CONTRACT.replace("work.md", "work.yml"));
    site.ground.write(
        "work.yml",
        format!("# ours\ntasks:\n{}", ready("C-1").replace("\n", "\n  ").replacen("- ", "  - ", 1)),
    );
    assert_eq!(ids(&site), ["C-1"]);
}

#[test]
fn s03_2_finished_tasks_are_archived_in_a_file_that_state_covers() {
    let contract = CONTRACT.replace("\"work.md\"", "[\"work.md\", \"work-archive.md\"]");
    let done = crate::site::task("OLD-1", "test", "done", "human") + "  completed_at: 2020-01-01T00:00:00Z\n";
    // Older tasks have their date in their transitions alone; one without any date stays where it is.
    let moved = |id: &str, at: &str| {
        crate::site::task(id, "test", "rejected", "human")
            + &format!("  state_transitions:\n    - to: rejected\n      reason: no\n      timestamp: {at}\n")
    };
    let older = moved("OLD-2", "2020-01-01T00:00:00Z");
    let stays = moved("OLD-3", "2999-01-01T00:00:00Z") + &crate::site::task("OLD-4", "test", "done", "human");
    let open = stays + &ready("NEW-1") + "  depends_on: [OLD-1]\n";
    let site = Site::with(&contract, &work(&(done + &older + &open)));
    site.ground.write("work-archive.md", work(""));
    site.ground.commit_all();
    let said = site.ground.ok(&["archive", "--older-than", "30", "--json"]).json();
    assert_eq!(said["tasks"], serde_json::json!(["OLD-1", "OLD-2"]));
    assert_eq!(said["file"].as_str(), Some("work-archive.md"));
    assert_eq!(site.ground.read("work.md"), work(&open));
    let archived = site.ground.read("work-archive.md");
    assert!(archived.contains("- id: OLD-1\n") && archived.contains("- id: OLD-2\n"), "{archived}");
    assert_eq!(site.log()[0], "2 finished tasks put aside");
    assert!(site.ground.lint().iter().all(|one| one["severity"] == "warning"), "the dates are missing");
    assert_eq!(
        site.moves("NEW-1", "in_progress", "agent:shell", None).code,
        0,
        "what it depends on is still done"
    );
    let alone = Site::new(&ready("A"));
    alone.ground.refused(2, &["archive", "--older-than", "1"]).assert_names(&["covers no file", "§3.2"]);
}
