//! A snapshot is the commit: every byte, mode and link of it, and nothing else.

mod snapshot_support;

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use agency_sandbox::workspace::snapshot::{SnapshotCost, SnapshotError};
use snapshot_support::*;

fn odd(repo: &Repo) -> String {
    repo.put("plain", "plain\n");
    repo.put("empty", "");
    repo.put("binary", [0u8, 255, 10, 13, 10, 0]);
    repo.put("large", vec![b'x'; 3 << 20]);
    repo.put("a name\twith\nodd \"characters\"", "x");
    repo.put(std::ffi::OsString::from_vec(b"not-utf8-\xff\xfe".to_vec()), "x");
    repo.put("dir/sub/deep", "deep");
    repo.put("dir.txt", "sorts before dir/");
    repo.put("dir-x", "too");
    repo.put("crlf.txt", "one\r\ntwo\r\n");
    repo.put("lf.txt", "one\ntwo\n");
    repo.put("id.txt", "$Id$ and $Format:%H$\n");
    repo.put("lfs.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    repo.put("wide.txt", "wide");
    repo.put("exported", "kept");
    let tool = repo.put("tool", "#!/bin/sh\n");
    fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).expect("chmod");
    symlink("plain", repo.root.join("link")).expect("linked");
    symlink("/etc/passwd", repo.root.join("dir/out")).expect("linked");
    symlink("nowhere", repo.root.join("dir/dangling")).expect("linked");
    let commit = repo.commit("files");
    // Attributes only now, so that adding the files did not convert them.
    let attributes = "*.txt text eol=crlf ident\nid.txt ident export-subst\n*.bin filter=lfs -text\n\
                      wide.txt working-tree-encoding=UTF-16\nexported export-ignore\n";
    let blob = repo.blob(attributes.as_bytes());
    let listing = repo.command(["ls-tree", "-z", &commit]).output().expect("git runs").stdout;
    let mut lines = format!("100644 blob {blob}\t.gitattributes\0").into_bytes();
    lines.extend_from_slice(&listing);
    let tree = repo.feed(["mktree", "-z"], &lines);
    repo.commit_tree(&tree)
}

#[test]
fn every_byte_mode_and_link_is_the_commits_whatever_its_attributes_say() {
    if skipped_without_root() {
        return;
    }
    for git in gits() {
        for format in [&["--object-format=sha1"], &["--object-format=sha256"]] {
            let repo = Repo::with(&git, format);
            let commit = odd(&repo);
            let snapshots = repo.snapshots();
            let layers = snapshots.layers(&commit).expect("layers");
            assert_eq!((layers.made, layers.lowers.len()), (SnapshotCost::Snapshot, 1));
            assert_same(&picture(&layers.lowers[0]), &repo.truth(&commit), "the layer");
            assert_shows(&repo, &snapshots, &layers, &commit);
            assert_eq!(snapshots.layers(&commit).expect("layers").made, SnapshotCost::Nothing);
        }
    }
}

#[test]
fn the_repositorys_settings_hooks_and_filters_never_run() {
    let repo = Repo::new();
    let witness = repo.temp.path().join("ran");
    let script = repo.put("../evil", format!("#!/bin/sh\ntouch {}\ncat\n", witness.display()));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("chmod");
    repo.put("a.x", "a");
    let commit = repo.commit("one");
    repo.put(".gitattributes", "*.x filter=evil\n");
    repo.put("b.x", "b");
    let moved = repo.commit("two");
    let script = script.display().to_string();
    for (key, value) in [
        ("filter.evil.smudge", script.as_str()),
        ("filter.evil.process", &script),
        ("core.fsmonitor", &script),
        ("core.hooksPath", repo.temp.path().to_str().expect("text")),
        ("core.attributesFile", "/etc/passwd"),
        ("core.autocrlf", "true"),
        ("uploadpack.packObjectsHook", &script),
    ] {
        repo.run(["config", key, value]);
    }
    for name in ["post-checkout", "post-index-change", "reference-transaction"] {
        fs::copy(repo.temp.path().join("evil"), repo.root.join(".git/hooks").join(name)).expect("copied");
    }
    let snapshots = repo.snapshots();
    let one = snapshots.layers(&commit).expect("layers");
    let two = snapshots.layers("main").expect("layers");
    assert_eq!((two.made, &two.commit), (SnapshotCost::Delta, &moved));
    assert!(!witness.exists());
    let config = fs::read_to_string(one.lowers[0].join(".git/config")).expect("read");
    assert!(!config.contains("evil"));
}

#[test]
fn the_private_repository_shows_history_and_branches_and_takes_commits_the_real_one_never_sees() {
    if skipped_without_root() {
        return;
    }
    for git in gits() {
        let repo = Repo::with(&git, &[]);
        repo.put("a", "1");
        let first = repo.commit("first");
        repo.run(["tag", "-a", "v1", "-m", "a tag"]);
        repo.run(["pack-refs", "--all"]);
        repo.put("a", "2");
        let second = repo.commit("second");
        repo.run(["branch", "feature/x", &first]);
        repo.run(["update-ref", "refs/remotes/origin/main", &first]);
        repo.run(["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
        repo.run(["update-ref", "refs/agency/other/1", &first]);
        repo.run(["config", "remote.origin.url", "https://me:token@host/x"]);
        let before = repo.run(["for-each-ref"]);
        let snapshots = repo.snapshots();
        let layers = snapshots.layers("HEAD").expect("layers");
        let run = repo.run_folder();
        let workspace = snapshots.workspace(&layers, &repo.root, &run).expect("a workspace");
        assert_eq!(workspace.path, repo.root);
        assert!(workspace.scratch.iter().any(|path| path.as_bytes() == b".git"));
        mounted(&workspace, &repo.temp.path().join("scratch"), |merged| {
            let git = |arguments: &[&str]| output(&mut git_in(&repo.git, merged, arguments));
            assert_eq!(git(&["log", "--format=%s", "HEAD"]), "second\nfirst");
            assert_eq!(
                git(&["rev-parse", "main", "v1^{commit}", "feature/x", "origin"]),
                format!("{second}\n{first}\n{first}\n{first}")
            );
            assert_eq!(git(&["for-each-ref", "refs/agency"]), "");
            assert!(!git(&["config", "--list"]).contains("token"));
            fs::write(merged.join("a"), "3").expect("written");
            assert_eq!(git(&["status", "--porcelain"]), " M a");
            assert_eq!(
                git(&["diff", "--stat", "main"]),
                " a | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)"
            );
            git(&["checkout", "-q", "-b", "mine"]);
            git(&["commit", "-q", "-am", "third"]);
            git(&["branch", "-f", "main", "HEAD"]);
            assert_eq!(git(&["log", "--format=%s", "main"]), "third\nsecond\nfirst");
            git(&["fsck", "--strict"]);
        });
        assert_eq!(repo.run(["for-each-ref"]), before);
        assert_eq!(repo.run(["count-objects"]), repo.run(["count-objects"]));
        assert_eq!(fs::read_to_string(repo.root.join("a")).expect("read"), "2");
    }
}

#[test]
fn a_submodule_is_an_empty_folder_and_named() {
    if skipped_without_root() {
        return;
    }
    let repo = Repo::new();
    repo.put("a", "1");
    repo.put("sub/x", "a folder first");
    let plain = repo.commit("plain");
    repo.run(["rm", "-rq", "sub"]);
    repo.run(["update-index", "--add", "--cacheinfo", &format!("160000,{plain},sub")]);
    repo.run(["commit", "-q", "-m", "submodule"]);
    let module = repo.run(["rev-parse", "HEAD"]);
    repo.run(["update-index", "--cacheinfo", &format!("160000,{module},sub")]);
    repo.run(["commit", "-q", "-m", "submodule moved"]);
    let moved = repo.run(["rev-parse", "HEAD"]);
    for first in [&plain, &module, &moved] {
        let snapshots = repo.snapshots();
        let _ = fs::remove_dir_all(repo.state().path().join("snapshots"));
        let snapshots = {
            drop(snapshots);
            repo.snapshots()
        };
        snapshots.layers(first).expect("layers");
        for (commit, named) in [(&plain, 0), (&module, 1), (&moved, 1)] {
            let layers = snapshots.layers(commit).expect("layers");
            assert_eq!(layers.submodules.len(), named, "{commit}");
            assert_shows(&repo, &snapshots, &layers, commit);
        }
    }
}

#[test]
fn a_tree_that_reaches_out_is_refused_and_writes_nothing() {
    let repo = Repo::new();
    let outside = repo.temp.path().join("outside");
    fs::create_dir(&outside).expect("made");
    repo.put("a", "1");
    repo.commit("honest");
    let (blob, honest) = (repo.blob(b"evil"), repo.blob(b"1"));
    let link = repo.blob(outside.as_os_str().as_encoded_bytes());
    let inner = repo.tree(&format!("100644 {blob} x"));
    let config = repo.tree(&format!("100644 {blob} config"));
    let trees = [
        format!("40000 {config} .git"),
        format!("40000 {config} .GIT"),
        format!("40000 {config} .g\u{200c}it"),
        format!("40000 {config} git~1"),
        format!("40000 {inner} .."),
        format!("40000 {inner} ."),
        format!("100644 {blob} ../x"),
        format!("100644 {blob} a/../../x"),
        format!("120000 {link} .git"),
        format!("120000 {link} d\n40000 {inner} d"),
        format!("100644 {blob} d\n40000 {inner} d"),
        format!("40000 {inner} d\n100644 {blob} d"),
        format!("100644 {blob} d\n100644 {blob} d"),
        format!("100644 {honest} a\n100644 {blob} a"),
        format!("100644 {blob} a\n100644 {honest} a"),
        format!("120000 {} empty", repo.blob(b"")),
        format!("120000 {} nul", repo.blob(b"a\0b")),
        format!("120000 {} long", repo.blob(&[b'x'; 5000])),
        format!("100644 {inner} a-tree-as-a-file"),
        format!("100644 {blob} {}", "n".repeat(300)),
    ];
    for git in gits() {
        let repo = Repo {
            git,
            ..Repo {
                temp: tempfile::tempdir().expect("a folder"),
                root: repo.root.clone(),
                git: "git".into(),
            }
        };
        let snapshots = repo.snapshots();
        for tree in &trees {
            let commit = repo.commit_tree(&repo.tree(tree));
            let refused = snapshots.layers(&commit);
            // Once without a snapshot, once as a delta on one.
            assert!(
                refused.is_err(),
                "{tree:?} was checked out: {:?}",
                picture(&refused.expect("layers").lowers[0])
            );
        }
        snapshots.layers("main").expect("layers");
        for tree in &trees {
            let commit = repo.commit_tree(&repo.tree(tree));
            let refused = snapshots.layers(&commit);
            assert!(refused.is_err(), "{tree:?} became a delta: {:?}", refused.expect("layers").lowers);
        }
        assert_eq!(fs::read_dir(&outside).expect("read").count(), 0);
        drop(snapshots);
        fs::remove_dir_all(repo.state().path()).expect("removed");
    }
    assert!(!Path::new("/x").exists());
}

#[test]
fn a_partial_clone_is_fine_until_an_object_is_missing_which_is_named() {
    let origin = Repo::new();
    origin.put("here", "here");
    let first = origin.commit("one");
    origin.put("there", "there");
    let second = origin.commit("two");
    origin.run(["config", "uploadpack.allowFilter", "true"]);
    let mut clone = Repo::new();
    let path = clone.temp.path().join("clone");
    let url = format!("file://{}", origin.root.display());
    clone.run(["clone", "-q", "--filter=blob:none", &url, path.to_str().expect("text")]);
    clone.root = path;
    let snapshots = clone.snapshots();
    snapshots.layers("HEAD").expect("what is checked out is there");
    origin.put("there", "changed");
    let third = origin.commit("three");
    clone.run(["fetch", "-q"]);
    match snapshots.layers(&third) {
        Err(error @ SnapshotError::Missing { partial: true, .. }) => {
            let text = error.to_string();
            assert!(text.contains("`there`") && text.contains("partial clone"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // Nothing was left half-done.
    for commit in [first, second] {
        snapshots.layers(&commit).expect("layers");
    }
}

#[test]
fn a_repository_that_keeps_its_references_otherwise_is_refused_by_name() {
    let repo = Repo::new();
    repo.put("a", "1");
    repo.commit("one");
    repo.run(["config", "core.repositoryformatversion", "1"]);
    repo.run(["config", "extensions.refStorage", "reftable"]);
    let folder = agency_sandbox::workspace::folder::RepositoryPaths {
        git: repo.root.join(".git"),
        common: repo.root.join(".git"),
    };
    let error = agency_sandbox::workspace::snapshot::Snapshots::open(&repo.state(), &folder, &repo.git);
    assert!(error.expect_err("refused").to_string().contains("reftable"));
}

#[test]
fn what_is_no_commit_is_said_to_be_none() {
    let repo = Repo::new();
    repo.put("a", "1");
    let commit = repo.commit("one");
    let snapshots = repo.snapshots();
    let absent = "0".repeat(40);
    for rev in ["", "--all", "nothing", "main..main", "HEAD~5", absent.as_str(), "HEAD:a", "main\nmain"] {
        assert!(matches!(snapshots.layers(rev), Err(SnapshotError::NoCommit { .. })), "{rev:?}");
    }
    repo.run(["update-ref", "refs/remotes/origin/main", &commit]);
    repo.run(["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
    repo.run(["tag", "-a", "v1", "-m", "a tag"]);
    for rev in [
        "origin",
        "origin/main",
        "v1",
        "heads/main",
        "v1^{commit}",
        "HEAD",
        "@",
        "main",
        "refs/heads/main",
        "HEAD~0",
        "main^0",
        &commit[..10],
        &commit,
    ] {
        assert_eq!(snapshots.layers(rev).expect("layers").commit, commit, "{rev:?}");
    }
}

#[test]
fn a_shallow_clone_stays_one() {
    if skipped_without_root() {
        return;
    }
    let origin = Repo::new();
    for number in 0..3 {
        origin.put("a", number.to_string());
        origin.commit("more");
    }
    let mut clone = Repo::new();
    let path = clone.temp.path().join("clone");
    let url = format!("file://{}", origin.root.display());
    clone.run(["clone", "-q", "--depth=2", &url, path.to_str().expect("text")]);
    clone.root = path;
    let snapshots = clone.snapshots();
    let layers = snapshots.layers("HEAD").expect("layers");
    let run = clone.run_folder();
    let workspace = snapshots.workspace(&layers, &clone.root, &run).expect("a workspace");
    mounted(&workspace, &clone.temp.path().join("scratch"), |merged| {
        assert_eq!(output(&mut git_in(&clone.git, merged, ["rev-list", "--count", "HEAD"])), "2");
    });
}

#[test]
fn a_linked_worktree_and_borrowed_objects_work_like_any_repository() {
    if skipped_without_root() {
        return;
    }
    let origin = Repo::new();
    origin.put("a", "1");
    origin.commit("one");
    let mut clone = Repo::new();
    let path = clone.temp.path().join("clone");
    clone.run(["clone", "-q", "--shared", origin.root.to_str().expect("text"), path.to_str().expect("text")]);
    clone.root = path;
    clone.put("a", "2");
    clone.commit("two");
    let linked = clone.temp.path().join("linked");
    clone.run(["worktree", "add", "-q", "-b", "other", linked.to_str().expect("text"), "HEAD~1"]);
    clone.root = linked.canonicalize().expect("a path");
    let snapshots = clone.snapshots();
    let layers = snapshots.layers("HEAD").expect("layers");
    assert_eq!(layers.commit, clone.run(["rev-parse", "other"]));
    let run = clone.run_folder();
    let workspace = snapshots.workspace(&layers, &clone.root, &run).expect("a workspace");
    let places: Vec<_> = workspace.objects.iter().map(|objects| objects.at.clone()).collect();
    assert_eq!(places, [clone.root.join(".git/base/0"), origin.root.join(".git/objects")]);
    mounted(&workspace, &clone.temp.path().join("scratch"), |merged| {
        assert_clean(&clone.git, merged, "a linked worktree");
        let log = output(&mut git_in(&clone.git, merged, ["log", "--format=%s", "main", "--"]));
        assert_eq!(log, "two\none");
    });
}
