//! System calls that no crate wraps, or wraps too well: this is the one file of the adversary with unsafe
//! code. What it exports cannot make the program read or write memory that it does not own.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// An argument of a system call. Pointers are only ever made from memory that is borrowed for the call.
pub(crate) enum Arg<'a> {
    Number(i64),
    Text(&'a CStr),
    In(&'a [u8]),
    Out(&'a mut [u8]),
    Null,
}

macro_rules! number {
    ($($from:ty),*) => {$(
        impl From<$from> for Arg<'_> {
            fn from(number: $from) -> Self {
                Self::Number(number as i64)
            }
        }
    )*};
}
number!(i32, u32, i64, u64, usize);

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(text: &'a CStr) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::In(bytes)
    }
}

impl<'a> From<&'a mut [u8]> for Arg<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::Out(bytes)
    }
}

impl From<BorrowedFd<'_>> for Arg<'_> {
    fn from(fd: BorrowedFd<'_>) -> Self {
        Self::Number(fd.as_raw_fd().into())
    }
}

impl From<&OwnedFd> for Arg<'_> {
    fn from(fd: &OwnedFd) -> Self {
        Self::Number(fd.as_raw_fd().into())
    }
}

impl From<&File> for Arg<'_> {
    fn from(file: &File) -> Self {
        Self::Number(file.as_raw_fd().into())
    }
}

/// `call!(libc::SYS_mount, source, target, Arg::Null)`: a system call with up to six arguments.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::call_with($number, &mut [$($crate::sys::Arg::from($argument)),*])
    };
}
pub(crate) use call;

/// Calls that map, unmap or hand over memory, or that return twice, have functions of their own below.
pub(crate) fn call_with(number: c_long, arguments: &mut [Arg<'_>]) -> Result<i64, Errno> {
    debug_assert!(arguments.len() <= 6);
    let mut raw = [0_usize; 6];
    for (slot, argument) in raw.iter_mut().zip(arguments) {
        *slot = match argument {
            Arg::Number(number) => *number as usize,
            Arg::Text(text) => text.as_ptr().addr(),
            Arg::In(bytes) => bytes.as_ptr().expose_provenance(),
            Arg::Out(bytes) => bytes.as_mut_ptr().expose_provenance(),
            Arg::Null => 0,
        };
    }
    // SAFETY: every pointer comes from a borrow that outlives the call. The kernel writes only into `Out`
    // buffers; the attacks size those as the called interface says.
    let result = unsafe { libc::syscall(number, raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]) };
    Errno::result(result)
}

/// As [`call_with`], for calls that make a file descriptor.
pub(crate) fn call_fd(number: c_long, arguments: &mut [Arg<'_>]) -> Result<OwnedFd, Errno> {
    let fd = call_with(number, arguments)? as c_int;
    // SAFETY: the kernel just made this descriptor for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result<OwnedFd, Errno> {
    call_fd(libc::SYS_socket, &mut [family.into(), (kind | libc::SOCK_CLOEXEC).into(), protocol.into()])
}

/// The fields of a C structure that has no padding between them, as the kernel reads it.
pub(crate) fn words<const N: usize>(fields: [u64; N]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_ne_bytes()).collect()
}

/// Where `bytes` lie, for structures that hold pointers. The caller keeps `bytes` alive across the call.
pub(crate) fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// As [`address`], of memory that the kernel is to write.
pub(crate) fn address_mut(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

/// Runs `child` in a new process, which ends with the code it returns.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    clone_with(0, child)
}

/// As [`fork`], with flags such as `CLONE_NEWUSER`.
pub(crate) fn clone_with(flags: c_int, child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    if flags == 0 {
        // SAFETY: the attacks that fork have one thread, so the child finds no lock held by another.
        return in_parent(unsafe { libc::fork() }.into(), child);
    }
    // SAFETY: without a stack and without CLONE_VM this is a fork, and the same holds for it.
    in_parent(unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) }, child)
}

/// As [`clone_with`], through `clone3`, whose flags a filter cannot see.
pub(crate) fn clone3_with(flags: u64, child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    // struct clone_args, first version: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    let arguments = words([flags, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0]);
    // SAFETY: as for `clone_with`; `arguments` lives across the call.
    in_parent(unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), arguments.len()) }, child)
}

fn in_parent(pid: c_long, child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    match Errno::result(pid)? {
        0 => {
            let code = child();
            // SAFETY: ends this process without running what the parent registered for its own exit.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(Pid::from_raw(pid as i32)),
    }
}

pub(crate) fn ignore(signal: Signal) -> Result<(), Errno> {
    // SAFETY: ignoring a signal installs no handler, so no code can run in one.
    let before = unsafe { libc::signal(signal as c_int, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(Errno::last()) } else { Ok(()) }
}

/// Writes `bytes` to the beginning of `file` through a shared mapping of it.
pub(crate) fn write_through_mapping(file: &File, bytes: &[u8]) -> Result<(), Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), bytes.len(), protection, libc::MAP_SHARED, fd, 0) };
    if map == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: the mapping is writable and `bytes.len()` long; the caller checked that the file is too, so
    // there is a page behind it. Nothing points into it after it is unmapped.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.cast(), bytes.len());
        libc::msync(map, bytes.len(), libc::MS_SYNC);
        libc::munmap(map, bytes.len());
    }
    Ok(())
}

/// A system call by its 32-bit number, through the gate of 32-bit programs. Its arguments are numbers: a
/// pointer would not fit.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_i386(number: u32, first: u32) -> Result<i64, Errno> {
    let result: i64;
    // SAFETY: the compiler keeps rbx for itself, so it is swapped in and out around the interrupt; r8 to r11
    // are clobbered by the kernel's return to a 32-bit gate. No call made through here takes a pointer.
    unsafe {
        std::arch::asm!(
            "xchg {first}, rbx",
            "int 0x80",
            "xchg {first}, rbx",
            first = inout(reg) u64::from(first) => _,
            inlateout("rax") u64::from(number) => result,
            in("rcx") 0_u64,
            in("rdx") 0_u64,
            lateout("r8") _,
            lateout("r9") _,
            lateout("r10") _,
            lateout("r11") _,
        );
    }
    let result = i64::from(result as i32);
    if (-4095..0).contains(&result) { Err(Errno::from_raw(-result as i32)) } else { Ok(result) }
}
