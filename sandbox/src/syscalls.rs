//! The system calls an agent has no use for, refused.
//!
//! A deny list, because what compilers, package managers and test runners call is open-ended; what reaches
//! deep into the kernel without being needed by any of them is known. A foreign architecture's numbers kill
//! the process, and the x32 numbers, which a deny list would not recognise, are refused as a whole. Most
//! refusals are EPERM; where a C library has a second way, ENOSYS makes it take that.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused whatever their arguments are.
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
    // Namespaces.
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

/// The old way to ask for raw packets; libc deprecates the name, the kernel still takes the number.
const SOCK_PACKET: u64 = 10;

/// Since Linux 6.15; the number is the same everywhere.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// Flags that make a new namespace.
const NEW_NAMESPACE: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME
];

/// Terminal requests that type into the terminal on somebody's behalf.
const TYPING: &[u64] = &[libc::TIOCSTI, libc::TIOCLINUX];

/// Puts the filter in place, for this process and all it starts.
pub(crate) fn restrict() -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter(&program()?)
}

/// How many filters [`restrict`] puts in place.
pub(crate) const FILTERS: u64 = 1;

/// What the compiler can't express, and what it can: jumps are relative, so one is put before the other. One
/// program is loaded and translated in half the time of two.
fn program() -> Result<BpfProgram, seccompiler::Error> {
    let mut program = answer_enosys();
    program.extend(compile(denied()?, libc::EPERM)?);
    Ok(program)
}

fn denied() -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = DENIED.iter().map(|number| (*number, Vec::new())).collect();
    let namespaces = |argument| -> Result<Vec<SeccompRule>, seccompiler::Error> {
        // The kernel looks at the low half of the flags only.
        NEW_NAMESPACE
            .iter()
            .map(|flag| has_bits(argument, *flag as u32 as u64, *flag as u32 as u64))
            .collect()
    };
    rules.insert(libc::SYS_unshare, namespaces(0)?);
    rules.insert(libc::SYS_clone, namespaces(0)?);
    // The request of an ioctl is 32 bits wide: comparing 64 would be walked around with a high bit.
    let typing = TYPING.iter().map(|request| equals(1, *request)).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_ioctl, typing);
    // Unix, IPv4 and IPv6, no raw sockets: nothing else is needed to build and test.
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    let other_family = families
        .iter()
        .map(|family| condition(0, SeccompCmpOp::Ne, *family as u64))
        .collect::<Result<Vec<_>, _>>()?;
    let kind_mask = 0xf;
    rules.insert(
        libc::SYS_socket,
        vec![
            SeccompRule::new(other_family)?,
            has_bits(1, kind_mask, libc::SOCK_RAW as u64)?,
            has_bits(1, kind_mask, SOCK_PACKET)?,
        ],
    );
    Ok(rules)
}

fn compile(rules: Rules, error: i32) -> Result<BpfProgram, seccompiler::Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error as u32), arch)?;
    Ok(filter.try_into()?)
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

fn equals(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?])?)
}

fn has_bits(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::MaskedEq(mask), value)?])?)
}

/// ENOSYS for the x32 numbers, which are those of x86-64 with a bit set, and for clone3, which hides its
/// flags behind a pointer no filter can follow; C libraries then use clone. Everything else goes on to the
/// next instruction.
fn answer_enosys() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_BITS: u16 = 0x45;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const X32: u32 = 0x4000_0000;
    vec![
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: NUMBER },
        sock_filter { code: JUMP_IF_BITS, jt: 1, jf: 0, k: X32 },
        sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: libc::SYS_clone3 as u32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32 },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_compiles_and_fits_the_kernel() {
        let length = program().expect("compiles").len();
        assert!(length > DENIED.len() && length < 4096, "{length} instructions");
    }
}
