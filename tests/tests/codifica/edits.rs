//! Whatever is done to a task, no byte outside its block changes.

use crate::site::{CONTRACT, Site, ready};

const ODD: &str = "<!-- ```yaml\n- id: NOT-0\n``` -->\n# Work  \n\n## Active\n\n~~~\nnot tasks\n~~~\n\n```yaml\n# a comment\n- id: BEFORE-1   # mine\n  type: test\n  state:   todo\n  title: 'odd   spaces'\n  description: >-\n    folded\n    ```yaml\n    - id: NOT-1\n    ```\n\n\n# between\n";
const REST: &str = "\n  # inside\n  labels: [a,   b]\n\n- id: AFTER-1\n  type: test\n  state: todo\n  title: x\n  context:\n      files:\n      - deep\n```\n\nTrailing words, no newline at the end";

fn holds(text: &str) {
    let site = Site::with(CONTRACT, text);
    let at = text.find("- id: A-1").expect("the task");
    let end = text.find("- id: AFTER-1").expect("the next");
    let steps: [&[&str]; 6] = [
        &["task", "move", "A-1", "in_progress", "--as", "agent:shell"],
        &["task", "move", "A-1", "to_be_tested", "--as", "agent:shell"],
        &["task", "move", "A-1", "todo", "--as", "agent:shell", "--reason", "not: yet"],
        &["assign", "A-1", "--assignee", "shell"],
        &["task", "move", "A-1", "blocked", "--as", "human", "--reason", "\"quotes\" and # signs"],
        &["task", "move", "A-1", "rejected", "--as", "human", "--reason", "no"],
    ];
    for step in steps {
        site.ground.ok(step);
        let now = site.ground.read("work.md");
        assert_eq!(now[..at], text[..at], "{step:?}");
        assert!(now.ends_with(&text[end..]), "{step:?}: {now}");
        assert_eq!(
            now.matches("\r\n").count() == now.matches('\n').count(),
            text.contains("\r\n"),
            "{step:?}"
        );
        assert_eq!(site.ground.git(&["show", "HEAD:work.md"]), now, "what is committed is what is there");
    }
    assert_eq!(site.state("A-1"), "rejected");
}

#[test]
fn comments_fences_spaces_and_line_endings_of_everybody_else_stay() {
    let text = format!("{ODD}{}{REST}", ready("A-1"));
    holds(&text);
    holds(&text.replace('\n', "\r\n"));
}

#[test]
fn a_task_on_one_line_is_read_and_its_edit_is_refused() {
    let site = Site::new("- {id: A-1, type: test, state: todo, owner: 'agent:shell', title: x}\n");
    let said = site.moves("A-1", "in_progress", "agent:shell", None);
    assert_eq!(said.code, 2);
    said.assert_names(&["work.md:7", "written on one line"]);
}

/// A work tree with CRLF over commits with LF, as `core.autocrlf` makes it.
#[test]
fn line_endings_that_git_converts_are_no_edit_of_a_persons() {
    let site = Site::new(&(ready("A-1") + &ready("B-1")));
    site.ground.git(&["config", "core.autocrlf", "true"]);
    site.ground.remove("work.md");
    site.ground.git(&["checkout", "--", "work.md"]);
    assert!(site.ground.read("work.md").contains("\r\n"));
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    assert!(!site.ground.git(&["show", "HEAD:work.md"]).contains('\r'), "the commit stays as it is");
    let text = site.ground.read("work.md");
    assert_eq!(text.matches("\r\n").count(), text.matches('\n').count());
    assert_eq!(site.ground.git(&["status", "--porcelain"]), "");
}
