//! What a person sees of a run: at a terminal a view that lives, in a pipe lines.

use agency_tests::queue::{HONEST, Queue};
use agency_tests::screen::Screen;
use nix::sys::signal::Signal;

use crate::gate;

const USUAL: (u16, u16) = (100, 30);

/// The line of a task in the part that lives; one of the table at the end is none.
fn live<'a>(lines: &'a [String], id: &str) -> Option<&'a String> {
    let is =
        |line: &&String| line.starts_with(id) && ["working", "preparing"].iter().any(|w| line.contains(w));
    lines.iter().find(is)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn at_a_terminal_each_agent_has_a_line_and_the_end_is_a_table() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(3);
    let screen = Screen::show(&queue, USUAL, &["run", "--parallel", "2"]);
    let lines = screen.until("both at work", |lines| {
        tasks[..2].iter().all(|id| live(lines, id).is_some_and(|line| line.ends_with("begun")))
    });
    for id in &tasks[..2] {
        let line = words(live(&lines, id).expect("a line"));
        assert_eq!([line[0], line[1], line[2], line[4]], [id, "shell", "working", "begun"], "{lines:#?}");
        assert!(line[3].ends_with('s'), "{lines:#?}");
    }
    assert_eq!(lines.last().map(String::as_str), Some("2 running · 1 ready"), "{lines:#?}");
    assert_eq!(lines.len(), 3, "{lines:#?}");
    gate::open(&queue);
    let lines = screen.until_code(0);
    queue.assert_landed(&tasks);
    let head = lines.iter().position(|line| line.starts_with("task ")).expect("a table");
    assert_eq!(words(&lines[head]), ["task", "agent", "outcome", "attempts", "time", "commit", "title"]);
    for (id, row) in tasks.iter().zip(&lines[head + 1..]) {
        let row = words(row);
        assert_eq!(row[..4], [id, "shell", "done", "1"], "{lines:#?}");
        assert!(queue.ground.git(&["log", "--format=%H", "main"]).contains(row[5]), "{lines:#?}");
    }
    assert_eq!(lines[head + 4..], ["agency: 3 of 3 tasks done", "code 0"], "{lines:#?}");
    // What happened stays above it, and nothing else does.
    let (done, others): (Vec<&String>, Vec<&String>) =
        lines[..head].iter().partition(|line| line.contains(" done, "));
    assert_eq!((done.len(), others), (3, Vec::new()), "{lines:#?}");
    assert!(screen.has_cursor());
}

#[test]
fn what_waits_for_a_person_is_seen_while_others_work() {
    let wait = gate::behind(HONEST);
    let script = format!("if [ $AGENCY_TASK_ID = T0001 ]; then echo four >> src/a.txt; exit; fi\n{wait}");
    let queue = gate::queue_of(&script);
    let tasks = queue.tasks(3);
    let more = queue.task("shell", &["--depends-on", &tasks[1]]);
    queue.ground.write("src/a.txt", "mine\n");
    let screen = Screen::show(&queue, (140, 30), &["run", "--parallel", "2"]);
    let waits = format!("{}  waits for you: src/a.txt has been edited", tasks[0]);
    let totals = "2 running · 1 waits for you · 1 held back";
    screen.until("who waits for whom", |lines| {
        lines.iter().any(|line| line.starts_with(&waits)) && lines.last().is_some_and(|line| line == totals)
    });
    gate::open(&queue);
    let lines = screen.until_code(10);
    assert!(!lines.iter().any(|line| line.contains("waits for you")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with(&format!("agency: {}: waits: src/a.txt", tasks[0]))));
    assert_eq!(queue.ground.status(&more), "DONE");
}

#[test]
fn a_narrow_terminal_has_a_line_for_each_agent_all_the_same() {
    let queue = gate::queue_of(&gate::behind(HONEST).replace("echo begun", "echo begun $(seq 100)"));
    let tasks = queue.tasks(2);
    let screen = Screen::show(&queue, (40, 10), &["run", "--parallel", "2"]);
    let lines = screen.until("both at work", |lines| {
        tasks.iter().all(|id| live(lines, id).is_some_and(|line| line.contains("begun")))
    });
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for (id, line) in tasks.iter().zip(&lines) {
        assert!(line.starts_with(id.as_str()) && line.ends_with('…'), "{lines:#?}");
        assert_eq!(line.chars().count(), 40, "{lines:#?}");
    }
    gate::open(&queue);
    let lines = screen.until_code(0);
    assert!(live(&lines, &tasks[0]).is_none() && live(&lines, &tasks[1]).is_none(), "{lines:#?}");
}

/// Escapes, returns, lines that look like ours, and characters that terminals disagree about.
#[test]
fn nothing_an_agent_writes_breaks_the_view() {
    let hostile = [
        r"\033[2J\033[H\033[10A\033]0;title\007\033c\033[?25l\033[?1049hforged\n",
        r"\r\n\nagency: T0009 done, 0123456789ab (0.1 s)\n\033[5A\r9 of 9 tasks done\033[8m\n",
        r"\342\200\256\302\2335A\342\200\250\360\237\221\251\342\200\215\360\237\222\273\357\267\275\n",
        r"\344\270\226\347\225\214\344\270\226\347\225\214 \360\237\232\200 last\033[",
    ];
    let script = format!("printf '{}'\n", hostile.concat());
    let wait = gate::behind(HONEST).replace("echo begun\n", "");
    let queue = gate::queue_of(&(script + &wait));
    let tasks = queue.tasks(2);
    let screen = Screen::show(&queue, USUAL, &["run", "--parallel", "2"]);
    let lines = screen.until("both at work", |lines| {
        tasks.iter().all(|id| live(lines, id).is_some_and(|line| line.contains("last")))
    });
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for (id, line) in tasks.iter().zip(&lines) {
        assert!(line.starts_with(id.as_str()) && line.ends_with("世界世界 🚀 last␛["), "{lines:#?}");
    }
    gate::open(&queue);
    let lines = screen.until_code(0);
    assert!(!lines.iter().any(|line| line.contains("T0009") || line.contains("9 of 9")), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("T000")).count(), 2, "{lines:#?}");
    assert!(screen.has_cursor());
}

/// Whether one line begins like this.
fn once(lines: &[String], start: &str) -> bool {
    lines.iter().filter(|line| line.starts_with(start)).count() == 1
}

/// One task that is done at once, and three whose agents wait, with more to say than fits on any line.
fn queue_of_long_lines() -> (Queue, Vec<String>) {
    let long = "x".repeat(350);
    let wait = gate::behind(HONEST).replace("echo begun", &format!("echo begun {long}"));
    let queue = gate::queue_of(&format!("if [ $AGENCY_TASK_ID = T0001 ]; then {HONEST}; exit; fi\n{wait}"));
    let tasks = queue.tasks(4);
    (queue, tasks)
}

/// Gives the screen another size, and waits until it shows what goes on, once.
#[track_caller]
fn resized(screen: &Screen<'_>, tasks: &[String], (columns, rows): (u16, u16)) {
    screen.resize((columns, rows));
    let what = format!("one picture of {columns}x{rows}");
    screen.until(&what, |lines| {
        // Drawn anew, a line that does not fit is cut at this very width.
        let is_whole = |line: &String| line.chars().count() == usize::from(columns) && line.ends_with('…');
        tasks[1..].iter().all(|id| once(lines, id) && live(lines, id).is_some_and(is_whole))
            && once(lines, "3 running")
            && lines.last().is_some_and(|line| line.starts_with("3 running"))
    });
}

/// A terminal that changes its size breaks lines anew, and puts broken ones together: what has happened stays, and of what
/// goes on there is one picture only, also above what is seen.
#[test]
fn a_terminal_may_change_its_size_at_any_time() {
    for size in [(80, 24), (200, 50)] {
        let (queue, tasks) = queue_of_long_lines();
        let screen = Screen::show_below(&queue, 60, size, &["run", "--parallel", "3"]);
        screen.until("what was done", |lines| once(lines, "agency: T0001 done"));
        for other in [size, (60, 24), (160, 24), (60, 8), (200, 50), (41, 24), (80, 24), (300, 60), size] {
            resized(&screen, &tasks, other);
            let all = screen.history();
            assert!(once(&all, "agency: T0001 done"), "{other:?}: {all:#?}");
            assert!(
                tasks[1..].iter().all(|id| once(&all, id)) && once(&all, "3 running"),
                "{other:?}: {all:#?}"
            );
            assert!((1..=60).all(|number| all.contains(&format!("above {number}"))), "{other:?}: {all:#?}");
        }
        gate::open(&queue);
        screen.until_code(0);
        let all = screen.history();
        for id in &tasks {
            assert!(once(&all, &format!("agency: {id} done")) && once(&all, &format!("{id} ")), "{all:#?}");
        }
        assert_eq!(all.iter().position(|line| line.starts_with("task ")), Some(64), "{all:#?}");
    }
}

/// On a screen that is nearly empty, tmux itself puts what is at its top out of sight when it is made narrower.
#[test]
fn a_nearly_empty_terminal_loses_nothing_when_it_is_made_narrower() {
    let (queue, tasks) = queue_of_long_lines();
    let screen = Screen::show(&queue, (200, 50), &["run", "--parallel", "3"]);
    screen.until("what was done", |lines| once(lines, "agency: T0001 done"));
    for size in [(200, 50), (160, 50), (80, 24), (60, 10), (60, 8)] {
        resized(&screen, &tasks, size);
        assert!(once(&screen.history(), "agency: T0001 done"), "{size:?}: {:#?}", screen.history());
    }
    gate::open(&queue);
    screen.until_code(0);
    let all = screen.history();
    assert!(tasks.iter().all(|id| once(&all, &format!("agency: {id} done"))), "{all:#?}");
}

/// An agent that writes events is seen by what it does, also while most of its events say nothing to people.
#[test]
fn events_of_an_agent_are_shown_as_sentences() {
    let says = r#"{"type":"item.started","item":{"type":"command_execution","command":"/bin/bash -lc 'cargo test'"}}"#;
    let nothing = r#"{"type":"turn.started","more":""#.to_owned() + &"x".repeat(8000) + "\"}";
    let wait = gate::behind(HONEST).replace("echo begun\n", "");
    let mut queue = gate::queue(HONEST);
    let script = format!("cat <<'END'\n{says}\n{nothing}\nEND\n{wait}");
    queue.agent("shell", &script, "output_format = \"codex\"\n");
    let id = queue.tasks(1).remove(0);
    let screen = Screen::show(&queue, USUAL, &["run"]);
    screen.until("what it runs", |lines| {
        live(lines, &id).is_some_and(|line| line.ends_with("  runs: cargo test"))
    });
    gate::open(&queue);
    screen.until_code(0);
    queue.assert_landed(&[id]);
}

/// The terminal echoes `^C`, and that leaves nothing either.
#[test]
fn an_interrupted_run_leaves_the_terminal_clean() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    let screen = Screen::show(&queue, (40, 24), &["run", "--parallel", "2"]);
    let both = |lines: &[String]| {
        tasks.iter().all(|id| live(lines, id).is_some_and(|line| line.contains("working")))
    };
    screen.until("both at work", both);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    screen.press("C-c");
    let lines = screen
        .until("the drain", |lines| lines.iter().any(|line| line.contains("draining: ")) && both(lines));
    assert_eq!(lines.iter().filter(|line| line.starts_with("T000")).count(), 2, "{lines:#?}");
    screen.press("C-c");
    let lines = screen.until_code(130);
    assert!(!lines.iter().any(|line| line.contains("working") || line.contains("running")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("^C")), "{lines:#?}");
    assert!(screen.has_cursor());
}

#[test]
fn in_a_pipe_there_are_lines_and_not_one_escape() {
    let queue = gate::queue("printf '\\033[31mred\\033[2J\\n'; echo by > src/$AGENCY_TASK_ID");
    let tasks = queue.tasks(2);
    let supervisor = queue.start(&["--parallel", "2"]);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains('\u{1b}') && !said.err.contains('\r') && said.out.is_empty(), "{said:?}");
    for id in &tasks {
        said.assert_names(&[&format!("{id} started: A task (shell)"), &format!("{id} done, ")]);
    }
    said.assert_names(&[
        "task   agent  outcome  attempts  time  commit        title\nT0001  shell  done     1",
    ]);
    assert!(said.err.ends_with("agency: 2 of 2 tasks done\n"), "{said:?}");
}

/// A terminal that can't be drawn on, and one that nobody looks at.
#[test]
fn where_nothing_can_be_drawn_there_are_lines() {
    for variable in ["TERM=dumb", "CI=true"] {
        let queue = Queue::new();
        let id = queue.tasks(1).remove(0);
        let line = format!("{variable} {} run", queue.ground.program_path().display());
        let mut command = queue.ground.program(std::path::Path::new("script"));
        command.env("TERM", "xterm").args(["-qec", &line, "/dev/null"]);
        let output = command.output().expect("script starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(!said.contains('\u{1b}') && said.contains(&format!("{id} started")), "{said:?}");
    }
}

/// Whoever ends the service leaves agents at work, and a terminal as it was.
#[test]
fn a_run_that_is_sent_away_leaves_the_terminal_clean() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let screen = Screen::show(&queue, USUAL, &["run"]);
    screen.until("it at work", |lines| live(lines, &id).is_some_and(|line| line.ends_with("begun")));
    let runs =
        queue.marker().alive().into_iter().filter(|one| one.command.trim_end().ends_with("agency run"));
    let runs: Vec<_> = runs.filter(|one| !one.command.contains("sh -c")).collect();
    assert_eq!(runs.len(), 1, "{runs:#?}");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runs[0].pid).expect("a process"));
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("signalled");
    let lines = screen.until_code(130);
    assert!(live(&lines, &id).is_none(), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("is still open")), "{lines:#?}");
    gate::open(&queue);
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&[id]);
}
