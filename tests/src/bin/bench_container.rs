//! What a container of ours costs, beside `docker run --rm` with the same options: the same trivial command, run by
//! both in turn on the same engine, so that whatever else the machine does falls on both alike.
//!
//! `bench_container [ROUNDS]`, with `AGENCY_TEST_ENGINE` naming the engine. Ours copies the workspace, reads back what
//! holds the command and harvests what it changed; theirs is given the folder as it is. Each run's own result is
//! asserted, and what ours changed: a container that is fast because nothing is done in it does not count.

use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use agency_tests::engine::Engine;
use agency_tests::repository::{Repository, actors};

const SCRIPT: &str = "echo changed > src/main.rs";
/// What a container of ours may cost, as a part of what Docker's does.
const TARGET: f64 = 1.1;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(40);
    match measure(rounds) {
        Ok((agency, docker)) => {
            let ratio = median(&agency) / median(&docker);
            println!("{:>10} {:>10} {:>8}", "agency", "docker run", "ratio");
            println!("{:>7.0} ms {:>7.0} ms {ratio:>8.2}", median(&agency), median(&docker));
            println!("target {TARGET}: {}", if ratio <= TARGET { "held" } else { "not held" });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_container: {error}");
            ExitCode::from(1)
        }
    }
}

fn measure(rounds: usize) -> Result<(Vec<f64>, Vec<f64>), String> {
    let engine = Engine::find()?;
    let image = engine.image();
    let files = [("src/main.rs", "fn main() {}\n"), ("Cargo.toml", "[package]\n"), (".gitignore", "*.log\n")];
    let repository = Repository::new(actors()[0], &files).map_err(|error| error.to_string())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds + 2 {
        let mut agency = repository.sandbox(&["--isolation", "container", "--image", &image]);
        agency.args(["--write", "src/**", "--memory", "1GiB", "--", "sh", "-c", SCRIPT]);
        let agency = time(agency.env("DOCKER_HOST", engine.address()), "1 file changed, thrown away")?;
        let docker = time(&mut docker(&engine, &repository, &image), "")?;
        let read = fs::read_to_string(repository.path().join("src/main.rs"));
        if read.map_err(|error| error.to_string())? != "changed\n" {
            return Err("docker run changed nothing".to_owned());
        }
        fs::write(repository.path().join("src/main.rs"), files[0].1).map_err(|error| error.to_string())?;
        if round >= 2 {
            ours.push(agency);
            theirs.push(docker);
        }
    }
    Ok((ours, theirs))
}

/// What people write who know what to ask for.
fn docker(engine: &Engine, repository: &Repository, image: &str) -> Command {
    let root = repository.path().display();
    let mut command =
        engine.docker(&["run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"]);
    command.args(["--security-opt", "no-new-privileges", "--pids-limit", "4096", "--memory", "1g"]);
    command.args([
        "--memory-swap",
        "1g",
        "--ulimit",
        "core=0",
        "--log-driver",
        "none",
        "--cgroupns",
        "private",
    ]);
    command.args(["--ipc", "private", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/root"]);
    command.args(["--volume", &format!("{root}:{root}:ro"), "--volume", &format!("{root}/src:{root}/src")]);
    command.args(["--workdir", &root.to_string(), image, "sh", "-c", SCRIPT]);
    command
}

fn time(command: &mut Command, says: &str) -> Result<f64, String> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let output = command.output().map_err(|error| error.to_string())?;
    let elapsed = start.elapsed().as_secs_f64() * 1000.0;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() && said.contains(says) {
        true => Ok(elapsed),
        false => Err(format!("{command:?}: {output:?}")),
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
