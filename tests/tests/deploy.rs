//! What is deployed can be made here, and works.

use std::path::Path;
use std::process::Command;

use agency_tests::engine::Engine;
use agency_tests::repository::{Repository, actors, skip};

#[test]
fn the_image_of_agency_is_one_static_program_and_runs_as_nobody() {
    let engine = match Engine::find() {
        Ok(engine) => engine,
        Err(reason) => {
            return skip("the_image_of_agency_is_one_static_program_and_runs_as_nobody", &reason);
        }
    };
    let repository = Repository::without_git(actors()[0], &[]).expect("a folder");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/container/build");
    let output = Command::new(build)
        .arg(repository.agency())
        .env("DOCKER_HOST", engine.address())
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .expect("a script");
    assert!(output.status.success(), "{output:?}");
    let image = String::from_utf8(output.stdout).expect("a name").trim().to_owned();
    let run = |arguments: &[&str]| {
        let usual = ["run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", &image];
        engine.ask(&[&usual, arguments].concat())
    };
    assert!(image.starts_with("localhost/agency:"), "{image}");
    assert_eq!(run(&["--version"]), image.replace("localhost/agency:", "agency "));
    assert!(run(&["sandbox", "--help"]).contains("--isolation"));
    assert_eq!(engine.ask(&["inspect", "--format", "{{.Config.User}}", &image]), "10001:10001");
}
