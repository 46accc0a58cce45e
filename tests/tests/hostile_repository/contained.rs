//! The same repositories at the level `container`: its private copy is made by another way than the layers of the other
//! levels, so what a `.git` says of itself is tried there once more.

use std::fs;
use std::path::Path;

use agency_tests::engine::Engine;
use agency_tests::ground::Said;
use agency_tests::repository::{actors, skip};
use rustix::fs::FileType;

use crate::world::{SHOW, World, link, special};

/// Plants one thing in `.git`, or leaves it out where there is nothing to plant it in.
type Plant = fn(&World);

/// What is planted, and whether a sandbox is refused because of it.
const PLANTED: &[(&str, bool, Plant)] = &[
    ("commondir", true, |world| fs::write(world.git("commondir"), outside(world, "ssh")).expect("written")),
    ("alternates", true, |world| {
        fs::write(world.git("objects/info/alternates"), outside(world, "ssh")).expect("written");
    }),
    ("a pipe as config", true, |world| special(&world.git("config"), FileType::Fifo)),
    ("a device as HEAD", true, |world| link(Path::new("/dev/zero"), &world.git("HEAD"))),
    ("a link as packed-refs", true, |world| link(&world.outside("ssh/id_rsa"), &world.git("packed-refs"))),
    ("modules behind a link", false, |world| link(&world.outside("home"), &world.git("modules"))),
    ("worktrees behind a link", false, |world| link(&world.outside("home"), &world.git("worktrees"))),
    ("logs behind a link", false, |world| {
        let _ = fs::remove_dir_all(world.git("logs"));
        link(&world.outside("home"), &world.git("logs"));
    }),
    ("a link in the tree", false, |world| {
        link(&world.outside("ssh/id_rsa"), &world.ground.path().join("src/key"));
    }),
    ("a pipe in the tree", false, |world| special(&world.ground.path().join("src/pipe"), FileType::Fifo)),
    ("state that came along", false, |world| link(&world.outside("home"), &world.git("agency"))),
];

fn outside(world: &World, name: &str) -> String {
    format!("{}\n", world.outside(name).display())
}

#[test]
fn a_container_shows_and_changes_nothing_outside() {
    let engine = match Engine::find() {
        Ok(engine) => engine,
        Err(reason) => return skip("a_container_shows_and_changes_nothing_outside", &reason),
    };
    let image = engine.image();
    for actor in actors() {
        for (name, refused, plant) in PLANTED {
            let world = World::in_group(actor, engine.group());
            plant(&world);
            world.give(&world.ground.path().join(".git"));
            let before = world.everything_outside();
            for base in [&[][..], &["--base", "HEAD"]] {
                let flags = ["sandbox", "--isolation", "container", "--image", &image, "--write", "src/**"];
                let mut command = world.ground.command(&flags);
                command.args(base).args(["--", "sh", "-c", SHOW]).env("DOCKER_HOST", engine.address());
                let said = world.bounded(name, || Said::from(command.output().expect("agency starts")));
                assert_eq!(said.code, if *refused { 2 } else { 0 }, "{name} {base:?}: {said:?}");
                let changes = before.diff(&world.everything_outside());
                assert!(changes.is_empty(), "{name}: {}", changes.join("\n"));
            }
        }
    }
}
