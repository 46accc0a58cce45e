//! §10 and §11: profiles, and the proof that they hold. The commands are trivial, the sandboxes real.

use agency_tests::repository::actors;

use crate::ground::{Ground, Said};

#[test]
fn s10_1_a_profile_has_a_name_a_description_and_commands() {
    let ground = Ground::new();
    let path = ".kodingx/dod/profiles/mine.yml";
    let id = ground.task("One", &["--dod-profile", "mine"]);
    for missing in ["name", "description", "commands"] {
        let whole = "name: mine\ndescription: d\ncommands: [\"true\"]\n";
        let line = whole.lines().find(|line| line.starts_with(missing)).expect("a line");
        ground.write(path, whole.replace(&format!("{line}\n"), ""));
        ground.assert_found(path, "10.1", &format!("`{missing}` is missing"));
        let said = ground.refused(2, &["verify", "--task", &id, "--trust"]);
        said.assert_names(&["mine.yml", missing, "missing"]);
    }
    // A profile that checks nothing would always hold.
    ground.write(path, "name: mine\ndescription: d\ncommands: []\n");
    ground.refused(2, &["verify", "--task", &id, "--trust"]).assert_names(&[
        "mine.yml",
        "`commands`",
        "empty",
    ]);
    ground.write(path, "name: mine\ndescription: [\n");
    ground.assert_found(path, "10.1", "not valid YAML");
    assert!(!ground.state().join("verify").exists(), "something ran");
}

#[test]
fn s10_1_environment_and_platform_may_be_given() {
    let ground = Ground::new();
    let path = ".kodingx/dod/profiles/mine.yml";
    let id = ground.task("One", &["--dod-profile", "mine"]);
    ground.write(
        path,
        "name: mine\ndescription: d\nenvironment: node\nplatform: linux\ncommands: [\"true\"]\n",
    );
    ground.ok(&["trust", "--yes"]);
    ground.assert_compliant();
    ground.ok(&["verify", "--task", &id, "--trust"]);
    ground.write(path, "name: mine\ndescription: d\nplatform: windows\ncommands: [\"true\"]\n");
    ground.refused(2, &["verify", "--task", &id, "--trust"]).assert_names(&["windows", "linux"]);
}

/// Every profile that `init` writes is whole, and one that a task names must be there.
#[test]
fn s10_1_profiles_that_are_scaffolded_comply_and_unknown_ones_are_found() {
    let manifests: &[(&str, &str)] = &[
        ("package.json", "{}"),
        ("pyproject.toml", ""),
        ("Cargo.toml", ""),
        ("go.mod", ""),
        ("pom.xml", ""),
    ];
    let ground = Ground::without_board(manifests);
    ground.ok(&["init", "--builders", "codex"]);
    let profiles = ground.files(".kodingx/dod/profiles");
    assert_eq!(profiles.len(), manifests.len(), "{profiles:?}");
    ground.assert_compliant();
    let id = ground.task("One", &["--dod-profile", "node_strickt"]);
    ground.assert_found(&ground.file(&id), "10", "there is no profile `node_strickt`");
    let said = ground.refused(2, &["verify", "--task", &id]);
    said.assert_names(&["node_strickt", "did you mean `node_strict`?"]);
}

#[test]
fn s10_2_auto_finds_the_environment_by_its_files() {
    for (file, environment, profile) in [
        ("package.json", "node", "node_strict"),
        ("pyproject.toml", "python", "python_strict"),
        ("requirements.txt", "python", "python_strict"),
        ("pubspec.yaml", "flutter", "flutter_strict"),
        ("Cargo.toml", "rust", "rust_strict"),
        ("go.mod", "go", "go_strict"),
    ] {
        let ground = Ground::without_board(&[(file, "")]);
        ground.ok(&["init", "--builders", "codex"]);
        assert_eq!(ground.json(".kodingx/agency.json")["repo_environment"], environment, "{file}");
        assert!(ground.exists(&format!(".kodingx/dod/profiles/{profile}.yml")), "{file}");
    }
    // The environment can be named instead.
    let ground = Ground::without_board(&[("package.json", "{}")]);
    ground.ok(&["init", "--builders", "codex", "--environment", "python"]);
    assert_eq!(ground.json(".kodingx/agency.json")["repo_environment"], "python");
    assert_eq!(ground.files(".kodingx/dod/profiles"), [".kodingx/dod/profiles/python_strict.yml"]);
}

#[test]
fn s10_2_a_task_with_profile_auto_is_verified_by_what_is_found() {
    let ground = Ground::without_board(&[("Makefile", "test:\n\ttest -f src/it\n"), ("src/it", "")]);
    ground.ok(&["init", "--builders", "codex"]);
    let id = ground.task("One", &[]);
    assert_eq!(ground.header(&ground.file(&id))["dod_profile"].as_str(), Some("auto"));
    let document = ground.ok(&["verify", "--task", &id, "--json"]).json();
    assert_eq!(document["proof"]["profile"], "make");
    assert_eq!(ground.json(document["artifact"].as_str().expect("a path"))["dod_profile"], "make");
    // Nothing to go by is an error, not a pass.
    ground.remove("Makefile");
    ground.refused(2, &["verify", "--task", &id]).assert_names(&["no environment was recognised"]);
}

/// A task with a profile of these commands, verified.
fn verified(ground: &Ground, commands: &[&str]) -> (String, Said) {
    ground.profile("mine", commands);
    let id = ground.task("One", &["--dod-profile", "mine"]);
    let said = ground.agency(&["verify", "--task", &id, "--json"]);
    (id, said)
}

#[test]
fn s11_1_verify_writes_its_artifact() {
    for actor in actors() {
        let ground = Ground::of(actor, &[]);
        ground.ok(&["init", "--builders", "codex"]);
        let (id, said) = verified(&ground, &["true", "echo seen && exit 3", "echo later"]);
        assert_eq!(said.code, 10, "{said:?}");
        let document = said.json();
        let path = document["artifact"].as_str().expect("a path");
        let artifact = ground.json(path);
        let (day, task) = (&artifact["timestamp"].as_str().expect("a time")[..10], ground.file(&id));
        let stem = task.rsplit('/').next().expect("a name").strip_suffix(".md").expect("a task");
        assert_eq!(path, format!(".kodingx/verify/{day}/{stem}.verify.json"));
        for (field, value) in
            [("protocol", "agency/1.0"), ("task_id", &id), ("dod_profile", "mine"), ("result", "fail")]
        {
            assert_eq!(artifact[field], value, "{field}");
        }
        assert!(artifact["notes"].is_array());
        let commands = artifact["commands"].as_array().expect("commands");
        let seen: Vec<_> =
            commands.iter().map(|one| (one["cmd"].as_str(), one["exit_code"].as_i64())).collect();
        assert_eq!(
            seen,
            [(Some("true"), Some(0)), (Some("echo seen && exit 3"), Some(3)), (Some("echo later"), Some(0))]
        );
        assert!(commands.iter().all(|one| one["duration_ms"].is_u64()), "{commands:?}");
        ground.assert_compliant();
    }
}

#[test]
fn s11_1_the_artifact_binds_what_was_tried() {
    let ground = Ground::new();
    ground.write("src/it", "one\n");
    ground.commit_all();
    let (id, said) = verified(&ground, &["test -f src/it", "touch src/made"]);
    assert_eq!(said.code, 0, "{said:?}");
    let path = said.json()["artifact"].as_str().expect("a path").to_owned();
    let first = ground.json(&path);
    assert_eq!(first["commit"], ground.git(&["rev-parse", "HEAD"]).trim());
    assert_eq!((&first["dirty"], &first["isolation"]), (&true.into(), &"process".into()));
    assert!(first["attestation"]["controls"].as_array().is_some_and(|controls| controls.len() > 10));
    // What the commands write is thrown away, and the next command does not see it.
    assert!(!ground.exists("src/made"));
    ground.write("src/it", "two\n");
    ground.ok(&["verify", "--task", &id]);
    let second = ground.json(&path);
    assert_ne!(first["tree"], second["tree"]);
    assert_eq!(first["profile_hash"], second["profile_hash"]);
}

#[test]
fn s11_1_a_second_verification_of_the_day_keeps_the_first() {
    let ground = Ground::new();
    ground.write("src/it", "");
    let (id, said) = verified(&ground, &["test -f src/it"]);
    assert_eq!(said.code, 0, "{said:?}");
    let path = said.json()["artifact"].as_str().expect("a path").to_owned();
    let first = ground.read(&path);
    ground.remove("src/it");
    assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10);
    let second = ground.read(&path);
    ground.write("src/it", "");
    ground.ok(&["verify", "--task", &id]);
    assert_eq!(ground.json(&path)["result"], "pass");
    let kept: Vec<String> = ground
        .files(".kodingx/verify")
        .into_iter()
        .filter(|file| *file != path && !file.ends_with(".gitkeep"))
        .map(|file| ground.read(&file))
        .collect();
    // Across midnight each has a place of its own, and the rest of this test has nothing to say.
    if kept.len() == 2 {
        assert_eq!(kept, [first, second]);
    }
    ground.assert_compliant();
}

#[test]
fn s11_2_a_verification_updates_state_whatever_it_came_to() {
    let ground = Ground::new();
    for (command, result, code) in [("true", "pass", 0), ("false", "fail", 10)] {
        let (id, said) = verified(&ground, &[command]);
        assert_eq!(said.code, code, "{said:?}");
        let last = ground.header(".kodingx/STATE.md")["last_verify"].clone();
        assert_eq!(last["task_id"].as_str(), Some(id.as_str()));
        assert_eq!(last["result"].as_str(), Some(result));
        assert_eq!(last["artifact_path"].as_str(), said.json()["artifact"].as_str());
        // A verification says what is so; it moves nothing.
        assert_eq!(ground.status(&id), "NEW");
    }
}

#[test]
fn s11_2_a_task_that_passed_and_is_reported_can_be_done() {
    for actor in actors() {
        let ground = Ground::of(actor, &[]);
        ground.ok(&["init", "--builders", "codex"]);
        ground.profile("mine", &["true"]);
        let id = ground.task("One", &["--dod-profile", "mine"]);
        ground.ok(&["assign", &id, "--assignee", "codex"]);
        ground.ok(&["task", "move", &id, "IN_PROGRESS", "--as", "agent:codex"]);
        ground.report(&id, "READY_FOR_REVIEW");
        ground.ok(&["task", "move", &id, "READY_FOR_REVIEW", "--as", "agent:codex"]);
        ground.ok(&["verify", "--task", &id]);
        ground.ok(&["task", "move", &id, "DONE"]);
        assert_eq!(ground.header(".kodingx/STATE.md")["done_tasks_recent"][0].as_str(), Some("T0001"));
        ground.assert_compliant();
    }
}

#[test]
fn s11_2_a_task_that_failed_cannot_be_done() {
    let ground = Ground::new();
    ground.profile("mine", &["false"]);
    let id = ground.reported("One", &["--dod-profile", "mine"]);
    assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10);
    for actor in ["orchestrator", "human:Ada", "agent:codex"] {
        ground.refused(2, &["task", "move", &id, "DONE", "--as", actor]);
    }
    assert_eq!(ground.status(&id), "READY_FOR_REVIEW");
}

/// What says `pass` is not believed on its own: it names commands, they passed, and it was made after the work.
#[test]
fn s09_2_an_artifact_that_contradicts_itself_opens_nothing() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    let path = ground.artifact(&id, "pass");
    let whole = ground.read(&path);
    for (from, to, words) in [
        (
            "[{\"cmd\":\"make test\",\"exit_code\":0,\"duration_ms\":12}]".to_owned(),
            "[]".to_owned(),
            "names no commands (§11.1)",
        ),
        (
            "\"exit_code\":0".to_owned(),
            "\"exit_code\":1".to_owned(),
            "`make test` ended with exit code 1 (§11.2)",
        ),
        ("\"exit_code\":0".to_owned(), "\"code\":0".to_owned(), "`make test` has no exit code (§11.2)"),
        (
            "2026-01-31T16:58:00+01:00".to_owned(),
            "2026-01-31T16:44:59+01:00".to_owned(),
            "its report was finished later",
        ),
        (
            "2026-01-31T16:58:00+01:00".to_owned(),
            "2999-01-01T00:00:00Z".to_owned(),
            "which is in the future (§11.1)",
        ),
        ("2026-01-31T16:58:00+01:00".to_owned(), "yesterday".to_owned(), "which is no time (§11.1)"),
    ] {
        assert!(whole.contains(&from), "{whole}");
        ground.write(&path, whole.replacen(&from, &to, 1));
        let said = ground.refused(2, &["task", "move", &id, "DONE"]);
        said.assert_names(&[&format!("{id} can't be DONE"), words, &path, "agency verify --task"]);
    }
    ground.write(&path, whole);
    ground.ok(&["task", "move", &id, "DONE"]);
    ground.assert_compliant();
    // A board that says so all the same does not comply.
    ground.edit(&path, "\"exit_code\":0", "\"exit_code\":1");
    ground.assert_found(&ground.file(&id), "9.2", "`make test` ended with exit code 1");
}
