//! What becomes of a command's output: nothing is lost, no secret passes, no flood fills memory, no escape
//! reaches a terminal, and nobody who reads slowly holds the deadlines up.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use agency_tests::processes::{Marker, VARIABLE, wait_until};
use agency_tests::repository::{Repository, actors, said};
use agency_tests::terminal::Terminal;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};

const KEY: &str = "correct-horse-battery";
const LINES: &str = "the first line\nthe second";
const TOKEN: &str = "ghp_0123456789abcdefABCDEF0123456789abcd";
const FILES: &[(&str, &str)] = &[("src/a", "one\n")];
const DEADLINE: Duration = Duration::from_secs(60);

fn repositories() -> impl Iterator<Item = Repository> {
    actors().into_iter().map(|actor| Repository::new(actor, FILES).expect("a repository"))
}

/// A shell script in a sandbox that was given [`KEY`] and [`LINES`].
fn with_secrets(repository: &Repository, flags: &[&str], script: &str) -> Command {
    let mut command = repository.sandbox(flags);
    command.args(["--env", "KEY", "--env", "LINES", "--env", "EMPTY", "--", "sh", "-c", script]);
    command.env("KEY", KEY).env("LINES", LINES).env("EMPTY", "");
    command
}

fn run(repository: &Repository, flags: &[&str], script: &str) -> (String, String) {
    said(&with_secrets(repository, flags, script).output().expect("runs"))
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Bytes of every kind, in no order, with lines of any length; deterministic, and free of secrets.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn arbitrary_bytes_and_endless_lines_pass_unchanged() {
    for repository in repositories() {
        let mut bytes = noise(3_000_000);
        bytes.extend(vec![b'x'; 3_000_000]);
        fs::write(repository.path().join("noise"), &bytes).expect("writes");
        let output = with_secrets(&repository, &[], "cat noise; cat noise >&2").output().expect("runs");
        assert!(output.stdout == bytes, "{} bytes of standard output", output.stdout.len());
        assert!(output.stderr == bytes, "{} bytes of standard error", output.stderr.len());
    }
}

#[test]
fn a_secret_is_taken_out_wherever_its_pieces_end() {
    for repository in repositories() {
        let script = format!(
            r#"for at in $(seq 1 {}); do
                 printf %s "$KEY" | head -c $at; printf %s "$KEY" | tail -c +$((at + 1)); echo
               done
               printf '%s\n' "$KEY" | dd bs=1 2>/dev/null
               echo {TOKEN} | dd bs=1 2>/dev/null
               echo "$LINES" | dd bs=1 2>/dev/null"#,
            KEY.len() - 1
        );
        let redacted = format!("{}[redacted]\n[redacted: LINES]\n", "[redacted: KEY]\n".repeat(KEY.len()));
        let (stdout, stderr) = run(&repository, &[], &script);
        assert_eq!(stdout, redacted);
        assert_eq!(stderr, "agency: 23 secrets redacted in the output\n");
        let (stdout, stderr) = run(&repository, &[], &format!("{{ {script}\n}} >&2"));
        assert_eq!(
            (stdout.as_str(), stderr.strip_prefix(&redacted)),
            ("", Some("agency: 23 secrets redacted in the output\n"))
        );
    }
}

#[test]
fn a_secret_is_taken_out_of_a_terminal_too() {
    for repository in repositories() {
        // A terminal ends lines in its own way.
        let output = with_secrets(&repository, &["--tty"], r#"echo "<$LINES> <$KEY>"; printf '\033[2J'"#)
            .output()
            .expect("runs");
        assert_eq!(said(&output).0, "<[redacted: LINES]> <[redacted: KEY]>\r\n\x1b[2J");
    }
}

#[test]
fn no_part_of_a_report_holds_a_secret() {
    for repository in repositories() {
        let script = format!(
            r#"echo "$KEY"; echo {TOKEN} >&2; echo "$KEY" > src/content; touch "src/$KEY"; ln -s "$KEY" src/link
               mkdir "src/$KEY.d"; mkfifo "src/$KEY.d/fifo""#
        );
        for flags in [&["--write", "src/**", "--json"][..], &["--write", "src/**"]] {
            let output = with_secrets(&repository, flags, &script).output().expect("runs");
            assert_eq!(output.status.code(), Some(20), "{output:?}");
            let (stdout, stderr) = said(&output);
            assert!(!stdout.contains(KEY) && !stderr.contains(KEY), "{stdout}\n{stderr}");
            assert!(!stdout.contains(TOKEN) && !stderr.contains(TOKEN), "{stdout}\n{stderr}");
            if flags.contains(&"--json") {
                let output = report(&output)["output"].clone();
                let stdout = json!({ "bytes": 22, "passed": 16, "left_out": 0, "redacted": 1 });
                let stderr = json!({ "bytes": 41, "passed": 11, "left_out": 0, "redacted": 1 });
                assert_eq!(output, json!({ "stdout": stdout, "stderr": stderr }));
            }
        }
        let output = with_secrets(&repository, &["--tty", "--json"], "echo $KEY").output().expect("runs");
        let terminal = json!({ "bytes": 23, "passed": 17, "left_out": 0, "redacted": 1 });
        assert_eq!(report(&output)["output"], json!({ "terminal": terminal }));
    }
}

/// The most memory a process had so far, in KiB, without what is only its program's file.
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it is alive");
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a figure");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    field("VmHWM:") - field("RssFile:")
}

#[test]
fn a_flood_is_cut_in_the_middle_and_fills_no_memory() {
    const FLOOD: usize = 64 << 20;
    const LIMIT: usize = 1 << 20;
    for repository in repositories() {
        for (flood, unit) in [("yes", "y\n"), ("tr '\\0' x < /dev/zero", "x")] {
            let script =
                format!("{flood} | head -c {FLOOD}; echo; echo the end; echo flooded >&2; read line");
            let file = repository.path().join("output");
            let mut child = repository
                .sandbox(&["--output", "1MiB", "--", "sh", "-c", &script])
                .stdin(Stdio::piped())
                .stdout(File::create(&file).expect("a file"))
                .stderr(Stdio::piped())
                .spawn()
                .expect("starts");
            let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
            let mut line = String::new();
            errors.read_line(&mut line).expect("reads");
            assert_eq!(line, "flooded\n");
            let peak = peak(&child);
            assert!(peak < 8 * 1024, "{peak} KiB");
            drop(child.stdin.take());
            // Shown when all is over, and the command's end is code 1 of `read`.
            line.clear();
            errors.read_to_string(&mut line).expect("reads");
            child.wait().expect("ends");
            let output = fs::read_to_string(&file).expect("text");
            let (beginning, rest) = output.split_once("[agency: ").expect("a notice");
            let (count, end) = rest.split_once(" bytes left out here]\n").expect("a notice");
            let all = FLOOD + "\nthe end\n".len();
            let left_out: usize = count.parse().expect("a number");
            assert!(beginning.trim_end_matches('\n').chars().all(|character| unit.contains(character)));
            assert!(end.starts_with(unit.chars().next().expect("one")) || end.starts_with('\n'));
            assert!(end.ends_with(&format!("{unit}\nthe end\n")), "{}", &end[end.len() - 40..]);
            // The notice begins a line, for which a newline was added unless the beginning ended with one.
            let added = usize::from(unit == "x");
            assert_eq!(beginning.len() - added + end.len(), LIMIT);
            assert_eq!(left_out, all - LIMIT);
            assert_eq!(
                line,
                format!("agency: {left_out} bytes of the output left out; --output raises the limit\n")
            );
        }
    }
}

#[test]
fn what_fits_exactly_is_not_cut() {
    let repository = Repository::new(actors()[0], FILES).expect("a repository");
    assert_eq!(run(&repository, &["--output", "8"], "echo 1234567"), ("1234567\n".into(), String::new()));
    let (stdout, _) = run(&repository, &["--output", "8"], "echo 12345678");
    assert_eq!(stdout, "123456\n[agency: 1 bytes left out here]\n8\n");
}

#[test]
fn a_slow_reader_loses_nothing() {
    for repository in repositories() {
        let bytes = noise(4 << 20);
        fs::write(repository.path().join("noise"), &bytes).expect("writes");
        let mut child = repository
            .sandbox(&["--", "sh", "-c", "cat noise; echo written >&2"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let (mut output, mut errors) =
            (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let mut read = Vec::new();
        // Nothing was read, so the command can't have written everything: it waits, and is alive.
        let mut piece = [0; 1000];
        output.read_exact(&mut piece).expect("reads");
        read.extend(piece);
        assert!(child.try_wait().expect("waits").is_none());
        output.read_to_end(&mut read).expect("reads");
        assert!(read == bytes, "{} bytes", read.len());
        let mut line = String::new();
        errors.read_to_string(&mut line).expect("reads");
        assert_eq!(line, "written\n");
        assert!(child.wait().expect("ends").success());
    }
}

#[test]
fn deadlines_and_signals_work_while_nobody_reads() {
    for repository in repositories() {
        let marker = Marker::new();
        let start = || {
            let mut command = repository.sandbox(&["--timeout", "500ms", "--env", VARIABLE, "--", "yes"]);
            command.env(VARIABLE, marker.as_str()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("starts");
            // It has begun to write. From here on nobody reads, and all of the sandbox dies all the same.
            child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("reads");
            let only_agency = || {
                let alive = marker.alive();
                alive.len() == 1 && alive[0].pid == child.id()
            };
            assert!(wait_until(DEADLINE, only_agency), "{:?}", marker.alive());
            child
        };
        let mut child = start();
        let mut output = Vec::new();
        child.stdout.take().expect("a pipe").read_to_end(&mut output).expect("reads");
        assert!(output.len() > 64 * 1024 && output.iter().all(|byte| b"y\n".contains(byte)));
        assert_eq!(child.wait().expect("ends").code(), Some(124));

        // Who asks for the end then does not wait for a reader either.
        let mut child = start();
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signals");
        assert!(wait_until(DEADLINE, || child.try_wait().expect("waits").is_some()));
    }
}

#[test]
fn who_asks_for_the_end_waits_for_no_reader() {
    for repository in repositories() {
        let marker = Marker::new();
        let mut command = repository.sandbox(&["--env", VARIABLE, "--", "yes"]);
        command.env(VARIABLE, marker.as_str()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        // It writes, and goes on to: its pipe is full before it has ended, and stays so.
        child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("reads");
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signals");
        assert!(wait_until(DEADLINE, || child.try_wait().expect("waits").is_some()), "{:?}", marker.alive());
        assert_eq!(marker.gone_within(DEADLINE), Ok(()));
    }
}

#[test]
fn deadlines_and_signals_work_while_a_terminal_takes_nothing() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::os::unix::fs::MetadataExt;
    for repository in repositories() {
        let screen =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("a terminal");
        let name = ptsname(&screen, Vec::new()).expect("a name").into_string().expect("text");
        // A terminal belongs to whoever sits at it.
        let owner = fs::metadata(repository.path()).expect("is there");
        std::os::unix::fs::chown(&name, Some(owner.uid()), Some(owner.gid())).expect("gives");
        let side = File::options().read(true).write(true).open(&name).expect("opens");

        let marker = Marker::new();
        let mut command = repository.sandbox(&["--timeout", "500ms", "--env", VARIABLE, "--", "yes"]);
        command.env(VARIABLE, marker.as_str()).stdout(side).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        drop(command);
        let mut screen = File::from(screen);
        screen.read_exact(&mut [0]).expect("reads");
        let only_agency = || marker.alive().iter().map(|alive| alive.pid).eq([child.id()]);
        assert!(wait_until(DEADLINE, only_agency), "{:?}", marker.alive());
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signals");
        assert!(wait_until(DEADLINE, || child.try_wait().expect("waits").is_some()));
    }
}

#[test]
fn a_command_that_ended_in_time_is_not_late_because_its_reader_is() {
    for repository in repositories() {
        let marker = Marker::new();
        let mut child = repository
            .sandbox(&["--timeout", "1s", "--env", VARIABLE, "--", "head", "-c", "300000", "/dev/zero"])
            .env(VARIABLE, marker.as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut output = child.stdout.take().expect("a pipe");
        output.read_exact(&mut [0]).expect("reads");
        assert!(wait_until(DEADLINE, || marker.alive().len() == 1), "{:?}", marker.alive());
        // Not to wait for anything, but to let the deadline pass.
        std::thread::sleep(Duration::from_millis(1500));
        assert!(child.try_wait().expect("waits").is_none(), "it waits for the reader");
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).expect("reads");
        assert_eq!(rest.len(), 299_999);
        assert_eq!(child.wait().expect("ends").code(), Some(0));
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_as_it_would_without_us() {
    for repository in repositories() {
        let mut child = repository
            .sandbox(&["--", "yes"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = child.stdout.take().expect("a pipe");
        output.read_exact(&mut [0; 4]).expect("reads");
        drop(output);
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(128 + libc::SIGPIPE), "{output:?}");
        assert_eq!(said(&output).1, "");
    }
}

#[test]
fn output_that_cannot_be_written_is_no_secret() {
    let repository = Repository::new(actors()[0], FILES).expect("a repository");
    let full = File::options().write(true).open("/dev/full").expect("opens");
    let output = repository.sandbox(&["--", "echo", "x"]).stdout(full).output().expect("runs");
    let (_, stderr) = said(&output);
    assert!(stderr.starts_with("agency: not all of the output could be written: No space"), "{stderr}");
}

#[test]
fn a_stream_we_share_is_left_as_it_is() {
    for repository in repositories() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (socket, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        // A pipe with a name is one that can't be told not to wait.
        let named = repository.path().join("named");
        rustix::fs::mknodat(rustix::fs::CWD, &named, FileType::Fifo, Mode::from(0o666), 0).expect("a pipe");
        let open = |flags| rustix::fs::open(&named, flags | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        let named_read = open(OFlags::RDONLY | OFlags::NONBLOCK);
        let named_write = open(OFlags::WRONLY);
        rustix::io::ioctl_fionbio(&named_read, false).expect("waits again");
        for (shared, theirs) in
            [(write, read), (OwnedFd::from(socket), OwnedFd::from(other)), (named_write, named_read)]
        {
            let stdio = || Stdio::from(shared.try_clone().expect("another"));
            let mut child = repository
                .sandbox(&["--", "sh", "-c", "head -c 3000000 /dev/zero; echo end"])
                .stdout(stdio())
                .stderr(stdio())
                .spawn()
                .expect("starts");
            let mut bytes = vec![1; 3_000_004];
            File::from(theirs).read_exact(&mut bytes).expect("reads");
            assert!(bytes.ends_with(b"\0end\n"));
            assert!(child.wait().expect("ends").success());
            let flags = rustix::fs::fcntl_getfl(shared.as_fd()).expect("flags");
            assert!(!flags.contains(OFlags::NONBLOCK));
        }
    }
}

#[test]
fn escapes_become_text_at_a_terminal() {
    for repository in repositories() {
        let print =
            r"printf '\033[2J\033]0;t\007\033[31mred\rlone\r\n\377 \302\233 \342\200\256 \303\244\177'";
        let shown = "␛[2J␛]0;t␇\x1b[31mred␍lone\r\n\u{fffd} \\u{9b} \\u{202e} ä␡\x1b[0m";
        for script in [print.to_owned(), format!("{print} >&2"), format!("{print} | dd bs=1 2>/dev/null")] {
            let screen = Terminal::start(&repository, &["--", "sh", "-c", &script], &[]).watch();
            assert_eq!(screen, shown);
        }
    }
}

#[test]
fn a_terminal_of_its_own_gets_everything_but_secrets() {
    for repository in repositories() {
        let arguments =
            ["--tty", "--env", "KEY", "--", "sh", "-c", r#"printf '\033[2J\033]0;t\007%s\r' "$KEY""#];
        let screen = Terminal::start(&repository, &arguments, &[("KEY", KEY)]).watch();
        assert!(screen.starts_with("\x1b[2J\x1b]0;t\x07[redacted: KEY]\r"), "{screen:?}");
    }
}

#[test]
fn a_prompt_appears_at_once_even_if_a_secret_begins_like_its_end() {
    for repository in repositories() {
        for tty in [&["--tty", "--env", "KEY", "--"][..], &["--env", "KEY", "--"]] {
            let script = r#"printf 'Continue? c'; read line; printf '%s' "$KEY" | dd bs=1 2>/dev/null; echo .; echo over"#;
            let arguments = [tty, &["sh", "-c", script]].concat();
            let mut terminal = Terminal::start(&repository, &arguments, &[("KEY", KEY)]);
            terminal.see("Continue? c");
            terminal.press("yes\n");
            terminal.see("[redacted: KEY].");
            terminal.see("over");
            assert_eq!(terminal.wait(), Some(0));
        }
    }
}

#[test]
fn what_we_say_begins_a_line_of_its_own() {
    for repository in repositories() {
        let script = "echo x > src/a; printf 'no end'";
        let arguments = ["--write", "src/**", "--", "sh", "-c", script];
        let screen = Terminal::start(&repository, &arguments, &[]).watch();
        assert!(screen.starts_with("no end\x1b[0m\r\nagency: 1 file changed"), "{screen:?}");
        let screen = Terminal::start(&repository, &["--", "printf", "no end"], &[]).watch();
        assert_eq!(screen, "no end", "where there is nothing to say, nothing is added");
    }
}
