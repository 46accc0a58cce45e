//! A repository that is configured to run something runs nothing.

use std::fs;

use crate::support::{Actor, Put, World, edited, ends, worlds};

/// Everything git would run if it obeyed the repository, each leaving a mark.
fn arm(world: &World) {
    let touch = |name: &str| format!("touch '{}'", world.outside(&format!("ran-{name}")).display());
    let hooks = world.outside("hooks");
    for folder in [world.root().join(".git/hooks"), hooks.clone()] {
        fs::create_dir_all(&folder).expect("made");
        for hook in [
            "reference-transaction",
            "post-checkout",
            "post-index-change",
            "pre-commit",
            "post-commit",
            "commit-msg",
            "update",
            "post-merge",
            "pre-merge-commit",
            "fsmonitor-watchman",
            "post-rewrite",
        ] {
            let path = folder.join(hook);
            fs::write(&path, format!("#!/bin/sh\n{}\n", touch(hook))).expect("written");
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        }
    }
    let set = |key: &str, value: &str| drop(world.git(&["config", key, value]));
    set("core.hooksPath", hooks.to_str().expect("a path"));
    set("core.fsmonitor", &touch("fsmonitor"));
    set("core.sshCommand", &touch("ssh"));
    set("core.gitProxy", &touch("proxy"));
    set("core.pager", &touch("pager"));
    set("core.editor", &touch("editor"));
    set("core.askPass", &touch("askpass"));
    set("merge.evil.driver", &format!("{}; cat %A", touch("driver")));
    set("merge.default", "evil");
    set("filter.evil.clean", &format!("{}; cat", touch("clean")));
    set("filter.evil.smudge", &format!("{}; cat", touch("smudge")));
    set("filter.evil.process", &touch("process"));
    set("diff.external", &touch("diff"));
    set("diff.evil.command", &touch("diff-driver"));
    set("diff.evil.textconv", &format!("{}; cat", touch("textconv")));
    set("gpg.program", &touch("gpg"));
    set("commit.gpgSign", "true");
    set("uploadpack.packObjectsHook", &touch("pack"));
    set("interactive.diffFilter", &touch("interactive"));
    for command in ["update-ref", "merge-tree", "fast-import", "read-tree", "update-index", "checkout-index"]
    {
        set(&format!("alias.{command}"), &format!("!{}", touch("alias")));
    }
    set("extensions.partialClone", "evil");
    set("remote.evil.promisor", "true");
    set("remote.evil.url", &format!("ext::{}", touch("remote")));
    set("protocol.ext.allow", "always");
    set("core.repositoryFormatVersion", "1");
}

fn ran(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.outside(".")).expect("listed").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("ran-")).collect()
}

#[test]
fn hooks_drivers_filters_aliases_and_monitors_of_the_repository_never_run() {
    for world in worlds() {
        world.write(".gitattributes", b"*.txt merge=evil diff=evil\n*.evil filter=evil\n");
        let base = world.commit("Attributes");
        let work = world.candidate(
            &base,
            &[("src/1.txt", Put::File(&edited(100, 125, "agent"))), ("new.txt", Put::File(b"new\n"))],
        );
        let killed = world.candidate(&base, &[("src/2.txt", Put::File(b"agent\n"))]);
        let filtered = world.candidate(&base, &[("x.evil", Put::File(b"filtered\n"))]);
        world.write("src/1.txt", &edited(100, 103, "person"));
        world.commit("The person's");
        arm(&world);
        world.land("T1", &work).is("landed");
        world.land("T2", &filtered).waits_for(&[("filtered", "x.evil")]);
        world.land_with("T2", &filtered, &["act=branch"]).is("landed");
        assert!(world.land_with("T3", &killed, &["kill=PlaceIndex:After"]).killed);
        world.land("T3", &killed).is("landed");
        assert_eq!(ran(&world), [] as [String; 0]);
        let text = world.read("src/1.txt");
        assert!(text.contains("agent\n") && text.contains("person\n"), "{text}");
        // A git that obeys it does run them.
        world
            .command(&world.root(), &["update-ref", "refs/heads/obeyed", "main"])
            .output()
            .expect("git runs");
        world.command(&world.root(), &["status"]).output().expect("git runs");
        let ran = ran(&world);
        for mark in ["ran-reference-transaction", "ran-fsmonitor"] {
            assert!(ran.iter().any(|ran| ran == mark), "{mark} is no trap: {ran:?}");
        }
    }
}

#[test]
fn replaced_objects_and_grafts_change_nothing() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 125, "agent")))]);
        let evil = world.candidate(&base, &[("src/1.txt", Put::File(b"replaced\n")), ("README", Put::Gone)]);
        let parentless = world.git(&["commit-tree", "main^{tree}", "-m", "no parent"]);
        world.write("src/2.txt", b"person\n");
        let main = world.commit("The person's");
        world.git(&["replace", &work, &evil]);
        world.git(&["replace", &base, &parentless]);
        world.write(".git/info/grafts", format!("{main}\n{work}\n").as_bytes());
        world.land_with("T1", &work, &["scope=src/1.txt"]).is("landed");
        world.git(&["replace", "-d", &work, &base]);
        fs::remove_file(world.root().join(".git/info/grafts")).expect("removed");
        assert!(world.read("src/1.txt").contains("agent\n"));
        assert_eq!(world.read("src/2.txt"), "person\n");
        assert_eq!((world.read("README").as_str(), world.status().as_str()), ("read me\n", ""));
        assert_eq!(world.git(&["log", "-1", "--format=%P", "main"]), main);
    }
}

#[test]
fn a_file_of_attributes_that_never_answers_is_not_read_from_the_repository() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        let pipe = world.outside("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("made");
        let _ = fs::remove_file(world.root().join(".git/info/attributes"));
        rustix::fs::mknodat(rustix::fs::CWD, world.root().join(".git/info/attributes"), kind, mode, 0)
            .expect("made");
        world.git(&["config", "core.attributesFile", pipe.to_str().expect("a path")]);
        world.git(&["config", "core.excludesFile", pipe.to_str().expect("a path")]);
        world.land("T1", &work).is("landed");
        assert_eq!(world.read("src/1.txt"), "agent\n");
    }
}

fn listed(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("listed").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_that_does_not_say_it_is_a_work_tree_is_none() {
    let world = World::new(ends().1, Actor::Same, &[]);
    world.git(&["checkout", "--quiet", "--detach"]);
    let (linked, base) = (world.outside("linked"), world.at("main"));
    world.git(&["worktree", "add", "--quiet", linked.to_str().expect("a path"), "main"]);
    // Removed, and made again for something else; or it never was one, and only the repository says so.
    fs::remove_dir_all(&linked).expect("removed");
    fs::create_dir_all(&linked).expect("made");
    let work = world.candidate(&base, &[("src/new.txt", Put::File(b"agent\n"))]);
    world.land("T1", &work).is("landed");
    assert_eq!(listed(&linked), [""; 0]);
}

#[test]
fn looking_for_changes_runs_nothing_of_a_submodule() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let (trace, other) = (world.outside("trace"), world.outside("other"));
    for arguments in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "-mx"]] {
        fs::create_dir_all(&other).expect("made");
        world.git_at(&other, &[&["-c", "user.name=x", "-c", "user.email=x@x"], arguments].concat());
    }
    let address = other.to_str().expect("a path");
    world.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", address, "sub"]);
    world.git(&["commit", "--quiet", "-mx"]);
    let program = world.outside("program");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", trace.display())).expect("written");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
    world.git_at(&world.root().join("sub"), &["config", "core.fsmonitor", program.to_str().expect("a path")]);
    world.git(&["status"]);
    assert!(trace.exists(), "the trap works");
    fs::remove_file(&trace).expect("removed");
    world.write("src/1.txt", b"edited\n");
    let branch = agency_landing::names::RefName::branch("main").expect("a name");
    let files = agency_landing::uncommitted_files::files(&world.open(), &branch).expect("looked");
    assert_eq!(files.iter().map(ToString::to_string).collect::<Vec<_>>(), ["src/1.txt"]);
    assert!(!trace.exists(), "the submodule's program was run");
}

#[test]
fn links_in_a_repository_are_named_or_followed_as_git_does() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        let (index, aside) = (world.root().join(".git/index"), world.outside("index"));
        fs::rename(&index, &aside).expect("moved");
        std::os::unix::fs::symlink(&aside, &index).expect("linked");
        let said = world.land("T1", &work);
        assert!(said.is("error").value["error"].as_str().expect("a reason").ends_with("its index is a link"));
        fs::rename(&aside, &index).expect("moved");
        // How git once kept a branch under another name.
        let trunk = world.root().join(".git/refs/heads/trunk");
        std::os::unix::fs::symlink("refs/heads/main", &trunk).expect("linked");
        world.land_with("T1", &work, &["target=trunk"]).is("landed");
        assert_eq!((world.at("refs/heads/main"), world.status().as_str()), (work, ""));
        assert!(trunk.is_symlink());
    }
}
