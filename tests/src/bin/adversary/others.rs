//! Reaching into other processes: the supervisor, another agent, the sandbox's own init.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::sys::{Arg, address_mut, call, call_fd, words};

const GROUP: &str = "processes";
const REACH: &str = "signal, ptrace, process_vm_writev the supervisor or another agent";
const PROC: &str = "read /proc/PID/environ, root, cwd, mem of anything outside";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "signal", &["pid"], REACH, signal),
    attack(GROUP, "signal-all", &[], REACH, signal_all),
    attack(GROUP, "pidfd-signal", &["pid"], REACH, pidfd_signal),
    attack(GROUP, "ptrace-attach", &["pid"], REACH, ptrace_attach),
    attack(GROUP, "vm-write", &["pid"], REACH, vm_write),
    attack(GROUP, "pidfd-getfd", &["pid"], REACH, pidfd_getfd),
    attack(GROUP, "process-madvise", &["pid"], REACH, process_madvise).needs_root(),
    attack(GROUP, "renice", &["pid"], REACH, renice),
    attack(GROUP, "prlimit", &["pid"], REACH, prlimit),
    attack(GROUP, "proc-environ", &["pid"], PROC, proc_environ),
    attack(GROUP, "proc-mem", &["pid"], PROC, proc_mem),
    attack(GROUP, "proc-cwd", &["pid"], PROC, proc_cwd),
    attack(GROUP, "proc-fd", &["pid"], PROC, proc_fd),
    attack(GROUP, "proc-list", &["comm"], PROC, proc_list),
    attack(GROUP, "dumpable-pid1", &[], PROC, dumpable_pid1),
    attack(GROUP, "kill-init", &[], REACH, kill_init)
        .never_natively("an init is immune to its own namespace, and the machine's init is no target"),
    attack(GROUP, "inherited-fds", &[], "use file descriptors it should not have inherited", inherited_fds),
];

fn pid(args: &Args) -> Result<Pid, Failure> {
    match args.number(0)? {
        // Zero and below mean groups of processes, this one's among them.
        pid if pid > 0 => Ok(Pid::from_raw(pid)),
        pid => Err(Failure::Mistake(format!("{pid} is not a process"))),
    }
}

fn signal(args: &Args) -> Attempt {
    kill(pid(args)?, Signal::SIGTERM).step("kill")?;
    Ok("SIGTERM".to_owned())
}

/// Signal 0 to everybody who may be signalled: it fails with `ESRCH` if there is nobody, and hurts no one.
fn signal_all(_: &Args) -> Attempt {
    kill(Pid::from_raw(-1), None).step("kill(-1, 0)")?;
    Ok("somebody else can be signalled".to_owned())
}

fn pidfd(args: &Args) -> Result<OwnedFd, Failure> {
    call_fd(libc::SYS_pidfd_open, &mut [pid(args)?.as_raw().into(), 0.into()]).step("pidfd_open")
}

fn pidfd_signal(args: &Args) -> Attempt {
    let fd = pidfd(args)?;
    call!(libc::SYS_pidfd_send_signal, &fd, libc::SIGTERM, Arg::Null, 0).step("pidfd_send_signal")?;
    Ok("SIGTERM".to_owned())
}

fn ptrace_attach(args: &Args) -> Attempt {
    let pid = pid(args)?;
    call!(libc::SYS_ptrace, libc::PTRACE_ATTACH, pid.as_raw(), 0, 0).step("attach")?;
    waitpid(pid, None).step("wait for it to stop")?;
    call!(libc::SYS_ptrace, libc::PTRACE_DETACH, pid.as_raw(), 0, 0).step("detach")?;
    Ok("stopped and continued it".to_owned())
}

/// Where the process keeps something writable. If it does not even say, the first page will do: permission is
/// checked before the address.
fn writable_address(pid: Pid) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines()
        .find(|line| line.contains(" rw-p ") && line.ends_with("[stack]"))
        .and_then(|line| u64::from_str_radix(line.split_once('-')?.1.split_once(' ')?.0, 16).ok())
        // The last page: the first may not be populated.
        .map_or(0x1000, |end| end - 4096)
}

/// Writes back what it read, so that the victim lives to be looked at.
fn vm_write(args: &Args) -> Attempt {
    let pid = pid(args)?;
    let mut bytes = [0_u8; 8];
    let theirs = words([writable_address(pid), 8]);
    for (number, step) in
        [(libc::SYS_process_vm_readv, "process_vm_readv"), (libc::SYS_process_vm_writev, "process_vm_writev")]
    {
        let ours = words([address_mut(&mut bytes), 8]);
        let moved = call!(number, pid.as_raw(), ours.as_slice(), 1, theirs.as_slice(), 1, 0).step(step)?;
        if moved != 8 {
            return Err(Failure::Held(format!("{step} moved {moved} bytes")));
        }
    }
    Ok("wrote eight bytes".to_owned())
}

fn pidfd_getfd(args: &Args) -> Attempt {
    let fd = pidfd(args)?;
    let stolen =
        call_fd(libc::SYS_pidfd_getfd, &mut [(&fd).into(), 0.into(), 0.into()]).step("pidfd_getfd")?;
    Ok(format!("took its stdin as {}", stolen.as_raw_fd()))
}

fn process_madvise(args: &Args) -> Attempt {
    let fd = pidfd(args)?;
    let range = words([writable_address(pid(args)?), 4096]);
    call!(libc::SYS_process_madvise, &fd, range.as_slice(), 1, libc::MADV_COLD, 0).step("process_madvise")?;
    Ok("told the kernel to page it out".to_owned())
}

fn renice(args: &Args) -> Attempt {
    call!(libc::SYS_setpriority, libc::PRIO_PROCESS, pid(args)?.as_raw(), 19).step("setpriority")?;
    Ok("slowed it down".to_owned())
}

/// Takes the victim's right to open files: every later `open` in it fails.
fn prlimit(args: &Args) -> Attempt {
    let limit = words([3, 3]);
    call!(libc::SYS_prlimit64, pid(args)?.as_raw(), libc::RLIMIT_NOFILE, limit.as_slice(), Arg::Null)
        .step("prlimit")?;
    Ok("it can open no more files".to_owned())
}

fn proc_environ(args: &Args) -> Attempt {
    let mut environ = Vec::new();
    let path = format!("/proc/{}/environ", pid(args)?);
    File::open(path).step("open")?.read_to_end(&mut environ).step("read")?;
    if environ.is_empty() {
        return Err(Failure::Held("it has no environment".to_owned()));
    }
    Ok(format!("{} bytes", environ.len()))
}

fn proc_mem(args: &Args) -> Attempt {
    let pid = pid(args)?;
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).step("open")?;
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, writable_address(pid)).step("read")?;
    memory.write_all_at(&bytes, writable_address(pid)).step("write")?;
    Ok("wrote eight bytes".to_owned())
}

fn proc_cwd(args: &Args) -> Attempt {
    let link = format!("/proc/{}/cwd", pid(args)?);
    let target = fs::read_link(&link).step("read the link")?;
    let entries = fs::read_dir(format!("{link}/.")).step("list it")?.count();
    Ok(format!("{} has {entries} entries", target.display()))
}

fn proc_fd(args: &Args) -> Attempt {
    let path = format!("/proc/{}/fd/0", pid(args)?);
    let target = fs::read_link(&path).step("read the link")?;
    File::open(&path).step("open it again")?;
    Ok(format!("opened its stdin, {}", target.display()))
}

fn proc_list(args: &Args) -> Attempt {
    let wanted = args.text(0)?;
    let mut seen = 0;
    for entry in fs::read_dir("/proc").step("list /proc")? {
        let comm = entry.step("list /proc")?.path().join("comm");
        // Processes come and go while we look, and most entries are none.
        seen += usize::from(fs::read_to_string(comm).is_ok_and(|comm| comm.trim_end() == wanted));
    }
    if seen == 0 { Err(Failure::Held(format!("no {wanted}"))) } else { Ok(format!("{seen}")) }
}

/// The sandbox's own init was a process of the host's a moment ago, and still holds what that one held.
fn dumpable_pid1(_: &Args) -> Attempt {
    let mut reached = Vec::new();
    for name in ["mem", "environ", "maps", "auxv"] {
        let mut byte = [0];
        let opened = File::open(format!("/proc/1/{name}"));
        // Nothing is mapped at the beginning of its memory; that it opens is enough.
        if opened.is_ok_and(|mut file| name == "mem" || file.read_exact(&mut byte).is_ok()) {
            reached.push(name);
        }
    }
    for name in ["root", "cwd", "exe"] {
        if fs::metadata(format!("/proc/1/{name}")).is_ok() {
            reached.push(name);
        }
    }
    if fs::read_dir("/proc/1/fd").is_ok_and(|mut entries| entries.next().is_some()) {
        reached.push("fd");
    }
    if reached.is_empty() {
        return Err(Failure::Held("everything of it is closed".to_owned()));
    }
    Ok(reached.join(" "))
}

fn kill_init(_: &Args) -> Attempt {
    let init = Pid::from_raw(1);
    for signal in [Signal::SIGSTOP, Signal::SIGTERM, Signal::SIGKILL] {
        kill(init, signal).step(signal)?;
    }
    // The kernel says yes and drops signals that an init of this namespace does not handle.
    let state = fs::read_to_string("/proc/1/stat").step("look at it")?;
    match state.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('T' | 'Z' | 'X') => Ok("it is stopped or dead".to_owned()),
        other => Err(Failure::Held(format!("it lives on, in state {other:?}"))),
    }
}

fn inherited_fds(_: &Args) -> Attempt {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").step("list descriptors")? {
        let path = entry.step("list descriptors")?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()).unwrap_or_default();
        let target = fs::read_link(&path).step("read a descriptor")?;
        // The descriptor that this very listing holds is on it too.
        let own = format!("/proc/{}/fd", std::process::id());
        if number > 2 && target.as_os_str() != own.as_str() {
            open.push(format!("{number}={}", target.display()));
        }
    }
    if open.is_empty() { Err(Failure::Held("none".to_owned())) } else { Ok(open.join(" ")) }
}
