//! System calls that an agent has no use for and an exploit does. Each is asked for something real; that the
//! kernel does it shows that neither a filter nor a missing capability was in the way.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack, c_string};
use crate::indirect::handle_of;
use crate::sys::{self, Arg, address, call, call_fd, words};

pub(crate) const GROUP: &str = "kernel";
const CALLS: &str = "bpf, keyctl, userfaultfd, perf_event_open, open_by_handle_at";
const ABIS: &str = "32-bit and x32 system calls around the filter";
const SOCKETS: &str = "raw, netlink and vsock sockets";
const MACHINE: &str = "calls that change the whole machine";
const SELF: &str = "undoing what the sandbox did to the process itself";

const NOT_BUILT: &str = "kernels are often built without it";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "io-uring", &[], "io_uring", io_uring),
    attack(GROUP, "bpf", &[], CALLS, bpf).needs_root(),
    attack(GROUP, "keyctl", &[], CALLS, keyctl),
    attack(GROUP, "add-key", &[], CALLS, add_key),
    attack(GROUP, "userfaultfd", &[], CALLS, userfaultfd),
    attack(GROUP, "perf", &[], CALLS, perf),
    attack(GROUP, "name-to-handle", &["path"], CALLS, name_to_handle),
    attack(GROUP, "i386-syscall", &["[unshare]"], ABIS, i386_syscall),
    attack(GROUP, "x32-syscall", &[], ABIS, x32_syscall).never_natively(NOT_BUILT),
    attack(GROUP, "socket-family", &["family"], SOCKETS, socket_family),
    attack(GROUP, "raw-socket", &[], SOCKETS, raw_socket).needs_root(),
    attack(GROUP, "packet-socket", &[], SOCKETS, packet_socket).needs_root(),
    attack(GROUP, "netlink", &["protocol"], SOCKETS, netlink),
    attack(GROUP, "vsock", &[], SOCKETS, vsock),
    attack(GROUP, "alg-socket", &[], SOCKETS, alg_socket).never_natively(NOT_BUILT),
    attack(GROUP, "bluetooth-socket", &[], SOCKETS, bluetooth_socket).never_natively(NOT_BUILT),
    attack(GROUP, "can-socket", &[], SOCKETS, can_socket).never_natively(NOT_BUILT),
    attack(GROUP, "kexec", &[], MACHINE, kexec)
        .never_natively("it would drop a crash kernel that the machine has loaded"),
    attack(GROUP, "init-module", &[], MACHINE, init_module)
        .never_natively("it asks the kernel to load a module"),
    attack(GROUP, "syslog", &[], MACHINE, syslog).needs_root(),
    attack(GROUP, "sysctl-write", &["path"], MACHINE, sysctl_write).needs_root(),
    attack(GROUP, "sysrq", &[], MACHINE, sysrq)
        .never_natively("it reaches the machine's own keyboard handler"),
    attack(GROUP, "device-open", &["path"], MACHINE, device_open),
    attack(GROUP, "hostname-set", &[], MACHINE, hostname_set).needs_root(),
    attack(GROUP, "clock-set", &[], MACHINE, clock_set).never_natively("it sets the machine's clock"),
    attack(GROUP, "cgroup-escape", &["cgroup"], MACHINE, cgroup_escape).needs_root(),
    attack(GROUP, "quotactl", &[], MACHINE, quotactl),
    attack(GROUP, "acct", &["path"], MACHINE, acct).needs_root(),
    attack(GROUP, "swapon", &["path"], MACHINE, swapon)
        .never_natively("the whole machine would swap to it for a moment"),
    attack(GROUP, "iopl", &[], MACHINE, iopl).never_natively(NOT_BUILT),
    attack(GROUP, "modify-ldt", &[], MACHINE, modify_ldt),
    attack(GROUP, "landlock-noop", &["path"], SELF, landlock_noop),
    attack(GROUP, "seccomp-off", &[], SELF, seccomp_off),
    attack(GROUP, "capset-raise", &[], SELF, capset_raise).needs_root(),
    attack(GROUP, "prctl-dumpable", &[], SELF, prctl_dumpable),
    // EINVAL: the namespace has no such user.
    attack(GROUP, "setuid0", &[], SELF, setuid0).needs_root().denied_by(&[Errno::EINVAL]),
    attack(GROUP, "setgroups", &[], SELF, setgroups).needs_root().denied_by(&[Errno::EINVAL]),
];

fn io_uring(_: &Args) -> Attempt {
    // struct io_uring_params
    let mut parameters = [0_u8; 120];
    call_fd(libc::SYS_io_uring_setup, &mut [4.into(), parameters.as_mut_slice().into()])
        .step("io_uring_setup")?;
    Ok("a ring".to_owned())
}

fn bpf(_: &Args) -> Attempt {
    const BPF_MAP_CREATE: i32 = 0;
    // union bpf_attr for a map: type (2, an array), size of keys, size of values, entries
    let mut attributes = [0_u8; 72];
    for (field, value) in [2_u32, 4, 4, 1].into_iter().enumerate() {
        attributes[field * 4..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    let length = attributes.len();
    call_fd(libc::SYS_bpf, &mut [BPF_MAP_CREATE.into(), attributes.as_mut_slice().into(), length.into()])
        .step("BPF_MAP_CREATE")?;
    Ok("a map".to_owned())
}

/// Joins a new session keyring, which leaves the one it had.
fn keyctl(_: &Args) -> Attempt {
    const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;
    let serial = call!(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, Arg::Null).step("keyctl")?;
    Ok(format!("session keyring {serial}"))
}

fn add_key(_: &Args) -> Attempt {
    const KEY_SPEC_PROCESS_KEYRING: i32 = -2;
    let payload = b"payload".as_slice();
    call!(libc::SYS_add_key, c"user", c"adversary", payload, payload.len(), KEY_SPEC_PROCESS_KEYRING)
        .step("add_key")?;
    Ok("a key".to_owned())
}

fn userfaultfd(_: &Args) -> Attempt {
    const UFFD_USER_MODE_ONLY: i32 = 1;
    call_fd(libc::SYS_userfaultfd, &mut [(libc::O_CLOEXEC | UFFD_USER_MODE_ONLY).into()])
        .step("userfaultfd")?;
    Ok("a handler of page faults".to_owned())
}

/// The clock of this process, without the kernel's part: what even a careful host allows.
fn perf(_: &Args) -> Attempt {
    const SOFTWARE: u64 = 1;
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
    // struct perf_event_attr, first version: type and size, config, period, sample type, read format, flags …
    let attributes = words([SOFTWARE | 64 << 32, 0, 0, 0, 0, EXCLUDE_KERNEL_AND_HYPERVISOR, 0, 0]);
    call_fd(
        libc::SYS_perf_event_open,
        &mut [attributes.as_slice().into(), 0.into(), (-1).into(), (-1).into(), 0.into()],
    )
    .step("perf_event_open")?;
    Ok("an event".to_owned())
}

fn name_to_handle(args: &Args) -> Attempt {
    handle_of(args.path(0))?;
    Ok("a handle".to_owned())
}

/// Any call will do to show that the gate is open; `unshare` shows that it leads around a filter.
#[cfg(target_arch = "x86_64")]
fn i386_syscall(args: &Args) -> Attempt {
    const GETPID: u32 = 20;
    const UNSHARE: u32 = 310;
    match args.optional(0)? {
        None => sys::call_i386(GETPID, 0).map(|pid| format!("getpid gave {pid}")).step("getpid"),
        Some("unshare") => sys::call_i386(UNSHARE, libc::CLONE_NEWUSER as u32)
            .map(|_| "a user namespace".to_owned())
            .step("unshare"),
        Some(other) => Err(Failure::Mistake(format!("{other:?} is not `unshare`"))),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn i386_syscall(_: &Args) -> Attempt {
    Err(Errno::ENOSYS).step("this architecture has no such calls")
}

fn x32_syscall(_: &Args) -> Attempt {
    const X32: i64 = 0x4000_0000;
    let pid = call!(X32 | libc::SYS_getpid).step("getpid")?;
    Ok(format!("getpid gave {pid}"))
}

fn open_socket(family: i32, kind: i32, protocol: i32) -> Attempt {
    sys::socket(family, kind, protocol).step("socket")?;
    Ok("a socket".to_owned())
}

fn socket_family(args: &Args) -> Attempt {
    let family = args.number(0)?;
    open_socket(family, libc::SOCK_STREAM, 0)
        .or_else(|_| open_socket(family, libc::SOCK_DGRAM, 0))
        .or_else(|_| open_socket(family, libc::SOCK_RAW, 0))
}

fn raw_socket(_: &Args) -> Attempt {
    open_socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
}

fn packet_socket(_: &Args) -> Attempt {
    // ETH_P_ALL in network order: every frame that passes.
    open_socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(3_u16.to_be()))
}

fn netlink(args: &Args) -> Attempt {
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, args.number(0)?).step("socket")?;
    // struct sockaddr_nl: family, padding, port, groups
    let mut address = [0_u8; 12];
    address[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
    call!(libc::SYS_bind, &socket, address.as_slice(), address.len()).step("bind")?;
    Ok("a bound socket".to_owned())
}

fn vsock(_: &Args) -> Attempt {
    open_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
}

fn alg_socket(_: &Args) -> Attempt {
    open_socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
}

fn bluetooth_socket(_: &Args) -> Attempt {
    const BTPROTO_HCI: i32 = 1;
    open_socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, BTPROTO_HCI)
}

fn can_socket(_: &Args) -> Attempt {
    const CAN_RAW: i32 = 1;
    open_socket(libc::AF_CAN, libc::SOCK_RAW, CAN_RAW)
}

fn kexec(_: &Args) -> Attempt {
    call!(libc::SYS_kexec_load, 0, 0, Arg::Null, 0).step("kexec_load")?;
    Ok("no kernel is loaded any more".to_owned())
}

/// Hands over a program that is no module: that the loader says so shows that it looked.
fn init_module(_: &Args) -> Attempt {
    let file = File::open("/proc/self/exe").step("open itself")?;
    match call!(libc::SYS_finit_module, &file, c"", 0) {
        Ok(_) | Err(Errno::ENOEXEC) => Ok("the loader looked at it".to_owned()),
        Err(errno) => Err(errno).step("finit_module"),
    }
}

fn syslog(_: &Args) -> Attempt {
    const SYSLOG_ACTION_READ_ALL: i32 = 3;
    let mut buffer = [0_u8; 4096];
    let length =
        call!(libc::SYS_syslog, SYSLOG_ACTION_READ_ALL, buffer.as_mut_slice(), 4096).step("syslog")?;
    Ok(format!("{length} bytes of the kernel's log"))
}

/// Writes back the value that is there.
fn sysctl_write(args: &Args) -> Attempt {
    let value = fs::read(args.path(0)).step("read")?;
    OpenOptions::new()
        .write(true)
        .open(args.path(0))
        .step("open for writing")?
        .write_all(&value)
        .step("write")?;
    Ok("set to what it was".to_owned())
}

fn sysrq(_: &Args) -> Attempt {
    // `h` prints help to the kernel's log, and does nothing else.
    let mut file = OpenOptions::new().write(true).open("/proc/sysrq-trigger").step("open")?;
    file.write_all(b"h").step("write")?;
    Ok("asked for help".to_owned())
}

fn device_open(args: &Args) -> Attempt {
    OpenOptions::new().read(true).write(true).open(args.path(0)).step("open")?;
    Ok("open for reading and writing".to_owned())
}

fn hostname_set(_: &Args) -> Attempt {
    nix::unistd::sethostname("adversary").step("sethostname")?;
    Ok("renamed".to_owned())
}

/// To the time it is: nobody should notice, and the right to do so is all that matters.
fn clock_set(_: &Args) -> Attempt {
    let mut now = [0_u8; 16];
    call!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, now.as_mut_slice()).step("clock_gettime")?;
    call!(libc::SYS_clock_settime, libc::CLOCK_REALTIME, now.as_slice()).step("clock_settime")?;
    Ok("set".to_owned())
}

fn cgroup_escape(args: &Args) -> Attempt {
    let list = args.path(0).join("cgroup.procs");
    fs::write(&list, "0").step("write its own process id")?;
    let pid = std::process::id().to_string();
    let moved = fs::read_to_string(&list).step("read it back")?.lines().any(|line| line == pid);
    if moved { Ok("moved".to_owned()) } else { Err(Failure::Held("it did not move".to_owned())) }
}

fn quotactl(_: &Args) -> Attempt {
    const Q_SYNC: i32 = 0x0080_0001;
    call!(libc::SYS_quotactl, Q_SYNC << 8, Arg::Null, 0, Arg::Null).step("quotactl")?;
    Ok("synced".to_owned())
}

/// Turns process accounting on for this namespace, and off again.
fn acct(args: &Args) -> Attempt {
    File::create(args.path(0)).step("create the file")?;
    let path = args.c_path(0)?;
    call!(libc::SYS_acct, path.as_c_str()).step("acct")?;
    call!(libc::SYS_acct, Arg::Null).step("acct off")?;
    Ok("every process was logged".to_owned())
}

/// Makes `path` a swap file of 64 pages, uses it, and stops using it.
fn swapon(args: &Args) -> Attempt {
    const PAGES: u32 = 64;
    let page = usize::try_from(
        nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).step("sysconf")?.unwrap_or(4096),
    )
    .unwrap_or(4096);
    let mut content = vec![0_u8; page * PAGES as usize];
    // union swap_header: version, last page, bad pages at 1024; a magic word at the end of the page.
    content[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    content[1028..1032].copy_from_slice(&(PAGES - 1).to_ne_bytes());
    content[page - 10..page].copy_from_slice(b"SWAPSPACE2");
    let file = File::create(args.path(0)).step("create the file")?;
    file.write_all_at(&content, 0).step("write it")?;
    file.sync_all().step("sync it")?;
    let path = args.c_path(0)?;
    call!(libc::SYS_swapon, path.as_c_str(), 0).step("swapon")?;
    call!(libc::SYS_swapoff, path.as_c_str()).step("swapoff")?;
    Ok("swapped".to_owned())
}

#[cfg(target_arch = "x86_64")]
fn iopl(_: &Args) -> Attempt {
    call!(libc::SYS_iopl, 3).step("iopl")?;
    Ok("access to ports".to_owned())
}

#[cfg(target_arch = "x86_64")]
fn modify_ldt(_: &Args) -> Attempt {
    const WRITE: i32 = 1;
    // struct user_desc: entry, base, limit, flags (a 32-bit data segment, present)
    let entry: Vec<u8> =
        [0_u32, 0, 0xf_ffff, 0b101_0001].iter().flat_map(|field| field.to_ne_bytes()).collect();
    call!(libc::SYS_modify_ldt, WRITE, entry.as_slice(), entry.len()).step("modify_ldt")?;
    Ok("a segment".to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn iopl(_: &Args) -> Attempt {
    Err(Errno::ENOSYS).step("this architecture has no such call")
}

#[cfg(not(target_arch = "x86_64"))]
fn modify_ldt(_: &Args) -> Attempt {
    Err(Errno::ENOSYS).step("this architecture has no such call")
}

/// A ruleset that allows everything under `/`, in the hope that the last one wins; then a write.
fn landlock_noop(args: &Args) -> Attempt {
    const WRITE_FILE: u64 = 1 << 1;
    const RULE_PATH_BENEATH: i32 = 1;
    let handled = words([WRITE_FILE]);
    let ruleset =
        call_fd(libc::SYS_landlock_create_ruleset, &mut [handled.as_slice().into(), 8.into(), 0.into()])
            .step("landlock_create_ruleset")?;
    let root = File::open("/").step("open the root")?;
    // struct landlock_path_beneath_attr, packed: rights, descriptor
    let mut rule = WRITE_FILE.to_ne_bytes().to_vec();
    rule.extend_from_slice(&std::os::fd::AsRawFd::as_raw_fd(&root).to_ne_bytes());
    call!(libc::SYS_landlock_add_rule, &ruleset, RULE_PATH_BENEATH, rule.as_slice(), 0)
        .step("landlock_add_rule")?;
    no_new_privileges()?;
    call!(libc::SYS_landlock_restrict_self, &ruleset, 0).step("landlock_restrict_self")?;
    let mut file = OpenOptions::new().write(true).open(args.path(0)).step("open for writing")?;
    file.write_all(crate::files::MARK).step("write")?;
    Ok("written".to_owned())
}

fn no_new_privileges() -> Result<(), Failure> {
    nix::sys::prctl::set_no_new_privs().step("PR_SET_NO_NEW_PRIVS")
}

/// A filter that allows everything, in the hope that the last one wins; then a call that should be refused.
fn seccomp_off(_: &Args) -> Attempt {
    const SECCOMP_SET_MODE_FILTER: i32 = 1;
    const RETURN: u64 = 0x06;
    const ALLOW: u64 = 0x7fff_0000;
    no_new_privileges()?;
    // struct sock_filter is 16 bits of code, two of 8 for jumps, 32 of operand; struct sock_fprog a length and
    // a pointer.
    let program = words([RETURN | ALLOW << 32]);
    let filter = words([1, address(&program)]);
    call!(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter.as_slice()).step("seccomp")?;
    unshare(CloneFlags::CLONE_NEWUSER).step("unshare")?;
    Ok("a user namespace".to_owned())
}

/// Asks for `CAP_SYS_ADMIN`, and believes it when it sees it.
fn capset_raise(_: &Args) -> Attempt {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_ADMIN: u32 = 1 << 21;
    let header = words([VERSION_3.into()]);
    // Two of: effective, permitted, inheritable.
    let mut sets = [0_u8; 24];
    call!(libc::SYS_capget, header.as_slice(), sets.as_mut_slice()).step("capget")?;
    for field in [0, 4] {
        sets[field + 2] |= (CAP_SYS_ADMIN >> 16) as u8;
    }
    call!(libc::SYS_capset, header.as_slice(), sets.as_slice()).step("capset")?;
    Ok("CAP_SYS_ADMIN".to_owned())
}

/// Lets others of the same user trace it. The kernel always allows that; what counts is who those others are.
fn prctl_dumpable(_: &Args) -> Attempt {
    nix::sys::prctl::set_dumpable(true).step("PR_SET_DUMPABLE")?;
    let path = c_string("/proc/self/mem")?;
    call_fd(libc::SYS_openat, &mut [libc::AT_FDCWD.into(), path.as_c_str().into(), libc::O_RDWR.into()])
        .step("open its own memory")?;
    Ok("dumpable".to_owned())
}

fn setuid0(_: &Args) -> Attempt {
    call!(libc::SYS_setresuid, 0, 0, 0).step("setresuid")?;
    Ok("root".to_owned())
}

fn setgroups(_: &Args) -> Attempt {
    let groups = 0_u32.to_ne_bytes();
    call!(libc::SYS_setgroups, 1, groups.as_slice()).step("setgroups")?;
    Ok("in root's group".to_owned())
}
