//! Tables as people see them: with colours where they are wanted, cut to the terminal; in a pipe as programs read them.

use std::path::Path;

use agency_tests::ground::{Ground, Said};
use agency_tests::queue::Queue;

fn coloured(queue: &Queue, arguments: &[&str]) -> Said {
    queue.ground.command(arguments).env("CLICOLOR_FORCE", "1").output().expect("agency starts").into()
}

/// What a command prints at a terminal of so many columns.
fn at_terminal(queue: &Queue, columns: u16, arguments: &str) -> String {
    let program = queue.ground.program_path().display();
    let line = format!("stty cols {columns}; exec {program} {arguments}");
    let mut command = queue.ground.program(Path::new("script"));
    command.env("TERM", "xterm").env_remove("NO_COLOR").args(["-qec", &line, "/dev/null"]);
    String::from_utf8_lossy(&command.output().expect("script starts").stdout).into_owned()
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn states_have_colours_and_ids_are_bold_where_that_is_wanted() {
    let mut queue = Queue::with_agent("[ $AGENCY_TASK_ID = T0002 ] && exit 3; echo four >> src/a.txt");
    queue.settings("attempts = 1");
    queue.ground.commit_all();
    queue.tasks(2);
    let said = coloured(&queue, &["run"]);
    let plain = without_colours(&said.err);
    assert!(plain.contains("outcome  attempts  time  commit        title\nT0001  shell  done  "), "{plain}");
    for painted in
        ["\u{1b}[1mT0001\u{1b}[0m  shell  \u{1b}[32mdone\u{1b}[0m ", "  \u{1b}[31mfailed\u{1b}[0m "]
    {
        assert!(said.err.contains(painted), "{painted:?} in {said:?}");
    }
    let waits = queue.task("nobody", &[]);
    for (arguments, painted) in [
        (&["task", "list"][..], "\u{1b}[32mDONE\u{1b}[0m  "),
        (&["status"], "\u{1b}[31mBLOCKED\u{1b}[0m  "),
        (&["ps", "--all"], "\u{1b}[31mover\u{1b}[0m  "),
    ] {
        let said = coloured(&queue, arguments);
        assert!(said.out.contains(painted) && said.out.contains("\u{1b}[1mT0002"), "{said:?}");
        let plain = queue.ground.ok(arguments);
        assert!(!plain.out.contains('\u{1b}') && plain.out.contains("A task"), "{plain:?}");
        assert_eq!(without_colours(&said.out), plain.out, "only colours differ");
    }
    assert!(queue.ground.ok(&["status"]).out.contains(&waits));
}

#[test]
fn a_table_is_no_wider_than_its_terminal() {
    let queue = Queue::new();
    let title = "A title that is longer than a line of this terminal has columns, by far";
    queue.ground.task(title, &[]);
    for command in ["task list", "status"] {
        let seen = without_colours(&at_terminal(&queue, 60, command));
        let row = seen.lines().find(|line| line.contains("T0001")).expect("a row").trim_end();
        assert!(row.ends_with('…') && row.chars().count() == 60, "{row:?}");
        let wide = without_colours(&at_terminal(&queue, 200, command));
        assert!(wide.contains(title), "{wide}");
    }
    assert!(queue.ground.ok(&["task", "list"]).out.contains(title), "a pipe has no width");
}

#[test]
fn what_looks_at_a_machine_says_the_next_step() {
    let ground = Ground::without_board(&[]);
    ground.agency(&["doctor"]).assert_names(&["next: ", "agency init"]);
    assert_eq!(ground.agency(&["doctor", "--json"]).err, "");
    let said = ground.ok(&["init", "--orchestrator", "other", "--builders", "shell"]);
    said.assert_names(&[
        "next: commit it",
        "agency agents  ",
        "agency trust  ",
        "agency task new ",
        "agency run  ",
    ]);
    ground.agency(&["doctor"]).assert_names(&["next: `agency agents`"]);
    ground.ok(&["agents"]).assert_names(&["next: ", "[agents.NAME] command"]);
    ground.write("agency.toml", "[agents.mine]\ncommand = [\"sh\", \"-c\", \"true\"]\n");
    ground.ok(&["trust", "--yes"]);
    ground.ok(&["agents"]).assert_names(&["next: `agency agents test mine`", "--assignee mine"]);
}
