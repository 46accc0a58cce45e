//! §15 to §17: the commands, what they promise about files, licence headers and versions.

use agency_tests::repository::actors;

use crate::ground::{Ground, TOOLS};

#[test]
fn s15_1_init_makes_a_board_and_its_adapter() {
    let ground = Ground::without_board(&[]);
    let document =
        ground.ok(&["init", "--orchestrator", "claude_code", "--builders", "codex", "--json"]).json();
    let made: Vec<&str> = document["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter_map(|file| file["path"].as_str())
        .collect();
    for file in [".kodingx/agency.json", ".kodingx/STATE.md", "CLAUDE.md"] {
        assert!(made.contains(&file) && ground.exists(file), "{file}: {made:?}");
    }
    assert!(made.iter().all(|file| ground.exists(file)), "{made:?}");
}

#[test]
fn s15_1_task_new_and_assign_make_tasks() {
    let ground = Ground::new();
    assert_eq!(ground.task("One", &[]), "T0001");
    assert_eq!(ground.status("T0001"), "NEW");
    ground.ok(&["assign", "--title", "Two", "--assignee", "claude-code", "--must-touch", "src/**"]);
    assert_eq!(ground.status("T0002"), "ASSIGNED");
    assert!(ground.file("T0002").contains("/claude-code/"));
    ground.assert_compliant();
    // Nobody to give it to is said, not guessed.
    let nobody = Ground::without_board(&[]);
    nobody.ok(&["init"]);
    nobody.refused(2, &["task", "new", "--title", "x"]).assert_names(&["no agent is named", "--assignee"]);
    nobody.refused(2, &["task", "new", "--title", "  "]).assert_names(&["title"]);
}

#[test]
fn s15_1_status_sums_up_state_inbox_and_outbox() {
    let ground = Ground::new();
    ground.profile("mine", &["true"]);
    let one = ground.reported("One", &["--dod-profile", "mine"]);
    ground.task("Two", &["--priority", "P0"]);
    ground.ok(&["verify", "--task", &one]);
    let said = ground.ok(&["status"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].starts_with("T0001") && lines[0].contains("READY_FOR_REVIEW"), "{said:?}");
    assert!(lines[1].starts_with("T0002  P0  NEW"), "{said:?}");
    assert!(
        lines[2].starts_with("1 NEW, 1 READY_FOR_REVIEW; 1 reports; last verified: T0001 pass"),
        "{said:?}"
    );
    let document = ground.ok(&["status", "--json"]).json();
    assert_eq!((&document["version"], &document["protocol"]), (&1.into(), &"kodingx".into()));
    assert_eq!(document["counts"]["READY_FOR_REVIEW"], 1);
    assert_eq!(document["last_verify"]["result"], "pass");
}

#[test]
fn s15_1_report_prints_the_latest_report() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.refused(4, &["report", &id]).assert_names(&["there is no report on T0001"]);
    ground.refused(4, &["report", "T0099"]).assert_names(&["there is no task T0099"]);
    let path = ground.report(&id, "BLOCKED");
    let said = ground.ok(&["report", &id]);
    assert_eq!(said.out, ground.read(&path));
    said.assert_names(&[&path]);
}

#[test]
fn s15_1_verify_runs_the_profile_writes_the_artifact_and_updates_state() {
    let ground = Ground::new();
    ground.profile("mine", &["echo the-output-of-it; exit 7"]);
    let id = ground.task("One", &["--dod-profile", "mine"]);
    let said = ground.agency(&["verify", "--task", &id]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["the-output-of-it", "exit code 7", "T0001: fail"]);
    let path = ground.header(".kodingx/STATE.md")["last_verify"]["artifact_path"].as_str().map(str::to_owned);
    assert_eq!(ground.json(&path.expect("a path"))["commands"][0]["exit_code"], 7);
    ground.refused(4, &["verify", "--task", "T0099"]).assert_names(&["there is no task T0099"]);
}

/// A finished task of long ago goes, with everything about it; an open one stays, however old.
#[test]
fn s15_1_archive_puts_old_finished_work_aside() {
    let ground = Ground::new();
    let old = |id: &str, status: &str| {
        ground.write(
            &format!(".kodingx/inbox/codex/2026-01-31/{id}-1610-x.md"),
            format!(
                "---\nid: {id}\ntitle: x\npriority: P1\nstatus: {status}\nassignee: codex\n\
                 created_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope: {{}}\n---\n"
            ),
        );
    };
    old("T0001", "DONE");
    old("T0002", "IN_PROGRESS");
    old("T0003", "CANCELED");
    let (report, artifact) = (ground.report("T0001", "READY_FOR_REVIEW"), ground.artifact("T0001", "pass"));
    let earlier = artifact.replace(".verify.json", ".verify.1.json");
    ground.write(&earlier, ground.read(&artifact).replace("\"pass\"", "\"fail\""));
    let young = ground.task("Young", &[]);
    ground.ok(&["task", "move", &young, "CANCELED"]);
    ground.ok(&["lint", "--fix"]);
    ground.assert_compliant();

    let document = ground.ok(&["archive", "--older-than", "30", "--json"]).json();
    assert_eq!(document["tasks"], serde_json::json!(["T0001", "T0003"]));
    for file in [".kodingx/inbox/codex/2026-01-31/T0001-1610-x.md", &report, &artifact, &earlier] {
        assert!(!ground.exists(file), "{file} is left behind");
        let aside = file.replacen(".kodingx/", ".kodingx/archive/", 1);
        assert!(ground.exists(&aside), "{aside}");
    }
    assert!(ground.file("T0002").starts_with(".kodingx/inbox/"));
    assert!(ground.file(&young).starts_with(".kodingx/inbox/"));
    // What is aside is still known: by its id, by its report, and as what others depend on.
    ground.assert_compliant();
    assert_eq!(ground.ok(&["task", "show", "T0001", "--json"]).json()["task"]["status"], "DONE");
    ground.ok(&["report", "T0001"]);
    ground.task("Next", &["--depends-on", "T0001"]);
    ground.refused(2, &["task", "move", "T0001", "CANCELED"]).assert_names(&["archived"]);
    ground.assert_compliant();
    ground.unchanged(0, &["archive", "--older-than", "30"]).assert_names(&["nothing is old enough"]);
}

#[test]
fn s15_2_making_files_again_changes_nothing() {
    for (tool, _) in TOOLS {
        let ground = Ground::without_board(&[("package.json", "{}"), ("AGENTS.md", "# Ours\n")]);
        ground.ok(&["init", "--orchestrator", tool, "--builders", "codex"]);
        ground.task("One", &[]);
        for again in [
            &["upgrade", "--full"][..],
            &["init", "--force"],
            &["install", "--force"],
            &["init", "--force", "--orchestrator", tool, "--builders", "codex"],
            &["upgrade", "--add", "adapter", "--add", "risks"],
            &["lint", "--fix"],
            &["migrate", "--to", "agency/1.0"],
        ] {
            ground.unchanged(0, again);
        }
    }
}

/// Everything a person wrote around what is generated is there after every kind of act.
#[test]
fn s15_2_text_outside_generated_regions_survives_every_act() {
    let ground = Ground::with_tool("claude_code");
    ground.write("CLAUDE.md", format!("# Ours\n\n{}\nAfterwards.\n", ground.read("CLAUDE.md")));
    ground.edit(".kodingx/STATE.md", "## Current Focus\n", "## Current Focus\n\nShip it.  \n\n\n");
    ground.edit(".kodingx/STATE.md", "updated_at:", "# a comment of a person\nmood: good\nupdated_at:");
    ground.edit(".kodingx/TASK_BOARD.md", "# Task board\n", "# Our board\n\nWelcome.\n");
    ground.write(".kodingx/TASK_BOARD.md", ground.read(".kodingx/TASK_BOARD.md") + "\nBye.\n");
    ground.write(
        ".kodingx/RISKS.md",
        ground.read(".kodingx/RISKS.md")
            + "\n### R-001: It breaks\n**Priority:** P3\n**Status:** OPEN\n\nOurs, too.\n",
    );
    let id = ground.task("One", &["--risk", "R-001"]);
    ground.ok(&["assign", &id, "--assignee", "claude-code"]);
    ground.ok(&["task", "move", &id, "CANCELED", "--reason", "x"]);
    for act in [&["upgrade", "--full"][..], &["init", "--force"], &["lint", "--fix"]] {
        ground.ok(act);
    }
    for (file, texts) in [
        ("CLAUDE.md", &["# Ours\n\n", "\nAfterwards.\n"][..]),
        (
            ".kodingx/STATE.md",
            &["## Current Focus\n\nShip it.  \n\n\n", "# a comment of a person\nmood: good\nupdated_at:"],
        ),
        (".kodingx/TASK_BOARD.md", &["# Our board\n\nWelcome.\n", "\nBye.\n"]),
        (".kodingx/RISKS.md", &["### R-001: It breaks\n**Priority:** P3\n", "\nOurs, too.\n"]),
    ] {
        for text in texts {
            assert!(ground.read(file).contains(text), "{file} lost {text:?}: {}", ground.read(file));
        }
    }
    ground.assert_compliant();
}

#[test]
fn s16_the_license_mode_is_one_of_three() {
    for mode in ["lexaplus", "community", "dual"] {
        let ground = Ground::without_board(&[]);
        ground.ok(&["init", "--license-mode", mode]);
        assert_eq!(ground.json(".kodingx/agency.json")["license_mode"], mode);
    }
    let ground = Ground::new();
    assert_eq!(ground.json(".kodingx/agency.json")["license_mode"], "community");
    ground.edit(".kodingx/agency.json", "\"community\"", "\"gratis\"");
    ground.refused(2, &["lint"]).assert_names(&[".kodingx/agency.json:", "`license_mode` is `gratis`"]);
    ground.edit(".kodingx/agency.json", "  \"license_mode\": \"gratis\",\n", "");
    ground.assert_found(".kodingx/agency.json", "16", "`license_mode` is missing");
}

#[test]
fn s16_generated_files_say_protocol_generator_and_license_mode() {
    for (tool, _) in TOOLS {
        let ground = Ground::without_board(&[("package.json", "{}")]);
        let arguments = ["--orchestrator", tool, "--builders", "codex", "--license-mode", "community"];
        ground.ok(&[&["install", "--github-workflow"], &arguments[..]].concat());
        for file in ground.files("") {
            if ["package.json", ".kodingx/agency.json"].contains(&file.as_str()) || file.ends_with(".gitkeep")
            {
                continue;
            }
            let text = ground.read(&file);
            let header = text.lines().find(|line| line.contains("Generated by KodingX Agency CLI"));
            let header = header.unwrap_or_else(|| panic!("{tool}: {file} has no header: {text}"));
            for part in ["protocol agency/1.0", "license_mode=community", "generator 0."] {
                assert!(header.contains(part), "{file}: {header}");
            }
            assert!(!header.contains("# #"), "{file}: {header}");
        }
    }
}

#[test]
fn s17_the_version_is_declared_in_manifest_and_state() {
    let ground = Ground::new();
    assert_eq!(ground.json(".kodingx/agency.json")["protocol"], "agency/1.0");
    assert_eq!(ground.header(".kodingx/STATE.md")["protocol"].as_str(), Some("agency/1.0"));
    ground.edit(".kodingx/STATE.md", "agency/1.0", "agency/1.1");
    ground.assert_found(".kodingx/STATE.md", "17", "differs from the manifest's");
    ground.edit(".kodingx/STATE.md", "protocol: \"agency/1.1\"\n", "");
    ground.assert_found(".kodingx/STATE.md", "8.1", "`protocol` is missing");
}

/// What a later minor version adds is read past, and kept.
#[test]
fn s17_a_newer_minor_version_is_read_and_its_fields_are_kept() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.edit(".kodingx/agency.json", "\"agency/1.0\"", "\"agency/1.7\",\n  \"novel\": {\"a\": [1]}");
    ground.edit(".kodingx/STATE.md", "agency/1.0", "agency/1.7");
    ground.edit(&ground.file(&id), "status: NEW", "novel: {a: [1]}\nstatus: NEW");
    ground.ok(&["task", "move", &id, "ASSIGNED"]);
    ground.ok(&["init", "--force", "--builders", "codex,gemini"]);
    assert_eq!(ground.json(".kodingx/agency.json")["novel"], serde_json::json!({"a": [1]}));
    assert!(ground.read(&ground.file(&id)).contains("novel: {a: [1]}\nstatus: ASSIGNED"));
    ground.assert_compliant();
}

#[test]
fn s17_migrate_goes_from_version_to_version_and_back() {
    let ground = Ground::new();
    ground.task("One", &[]);
    let before: Vec<(String, String)> =
        ground.files("").into_iter().map(|file| (file.clone(), ground.read(&file))).collect();
    let said = ground.ok(&["migrate", "--to", "agency/1.1", "--json"]).json();
    assert_eq!(
        (&said["from"], &said["to"], &said["changed"]),
        (&"agency/1.0".into(), &"agency/1.1".into(), &true.into())
    );
    assert_eq!(ground.json(".kodingx/agency.json")["protocol"], "agency/1.1");
    assert_eq!(ground.header(".kodingx/STATE.md")["protocol"].as_str(), Some("agency/1.1"));
    ground.assert_compliant();
    ground.ok(&["migrate", "--to", "agency/1.0"]);
    for (file, text) in before {
        assert_eq!(ground.read(&file), text, "{file}");
    }
}

/// There is no agency/2.0 yet: a clear refusal. The machinery is tried with a made-up step where it is.
#[test]
fn s17_migrate_to_a_version_that_does_not_exist_is_refused() {
    let ground = Ground::new();
    let said = ground.refused(2, &["migrate", "--to", "agency/2.0"]);
    said.assert_names(&["there is no way from agency/1.0 to agency/2.0", "agency/1.1"]);
    ground.refused(2, &["migrate", "--to", "2.0"]).assert_names(&["agency/1.1"]);
}

#[test]
fn s17_a_newer_major_version_is_refused() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.edit(".kodingx/agency.json", "agency/1.0", "agency/2.0");
    for command in [
        &["status"][..],
        &["lint"],
        &["task", "new", "--title", "x"],
        &["task", "move", &id, "CANCELED"],
        &["upgrade", "--full"],
        &["init", "--force"],
        &["verify", "--task", &id],
    ] {
        let said = ground.refused(2, command);
        said.assert_names(&[".kodingx/agency.json", "agency/2.0", "agency/1.x", "newer agency is needed"]);
        assert!(!said.err.contains("`agency init` makes a board"), "no help at all: {said:?}");
    }
}

/// Root helps in somebody's repository, and everything stays theirs.
#[test]
fn what_root_writes_into_somebodys_repository_is_theirs() {
    use std::os::unix::fs::MetadataExt;
    if actors().len() < 2 {
        return;
    }
    let files = [("Makefile", "check:\n\t@true\n")];
    let ground = Ground::of(agency_tests::repository::Actor::User, &files);
    let mut init = std::process::Command::new(agency_tests::adversary::agency());
    init.env("AGENCY_STATE_DIR", ground.state_home()).current_dir(ground.path());
    let output = init.args(["init", "--builders", "codex"]).output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let owner = std::fs::metadata(ground.path()).expect("a folder").uid();
    assert_ne!(owner, 0);
    for file in ground.files("") {
        let found = std::fs::metadata(ground.path().join(&file)).expect("a file").uid();
        assert_eq!(found, owner, "{file}");
    }
    ground.task("One", &[]);
    ground.assert_compliant();
}

/// Another user's repository is not looked at, unless the user's own git says that it is safe; and then it is only read.
#[test]
fn a_board_of_another_user_is_read_where_git_says_that_it_is_safe_and_never_written() {
    if actors().len() < 2 {
        return;
    }
    let theirs = Ground::of(agency_tests::repository::Actor::Root, &[]);
    theirs.ok(&["init", "--builders", "codex"]);
    let id = theirs.task("One", &[]);
    open_to_everybody(theirs.path());
    let reader = Ground::of(agency_tests::repository::Actor::User, &[]);
    let there = |arguments: &[&str], safe: &str| {
        let mut command = reader.command(arguments);
        command.current_dir(theirs.path()).env("GIT_CONFIG_COUNT", "1");
        command.env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", safe);
        agency_tests::ground::Said::from(command.output().expect("agency starts"))
    };
    let safe = theirs.path().display().to_string();
    for arguments in [&["status"][..], &["lint"], &["task", "list"], &["task", "show", &id]] {
        let refused = there(arguments, "/elsewhere");
        assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
        refused.assert_names(&["belongs to root", &format!("safe.directory {safe}")]);
        let said = there(arguments, &safe);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
    }
    let refused = there(&["task", "new", "--title", "x"], &safe);
    assert_eq!(refused.code, 2, "{refused:?}");
    refused.assert_names(&["belongs to root", "only read"]);
}

/// Lets everybody read a folder; nobody else may write it.
fn open_to_everybody(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("opened");
}
