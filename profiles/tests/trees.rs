//! The tree a proof is bound to: git's own name for it, computed without letting the repository have a say.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use agency_profiles::git_head::{GitHead, HashAlgorithm};
use agency_profiles::git_tree::{CommittedTree, FolderListing};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use support::{Place, git};

fn look(place: &Path) -> (FolderListing, CommittedTree, GitHead) {
    let folder = WorkspaceFolder::discover(place).expect("a folder");
    let repository = folder.repository.as_ref().expect("a repository");
    let head = GitHead::read(repository);
    let scratch = tempfile::tempdir().expect("a folder");
    let objects = repository.common.join("objects");
    let recorded = CommittedTree::read(&head, &objects, &scratch.path().join("git")).expect("a commit");
    let listing = FolderListing::read(&folder, head.format, &recorded).expect("a tree");
    (listing, recorded, head)
}

/// What git makes of the same files in a clone that nobody configured anything in.
fn in_a_clean_clone(place: &Place) -> String {
    let clone = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| {
        let output = git(clone.path()).args(arguments).output().expect("runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    run(&["clone", "--quiet", "--no-checkout", &place.path().to_string_lossy(), "."]);
    run(&["reset", "--quiet"]);
    let copied = std::process::Command::new("cp")
        .args(["-a", "--no-target-directory"])
        .args([place.path(), &clone.path().join("copy")])
        .status()
        .expect("runs");
    assert!(copied.success());
    fs::remove_dir_all(clone.path().join("copy/.git")).expect("goes");
    run(&["--work-tree=copy", "add", "--all"]);
    run(&["--work-tree=copy", "write-tree"])
}

#[test]
fn a_clean_folder_has_the_tree_of_its_commit() {
    for format in ["sha1", "sha256"] {
        // Names that sort differently with a slash behind them.
        let place = Place::new(&[("a0", "one\n"), ("a.b", ""), ("a-b/c", "x"), ("a/b/c/d", "deep")]);
        place.write("program", "#!/bin/sh\n");
        fs::set_permissions(place.path().join("program"), fs::Permissions::from_mode(0o755)).expect("a mode");
        symlink("a.b", place.path().join("link")).expect("a link");
        symlink("/nowhere", place.path().join("a/dangling")).expect("a link");
        let place = place.into_repository(&[&format!("--object-format={format}")]);
        let (listing, recorded, head) = look(place.path());
        assert_eq!(head.format, if format == "sha1" { HashAlgorithm::Sha1 } else { HashAlgorithm::Sha256 });
        assert_eq!(head.commit, Some(place.git(&["rev-parse", "HEAD"])));
        assert_eq!(listing.id(), place.git(&["rev-parse", "HEAD^{tree}"]), "{format}");
        assert_eq!(recorded.tree, Some(listing.id()));
    }
}

#[test]
fn uncommitted_work_is_in_it_and_what_is_ignored_is_not() {
    let place = Place::repository(&[
        ("a", "one\n"),
        ("b", "two\n"),
        ("dir/c", "three\n"),
        (".gitignore", "*.log\n/target\n"),
    ]);
    let clean = look(place.path()).0;
    place.write("a", "changed\n");
    place.write("new/deep/file", b"\xff\0raw");
    place.write("x.log", "ignored");
    place.write("target/debug/x", "ignored");
    place.write("new/.gitignore", "scratch\n");
    place.write("new/scratch", "ignored");
    fs::remove_file(place.path().join("b")).expect("goes");
    fs::create_dir(place.path().join("empty")).expect("a folder");
    fs::set_permissions(place.path().join("dir/c"), fs::Permissions::from_mode(0o700)).expect("a mode");
    let (listing, recorded, _) = look(place.path());
    assert_eq!(listing.id(), in_a_clean_clone(&place));
    assert_ne!(recorded.tree, Some(listing.id()));
    let names: Vec<_> = clean.differences(&listing).iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b", "dir/c", "new/.gitignore", "new/deep/file"]);
    assert_eq!(listing.differences(&listing), []);
}

#[test]
fn a_tracked_file_counts_even_where_a_rule_ignores_it() {
    let place = Place::new(&[
        (".gitignore", "*.log\n/out/\n"),
        ("kept.log", "1"),
        ("out/kept", "2"),
        ("out/not", "3"),
    ]);
    let place = place.into_repository(&[]);
    place.git(&["add", "--force", "kept.log", "out/kept"]);
    place.git(&["commit", "--quiet", "--message=Forced"]);
    place.write("kept.log", "changed");
    place.write("out/kept", "changed");
    let (listing, ..) = look(place.path());
    place.git(&["add", "--update"]);
    assert_eq!(listing.id(), place.git(&["write-tree"]));
}

#[test]
fn a_repository_without_a_commit_has_a_tree_too() {
    let place = Place::new(&[("a", "one\n")]);
    place.git(&["init", "--quiet"]);
    let (listing, recorded, head) = look(place.path());
    assert_eq!((head.commit, recorded.tree), (None, None));
    place.git(&["add", "--all"]);
    assert_eq!(listing.id(), place.git(&["write-tree"]));
}

#[test]
fn a_linked_worktree_is_on_its_own_commit() {
    let place = Place::repository(&[("a", "one\n")]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let tree = elsewhere.path().join("tree");
    place.git(&["worktree", "add", "--quiet", "-b", "other", &tree.to_string_lossy()]);
    fs::write(tree.join("a"), "two\n").expect("a file");
    let run = |arguments: &[&str]| assert!(git(&tree).args(arguments).status().expect("runs").success());
    run(&["commit", "--quiet", "--all", "--message=Second"]);
    place.git(&["pack-refs", "--all"]);
    let (listing, _, head) = look(&tree);
    assert_eq!(head.commit, Some(place.git(&["rev-parse", "other"])));
    assert_eq!(listing.id(), place.git(&["rev-parse", "other^{tree}"]));
}

#[test]
fn filters_hooks_and_settings_of_the_repository_do_not_run() {
    let place = Place::repository(&[
        ("a.txt", "one\n"),
        (".gitattributes", "*.txt filter=evil\n*.c text eol=crlf ident\n"),
    ]);
    let touched = place.path().parent().expect("a parent").join(format!("agency-ran-{}", std::process::id()));
    let evil = format!("sh -c 'touch {}; cat'", touched.display());
    for key in [
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
    ] {
        place.git(&["config", key, &evil]);
    }
    place.git(&["config", "filter.evil.required", "true"]);
    for hook in
        ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"]
    {
        let path = place.path().join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(&path, format!("#!/bin/sh\ntouch {}\n", touched.display())).expect("a hook");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    // A nested repository has settings of its own, which git would obey when it looks into it.
    fs::create_dir_all(place.path().join("nested")).expect("a folder");
    assert!(git(&place.path().join("nested")).args(["init", "--quiet"]).status().expect("runs").success());
    assert!(
        git(&place.path().join("nested"))
            .args(["config", "core.fsmonitor", &evil])
            .status()
            .expect("runs")
            .success()
    );
    place.write("a.txt", "changed\n");
    place.write("b.c", "int a; /* $Id$ */\r\n");
    let (listing, ..) = look(place.path());
    assert!(!touched.exists(), "something of the repository was run");
    assert_eq!(listing.nested.iter().map(ToString::to_string).collect::<Vec<_>>(), ["nested"]);
    // The same settings do run when git itself is asked, so the trap is a real one.
    let _ = git(place.path()).args(["add", "--all"]).output();
    assert!(touched.exists());
    fs::remove_file(touched).expect("goes");
    // Contents are taken as they are: this is what the files hold, with no attribute applied.
    let raw = Place::new(&[
        ("a.txt", "changed\n"),
        (".gitattributes", "*.txt filter=evil\n*.c text eol=crlf ident\n"),
        ("b.c", "int a; /* $Id$ */\r\n"),
    ]);
    raw.git(&["init", "--quiet"]);
    let mut mktree = String::new();
    for name in [".gitattributes", "a.txt", "b.c"] {
        let id = raw.git(&["hash-object", "-w", "--no-filters", name]);
        mktree.push_str(&format!("100644 blob {id}\t{name}\n"));
    }
    raw.write("list", &mktree);
    let list = fs::File::open(raw.path().join("list")).expect("opens");
    let output = git(raw.path()).arg("mktree").stdin(list).output().expect("runs");
    assert_eq!(listing.id(), String::from_utf8_lossy(&output.stdout).trim());
}

#[test]
fn a_submodule_keeps_the_commit_that_was_recorded() {
    let inner = Place::repository(&[("x", "1")]);
    let place = Place::repository(&[("a", "one\n")]);
    let inner_path = inner.path().to_string_lossy().into_owned();
    place.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &inner_path, "sub"]);
    place.commit("With a submodule");
    let (listing, recorded, _) = look(place.path());
    assert_eq!(recorded.tree, Some(listing.id()));
    assert_eq!(listing.nested.len(), 1);
    // One that was never fetched is an empty folder, and the tree is the same.
    fs::remove_dir_all(place.path().join("sub")).expect("goes");
    fs::create_dir(place.path().join("sub")).expect("a folder");
    assert_eq!(look(place.path()).0.id(), listing.id());
}

#[test]
fn what_git_does_not_know_is_left_out_and_a_link_is_not_followed() {
    let place = Place::repository(&[("a", "one\n")]);
    let pipe = place.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o644.into(), 0).expect("a pipe");
    let outside = Place::new(&[("secret", "x")]);
    symlink(outside.path(), place.path().join("out")).expect("a link");
    let (listing, ..) = look(place.path());
    assert_eq!(listing.id(), in_a_clean_clone(&place));
    // A folder that became a link holds nothing any more.
    let place = Place::repository(&[("dir/secret", "one\n")]);
    fs::remove_dir_all(place.path().join("dir")).expect("goes");
    symlink(outside.path(), place.path().join("dir")).expect("a link");
    let (listing, ..) = look(place.path());
    assert_eq!(listing.id(), in_a_clean_clone(&place));
}
