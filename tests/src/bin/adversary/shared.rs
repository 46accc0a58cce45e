//! What is shared with the host beside files: System V objects, how processes are scheduled, counts of the user.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::sys::{Arg, call, call_fd, words};

const GROUP: &str = "processes";
const LIMITS: &str = "shared kernel limits and locks: flock on host files, inotify, keys, pids, pipes, System V ids, \
                      cores that start a handler";
const REACH: &str = "signal, ptrace, process_vm_writev the supervisor or another agent";

/// An object that is not there is a fence, too.
const NOT_THERE: &[Errno] = &[Errno::EINVAL, Errno::EIDRM];

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "sysv-memory", &["id"], LIMITS, sysv_memory).denied_by(NOT_THERE),
    attack(GROUP, "sysv-message", &["id"], LIMITS, sysv_message).denied_by(NOT_THERE),
    attack(GROUP, "sysv-semaphore", &["id"], LIMITS, sysv_semaphore).denied_by(NOT_THERE),
    attack(GROUP, "sysv-remove", &["id"], LIMITS, sysv_remove).denied_by(NOT_THERE),
    attack(GROUP, "affinity", &["pid"], REACH, affinity),
    attack(GROUP, "scheduler", &["pid"], REACH, scheduler),
    attack(GROUP, "scheduler-attributes", &["pid"], REACH, scheduler_attributes),
    attack(GROUP, "io-priority", &["pid"], REACH, io_priority),
    attack(GROUP, "renice-everything", &[], REACH, renice_everything)
        .never_natively("it slows every process of whoever runs the tests"),
    attack(GROUP, "inotify", &["count"], LIMITS, inotify),
    attack(GROUP, "core-limit", &[], LIMITS, core_limit),
];

fn sysv_memory(args: &Args) -> Attempt {
    let at = call!(libc::SYS_shmat, args.number::<i32>(0)?, Arg::Null, libc::SHM_RDONLY).step("shmat")?;
    call!(libc::SYS_shmdt, at).step("shmdt")?;
    Ok("mapped it".to_owned())
}

fn sysv_message(args: &Args) -> Attempt {
    let id: i32 = args.number(0)?;
    let message = words([1, 7]);
    call!(libc::SYS_msgsnd, id, message.as_slice(), 8, libc::IPC_NOWAIT).step("msgsnd")?;
    let mut taken = words([0, 0]);
    call!(libc::SYS_msgrcv, id, taken.as_mut_slice(), 8, 0, libc::IPC_NOWAIT).step("msgrcv")?;
    Ok("left a message and took one".to_owned())
}

fn sysv_semaphore(args: &Args) -> Attempt {
    // The first of them, one up, without waiting.
    let operation = [0_i16, 1, libc::IPC_NOWAIT as i16].map(i16::to_ne_bytes).concat();
    call!(libc::SYS_semop, args.number::<i32>(0)?, operation.as_slice(), 1).step("semop")?;
    Ok("counted it up".to_owned())
}

fn sysv_remove(args: &Args) -> Attempt {
    call!(libc::SYS_shmctl, args.number::<i32>(0)?, libc::IPC_RMID, Arg::Null).step("shmctl")?;
    Ok("removed it".to_owned())
}

fn affinity(args: &Args) -> Attempt {
    let first = words([1]);
    call!(libc::SYS_sched_setaffinity, args.number::<i32>(0)?, 8, first.as_slice())
        .step("sched_setaffinity")?;
    Ok("bound it to the first processor".to_owned())
}

fn scheduler(args: &Args) -> Attempt {
    let none = words([0]);
    call!(libc::SYS_sched_setscheduler, args.number::<i32>(0)?, libc::SCHED_IDLE, none.as_slice())
        .step("sched_setscheduler")?;
    Ok("made it run only when nobody else does".to_owned())
}

fn scheduler_attributes(args: &Args) -> Attempt {
    // Its size and the policy, and nothing else.
    let attributes = words([48 | (libc::SCHED_BATCH as u64) << 32, 0, 0, 0, 0, 0]);
    call!(libc::SYS_sched_setattr, args.number::<i32>(0)?, attributes.as_slice(), 0).step("sched_setattr")?;
    Ok("made it wait for others".to_owned())
}

fn io_priority(args: &Args) -> Attempt {
    const OF_A_PROCESS: i32 = 1;
    const IDLE: i32 = 3 << 13;
    call!(libc::SYS_ioprio_set, OF_A_PROCESS, args.number::<i32>(0)?, IDLE).step("ioprio_set")?;
    Ok("its reads and writes wait for everybody's".to_owned())
}

/// Zero is oneself, where a process is meant; of users it is all that this one has.
fn renice_everything(_: &Args) -> Attempt {
    call!(libc::SYS_setpriority, libc::PRIO_USER, 0, 19).step("setpriority")?;
    Ok("slowed everything down".to_owned())
}

fn inotify(args: &Args) -> Attempt {
    let count: usize = args.number(0)?;
    let mut held = Vec::new();
    while held.len() < count {
        held.push(
            call_fd(libc::SYS_inotify_init1, &mut [libc::IN_CLOEXEC.into()])
                .step(format!("the {}th", held.len()))?,
        );
    }
    Ok(format!("{count} instances"))
}

/// Without any limit on cores the kernel hands one to a program; with none but one it does not.
fn core_limit(_: &Args) -> Attempt {
    setrlimit(Resource::RLIMIT_CORE, 0, 0).step("setrlimit")?;
    match getrlimit(Resource::RLIMIT_CORE).step("getrlimit")? {
        (0, 0) => Ok("lowered it to none".to_owned()),
        limit => Err(Failure::Held(format!("it is still {limit:?}"))),
    }
}
