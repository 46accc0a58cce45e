//! §4 and §5: where everything is, and the manifest.

use std::collections::BTreeSet;

use crate::ground::Ground;

#[test]
fn s04_the_board_is_made_at_the_root_of_the_repository() {
    let ground = Ground::without_board(&[("src/deep/er/file", "x")]);
    let mut init = ground.command(&["init", "--builders", "codex"]);
    let output = init.current_dir(ground.path().join("src/deep")).output().expect("agency starts");
    assert!(output.status.success(), "{output:?}");
    assert!(ground.exists(".kodingx/agency.json"));
    assert!(!ground.exists("src/deep/.kodingx"));
    let mut task = ground.command(&["task", "new", "--title", "From below"]);
    let output = task.current_dir(ground.path().join("src/deep/er")).output().expect("agency starts");
    assert!(output.status.success(), "{output:?}");
    ground.file("T0001");
}

#[test]
fn s04_every_part_of_the_layout_is_made() {
    let ground = Ground::without_board(&[("package.json", "{}")]);
    ground.ok(&["init", "--builders", "codex"]);
    for file in [
        "agency.json",
        "PROTOCOL.md",
        "STATE.md",
        "TASK_BOARD.md",
        "RISKS.md",
        "DECISIONS.md",
        "dod/profiles/node_strict.yml",
        "agents/codex.md",
        "templates/task.md",
        "templates/report.md",
    ] {
        assert!(ground.exists(&format!(".kodingx/{file}")), "{file}");
    }
    for folder in ["inbox", "outbox", "verify"] {
        assert!(ground.path().join(".kodingx").join(folder).is_dir(), "{folder}");
    }
    // A clone has the same layout: git keeps no empty folder.
    ground.commit_all();
    let kept: BTreeSet<String> = ground.git(&["ls-files"]).lines().map(str::to_owned).collect();
    for folder in ["inbox", "outbox", "verify", "dod/profiles"] {
        assert!(kept.iter().any(|file| file.starts_with(&format!(".kodingx/{folder}/"))), "{folder}");
    }
}

#[test]
fn s04_a_part_of_the_layout_that_is_missing_is_found() {
    let parts = [
        "STATE.md",
        "TASK_BOARD.md",
        "RISKS.md",
        "DECISIONS.md",
        "inbox",
        "outbox",
        "verify",
        "dod/profiles",
    ];
    for part in parts {
        let ground = Ground::without_board(&[("package.json", "{}")]);
        ground.ok(&["init", "--builders", "codex"]);
        let path = format!(".kodingx/{part}");
        ground.remove(&path);
        ground.assert_found(&path, "4", "missing");
        ground.ok(&["upgrade", "--full"]);
        ground.assert_compliant();
    }
}

#[test]
fn s04_folder_names_are_lowercase() {
    let ground = Ground::new();
    let folders = |ground: &Ground| -> Vec<String> {
        let files = ground.files(".kodingx");
        files.iter().filter_map(|file| Some(file.rsplit_once('/')?.0.to_owned())).collect()
    };
    ground.task("One", &["--assignee", "codex"]);
    for folder in folders(&ground) {
        assert_eq!(folder, folder.to_lowercase());
    }
    ground.write(".kodingx/Inbox/codex/2026-01-31/T0009-1610-x.md", "");
    ground.assert_found(".kodingx/Inbox", "4", "`inbox`");
}

#[test]
fn s04_folders_of_a_day_are_iso_dates() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    let created = ground.header(&file)["created_at"].as_str().expect("a time").to_owned();
    assert_eq!(file.split('/').nth(3), created.get(..10), "{file}");
    for wrong in ["31-01-2026", "2026-1-31", "2026-02-30", "today"] {
        let to = file.replace(&created[..10], wrong);
        ground.write(&to, ground.read(&file));
        ground.assert_found(&to, "6.1", "is no date");
        ground.remove(&to);
    }
    ground.assert_compliant();
}

#[test]
fn s04_times_in_names_are_four_digits_of_a_24_hour_clock() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    let created = ground.header(&file)["created_at"].as_str().expect("a time").to_owned();
    let hhmm = created[11..16].replace(':', "");
    assert!(file.ends_with(&format!("/{id}-{hhmm}-one.md")), "{file} of {created}");
    for wrong in ["2400", "1260", "410pm", "16-10", "161"] {
        let to = file.replace(&format!("-{hhmm}-"), &format!("-{wrong}-"));
        ground.write(&to, ground.read(&file));
        ground.remove(&file);
        ground.assert_found(&to, "6.1", "is not T{ID}-{HHMM}-{slug}");
        ground.write(&file, ground.read(&to));
        ground.remove(&to);
    }
    ground.assert_compliant();
}

const FIELDS: [&str; 8] = [
    "protocol",
    "project",
    "created_at",
    "license_mode",
    "orchestrator",
    "builders",
    "task_id_strategy",
    "defaults",
];

#[test]
fn s05_the_manifest_is_json_with_every_field() {
    let ground = Ground::with_tool("cursor");
    let manifest = ground.json(".kodingx/agency.json");
    for field in FIELDS {
        assert!(!manifest[field].is_null(), "{field}");
    }
    assert_eq!(manifest["protocol"], "agency/1.0");
    assert_eq!(manifest["project"], ground.path().file_name().expect("a name").to_string_lossy().as_ref());
    assert_eq!(manifest["orchestrator"], "cursor");
    assert_eq!(manifest["builders"], serde_json::json!(["codex", "claude-code"]));
    assert_eq!(manifest["defaults"]["dod_profile"], "auto");
    assert!(manifest["defaults"]["timezone"].is_string());
}

#[test]
fn s05_a_manifest_that_is_not_json_or_lacks_a_field_is_found() {
    let ground = Ground::new();
    let whole = ground.json(".kodingx/agency.json");
    for field in FIELDS {
        let mut manifest = whole.clone();
        manifest.as_object_mut().expect("an object").remove(field);
        ground.write(".kodingx/agency.json", manifest.to_string());
        if field == "protocol" {
            let said = ground.refused(2, &["lint"]);
            said.assert_names(&[".kodingx/agency.json:1", "`protocol` is missing", "§5"]);
        } else {
            let findings = ground.lint();
            let found =
                findings.iter().any(|one| one["file"] == ".kodingx/agency.json" && one["field"] == field);
            assert!(found, "{field}: {findings:?}");
        }
    }
    ground.write(".kodingx/agency.json", "{\n  \"protocol\": \"agency/1.0\",\n}\n");
    ground.refused(2, &["lint"]).assert_names(&[".kodingx/agency.json:3", "not valid JSON"]);
}

#[test]
fn s05_1_ids_are_sequential_by_default() {
    let ground = Ground::new();
    assert_eq!(ground.json(".kodingx/agency.json")["task_id_strategy"], "sequential");
    let ids: Vec<String> = (0..3).map(|number| ground.task(&format!("Task {number}"), &[])).collect();
    assert_eq!(ids, ["T0001", "T0002", "T0003"]);
    // The next number is the one after the highest, whatever is missing below and whoever made it.
    ground.remove(&ground.file("T0002"));
    ground.write(".kodingx/archive/inbox/codex/2026-01-31/T0041-1610-old.md", "not even a task");
    assert_eq!(ground.task("Next", &[]), "T0042");
    ground.write(".kodingx/inbox/codex/2026-01-31/T9999-1610-last.md", "");
    assert_eq!(ground.task("Five digits", &[]), "T10000");
}

#[test]
fn s05_1_ids_can_be_ulids() {
    let ground = Ground::new();
    ground.edit(".kodingx/agency.json", "\"sequential\"", "\"ulid\"");
    let ids: BTreeSet<String> = (0..5).map(|number| ground.task(&format!("Task {number}"), &[])).collect();
    assert_eq!(ids.len(), 5);
    for id in &ids {
        assert!(id.len() == 27 && id.starts_with("T0"), "{id}");
        assert_eq!(ground.ok(&["task", "show", id, "--json"]).json()["task"]["id"], id.as_str());
    }
    ground.assert_compliant();
}
