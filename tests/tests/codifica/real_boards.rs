//! State files as people write them (`tests/fixtures/boards`): every verb that edits a task changes its own lines.

use std::fs;
use std::ops::Range;

use crate::site::{CONTRACT, Site};

const BOARDS: [&str; 3] = ["one-file.md", "bare.yml", "two-blocks.md"];

fn board(name: &str) -> String {
    let path = format!("{}/fixtures/boards/codifica/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The lines of a task: from its dash to the next line that is no deeper than the dash.
fn block(text: &str, id: &str) -> Range<usize> {
    let all = lines(text);
    let depth = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let named =
        |line: &&str| line.trim_start().trim_start_matches(['-', ' ']).trim_end() == format!("id: {id}");
    let at = all.iter().position(named).unwrap_or_else(|| panic!("{id}: {text}"));
    let start = (0..=at).rev().find(|line| all[*line].trim_start().starts_with('-')).expect("a dash");
    let below = |line: &&str| !line.trim().is_empty() && depth(line) <= depth(all[start]);
    let end = all[start + 1..].iter().position(below).map_or(all.len(), |more| start + 1 + more);
    start..end
}

/// All that changed stands in these lines of the old text; none before and none after.
#[track_caller]
fn assert_only(old: &str, new: &str, range: Range<usize>, what: &str) {
    let (old_lines, new_lines) = (lines(old), lines(new));
    assert_ne!(old, new, "{what}: nothing changed");
    assert_eq!(old_lines[..range.start], new_lines[..range.start], "{what}: above");
    let below = &old_lines[range.end..];
    assert!(new.ends_with(&below.concat()), "{what}: below\n{new}");
}

/// Every line of a task that is not one of these fields is there as it was, comments included.
#[track_caller]
fn assert_kept(old: &str, new: &str, id: &str, fields: &[&str], what: &str) {
    let after: Vec<&str> = lines(new)[block(new, id)].to_vec();
    let mut above = "";
    for line in &lines(old)[block(old, id)] {
        // A value that stands below its key.
        let is_value = std::mem::replace(&mut above, line).trim() == "claimed_at:";
        if is_value && fields.contains(&"claimed_at") {
            continue;
        }
        let is_edited = fields.iter().any(|field| line.trim_start().starts_with(&format!("{field}:")));
        let comment = line.split_once(" #").map(|(_, comment)| comment.trim_end());
        if is_edited {
            let stays = comment.is_none_or(|comment| after.iter().any(|line| line.contains(comment)));
            assert!(stays, "{what}: lost the comment of {line:?}: {after:#?}");
        } else {
            assert!(after.contains(line), "{what}: lost {line:?}: {after:#?}");
        }
    }
}

fn site(name: &str, text: &str) -> (Site, String) {
    let file = format!("work{}", &name[name.rfind('.').expect("an extension")..]);
    let contract = CONTRACT.replace("\"work.md\"", &format!("[\"{file}\", \"work-archive.md\"]"));
    let site = Site::with(&contract, "");
    site.ground.remove("work.md");
    site.ground.write(&file, text);
    site.ground.write("work-archive.md", "# Old\n\n```yaml\n```\n");
    site.ground.commit_all();
    (site, file)
}

#[test]
fn every_verb_changes_its_own_tasks_lines_on_boards_as_people_write_them() {
    let moved = ["state", "owner", "claimed_at", "completed_at", "blocked_reason", "state_transitions"];
    let noted = ["execution_notes"];
    let steps: [(&str, &[&str], &[&str]); 10] = [
        ("OPEN-1", &["assign", "OPEN-1", "--assignee", "shell"], &["owner"]),
        ("OPEN-1", &["task", "note", "OPEN-1", "Two\nlines: yes", "--as", "agent:shell"], &noted),
        ("OPEN-1", &["task", "move", "OPEN-1", "in_progress", "--as", "agent:shell"], &moved),
        ("OPEN-1", &["task", "move", "OPEN-1", "to_be_tested", "--as", "agent:shell"], &moved),
        ("OPEN-1", &["task", "move", "OPEN-1", "blocked", "--as", "human", "--reason", "a: b # c"], &moved),
        ("OPEN-1", &["task", "move", "OPEN-1", "todo", "--as", "human"], &moved),
        ("HELD-1", &["task", "note", "HELD-1", "Heard", "--as", "agent:other"], &noted),
        ("HELD-1", &["task", "move", "HELD-1", "blocked", "--as", "human", "--reason", "no"], &moved),
        ("HELD-1", &["task", "move", "HELD-1", "in_progress", "--as", "human"], &moved),
        ("MINE-1", &["task", "move", "MINE-1", "in_progress", "--as", "human"], &moved),
    ];
    for name in BOARDS {
        for text in [board(name), board(name).replace('\n', "\r\n")] {
            let (site, file) = site(name, &text);
            for (id, command, fields) in steps {
                let what = format!("{name}: {command:?}");
                // A task that has its owner already is not changed.
                let same = command[0] == "assign" && !name.starts_with("two");
                let before = site.ground.read(&file);
                site.ground.ok(command);
                let now = site.ground.read(&file);
                match same {
                    true => assert_eq!(now, before, "{what}"),
                    false => {
                        assert_only(&before, &now, block(&before, id), &what);
                        assert_kept(&before, &now, id, fields, &what);
                    }
                }
                assert_eq!(now.contains("\r\n"), text.contains("\r\n"), "{what}");
                assert_eq!(now.matches('\n').count() == now.matches("\r\n").count(), text.contains("\r\n"));
            }
            let shown = site.ground.ok(&["task", "show", "OPEN-1", "--json"]).json();
            assert_eq!(shown["task"]["state"], "todo", "{name}");
        }
    }
}

#[test]
fn a_new_task_and_an_archived_one_move_no_other_line() {
    for name in BOARDS {
        let text = board(name);
        let (site, file) = site(name, &text);
        let made = site.ground.ok(&["task", "new", "--title", "New", "--type", "test"]).out;
        let now = site.ground.read(&file);
        let new = block(&now, made.trim());
        let rest = [&lines(&now)[..new.start], &lines(&now)[new.end..]].concat().concat();
        // A blank line may stand between tasks.
        assert_eq!(rest.replace("\n\n", "\n"), text.replace("\n\n", "\n"), "{name}");
        let before = site.ground.read(&file);
        let old = block(&before, "DONE-1");
        let said = site.ground.ok(&["archive", "--older-than", "30", "--json"]).json();
        assert_eq!(said["tasks"], serde_json::json!(["DONE-1"]), "{name}");
        let now = site.ground.read(&file);
        assert_eq!(
            now,
            [&lines(&before)[..old.start], &lines(&before)[old.end..]].concat().concat(),
            "{name}"
        );
        assert!(site.ground.read("work-archive.md").contains("id: DONE-1"), "{name}");
    }
}
