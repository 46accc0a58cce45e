//! Where state is found: without a home, on an overlay, from two worktrees, after a move, in a copy.

use std::fs;
use std::path::{Path, PathBuf};

use agency_tests::ground::Said;
use agency_tests::queue::{HONEST, Queue};
use agency_tests::repository::{Actor, actors, skip};

use crate::world::World;

fn in_folder(queue: &Queue, folder: &Path, arguments: &[&str]) -> Said {
    Said::from(queue.ground.command(arguments).current_dir(folder).output().expect("agency starts"))
}

/// The folder of a repository's state, by the name of its work tree.
fn states(queue: &Queue, name: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(queue.ground.state_home().join("repositories")).expect("state").flatten();
    let start = format!("{name}-");
    all.map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&start)))
        .collect()
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp").success());
}

/// A clone of a queue's repository in a folder of its own.
struct Clone {
    folder: tempfile::TempDir,
}

impl Clone {
    fn of(queue: &Queue) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("agency-clone-")
            .tempdir_in(queue.path().parent().expect("a parent"));
        let clone = Self { folder: folder.expect("a folder") };
        if let Some((uid, gid)) = queue.ground.owner() {
            std::os::unix::fs::chown(clone.folder.path(), Some(uid), Some(gid)).expect("given");
        }
        copy(queue.path(), &clone.at("first"));
        clone
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn a_moved_repository_is_refused_until_its_store_is_moved_along() {
    actors().into_iter().for_each(a_moved_repository_is_refused_until_its_store_is_moved_along_by);
}

fn a_moved_repository_is_refused_until_its_store_is_moved_along_by(actor: Actor) {
    let queue = Queue::of(actor, "exit 3");
    let clone = Clone::of(&queue);
    let first = clone.at("first");
    in_folder(&queue, &first, &["trust", "--yes"]);
    let id = in_folder(
        &queue,
        &first,
        &[
            "task",
            "new",
            "--title",
            "One",
            "--must-touch",
            "src/**",
            "--assignee",
            "shell",
            "--dod-profile",
            "quick",
        ],
    );
    assert_eq!(in_folder(&queue, &first, &["run"]).code, 10, "{id:?}");
    let before = in_folder(&queue, &first, &["ps", "--all", "--json"]).json();
    fs::rename(&first, clone.at("second")).expect("moved");
    let second = clone.at("second");
    let refused = in_folder(&queue, &second, &["run"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    refused.assert_names(&["names another store", "agency adopt"]);
    let adopted = in_folder(&queue, &second, &["adopt", "--yes", "--json"]);
    assert_eq!(adopted.json()["adopted"], "store", "{adopted:?}");
    assert_eq!(in_folder(&queue, &second, &["ps", "--all", "--json"]).json(), before, "nothing is lost");
    assert_ne!(in_folder(&queue, &second, &["run"]).code, 2);
    assert!(states(&queue, "first").is_empty());
    let again = in_folder(&queue, &second, &["adopt", "--yes", "--json"]);
    assert_eq!(again.json()["adopted"], "nothing", "{again:?}");
}

#[test]
fn a_copy_does_not_inherit_and_two_never_share_a_store() {
    actors().into_iter().for_each(a_copy_does_not_inherit_and_two_never_share_a_store_by);
}

fn a_copy_does_not_inherit_and_two_never_share_a_store_by(actor: Actor) {
    let queue = Queue::of(actor, HONEST);
    let tasks = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    let clone = Clone::of(&queue);
    let copy = clone.at("first");
    let refused = in_folder(&queue, &copy, &["run"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let adopted = in_folder(&queue, &copy, &["adopt", "--yes", "--json"]);
    assert_eq!(adopted.json()["adopted"], "references", "the original is still at work: {adopted:?}");
    in_folder(&queue, &copy, &["trust", "--yes"]);
    assert_eq!(in_folder(&queue, &copy, &["run"]).code, 0);
    // The original goes on as before.
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
    assert_eq!(states(&queue, "first").len(), 1);
}

#[test]
fn another_repository_at_the_same_path_inherits_nothing() {
    actors().into_iter().for_each(another_repository_at_the_same_path_inherits_nothing_by);
}

fn another_repository_at_the_same_path_inherits_nothing_by(actor: Actor) {
    let queue = Queue::of(actor, HONEST);
    let clone = Clone::of(&queue);
    let (first, aside) = (clone.at("first"), clone.at("aside"));
    in_folder(&queue, &first, &["sandbox", "--base", "HEAD", "--", "true"]);
    fs::rename(&first, &aside).expect("moved");
    copy(&aside, &first);
    in_folder(&queue, &first, &["sandbox", "--base", "HEAD", "--", "true"]);
    assert_eq!(states(&queue, "first").len(), 2);
}

#[test]
fn linked_worktrees_share_one_state() {
    for actor in actors() {
        let world = World::new(actor);
        let linked = world.outside("linked");
        world.ground.git(&["worktree", "add", "--quiet", "-b", "topic", linked.to_str().expect("text")]);
        for folder in [world.ground.path(), &linked] {
            let mut command = world.ground.command(&["sandbox", "--base", "HEAD", "--", "true"]);
            assert!(command.current_dir(folder).status().expect("agency starts").success());
        }
        let all = fs::read_dir(world.ground.state_home().join("repositories")).expect("state").count();
        assert_eq!(all, 1);
    }
}

/// Leases and landings that no store of ours made are out of the way, and nothing they say is believed.
#[test]
fn references_that_came_along_are_set_aside_and_a_named_store_is_refused() {
    actors().into_iter().for_each(references_that_came_along_are_set_aside_and_a_named_store_is_refused_by);
}

fn references_that_came_along_are_set_aside_and_a_named_store_is_refused_by(actor: Actor) {
    let queue = Queue::of(actor, HONEST);
    let tasks = queue.tasks(2);
    let put = |name: &str, text: &str| {
        let file = queue.ground.user().join("record");
        fs::write(&file, text).expect("written");
        let object = queue.ground.git(&["hash-object", "-w", file.to_str().expect("text")]);
        queue.ground.git(&["update-ref", name, object.trim()]);
    };
    let head = queue.ground.git(&["rev-parse", "HEAD"]);
    let landed = format!(
        "agency landed 1\ntask kodingx:T0001\nepoch 1\nterm 1\nbranch refs/heads/main\ncommit {head}"
    );
    put("refs/agency/landed/kodingx/T0001", &landed);
    put(
        "refs/agency/lease/kodingx/T0002",
        "agency lease 1\ntask kodingx:T0002\nepoch 18446744073709551615\nterm 9\n",
    );
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["2 references below refs/agency belong to no store of yours", "refs/agency-aside/"]);
    queue.assert_landed(&tasks);
    assert_eq!(
        queue.ground.git(&["for-each-ref", "refs/agency-aside"]).lines().count(),
        2,
        "nothing is lost"
    );
    put("refs/agency/store", "agency store 1\nid 0123456789abcdef0123456789abcdef\n");
    let refused = queue.run(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    refused.assert_names(&["names another store (0123456789abcdef0123456789abcdef)", "agency adopt"]);
}

#[test]
fn without_a_home_there_is_a_sentence_and_a_variable_that_helps() {
    for actor in actors() {
        let world = World::new(actor);
        let bare = |variables: &[(&str, &str)]| {
            let mut command = world.ground.command(&["sandbox", "--", "true"]);
            for name in ["HOME", "XDG_STATE_HOME", "AGENCY_STATE_DIR"] {
                command.env_remove(name);
            }
            Said::from(command.envs(variables.iter().copied()).output().expect("agency starts"))
        };
        if let Some((uid, _)) = world.ground.owner() {
            // Made by root for another test's user of this number.
            let _ = fs::remove_dir_all(Path::new("/var/lib/agency").join(uid.to_string()));
        }
        // Root has an account that says where its home is; the user of the tests has none.
        match actor {
            Actor::Root => assert_eq!(bare(&[]).code, 0),
            Actor::User if world.ground.owner().is_some() => {
                let said = bare(&[]);
                assert_eq!(said.code, 2, "{said:?}");
                said.assert_names(&["has no home folder", "set AGENCY_STATE_DIR"]);
            }
            Actor::User => {}
        }
        let there = world.ground.state_home().display().to_string();
        assert_eq!(bare(&[("AGENCY_STATE_DIR", &there)]).code, 0);
        let inside = world.ground.path().join("state").display().to_string();
        for (value, words) in [
            ("relative/path", &["must be an absolute path"][..]),
            (&inside, &["lies in the work tree", "set AGENCY_STATE_DIR"]),
        ] {
            let said = bare(&[("AGENCY_STATE_DIR", value)]);
            assert_eq!(said.code, 2, "{value}: {said:?}");
            said.assert_names(words);
        }
    }
}

/// An upper layer can't lie on an overlay; the level that needs none still works, and so do layers in memory.
#[test]
fn a_home_on_an_overlay_is_told() {
    if !nix::unistd::Uid::current().is_root() {
        return skip("a_home_on_an_overlay_is_told", "only root can mount an overlay to live on");
    }
    let world = World::new(Actor::Root);
    let script = format!(
        "mount -t tmpfs none {0} && mkdir {0}/lower {0}/upper {0}/work {0}/home && \
         mount -t overlay none -o lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work {0}/home && \
         cd {1} && export AGENCY_STATE_DIR={0}/home/state && \
         {2} sandbox --layer disk -- true; echo disk $?; {2} sandbox -- true; echo memory $?; {2} doctor",
        world.outside("home").display(),
        world.ground.path().display(),
        world.ground.program_path().display()
    );
    let mut command = world.ground.program(Path::new("unshare"));
    let output = command.args(["--mount", "sh", "-c", &script]).output().expect("it starts");
    let said = Said {
        code: 0,
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(said.out.contains("disk 3"), "{said:?}");
    said.assert_names(&["can't mount the overlay", "a state folder that is not on an overlay"]);
    assert!(said.out.contains("memory 0"), "{said:?}");
    assert!(said.out.contains("state-folder"), "doctor says what the state folder can hold: {said:?}");
}

/// Where state lies is where the file system says, not where a name does.
#[test]
fn state_behind_a_link_into_the_work_tree_is_refused_before_it_is_made() {
    let world = World::new(actors()[0]);
    let door = world.outside("door");
    std::os::unix::fs::symlink(world.ground.path(), &door).expect("linked");
    let before = world.ground.fingerprint();
    let mut command = world.ground.command(&["sandbox", "--", "true"]);
    let said =
        Said::from(command.env("AGENCY_STATE_DIR", door.join("state")).output().expect("agency starts"));
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["lies in the work tree"]);
    world.ground.assert_unchanged(&before);
}

#[test]
fn another_users_home_is_not_where_roots_state_lies() {
    if !nix::unistd::Uid::current().is_root() {
        return skip("another_users_home_is_not_where_roots_state_lies", "only root is given another's HOME");
    }
    let (world, other) = (World::new(Actor::Root), World::new(Actor::User));
    let before = other.everything_outside();
    let mut command = world.ground.command(&["sandbox", "--base", "HEAD", "--", "true"]);
    command.env_remove("AGENCY_STATE_DIR").env("HOME", other.outside("home"));
    let said = Said::from(command.output().expect("agency starts"));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(before.diff(&other.everything_outside()), Vec::<String>::new());
    for path in fs::read_dir("/root/.local/state/agency/repositories").into_iter().flatten().flatten() {
        let name = world.ground.path().file_name().expect("a name").to_string_lossy().into_owned();
        if path.file_name().to_string_lossy().starts_with(&name) {
            fs::remove_dir_all(path.path()).expect("removed");
        }
    }
}

/// A person trusted what was there.
#[test]
fn another_repository_at_the_same_path_is_not_trusted() {
    actors().into_iter().for_each(another_repository_at_the_same_path_is_not_trusted_by);
}

fn another_repository_at_the_same_path_is_not_trusted_by(actor: Actor) {
    let queue = Queue::of(actor, HONEST);
    let clone = Clone::of(&queue);
    let (first, aside) = (clone.at("first"), clone.at("aside"));
    in_folder(&queue, &first, &["trust", "--yes"]);
    let again = in_folder(&queue, &first, &["trust", "--yes", "--json"]);
    assert_eq!(again.json()["new"].as_array().map(Vec::len), Some(0), "{again:?}");
    fs::rename(&first, &aside).expect("moved");
    copy(&aside, &first);
    let there = in_folder(&queue, &first, &["trust", "--yes", "--json"]);
    assert_ne!(there.json()["new"].as_array().map(Vec::len), Some(0), "{there:?}");
}
