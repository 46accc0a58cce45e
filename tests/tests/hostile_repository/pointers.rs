//! What a `.git` says of itself: where its objects are, whose work tree it is, where it is shared.

use std::fs;

use agency_tests::queue::{HONEST, Queue};
use agency_tests::repository::{Actor, actors};

use crate::world::{COMMANDS, SECRET, World, link};

#[test]
fn a_common_directory_elsewhere_is_refused_whatever_is_there() {
    for actor in actors() {
        let world = World::new(actor);
        world.ground.git(&[
            "clone",
            "--quiet",
            "--bare",
            ".",
            world.outside("other.git").to_str().expect("text"),
        ]);
        world.give(&world.outside("other.git"));
        for target in ["ssh", "other.git", "none"] {
            fs::write(world.git("commondir"), world.outside(target).display().to_string()).expect("written");
            world.give(&world.git("commondir"));
            world.assert_refused(COMMANDS, &[".git/commondir names", "remove "]);
        }
    }
}

#[test]
fn alternates_that_hold_anything_but_objects_are_refused() {
    for actor in actors() {
        let world = World::new(actor);
        let list = world.git("objects/info/alternates");
        let relative = pathdiff(&world.ground.path().join(".git/objects"), &world.outside("ssh"));
        for named in [world.outside("ssh").display().to_string(), relative] {
            fs::write(&list, format!("{named}\n")).expect("written");
            world.give(&list);
            world.assert_refused(COMMANDS, &["which is not a folder of git objects: it holds `id_rsa`"]);
        }
        // One behind another.
        let objects = world.outside("objects");
        fs::create_dir_all(objects.join("info")).expect("made");
        fs::write(objects.join("info/alternates"), world.outside("ssh").display().to_string())
            .expect("written");
        world.give(&objects);
        fs::write(&list, format!("{}\n", objects.display())).expect("written");
        world.assert_refused(COMMANDS, &["it holds `id_rsa`"]);
    }
}

/// As many steps up as there are, and down again.
fn pathdiff(from: &std::path::Path, to: &std::path::Path) -> String {
    let up: String = from.components().skip(1).map(|_| "../").collect();
    format!("{up}{}", to.strip_prefix("/").expect("absolute").display())
}

/// What is honestly borrowed is still there, at every level.
#[test]
fn objects_of_ones_own_repository_are_borrowed() {
    for actor in actors() {
        let world = World::new(actor);
        let other = world.outside("other");
        world.ground.git(&["clone", "--quiet", "--shared", ".", other.to_str().expect("text")]);
        for level in ["process", "landlock"] {
            for base in [&[][..], &["--base", "HEAD"]] {
                let mut command = world.ground.command(&["sandbox", "--isolation", level]);
                command.args(base).args(["--", "git", "log", "--format=%H", "-1"]).current_dir(&other);
                let output = command.output().expect("agency starts");
                assert!(output.status.success() && output.stdout.len() == 41, "{level} {base:?}: {output:?}");
            }
        }
    }
}

#[test]
fn a_work_tree_that_its_repository_does_not_name_inherits_nothing() {
    for actor in actors() {
        let (world, other) = (World::new(actor), World::new(actor));
        let real = world.ground.path().join(".git");
        world.ground.git(&[
            "worktree",
            "add",
            "--quiet",
            "--detach",
            world.outside("linked").to_str().expect("text"),
        ]);
        // A folder that says it belongs to a repository on this machine, or to a worktree of it.
        for named in [real.clone(), real.join("worktrees/linked")] {
            fs::remove_dir_all(other.ground.path().join(".git"))
                .or_else(|_| fs::remove_file(other.ground.path().join(".git")))
                .expect("removed");
            fs::write(other.ground.path().join(".git"), format!("gitdir: {}\n", named.display()))
                .expect("written");
            if let Some((uid, gid)) = world.ground.owner() {
                // Of the same person: ownership alone says nothing here.
                for path in [other.ground.path().to_owned(), other.ground.path().join(".git")] {
                    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).expect("given");
                }
            }
            let mut command = world.ground.command(&["status"]);
            let output = command.current_dir(other.ground.path()).output().expect("agency starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{named:?}: {said}");
            assert!(said.contains("does not name") && said.contains("as its work tree"), "{said}");
        }
        // The real one works.
        let mut command = world.ground.command(&["sandbox", "--", "git", "status"]);
        let output = command.current_dir(world.outside("linked")).output().expect("agency starts");
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn objects_references_and_submodules_behind_links_are_not_followed() {
    for actor in actors() {
        let world = World::new(actor);
        for (name, told) in [("objects", true), ("refs", true), ("modules", false), ("worktrees", false)] {
            let (place, aside) = (world.git(name), world.git("aside"));
            let there = fs::rename(&place, &aside).is_ok();
            link(&world.outside("home"), &place);
            world.give(&place);
            match told {
                true => world
                    .assert_refused(&[&["status"], &["sandbox", "--", "true"]], &["is a link or no folder"]),
                false => world.try_everything(name),
            }
            fs::remove_file(&place).expect("removed");
            if there {
                fs::rename(&aside, &place).expect("back");
            }
        }
        assert_eq!(fs::read_to_string(world.outside("home/two/config")).expect("there"), SECRET);
    }
}

#[test]
fn a_token_in_an_address_is_shown_nowhere() {
    for actor in actors() {
        let world = World::new(actor);
        world.ground.git(&["config", "branch.main.remote", "https://me:t0ken-value@host/x.git"]);
        world.ground.git(&["config", "remote.origin.url", "https://me:t0ken-value@host/x.git"]);
        for level in ["process", "landlock"] {
            for base in [&[][..], &["--base", "HEAD"]] {
                let words = [
                    &["sandbox", "--isolation", level],
                    base,
                    &["--", "sh", "-c", "grep -r t0ken .git; true"],
                ];
                let said = world.agency(&words.concat());
                assert_eq!((said.code, said.out.as_str()), (0, ""), "{level} {base:?}: {said:?}");
            }
        }
    }
}

/// Git writes references, their logs and objects by name, and follows whatever link is on the way.
#[test]
fn nothing_is_written_through_a_link_below_references_logs_or_objects() {
    actors().into_iter().for_each(nothing_is_written_through_a_link_below_references_logs_or_objects_by);
}

fn nothing_is_written_through_a_link_below_references_logs_or_objects_by(actor: Actor) {
    let places = [
        ("logs/refs/heads/main", "file"),
        ("logs/refs/heads", "home"),
        ("logs/refs", "home"),
        ("logs", "home"),
        ("refs/heads", "home"),
        ("refs/agency", "home"),
        ("refs/agency/store", "file"),
        ("refs/agency/lease", "home"),
        ("objects/00", "home"),
        ("objects/pack", "home"),
        ("objects/info", "home"),
    ];
    for (place, target) in places {
        let (queue, world) = (Queue::of(actor, HONEST), World::new(actors()[0]));
        if let Some((uid, gid)) = queue.ground.owner() {
            let owner = format!("{uid}:{gid}");
            let given =
                std::process::Command::new("chown").args(["-R", &owner]).arg(world.outside("")).status();
            assert!(given.expect("chown").success());
        }
        queue.tasks(1);
        let path = queue.path().join(".git").join(place);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        link(&world.outside(target), &path);
        let before = world.everything_outside();
        for arguments in
            [&["run"][..], &["task", "new", "--title", "x"], &["sandbox", "--base", "HEAD", "--", "true"]]
        {
            let said = queue.ground.agency(arguments);
            assert!(!said.err.contains("panicked"), "{place}: {said:?}");
            let changes = before.diff(&world.everything_outside());
            assert!(changes.is_empty(), "{place}: {arguments:?} changed: {}", changes.join("\n"));
        }
    }
}

/// Behind a link lie the work trees of another repository, which would be brought along instead of this one.
#[test]
fn a_work_tree_of_another_repository_is_not_brought_along() {
    let (queue, other) = (Queue::with_agent(HONEST), World::new(actors()[0]));
    let linked = other.outside("linked");
    other.ground.git(&["worktree", "add", "--quiet", "-b", "topic", linked.to_str().expect("text")]);
    other.ground.git(&["-C", linked.to_str().expect("text"), "symbolic-ref", "HEAD", "refs/heads/main"]);
    let theirs = other.ground.path().join(".git/worktrees/linked");
    for whole in [false, true] {
        let place = queue.path().join(".git/worktrees");
        let _ = fs::remove_file(&place).or_else(|_| fs::remove_dir_all(&place));
        match whole {
            true => link(theirs.parent().expect("a parent"), &place),
            false => {
                fs::create_dir(&place).expect("made");
                link(&theirs, &place.join("w"));
            }
        }
        queue.ground.git(&["config", "core.bare", "true"]);
        let before = other.everything_outside();
        let index = fs::read(theirs.join("index")).expect("an index");
        let tasks = queue.tasks(1);
        let said = queue.run(&[]);
        queue.ground.git(&["config", "core.bare", "false"]);
        let changes = before.diff(&other.everything_outside());
        assert!(changes.is_empty(), "{said:?}: {}", changes.join("\n"));
        assert_eq!(fs::read(theirs.join("index")).expect("an index"), index, "{said:?}");
        assert_eq!(said.code, 0, "{said:?}");
        assert!(queue.ground.exists(&format!("src/{}", tasks[0])), "it landed in its own work tree");
    }
}

/// What looks like objects from afar, as caches of packages do.
#[test]
fn folders_that_only_begin_like_objects_are_not_borrowed() {
    let world = World::new(actors()[0]);
    let cache = world.outside("cache");
    fs::create_dir_all(cache.join("aa/bb")).expect("made");
    fs::write(cache.join("aa/bb/secret"), SECRET).expect("written");
    for named in [cache.display().to_string(), format!("\"{}\"", cache.display())] {
        fs::write(world.git("objects/info/alternates"), format!("{named}\n")).expect("written");
        world.assert_refused(&[&["status"], &["sandbox", "--", "true"]], &["objects/info/alternates"]);
    }
}

/// Git completes a path with `.git`, and runs the hooks it finds there as the person who pushes.
#[test]
fn an_upstream_that_git_completes_runs_nothing_whoever_named_it() {
    for actor in actors() {
        let world = World::new(actor);
        let ground = &world.ground;
        ground.remove(".kodingx");
        ground.write(
            "codifica.json",
            r#"{"protocol": "codifica", "version": "0.2", "spec": "s.md", "state": "work.md"}"#,
        );
        ground.write("s.md", "# The specification\n");
        ground.write("work.md", "# Work\n\n## Active\n\n```yaml\n- id: A-1\n  type: build\n  state: todo\n  owner: agent:shell\n  title: One\n  acceptance:\n    - it works\n```\n");
        ground.commit_all();
        ground.git(&["clone", "--quiet", "--bare", ".", "tools/mirror.git"]);
        let ran = ground.user().join("ran");
        for hook in ["pre-receive", "update", "post-receive"] {
            ground.write_program(
                &format!("tools/mirror.git/hooks/{hook}"),
                &format!("#!/bin/sh\ntouch {}\n", ran.display()),
            );
        }
        ground.git(&["remote", "add", "origin", "tools/mirror"]);
        ground.git(&["fetch", "--quiet", "origin"]);
        ground.git(&["branch", "--quiet", "--set-upstream-to=origin/main", "main"]);
        let named = ground.path().join("tools/mirror").display().to_string();
        for trusted in [&["trust", "--yes"][..], &["trust", "--yes", "--upstream", &named]] {
            assert_eq!(world.agency(trusted).code, 0);
            for arguments in [
                &["task", "move", "A-1", "in_progress", "--as", "agent:shell"][..],
                &["task", "new", "--title", "x"],
            ] {
                world.agency(arguments);
                assert!(!ran.exists(), "{trusted:?}: {arguments:?} ran a hook");
            }
        }
        // That it would have run is shown by git itself.
        ground.git(&["push", "--quiet", "origin", "HEAD~0:refs/heads/other"]);
        assert!(ran.exists());
    }
}
