//! Whose work it is.
//!
//! A repository's files, and ours in it, are its owner's to change. Root that followed them would do the owner's
//! bidding with root's rights. So root that is to work on somebody's repository becomes that somebody, for good,
//! before it looks at anything in there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use agency_sandbox::workspace::folder::Folder;

use crate::board::Here;
use crate::message::{Failure, INTERNAL, USAGE};

/// The place a command was given in, as its owner sees it.
pub(crate) fn here() -> Result<Here, Failure> {
    let here = Here::find()?;
    become_owner(&here.folder)?;
    Ok(here)
}

/// Returns only in a process that has the owner's rights and no others.
fn become_owner(folder: &Folder) -> Result<(), Failure> {
    let Some(repository) = &folder.repository else { return Ok(()) };
    let owner = fs::metadata(&repository.common).map_err(|error| Failure::new(INTERNAL, &error))?;
    let (uid, gid) = (owner.uid(), owner.gid());
    if uid == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let person = person(uid);
    let program = std::env::current_exe().map_err(|error| Failure::new(INTERNAL, &error))?;
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1)).uid(uid).gid(gid);
    // What is root's own is not theirs to be found by.
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "SUDO_COMMAND"] {
        command.env_remove(name);
    }
    command.env("HOME", &person.home).env("USER", &person.name).env("LOGNAME", &person.name);
    let error = command.exec();
    Err(Failure::new_message(
        USAGE,
        format!("this repository belongs to {}, who can't start {}: {error}", person.name, program.display()),
    )
    .with_hint(format!("run it as {}, with an agency that they can start", person.name)))
}

struct Person {
    name: String,
    home: String,
}

/// From the file of accounts: a program that is linked statically can't ask elsewhere.
fn person(uid: u32) -> Person {
    let accounts = fs::read_to_string(Path::new("/etc/passwd")).unwrap_or_default();
    let found = accounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, _] = fields[..] else { return None };
        (id.parse() == Ok(uid)).then(|| Person { name: name.to_owned(), home: home.to_owned() })
    });
    found.unwrap_or_else(|| Person { name: format!("user {uid}"), home: "/nonexistent".to_owned() })
}
