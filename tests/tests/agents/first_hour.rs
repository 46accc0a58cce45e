//! A first hour with a real program: a project with dependencies, what `agency init` writes, and a preset.

use agency_tests::ground::Ground;
use agency_tests::programs::Program;
use agency_tests::projects::{NODE, has, reaches};
use agency_tests::repository::skip;

use crate::documented::documented;
use crate::shop::{Shop, name, script};

fn first_hour(test: &str, program: Program) {
    if !has("npm") {
        return skip(test, "there is no npm");
    }
    if !reaches(test, "registry.npmjs.org") {
        return;
    }
    let commands =
        ["node -e 'if (!require(\"./src\")(7)) process.exit(1)'", "printf '// changed\\n' >> src/index.js"];
    let Some(shop) = Shop::open(test, program, script(program, &commands)) else { return };
    let ground = Ground::without_board(NODE);
    // Where its model is, is the user's business and not the project's. codex has to be told in its configuration.
    let builder = match program {
        Program::Codex => {
            let folder = ground.user().join("agency");
            std::fs::create_dir_all(&folder).expect("a folder");
            let table = documented("[agents.codex-proxy]", shop.model.port());
            std::fs::write(folder.join("agency.toml"), table).expect("written");
            "codex-proxy"
        }
        Program::Claude | Program::MiniSweAgent => name(program),
    };
    ground.commit_all();
    ground.ok(&["init", "--orchestrator", "other", "--builders", builder]);
    ground.commit_all();
    ground.ok(&["trust", "--yes"]);
    let id =
        ground.ok(&["task", "new", "--title", "Change it", "--must-touch", "src/**"]).out.trim().to_owned();
    let mut command = ground.command(&["run"]);
    command.envs(shop.variables()).stdin(std::process::Stdio::null());
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}\n{}", ground.read("agency.toml"));
    assert_eq!(ground.status(&id), "DONE");
    // What it did is read as sentences.
    let logs = ground.ok(&["logs", &id]).out;
    assert!(logs.contains("runs: ") && !logs.contains('{'), "{logs}");
}

#[test]
fn with_claude() {
    first_hour("first_hour::with_claude", Program::Claude);
}

#[test]
fn with_codex() {
    first_hour("first_hour::with_codex", Program::Codex);
}
