//! The repository an agent has to itself.
//!
//! The real `.git` is a lower layer like everything else: commits, branches and settings an agent makes stay
//! in its upper layer and are thrown away. Only the configuration is replaced, because the real one may hold
//! credentials (a token in a remote's address, an authorization header) and settings that make no sense
//! inside.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::path::RelPath;
use crate::workspace::Added;
use crate::workspace::state::IN_REPOSITORY as STATE;

/// What is put over a repository's common directory. `inside` is where that lies in its overlay.
pub fn additions(common: &Path, inside: &RelPath) -> Vec<Added> {
    let mut added = replacement(common, inside);
    // Our own state, with the runs of others in it.
    if common.join(STATE).symlink_metadata().is_ok() {
        added.push(Added::Absence(inside.join(STATE.as_bytes())));
    }
    // The repositories of submodules, and of submodules in them; what a repository itself is made of holds none.
    const OWN: &[&[u8]] = &[b"objects", b"refs", b"logs", b"hooks", b"info"];
    let mut waiting = vec![(common.join("modules"), inside.join(b"modules"))];
    while let Some((folder, inside)) = waiting.pop() {
        let repository = folder.join("HEAD").symlink_metadata().is_ok();
        added.extend(replacement(&folder, &inside));
        let below = folders(&folder, &inside);
        waiting.extend(below.into_iter().filter(|(_, inside)| !repository || !OWN.contains(&inside.name())));
    }
    for (path, inside) in folders(&common.join("worktrees"), &inside.join(b"worktrees")) {
        added.extend(absence(&path, &inside));
    }
    added
}

/// The configuration of one repository, without what may not be shown.
fn replacement(folder: &Path, inside: &RelPath) -> Vec<Added> {
    let mut added = absence(folder, inside);
    if let Ok(real) = fs::read(folder.join("config")) {
        let config = sanitize(&String::from_utf8_lossy(&real));
        added.push(Added::File(inside.join(b"config"), config.into_bytes()));
    }
    added
}

/// Settings of a single worktree would bring everything back.
fn absence(folder: &Path, inside: &RelPath) -> Vec<Added> {
    let there = folder.join("config.worktree").symlink_metadata().is_ok();
    there.then(|| Added::Absence(inside.join(b"config.worktree"))).into_iter().collect()
}

fn folders(folder: &Path, inside: &RelPath) -> Vec<(PathBuf, RelPath)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| (entry.path(), inside.join(entry.file_name().as_bytes())))
        .collect()
}

/// Settings that describe the repository or its owner, and can neither run a program nor carry a secret.
const KEPT: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "worktree",
            "symlinks",
            "ignorecase",
            "precomposeunicode",
            "autocrlf",
            "eol",
            "safecrlf",
            "longpaths",
            "sparsecheckout",
            "sparsecheckoutcone",
            "abbrev",
            "logallrefupdates",
        ],
    ),
    ("extensions", &["objectformat", "refstorage", "worktreeconfig", "compatobjectformat"]),
    ("user", &["name", "email"]),
    ("branch", &["remote", "merge", "rebase"]),
    ("remote", &["fetch"]),
    ("init", &["defaultbranch"]),
    ("pull", &["rebase", "ff"]),
    ("index", &["version", "skiphash", "sparse"]),
    ("feature", &["manyfiles"]),
];

/// What the agent's git needs: stat data that survives another user and another device, and no work behind
/// its back.
const ADDED: &str =
    "[core]\n\tcheckStat = minimal\n\tfsmonitor = false\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";

/// The settings of a configuration that may be shown, and our own.
pub(super) fn sanitize(real: &str) -> String {
    let mut out = String::new();
    let mut section: Option<(String, &[&str])> = None;
    let mut continues = false;
    for line in real.lines() {
        let was_continuation = std::mem::replace(&mut continues, line.ends_with('\\'));
        let text = line.trim();
        if was_continuation || text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = text.strip_prefix('[') {
            let name: String =
                header.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
            let kept = KEPT.iter().find(|(kept, _)| *kept == name).map(|(_, keys)| *keys);
            // A header with a setting behind it on the same line is rare enough to be dropped.
            section = kept.filter(|_| text.ends_with(']')).map(|keys| (text.to_owned(), keys));
            if let Some((header, _)) = &section {
                out.push_str(header);
                out.push('\n');
            }
            continue;
        }
        let Some((_, keys)) = &section else { continue };
        let key = text.split('=').next().unwrap_or_default().trim().to_lowercase();
        if keys.contains(&key.as_str()) && !continues {
            out.push('\t');
            out.push_str(text);
            out.push('\n');
        }
    }
    out.push_str(ADDED);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_programs_do_not_come_along() {
        let real = "[core]\n\tbare = false\n\thooksPath = /tmp/h\n\tsshCommand = evil\n\tfsmonitor = /evil\n\
                    [http \"https://x\"]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n\
                    [remote \"origin\"]\n\turl = https://me:token@host/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                    [include]\n\tpath = /evil\n[credential]\n\thelper = store\n[extensions]\n\tobjectFormat = sha256\n\
                    [user]\n\tname = A \\\n  continued = evil\n\temail = a@b\n";
        let shown = sanitize(real);
        for secret in ["token", "c2VjcmV0", "evil", "hooksPath", "/tmp/h", "store"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        for kept in [
            "bare = false",
            "objectFormat = sha256",
            "refs/remotes/origin",
            "email = a@b",
            "checkStat = minimal",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
    }
}
