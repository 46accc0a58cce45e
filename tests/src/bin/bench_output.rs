//! What capturing and redacting output costs: the same gigabyte, written by the same program, through `cat` and
//! through `agency sandbox`, into a file in memory. Every round is checked: all of the output is there, and no
//! secret is. `bench_output [ROUNDS [MEBIBYTES]]`.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use agency_tests::adversary::copy_program;
use agency_tests::repository::{Repository, actors};

const SECRET: &str = "correct-horse-battery-staple-0123456789";
const MARK: &str = "[redacted: SECRET]";
/// Secrets lie at a random place in each block, so that they are cut by every kind of boundary.
const BLOCK: usize = 1 << 20;
/// At least a third of the speed of `cat`.
const TARGET: f64 = 3.0;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, usual: usize| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(usual);
    if arguments.first().is_some_and(|word| word == "produce") {
        // A reader that went away is the measured program's business.
        let _ = produce(number(1, 1024), SECRET, &mut io::stdout().lock());
        return ExitCode::SUCCESS;
    }
    match measure(number(0, 5), number(1, 1024)) {
        Ok((ours, theirs, peak)) => {
            let ratio = ours / theirs;
            println!(
                "output through agency {ours:.2} s, cat {theirs:.2} s, ratio {ratio:.2}, peak memory of agency {peak} KiB"
            );
            println!("target {TARGET}: {}", if ratio <= TARGET { "held" } else { "not held" });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_output: {error}");
            ExitCode::from(1)
        }
    }
}

/// Lines of words, one secret in each block.
fn produce(blocks: usize, secret: &str, out: &mut impl Write) -> io::Result<()> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let block = text(&mut random);
    for _ in 0..blocks {
        let (before, after) = block.split_at(random.below(BLOCK));
        out.write_all(before)?;
        out.write_all(secret.as_bytes())?;
        out.write_all(after)?;
    }
    out.flush()
}

/// What a build prints: words, paths and numbers, some of which begin as credentials do.
fn text(random: &mut Random) -> Vec<u8> {
    const WORDS: &[&str] = &[
        "Compiling",
        "src/output/redact.rs",
        "warning:",
        "unused",
        "variable",
        "note:",
        "expected",
        "found",
        "running",
        "1024",
        "tests",
        "ok",
        "0.031s",
        "/usr/lib",
        "error[E0382]:",
        "the",
        "of",
        "-->",
    ];
    const SUSPICIOUS: &[&str] = &["task-queue", "disk-0", "npm_config", "basic", "eyJ", "AKIA", "-----"];
    let mut text = Vec::with_capacity(BLOCK + 64);
    while text.len() < BLOCK {
        let word = match random.below(100) {
            0 => SUSPICIOUS[random.below(SUSPICIOUS.len())],
            _ => WORDS[random.below(WORDS.len())],
        };
        text.extend_from_slice(word.as_bytes());
        text.push(if random.below(10) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(BLOCK);
    text
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Medians of agency and of `cat` in seconds, and the most memory agency had.
fn measure(rounds: usize, blocks: usize) -> Result<(f64, f64, u64), Box<dyn std::error::Error>> {
    let repository = Repository::new(actors()[0], &[("a", "one\n")])?;
    let producer = repository.path().join("producer");
    copy_program(&std::env::current_exe()?, &producer)?;
    let memory = tempfile::tempdir_in("/dev/shm")?;
    let file = memory.path().join("output");
    let blocks = blocks.to_string();
    let (mut ours, mut theirs, mut peak) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut writer = Command::new(&producer).args(["produce", &blocks]).stdout(Stdio::piped()).spawn()?;
        let pipe = writer.stdout.take().ok_or("no pipe")?;
        let mut cat = Command::new("cat").stdin(pipe).stdout(File::create(&file)?).spawn()?;
        cat.wait()?;
        writer.wait()?;
        theirs.push(begin.elapsed().as_secs_f64());
        compare(&file, &blocks, SECRET)?;
        fs::remove_file(&file)?;

        let begin = Instant::now();
        let mut agency = repository
            .sandbox(&["--env", "SECRET", "--output", "64GiB", "--", "./producer", "produce", &blocks])
            .env("SECRET", SECRET)
            .stdout(File::create(&file)?)
            .stderr(Stdio::null())
            .spawn()?;
        peak = peak.max(watch(&mut agency)?);
        ours.push(begin.elapsed().as_secs_f64());
        compare(&file, &blocks, MARK)?;
        fs::remove_file(&file)?;
    }
    Ok((median(&mut ours), median(&mut theirs), peak))
}

/// Waits for a program; the most memory it was seen to have, in KiB.
fn watch(child: &mut Child) -> Result<u64, Box<dyn std::error::Error>> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let seen = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(seen.unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err(format!("agency: {status}").into()) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The file must hold what was produced, with `secret` where the secret was.
fn compare(file: &Path, blocks: &str, secret: &str) -> Result<(), Box<dyn std::error::Error>> {
    struct Compare(BufReader<File>);
    impl Write for Compare {
        fn write(&mut self, expected: &[u8]) -> io::Result<usize> {
            let mut found = vec![0; expected.len()];
            self.0.read_exact(&mut found)?;
            if found == expected { Ok(expected.len()) } else { Err(io::Error::other("the output differs")) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut compare = Compare(BufReader::with_capacity(BLOCK, File::open(file)?));
    produce(blocks.parse()?, secret, &mut compare)?;
    match compare.0.read(&mut [0])? {
        0 => Ok(()),
        _ => Err("the output is longer than what was written".into()),
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
