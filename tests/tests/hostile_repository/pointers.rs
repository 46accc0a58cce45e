//! What a `.git` says of itself: where its objects are, whose work tree it is, where it is shared.

use std::fs;

use agency_tests::repository::actors;

use crate::world::{COMMANDS, SECRET, World, link};

/// Commands that never come to the repository's contents.
fn all() -> &'static [&'static [&'static str]] {
    COMMANDS
}

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
            world.assert_refused(all(), &[".git/commondir names", "remove "]);
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
            world.assert_refused(all(), &["which is not a folder of git objects: it holds `id_rsa`"]);
        }
        // One behind another.
        let objects = world.outside("objects");
        fs::create_dir_all(objects.join("info")).expect("made");
        fs::write(objects.join("info/alternates"), world.outside("ssh").display().to_string())
            .expect("written");
        world.give(&objects);
        fs::write(&list, format!("{}\n", objects.display())).expect("written");
        world.assert_refused(all(), &["it holds `id_rsa`"]);
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
