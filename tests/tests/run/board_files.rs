//! A person writes on the board while a run does: every line of theirs stays.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use agency_tests::dice::Dice;
use agency_tests::queue::Queue;

/// Where a run writes, too.
const FILES: [&str; 2] = [".kodingx/STATE.md", ".kodingx/TASK_BOARD.md"];

/// How a person's program saves a line.
type Save = fn(&Path, &str);

/// `echo >> FILE`
fn append(path: &Path, line: &str) {
    let mut file = File::options().append(true).open(path).expect("there");
    writeln!(file, "{line}").expect("written");
}

/// What editors do: the whole file, beside it, renamed over it.
fn save_by_rename(path: &Path, line: &str) {
    let text = fs::read_to_string(path).expect("there");
    let beside = path.with_extension("swp");
    fs::write(&beside, format!("{text}{line}\n")).expect("written");
    // An editor that sees that the file changed meanwhile asks what to do; this person reads it again.
    match fs::read_to_string(path).expect("there") == text {
        true => fs::rename(&beside, path).expect("saved"),
        false => save_by_rename(path, line),
    }
}

/// Writes lines into a file until it is told to stop, and returns them.
fn write_lines(path: PathBuf, save: Save, stop: &AtomicBool) -> Vec<String> {
    let mut dice = Dice::new(path.as_os_str().len() as u64);
    let mut lines = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let line = format!("a line of a person's, number {}.", lines.len());
        save(&path, &line);
        lines.push(line);
        thread::sleep(Duration::from_millis(2 + dice.below(30)));
    }
    lines
}

fn every_line_stays(save: Save) {
    let queue = Queue::new();
    let tasks = queue.tasks(24);
    let stop = AtomicBool::new(false);
    let (said, written) = thread::scope(|scope| {
        let at_work: Vec<_> = FILES
            .iter()
            .map(|name| {
                let path = queue.path().join(name);
                scope.spawn(|| write_lines(path, save, &stop))
            })
            .collect();
        let said = queue.run(&["--parallel", "4"]);
        stop.store(true, Ordering::Relaxed);
        (said, at_work.into_iter().map(|one| one.join().expect("wrote")).collect::<Vec<_>>())
    });
    assert_eq!(said.code, 0, "{said:?}");
    for (name, lines) in FILES.iter().zip(written) {
        assert!(lines.len() > 50, "{} lines", lines.len());
        let text = queue.ground.read(name);
        let lost: Vec<&String> = lines.iter().filter(|line| !text.contains(*line)).collect();
        assert!(lost.is_empty(), "{} of {} lines of {name} are gone: {lost:?}", lost.len(), lines.len());
    }
    queue.ground.ok(&["lint", "--fix"]);
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

#[test]
fn lines_that_are_appended_while_a_run_writes_stay() {
    every_line_stays(append);
}

#[test]
fn saves_by_rename_while_a_run_writes_stay() {
    every_line_stays(save_by_rename);
}

/// A program that never closes the file is named, and the run goes on when it does.
#[test]
fn a_file_that_a_program_keeps_open_is_named() {
    let queue = Queue::new();
    let tasks = queue.tasks(1);
    let open = File::options().append(true).open(queue.path().join(FILES[0])).expect("there");
    let run = queue.start(&[]);
    run.says("STATE.md open for writing and does not close it; close it there");
    drop(open);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
}
