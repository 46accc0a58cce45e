//! Too much, too deep, too strange: what a harvest has to survive.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::files::MARK;
use crate::sys::{call, call_fd};

const GROUP: &str = "files";
const VOLUME: &str = "sparse and huge files, a million tiny ones, filling TMPDIR and /dev/shm";
const NAMES: &str =
    "names with newlines, control characters, non-UTF-8, differing only by case or Unicode form";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "sparse", &["path", "bytes"], VOLUME, sparse),
    attack(GROUP, "fill", &["dir", "bytes"], VOLUME, fill),
    attack(GROUP, "tiny-files", &["dir", "count"], VOLUME, tiny_files),
    attack(GROUP, "deep-nest", &["dir", "depth"], VOLUME, deep_nest),
    attack(GROUP, "narrow-nest", &["dir", "depth"], VOLUME, narrow_nest),
    attack(GROUP, "long-paths", &["dir", "count"], VOLUME, long_paths),
    attack(GROUP, "odd-names", &["dir"], NAMES, odd_names),
    attack(GROUP, "case-names", &["dir"], NAMES, case_names),
    attack(GROUP, "lock-away", &["dir"], "chmod 000 on a tree the harvest has to read", lock_away),
];

fn sparse(args: &Args) -> Attempt {
    let size: u64 = args.number(1)?;
    let file = File::create(args.path(0)).step("create")?;
    file.set_len(size).step("ftruncate")?;
    Ok(format!("{size} bytes, none of them stored"))
}

/// Succeeds when it stored `bytes`; what was stored stays.
fn fill(args: &Args) -> Attempt {
    let limit: u64 = args.number(1)?;
    let mut file = File::create(args.path(0).join("fill")).step("create")?;
    let chunk = vec![0xa5; 64 << 10];
    let mut written = 0_u64;
    while written < limit {
        let part = chunk.len().min(usize::try_from(limit - written).unwrap_or(usize::MAX));
        file.write_all(&chunk[..part]).step(format!("write after {written} bytes"))?;
        written += part as u64;
    }
    file.sync_all().step("sync")?;
    Ok(format!("stored {written} bytes"))
}

fn tiny_files(args: &Args) -> Attempt {
    let count: u64 = args.number(1)?;
    for number in 0..count {
        // A directory of its own for every thousand, as a package manager would leave them.
        let directory = args.path(0).join(format!("{:04}", number / 1000));
        if number % 1000 == 0 {
            fs::create_dir_all(&directory).step(format!("mkdir after {number} files"))?;
        }
        fs::write(directory.join(format!("{number}")), b"x").step(format!("create after {number} files"))?;
    }
    Ok(format!("{count} files"))
}

/// Deeper than a path can name, with a file at the bottom.
fn deep_nest(args: &Args) -> Attempt {
    let here = nest(args, args.number(1)?, c"a-directory-with-a-name-of-some-length")?;
    create_at(&here, c"bottom")?;
    Ok(format!("{} levels", args.number::<u32>(1)?))
}

/// As many folders in folders as a path can name, each with the shortest name there is.
fn narrow_nest(args: &Args) -> Attempt {
    let here = nest(args, args.number(1)?, c"d")?;
    create_at(&here, c"bottom")?;
    Ok(format!("{} levels", args.number::<u32>(1)?))
}

/// Many files, each with a path about as long as a path can be.
fn long_paths(args: &Args) -> Attempt {
    let count: u64 = args.number(1)?;
    let name = CString::new("n".repeat(200)).unwrap_or_default();
    let here = nest(args, 17, &name)?;
    for number in 0..count {
        let name = CString::new(format!("{number:0>200}")).unwrap_or_default();
        create_at(&here, &name)?;
    }
    Ok(format!("{count} files"))
}

fn create_at(here: &OwnedFd, name: &CStr) -> Result<(), Failure> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC;
    let made = call_fd(libc::SYS_openat, &mut [here.into(), name.into(), flags.into(), 0o644.into()])
        .step("create the file at the bottom")?;
    File::from(made).write_all(MARK).step("write")
}

fn nest(args: &Args, depth: u32, name: &CStr) -> Result<OwnedFd, Failure> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let mut here = OwnedFd::from(File::open(args.path(0)).step("open the directory")?);
    for level in 0..depth {
        call!(libc::SYS_mkdirat, &here, name, 0o755).step(format!("mkdir at depth {level}"))?;
        here = call_fd(libc::SYS_openat, &mut [(&here).into(), name.into(), flags.into()])
            .step(format!("open at depth {level}"))?;
    }
    Ok(here)
}

fn create_all(directory: &Path, names: &[&[u8]]) -> Attempt {
    for name in names {
        let path = directory.join(OsStr::from_bytes(name));
        fs::write(path, MARK).step(format!("create {}", name.escape_ascii()))?;
    }
    let made = fs::read_dir(directory).step("list")?.count();
    if made < names.len() {
        return Err(Failure::Held(format!("of {} names {made} are there", names.len())));
    }
    Ok(format!("{} names", names.len()))
}

fn odd_names(args: &Args) -> Attempt {
    let longest = [b'n'; 255];
    create_all(
        args.path(0),
        &[
            b"new\nline",
            b"landed: 1 file\n\ttask done",
            b"carriage\rreturn",
            b"tab\tbed",
            b"escape\x1b[2J\x1b[1;1H",
            b"bell\x07",
            b"delete\x7f",
            b"not-utf8-\xff\xfe",
            b"overlong-\xc0\xaf",
            b"surrogate-\xed\xa0\x80",
            b"right-to-left-\xe2\x80\xaetxt.exe",
            b"zero\xe2\x80\x8bwidth",
            b" leading space",
            b"trailing space ",
            b"trailing dot.",
            b"...",
            b"-rf",
            b"--upload-pack=true",
            b"*",
            b"?[a]{b}",
            b"~",
            b"$(true)`true`",
            b"quote'\"\\",
            b"C:\\windows",
            b":(top)magic",
            b"!negated",
            b"#comment",
            &longest,
        ],
    )
}

/// Three pairs that are one name to filesystems that fold case or normalise.
fn case_names(args: &Args) -> Attempt {
    let names: [&str; 6] = ["Makefile", "makefile", "caf\u{e9}", "cafe\u{301}", "stra\u{df}e", "strasse"];
    create_all(args.path(0), &names.map(str::as_bytes))
}

/// Nobody but root can enter, list or read what is left.
fn lock_away(args: &Args) -> Attempt {
    let mut locked = 0;
    lock_tree(args.path(0), &mut locked)?;
    Ok(format!("{locked} files and directories without a permission bit"))
}

fn lock_tree(path: &Path, locked: &mut u32) -> Result<(), Failure> {
    let kind = fs::symlink_metadata(path).step("stat")?.file_type();
    if kind.is_symlink() {
        return Ok(());
    }
    if kind.is_dir() {
        for entry in fs::read_dir(path).step("list")? {
            lock_tree(&entry.step("list")?.path(), locked)?;
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o000)).step("chmod 000")?;
    *locked += 1;
    Ok(())
}
