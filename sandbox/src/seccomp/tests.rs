//! The filter, run the way the kernel runs it.

use super::*;

/// Runs the program the way the kernel does.
fn run(number: u32, arch: u32, arguments: [u64; 6]) -> u32 {
    run_on(AttackSurface::Kernel, number, arch, arguments)
}

fn run_on(surface: AttackSurface, number: u32, arch: u32, arguments: [u64; 6]) -> u32 {
    let program = program(surface, true);
    let load = |k: u32| match k {
        NUMBER => number,
        ARCH => arch,
        k if k % 8 == 4 => (arguments[((k - 16) / 8) as usize] >> 32) as u32,
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

fn host(network: bool, truncation_checked: bool, shared_user: bool) -> AttackSurface {
    AttackSurface::Host { network, truncation_checked, shared_user }
}

#[test]
fn every_denied_number_is_refused_and_no_other() {
    let both = || [false, true].into_iter();
    let hosts = both().flat_map(|network| {
        both().flat_map(move |checked| both().map(move |shared| host(network, checked, shared)))
    });
    for surface in [AttackSurface::Kernel, AttackSurface::Folders].into_iter().chain(hosts) {
        let table = table(surface, true);
        for number in 0..1024 {
            let expected = match table.iter().find(|(known, _)| *known == number) {
                Some((_, SyscallRule::Refuse(error))) => errno(*error),
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
        let surface = host(network, true, true);
        let arguments = [family as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
        run_on(surface, libc::SYS_socket as u32, ARCHITECTURE, arguments)
    };
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        assert_eq!(socket(false, family), errno(libc::EAFNOSUPPORT));
    }
    assert_eq!(socket(true, libc::AF_UNIX), errno(libc::EAFNOSUPPORT));
    assert_eq!(socket(true, libc::AF_INET), libc::SECCOMP_RET_ALLOW);
    let surface = host(true, true, true);
    let limit = |pid: u64| run_on(surface, libc::SYS_prlimit64 as u32, ARCHITECTURE, [pid, 0, 0, 0, 0, 0]);
    assert_eq!(limit(0), libc::SECCOMP_RET_ALLOW);
    assert_eq!(limit(7), errno(libc::EPERM));
    let truncate = |truncation_checked| {
        let surface = host(true, truncation_checked, true);
        run_on(surface, libc::SYS_truncate as u32, ARCHITECTURE, [0; 6])
    };
    assert_eq!(truncate(true), libc::SECCOMP_RET_ALLOW);
    assert_eq!(truncate(false), errno(libc::EPERM));
}

#[test]
fn where_folders_of_the_host_are_shown_nobody_in_them_can_be_talked_to() {
    let socket = |family: i32| {
        let arguments = [family as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
        run_on(AttackSurface::Folders, libc::SYS_socket as u32, ARCHITECTURE, arguments)
    };
    assert_eq!(socket(libc::AF_UNIX), errno(libc::EAFNOSUPPORT));
    assert_eq!(socket(libc::AF_INET), libc::SECCOMP_RET_ALLOW);
    let pair = run_on(AttackSurface::Folders, libc::SYS_socketpair as u32, ARCHITECTURE, [0; 6]);
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
    let socket = |family: i32, kind: i32| here(libc::SYS_socket, [family as u64, kind as u64, 0, 0, 0, 0]);
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        assert_eq!(socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC), libc::SECCOMP_RET_ALLOW);
        assert_eq!(socket(family, libc::SOCK_DGRAM), libc::SECCOMP_RET_ALLOW);
        assert_eq!(socket(family, libc::SOCK_RAW | libc::SOCK_NONBLOCK), errno(libc::EPERM));
        assert_eq!(socket(family, 10), errno(libc::EPERM));
    }
    for family in [libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH, 0] {
        assert_eq!(socket(family, libc::SOCK_STREAM), errno(libc::EAFNOSUPPORT), "family {family}");
    }
}

/// What the filter answers at the level `landlock`, to an ordinary user's agent.
fn bare(number: i64, arguments: [u64; 6]) -> u32 {
    run_on(host(false, true, true), number as u32, ARCHITECTURE, arguments)
}

#[test]
fn on_a_bare_host_nobody_is_found_by_a_number() {
    for number in [libc::SYS_shmat, libc::SYS_msgrcv, libc::SYS_semop, libc::SYS_shmctl, libc::SYS_mq_unlink]
    {
        assert_eq!(bare(number, [7, 0, 0, 0, 0, 0]), errno(libc::EPERM), "{number}");
        assert_eq!(
            here(number, [7, 0, 0, 0, 0, 0]),
            libc::SECCOMP_RET_ALLOW,
            "a namespace holds it: {number}"
        );
    }
    for number in [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr] {
        assert_eq!(bare(number, [0; 6]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(bare(number, [7, 0, 0, 0, 0, 0]), errno(libc::EPERM));
    }
    let priority = |which: u64, who: u64| bare(libc::SYS_setpriority, [which, who, 19, 0, 0, 0]);
    assert_eq!(priority(libc::PRIO_PROCESS.into(), 0), libc::SECCOMP_RET_ALLOW);
    assert_eq!(priority(libc::PRIO_PROCESS.into(), 7), errno(libc::EPERM));
    // Zero is oneself only where a process is meant: of users, it is everything that this one has.
    assert_eq!(priority(libc::PRIO_USER.into(), 0), errno(libc::EPERM));
    let io = |which: u64, who: u64| bare(libc::SYS_ioprio_set, [which, who, 0, 0, 0, 0]);
    assert_eq!((io(1, 0), io(1, 7)), (libc::SECCOMP_RET_ALLOW, errno(libc::EPERM)));
    assert_eq!((io(2, 0), io(3, 0)), (errno(libc::EPERM), errno(libc::EPERM)));
}

#[test]
fn on_a_bare_host_a_shared_user_is_not_notified_and_nobody_takes_a_lease() {
    assert_eq!(bare(libc::SYS_inotify_init1, [0; 6]), errno(libc::ENOSYS));
    let alone = run_on(host(false, true, false), libc::SYS_inotify_init1 as u32, ARCHITECTURE, [0; 6]);
    assert_eq!(alone, libc::SECCOMP_RET_ALLOW);
    let fcntl = |command: i32| bare(libc::SYS_fcntl, [3, command as u64, 0, 0, 0, 0]);
    assert_eq!(fcntl(libc::F_SETLEASE), errno(libc::EPERM));
    assert_eq!(fcntl(libc::F_OFD_SETLK), libc::SECCOMP_RET_ALLOW);
}

#[test]
fn the_limit_on_cores_stays_and_whoever_sets_it_is_told_that_it_did() {
    let core = u64::from(libc::RLIMIT_CORE);
    let files = u64::from(libc::RLIMIT_NOFILE);
    let set = |resource: u64| here(libc::SYS_setrlimit, [resource, 0x1000, 0, 0, 0, 0]);
    assert_eq!((set(core), set(files)), (errno(0), libc::SECCOMP_RET_ALLOW));
    let both = |resource: u64, new: u64, old: u64| here(libc::SYS_prlimit64, [0, resource, new, old, 0, 0]);
    assert_eq!(both(core, 0, 0x1000), libc::SECCOMP_RET_ALLOW, "a question");
    assert_eq!(both(files, 0x1000, 0), libc::SECCOMP_RET_ALLOW);
    // Wherever the new one lies.
    for address in [0x1000, 1 << 32, 0x7fff_0000_0000] {
        assert_eq!(both(core, address, 0), errno(0), "{address:x}");
        assert_eq!(both(core, address, 0x1000), errno(libc::EPERM), "{address:x}");
        assert_eq!(both(core, address, 1 << 32), errno(libc::EPERM), "{address:x}");
    }
    // A resource is 32 bits wide.
    assert_eq!(both(core | 1 << 32, 0x1000, 0), errno(0));
    assert_eq!(bare(libc::SYS_prlimit64, [7, core, 0x1000, 0, 0, 0]), errno(libc::EPERM));
    assert_eq!(bare(libc::SYS_prlimit64, [0, core, 0x1000, 0, 0, 0]), errno(0));
}
