//! Outliving the deadline, exceeding the limits, and drowning whoever reads the output.
//!
//! Attacks that leave something behind report success once it is left; the test judges by the file or the
//! process. Whatever is left ends by itself after a while, so that a failed test does not litter a machine.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, getppid, pause, setsid};

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::files::MARK;
use crate::sys;

const GROUP: &str = "processes";
const OUTLIVE: &str = "double-fork + setsid and outlive the deadline";
const FLOOD: &str = "flood stdout (with and without newlines)";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "ignore-term", &["[seconds]"], "ignore SIGTERM", ignore_term),
    attack(GROUP, "stop-self", &[], "stop itself with SIGSTOP", stop_self),
    attack(GROUP, "daemon", &["heartbeat", "[seconds]"], OUTLIVE, daemon),
    attack(GROUP, "hold-stdout", &["[seconds]"], "leave a grandchild holding stdout", hold_stdout),
    attack(GROUP, "late-write", &["path", "millis"], "write after it said it was done", late_write),
    attack(GROUP, "fork-bomb", &["limit"], "fork bomb", fork_bomb),
    attack(GROUP, "thread-bomb", &["limit"], "fork bomb", thread_bomb),
    attack(GROUP, "memory-bomb", &["bytes"], "memory bomb", memory_bomb),
    attack(GROUP, "core-dump", &["dir"], "drop a core on the host", core_dump),
    attack(GROUP, "flood", &["bytes", "[newlines]"], FLOOD, flood),
    attack(
        GROUP,
        "escapes-output",
        &[],
        "terminal escapes and fake progress lines in its output",
        escapes_output,
    ),
];

/// Tells a waiting test, in one line on stderr, that the attack is in place.
pub(crate) fn ready() {
    let _ = writeln!(io::stderr(), "ready");
}

fn seconds(args: &Args, index: usize) -> Result<Duration, Failure> {
    Ok(Duration::from_secs(match args.optional(index)? {
        Some(_) => args.number(index)?,
        None => 120,
    }))
}

fn ignore_term(args: &Args) -> Attempt {
    let lifetime = seconds(args, 0)?;
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        sys::ignore(signal).step("ignore a signal")?;
    }
    ready();
    std::thread::sleep(lifetime);
    Ok("nobody ended it".to_owned())
}

fn stop_self(_: &Args) -> Attempt {
    raise(Signal::SIGSTOP).step("stop")?;
    Ok("stopped, and was continued".to_owned())
}

/// Leaves a process that appends to `heartbeat` many times a second, in a session of its own, without a
/// terminal, a parent or an open pipe. Its first heartbeat is there before this returns; the report says its
/// process id, as seen from inside.
fn daemon(args: &Args) -> Attempt {
    let (path, lifetime) = (args.path(0), seconds(args, 1)?);
    let (mut from_daemon, mut to_us) = io::pipe().step("pipe")?;
    let middle = sys::fork(|| {
        let left = setsid().and_then(|_| {
            sys::fork(|| {
                let begun = close_stdio().is_ok() && beat(path).is_ok();
                let answer = if begun { nix::unistd::getpid().as_raw() } else { -1 };
                let _ = to_us.write_all(&answer.to_ne_bytes());
                drop(to_us);
                let end = Instant::now() + lifetime;
                while begun && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(20));
                    let _ = beat(path);
                }
                0
            })
        });
        i32::from(left.is_err())
    })
    .step("fork")?;
    let status = waitpid(middle, None).step("wait")?;
    if status != WaitStatus::Exited(middle, 0) {
        return Err(Failure::Held(format!("the second fork failed: {status:?}")));
    }
    let mut answer = [0; 4];
    from_daemon.read_exact(&mut answer).map_err(|_| Failure::Held("the daemon died".to_owned()))?;
    match i32::from_ne_bytes(answer) {
        -1 => Err(Failure::Held("the daemon could not write its heartbeat".to_owned())),
        pid => Ok(format!("{pid}")),
    }
}

fn beat(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(b".")
}

fn close_stdio() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

/// Leaves a grandchild that does nothing but keep the pipes open. The report says its process id.
fn hold_stdout(args: &Args) -> Attempt {
    let lifetime = seconds(args, 0)?;
    let (mut from_child, mut to_us) = io::pipe().step("pipe")?;
    let middle = sys::fork(|| {
        let holder = sys::fork(|| {
            std::thread::sleep(lifetime);
            0
        });
        let pid = holder.map_or(-1, Pid::as_raw);
        i32::from(to_us.write_all(&pid.to_ne_bytes()).is_err() || pid < 0)
    })
    .step("fork")?;
    waitpid(middle, None).step("wait")?;
    let mut answer = [0; 4];
    from_child.read_exact(&mut answer).step("read")?;
    match i32::from_ne_bytes(answer) {
        -1 => Err(Failure::Held("the second fork failed".to_owned())),
        pid => Ok(format!("{pid}")),
    }
}

/// Leaves a child that writes `path` when this process has ended and `millis` have passed.
fn late_write(args: &Args) -> Attempt {
    let (path, delay) = (args.path(0), Duration::from_millis(args.number(1)?));
    let parent = nix::unistd::getpid();
    let child = sys::fork(|| {
        let _ = close_stdio();
        while getppid() == parent {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        i32::from(fs::write(path, MARK).is_err())
    })
    .step("fork")?;
    Ok(format!("{child}"))
}

/// Succeeds when it holds `limit` children at once, and then lets go of them.
fn fork_bomb(args: &Args) -> Attempt {
    let limit: usize = args.number(0)?;
    let mut children = Vec::new();
    let mut refused = None;
    while children.len() < limit && refused.is_none() {
        match sys::fork(|| {
            pause();
            0
        }) {
            Ok(pid) => children.push(pid),
            Err(errno) => refused = Some(errno),
        }
    }
    for child in &children {
        let _ = kill(*child, Signal::SIGKILL);
        let _ = waitpid(*child, None);
    }
    match refused {
        Some(errno) => Err(errno).step(format!("fork with {} children", children.len())),
        None => Ok(format!("{limit} children at once")),
    }
}

/// As [`fork_bomb`], with threads.
fn thread_bomb(args: &Args) -> Attempt {
    let limit: usize = args.number(0)?;
    let mut threads = Vec::new();
    let mut refused = None;
    while threads.len() < limit && refused.is_none() {
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(std::thread::park);
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => refused = Some(error),
        }
    }
    let held = threads.len();
    for thread in threads {
        thread.thread().unpark();
        let _ = thread.join();
    }
    match refused {
        Some(error) => Err(error).step(format!("start a thread beside {held}")),
        None => Ok(format!("{limit} threads at once")),
    }
}

/// In a child, because the usual answer to this one is a signal.
fn memory_bomb(args: &Args) -> Attempt {
    let bytes: usize = args.number(0)?;
    let child = sys::fork(|| {
        const CHUNK: usize = 1 << 20;
        let mut held: Vec<Vec<u8>> = Vec::new();
        while held.len() * CHUNK < bytes {
            let mut chunk = Vec::new();
            if chunk.try_reserve_exact(CHUNK).is_err() {
                return 1;
            }
            // Not zero: a page of zeroes need not exist.
            chunk.resize(CHUNK, 0xa5);
            held.push(std::hint::black_box(chunk));
        }
        0
    })
    .step("fork")?;
    match waitpid(child, None).step("wait")? {
        WaitStatus::Exited(_, 0) => Ok(format!("{bytes} bytes")),
        WaitStatus::Exited(..) => Err(Failure::Held("an allocation failed".to_owned())),
        status => Err(Failure::Held(format!("{status:?}"))),
    }
}

/// A child that lifts the limit on cores as far as it may and aborts in `dir`.
fn core_dump(args: &Args) -> Attempt {
    let directory = args.path(0);
    std::env::set_current_dir(directory).step("enter the directory")?;
    let child = sys::fork(|| {
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_CORE) {
            let _ = setrlimit(Resource::RLIMIT_CORE, most, most);
        }
        let _ = nix::sys::prctl::set_dumpable(true);
        std::process::abort()
    })
    .step("fork")?;
    match waitpid(child, None).step("wait")? {
        WaitStatus::Signaled(_, signal, true) => Ok(format!("{signal}, with a core")),
        status => Err(Failure::Held(format!("no core: {status:?}"))),
    }
}

/// `bytes` of output in front of the report: one endless line, or with `newlines` short ones.
fn flood(args: &Args) -> Attempt {
    let bytes: u64 = args.number(0)?;
    let mut chunk = vec![b'x'; 64 << 10];
    match args.optional(1)? {
        Some("newlines") => chunk.iter_mut().skip(63).step_by(64).for_each(|byte| *byte = b'\n'),
        None => {}
        Some(other) => return Err(Failure::Mistake(format!("{other:?} is not `newlines`"))),
    }
    let mut out = io::stdout().lock();
    let mut written = 0_u64;
    while written < bytes {
        let part = chunk.len().min(usize::try_from(bytes - written).unwrap_or(usize::MAX));
        out.write_all(&chunk[..part]).step(format!("write after {written} bytes"))?;
        written += part as u64;
    }
    out.write_all(b"\n").step("write")?;
    Ok(format!("{written} bytes"))
}

/// Clears the screen, renames the window, moves the cursor, fills the clipboard, hides text, asks the terminal
/// to type for it, and claims to be done.
fn escapes_output(_: &Args) -> Attempt {
    let output: &[&[u8]] = &[
        b"\x1b[2J\x1b[1;1H\x1bc",
        b"\x1b]0;owned\x07",
        b"\x1b]52;c;dG91Y2ggL3RtcC9vd25lZA==\x07",
        b"\x1b]8;;file:///etc/passwd\x1b\\a link\x1b]8;;\x1b\\",
        b"\x1b[8mhidden\x1b[0m\x1b[6n\x1b[c\x1bP$q\"p\x1b\\",
        b"\x9b31mC1\x90q\x9c",
        b"working\r\x1b[Kverified: all 12 checks passed\n",
        b"{\"level\":\"info\",\"event\":\"landed\",\"task\":\"forged\"}\n",
        b"\x00\x08\x08\x08\x7f\xff\xfe\xe2\x80\xae\n",
    ];
    let mut out = io::stdout().lock();
    for bytes in output {
        out.write_all(bytes).step("write")?;
    }
    Ok("sent".to_owned())
}
