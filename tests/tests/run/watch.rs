//! `agency status --watch`: told again each time something changed, until somebody ends it.

use agency_tests::queue::{HONEST, Queue};
use agency_tests::screen::Screen;
use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::gate;

#[test]
fn at_a_terminal_the_status_is_drawn_over_the_last_one() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(1);
    let screen = Screen::show(&queue, (100, 30), &["status", "--watch"]);
    let new = format!("{}  P2  NEW               shell  A task", tasks[0]);
    screen.until("a new task", |lines| lines == [new.as_str(), "1 NEW; 0 reports"]);
    let supervisor = queue.start(&[]);
    let working = format!("{}  shell is working, attempt 1, since ", tasks[0]);
    let lines = screen.until("who works", |lines| lines.len() == 3 && lines[0].starts_with(&working));
    assert!(lines[1].contains("IN_PROGRESS") && lines[2] == "1 IN_PROGRESS; 0 reports", "{lines:#?}");
    gate::open(&queue);
    assert_eq!(supervisor.end().code, 0);
    screen.until("the end", |lines| lines.len() == 1 && lines[0].starts_with("1 DONE; 1 reports"));
    // A person's edit is news, too.
    queue.tasks(1);
    screen.until("another task", |lines| lines.len() == 2 && lines[0].contains("NEW"));
    screen.press("C-c");
    let lines = screen.until_code(130);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[1].starts_with("1 NEW, 1 DONE; 1 reports") && screen.has_cursor(), "{lines:#?}");
}

#[test]
fn a_terminal_with_few_rows_shows_as_much_as_fits() {
    let queue = Queue::new();
    queue.tasks(20);
    let screen = Screen::show(&queue, (30, 8), &["status", "--watch"]);
    let lines = screen.until("the status", |lines| lines.last().is_some_and(|line| line.contains("20 NEW")));
    assert_eq!((lines.len(), lines[5].as_str()), (7, "… and 15 more"), "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 30), "{lines:#?}");
}

#[test]
fn in_a_pipe_each_status_comes_after_the_other_and_nothing_twice() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let people = queue.start_command(&["status", "--watch"]);
    let programs = queue.start_command(&["status", "--watch", "--json"]);
    people.writes("1 NEW; 0 reports\n");
    programs.writes("\"working\":[]");
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    people.writes(&format!("{id}  shell is working, attempt 1"));
    programs.writes("\"doing\":\"working\"");
    gate::open(&queue);
    assert_eq!(supervisor.end().code, 0);
    people.writes("1 DONE; 1 reports");
    programs.writes("\"DONE\":1");
    let said: Vec<_> = [people, programs]
        .into_iter()
        .map(|watch| {
            watch.signal(Signal::SIGINT);
            watch.end()
        })
        .collect();
    assert!(said.iter().all(|said| said.code == 130 && !said.out.contains('\u{1b}')), "{said:?}");
    let told: Vec<&str> = said[0].out.split("\n\n").collect();
    assert!(told.windows(2).all(|two| two[0].trim_end() != two[1].trim_end()), "{told:#?}");
    let documents: Vec<Json> =
        said[1].out.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    assert!(documents.iter().all(|one| one["version"] == 1 && one["working"].is_array()), "{documents:#?}");
    let working = documents.iter().find_map(|one| one["working"].get(0)).expect("somebody at work");
    assert_eq!([&working["task"], &working["agent"]], [id.as_str(), "shell"]);
    assert!(documents.windows(2).all(|two| two[0] != two[1]), "{documents:#?}");
}
