//! Root becomes the owner of the work tree it was called in, before it opens anything there.
//!
//! A work tree's files, its `.git` included, are its owner's to change at any moment. Root that followed them would do
//! the owner's bidding with root's rights. So root takes the owner's rights, for good, in a program started anew. The
//! owner is read from the work tree itself, by looking at names alone: what `.git` says has no part in it.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_sandbox::account::{self, Account};
use agency_sandbox::workspace::state::{self, StateHome};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::app::board::has_board;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder::state_error;

/// Variables of root's that the owner gets: how to talk, where programs and the network are, and what is said to us. The
/// owner can read the environment of what runs with the owner's rights, so anything else is only passed by its name in
/// [`PASSED_BY_NAME`].
const PASSED: &[&str] = &[
    "PATH",
    "TERM",
    "COLORTERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "NO_COLOR",
    "DOCKER_HOST",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
];
const PASSED_FAMILIES: &[&str] = &["LC_", "AGENCY_", "OTEL_"];
/// Names of more variables, with commas between them.
const PASSED_BY_NAME: &str = "AGENCY_PASS_ENV";

/// Returns only in a process that has the rights of the work tree's owner and no others.
pub(crate) fn become_owner() -> Result<(), CommandError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let current = std::env::current_dir().map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    let folder = work_tree(&current);
    let meta = folder.symlink_metadata().map_err(|error| CommandError::internal(&error))?;
    match meta.uid() {
        0 => Ok(()),
        uid => start_anew(&folder, uid, meta.gid()),
    }
}

/// The work tree around a folder, by names alone; where there is none, the folder a board is in, or the folder itself.
fn work_tree(current: &Path) -> PathBuf {
    let exists = |path: PathBuf| path.symlink_metadata().is_ok();
    let is_root = |folder: &&Path| {
        let entry = folder.join(".git");
        entry.symlink_metadata().is_ok_and(|meta| meta.is_file() || exists(entry.join("HEAD")))
    };
    let found =
        current.ancestors().find(is_root).or_else(|| current.ancestors().find(|folder| has_board(folder)));
    found.unwrap_or(current).to_owned()
}

/// This very command, as another user.
fn start_anew(folder: &Path, uid: u32, folder_gid: u32) -> Result<(), CommandError> {
    let account = Account::of(uid);
    let gid = account.as_ref().map_or(folder_gid, |account| account.gid);
    let home = account.as_ref().map(|account| account.home.clone()).filter(|home| home.is_dir());
    if home.is_none() && std::env::var_os(state::VARIABLE).is_none() {
        StateHome::make_for_homeless(uid, gid).map_err(|error| state_error(&error))?;
    }
    let program = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    let name = account::name_of(uid);
    let mut command = Command::new(&program);
    command
        .args(std::env::args_os().skip(1))
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| passes(name)));
    command.env("HOME", home.as_deref().unwrap_or(Path::new("/nonexistent")));
    command.env("USER", &name).env("LOGNAME", &name);
    let groups = account.map(|account| account.groups()).unwrap_or_default();
    let error = take_rights(uid, gid, &groups).map_or_else(std::io::Error::from, |()| command.exec());
    let message =
        format!("{} belongs to {name}, who can't start {}: {error}", folder.display(), program.display());
    Err(CommandError::new_message(ErrorKind::Usage, message)
        .with_hint(format!("run it as {name}, with an agency they can start")))
}

fn passes(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let named = std::env::var(PASSED_BY_NAME).unwrap_or_default();
    PASSED.contains(&name)
        || PASSED_FAMILIES.iter().any(|family| name.starts_with(family))
        || named.split(',').any(|passed| passed.trim() == name)
}

/// Takes a user's rights for good. There is one thread here yet.
fn take_rights(uid: u32, gid: u32, groups: &[u32]) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let groups: Vec<Gid> =
        std::iter::once(gid).chain(groups.iter().map(|group| Gid::from_raw(*group))).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}
