//! What a start costs, beside bubblewrap: the same trivial command, run by both in turn, so that whatever
//! else the machine does falls on both alike.
//!
//! `bench_start [ROUNDS] [LIMIT]`: LIMIT is what a start may cost, as a multiple of bubblewrap's. As root it measures
//! root and an ordinary user. Each run's own result is asserted, and agency's attestation once: a sandbox that is fast because it holds nothing does not count.
//!
//! Both programs are measured as they are once installed. What a linker has just written lies in the page cache page by
//! page, and is mapped and unmapped that way, which takes up to a millisecond longer, until it is read from disk again.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use agency_tests::adversary::copy_program;
use agency_tests::repository::{Actor, Repository, actors};

const BUBBLEWRAP: &[&str] = &[
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--tmpfs",
    "/tmp",
    "--unshare-all",
    "--die-with-parent",
    "/bin/true",
];
const AGENCY: &[&str] = &["--write", "src/**", "--discard", "--", "/bin/true"];
#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(300);
    let limit: f64 = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(1.15);
    println!("{:<6} {:>10} {:>10} {:>8} {:>8}", "as", "agency", "bwrap", "median", "fastest");
    let mut held = true;
    for actor in actors() {
        match measure(actor, rounds) {
            Ok((agency, bwrap)) => {
                let ratio = median(&agency) / median(&bwrap);
                held &= ratio <= limit;
                println!(
                    "{:<6} {:>7.2} ms {:>7.2} ms {:>8.2} {:>8.2}",
                    format!("{actor:?}").to_lowercase(),
                    median(&agency),
                    median(&bwrap),
                    ratio,
                    fastest(&agency) / fastest(&bwrap),
                );
            }
            Err(error) => {
                eprintln!("bench_start: {error}");
                return ExitCode::from(1);
            }
        }
    }
    println!("limit {limit}: {}", if held { "held" } else { "not held" });
    ExitCode::SUCCESS
}

fn measure(actor: Actor, rounds: usize) -> Result<(Vec<f64>, Vec<f64>), String> {
    let files = [("src/main.rs", "fn main() {}\n"), ("Cargo.toml", "[package]\n"), (".gitignore", "*.log\n")];
    let repository = Repository::new(actor, &files).map_err(|error| error.to_string())?;
    attested(&repository)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = installed(&repository, actor, folder.path())?;
    let (mut agency, mut bwrap) = (Vec::new(), Vec::new());
    for round in 0..rounds + 5 {
        let ours = time({
            let mut command = repository.command(&program);
            command.arg("sandbox").args(AGENCY);
            command
        })?;
        let theirs = time({
            let mut command = repository.command(Path::new("bwrap"));
            command.args(BUBBLEWRAP);
            command
        })?;
        if round >= 5 {
            agency.push(ours);
            bwrap.push(theirs);
        }
    }
    Ok((agency, bwrap))
}

/// Where `agency` is installed: a user has a copy anyway.
fn installed(repository: &Repository, actor: Actor, folder: &Path) -> Result<PathBuf, String> {
    let program = match actor {
        Actor::User => return Ok(repository.agency().to_owned()),
        Actor::Root => folder.join("agency"),
    };
    copy_program(repository.agency(), &program).map_err(|error| error.to_string())?;
    Ok(program)
}

/// Overlay, Landlock and the filter must be in place, as the kernel tells it.
fn attested(repository: &Repository) -> Result<(), String> {
    let mut flags = vec!["--json"];
    flags.extend(AGENCY);
    let output = repository.sandbox(&flags).output().map_err(|error| error.to_string())?;
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    for control in
        ["scope", "landlock", "seccomp", "user-namespace", "network", "read-only-host", "capabilities"]
    {
        let controls = report["attestation"]["controls"].as_array().cloned().unwrap_or_default();
        let enforced = controls.iter().any(|one| one["control"] == control && one["enforced"] == "enforced");
        if !enforced {
            return Err(format!("{control} is not enforced"));
        }
    }
    Ok(())
}

fn time(mut command: Command) -> Result<f64, String> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let output = command.output().map_err(|error| error.to_string())?;
    let elapsed = start.elapsed().as_secs_f64() * 1000.0;
    match output.status.success() && output.stderr.is_empty() {
        true => Ok(elapsed),
        false => Err(format!("{command:?}: {output:?}")),
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}
