//! A person's first hour: a project with dependencies, `agency init`, `agency trust`, a task, and its work on the branch.
//! Nothing is configured in the project beyond what `init` wrote. The packages come from their registries.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use agency_tests::ground::Ground;
use agency_tests::projects::{NODE, has, reaches};
use agency_tests::repository::skip;

/// A project as it comes from a clone, and a person whose agent is a script.
fn project(files: &[(&str, &str)], agent: &str) -> Ground {
    let ground = Ground::without_board(files);
    let command = serde_json::json!(["sh", "-c", agent]);
    let folder = ground.user().join("agency");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("agency.toml"), format!("[agents.shell]\ncommand = {command}\n"))
        .expect("written");
    ground.commit_all();
    ground
}

/// The first hour, as it is typed.
#[track_caller]
fn first_hour(ground: &Ground, scope: &str) -> String {
    let said = ground.ok(&["init", "--orchestrator", "other", "--builders", "shell"]);
    said.assert_names(&["next: commit it", "agency task new"]);
    ground.commit_all();
    ground.ok(&["trust", "--yes"]);
    let id = ground.ok(&["task", "new", "--title", "Change it", "--must-touch", scope]).out.trim().to_owned();
    let said = ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}\n{}", ground.read("agency.toml"));
    assert_eq!(ground.status(&id), "DONE");
    assert_eq!(ground.git(&["log", "--format=%s", "-1"]).trim(), "Change it");
    id
}

#[test]
fn a_node_project_with_dependencies() {
    let test = "a_node_project_with_dependencies";
    if !has("npm") {
        return skip(test, "there is no npm");
    }
    if !reaches(test, "registry.npmjs.org") {
        return;
    }
    let ground = project(
        NODE,
        "node -e 'if (!require(\"./src\")(7)) process.exit(1)' && echo '// changed' >> src/index.js",
    );
    first_hour(&ground, "src/**");
    let written = ground.read("agency.toml");
    assert!(
        written.contains("setup = { command = \"npm ci\", cache_key = [\"package-lock.json\""),
        "{written}"
    );
    assert!(!ground.exists("node_modules"), "the setup stays in its layer");
}

#[test]
fn a_python_project_with_dependencies() {
    let test = "a_python_project_with_dependencies";
    if !reaches(test, "pypi.org") {
        return;
    }
    let ground = project(
        &[
            ("requirements.txt", "iniconfig==2.0.0\n"),
            (".gitignore", ".venv/\n__pycache__/\n"),
            ("shop.py", "import iniconfig\n\n\ndef name():\n    return iniconfig.__name__\n"),
            ("tests/__init__.py", ""),
            (
                "tests/test_shop.py",
                "import unittest\n\nimport shop\n\n\nclass Test(unittest.TestCase):\n    def test_name(self):\n        self.assertEqual(shop.name(), \"iniconfig\")\n",
            ),
        ],
        ".venv/bin/python -c 'import shop; shop.name()' && echo '# changed' >> shop.py",
    );
    let id = first_hour(&ground, "shop.py");
    // The checks ran with the interpreter of the setup.
    let page = ground.ok(&["show", &id]).out;
    assert!(page.contains("check `.venv/bin/python -m unittest discover -s tests -t .`: passed"), "{page}");
}

/// At a terminal, `init` asks who builds and what installs; a person answers with keys.
#[test]
fn a_person_at_a_terminal_is_asked_who_builds_and_what_installs() {
    let ground = Ground::without_board(&[("package.json", "{}"), ("package-lock.json", "{}")]);
    let programs = ground.user().join("programs");
    std::fs::create_dir_all(&programs).expect("a folder");
    for program in ["codex", "gemini"] {
        std::os::unix::fs::symlink("/bin/true", programs.join(program)).expect("linked");
    }
    let line = format!("'{}' init --orchestrator other", ground.program_path().display());
    let mut command = ground.program(Path::new("script"));
    command.args(["-qec", &line, "/dev/null"]).env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
    child.stdin.take().expect("a pipe").write_all(b"y\nn\ny\n").expect("typed");
    let shown = child.wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{text}");
    for words in
        ["`codex` is installed. Is it to build here?", "`gemini` is installed", "Let `npm ci` install them?"]
    {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    assert_eq!(ground.json(".kodingx/agency.json")["builders"], serde_json::json!(["codex"]));
    assert!(ground.read("agency.toml").contains("\nsetup = { command = \"npm ci\""));
}

#[test]
fn a_rust_project() {
    let ground = project(
        &[
            ("Cargo.toml", "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            (
                "Cargo.lock",
                "# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\nversion = 4\n\n[[package]]\nname = \"shop\"\nversion = \"0.1.0\"\n",
            ),
            (".gitignore", "/target\n"),
            (
                "src/lib.rs",
                "pub fn twice(n: u32) -> u32 {\n    n * 2\n}\n\n#[test]\nfn it_doubles() {\n    assert_eq!(twice(2), 4);\n}\n",
            ),
        ],
        "cargo test --offline --quiet && echo '// changed' >> src/lib.rs",
    );
    first_hour(&ground, "src/**");
    assert!(!ground.exists("agency.toml"), "there is nothing to configure");
    assert!(!Path::new(ground.path()).join("target").exists());
}
