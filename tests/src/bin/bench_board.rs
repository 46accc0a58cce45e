//! What a board of many tasks costs: `agency status --json` beside `cat` of the same files, and `agency task new`
//! beside the same on an empty board, interleaved. `bench_board [ROUNDS [TASKS]]`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use agency_tests::adversary::agency;
use agency_tests::repository::{Repository, actors};

/// What the issues of a team of four agents over a year look like.
const AGENTS: [&str; 4] = ["claude-code", "codex", "aider", "gemini"];
const DAYS: usize = 250;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, usual: usize| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(usual);
    match measure(number(0, 15), number(1, 10_000)) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_board: {error}");
            ExitCode::from(1)
        }
    }
}

fn measure(rounds: usize, tasks: usize) -> io::Result<Vec<String>> {
    let actor = actors()[0];
    let files = [("README.md", "A project.\n")];
    let (empty, full) = (Repository::new(actor, &files)?, Repository::new(actor, &files)?);
    for repository in [&empty, &full] {
        run(repository.path(), &["init", "--builders", "codex"])?;
    }
    let files = fill(full.path(), tasks)?;
    run(full.path(), &["lint", "--fix"])?;
    let [mut status, mut cat, mut on_full, mut on_empty] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        status.push(timed(|| run(full.path(), &["status", "--json"]))?);
        cat.push(timed(|| concatenate(full.path(), &files))?);
        on_full.push(timed(|| run(full.path(), &["task", "new", "--title", "One more"]))?);
        on_empty.push(timed(|| run(empty.path(), &["task", "new", "--title", "One more"]))?);
    }
    let line = |what: &str, ours: &mut Vec<f64>, peer: &str, theirs: &mut Vec<f64>, target: f64| {
        let (ours, theirs) = (median(ours), median(theirs));
        let ratio = ours / theirs;
        let held = if ratio <= target { "held" } else { "not held" };
        format!(
            "{what} {:.1} ms, {peer} {:.1} ms, ratio {ratio:.2}, target {target}: {held}",
            ours * 1e3,
            theirs * 1e3
        )
    };
    Ok(vec![
        line(&format!("status of {tasks} tasks"), &mut status, "cat", &mut cat, 3.0),
        line(
            &format!("task new beside {tasks} tasks"),
            &mut on_full,
            "on an empty board",
            &mut on_empty,
            1.5,
        ),
    ])
}

/// Writes the tasks as `agency task new` would, and returns their paths.
fn fill(root: &Path, tasks: usize) -> io::Result<Vec<String>> {
    let mut files = Vec::with_capacity(tasks);
    for number in 1..=tasks {
        let agent = AGENTS[number % AGENTS.len()];
        let day = number * DAYS / (tasks + 1);
        let date = format!("2026-{:02}-{:02}", 1 + day / 28, 1 + day % 28);
        let folder = format!(".kodingx/inbox/{agent}/{date}");
        fs::create_dir_all(root.join(&folder))?;
        let file =
            format!("{folder}/T{number:04}-{:02}{:02}-fix-number-{number}.md", number % 24, number % 60);
        let text = format!(
            "---\nid: T{number:04}\ntitle: \"Fix number {number} of the invoice totals\"\npriority: P{}\n\
             status: NEW\nassignee: {agent}\ncreated_at: {date}T16:10:00+01:00\ndod_profile: auto\nscope:\n  \
             must_touch:\n    - \"src/accounting/**\"\n  may_touch:\n    - \"tests/**\"\n  must_not_touch:\n    \
             - \"db/migrations/**\"\nacceptance:\n  - \"Totals match fixtures for 10 known cases\"\nlabels: \
             [\"bug\", \"accounting\"]\n---\n\n## Problem\nTotals are off by one.\n\n## Expected Outcome\nThey \
             are not.\n\n## Notes\n",
            number % 4
        );
        fs::write(root.join(&file), text)?;
        files.push(file);
    }
    Ok(files)
}

fn run(root: &Path, arguments: &[&str]) -> io::Result<()> {
    let mut command = Command::new(agency());
    command
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("agency {arguments:?} ended with {status}")))
    }
}

fn concatenate(root: &Path, files: &[String]) -> io::Result<()> {
    let out = fs::File::create("/dev/null")?;
    let status = Command::new("cat").args(files).current_dir(root).stdout(out).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cat ended with {status}"))) }
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
