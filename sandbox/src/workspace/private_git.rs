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
use crate::untrusted::{self, UntrustedError};
use crate::workspace::LayerAddition;
use crate::workspace::git_config;
use crate::workspace::state::LEGACY;

/// What is put over a repository's common directory. `inside` is where that lies in its overlay.
pub fn additions(common: &Path, inside: &RelPath) -> Result<Vec<LayerAddition>, UntrustedError> {
    let mut added = replacement(common, Path::new(""), inside)?;
    // The state of an older version, with the runs of others in it.
    if untrusted::exists(common, LEGACY) {
        added.push(LayerAddition::Absence(inside.join(LEGACY.as_bytes())));
    }
    // The repositories of submodules, and of submodules in them; what a repository itself is made of holds none.
    const OWN: &[&[u8]] = &[b"objects", b"refs", b"logs", b"hooks", b"info"];
    let mut waiting = folder(common, "modules", inside);
    while let Some((path, inside)) = waiting.pop() {
        let repository = untrusted::exists(common, path.join("HEAD"));
        added.extend(replacement(common, &path, &inside)?);
        let below = folders(common, &path, &inside);
        waiting.extend(below.into_iter().filter(|(_, inside)| !repository || !OWN.contains(&inside.name())));
    }
    for (worktrees, inside) in folder(common, "worktrees", inside) {
        for (path, inside) in folders(common, &worktrees, &inside) {
            added.extend(absence(common, &path, &inside));
        }
    }
    Ok(added)
}

/// The configuration of one repository, without what may not be shown. `path` is below the common directory.
fn replacement(common: &Path, path: &Path, inside: &RelPath) -> Result<Vec<LayerAddition>, UntrustedError> {
    let mut added: Vec<LayerAddition> = absence(common, path, inside).into_iter().collect();
    if let Some(real) = untrusted::read_text(common, path.join("config"), git_config::LARGEST)? {
        added.push(LayerAddition::File(inside.join(b"config"), sanitize(&real).into_bytes()));
    }
    Ok(added)
}

/// Settings of a single worktree would bring everything back.
fn absence(common: &Path, path: &Path, inside: &RelPath) -> Option<LayerAddition> {
    let there = untrusted::exists(common, path.join("config.worktree"));
    there.then(|| LayerAddition::Absence(inside.join(b"config.worktree")))
}

/// A folder of the common directory, if it is a real one: what is put over a link lands where the link leads.
fn folder(common: &Path, name: &str, inside: &RelPath) -> Vec<(PathBuf, RelPath)> {
    let is_folder = common.join(name).symlink_metadata().is_ok_and(|meta| meta.is_dir());
    is_folder.then(|| (PathBuf::from(name), inside.join(name.as_bytes()))).into_iter().collect()
}

fn folders(common: &Path, path: &Path, inside: &RelPath) -> Vec<(PathBuf, RelPath)> {
    let entries = fs::read_dir(common.join(path)).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| (path.join(entry.file_name()), inside.join(entry.file_name().as_bytes())))
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
            let plain = text.ends_with(']') && is_name(header);
            section = kept.filter(|_| plain).map(|keys| (text.to_owned(), keys));
            if let Some((header, _)) = &section {
                out.push_str(header);
                out.push('\n');
            }
            continue;
        }
        let Some((_, keys)) = &section else { continue };
        let key = text.split('=').next().unwrap_or_default().trim().to_lowercase();
        // `git push -u https://user:token@host/…` writes the address where a remote's name is expected.
        let shown = key != "remote" || is_name(text);
        if keys.contains(&key.as_str()) && shown && !continues {
            out.push('\t');
            out.push_str(text);
            out.push('\n');
        }
    }
    out.push_str(ADDED);
    out
}

/// Whether a text holds no address, and so no credential in one.
fn is_name(text: &str) -> bool {
    !text.contains([':', '@', '\\'])
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
                    [user]\n\tname = A \\\n  continued = evil\n\temail = a@b\n\
                    [branch \"main\"]\n\tremote = https://me:hidden@host/x\n\tmerge = refs/heads/main\n\
                    [branch \"topic\"]\n\tremote = origin\n\
                    [remote \"https://me:hidden@host/y\"]\n\tfetch = refs/heads/kept-from\n";
        let shown = sanitize(real);
        for secret in ["token", "c2VjcmV0", "evil", "hooksPath", "/tmp/h", "store", "hidden", "kept-from"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        for kept in [
            "bare = false",
            "objectFormat = sha256",
            "refs/remotes/origin",
            "email = a@b",
            "merge = refs/heads/main",
            "remote = origin",
            "checkStat = minimal",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
    }
}
