//! Files that people wrote: what is changed is the value that was meant, and not a byte beside it.

use crate::ground::Ground;

/// Headers as people write them. `STATUS` stands where a move writes.
const ODD: &[(&str, &str)] = &[
    (
        "windows line endings",
        "---\r\nid: T0001\r\ntitle: One\r\npriority: P1\r\nstatus: STATUS\r\nassignee: codex\r\ncreated_at: 2026-01-31T16:10:00+01:00\r\ndod_profile: auto\r\nscope:\r\n  must_touch:\r\n    - src\r\n---\r\n\r\n## Problem\r\nText.\r\n",
    ),
    (
        "a byte order mark",
        "\u{feff}---\nid: T0001\ntitle: One\npriority: P1\nstatus: STATUS\nassignee: codex\ncreated_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope: {must_touch: [src]}\n---\nText.\n",
    ),
    (
        "a byte order mark and windows line endings",
        "\u{feff}---\r\nid: T0001\r\ntitle: One\r\npriority: P1\r\nstatus: STATUS\r\nassignee: codex\r\ncreated_at: 2026-01-31T16:10:00+01:00\r\ndod_profile: auto\r\nscope: {must_touch: [src]}\r\n---\r\nText without an end",
    ),
    (
        "tabs",
        "---\nid:\tT0001\ntitle:\t\"One\t\"\t\npriority:\tP1\nstatus:\tSTATUS\t# why\nassignee:\tcodex\ncreated_at:\t2026-01-31T16:10:00+01:00\ndod_profile:\tauto\nscope:\t{must_touch:\t[src]}\n---\n\tText.\n",
    ),
    (
        "comments everywhere",
        "---\n# above\nid: T0001   # the id\n\n# between\ntitle: One # not this\npriority: P1\n  # indented\nstatus:   STATUS   # set by hand\n# below\nassignee: codex\ncreated_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope:\n  # in it\n  must_touch:\n    - src # here\n# at the end\n---\n# A heading, no comment\n",
    ),
    (
        "odd quotes",
        "---\n\"id\": 'T0001'\n'title': \"a \\\"b\\\" # c: 'd'\"\npriority: \"P1\"\n\"status\" : STATUS\nassignee: 'codex'\ncreated_at: \"2026-01-31T16:10:00+01:00\"\ndod_profile: 'auto'\nscope: {\"must_touch\": ['src', \"a: b\"]}\nlabels: ['it''s', \"x\"]\n---\n",
    ),
    (
        "texts that look like fields",
        "---\nid: T0001\ntitle: >-\n  status: NEW\n  and more\npriority: P1\nnote: |\n  status: NEW\n\n  ---x\nstatus: STATUS\nassignee: codex\ncreated_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope:\n  must_touch: [src]\n---\nstatus: NEW\n---\nstatus: NEW\n",
    ),
    (
        "fields nobody knows, in any order",
        "---\nzeta: {status: NEW, deep: [1, {status: NEW}]}\nscope:\n- must_touch\n- is no list\nscope_of_mine: 1\nassignee: codex\nstatus: STATUS\nstatus_before: NEW\npriority: P1\ntitle: Ünïcödé — ✓\ncreated_at: 2026-01-31\ndod_profile: auto\nid: T0001\n---\n\u{2028}Text\u{0}with odd characters\u{7f}\n",
    ),
];

const FILE: &str = ".kodingx/inbox/codex/2026-01-31/T0001-1610-one.md";

/// Puts a task there as somebody wrote it.
fn put(ground: &Ground, written: &str, status: &str) {
    ground.write(FILE, written.replace("STATUS", status));
    ground.agency(&["lint", "--fix"]);
}

#[test]
fn a_move_changes_the_status_and_no_other_byte() {
    let ground = Ground::new();
    for (what, written) in ODD {
        for status in ["NEW", "\"NEW\""] {
            put(&ground, written, status);
            let said = ground.ok(&["task", "move", "T0001", "CANCELED"]);
            assert_eq!(said.out, "T0001 CANCELED codex\n", "{what}");
            assert_eq!(ground.read(FILE), written.replace("STATUS", "CANCELED"), "{what}");
        }
    }
}

#[test]
fn a_move_with_a_reason_adds_a_region_at_the_end_and_nothing_else() {
    let ground = Ground::new();
    for (what, written) in ODD {
        put(&ground, written, "NEW");
        ground.ok(&["task", "move", "T0001", "ASSIGNED", "--reason", "because of it"]);
        let text = ground.read(FILE);
        let after = written.replace("STATUS", "ASSIGNED");
        let added = text.strip_prefix(&after).unwrap_or_else(|| panic!("{what}: {text:?}"));
        let newline = if written.contains("\r\n") { "\r\n" } else { "\n" };
        assert!(added.contains(&format!("<!-- agency:begin history -->{newline}")), "{what}: {added:?}");
        assert!(added.ends_with(&format!("<!-- agency:end history -->{newline}")), "{what}: {added:?}");
        assert_eq!(added.matches('\n').count(), added.matches(newline).count(), "{what}: {added:?}");
        // A second reason goes into the same region; what a person wrote below it stays below.
        ground.write(FILE, format!("{text}Below.{newline}"));
        ground.ok(&["task", "move", "T0001", "CANCELED", "--reason", "and again"]);
        let text = ground.read(FILE);
        assert!(text.starts_with(&written.replace("STATUS", "CANCELED")), "{what}: {text:?}");
        assert!(text.ends_with(&format!("<!-- agency:end history -->{newline}Below.{newline}")), "{what}");
        assert_eq!(text.matches("agency:begin history").count(), 1, "{what}");
        let (first, second) = (text.find("because of it"), text.find("and again"));
        assert!(first.is_some() && first < second, "{what}: {text:?}");
    }
}

#[test]
fn a_task_that_goes_to_another_agent_takes_every_byte_along() {
    let ground = Ground::new();
    for (what, written) in ODD {
        put(&ground, written, "NEW");
        ground.ok(&["assign", "T0001", "--assignee", "claude-code"]);
        let elsewhere = FILE.replace("/codex/", "/claude-code/");
        let text = ground.read(&elsewhere);
        let expected = written.replace("STATUS", "ASSIGNED");
        let assignee = ["assignee: codex", "assignee:\tcodex", "assignee: 'codex'"]
            .into_iter()
            .find(|line| expected.contains(line))
            .expect("an assignee");
        let put = assignee.replace("'codex'", "codex").replace("codex", "claude-code");
        assert_eq!(text, expected.replacen(assignee, &put, 1), "{what}");
        assert!(!ground.exists(FILE), "{what}");
        ground.remove(&elsewhere);
    }
}

/// What can't be edited for certain is not edited at all.
#[test]
fn a_header_that_cannot_be_edited_safely_is_left_alone() {
    let ground = Ground::new();
    let whole = ODD[1].1.trim_start_matches('\u{feff}').replace("STATUS", "NEW");
    for (from, to, words) in [
        ("title: One", "title: \"One", "title"),
        ("title: One", "title: [One", "title"),
        ("title: One", "title: One\nstatus: DONE", "status"),
        ("title: One", "title: One\n  status: NEW: x", "title"),
        ("scope: {must_touch: [src]}", "scope: {must_touch: [src]}\nbad: {", "not valid YAML"),
    ] {
        put(&ground, &whole.replacen(from, to, 1), "NEW");
        let said = ground.refused(2, &["task", "move", "T0001", "CANCELED"]);
        said.assert_names(&[FILE, words]);
    }
}

#[test]
fn the_modes_of_files_stay() {
    use std::os::unix::fs::PermissionsExt;
    let ground = Ground::new();
    put(&ground, ODD[0].1, "NEW");
    for file in [FILE, ".kodingx/STATE.md"] {
        let path = ground.path().join(file);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("changed");
    }
    ground.ok(&["task", "move", "T0001", "CANCELED"]);
    for file in [FILE, ".kodingx/STATE.md"] {
        let mode = std::fs::metadata(ground.path().join(file)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{file}");
    }
}

/// Task files as people and older tools wrote them (`tests/fixtures/boards`): each verb changes its own fields.
#[test]
fn every_verb_changes_its_own_lines_of_files_as_people_write_them() {
    let steps: [(&[&str], &[&str]); 4] = [
        (&["task", "move", "T0001", "ASSIGNED"], &["status"]),
        (&["assign", "T0001", "--assignee", "codex", "--must-touch", "lib/**"], &["scope"]),
        (&["task", "move", "T0001", "IN_PROGRESS"], &["status"]),
        (&["task", "move", "T0001", "BLOCKED", "--as", "agent:codex", "--reason", "a: b"], &["status"]),
    ];
    for name in ["older-tool.md", "plain.md"] {
        let path = format!("{}/fixtures/boards/kodingx/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        for text in [text.clone(), text.replace('\n', "\r\n")] {
            let ground = Ground::new();
            put(&ground, &text, "");
            for (command, fields) in steps {
                let before = ground.read(FILE);
                ground.ok(command);
                let (now, what) = (ground.read(FILE), format!("{name}: {command:?}"));
                let is_own = |line: &str| fields.iter().any(|field| line.starts_with(&format!("{field}:")));
                let mut in_scope = false;
                for line in before.split_inclusive('\n') {
                    in_scope =
                        is_own(line) && line.starts_with("scope") || (in_scope && line.starts_with(' '));
                    let is_kept = is_own(line) || in_scope || now.contains(line);
                    assert!(is_kept, "{what}: lost {line:?}: {now}");
                }
                let marks = before.matches("agency:begin").count();
                let (head, body) =
                    before.split_at(before.find("---\n").or(before.find("---\r")).expect("a header"));
                assert!(
                    head.is_empty() && (marks > 0 || now.contains(body.rsplit("---").next().expect("text"))),
                    "{what}: {now}"
                );
                assert_eq!(now.contains("\r\n"), text.contains("\r\n"), "{what}");
            }
            assert_eq!(ground.status("T0001"), "BLOCKED");
            assert_eq!(ground.header(FILE)["scope"]["must_touch"][0].as_str(), Some("lib/**"));
        }
    }
}
