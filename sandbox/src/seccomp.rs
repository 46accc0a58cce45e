//! The system calls an agent has no use for, refused.
//!
//! A deny list, because what compilers, package managers and test runners call is open-ended; what reaches
//! deep into the kernel without being needed by any of them is known. Most refusals are EPERM; where a C
//! library has a second way, ENOSYS makes it take that. Numbers of a foreign architecture kill the process,
//! and the x32 numbers, which a deny list would not recognise, are refused as a whole.
//!
//! The program is a search tree over ranges of numbers rather than a list: when it is loaded, the kernel translates it, and
//! runs it once for every system call to learn which are always allowed. For a list of this length that was the most
//! expensive step of a whole start (a quarter of a millisecond; the tree takes a quarter of it).

use std::io;

use libc::sock_filter;

use crate::sys;

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyscallRule {
    Allow,
    Refuse(i32),
    /// Refused if any of these bits is set in the argument.
    RefuseBits {
        argument: u8,
        bits: u32,
    },
    /// Refused if the argument is one of these.
    RefuseValues {
        argument: u8,
        values: &'static [u32],
    },
    /// Refused unless each of these arguments has this value.
    AllowOnly(&'static [(u8, u32)]),
    /// Setting the limit on cores is answered as done, and is not; other limits are as they are asked for.
    KeepCores(LimitCall),
    /// No sockets but of these families, and no raw ones.
    RefuseSocketsBut(&'static [u32]),
}

/// A call that sets limits, by where its arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitCall {
    /// `setrlimit`: the resource comes first, and it is always set.
    Set,
    /// `prlimit64`: a process, the resource, the new limit and the old one, where each is wanted.
    SetAndGet {
        /// Whether other processes' limits are refused.
        own_only: bool,
    },
}

/// What there is to protect from system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttackSurface {
    /// The kernel itself; the rest is out of reach in namespaces.
    Kernel,
    /// The kernel, and each process that listens on a socket in a folder of the host that is mounted as it is.
    Folders,
    /// The host too: its sockets, its shared memory, the other processes of the user.
    Host {
        /// Whether the host's network may be used.
        network: bool,
        /// Whether Landlock checks that files are not cut short by name.
        truncation_checked: bool,
        /// Whether other processes of the host have the agent's user.
        shared_user: bool,
    },
}

const DENIED: &[i64] = &[
    // Mounts: the view is final.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    SYS_OPEN_TREE_ATTR,
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Other namespaces.
    libc::SYS_setns,
    // Large kernel interfaces with a history.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Keys are not namespaced by owner alone.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // File handles walk around paths.
    libc::SYS_open_by_handle_at,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
];

/// Since Linux 6.15; the number is the same everywhere.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// The kernel looks at the low half of the flags only, and so do we.
const NEW_NAMESPACE: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | CLONE_NEWTIME) as u32;
const CLONE_NEWTIME: i32 = 0x80;

/// Requests that type into a terminal in place of its user. A request is 32 bits wide: a comparison of 64
/// could be bypassed with a high bit.
const TYPING: &[u32] = &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// Nothing else is needed to build and test.
const ORDINARY: &[u32] = &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32];
const INTERNET: &[u32] = &[libc::AF_INET as u32, libc::AF_INET6 as u32];
/// A socket by path leads to the process that listens there, and Landlock does not check it. Another system call
/// makes pairs, which stay allowed: they lead only to one's own children.
const NONE: &[u32] = &[];
/// Raw sockets, and the old way to ask for raw packets.
const RAW: &[u32] = &[libc::SOCK_RAW as u32, 10];
const SOCKET_KIND: u32 = 0xf;

/// How many filters [`restrict`] puts in place.
pub(crate) const FILTERS: u64 = 1;

/// Puts the filter in place, for this process and all it starts. `keep_cores` says whether the limit on cores stays.
pub(crate) fn restrict(surface: AttackSurface, keep_cores: bool) -> io::Result<()> {
    sys::filter_system_calls(&program(surface, keep_cores))
}

/// System V objects and message queues. Without a namespace of one's own they are the host's. A process finds them by
/// guessing a number or a name, and their modes, which many programs leave wide open, are the only guard. It is not
/// enough to refuse the calls that make one: a process that knows a number needs none of them.
const SHARED: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// How a process is scheduled, which another of the same user may change. Of oneself, which is number zero, it stays
/// allowed. A thread that names itself by its number, as `pthread_setaffinity_np` does, can't be told from another
/// process, and is refused.
const SCHEDULED: &[(i64, &[(u8, u32)])] = &[
    (libc::SYS_sched_setaffinity, &[(0, 0)]),
    (libc::SYS_sched_setscheduler, &[(0, 0)]),
    (libc::SYS_sched_setparam, &[(0, 0)]),
    (libc::SYS_sched_setattr, &[(0, 0)]),
    // The first argument says what the second numbers: a group of processes, or all of a user, is more than oneself.
    (libc::SYS_setpriority, &[(0, libc::PRIO_PROCESS), (1, 0)]),
    (libc::SYS_ioprio_set, &[(0, IOPRIO_WHO_PROCESS), (1, 0)]),
];
const IOPRIO_WHO_PROCESS: u32 = 1;

/// A lease holds up each process that opens the file elsewhere, and can be taken on every file of one's user.
const HOLDING_UP: &[u32] = &[libc::F_SETLEASE as u32];

/// The kernel counts these for a user as a whole. They also tell what is made in folders that Landlock forbids to list.
const NOTIFIED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
];

/// Every system call that is not simply allowed, by number.
fn table(surface: AttackSurface, keep_cores: bool) -> Vec<(u32, SyscallRule)> {
    let mut table: Vec<(u32, SyscallRule)> =
        DENIED.iter().map(|number| (*number as u32, SyscallRule::Refuse(libc::EPERM))).collect();
    let namespaces = SyscallRule::RefuseBits { argument: 0, bits: NEW_NAMESPACE };
    table.extend([
        (libc::SYS_unshare as u32, namespaces),
        (libc::SYS_clone as u32, namespaces),
        // Its flags lie behind a pointer no filter can follow. C libraries fall back to clone.
        (libc::SYS_clone3 as u32, SyscallRule::Refuse(libc::ENOSYS)),
        (libc::SYS_ioctl as u32, SyscallRule::RefuseValues { argument: 1, values: TYPING }),
    ]);
    let families = match surface {
        AttackSurface::Kernel => ORDINARY,
        AttackSurface::Folders | AttackSurface::Host { network: true, .. } => INTERNET,
        AttackSurface::Host { network: false, .. } => NONE,
    };
    table.push((libc::SYS_socket as u32, SyscallRule::RefuseSocketsBut(families)));
    let own_only = matches!(surface, AttackSurface::Host { .. });
    match (keep_cores, own_only) {
        (true, _) => table.extend([
            (libc::SYS_setrlimit as u32, SyscallRule::KeepCores(LimitCall::Set)),
            (libc::SYS_prlimit64 as u32, SyscallRule::KeepCores(LimitCall::SetAndGet { own_only })),
        ]),
        (false, true) => table.push((libc::SYS_prlimit64 as u32, SyscallRule::AllowOnly(&[(0, 0)]))),
        (false, false) => {}
    }
    if let AttackSurface::Host { truncation_checked, shared_user, .. } = surface {
        table.extend(SHARED.iter().map(|number| (*number as u32, SyscallRule::Refuse(libc::EPERM))));
        table.extend(SCHEDULED.iter().map(|(number, only)| (*number as u32, SyscallRule::AllowOnly(only))));
        table.push((libc::SYS_fcntl as u32, SyscallRule::RefuseValues { argument: 1, values: HOLDING_UP }));
        if !truncation_checked {
            table.push((libc::SYS_truncate as u32, SyscallRule::Refuse(libc::EPERM)));
        }
        if shared_user {
            table.extend(NOTIFIED.iter().map(|number| (*number as u32, SyscallRule::Refuse(libc::ENOSYS))));
        }
    }
    table.sort_unstable_by_key(|(number, _)| *number);
    table
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const IF_BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// The bit that marks x32 numbers on x86-64; no other architecture has numbers that high.
const X32: u32 = 0x4000_0000;

/// Where `struct seccomp_data` keeps the number, the architecture, and the low half of an argument.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn low_half(argument: u8) -> u32 {
    16 + 8 * argument as u32
}
const fn high_half(argument: u8) -> u32 {
    low_half(argument) + 4
}

fn program(surface: AttackSurface, keep_cores: bool) -> Vec<sock_filter> {
    let mut program = vec![
        instruction(LOAD, ARCH),
        jump(IF_EQUAL, ARCHITECTURE, 1, 0),
        instruction(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(LOAD, NUMBER),
        jump(IF_AT_LEAST, X32, 0, 1),
        refuse(libc::ENOSYS),
    ];
    program.extend(tree(&ranges(&table(surface, keep_cores))));
    program
}

/// What happens to every number, as ranges: each begins with its number and ends before the next.
fn ranges(table: &[(u32, SyscallRule)]) -> Vec<(u32, SyscallRule)> {
    let mut ranges: Vec<(u32, SyscallRule)> = Vec::new();
    let mut next = 0;
    for (number, verdict) in table {
        let before = (next < *number).then_some((next, SyscallRule::Allow));
        for range in before.into_iter().chain([(*number, *verdict)]) {
            if ranges.last().is_none_or(|last| last.1 != range.1) {
                ranges.push(range);
            }
        }
        next = number + 1;
    }
    ranges.push((next, SyscallRule::Allow));
    ranges
}

/// A search tree over ranges. Every path through it ends in a return.
fn tree(ranges: &[(u32, SyscallRule)]) -> Vec<sock_filter> {
    if let [(_, verdict)] = ranges {
        return decide(*verdict);
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let below = tree(lower);
    let mut node = vec![jump(IF_AT_LEAST, upper[0].0, offset(below.len()), 0)];
    node.extend(below);
    node.extend(tree(upper));
    node
}

/// What is done once the number is known. Ends in a return.
fn decide(verdict: SyscallRule) -> Vec<sock_filter> {
    let allow = instruction(RETURN, libc::SECCOMP_RET_ALLOW);
    let refused = refuse(libc::EPERM);
    match verdict {
        SyscallRule::Allow => vec![allow],
        SyscallRule::Refuse(error) => vec![refuse(error)],
        SyscallRule::RefuseBits { argument, bits } => {
            vec![instruction(LOAD, low_half(argument)), jump(IF_BITS, bits, 0, 1), refused, allow]
        }
        SyscallRule::RefuseValues { argument, values } => {
            let mut body = vec![instruction(LOAD, low_half(argument))];
            for value in values {
                body.extend([jump(IF_EQUAL, *value, 0, 1), refused]);
            }
            body.push(allow);
            body
        }
        SyscallRule::AllowOnly(values) => {
            let mut body = Vec::new();
            for (argument, value) in values {
                body.extend([instruction(LOAD, low_half(*argument)), jump(IF_EQUAL, *value, 1, 0), refused]);
            }
            body.push(allow);
            body
        }
        SyscallRule::KeepCores(limits) => keep_cores(limits),
        SyscallRule::RefuseSocketsBut(families) => {
            let mut body = vec![instruction(LOAD, low_half(0))];
            // A known family skips the families after it, and their refusal.
            for (index, family) in families.iter().enumerate() {
                body.push(jump(IF_EQUAL, *family, offset(families.len() - index), 0));
            }
            body.extend([
                refuse(libc::EAFNOSUPPORT),
                instruction(LOAD, low_half(1)),
                instruction(AND, SOCKET_KIND),
            ]);
            for kind in RAW {
                body.extend([jump(IF_EQUAL, *kind, 0, 1), refused]);
            }
            body.push(allow);
            body
        }
    }
}

/// A limit of one on cores is what keeps the kernel from starting a program with one ([`crate::agent`]), and any
/// process may lower it to zero, which does not. Programs with secrets do just that, and some end themselves when they
/// can't; what they want is so already.
fn keep_cores(limits: LimitCall) -> Vec<sock_filter> {
    let allow = instruction(RETURN, libc::SECCOMP_RET_ALLOW);
    let done = refuse(0);
    let refused = refuse(libc::EPERM);
    match limits {
        LimitCall::Set => {
            vec![instruction(LOAD, low_half(0)), jump(IF_EQUAL, libc::RLIMIT_CORE, 0, 1), done, allow]
        }
        LimitCall::SetAndGet { own_only } => {
            let mut body = match own_only {
                true => vec![instruction(LOAD, low_half(0)), jump(IF_EQUAL, 0, 1, 0), refused],
                false => Vec::new(),
            };
            body.extend([
                instruction(LOAD, low_half(1)),
                jump(IF_EQUAL, libc::RLIMIT_CORE, 1, 0),
                allow,
                // Without a new limit it is only a question. An address has two halves.
                instruction(LOAD, low_half(2)),
                jump(IF_EQUAL, 0, 0, 3),
                instruction(LOAD, high_half(2)),
                jump(IF_EQUAL, 0, 0, 1),
                allow,
                // A call that asks for the old limit too would find nothing there.
                instruction(LOAD, low_half(3)),
                jump(IF_EQUAL, 0, 1, 0),
                refused,
                instruction(LOAD, high_half(3)),
                jump(IF_EQUAL, 0, 1, 0),
                refused,
                done,
            ]);
            body
        }
    }
}

fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn refuse(error: i32) -> sock_filter {
    instruction(RETURN, libc::SECCOMP_RET_ERRNO | error as u32)
}

/// Jumps are one byte long. A test makes the program for every surface: none is longer.
fn offset(length: usize) -> u8 {
    u8::try_from(length).expect("a jump is at most 255 instructions long")
}

#[cfg(test)]
mod tests;
