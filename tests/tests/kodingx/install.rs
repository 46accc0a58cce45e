//! §22.1 to §22.4: a board beside what a repository has, byte by byte.

use std::collections::BTreeMap;

use agency_tests::tree::Tree;

use crate::ground::{Ground, TOOLS};

/// A repository that people have worked in for years.
const OLD: &[(&str, &str)] = &[
    (".cursorrules", "Be kind.\nNo trailing newline"),
    (".cursor/rules/x.mdc", "---\nalwaysApply: true\n---\nOurs.\n"),
    ("CLAUDE.md", "# For Claude\r\n\r\nBe brief.\r\n"),
    ("Makefile", "test:\n\ttrue\n"),
    ("package.json", "{\"name\": \"old\", \"scripts\": {\"test\": \"true\"}}\n"),
    (".github/workflows/ci.yml", "on: push\n"),
    (".gitignore", "node_modules/\n*.log\n"),
    ("src/index.js", "// code\n"),
];

/// What §22.3 lets grow at its end.
const APPENDED: [&str; 2] = [".cursorrules", "CLAUDE.md"];

fn old() -> Ground {
    let ground = Ground::without_board(OLD);
    ground.commit_all();
    ground
}

fn install(ground: &Ground, tool: &str, more: &[&str]) {
    ground.ok(&[&["install", "--orchestrator", tool, "--builders", "codex,claude-code"], more].concat());
}

fn contents(ground: &Ground) -> BTreeMap<String, String> {
    ground.files("").into_iter().map(|file| (file.clone(), ground.read(&file))).collect()
}

#[test]
fn s22_1_an_existing_codebase_keeps_every_byte_whatever_the_tool() {
    for (tool, path) in TOOLS {
        let ground = old();
        install(&ground, tool, &[]);
        let after = contents(&ground);
        for (file, text) in OLD {
            let now = &after[*file];
            if APPENDED.contains(file) {
                assert!(now.starts_with(text) && now.len() > text.len(), "{tool}: {file}: {now}");
            } else {
                assert_eq!(now, text, "{tool}: {file}");
            }
        }
        let ours =
            |file: &str| file.starts_with(".kodingx/") || file == path || file == ".cursor/rules/agency.mdc";
        let added: Vec<&String> = after
            .keys()
            .filter(|file| !OLD.iter().any(|(old, _)| old == file) && !ours(file))
            .filter(|file| tool != "aider" || *file != ".aider.conf.yml")
            .collect();
        assert!(added.is_empty(), "{tool}: {added:?}");
        ground.assert_compliant();
    }
}

/// Many repositories have one file of rules, and links to it for the other tools.
#[test]
fn s22_1_a_link_to_another_tools_rules_stays_one() {
    for (tool, _) in TOOLS {
        let ground = Ground::without_board(&[("AGENTS.md", "# Ours\n")]);
        for link in ["CLAUDE.md", ".cursorrules"] {
            std::os::unix::fs::symlink("AGENTS.md", ground.path().join(link)).expect("a link");
        }
        let arguments = ["install", "--orchestrator", tool, "--builders", "codex"];
        let said = ground.ok(&arguments);
        said.assert_names(&["kept .cursorrules: it is a link"]);
        match tool {
            "claude_code" => said.assert_names(&["changed AGENTS.md: `CLAUDE.md` is a link to it"]),
            _ => said.assert_names(&["kept CLAUDE.md: it is a link"]),
        }
        for link in ["CLAUDE.md", ".cursorrules"] {
            let target = std::fs::read_link(ground.path().join(link)).expect("still a link");
            assert_eq!(target, std::path::Path::new("AGENTS.md"), "{tool}");
        }
        assert!(ground.read("AGENTS.md").starts_with("# Ours\n"), "{tool}");
        ground.assert_compliant();
    }
}

#[test]
fn s22_2_init_makes_everything_and_may_write_its_own_files_anew() {
    let ground = old();
    ground.ok(&["init", "--orchestrator", "cursor", "--builders", "codex"]);
    let made = contents(&ground);
    ground.write(".cursor/rules/agency.mdc", "mangled");
    ground.write(".kodingx/PROTOCOL.md", "mangled");
    ground.refused(2, &["init"]).assert_names(&[".kodingx/ is there already", "--force"]);
    ground.ok(&["init", "--force"]);
    // What was there is never dropped.
    for file in [".cursor/rules/agency.mdc", ".kodingx/PROTOCOL.md"] {
        let saved = format!("{file}.saved-1");
        assert_eq!(ground.read(&saved), "mangled");
        ground.remove(&saved);
    }
    assert_eq!(contents(&ground), made);
}

#[test]
fn s22_2_install_minimal_makes_inbox_outbox_and_state() {
    let ground = old();
    install(&ground, "cursor", &["--minimal"]);
    let added: Vec<String> =
        ground.files("").into_iter().filter(|file| !OLD.iter().any(|(old, _)| old == file)).collect();
    assert_eq!(
        added,
        [".kodingx/STATE.md", ".kodingx/agency.json", ".kodingx/inbox/.gitkeep", ".kodingx/outbox/.gitkeep"]
    );
    for (file, text) in OLD {
        assert_eq!(ground.read(file), *text, "{file}");
    }
    // It is enough to work with.
    let id = ground.task("One", &[]);
    ground.ok(&["task", "move", &id, "ASSIGNED"]);
    ground.report(&id, "READY_FOR_REVIEW");
    assert_eq!(ground.ok(&["status", "--json"]).json()["reports"], 1);
    assert!(!ground.exists(".kodingx/TASK_BOARD.md"));
}

#[test]
fn s22_3_cursorrules_are_appended_to() {
    for (tool, _) in TOOLS {
        let ground = old();
        install(&ground, tool, &[]);
        let text = ground.read(".cursorrules");
        let added = text.strip_prefix("Be kind.\nNo trailing newline").expect("all of the old text");
        assert!(
            added.starts_with("\n\n<!-- agency:begin rules -->\n") && added.contains("## Role"),
            "{tool}"
        );
    }
}

#[test]
fn s22_3_rules_of_cursor_get_a_file_beside_them() {
    for (tool, _) in TOOLS {
        let ground = old();
        install(&ground, tool, &[]);
        assert_eq!(ground.files(".cursor"), [".cursor/rules/agency.mdc", ".cursor/rules/x.mdc"], "{tool}");
        assert_eq!(ground.read(".cursor/rules/x.mdc"), OLD[1].1);
    }
}

#[test]
fn s22_3_claude_md_gets_a_section_in_its_own_line_endings() {
    for (tool, _) in TOOLS {
        let ground = old();
        install(&ground, tool, &[]);
        let text = ground.read("CLAUDE.md");
        assert!(text.starts_with(OLD[2].1) && text.contains("## Role\r\n"), "{tool}");
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{tool}: mixed line endings");
    }
}

#[test]
fn s22_3_github_is_preserved_and_a_workflow_is_added_when_asked_for() {
    let ground = old();
    install(&ground, "cursor", &[]);
    assert_eq!(ground.files(".github"), [".github/workflows/ci.yml"]);
    let asked = old();
    install(&asked, "cursor", &["--github-workflow"]);
    assert_eq!(asked.files(".github"), [".github/workflows/agency.yml", ".github/workflows/ci.yml"]);
    assert_eq!(asked.read(".github/workflows/ci.yml"), "on: push\n");
    let workflow: serde_yaml::Value =
        serde_yaml::from_str(&asked.read(".github/workflows/agency.yml")).expect("YAML");
    assert!(workflow["on"].get("pull_request").is_some());
    // One of that name that is somebody else's stays theirs.
    let theirs = old();
    theirs.write(".github/workflows/agency.yml", "on: push # ours\n");
    install(&theirs, "cursor", &["--github-workflow"]);
    assert_eq!(theirs.read(".github/workflows/agency.yml"), "on: push # ours\n");
}

#[test]
fn s22_3_makefile_package_json_and_gitignore_are_not_touched() {
    let ground = old();
    let before = ["Makefile", "package.json", ".gitignore", "src"].map(|file| {
        let path = ground.path().join(file);
        (Tree::of(&path).expect("a file"), path)
    });
    for act in [&["install", "--orchestrator", "aider"][..], &["init", "--force"], &["upgrade", "--full"]] {
        ground.ok(act);
    }
    for (tree, path) in before {
        tree.assert_unchanged(&path);
    }
}

#[test]
fn s22_4_nothing_is_overwritten_without_force() {
    for (tool, path) in TOOLS {
        let ground = Ground::without_board(OLD);
        ground.write(path, "A person's own rules.\n");
        install(&ground, tool, &[]);
        let text = ground.read(path);
        assert!(text.starts_with("A person's own rules.\n"), "{tool}: {path} became {text}");
    }
}

/// Twice with the same wish is once, and what people wrote inside the board meanwhile stays.
#[test]
fn s22_4_adapter_files_only_grow_and_only_once() {
    for (tool, _) in TOOLS {
        let ground = old();
        install(&ground, tool, &[]);
        ground.task("One", &[]);
        ground.edit(".kodingx/STATE.md", "## Notes\n", "## Notes\n\nA person's note.\n");
        ground.write("CLAUDE.md", ground.read("CLAUDE.md") + "And after it.\r\n");
        for file in ["TASK_BOARD.md", "RISKS.md", "DECISIONS.md"] {
            let path = format!(".kodingx/{file}");
            ground.write(&path, ground.read(&path) + "\nOurs, at the end.\n");
        }
        for act in [
            &["upgrade", "--full"][..],
            &["init", "--force"],
            &["install", "--force"],
            &["install", "--force", "--orchestrator", tool],
        ] {
            ground.unchanged(0, act);
        }
    }
}

#[test]
fn s22_4_a_second_installation_fails_and_changes_nothing() {
    for (tool, _) in TOOLS {
        let ground = old();
        install(&ground, tool, &[]);
        for again in [
            &["install"][..],
            &["install", "--minimal"],
            &["install", "--github-workflow"],
            &["install", "--orchestrator", "windsurf"],
            &["init"],
        ] {
            ground.refused(2, again).assert_names(&[".kodingx/ is there already", "nothing was changed"]);
        }
    }
    // A folder of that name is enough: whose it is, is not ours to guess.
    let ground = Ground::without_board(&[(".kodingx/notes", "x")]);
    ground.refused(2, &["install"]).assert_names(&["nothing was changed"]);
}

#[test]
fn s22_4_nothing_is_committed() {
    let ground = old();
    let (head, objects) = (ground.git(&["rev-parse", "HEAD"]), ground.git(&["count-objects"]));
    install(&ground, "cursor", &["--github-workflow"]);
    ground.ok(&["init", "--force"]);
    let id = ground.task("One", &[]);
    ground.ok(&["task", "move", &id, "CANCELED"]);
    assert_eq!(ground.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(ground.git(&["count-objects"]), objects);
    assert_eq!(ground.git(&["diff", "--cached", "--name-only"]), "");
    assert_eq!(ground.git(&["branch", "--list"]), "* main\n");
}

#[test]
fn s22_4_nothing_of_ours_becomes_a_dependency() {
    for (tool, _) in TOOLS {
        let ground = old();
        install(&ground, tool, &["--github-workflow"]);
        assert_eq!(ground.read("package.json"), OLD[4].1);
        let executable = ground.files("").into_iter().find(|file| {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(ground.path().join(file)).expect("a file").permissions().mode();
            mode & 0o111 != 0
        });
        assert_eq!(executable, None, "{tool}");
    }
}

/// A board that a person made by hand: everything names one command, and the command works.
#[test]
fn a_board_without_a_manifest_gets_one() {
    let task = "---\nid: T0001\ntitle: Mine\npriority: P1\nstatus: NEW\nassignee: codex\n\
                created_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope: {must_touch: [src]}\n---\n";
    let path = ".kodingx/inbox/codex/2026-01-31/T0001-1610-mine.md";
    let checks = ("Makefile", "check:\n\t@true\n");
    let ground = Ground::without_board(&[(path, task), (".kodingx/RISKS.md", "# Mine\n"), checks]);
    for (code, command) in [
        (2, &["init"][..]),
        (2, &["install"]),
        (4, &["lint"]),
        (4, &["lint", "--fix"]),
        (4, &["status"]),
        (4, &["task", "list", "--protocol", "kodingx"]),
    ] {
        ground.refused(code, command).assert_names(&["`agency upgrade --full`"]);
    }
    ground.ok(&["upgrade", "--full"]);
    assert_eq!((ground.read(path).as_str(), ground.read(".kodingx/RISKS.md").as_str()), (task, "# Mine\n"));
    ground.ok(&["lint", "--fix"]);
    ground.assert_compliant();
    assert!(ground.ok(&["status"]).out.contains("T0001"));
    // One part alone needs the manifest, too.
    let ground = Ground::without_board(&[(path, task)]);
    ground.ok(&["upgrade", "--add", "risks"]);
    assert!(ground.exists(".kodingx/agency.json") && ground.exists(".kodingx/RISKS.md"));
}

/// Many repositories have one file of rules, and links to it for other tools.
#[test]
fn s22_3_a_link_to_the_rules_is_followed_inside_the_repository_and_stays_a_link() {
    let linked = |target: &str, tool: &str| {
        let ground = Ground::without_board(&[("AGENTS.md", "Be kind.\n"), ("docs/rules.md", "Be brave.\n")]);
        std::os::unix::fs::symlink(target, ground.path().join("CLAUDE.md")).expect("linked");
        ground.ok(&["install", "--orchestrator", tool]);
        assert_eq!(
            ground.path().join("CLAUDE.md").read_link().expect("a link"),
            std::path::Path::new(target)
        );
        ground
    };
    for tool in ["claude_code", "other"] {
        let ground = linked("AGENTS.md", tool);
        let text = ground.read("AGENTS.md");
        assert!(text.starts_with("Be kind.\n\n<!-- agency:begin rules -->\n"), "{tool}: {text}");
        assert_eq!(text.matches("agency:begin").count(), 1, "{tool}: {text}");
        ground.assert_compliant();
        for again in [&["upgrade", "--full"][..], &["install", "--force"]] {
            ground.unchanged(0, again);
        }
    }
    let ground = linked("docs/rules.md", "claude_code");
    assert!(ground.read("docs/rules.md").starts_with("Be brave.\n\n<!-- agency:begin rules -->\n"));
    assert!(!ground.read("AGENTS.md").contains("agency:begin"));
    ground.assert_compliant();
}

#[test]
fn s22_3_a_link_that_leads_elsewhere_is_refused_with_what_helps() {
    let outside = tempfile::tempdir().expect("a folder");
    let victim = outside.path().join("rules.md");
    std::fs::write(&victim, "theirs\n").expect("written");
    let far = victim.display().to_string();
    for (target, leads) in [
        (far.as_str(), "out of the repository"),
        ("../../outside.md", "out of the repository"),
        ("CLAUDE.md", "out of the repository"),
        (".git/hooks/post-checkout.md", "to .git/hooks/post-checkout.md"),
        ("Makefile", "to Makefile"),
        (".kodingx/STATE.md", "to .kodingx/STATE.md"),
    ] {
        let ground = Ground::without_board(&[("Makefile", "all:\n")]);
        std::os::unix::fs::symlink(target, ground.path().join("CLAUDE.md")).expect("linked");
        let said = ground.refused(2, &["install", "--orchestrator", "claude_code"]);
        said.assert_names(&[
            &format!("CLAUDE.md is a link that leads {leads}"),
            "in place of the link",
            "--orchestrator",
        ]);
        // A tool that has a file of its own leaves the link alone.
        let said = ground.ok(&["install", "--orchestrator", "cursor"]);
        said.assert_names(&["kept CLAUDE.md: it is a link, and what it leads to is left alone"]);
        assert_eq!(ground.read("Makefile"), "all:\n");
    }
    assert_eq!(std::fs::read_to_string(&victim).expect("read"), "theirs\n");
}

/// People write below what is generated, and between.
#[test]
fn s15_2_what_people_append_to_generated_files_survives_force() {
    for (tool, path) in TOOLS {
        let ground = Ground::without_board(&[("package.json", "{}")]);
        ground.ok(&["install", "--orchestrator", tool, "--builders", "codex", "--github-workflow"]);
        let all: Vec<String> = ground
            .files("")
            .into_iter()
            .filter(|file| ground.read(file).contains("agency:begin generated"))
            .collect();
        let whole = [".kodingx/PROTOCOL.md", ".kodingx/agents/codex.md", ".github/workflows/agency.yml"];
        assert!(whole.iter().all(|file| all.iter().any(|one| one == file)), "{tool}: {all:?}");
        assert!(ground.read(path).contains("agency:begin"), "{tool}");
        let mark = "# Mine \t, to the byte\n\n  no newline at the end";
        for file in &all {
            ground.write(file, ground.read(file) + mark);
        }
        for again in
            [&["init", "--force"][..], &["install", "--force", "--orchestrator", tool, "--github-workflow"]]
        {
            ground.unchanged(0, again);
        }
        // What is generated changes with the board, and nothing else does.
        ground.ok(&[
            "install",
            "--force",
            "--builders",
            "codex,gemini",
            "--license-mode",
            "dual",
            "--github-workflow",
        ]);
        for file in &all {
            let text = ground.read(file);
            assert!(text.ends_with(mark) && text.contains("license_mode=dual"), "{tool}: {file}: {text}");
        }
    }
}

#[test]
fn a_generated_file_of_an_older_version_is_saved_before_force_replaces_it() {
    let ground = Ground::without_board(&[]);
    ground.ok(&["install", "--builders", "codex"]);
    let (path, old) = (".kodingx/agents/codex.md", "# Written by an older version\n\nAnd this is mine.\n");
    ground.write(path, old);
    ground.ok(&["upgrade", "--full"]);
    assert_eq!(ground.read(path), old);
    let said = ground.ok(&["install", "--force"]);
    said.assert_names(&[&format!("changed {path}: what it was is in {path}.saved-1")]);
    assert_eq!(ground.read(&format!("{path}.saved-1")), old);
    assert!(ground.read(path).contains("agency:begin generated"));
    ground.unchanged(0, &["install", "--force"]);
}

#[test]
fn a_second_board_is_made_only_if_its_protocol_is_named() {
    let ground = Ground::without_board(&[]);
    ground.ok(&["init", "--protocol", "codifica"]);
    for verb in ["init", "install"] {
        for force in [&[][..], &["--force"]] {
            let said = ground.refused(2, &[&[verb][..], force].concat());
            said.assert_names(&[
                "this repository has a board of codifica already",
                "nothing was changed",
                &format!("`agency {verb} --protocol kodingx`"),
            ]);
        }
    }
    ground.ok(&["install", "--protocol", "kodingx", "--builders", "codex"]);
    assert!(ground.exists(".kodingx/agency.json"));
    // Either board that is broken is told, beside one that is not.
    let whole = ground.read("codifica.json");
    ground.write("codifica.json", "{\n");
    ground.assert_found("codifica.json", "3.1", "it is not JSON");
    let findings = ground.lint();
    assert!(findings.iter().any(|one| one["line"] == 2 && one["file"] == "codifica.json"), "{findings:#?}");
    ground.write("codifica.json", &whole);
    ground.write(".kodingx/agency.json", "{\n");
    ground.assert_found(".kodingx/agency.json", "5", "not valid JSON");
}
