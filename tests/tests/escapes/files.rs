//! Changing what lies outside the workspace, by its name.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::as_both;
use crate::ground::{Actor, Ground};
use crate::run::Attack;

/// Without these nothing of the host is read-only or out of sight.
pub(crate) const HOST: &[&str] = &["read-only-host", "private-home", "landlock"];

/// Makes the arguments of an attack.
pub(crate) type Arguments = fn(&Ground) -> Vec<OsString>;

/// Shows an attack that changes something outside, then that it is denied: out of sight, as by default; in
/// sight, as with `--read`; and by the mounts alone.
pub(crate) fn held(actor: Actor, attack: &str, arguments: Arguments) {
    shown_without(actor, HOST, attack, arguments);
    denied(actor, attack, arguments);
}

/// As [`held`], for what takes capabilities and with them root.
fn held_from_root(actor: Actor, attack: &str, arguments: Arguments) {
    if actor.is_root() {
        shown_without(actor, &[HOST, &["capabilities", "seccomp"]].concat(), attack, arguments);
    }
    denied(actor, attack, arguments);
}

pub(crate) fn shown_without(actor: Actor, controls: &[&'static str], attack: &str, arguments: Arguments) {
    // No control brings the host's own files into a container: what `--read` shows is read-only in any case.
    if actor.is_bare() || actor.is_contained() {
        return;
    }
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    ground.sandbox().without(&actor.off(controls)).attack(attack, arguments(&ground)).assert_succeeded();
    before.assert_changed();
}

pub(crate) fn denied(actor: Actor, attack: &str, arguments: Arguments) {
    all_denied(actor, &[(attack, arguments)]);
}

/// The same for several on one ground.
pub(crate) fn all_denied(actor: Actor, attacks: &[(&str, Arguments)]) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let all: Vec<Attack<'_>> =
        attacks.iter().map(|(attack, arguments)| (*attack, arguments(&ground))).collect();
    let run = || ground.sandbox().write("src/**");
    run().deny_all(&all);
    let in_sight = || run().read(ground.outside_folder());
    in_sight().deny_all(&all);
    in_sight().without(&["landlock", "seccomp"]).deny_all(&all);
    before.assert_unchanged();
    ground.assert_no_run_is_left();
}

fn file(ground: &Ground) -> Vec<OsString> {
    vec![ground.outside("file")]
}

fn new(ground: &Ground) -> Vec<OsString> {
    vec![ground.outside("new")]
}

fn a_file_outside_cannot_be_written(actor: Actor) {
    held(actor, "write", file);
}

fn a_file_outside_cannot_be_created(actor: Actor) {
    held(actor, "create", new);
}

fn a_folder_outside_cannot_be_made(actor: Actor) {
    held(actor, "mkdir", new);
}

fn a_file_outside_cannot_be_deleted(actor: Actor) {
    held(actor, "delete", file);
}

fn a_folder_outside_cannot_be_deleted(actor: Actor) {
    held(actor, "delete", |ground| vec![ground.outside("dir")]);
}

fn a_file_outside_cannot_be_truncated(actor: Actor) {
    held(actor, "truncate", file);
}

fn the_mode_of_a_file_outside_cannot_be_changed(actor: Actor) {
    held(actor, "chmod", file);
}

fn the_owner_of_a_file_outside_cannot_be_changed(actor: Actor) {
    held_from_root(actor, "chown", |ground| vec![ground.outside("file"), "12345".into()]);
}

/// Landlock has no right for these three; the mounts have to do.
fn the_times_of_a_file_outside_cannot_be_changed(actor: Actor) {
    held(actor, "utime", file);
}

fn attributes_of_a_file_outside_cannot_be_set(actor: Actor) {
    held(actor, "setxattr", file);
}

fn a_change_outside_with_forged_times_is_denied_like_any_other(actor: Actor) {
    held(actor, "forge-mtime", file);
}

fn a_setuid_bit_outside_cannot_be_set(actor: Actor) {
    held(actor, "setuid-bit", file);
}

fn file_capabilities_outside_cannot_be_set(actor: Actor) {
    held_from_root(actor, "file-capability", file);
}

fn a_device_outside_cannot_be_made(actor: Actor) {
    held_from_root(actor, "mknod-device", new);
}

fn a_whiteout_outside_cannot_be_made(actor: Actor) {
    held(actor, "mknod-whiteout", new);
}

fn a_pipe_outside_cannot_be_made(actor: Actor) {
    held(actor, "mkfifo", new);
}

fn a_socket_outside_cannot_be_made(actor: Actor) {
    held(actor, "unix-socket-file", new);
}

fn a_file_outside_cannot_be_renamed(actor: Actor) {
    held(actor, "rename", |ground| vec![ground.outside("file"), ground.outside("new")]);
}

/// The overlay is a filesystem of its own, so that even without a control a rename can't cross its boundary:
/// that the call works at all is shown by [`a_file_outside_cannot_be_renamed`].
fn a_rename_across_the_boundary_is_denied_both_ways(actor: Actor) {
    denied(actor, "rename", |ground| vec![ground.outside("file"), ground.inside("src/new")]);
    denied(actor, "rename", |ground| vec![ground.inside("src/main.rs"), ground.outside("new")]);
}

fn two_files_outside_cannot_be_exchanged(actor: Actor) {
    held(actor, "exchange", |ground| vec![ground.outside("file"), ground.outside("other")]);
}

fn an_exchange_across_the_boundary_is_denied(actor: Actor) {
    denied(actor, "exchange", |ground| vec![ground.outside("file"), ground.inside("src/main.rs")]);
}

fn a_file_outside_cannot_be_linked(actor: Actor) {
    held(actor, "hardlink-in", |ground| vec![ground.outside("file"), ground.outside("new")]);
}

fn a_file_outside_cannot_be_linked_in_and_written_through(actor: Actor) {
    held(actor, "append-through-hardlink", |ground| vec![ground.outside("file"), ground.outside("new")]);
    denied(actor, "hardlink-in", |ground| vec![ground.outside("file"), ground.inside("src/new")]);
    denied(actor, "append-through-hardlink", |ground| vec![ground.outside("file"), ground.inside("src/new")]);
}

fn a_parent_outside_cannot_be_renamed_and_rebuilt(actor: Actor) {
    held(actor, "rename-parent-and-rebuild", |ground| vec![ground.outside("dir"), "deeper/protected".into()]);
}

/// Runs who holds a lock on `path` until it has it, and says whether somebody else can have it meanwhile.
fn is_free_while_held(mut holder: Command, path: &Path) -> bool {
    holder.arg("hold-lock").arg(path).arg("60").stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = holder.spawn().expect("it starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
    let ready = stderr.by_ref().lines().map_while(Result::ok).any(|line| line == "ready");
    let free = File::open(path).expect("opened").try_lock().is_ok();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("sent");
    child.wait().expect("ended");
    assert!(ready, "the lock was not taken");
    free
}

/// As seen from the host, a lock on a file of the workspace is a lock on nothing.
fn a_lock_inside_blocks_nobody_outside(actor: Actor) {
    let ground = Ground::new(actor);
    for name in ["repo/src/main.rs", "repo/.git/HEAD"] {
        let path = ground.home().join(name);
        let adversary = ground.bin().join("adversary");
        assert!(!is_free_while_held(ground.command(&adversary), &path));
        let sandbox = ground.sandbox().write("src/**");
        assert!(is_free_while_held(sandbox.direct(&adversary), &path), "{name} is locked outside");
    }
}

/// A build outside waits for Cargo's lock, whoever has it.
fn a_lock_on_a_toolchain_blocks_nobody_outside(actor: Actor) {
    let ground = Ground::new(actor);
    let path = ground.put(".cargo/.package-cache", "x");
    let adversary = ground.bin().join("adversary");
    let open = ground.sandbox().without(&["toolchain-locks"]);
    assert!(!is_free_while_held(open.direct(&adversary), &path), "it can't be shown");
    assert!(is_free_while_held(ground.sandbox().direct(&adversary), &path), "it is locked outside");
}

as_both! {
    a_lock_on_a_toolchain_blocks_nobody_outside,
    a_file_outside_cannot_be_written,
    a_file_outside_cannot_be_created,
    a_folder_outside_cannot_be_made,
    a_file_outside_cannot_be_deleted,
    a_folder_outside_cannot_be_deleted,
    a_file_outside_cannot_be_truncated,
    the_mode_of_a_file_outside_cannot_be_changed,
    the_owner_of_a_file_outside_cannot_be_changed,
    the_times_of_a_file_outside_cannot_be_changed,
    attributes_of_a_file_outside_cannot_be_set,
    a_change_outside_with_forged_times_is_denied_like_any_other,
    a_setuid_bit_outside_cannot_be_set,
    file_capabilities_outside_cannot_be_set,
    a_device_outside_cannot_be_made,
    a_whiteout_outside_cannot_be_made,
    a_pipe_outside_cannot_be_made,
    a_socket_outside_cannot_be_made,
    a_file_outside_cannot_be_renamed,
    a_rename_across_the_boundary_is_denied_both_ways,
    two_files_outside_cannot_be_exchanged,
    an_exchange_across_the_boundary_is_denied,
    a_file_outside_cannot_be_linked,
    a_file_outside_cannot_be_linked_in_and_written_through,
    a_parent_outside_cannot_be_renamed_and_rebuilt,
    a_lock_inside_blocks_nobody_outside,
}
