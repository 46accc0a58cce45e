//! §6: the task file.

use crate::ground::Ground;

#[test]
fn s06_1_tasks_are_created_in_the_inbox_of_their_agent() {
    let ground = Ground::new();
    let id = ground.task("Fix VAT rounding: totals & more!", &["--assignee", "claude-code"]);
    let file = ground.file(&id);
    let created = ground.header(&file)["created_at"].as_str().expect("a time").to_owned();
    let (date, hhmm) = (&created[..10], created[11..16].replace(':', ""));
    assert_eq!(
        file,
        format!(".kodingx/inbox/claude-code/{date}/T0001-{hhmm}-fix-vat-rounding-totals-more.md")
    );
    // Given to somebody else, it goes to their inbox.
    ground.ok(&["assign", &id, "--assignee", "codex"]);
    assert_eq!(ground.file(&id), file.replace("claude-code", "codex"));
    ground.assert_compliant();
}

#[test]
fn s06_1_a_task_that_lies_elsewhere_is_found() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    let text = ground.read(&file);
    ground.remove(&file);
    let moved = file.replace("/codex/", "/gemini/");
    ground.write(&moved, &text);
    ground.assert_found(&moved, "6.1", "in the inbox of `gemini`");
    ground.remove(&moved);
    let loose = format!(".kodingx/inbox/codex/{}", file.rsplit('/').next().expect("a name"));
    ground.write(&loose, &text);
    ground.assert_found(&loose, "6.1", "folder of its day");
    ground.remove(&loose);
    let named = file.replace("T0001-", "T0002-");
    ground.write(&named, &text);
    ground.assert_found(&named, "6.1", "its `id` is T0001");
}

#[test]
fn s06_2_a_task_starts_with_its_header() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    assert!(ground.read(&file).starts_with("---\nid: T0001\n"));
    let text = ground.read(&file);
    for (wrong, words) in [
        (format!("\n{text}"), "its first line must be `---`"),
        (text.replacen("---\n\n", "", 1), "never closed"),
    ] {
        ground.write(&file, wrong);
        ground.assert_found(&file, "6.2", words);
    }
}

const FIELDS: [&str; 8] =
    ["id", "title", "priority", "status", "assignee", "created_at", "dod_profile", "scope"];

#[test]
fn s06_2_every_required_field_is_written() {
    let ground = Ground::new();
    let odd = "A \"quoted\" title: with #, 'ticks' and \\ — ünïcode";
    let id = ground.task(odd, &["--priority", "P0", "--dod-profile", "make", "--may-touch", "tests/**"]);
    let header = ground.header(&ground.file(&id));
    for field in FIELDS {
        assert!(header.get(field).is_some_and(|value| !value.is_null()), "{field}");
    }
    assert_eq!(header["title"].as_str(), Some(odd));
    assert_eq!(header["priority"].as_str(), Some("P0"));
    assert_eq!(header["status"].as_str(), Some("NEW"));
    assert_eq!(header["dod_profile"].as_str(), Some("make"));
    assert_eq!(header["scope"]["must_touch"][0].as_str(), Some("src/**"));
    assert_eq!(header["scope"]["may_touch"][0].as_str(), Some("tests/**"));
    ground.assert_compliant();
}

#[test]
fn s06_2_a_task_without_a_required_field_is_found() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    let whole = ground.read(&file).replace(
        "scope:\n  must_touch:\n    - \"src/**\"\n  may_touch: []\n  must_not_touch: []\n",
        "scope: {must_touch: [src]}\n",
    );
    ground.write(&file, &whole);
    ground.assert_compliant();
    for field in FIELDS {
        let line = whole.lines().find(|line| line.starts_with(&format!("{field}: "))).expect("a line");
        ground.write(&file, whole.replacen(&format!("{line}\n"), "", 1));
        let findings = ground.lint();
        let found = findings.iter().any(|one| {
            one["file"] == *file
                && one["section"] == "6.2"
                && one["field"] == field
                && one["line"].is_number()
        });
        assert!(found, "{field}: {findings:#?}");
    }
}

#[test]
fn s06_2_a_field_that_holds_something_else_is_found() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    let whole = ground.read(&file);
    for (field, value) in [
        ("id", "seven"),
        ("title", "[a, list]"),
        ("priority", "P4"),
        ("priority", "high"),
        ("status", "new"),
        ("status", "FINISHED"),
        ("assignee", "no/body"),
        ("created_at", "yesterday"),
    ] {
        let line = whole.lines().find(|line| line.starts_with(&format!("{field}: "))).expect("a line");
        ground.write(&file, whole.replacen(line, &format!("{field}: {value}"), 1));
        let findings = ground.lint();
        let found = findings.iter().any(|one| one["file"] == *file && one["field"] == field);
        assert!(found, "{field}: {value}: {findings:#?}");
    }
}

#[test]
fn s06_2_recommended_fields_are_written_and_read() {
    let ground = Ground::new();
    let first = ground.task("First", &[]);
    let more = [
        "--label",
        "bug,accounting",
        "--depends-on",
        &first,
        "--context-file",
        "src/totals.ts",
        "--acceptance",
        "Totals match: all 10 cases",
        "--acceptance",
        "No regression",
        "--constraint",
        "No schema changes",
    ];
    let id = ground.task("Second", &more);
    let header = ground.header(&ground.file(&id));
    let shown = ground.ok(&["task", "show", &id, "--json"]).json()["task"].clone();
    for (field, items) in [
        ("labels", &["bug", "accounting"][..]),
        ("depends_on", &["T0001"]),
        ("context_files", &["src/totals.ts"]),
        ("acceptance", &["Totals match: all 10 cases", "No regression"]),
        ("constraints", &["No schema changes"]),
    ] {
        let written: Vec<&str> =
            header[field].as_sequence().expect("a list").iter().filter_map(|item| item.as_str()).collect();
        assert_eq!(written, items, "{field}");
        assert_eq!(shown[field], serde_json::json!(items), "{field}");
    }
    ground.assert_compliant();
    let said = ground.refused(2, &["task", "new", "--title", "x", "--depends-on", "T0099"]);
    said.assert_names(&["T0099", "no such task"]);
}

#[test]
fn s06_3_the_builder_is_told_what_it_may_change() {
    let ground = Ground::new();
    let text = ground.read(".kodingx/agents/codex.md");
    let scope = text.split_once("## Stay in scope").expect("a part").1.split_once("\n## ").expect("an end").0;
    assert!(scope.contains("Change only what matches `must_touch` or `may_touch`"), "{scope}");
}

#[test]
fn s06_3_the_builder_is_told_what_it_may_never_change() {
    let ground = Ground::new();
    let text = ground.read(".kodingx/agents/codex.md");
    let scope = text.split_once("## Stay in scope").expect("a part").1.split_once("\n## ").expect("an end").0;
    assert!(scope.contains("Never change what matches `must_not_touch`"), "{scope}");
}

#[test]
fn s06_3_the_builder_is_told_to_stop_and_to_ask_for_more() {
    let ground = Ground::new();
    let text = ground.read(".kodingx/agents/codex.md");
    for rule in ["needs more than the scope, stop there", "follow-up", "report `BLOCKED`", "follow_ups:"] {
        assert!(text.contains(rule), "the contract does not say {rule:?}");
    }
}

/// A scope that can't be held is refused when it is written, and found when somebody wrote it by hand.
#[test]
fn s06_3_a_scope_names_only_what_is_in_the_repository() {
    let ground = Ground::new();
    for flag in ["--must-touch", "--may-touch", "--must-not-touch"] {
        for glob in ["../x", "/etc/passwd", "a/../../b", "{a,../b}/c", "~/x", "!(a)", "!a", "[a", ""] {
            let said = ground.refused(2, &["task", "new", "--title", "x", flag, glob]);
            said.assert_names(&["scope.", "the glob"]);
        }
    }
    let id = ground.task("One", &[]);
    ground.edit(&ground.file(&id), "src/**", "../../etc/**");
    ground.assert_found(&ground.file(&id), "6.2", "escapes the repository");
}

#[test]
fn s06_3_assigning_a_task_can_give_it_a_scope() {
    let ground = Ground::new();
    let id = ground.task("One", &["--may-touch", "docs/**"]);
    ground.ok(&[
        "assign",
        &id,
        "--assignee",
        "claude-code",
        "--must-touch",
        "lib/**",
        "--must-touch",
        "Makefile",
    ]);
    let header = ground.header(&ground.file(&id));
    let globs = |name: &str| -> Vec<String> {
        let all = header["scope"][name].as_sequence().expect("a list").iter();
        all.map(|one| one.as_str().expect("a glob").to_owned()).collect()
    };
    assert_eq!(globs("must_touch"), ["lib/**", "Makefile"]);
    assert_eq!(globs("may_touch"), ["docs/**"], "what was not named stays");
    assert_eq!(header["assignee"].as_str(), Some("claude-code"));
    ground.assert_compliant();
    // A scope that reaches outside is refused with everything else.
    ground
        .refused(2, &["assign", &id, "--assignee", "codex", "--may-touch", "../x"])
        .assert_names(&["scope.may_touch", "../x"]);
    // What only a new task takes is not dropped in silence.
    for flag in [["--priority", "P0"], ["--acceptance", "x"], ["--risk", "R-001"], ["--body", "x"]] {
        ground
            .refused(2, &[&["assign", &id, "--assignee", "codex"][..], &flag].concat())
            .assert_names(&[flag[0], "is for a new task"]);
    }
    ground
        .refused(2, &["task", "new", "--title", "x", "--assignee", "unassigned"])
        .assert_names(&["has an assignee", "§6.2"]);
    ground
        .refused(2, &["task", "note", &id, "x", "--as", "agent:codex"])
        .assert_names(&["has no `task note`"]);
}
