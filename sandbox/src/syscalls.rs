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
enum Verdict {
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
    /// No sockets but of these families, and no raw ones.
    RefuseSocketsBut(&'static [u32]),
}

/// What there is to protect from system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// The kernel itself; the rest is out of reach in namespaces.
    Kernel,
    /// The kernel, and whoever listens on a socket in a folder of the host that is mounted as it is.
    Folders,
    /// The host too: its sockets, its shared memory, the other processes of the user.
    Host {
        /// Whether the host's network may be used.
        network: bool,
        /// Whether Landlock checks that files are not cut short by name.
        truncation_checked: bool,
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

/// Requests that type into a terminal on somebody's behalf. A request is 32 bits wide: comparing 64 would be
/// walked around with a high bit.
const TYPING: &[u32] = &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// Nothing else is needed to build and test.
const ORDINARY: &[u32] = &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32];
const INTERNET: &[u32] = &[libc::AF_INET as u32, libc::AF_INET6 as u32];
/// Sockets by path lead to whoever listens there, and Landlock does not check them. Pairs are made by another
/// system call, and stay allowed: they lead nowhere but to one's own children.
const NONE: &[u32] = &[];
/// Raw sockets, and the old way to ask for raw packets.
const RAW: &[u32] = &[libc::SOCK_RAW as u32, 10];
const SOCKET_KIND: u32 = 0xf;

/// How many filters [`restrict`] puts in place.
pub(crate) const FILTERS: u64 = 1;

/// Puts the filter in place, for this process and all it starts.
pub(crate) fn restrict(surface: Surface) -> io::Result<()> {
    sys::filter_system_calls(&program(surface))
}

/// What is shared between the users of a host without an owner's permission being asked, and what changes
/// other processes of one's own user.
const SHARED: &[i64] = &[libc::SYS_shmget, libc::SYS_semget, libc::SYS_msgget, libc::SYS_mq_open];

/// Every system call that is not simply allowed, by number.
fn table(surface: Surface) -> Vec<(u32, Verdict)> {
    let mut table: Vec<(u32, Verdict)> =
        DENIED.iter().map(|number| (*number as u32, Verdict::Refuse(libc::EPERM))).collect();
    let namespaces = Verdict::RefuseBits { argument: 0, bits: NEW_NAMESPACE };
    table.extend([
        (libc::SYS_unshare as u32, namespaces),
        (libc::SYS_clone as u32, namespaces),
        // Its flags lie behind a pointer no filter can follow. C libraries fall back to clone.
        (libc::SYS_clone3 as u32, Verdict::Refuse(libc::ENOSYS)),
        (libc::SYS_ioctl as u32, Verdict::RefuseValues { argument: 1, values: TYPING }),
    ]);
    let families = match surface {
        Surface::Kernel => ORDINARY,
        Surface::Folders | Surface::Host { network: true, .. } => INTERNET,
        Surface::Host { network: false, .. } => NONE,
    };
    table.push((libc::SYS_socket as u32, Verdict::RefuseSocketsBut(families)));
    if let Surface::Host { truncation_checked, .. } = surface {
        table.extend(SHARED.iter().map(|number| (*number as u32, Verdict::Refuse(libc::EPERM))));
        // One's own limits and priorities are named by the process number zero.
        let others = |argument| Verdict::RefuseBits { argument, bits: u32::MAX };
        table.push((libc::SYS_prlimit64 as u32, others(0)));
        table.push((libc::SYS_setpriority as u32, others(1)));
        table.push((libc::SYS_ioprio_set as u32, others(1)));
        if !truncation_checked {
            table.push((libc::SYS_truncate as u32, Verdict::Refuse(libc::EPERM)));
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

fn program(surface: Surface) -> Vec<sock_filter> {
    let mut program = vec![
        instruction(LOAD, ARCH),
        jump(IF_EQUAL, ARCHITECTURE, 1, 0),
        instruction(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(LOAD, NUMBER),
        jump(IF_AT_LEAST, X32, 0, 1),
        refuse(libc::ENOSYS),
    ];
    program.extend(tree(&ranges(&table(surface))));
    program
}

/// What happens to every number, as ranges: each begins with its number and ends before the next.
fn ranges(table: &[(u32, Verdict)]) -> Vec<(u32, Verdict)> {
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    let mut next = 0;
    for (number, verdict) in table {
        let before = (next < *number).then_some((next, Verdict::Allow));
        for range in before.into_iter().chain([(*number, *verdict)]) {
            if ranges.last().is_none_or(|last| last.1 != range.1) {
                ranges.push(range);
            }
        }
        next = number + 1;
    }
    ranges.push((next, Verdict::Allow));
    ranges
}

/// A search tree over ranges. Every path through it ends in a return.
fn tree(ranges: &[(u32, Verdict)]) -> Vec<sock_filter> {
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
fn decide(verdict: Verdict) -> Vec<sock_filter> {
    let allow = instruction(RETURN, libc::SECCOMP_RET_ALLOW);
    let refused = refuse(libc::EPERM);
    match verdict {
        Verdict::Allow => vec![allow],
        Verdict::Refuse(error) => vec![refuse(error)],
        Verdict::RefuseBits { argument, bits } => {
            vec![instruction(LOAD, low_half(argument)), jump(IF_BITS, bits, 0, 1), refused, allow]
        }
        Verdict::RefuseValues { argument, values } => {
            let mut body = vec![instruction(LOAD, low_half(argument))];
            for value in values {
                body.extend([jump(IF_EQUAL, *value, 0, 1), refused]);
            }
            body.push(allow);
            body
        }
        Verdict::RefuseSocketsBut(families) => {
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
mod tests {
    use super::*;

    /// Runs the program the way the kernel does.
    fn run(number: u32, arch: u32, arguments: [u64; 6]) -> u32 {
        run_on(Surface::Kernel, number, arch, arguments)
    }

    fn run_on(surface: Surface, number: u32, arch: u32, arguments: [u64; 6]) -> u32 {
        let program = program(surface);
        let load = |k: u32| match k {
            NUMBER => number,
            ARCH => arch,
            k => arguments[((k - 16) / 8) as usize] as u32,
        };
        let (mut accumulator, mut at) = (0u32, 0usize);
        loop {
            let step = program[at];
            at += 1;
            let taken = match step.code {
                LOAD => {
                    accumulator = load(step.k);
                    continue;
                }
                AND => {
                    accumulator &= step.k;
                    continue;
                }
                RETURN => return step.k,
                IF_EQUAL => accumulator == step.k,
                IF_AT_LEAST => accumulator >= step.k,
                IF_BITS => accumulator & step.k != 0,
                other => panic!("unknown instruction {other}"),
            };
            at += usize::from(if taken { step.jt } else { step.jf });
        }
    }

    fn here(number: i64, arguments: [u64; 6]) -> u32 {
        run(number as u32, ARCHITECTURE, arguments)
    }
    fn errno(error: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | error as u32
    }

    #[test]
    fn every_denied_number_is_refused_and_no_other() {
        let host = |network, truncation_checked| Surface::Host { network, truncation_checked };
        let hosts = [host(false, false), host(false, true), host(true, false), host(true, true)];
        for surface in [Surface::Kernel, Surface::Folders].into_iter().chain(hosts) {
            let table = table(surface);
            for number in 0..1024 {
                let expected = match table.iter().find(|(known, _)| *known == number) {
                    Some((_, Verdict::Refuse(error))) => errno(*error),
                    Some(_) => continue,
                    None => libc::SECCOMP_RET_ALLOW,
                };
                let seen = run_on(surface, number, ARCHITECTURE, [0; 6]);
                assert_eq!(seen, expected, "system call {number} on {surface:?}");
            }
        }
    }

    #[test]
    fn on_a_bare_host_sockets_lead_nowhere_but_where_the_network_may() {
        let socket = |network: bool, family: i32| {
            let surface = Surface::Host { network, truncation_checked: true };
            let arguments = [family as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
            run_on(surface, libc::SYS_socket as u32, ARCHITECTURE, arguments)
        };
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
            assert_eq!(socket(false, family), errno(libc::EAFNOSUPPORT));
        }
        assert_eq!(socket(true, libc::AF_UNIX), errno(libc::EAFNOSUPPORT));
        assert_eq!(socket(true, libc::AF_INET), libc::SECCOMP_RET_ALLOW);
        let host = Surface::Host { network: true, truncation_checked: true };
        let limit = |pid: u64| run_on(host, libc::SYS_prlimit64 as u32, ARCHITECTURE, [pid, 0, 0, 0, 0, 0]);
        assert_eq!(limit(0), libc::SECCOMP_RET_ALLOW);
        assert_eq!(limit(7), errno(libc::EPERM));
        let truncate = |truncation_checked| {
            let surface = Surface::Host { network: true, truncation_checked };
            run_on(surface, libc::SYS_truncate as u32, ARCHITECTURE, [0; 6])
        };
        assert_eq!(truncate(true), libc::SECCOMP_RET_ALLOW);
        assert_eq!(truncate(false), errno(libc::EPERM));
    }

    #[test]
    fn where_folders_of_the_host_are_shown_nobody_in_them_can_be_talked_to() {
        let socket = |family: i32| {
            let arguments = [family as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
            run_on(Surface::Folders, libc::SYS_socket as u32, ARCHITECTURE, arguments)
        };
        assert_eq!(socket(libc::AF_UNIX), errno(libc::EAFNOSUPPORT));
        assert_eq!(socket(libc::AF_INET), libc::SECCOMP_RET_ALLOW);
        let pair = run_on(Surface::Folders, libc::SYS_socketpair as u32, ARCHITECTURE, [0; 6]);
        assert_eq!(pair, libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn a_foreign_architecture_is_killed_and_x32_numbers_do_not_exist() {
        assert_eq!(run(1, 0x4000_0003, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(run(X32 | libc::SYS_mount as u32, ARCHITECTURE, [0; 6]), errno(libc::ENOSYS));
        assert_eq!(run(X32 | 1, ARCHITECTURE, [0; 6]), errno(libc::ENOSYS));
    }

    #[test]
    fn arguments_are_looked_at_where_they_matter() {
        let first = |value: u64| [value, 0, 0, 0, 0, 0];
        let second = |value: u64| [0, value, 0, 0, 0, 0];
        assert_eq!(here(libc::SYS_clone, first(libc::SIGCHLD as u64)), libc::SECCOMP_RET_ALLOW);
        assert_eq!(here(libc::SYS_clone, first(libc::CLONE_NEWUSER as u64)), errno(libc::EPERM));
        assert_eq!(here(libc::SYS_unshare, first(libc::CLONE_FILES as u64)), libc::SECCOMP_RET_ALLOW);
        assert_eq!(here(libc::SYS_unshare, first(libc::CLONE_NEWNET as u64)), errno(libc::EPERM));
        assert_eq!(here(libc::SYS_ioctl, second(libc::TIOCSTI)), errno(libc::EPERM));
        assert_eq!(here(libc::SYS_ioctl, second(libc::TIOCSTI | 1 << 32)), errno(libc::EPERM));
        assert_eq!(here(libc::SYS_ioctl, second(libc::TIOCGWINSZ)), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn only_ordinary_sockets_can_be_made() {
        let socket =
            |family: i32, kind: i32| here(libc::SYS_socket, [family as u64, kind as u64, 0, 0, 0, 0]);
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
            assert_eq!(socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC), libc::SECCOMP_RET_ALLOW);
            assert_eq!(socket(family, libc::SOCK_DGRAM), libc::SECCOMP_RET_ALLOW);
            assert_eq!(socket(family, libc::SOCK_RAW | libc::SOCK_NONBLOCK), errno(libc::EPERM));
            assert_eq!(socket(family, 10), errno(libc::EPERM));
        }
        for family in [libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH, 0]
        {
            assert_eq!(socket(family, libc::SOCK_STREAM), errno(libc::EAFNOSUPPORT), "family {family}");
        }
    }
}
