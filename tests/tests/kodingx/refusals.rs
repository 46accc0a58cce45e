//! Bad input: each is told by name, with the code for it, and nothing is rewritten. What is wrong with one
//! file hides none of the others.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use agency_tests::tree::Tree;
use serde_json::Value;

use crate::ground::{Ground, Said};

/// A board with two good tasks.
fn board() -> Ground {
    let ground = Ground::new();
    ground.task("Good", &[]);
    ground.task("Fine", &[]);
    ground
}

const BAD: &str = ".kodingx/inbox/codex/2026-01-31/T0009-1610-bad.md";

fn bad_task(ground: &Ground) -> String {
    ground.read(&ground.file("T0001")).replace("T0001", "T0009")
}

/// The bad file is named and the good tasks are listed all the same, by everything that lists.
#[track_caller]
fn assert_named_beside_the_good(ground: &Ground, file: &str, words: &[&str]) {
    for command in [&["status"][..], &["task", "list"]] {
        let said = ground.unchanged(10, command);
        assert!(said.out.contains("T0001") && said.out.contains("T0002"), "{said:?}");
        said.assert_names(&[&[file], words].concat());
    }
    let found = |document: Value| {
        let findings = document["findings"].as_array().expect("findings").clone();
        assert!(findings.iter().any(|one| one["file"] == file), "{findings:#?}");
    };
    found(ground.unchanged(10, &["status", "--json"]).json());
    found(ground.unchanged(10, &["lint", "--json"]).json());
    // And they can still be worked on.
    ground.ok(&["task", "move", "T0002", "ASSIGNED"]);
}

#[test]
fn a_malformed_task_is_named_with_line_and_field() {
    for (from, to, line, field) in [
        ("priority: P2", "priority: P9", 4, "`priority`"),
        ("status: NEW", "status: NEW NOW", 5, "`status`"),
        ("title: \"Good\"", "title: \"Good", 3, "`title`"),
        ("assignee: codex\n", "", 13, "`assignee`"),
        ("id: T0009", "id: [T0009]", 2, "`id`"),
        ("status: NEW", "status: NEW\nstatus: DONE", 6, "`status` is there twice"),
    ] {
        let ground = board();
        ground.write(BAD, bad_task(&ground).replacen(from, to, 1));
        assert_named_beside_the_good(&ground, BAD, &[&format!("{BAD}:{line}: "), field, "§6.2"]);
    }
    for (text, words) in [
        ("", "its first line must be `---`"),
        ("no header", "its first line must be `---`"),
        ("---\nid: T0009\n", "never closed"),
        ("---\n- a list\n---\n", "expected `key: value`"),
    ] {
        let ground = board();
        ground.write(BAD, text);
        assert_named_beside_the_good(&ground, BAD, &[words]);
        ground.refused(2, &["task", "move", "T0009", "CANCELED"]).assert_names(&[BAD]);
        ground.refused(2, &["task", "show", "T0009"]).assert_names(&[BAD]);
    }
}

#[test]
fn two_tasks_with_one_id_are_both_named_and_renumber_mends_it() {
    let ground = board();
    let twin = ".kodingx/inbox/codex/2026-01-31/T0002-1610-twin.md";
    ground.write(twin, ground.read(&ground.file("T0002")).replace("\"Fine\"", "\"Twin\""));
    let own: Vec<String> =
        ground.files(".kodingx/inbox").into_iter().filter(|f| f.contains("T0002")).collect();
    for command in [
        &["task", "show", "T0002"][..],
        &["task", "move", "T0002", "CANCELED"],
        &["assign", "T0002", "--assignee", "claude-code"],
        &["verify", "--task", "T0002"],
        &["report", "T0002"],
    ] {
        ground.refused(2, command).assert_names(&[&own[0], &own[1], "agency task renumber"]);
    }
    for file in &own {
        ground.assert_found(file, "5.1", "is also the id of");
    }
    assert_eq!(ground.ok(&["task", "renumber", twin]).out, "T0003 NEW codex\n");
    let renumbered = twin.replace("T0002", "T0003");
    assert_eq!(ground.header(&renumbered)["id"].as_str(), Some("T0003"));
    assert!(!ground.exists(twin));
    ground.ok(&["task", "show", "T0002"]);
    ground.assert_compliant();
    ground.refused(4, &["task", "renumber", ".kodingx/STATE.md"]).assert_names(&[".kodingx/STATE.md"]);
    ground.refused(4, &["task", "renumber", "/etc/passwd"]).assert_names(&["/etc/passwd"]);
}

#[test]
fn tasks_that_wait_for_each_other_are_found() {
    let ground = board();
    let wait = |id: &str, others: &str| {
        ground.edit(&ground.file(id), "status: NEW", &format!("depends_on: [{others}]\nstatus: NEW"));
    };
    wait("T0001", "T0002");
    ground.assert_compliant();
    wait("T0002", "T0001");
    ground.assert_found(&ground.file("T0001"), "6.2", "T0001 → T0002 → T0001");
    let alone = ground.task("Alone", &[]);
    wait(&alone, &alone);
    ground.assert_found(&ground.file(&alone), "6.2", "T0003 → T0003");
    let missing = ground.task("Missing", &[]);
    wait(&missing, "T0099");
    ground.assert_found(&ground.file(&missing), "6.2", "there is no task T0099");
}

#[test]
fn an_unknown_status_is_refused_where_it_is_typed_and_named_where_it_is_written() {
    let ground = board();
    let said = ground.refused(2, &["task", "move", "T0001", "FINISHED"]);
    said.assert_names(&["`FINISHED`", "READY_FOR_REVIEW"]);
    ground.refused(2, &["task", "list", "--status", "FINISHED"]).assert_names(&["`FINISHED`"]);
    ground.write(BAD, bad_task(&ground).replace("status: NEW", "status: FINISHED"));
    assert_named_beside_the_good(&ground, BAD, &[":5: `status` is `FINISHED`"]);
}

#[test]
fn a_scope_that_escapes_is_refused_where_it_is_typed_and_named_where_it_is_written() {
    let ground = board();
    let said = ground.refused(2, &["task", "new", "--title", "x", "--may-touch", "../../etc/**"]);
    said.assert_names(&["`scope.may_touch`", "`../../etc/**`", "escapes"]);
    let said = ground.refused(2, &["assign", "--title", "x", "--must-touch", "/etc/**"]);
    said.assert_names(&["`scope.must_touch`", "`/etc/**`", "escapes"]);
    ground.write(BAD, bad_task(&ground).replace("src/**", "../../etc/**"));
    assert_named_beside_the_good(&ground, BAD, &[":9: `scope.must_touch`", "escapes"]);
}

#[test]
fn a_broken_manifest_is_told_with_its_line_and_is_not_replaced() {
    for (text, words) in [
        ("", ":1: it is not valid JSON"),
        ("{\n\"protocol\": \"agency/1.0\"\n\"x\": 1}", ":3: it is not valid JSON"),
        ("{\"protocol\": 1}", ":1: `protocol` must be text"),
        ("{\"protocol\": \"kodingx\"}", "`protocol` is `kodingx`"),
        ("{\"protocol\": \"agency/1.0\",\n\"builders\": [\"../x\"]}", ":2: `builders` holds a wrong name"),
        (
            "{\"protocol\": \"agency/1.0\",\n\"task_id_strategy\": \"dice\"}",
            ":2: `task_id_strategy` is `dice`",
        ),
        ("{\"protocol\": \"agency/1.0\", \"defaults\": {\"timezone\": \"Mars\"}}", "`timezone` is `Mars`"),
        ("[]", "`protocol` is missing"),
    ] {
        let ground = board();
        ground.write(".kodingx/agency.json", text);
        for command in [
            &["status"][..],
            &["lint", "--fix"],
            &["task", "new", "--title", "x"],
            &["init", "--force"],
            &["upgrade", "--full"],
            &["archive", "--older-than", "1"],
        ] {
            let said = ground.refused(2, command);
            said.assert_names(&[".kodingx/agency.json", words]);
            assert!(!said.err.contains("`agency init` makes a board"), "no help at all: {said:?}");
        }
    }
    let ground = board();
    ground.write(".kodingx/agency.json", b"{\"protocol\": \"\xff\"}");
    ground.refused(2, &["status"]).assert_names(&[".kodingx/agency.json", "not UTF-8"]);
}

#[test]
fn a_name_that_leads_elsewhere_is_no_agent() {
    let ground = board();
    for name in ["../x", "a/b", "..", ".", "", "-rf", "a b", "x\n"] {
        for command in [
            &["task", "new", "--title", "x", "--assignee", name][..],
            &["assign", "T0001", "--assignee", name],
            &["task", "list", "--assignee", name],
            &["init", "--force", "--builders", name],
        ] {
            ground.refused(2, command);
        }
        ground.refused(2, &["task", "move", "T0001", "ASSIGNED", "--as", &format!("agent:{name}")]);
    }
    ground.write(BAD, bad_task(&ground).replace("assignee: codex", "assignee: ../../../tmp"));
    assert_named_beside_the_good(&ground, BAD, &[":6: `assignee`", "`../../../tmp`"]);
    ground.refused(2, &["task", "show", "../../etc/passwd"]);
    ground.refused(2, &["report", "../../etc/passwd"]);
}

/// Something that is not a regular file, in place of one.
#[derive(Debug, Clone, Copy)]
enum Instead {
    LinkOut,
    LinkToNothing,
    Pipe,
}

impl Instead {
    /// Puts it in the place of a file or folder; where the old one went.
    fn put(self, ground: &Ground, name: &str) -> PathBuf {
        let (path, aside) = (ground.path().join(name), ground.user().join("aside"));
        if path.exists() {
            std::fs::rename(&path, &aside).expect("moved");
        }
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        match self {
            Instead::LinkOut => symlink(&aside, &path).expect("a link"),
            Instead::LinkToNothing => symlink("/nowhere/at/all", &path).expect("a link"),
            Instead::Pipe => {
                let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
                nix::unistd::mkfifo(&path, mode).expect("a pipe");
            }
        }
        aside
    }

    fn said_as(self) -> &'static str {
        match self {
            Instead::LinkOut | Instead::LinkToNothing => "is a link",
            Instead::Pipe => "is not a regular file",
        }
    }
}

const INSTEAD: [Instead; 3] = [Instead::LinkOut, Instead::LinkToNothing, Instead::Pipe];

#[test]
fn a_link_or_a_pipe_in_place_of_a_task_is_named() {
    for instead in INSTEAD {
        let ground = board();
        ground.write(".kodingx/inbox/codex/2026-01-31/.gitkeep", "");
        let aside = instead.put(&ground, BAD);
        std::fs::write(&aside, bad_task(&ground)).expect("written");
        for command in [&["status"][..], &["lint"], &["task", "list"]] {
            let said = ground.agency(command);
            assert_eq!(said.code, 10, "{instead:?}: {command:?}: {said:?}");
            let told = [said.out.as_str(), said.err.as_str()].concat();
            assert!(told.contains(BAD) && told.contains(instead.said_as()), "{instead:?}: {said:?}");
        }
        let said = ground.agency(&["task", "move", "T0009", "CANCELED"]);
        assert_eq!(said.code, 2, "{instead:?}: {said:?}");
        assert_eq!(std::fs::read_to_string(&aside).expect("text"), bad_task(&ground), "{instead:?}");
        // Its number is taken, whatever it is.
        assert_eq!(ground.task("Next", &[]), "T0010", "{instead:?}");
    }
}

#[test]
fn a_link_or_a_pipe_in_place_of_a_file_of_the_board_is_named_and_not_followed() {
    for file in ["agency.json", "STATE.md", "TASK_BOARD.md", "inbox"] {
        for instead in INSTEAD {
            // A folder is read as one, or not at all.
            if file == "inbox" && matches!(instead, Instead::Pipe) {
                continue;
            }
            let ground = board();
            let name = format!(".kodingx/{file}");
            let aside = instead.put(&ground, &name);
            let outside = Tree::of(&aside).expect("the old one");
            for command in [
                &["task", "new", "--title", "x"][..],
                &["task", "move", "T0001", "CANCELED"],
                &["lint", "--fix"],
                &["init", "--force"],
            ] {
                let said = ground.refused(2, command);
                said.assert_names(&[&name, instead.said_as()]);
            }
            outside.assert_unchanged(&aside);
        }
    }
}

#[test]
fn a_board_behind_a_link_is_none() {
    let ground = board();
    let aside = Instead::LinkOut.put(&ground, ".kodingx");
    let outside = Tree::of(&aside).expect("the old one");
    for (command, code) in [
        (&["status"][..], 2),
        (&["task", "new", "--title", "x"], 2),
        (&["init"], 2),
        (&["init", "--force"], 2),
        (&["install"], 2),
    ] {
        let said = ground.refused(code, command);
        said.assert_names(&[".kodingx", "is a link"]);
    }
    outside.assert_unchanged(&aside);
}

#[test]
fn a_task_of_100_megabytes_is_named_and_not_read() {
    let ground = board();
    ground.write(BAD, bad_task(&ground));
    let file = std::fs::File::options().write(true).open(ground.path().join(BAD)).expect("opened");
    file.set_len(100 << 20).expect("grown");
    let before = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
    for (command, code) in [
        (&["status"][..], 10),
        (&["task", "list"], 10),
        (&["task", "move", "T0009", "CANCELED"], 2),
        (&["task", "show", "T0009"], 2),
    ] {
        let said = ground.agency(command);
        assert_eq!(said.code, code, "{said:?}");
        said.assert_names(&[BAD, "larger than 64 MiB"]);
        assert_eq!(code == 10, said.out.contains("T0001"), "{said:?}");
    }
    let after = file.metadata().expect("a file");
    assert_eq!((after.len(), after.modified().expect("a time")), (100 << 20, before));
    ground.ok(&["task", "move", "T0002", "ASSIGNED"]);
}

#[test]
fn a_file_that_is_not_text_is_named_with_its_line() {
    let ground = board();
    let text = bad_task(&ground).replace("\"Good\"", "\"Bad \u{1}\"");
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == 1 { 0xff } else { byte }).collect();
    ground.write(BAD, &bytes);
    assert_named_beside_the_good(&ground, BAD, &[&format!("{BAD}:3: "), "not UTF-8"]);
    ground.refused(2, &["task", "move", "T0009", "CANCELED"]).assert_names(&[BAD, "not UTF-8"]);
    assert_eq!(std::fs::read(ground.path().join(BAD)).expect("bytes"), bytes);
    ground.remove(BAD);
    // The same of everything else that lint reads: it is a finding, and the others are found too.
    for file in [
        ".kodingx/dod/profiles/bad.yml",
        ".kodingx/verify/2026-01-31/T0001-1610-good.verify.json",
        ".kodingx/outbox/codex/2026-01-31/T0001-1610-good-report.md",
        ".kodingx/STATE.md",
        ".kodingx/RISKS.md",
        ".kodingx/DECISIONS.md",
        ".kodingx/TASK_BOARD.md",
        "AGENTS.md",
    ] {
        let ground = board();
        ground.write(BAD, "");
        ground.write(file, [b'a', b'\n', 0xff]);
        let findings = ground.lint();
        for wanted in [file, BAD] {
            assert!(findings.iter().any(|one| one["file"] == wanted), "{file}: {findings:#?}");
        }
    }
}

#[test]
fn no_board_is_said_with_a_hint() {
    let ground = Ground::without_board(&[("README.md", "x")]);
    for command in [
        &["status"][..],
        &["lint"],
        &["task", "list"],
        &["task", "new", "--title", "x"],
        &["assign", "T0001", "--assignee", "codex"],
        &["report", "T0001"],
        &["verify", "--task", "T0001"],
        &["archive", "--older-than", "1"],
        &["migrate", "--to", "agency/1.1"],
        &["upgrade", "--full"],
        &["status", "--protocol", "kodingx"],
    ] {
        ground.refused(4, command).assert_names(&["there is no board", "`agency init`"]);
    }
}

#[test]
fn several_protocols_need_a_choice() {
    let ground = board();
    ground.write("codifica.json", "{}");
    let said = ground.refused(2, &["task", "new", "--title", "x"]);
    said.assert_names(&["kodingx, codifica", "--protocol NAME"]);
    assert_eq!(ground.ok(&["task", "new", "--title", "x", "--protocol", "kodingx"]).out, "T0003\n");
    let mut chosen = ground.command(&["task", "new", "--title", "x"]);
    let said: Said = chosen.env("AGENCY_PROTOCOL", "kodingx").output().expect("agency starts").into();
    assert_eq!(said.code, 0, "{said:?}");
    ground.refused(2, &["task", "list", "--protocol", "kanban"]).assert_names(&["kanban", "codifica"]);
}

#[test]
fn a_choice_of_protocol_can_be_configured() {
    let ground = board();
    ground.write("codifica.json", "{}");
    ground.write("agency.toml", "[run]\nprotocol = \"kodingx\"\n");
    assert_eq!(ground.ok(&["task", "new", "--title", "x"]).out, "T0003\n");
}

#[test]
fn an_unknown_key_of_the_configuration_is_named_with_the_nearest_known_one() {
    let ground = board();
    ground.profile("mine", &["true"]);
    ground.edit(&ground.file("T0001"), "dod_profile: auto", "dod_profile: mine");
    for (text, words) in [
        ("[run]\nparalel = 1\n", &["agency.toml:2", "`run.paralel`", "`run.parallel`"][..]),
        ("[agents.codex]\n\ntimout = \"1m\"\n", &["agency.toml:3", "`agents.codex.timeout`"]),
        ("[run]\nparallel = 0\n", &["agency.toml:2", "a number above zero"]),
        ("[run\n", &["agency.toml:1", "not valid TOML"]),
    ] {
        ground.write("agency.toml", text);
        ground.refused(2, &["verify", "--task", "T0001"]).assert_names(words);
    }
    assert!(!ground.state().join("verify").exists(), "something ran");
}

/// What a file says is told, and can't speak to the terminal.
#[test]
fn a_file_that_holds_escapes_is_told_without_them() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.edit(&ground.file(&id), "status: NEW", "status: \"\\e[2JPERHAPS\"");
    let said = ground.agency(&["status"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["[2JPERHAPS", "must be one of"]);
    assert!(!said.err.contains('\u{1b}') && !said.out.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_profile_that_asks_the_host_what_an_image_has_is_refused_by_name() {
    let ground = board();
    let file = ".kodingx/dod/profiles/mine.yml";
    let text = "name: mine\ndescription: Of a test\nimage: alpine:3\ncommands:\n  - run: ruff check\n    when: {program: ruff}\n";
    ground.write(file, text);
    ground.edit(&ground.file("T0001"), "dod_profile: auto", "dod_profile: mine");
    ground.ok(&["trust", "--yes"]);
    let said = ground.refused(2, &["verify", "--task", "T0001"]);
    said.assert_names(&[
        &format!("{file}:6"),
        "commands[0].when.program",
        "the image `alpine:3`",
        "leave it out",
    ]);
    assert!(!ground.state().join("verify").exists(), "something ran");
}
