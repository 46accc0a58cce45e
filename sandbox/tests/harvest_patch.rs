//! A patch of the harvested changes gives, with plain `git apply`, what the agent made.

mod harvest_support;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_sandbox::git::{GitError, IsolatedGit};
use agency_sandbox::harvest::patch;
use harvest_support::*;

/// Every git there is: the one in PATH and the system's, which may be older.
fn gits() -> Vec<PathBuf> {
    let mut gits = vec![PathBuf::from("git")];
    gits.extend(Some(PathBuf::from("/usr/bin/git")).filter(|path| path.exists()));
    gits
}

fn patch_of(t: &Trees, program: &Path) -> Vec<u8> {
    let git = IsolatedGit::create(program, &t.temp.path().join("own.git")).expect("a repository");
    let harvest = t.harvest();
    let mut text = Vec::new();
    // Twice: what the first left in the repository must not matter to the second.
    for _ in 0..2 {
        text.clear();
        let upper = directory(&t.upper);
        patch::write(&git, &harvest.changes, upper.as_fd(), &base(&[&t.base]), &mut text).expect("a patch");
    }
    text
}

fn apply(program: &Path, into: &Path, text: &[u8]) {
    let file = into.parent().expect("a parent").join("patch");
    fs::write(&file, text).expect("written");
    let output = Command::new(program).current_dir(into).args(["apply", "--binary"]).arg(&file).output();
    let output = output.expect("git runs");
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), text.escape_ascii());
}

#[test]
fn modes_deletions_binaries_links_odd_names_and_renames_survive() {
    if skipped_without_root() {
        return;
    }
    for program in gits() {
        let t = trees();
        let long: String = (0..200).map(|line| format!("line {line}\n")).collect();
        put(&t.base, "edit", "a\nb\nc\n");
        put(&t.base, "no-newline", "a");
        put(&t.base, "mode", "x\n");
        put(&t.base, "gone", "x\n");
        put(&t.base, "empty-gone", "");
        put(&t.base, "binary", [0, 1, 2, 255]);
        put(&t.base, "move/from", &long);
        put(&t.base, "dir/to-file", "x\n");
        put(&t.base, "file-to-dir", "x\n");
        put(&t.base, "to-link", "x\n");
        link(&t.base, "to-file", "edit");
        link(&t.base, "link", "edit");
        put(&t.upper, "edit", "a\nB\nc\n");
        put(&t.upper, "no-newline", "b");
        chmod(put(&t.upper, "mode", "x\n"), 0o755);
        whiteout(&t.upper, "gone");
        whiteout(&t.upper, "empty-gone");
        put(&t.upper, "binary", [0, 255, 13, 10, 0]);
        whiteout(&t.upper, "move/from");
        put(&t.upper, "moved/to", format!("{long}one more\n"));
        put(&t.upper, "dir", "a file now\n");
        put(&t.upper, "file-to-dir/inside", "x\n");
        link(&t.upper, "to-link", "edit");
        put(&t.upper, "to-file", "edit\n");
        link(&t.upper, "link", "mode");
        put(&t.upper, "empty", "");
        put(&t.upper, "crlf", "a\r\nb\r\n");
        for name in
            [&b"\xff\xfe"[..], b"new\nline\t", b"sp ace", b"quote\"back\\slash", "ü".as_bytes(), b"-dash"]
        {
            put(&t.upper, OsStr::from_bytes(name), name);
        }
        let asked = t.harvest();
        assert_eq!(asked.violations, []);
        let text = patch_of(&t, &program);
        let shown = text.escape_ascii().to_string();
        assert!(shown.contains("rename from move/from"), "{shown}");
        assert!(shown.contains("GIT binary patch"), "{shown}");

        let target = t.temp.path().join("target");
        copy_tree(&t.base, &target);
        apply(&program, &target, &text);
        let mut expected = picture(&t.base);
        for path in ["gone", "empty-gone", "move/from", "dir/to-file", "file-to-dir"] {
            expected.remove(path.as_bytes());
        }
        let mut upper = picture(&t.upper);
        expected.append(&mut upper);
        assert_eq!(picture(&target), expected, "with {}", program.display());
    }
}

#[test]
fn nothing_the_agent_or_the_user_configured_reaches_our_git() {
    let t = trees();
    put(&t.base, "a", "one\n");
    put(&t.upper, "a", "two\n");
    put(&t.upper, ".gitattributes", "* binary diff=evil filter=evil\n");
    let harvest = t.asked(&Asked { write: &["a", ".gitattributes"], ..Asked::default() });
    let git = IsolatedGit::create(Path::new("git"), &t.temp.path().join("own.git")).expect("a repository");
    let mut text = Vec::new();
    patch::write(&git, &harvest.changes, directory(&t.upper).as_fd(), &base(&[&t.base]), &mut text)
        .expect("a patch");
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("\n-one\n+two\n"), "{text}");
    let set = git.run(["config", "--list", "--show-origin"]).expect("listed");
    assert!(
        String::from_utf8_lossy(&set)
            .lines()
            .all(|line| line.starts_with("file:") && line.contains("config"))
    );
    let command = git.command(["version"]);
    let names: Vec<_> = command.get_envs().filter_map(|(name, _)| name.to_str()).collect();
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("GIT_")
                || ["HOME", "PATH", "LC_ALL", "XDG_CONFIG_HOME"].contains(name))
    );
    assert_eq!(command.get_current_dir(), Some(git.directory()));
}

#[test]
fn a_file_that_changed_after_the_harvest_is_noticed() {
    let t = trees();
    put(&t.upper, "a", "harvested");
    let harvest = t.harvest();
    put(&t.upper, "a", "harvested, and more");
    let git = IsolatedGit::create(Path::new("git"), &t.temp.path().join("own.git")).expect("a repository");
    let upper = directory(&t.upper);
    let error = patch::write(&git, &harvest.changes, upper.as_fd(), &base(&[&t.base]), &mut Vec::new());
    assert_eq!(error.expect_err("noticed").to_string(), "a is not what was harvested any more");
}

#[test]
fn a_failing_git_says_why() {
    let t = trees();
    let git = IsolatedGit::create(Path::new("git"), &t.temp.path().join("own.git")).expect("a repository");
    let error = git.run(["cat-file", "-p", "nothing"]).expect_err("fails");
    assert!(error.to_string().contains("Not a valid object name"), "{error}");
    let missing = IsolatedGit::create(Path::new("/nonexistent/git"), &t.temp.path().join("other.git"));
    assert!(matches!(missing, Err(GitError::Start { .. })));
    let old = put(t.temp.path(), "old-git", "#!/bin/sh\necho git version 2.20.1\n");
    chmod(&old, 0o755);
    let error = IsolatedGit::create(&old, &t.temp.path().join("third.git")).expect_err("too old");
    assert!(error.to_string().contains("is git 2.20.1; at least 2.38 is needed"), "{error}");
}

#[test]
fn objects_of_another_repository_can_be_read_whatever_its_path_is() {
    let t = trees();
    let first =
        IsolatedGit::create(Path::new("git"), &t.temp.path().join("a:b \"c\".git")).expect("a repository");
    put(&t.upper, "a", "content");
    let harvest = t.harvest();
    let mut text = Vec::new();
    patch::write(&first, &harvest.changes, directory(&t.upper).as_fd(), &base(&[&t.base]), &mut text)
        .expect("written");
    let id = first.run(["rev-parse", "refs/agency/patch/after:a"]).expect("resolved");
    let id = String::from_utf8(id).expect("text");
    let second =
        IsolatedGit::create(Path::new("git"), &t.temp.path().join("second.git")).expect("a repository");
    assert!(second.run(["cat-file", "-p", id.trim()]).is_err());
    let second = second.with_objects(&first.directory().join("objects"));
    assert_eq!(second.run(["cat-file", "-p", id.trim()]).expect("read"), b"content");
}
