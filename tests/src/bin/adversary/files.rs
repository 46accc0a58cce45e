//! Changing a file or directory by its name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack, beside};
use crate::sys::call;

const GROUP: &str = "files";
const BASIC: &str = "write, create, delete outside the scope";
const LINKS: &str = "hard-link an out-of-scope file in, and write through one that was there before";
const RENAMES: &str = "rename or RENAME_EXCHANGE across the boundary";
const METADATA: &str = "chmod, chown, utime, setxattr on files outside";
const PRIVILEGED: &str = "setuid bits, file capabilities";
const SPECIAL: &str = "device nodes; a FIFO where the harvest will open";

/// What the attacks leave behind in files they get to write.
pub(crate) const MARK: &[u8] = b"the adversary was here\n";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "read", &["path"], "hidden files", read),
    attack(GROUP, "read-dir", &["dir"], "hidden files", read_dir),
    attack(GROUP, "write", &["path"], BASIC, write),
    attack(GROUP, "create", &["path"], BASIC, create),
    attack(GROUP, "mkdir", &["path"], BASIC, make_directory),
    attack(GROUP, "delete", &["path"], BASIC, delete),
    attack(GROUP, "truncate", &["path"], "truncate", truncate),
    attack(GROUP, "append-through-hardlink", &["source", "link"], LINKS, append_through_hardlink),
    attack(GROUP, "hardlink-in", &["source", "destination"], LINKS, hardlink_in),
    attack(GROUP, "rename", &["from", "to"], RENAMES, rename),
    attack(GROUP, "exchange", &["one", "other"], RENAMES, exchange),
    attack(
        GROUP,
        "rename-parent-and-rebuild",
        &["parent", "protected"],
        "rename a parent directory around a protected path and rebuild it",
        rename_parent_and_rebuild,
    ),
    attack(
        GROUP,
        "symlink-swap",
        &["dir", "target"],
        "swap a scope directory for a symlink that leads out",
        symlink_swap,
    ),
    attack(
        GROUP,
        "race-symlink",
        &["dir", "target", "millis"],
        "race a symlink against the harvest",
        race_symlink,
    ),
    attack(GROUP, "chmod", &["path"], METADATA, chmod),
    attack(GROUP, "chown", &["path", "[uid]"], METADATA, change_owner).needs_root(),
    attack(GROUP, "utime", &["path"], METADATA, utime),
    attack(GROUP, "setxattr", &["path"], METADATA, set_xattr),
    attack(GROUP, "forge-mtime", &["path"], "forge mtimes so a change looks like none", forge_mtime),
    attack(GROUP, "setuid-bit", &["path"], PRIVILEGED, setuid_bit),
    attack(GROUP, "file-capability", &["path"], PRIVILEGED, file_capability).needs_root(),
    attack(GROUP, "mknod-device", &["path"], SPECIAL, mknod_device).needs_root(),
    attack(GROUP, "mknod-whiteout", &["path"], SPECIAL, mknod_whiteout),
    attack(GROUP, "mkfifo", &["path"], SPECIAL, make_fifo),
    attack(GROUP, "unix-socket-file", &["path"], SPECIAL, unix_socket_file),
    attack(GROUP, "hold-lock", &["path", "seconds"], "hold a lock on a file the supervisor needs", hold_lock),
];

fn read(args: &Args) -> Attempt {
    let mut content = Vec::new();
    File::open(args.path(0)).step("open")?.take(1 << 20).read_to_end(&mut content).step("read")?;
    if content.is_empty() {
        return Err(Failure::Held("it is there, but empty".to_owned()));
    }
    // Whatever it is, a test's log is no place for it.
    Ok(format!("read {} bytes", content.len()))
}

fn read_dir(args: &Args) -> Attempt {
    let entries = fs::read_dir(args.path(0)).step("open")?.collect::<Result<Vec<_>, _>>().step("list")?;
    if entries.is_empty() {
        return Err(Failure::Held("it is there, but empty".to_owned()));
    }
    let names: Vec<_> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Ok(names.join(" "))
}

/// Overwrites the beginning of an existing file, and makes sure of it.
fn write(args: &Args) -> Attempt {
    let mut file = OpenOptions::new().write(true).open(args.path(0)).step("open for writing")?;
    file.write_all(MARK).step("write")?;
    begins_with_the_mark(args.path(0))
}

pub(crate) fn begins_with_the_mark(path: &Path) -> Attempt {
    let mut found = vec![0; MARK.len()];
    File::open(path).step("reopen")?.read_exact(&mut found).step("read back")?;
    if found == MARK {
        Ok("its content is now the adversary's".to_owned())
    } else {
        Err(Failure::Held("the write went nowhere".to_owned()))
    }
}

fn create(args: &Args) -> Attempt {
    let mut file = OpenOptions::new().write(true).create_new(true).open(args.path(0)).step("create")?;
    file.write_all(MARK).step("write")?;
    Ok("created".to_owned())
}

fn make_directory(args: &Args) -> Attempt {
    fs::create_dir(args.path(0)).step("mkdir")?;
    Ok("created".to_owned())
}

fn delete(args: &Args) -> Attempt {
    let path = args.path(0);
    if fs::symlink_metadata(path).step("stat")?.is_dir() {
        fs::remove_dir_all(path).step("remove the tree")?;
    } else {
        fs::remove_file(path).step("unlink")?;
    }
    Ok("deleted".to_owned())
}

fn truncate(args: &Args) -> Attempt {
    let path = args.c_path(0)?;
    // By name, not by descriptor: Landlock has a right of its own for this one.
    call!(libc::SYS_truncate, path.as_c_str(), 0).step("truncate")?;
    Ok("emptied".to_owned())
}

fn append_through_hardlink(args: &Args) -> Attempt {
    let (source, link) = (args.path(0), args.path(1));
    // A link that is there already is the other half of this attack.
    if fs::symlink_metadata(link).is_err() {
        fs::hard_link(source, link).step("link")?;
    }
    let mut file = OpenOptions::new().append(true).open(link).step("open the link")?;
    file.write_all(MARK).step("append")?;
    let ended = fs::read(source).step("read back")?.ends_with(MARK);
    if ended { Ok("appended".to_owned()) } else { Err(Failure::Held("the source did not change".to_owned())) }
}

fn hardlink_in(args: &Args) -> Attempt {
    fs::hard_link(args.path(0), args.path(1)).step("link")?;
    Ok("linked".to_owned())
}

fn rename(args: &Args) -> Attempt {
    fs::rename(args.path(0), args.path(1)).step("rename")?;
    Ok("renamed".to_owned())
}

fn exchange(args: &Args) -> Attempt {
    let (one, other) = (args.c_path(0)?, args.c_path(1)?);
    let here = libc::AT_FDCWD;
    call!(libc::SYS_renameat2, here, one.as_c_str(), here, other.as_c_str(), libc::RENAME_EXCHANGE)
        .step("exchange")?;
    Ok("exchanged".to_owned())
}

fn rename_parent_and_rebuild(args: &Args) -> Attempt {
    let (parent, protected) = (args.path(0), args.path(1));
    if protected.is_absolute() {
        return Err(Failure::Mistake("the protected path is relative to the parent".to_owned()));
    }
    fs::rename(parent, beside(parent, ".moved")).step("rename the parent")?;
    let rebuilt = parent.join(protected);
    if let Some(above) = rebuilt.parent() {
        fs::create_dir_all(above).step("rebuild the parent")?;
    }
    fs::write(&rebuilt, MARK).step("write the protected file")?;
    begins_with_the_mark(&rebuilt)
}

/// The swap alone may be allowed; what counts is where a write through it ends up.
fn symlink_swap(args: &Args) -> Attempt {
    let (directory, target) = (args.path(0), args.path(1));
    fs::rename(directory, beside(directory, ".swapped")).step("move the directory away")?;
    symlink(target, directory).step("put a link in its place")?;
    fs::write(directory.join("planted"), MARK).step("swapped; write through the link")?;
    begins_with_the_mark(&target.join("planted"))
}

/// `dir/race` is in turn a directory with a file and a link to `target`, as fast as it goes.
fn race_symlink(args: &Args) -> Attempt {
    let (directory, target) = (args.path(0), args.path(1));
    let race = directory.join("race");
    let (real, link) = (directory.join("race.real"), directory.join("race.link"));
    fs::create_dir_all(&real).step("make the directory")?;
    fs::write(real.join("file"), MARK).step("fill the directory")?;
    symlink(target, &link).step("make the link")?;
    let end = Instant::now() + Duration::from_millis(args.number(2)?);
    let mut rounds = 0_u64;
    while Instant::now() < end || rounds == 0 {
        fs::rename(&real, &race).step("put the directory there")?;
        fs::rename(&race, &real).step("take the directory away")?;
        fs::rename(&link, &race).step("put the link there")?;
        fs::rename(&race, &link).step("take the link away")?;
        rounds += 1;
    }
    fs::rename(&link, &race).step("leave the link there")?;
    Ok(format!("{rounds} rounds"))
}

fn chmod(args: &Args) -> Attempt {
    let path = args.path(0);
    let before = fs::metadata(path).step("stat")?.mode() & 0o7777;
    fs::set_permissions(path, fs::Permissions::from_mode(before ^ 0o022)).step("chmod")?;
    Ok(format!("mode {before:o} is now {:o}", before ^ 0o022))
}

fn change_owner(args: &Args) -> Attempt {
    let uid = match args.optional(1)? {
        Some(_) => args.number(1)?,
        None => fs::metadata(args.path(0)).step("stat")?.uid() ^ 1,
    };
    chown(args.path(0), Some(uid), None).step("chown")?;
    Ok(format!("its owner is now {uid}"))
}

fn utime(args: &Args) -> Attempt {
    let path = args.c_path(0)?;
    // By name: opening the file for writing could be refused for another reason.
    let times = crate::sys::words([86_400, 0, 86_400, 0]);
    call!(libc::SYS_utimensat, libc::AT_FDCWD, path.as_c_str(), times.as_slice(), 0).step("utimensat")?;
    let seconds = fs::metadata(args.path(0)).step("stat")?.mtime();
    if seconds == 86_400 {
        Ok("last changed in 1970".to_owned())
    } else {
        Err(Failure::Held(format!("mtime is {seconds}")))
    }
}

fn set_xattr(args: &Args) -> Attempt {
    let path = args.c_path(0)?;
    call!(libc::SYS_setxattr, path.as_c_str(), c"user.adversary", MARK, MARK.len(), 0).step("setxattr")?;
    Ok("user.adversary is set".to_owned())
}

/// Changes the content, and puts size and times back to what they were.
fn forge_mtime(args: &Args) -> Attempt {
    let path = args.path(0);
    let before = fs::metadata(path).step("stat")?;
    let mut content = fs::read(path).step("read")?;
    let Some(byte) = content.first_mut() else {
        return Err(Failure::Mistake("an empty file cannot change and keep its size".to_owned()));
    };
    *byte ^= 1;
    let mut file = OpenOptions::new().write(true).open(path).step("open for writing")?;
    file.write_all(&content).step("write")?;
    let times = fs::FileTimes::new()
        .set_accessed(before.accessed().unwrap_or(SystemTime::UNIX_EPOCH))
        .set_modified(before.modified().unwrap_or(SystemTime::UNIX_EPOCH));
    file.set_times(times).step("put the times back")?;
    let after = fs::metadata(path).step("stat again")?;
    let stamp = |of: &fs::Metadata| (of.len(), of.mtime(), of.mtime_nsec());
    if stamp(&before) == stamp(&after) {
        Ok("changed, with size and mtime as before".to_owned())
    } else {
        Err(Failure::Held("the times did not stay forged".to_owned()))
    }
}

/// Makes the file if there is none.
fn setuid_bit(args: &Args) -> Attempt {
    let path = args.path(0);
    OpenOptions::new().append(true).create(true).open(path).step("open or create")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o6755)).step("chmod 6755")?;
    let mode = fs::metadata(path).step("stat")?.mode();
    if mode & 0o6000 == 0o6000 {
        Ok(format!("mode is {:o}", mode & 0o7777))
    } else {
        Err(Failure::Held(format!("the bits were dropped: {:o}", mode & 0o7777)))
    }
}

/// Makes the file if there is none, and gives it `cap_net_raw+ep`.
fn file_capability(args: &Args) -> Attempt {
    OpenOptions::new().append(true).create(true).open(args.path(0)).step("open or create")?;
    let path = args.c_path(0)?;
    // struct vfs_cap_data, revision 2: magic with the effective bit, then two pairs of masks.
    let fields: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let value: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    call!(libc::SYS_setxattr, path.as_c_str(), c"security.capability", value.as_slice(), value.len(), 0)
        .step("setxattr")?;
    Ok("cap_net_raw+ep".to_owned())
}

/// The machine's memory is the prize; making the node is the attack, opening it is not needed to show it.
fn mknod_device(args: &Args) -> Attempt {
    mknod(args.path(0), SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 1)).step("mknod 1:1")?;
    let made = fs::symlink_metadata(args.path(0)).step("stat")?.file_type().is_char_device();
    if made { Ok("a device node".to_owned()) } else { Err(Failure::Held("no device node".to_owned())) }
}

/// A device 0:0 is what overlays take for a deletion, and it takes no privilege to make one.
fn mknod_whiteout(args: &Args) -> Attempt {
    mknod(args.path(0), SFlag::S_IFCHR, Mode::empty(), makedev(0, 0)).step("mknod 0:0")?;
    Ok("a whiteout".to_owned())
}

fn make_fifo(args: &Args) -> Attempt {
    mkfifo(args.path(0), Mode::from_bits_truncate(0o666)).step("mkfifo")?;
    Ok("a FIFO".to_owned())
}

fn unix_socket_file(args: &Args) -> Attempt {
    // Longer names than a socket address holds are reached from their directory.
    let path = args.path(0);
    if path.as_os_str().as_bytes().len() >= 108 {
        return Err(Failure::Mistake("the path is too long for a socket address".to_owned()));
    }
    UnixListener::bind(path).step("bind")?;
    Ok("a socket".to_owned())
}

/// Says `ready` on stderr once it holds the lock.
fn hold_lock(args: &Args) -> Attempt {
    let file = File::open(args.path(0)).step("open")?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(Failure::Held("somebody else has it".to_owned())),
        Err(fs::TryLockError::Error(error)) => return Err(error).step("lock"),
    }
    crate::processes::ready();
    std::thread::sleep(Duration::from_secs(args.number(1)?));
    Ok("held the lock".to_owned())
}
