//! What counts as a change: overlayfs's marks, git's view, and content instead of times.

mod harvest_support;

use std::fs;
use std::os::unix::ffi::OsStrExt;

use agency_sandbox::harvest::{ChangeKind, HarvestEntry, ViolationReason};
use agency_sandbox::path::RelPath;
use harvest_support::*;

#[test]
fn added_modified_and_retyped_paths_are_changes() {
    let t = trees();
    put(&t.base, "same", "same");
    put(&t.base, "content", "one");
    put(&t.base, "mode", "x");
    put(&t.base, "to-link", "x");
    link(&t.base, "to-file", "x");
    link(&t.base, "retarget", "x");
    link(&t.base, "same-link", "x");
    put(&t.upper, "same", "same");
    put(&t.upper, "content", "two");
    chmod(put(&t.upper, "mode", "x"), 0o700);
    link(&t.upper, "to-link", "y");
    put(&t.upper, "to-file", "x");
    link(&t.upper, "retarget", "y");
    link(&t.upper, "same-link", "x");
    put(&t.upper, "new/deep/file", "");
    fs::create_dir(t.upper.join("empty")).expect("made");
    let harvest = t.harvest();
    assert_eq!(
        lines(&harvest.changes),
        ["M content", "M mode", "A new/deep/file", "M retarget", "T to-file", "T to-link"]
    );
    assert!(harvest.is_clean());
    assert_eq!(harvest.changes[1].after, Some(HarvestEntry::File { executable: true, size: 1 }));
    assert_eq!(harvest.changes[5].kind(), ChangeKind::TypeChanged);
}

#[test]
fn a_forged_time_neither_hides_a_change_nor_makes_one() {
    let t = trees();
    let before = put(&t.base, "hidden", "one");
    let after = put(&t.upper, "hidden", "two");
    let time = fs::metadata(&before).and_then(|metadata| metadata.modified()).expect("a time");
    let file = fs::File::options().write(true).open(&after).expect("opens");
    file.set_modified(time).expect("forged");
    put(&t.base, "touched", "same");
    put(&t.upper, "touched", "same");
    assert_eq!(lines(&t.harvest().changes), ["M hidden"]);
}

#[test]
fn a_mode_that_git_does_not_keep_is_no_change() {
    let t = trees();
    put(&t.base, "a", "x");
    chmod(put(&t.upper, "a", "x"), 0o000);
    assert_eq!(lines(&t.harvest().changes), Vec::<String>::new());
    chmod(t.upper.join("a"), 0o677);
    assert_eq!(lines(&t.harvest().changes), Vec::<String>::new(), "others' bit is not the owner's");
}

#[test]
fn a_whiteout_deletes_a_file_a_link_or_all_below_a_directory() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "file", "x");
    link(&t.base, "link", "x");
    put(&t.base, "dir/a", "x");
    put(&t.base, "dir/deep/b", "x");
    put(&t.base, "kept/c", "x");
    for path in ["file", "link", "dir", "never-there"] {
        whiteout(&t.upper, path);
    }
    assert_eq!(lines(&t.harvest().changes), ["D dir/a", "D dir/deep/b", "D file", "D link"]);
}

#[test]
fn an_attribute_can_mark_a_whiteout_too() {
    if skipped_without_root() {
        return;
    }
    for namespace in ["user", "trusted"] {
        let t = trees();
        put(&t.base, "a", "x");
        mark(&put(&t.upper, "a", ""), &format!("{namespace}.overlay.whiteout"), b"");
        mark(&put(&t.upper, "content", "x"), &format!("{namespace}.overlay.whiteout"), b"");
        assert_eq!(lines(&t.harvest().changes), ["D a", "A content"], "only an empty file is one");
    }
}

#[test]
fn an_opaque_directory_replaces_everything_below_it() {
    if skipped_without_root() {
        return;
    }
    for namespace in ["user", "trusted"] {
        let t = trees();
        for path in ["d/gone", "d/same", "d/sub/gone", "d/sub/kept", "d/other/gone"] {
            put(&t.base, path, "x");
        }
        put(&t.upper, "d/same", "x");
        put(&t.upper, "d/new", "x");
        put(&t.upper, "d/sub/kept", "y");
        mark(&t.upper.join("d"), &format!("{namespace}.overlay.opaque"), b"y");
        let expected = ["D d/gone", "A d/new", "D d/other/gone", "D d/sub/gone", "M d/sub/kept"];
        assert_eq!(lines(&t.harvest().changes), expected);
        // `x` has another meaning.
        mark(&t.upper.join("d"), &format!("{namespace}.overlay.opaque"), b"x");
        assert_eq!(lines(&t.harvest().changes), ["A d/new", "M d/sub/kept"]);
    }
}

#[test]
fn a_file_over_a_directory_and_a_directory_over_a_file_replace_them() {
    let t = trees();
    put(&t.base, "d/a", "x");
    put(&t.base, "d/b/c", "x");
    put(&t.base, "f", "x");
    put(&t.base, "g/a", "x");
    put(&t.upper, "d", "now a file");
    put(&t.upper, "f/a", "now a directory");
    link(&t.upper, "g", "d");
    assert_eq!(lines(&t.harvest().changes), ["A d", "D d/a", "D d/b/c", "D f", "A f/a", "A g", "D g/a"]);
}

#[test]
fn a_base_of_several_layers_shows_what_the_agent_saw() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    let delta = t.temp.path().join("delta");
    for path in ["a", "b", "d/x", "d/y", "e/x", "w/x"] {
        put(&t.base, path, "old");
    }
    put(&delta, "a", "newer");
    whiteout(&delta, "b");
    put(&delta, "d/x", "newer");
    put(&delta, "e/z", "newer");
    mark(&delta.join("e"), "trusted.overlay.opaque", b"y");
    whiteout(&delta, "w");
    put(&t.upper, "a", "newer");
    put(&t.upper, "b", "old");
    put(&t.upper, "d/x", "old");
    put(&t.upper, "d/y", "old");
    put(&t.upper, "e/x", "old");
    put(&t.upper, "w/x", "old");
    let asked = Asked::default();
    let changes = asked.of(&t.upper, &[&delta, &t.base]).changes;
    assert_eq!(lines(&changes), ["A b", "M d/x", "A e/x", "A w/x"]);

    let empty = t.temp.path().join("empty");
    fs::create_dir(&empty).expect("made");
    for path in ["d", "e", "w", "a"] {
        whiteout(&empty, path);
    }
    let changes = asked.of(&empty, &[&delta, &t.base]).changes;
    assert_eq!(lines(&changes), ["D a", "D d/x", "D d/y", "D e/z"]);

    let stack = base(&[&delta, &t.base]);
    let size = |path: &str| match stack.lookup(&rel(path)).expect("looked up") {
        Some(HarvestEntry::File { size, .. }) => Some(size),
        _ => None,
    };
    assert_eq!(size("a"), Some(5));
    assert_eq!(size("d/y"), Some(3));
    assert_eq!([size("b"), size("e/x"), size("w/x"), size("d"), size("a/b"), size("")], [None; 6]);
}

#[test]
fn data_that_is_said_to_be_elsewhere_is_refused() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    for (index, name) in ["redirect", "metacopy"].iter().enumerate() {
        for namespace in ["user", "trusted"] {
            let file = put(&t.upper, format!("{namespace}{index}"), "x");
            mark(&file, &format!("{namespace}.overlay.{name}"), b"/etc");
            let inside = put(&t.upper, format!("{namespace}{index}d/inside"), "x");
            mark(inside.parent().expect("a parent"), &format!("{namespace}.overlay.{name}"), b"/etc");
        }
    }
    let harvest = t.harvest();
    assert_eq!(harvest.violations.len(), 8);
    assert!(harvest.violations.iter().all(|violation| violation.reason == ViolationReason::Overlay));
    assert_eq!(harvest.changes, []);
}

#[test]
fn moved_files_are_paired_by_content() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "a/one", "content");
    put(&t.base, "a/two", "content");
    put(&t.base, "empty", "");
    put(&t.base, "same-size", "1234");
    for path in ["a", "empty", "same-size"] {
        whiteout(&t.upper, path);
    }
    put(&t.upper, "b/two", "content");
    put(&t.upper, "b/third", "content");
    put(&t.upper, "b/empty", "");
    put(&t.upper, "b/same-size", "4321");
    let harvest = t.harvest();
    let renames: Vec<_> = harvest.renames.iter().map(|(from, to)| format!("{from} -> {to}")).collect();
    assert_eq!(renames, ["a/one -> b/third", "a/two -> b/two"]);
    assert_eq!(harvest.changes.len(), 8, "both ends of a move stay changes");
}

#[test]
fn scratch_is_never_looked_into() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    let scratch = |path: &RelPath, directory: bool| {
        directory && path.name() == b"target" || path.name().ends_with(b".log")
    };
    put(&t.base, "target/old", "x");
    put(&t.base, "lib/target/old", "x");
    put(&t.base, "a.log", "x");
    put(&t.upper, "web/target/deep/x", "x");
    node(&t.upper.join("web/target/pipe"), rustix::fs::FileType::Fifo, 0, 0);
    put(&t.upper, "web/.git/x", "x");
    put(&t.upper, "b.log", "x");
    whiteout(&t.upper, "a.log");
    whiteout(&t.upper, "lib");
    put(&t.upper, "target", "a file is not scratch");
    let harvest = t.asked(&Asked { scratch: &scratch, ..Asked::default() });
    assert_eq!(lines(&harvest.changes), ["A target"]);
    assert_eq!(refusals(&harvest).len(), 1, "{:?}", refusals(&harvest));
    assert_eq!(harvest.scratch, 5);
}

#[test]
fn names_that_differ_only_by_case_or_unicode_form_are_pointed_out() {
    let t = trees();
    for name in ["a/File", "a/file", "\u{e4}", "a\u{308}", "B/x", "b/x", "lonely"] {
        put(&t.upper, name, "x");
    }
    let harvest = t.harvest();
    let warnings: Vec<_> = harvest.warnings.iter().map(|warning| warning.to_string()).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].starts_with("a/File and a/file are the same file"), "{warnings:?}");
    assert!(harvest.is_clean());
}

#[test]
fn the_workspaces_own_git_is_passed_over() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, ".git/config", "x");
    put(&t.upper, ".git/hooks/pre-commit", "x");
    mark(&t.upper, "user.overlay.opaque", b"y");
    let harvest = t.harvest();
    assert_eq!((lines(&harvest.changes), refusals(&harvest)), (vec![], vec![]));
}

#[test]
fn a_report_of_it_is_plain_json() {
    let t = trees();
    put(&t.upper, std::ffi::OsStr::from_bytes(b"a\xff\n"), "x");
    link(&t.upper, "out", "/etc");
    let json = serde_json::to_value(t.harvest()).expect("serializes");
    assert_eq!(
        json,
        serde_json::json!({
            "changes": [{
                "path": "a\\xff\\n", "kind": "added", "before": null,
                "after": {"type": "file", "executable": false, "size": 1},
            }],
            "renames": [],
            "violations": [{"path": "out", "reason": "link_leaves_tree", "target": "/etc"}],
            "violations_left_out": 0,
            "warnings": [],
            "scratch": 0,
        })
    );
}
