//! What a workspace costs on a large repository, beside what `git worktree` costs.
//!
//! Both ways take turns in one run, because a machine is never twice the same: a work tree is added, looked at
//! and removed; then the base moves by ten files, and `agency sandbox` gives a script that changes ten files a
//! workspace on it, harvests, and clears up. Inside and outside, git is timed by the same script. The first snapshot
//! is made beforehand and reported by itself. `bench_workspace [FILES [ROUNDS]]`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agency_tests::adversary;
use serde_json::Value as Json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CHANGES: usize = 10;
/// `git status` several times in one tree, each in microseconds. The first one has to look at everything.
const LOOKS: &str = r#"
for look in 1 2 3 4; do
  start=${EPOCHREALTIME/./}
  seen=$(git status --porcelain) && [ -z "$seen" ] || { echo "not clean: $seen" >&2; exit 1; }
  echo $((${EPOCHREALTIME/./} - start))
done
"#;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let files: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let temp = tempfile::tempdir()?;
    let root = temp.path().canonicalize()?.join("repo");
    make_repository(&root, files)?;
    let start = Instant::now();
    inside(&root, "true")?;
    println!("{files} files, {rounds} rounds; the first snapshot took {}", shown(start.elapsed()));

    let (mut native, mut ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        native.push(native_attempt(&root, &temp.path().join("worktree"))?);
        move_base(&root, files, round)?;
        ours.push(attempt(&root, files)?);
        println!("round {}: {}\n         {}", round + 1, native[round], ours[round]);
    }
    println!("\n{:<44} {:>11} {:>11} {:>7} {:>7}", "median", "worktree", "sandbox", "ratio", "target");
    let middle = |list: &[Attempt], of: fn(&Attempt) -> Duration| {
        let mut times: Vec<_> = list.iter().map(of).collect();
        times.sort();
        times[times.len() / 2]
    };
    let compare = |what: &str, of: fn(&Attempt) -> Duration, faster: bool, target: f64| {
        let (one, other) = (middle(&native, of), middle(&ours, of));
        let ratio = match faster {
            true => one.as_secs_f64() / other.as_secs_f64(),
            false => other.as_secs_f64() / one.as_secs_f64(),
        };
        let held = if (ratio >= target) == faster { "held" } else { "not held" };
        println!("{what:<44} {:>11} {:>11} {ratio:>7.2} {target:>7}: {held}", shown(one), shown(other));
    };
    compare("a whole attempt, times faster", |one| one.whole, true, 50.0);
    compare("first git status, times as long", |one| one.looks[0], false, 1.5);
    compare("later git status, times as long", Attempt::later, false, 1.2);
    Ok(())
}

struct Attempt {
    whole: Duration,
    looks: Vec<Duration>,
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let looks: Vec<_> = self.looks.iter().map(|look| shown(*look)).collect();
        write!(f, "whole {}, looks {}", shown(self.whole), looks.join(", "))
    }
}

impl Attempt {
    fn later(&self) -> Duration {
        self.looks[1..].iter().sum::<Duration>() / (self.looks.len() - 1) as u32
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// What it says, on its output and aside.
fn said_by(command: &mut Command) -> Result<(String, String)> {
    let output = command.output()?;
    let (out, aside) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    if output.status.success() { Ok((out, aside)) } else { Err(format!("{command:?}: {aside}").into()) }
}

fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    said_by(command("git", folder).args(arguments)).map(drop)
}

fn path(number: usize) -> String {
    format!("part{}/section{}/file{number}.txt", number / 1000, number / 100 % 10)
}

fn import(root: &Path, commit: &str, files: impl Iterator<Item = (usize, String)>) -> Result<()> {
    let mut child = command("git", root).args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    let mut out = BufWriter::new(child.stdin.take().ok_or("no input")?);
    out.write_all(commit.as_bytes())?;
    for (number, content) in files {
        write!(out, "M 644 inline {}\ndata {}\n{content}\n", path(number), content.len())?;
    }
    out.flush()?;
    drop(out);
    if child.wait()?.success() { Ok(()) } else { Err("fast-import failed".into()) }
}

fn commit(from: &str) -> String {
    format!("commit refs/heads/main\ncommitter A <a@b> 1700000000 +0000\ndata 1\nx\n{from}")
}

fn make_repository(root: &Path, files: usize) -> Result<()> {
    fs::create_dir(root)?;
    git(root, &["init", "-q", "-b", "main"])?;
    import(
        root,
        &commit(""),
        (0..files).map(|number| (number, format!("this is file {number}\n").repeat(20))),
    )
}

fn move_base(root: &Path, files: usize, round: usize) -> Result<()> {
    let changed = (0..CHANGES).map(|step| (step * files / CHANGES, format!("moved in round {round}\n")));
    import(root, &commit("from refs/heads/main^0\n"), changed)
}

/// How long each of the looks took.
fn looks(printed: &str) -> Result<Vec<Duration>> {
    printed.lines().map(|line| Ok(Duration::from_micros(line.parse()?))).collect()
}

/// Adds a work tree, looks at it once and removes it; it is looked at again in between, which is not counted.
fn native_attempt(root: &Path, at: &Path) -> Result<Attempt> {
    let name = at.to_str().ok_or("a path that is text")?;
    let start = Instant::now();
    git(root, &["worktree", "add", "-q", "--detach", name, "main"])?;
    let there = start.elapsed();
    let looks = looks(&said_by(command("bash", at).args(["-c", LOOKS]))?.0)?;
    let start = Instant::now();
    git(root, &["worktree", "remove", name])?;
    Ok(Attempt { whole: there + looks[0] + start.elapsed(), looks })
}

/// An attempt that changes ten files, and one that only looks.
fn attempt(root: &Path, files: usize) -> Result<Attempt> {
    let changed = (0..CHANGES).map(|step| path(step * files / CHANGES + 1)).collect::<Vec<_>>();
    let script = format!("for file in {}; do echo changed > $file; done", changed.join(" "));
    let start = Instant::now();
    let (report, _) = inside(root, &script)?;
    let whole = start.elapsed();
    let harvested = report["harvest"]["changes"].as_array().map_or(0, Vec::len);
    if harvested != CHANGES {
        return Err(format!("{harvested} changes: {report}").into());
    }
    Ok(Attempt { whole, looks: looks(&inside(root, LOOKS)?.1)? })
}

/// A script in a sandbox on the branch: the report of it, and what it printed.
fn inside(root: &Path, script: &str) -> Result<(Json, String)> {
    let mut command = Command::new(adversary::agency());
    command.current_dir(root).args([
        "sandbox",
        "--json",
        "--base",
        "main",
        "--write",
        "**",
        "--discard",
        "--",
    ]);
    let (report, printed) = said_by(command.args(["bash", "-c", script]))?;
    Ok((serde_json::from_str(&report)?, printed))
}
