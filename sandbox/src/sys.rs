//! The system calls that no crate wraps safely, and the only unsafe code of the project.
//!
//! Each function here is safe to call: it checks, or its types guarantee, what its unsafe block relies on,
//! and the comment on the block says which invariant that is. Nothing here decides anything.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::unistd::Pid;

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum ForkSide {
    Parent(Pid),
    Child,
}

/// Which side of a clone into new namespaces this is.
#[derive(Debug)]
pub(crate) enum CloneSide {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// `struct clone_args` up to the field the kernel learned in 5.7.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A child in new namespaces, with a pidfd that can't name another process, and, if `cgroup` is given, born
/// inside that cgroup (v2) so that no moment of its life goes uncounted.
///
/// The child runs on a copy of this process. It may allocate and call anything only if no other thread held
/// a lock at the moment of the copy; hence the refusal when there are other threads.
pub(crate) fn clone_into(
    namespaces: nix::sched::CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<CloneSide> {
    refuse_threads()?;
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: libc::c_int = -1;
    let mut args = CloneArgs {
        flags: namespaces.bits() as u32 as u64 | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: `args` is a valid clone_args of the size given and outlives the call; `pidfd` is writable. With
    // no CLONE_VM and no stack this is a fork: the child gets its own copy of this single-threaded process.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(CloneSide::Child),
        pid => {
            // SAFETY: the kernel stored a fresh descriptor in `pidfd` because CLONE_PIDFD was set, and nobody
            // else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(CloneSide::Parent { pid: Pid::from_raw(pid as i32), pidfd })
        }
    }
}

/// A plain fork of a single-threaded process.
pub(crate) fn fork() -> io::Result<ForkSide> {
    refuse_threads()?;
    // SAFETY: there is no other thread, so the child may do whatever this process may.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(ForkSide::Parent(child)),
        nix::unistd::ForkResult::Child => Ok(ForkSide::Child),
    }
}

/// Asks the kernel to give this process signal handlers of its own, which it has unless it has threads, and then
/// nothing happens. Where asking is forbidden, threads are counted by the links of their directory: one for each,
/// and two.
fn refuse_threads() -> io::Result<()> {
    let alone = match nix::sched::unshare(nix::sched::CloneFlags::CLONE_SIGHAND) {
        Ok(()) => true,
        Err(nix::Error::EINVAL) => false,
        Err(_) => rustix::fs::stat(c"/proc/self/task")?.st_nlink == 3,
    };
    match alone {
        true => Ok(()),
        false => Err(io::Error::other("a process with several threads can't start a sandbox")),
    }
}

/// What to change on a mount; see mount_setattr(2).
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MountAttributes<'a> {
    pub(crate) set: u64,
    pub(crate) recursive: bool,
    pub(crate) idmap: Option<BorrowedFd<'a>>,
}

#[repr(C)]
struct RawMountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, attributes: MountAttributes<'_>) -> io::Result<()> {
    let mut attr = RawMountAttr { attr_set: attributes.set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    if let Some(userns) = attributes.idmap {
        attr.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attr.userns_fd = userns.as_raw_fd() as u64;
    }
    let flags = libc::AT_EMPTY_PATH | if attributes.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated literal, and `attr` is a valid mount_attr of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw mut attr,
            size_of::<RawMountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The Landlock ABI of the running kernel; `None` where Landlock is absent or switched off.
pub(crate) fn landlock_abi() -> Option<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel reads no memory and creates nothing; it answers a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(abi).ok().filter(|abi| *abi > 0)
}

/// Brings `lo` up in the current network namespace: a namespace of one's own starts with it down, and the
/// tests an agent runs talk to themselves.
fn loopback_up() -> rustix::io::Result<()> {
    use rustix::ioctl::{Setter, ioctl};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    const SET_FLAGS: rustix::ioctl::Opcode = libc::SIOCSIFFLAGS as rustix::ioctl::Opcode;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    (name[0], name[1]) = (b'l' as libc::c_char, b'o' as libc::c_char);
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which `request` is, with a NUL-terminated name.
    unsafe { ioctl(socket, Setter::<SET_FLAGS, _>::new(request)) }
}

/// The network namespace a socket is in. Takes the right to administer it.
pub(crate) fn network_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: SIOCGSKNS takes no argument and touches no memory; it answers a new descriptor or an error.
    let descriptor = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGSKNS) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Closes every descriptor from 3 on, known to us or not, but `kept`, which is marked close-on-exec.
///
/// For a process that is about to become another program: every other owner of a descriptor in it is never
/// used or dropped again.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) -> io::Result<()> {
    let kept = kept.as_raw_fd() as u32;
    for (first, last, flags) in
        [(kept, kept, libc::CLOSE_RANGE_CLOEXEC), (3, kept.saturating_sub(1), 0), (kept + 1, u32::MAX, 0)]
    {
        if first > last {
            continue;
        }
        // SAFETY: close_range takes plain numbers. The caller leaves through exec or exit and lets no owner of
        // these descriptors run.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether another open file description of this file may write to it. `file` must be open to read only.
///
/// The kernel gives a read lease only if no process has the file open for writing, and we give it back at once. If a
/// process opens the file to write in between, it waits for that moment, and we see the kernel ask for the lease.
pub(crate) fn is_open_for_writing(file: BorrowedFd<'_>) -> io::Result<bool> {
    /// The same number on every architecture; libc does not have it for Linux.
    const F_SETSIG: libc::c_int = 10;
    let control = |command, argument: libc::c_int| {
        // SAFETY: these commands take an integer and no pointer, and the descriptor is open for as long as it is
        // borrowed.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    };
    // The signal that tells a lease is asked back: SIGIO would end this process, this one is ignored unless handled.
    control(F_SETSIG, libc::SIGURG)?;
    match control(libc::F_SETLEASE, libc::F_RDLCK) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
        other => drop(other?),
    }
    let held = control(libc::F_GETLEASE, 0);
    control(libc::F_SETLEASE, libc::F_UNLCK)?;
    Ok(held? != libc::F_RDLCK)
}

/// Ends this process now, without running destructors or flushing what the parent will flush too.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// Loads a system call filter for this process and everything it starts. It can't be taken off again.
pub(crate) fn filter_system_calls(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` points at `len` instructions, which the kernel only reads, and checks before use.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Namespaces that are made by a process of their own while this one goes on: the network's takes longer to
/// make than everything else. The process shares our memory and our descriptors, and leaves behind only the
/// descriptors of what it made.
#[derive(Debug)]
pub(crate) struct NamespaceJob {
    pid: Pid,
    order: Box<NamespaceOrder>,
    _stack: Box<[u64]>,
}

/// What an errand brings.
#[derive(Debug)]
pub(crate) struct MadeNamespaces {
    pub(crate) user: Option<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
}

#[derive(Debug)]
struct NamespaceOrder {
    proc: RawFd,
    /// Every processor but the one that this process is on, where there is another.
    elsewhere: Option<rustix::thread::CpuSet>,
    user: NamespaceSlot,
    network: NamespaceSlot,
}

/// Something to fetch, and the result: a descriptor, or an error number below zero.
#[derive(Debug)]
struct NamespaceSlot {
    wanted: bool,
    result: AtomicI32,
}

impl NamespaceSlot {
    fn new(wanted: bool) -> Self {
        Self { wanted, result: AtomicI32::new(-libc::ECHILD) }
    }

    fn store(&self, result: rustix::io::Result<OwnedFd>) {
        let result = result.map_or_else(|error| -error.raw_os_error(), IntoRawFd::into_raw_fd);
        self.result.store(result, Ordering::Release);
    }

    fn take(&self) -> io::Result<Option<OwnedFd>> {
        match self.result.swap(-libc::ECHILD, Ordering::AcqRel) {
            _ if !self.wanted => Ok(None),
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            // SAFETY: the errand opened it in the table we share and is gone, and the number was just
            // replaced: nobody else owns it.
            descriptor => Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) })),
        }
    }
}

impl NamespaceJob {
    /// Sends for a user namespace, a network namespace, or both. `proc` is a mounted proc file system, and
    /// stays open until the errand is over.
    pub(crate) fn start(user: bool, network: bool, proc: BorrowedFd<'_>) -> io::Result<Self> {
        extern "C" fn run(order: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the order lives in a box that is kept until this process was waited for.
            let order = unsafe { &*order.cast::<NamespaceOrder>() };
            // The first of the two calls it: this process, or the one that started it.
            order.go_elsewhere(None);
            let open = |name: &CStr| {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
                // SAFETY: whoever sent us keeps `proc` open until we are gone.
                let proc = unsafe { BorrowedFd::borrow_raw(order.proc) };
                rustix::fs::openat(proc, name, flags, rustix::fs::Mode::empty())
            };
            if order.user.wanted {
                order.user.store(open(c"self/ns/user"));
            }
            if order.network.wanted {
                // SAFETY: the descriptor table is shared with the process that sent us; unsharing a namespace
                // leaves it alone.
                let unshared =
                    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
                let made = unshared.and_then(|()| loopback_up());
                order.network.store(made.and_then(|()| open(c"self/ns/net")));
            }
            0
        }
        let order = Box::new(NamespaceOrder {
            proc: proc.as_raw_fd(),
            elsewhere: elsewhere(),
            user: NamespaceSlot::new(user),
            network: NamespaceSlot::new(network),
        });
        let mut stack = vec![0u64; 4096].into_boxed_slice();
        let mut flags = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
        if user {
            flags |= libc::CLONE_NEWUSER;
        }
        // SAFETY: `run` uses its own stack and the order, both kept until `drop` has waited for it; it makes
        // raw system calls only, so it touches neither the allocator nor the error number, which are in use
        // by this process at the same time.
        let pid = unsafe {
            let top = stack.as_mut_ptr_range().end.cast::<libc::c_void>();
            libc::clone(run, top, flags, (&raw const *order).cast_mut().cast())
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        order.go_elsewhere(rustix::process::Pid::from_raw(pid));
        Ok(Self { pid: Pid::from_raw(pid), order, _stack: stack })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for what was sent for.
    pub(crate) fn finish(self) -> io::Result<MadeNamespaces> {
        nix::sys::wait::waitpid(self.pid, None)?;
        Ok(MadeNamespaces { user: self.order.user.take()?, network: self.order.network.take()? })
    }
}

impl NamespaceOrder {
    /// Puts a process, or the calling one, on another processor. A scheduler that likes to keep processors asleep
    /// leaves what is started where it was started from, and then one of the two waits for the other.
    fn go_elsewhere(&self, process: Option<rustix::process::Pid>) {
        if let Some(elsewhere) = &self.elsewhere {
            let _ = rustix::thread::sched_setaffinity(process, elsewhere);
        }
    }
}

/// Leaves this processor to a child that was just started, and continues on another one, if there is one, until the
/// returned guard is dropped.
///
/// A child often waits where it was started until its parent sleeps, and a woken process runs where its waker ran,
/// instead of the waker. Two processes that have work at the same time are better off apart.
pub(crate) fn yield_processor() -> Option<AffinityGuard> {
    let (before, elsewhere) = (rustix::thread::sched_getaffinity(None).ok()?, elsewhere()?);
    rustix::thread::sched_setaffinity(None, &elsewhere).ok()?;
    Some(AffinityGuard { before })
}

/// Dropping it lets this process run wherever it could before.
#[derive(Debug)]
pub(crate) struct AffinityGuard {
    before: rustix::thread::CpuSet,
}

impl Drop for AffinityGuard {
    fn drop(&mut self) {
        let _ = rustix::thread::sched_setaffinity(None, &self.before);
    }
}

/// The processors we may use, without the one we are on.
fn elsewhere() -> Option<rustix::thread::CpuSet> {
    let mut processors = rustix::thread::sched_getaffinity(None).ok()?;
    processors.unset(rustix::thread::sched_getcpu());
    (processors.count() > 0).then_some(processors)
}

impl Drop for NamespaceJob {
    fn drop(&mut self) {
        // Over already after `finish`; otherwise its stack is still in use.
        let _ = nix::sys::wait::waitpid(self.pid, None);
        let _ = (self.order.user.take(), self.order.network.take());
    }
}

/// Starts `child` as a process that borrows this one's memory until it becomes another program or ends; this
/// process sleeps until then. What posix_spawn does, for a child with more to do than posix_spawn knows:
/// nothing is copied, and nothing has to be taken down again when the program starts.
///
/// `child` ends in exec or [`exit_now`], and with the latter when it returns; it runs on a stack of its own.
pub(crate) fn spawn_borrowing(mut child: impl FnMut()) -> io::Result<Pid> {
    refuse_threads()?;
    extern "C" fn run<F: FnMut()>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `child` points at the closure of the function below, whose frame is kept alive, and untouched,
        // by CLONE_VFORK until this process has gone.
        let child = unsafe { &mut *child.cast::<F>() };
        child();
        exit_now(1)
    }
    fn entry<F: FnMut()>(_: &F) -> extern "C" fn(*mut libc::c_void) -> libc::c_int {
        run::<F>
    }
    const STACK: usize = 1 << 20;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    // SAFETY: an anonymous mapping at an address the kernel chooses touches nobody's memory.
    let stack = unsafe { libc::mmap(std::ptr::null_mut(), STACK, protection, flags, -1, 0) };
    if stack == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let entry = entry(&child);
    // SAFETY: the lowest page of the mapping is ours; without access it stops an overflow. `entry` never
    // returns. With CLONE_VFORK and no other thread, nothing of this process runs while the child uses its
    // memory, so what the child does to it is as if a called function had; the stack is the child's alone.
    let pid = unsafe {
        libc::mprotect(stack, 4096, libc::PROT_NONE);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(entry, stack.byte_add(STACK), flags, (&raw mut child).cast())
    };
    let result = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(pid)) };
    // SAFETY: the child has left this memory, or never was; nobody else knows the mapping.
    unsafe { libc::munmap(stack, STACK) };
    result
}

/// Every signal back to its default, none blocked: what a caller or the language's runtime ignored or
/// blocked (SIGPIPE, for one) is not passed on to a program.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is not a function of ours. KILL and STOP, and the two the C library keeps for
        // itself, answer an error that changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let none = nix::sys::signal::SigSet::empty();
    let _ = nix::sys::signal::sigprocmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(&none), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_steps_aside_may_run_where_it_could_before() {
        let allowed = || rustix::thread::sched_getaffinity(None).expect("this thread runs somewhere");
        let before = allowed();
        let here = rustix::thread::sched_getcpu();
        if let Some(aside) = yield_processor() {
            // We may have been moved in between, but not to nowhere.
            assert!(allowed().count() == before.count() - 1, "left {here} alone");
            drop(aside);
        }
        assert!(allowed() == before);
    }

    #[test]
    fn a_process_with_threads_is_refused() {
        let (say, hear) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || hear.recv());
        assert!(refuse_threads().is_err());
        drop(say);
        let _ = other.join();
    }
}
