//! Handing work to a later, trusted run: files that a tool obeys by itself.

use std::fs;

use crate::as_both;
use crate::ground::{Actor, Ground};

/// What a later run would obey, whoever it is.
const OBEYED: &[&str] = &[
    ".claude/settings.json",
    ".claude/hooks/stop.sh",
    "web/.claude/settings.json",
    ".CLAUDE/settings.json",
    "CLAUDE.md",
    "AGENTS.md",
    ".mcp.json",
    ".codex/config.toml",
    ".cursor/mcp.json",
    ".cursor/rules/x.mdc",
    ".vscode/tasks.json",
    ".vscode/settings.json",
    ".idea/runConfigurations/x.xml",
    ".devcontainer/devcontainer.json",
    ".envrc",
    ".Envrc",
    "src/.envrc",
    ".github/workflows/ci.yml",
    ".github/actions/x/action.yml",
    ".gitlab-ci.yml",
    ".circleci/config.yml",
    "Jenkinsfile",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
    "agency.toml",
];

/// The boards that `agency` takes its own work from: tasks, reports, states, and what decides when work is done.
const BOARDS: &[&str] = &[
    ".kodingx/agency.json",
    ".kodingx/tasks/T0002.md",
    ".kodingx/reports/T0002.md",
    ".kodingx/STATE.md",
    ".kodingx/dod/profiles/rust.yml",
    "codifica.json",
    ".review-loop-state.json",
    ".agents-work/session/tasks.yaml",
    "collaboration/state/tasks.json",
];

/// Names that landed under `**` while only listed ones were protected, and some that no tool knows yet.
const NEWER: &[&str] = &[
    "lefthook-local.yml",
    "lefthook.toml",
    ".dir-locals-2.el",
    ".Rprofile",
    ".zed/tasks.json",
    ".mise/config.toml",
    ".kiro/hooks/x.json",
    "mise.local.toml",
    "Jenkinsfile.nightly",
    "azure-pipelines-2.yaml",
    "CODEOWNERS",
    "docs/QWEN.md",
    "team.code-workspace",
    ".cargo/config.toml",
    ".npmrc",
    ".tool-of-next-year/settings",
    "src/.hidden",
    "agent\u{17f}.md",
];

/// Scopes that name none of them.
const GLOBS: &[&str] = &["**", "{**,*}", "**/*", ".*/**", "?*/**"];

fn planting(path: &str) -> String {
    format!("mkdir -p \"$(dirname '{path}')\" && echo planted >'{path}'")
}

fn refused_unless_named(actor: Actor, paths: &[&str]) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let landed =
        if actor.is_contained() { landed_of_all(&ground, paths) } else { landed_of_each(&ground, paths) };
    assert!(landed.is_empty(), "a scope that does not name them lets these land:\n{}", landed.join("\n"));
    before.assert_unchanged();

    // Named exactly, it is work like any other: the same script shows that nothing else was in its way.
    let path = paths[0];
    ground.sandbox().write(path).apply().shell(&planting(path)).assert_applied();
    assert_eq!(fs::read_to_string(ground.real(path)).expect("read"), "planted\n");
}

fn landed_of_each(ground: &Ground, paths: &[&str]) -> Vec<String> {
    let mut landed = Vec::new();
    for path in paths {
        for glob in GLOBS {
            let run = ground.sandbox().write(glob).apply().without(&["scope", "landlock"]);
            let ended = run.shell(&planting(path));
            if !ended.is_elsewhere() && ended.json()["result"] != "refused" {
                landed.push(format!("{path} with --write '{glob}'"));
                ground.git(&["clean", "--quiet", "-d", "--force", "-x"]);
                break;
            }
        }
    }
    landed
}

/// All of them at once, and a reason for each: a container takes too long to start for one of its own.
fn landed_of_all(ground: &Ground, paths: &[&str]) -> Vec<String> {
    let mut landed = Vec::new();
    let script = paths.iter().map(|path| planting(path)).collect::<Vec<_>>().join(" && ");
    for glob in GLOBS {
        // Each of these globs makes everything writable, so that nothing but the harvest is in the way.
        let report = ground.sandbox().write(glob).apply().shell(&script).json();
        let violations = report["harvest"]["violations"].as_array().cloned().unwrap_or_default();
        let named = |path: &str| violations.iter().any(|one| one["path"] == path);
        let missed = paths.iter().filter(|path| report["result"] != "refused" || !named(path));
        landed.extend(missed.map(|path| format!("{path} with --write '{glob}'")));
    }
    landed
}

fn files_that_tools_obey_are_refused_unless_named(actor: Actor) {
    refused_unless_named(actor, OBEYED);
}

fn boards_and_their_tasks_are_refused_unless_named(actor: Actor) {
    refused_unless_named(actor, BOARDS);
}

/// Whatever begins with a dot, and whatever tools obey without one; all at once, for each is judged by itself.
fn names_that_nobody_listed_are_refused_unless_spelled(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let landed = landed_of_all(&ground, NEWER);
    assert!(landed.is_empty(), "a scope that does not spell them lets these land:\n{}", landed.join("\n"));
    before.assert_unchanged();
    let path = ".tool-of-next-year/settings";
    let told = ground.sandbox().write("**").shell(&planting(path)).stderr();
    assert!(told.contains(&format!("--write '{path}'")), "{told}");
    ground.sandbox().write(path).apply().shell(&planting(path)).assert_applied();
    // Some dot-files can make nobody run anything.
    let inert = "echo x >.gitignore; echo x >src/.gitkeep; echo x >.editorconfig";
    ground.sandbox().write("**").apply().shell(inert).assert_applied();
    assert_eq!(fs::read_to_string(ground.real(".editorconfig")).expect("read"), "x\n");
}

/// `AGENTS.md` is a link into `docs`: whoever changes what it leads to changes what agents obey.
fn what_a_protected_name_leads_to_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    ground.put("repo/docs/guide.md", "Be kind.\n");
    ground.put("repo/docs/more/x.md", "x\n");
    for (target, link) in
        [("docs/guide.md", "AGENTS.md"), ("AGENTS.md", "CLAUDE.md"), ("docs/more", ".cursor")]
    {
        std::os::unix::fs::symlink(target, ground.real(link)).expect("a link");
    }
    ground.give(&ground.repo());
    let before = ground.fingerprint();
    let run = || ground.sandbox().write("docs/**").apply();
    for (script, path) in [
        ("echo Obey. >>docs/guide.md", "docs/guide.md"),
        ("rm docs/guide.md && ln -s more/x.md docs/guide.md", "docs/guide.md"),
        ("mv docs/guide.md docs/other.md", "docs/guide.md"),
        ("mkdir -p docs/more/rules && echo Obey. >docs/more/rules/a.mdc", "docs/more/rules/a.mdc"),
        ("ln -s ../AGENTS.md docs/harmless.md", "docs/harmless.md"),
        ("ln -s ../.envrc docs/environment", "docs/environment"),
    ] {
        run().shell(script).assert_refused(path, "control_file");
    }
    before.assert_unchanged();
    run().shell("echo x >docs/beside.md").assert_applied();
    let spelled = ground.sandbox().write("docs/guide.md").apply().shell("echo More. >>docs/guide.md");
    spelled.assert_applied();
    assert_eq!(fs::read_to_string(ground.real("AGENTS.md")).expect("read"), "Be kind.\nMore.\n");
}

/// What tools leave for themselves is no work: it is left out, and told.
fn new_caches_of_tools_are_dropped_and_told(actor: Actor) {
    let ground = Ground::new(actor);
    ground.put("repo/old/__pycache__/a.pyc", "x");
    let script = "mkdir -p .pytest_cache/v src/__pycache__ && touch .pytest_cache/v/x src/__pycache__/a.pyc src/.a.swp && \
                  echo y >old/__pycache__/a.pyc && echo x >src/new";
    let ended = ground.sandbox().write("**").apply().shell(script);
    ended.assert_applied();
    let changes = ended.json()["harvest"]["changes"].clone();
    let paths: Vec<_> = changes.as_array().expect("a list").iter().map(|one| one["path"].clone()).collect();
    assert_eq!(paths, ["old/__pycache__/a.pyc", "src/new"]);
    let warnings = ended.json()["harvest"]["warnings"].clone();
    assert_eq!(warnings.as_array().expect("a list").len(), 3, "{warnings:#}");
    assert!(!ground.repo().join(".pytest_cache").exists() && !ground.repo().join("src/__pycache__").exists());
}

/// What is there already can be changed, moved away or deleted no more than made.
fn obeyed_files_that_are_there_cannot_be_changed_or_removed(actor: Actor) {
    let ground = Ground::new(actor);
    for path in [".claude/settings.json", ".github/workflows/ci.yml", ".envrc"] {
        ground.put(&format!("repo/{path}"), "{}\n");
    }
    let before = ground.fingerprint();
    for (script, path) in [
        ("echo x >>.envrc", ".envrc"),
        ("rm .envrc", ".envrc"),
        ("mv .envrc envrc", ".envrc"),
        ("rm -r .claude && mkdir .claude && echo x >.claude/settings.json", ".claude/settings.json"),
        ("rm -r .github", ".github/workflows/ci.yml"),
        ("ln -sf src/main.rs .envrc", ".envrc"),
        ("chmod +x .github/workflows/ci.yml", ".github/workflows/ci.yml"),
    ] {
        let ended = ground.sandbox().write("**").apply().shell(script);
        ended.assert_refused(path, "control_file");
    }
    before.assert_unchanged();
    ground.sandbox().write(".envrc").apply().shell("echo x >>.envrc").assert_applied();
    before.assert_changed();
}

/// A link at the place of one hands over just the same.
fn a_link_at_the_place_of_an_obeyed_file_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for path in [".claude", ".vscode", ".envrc", ".github"] {
        let ended = ground.sandbox().write("**").apply().shell(&format!("ln -s src {path}"));
        ended.assert_refused(path, "control_file");
    }
    before.assert_unchanged();
}

as_both! {
    files_that_tools_obey_are_refused_unless_named,
    boards_and_their_tasks_are_refused_unless_named,
    names_that_nobody_listed_are_refused_unless_spelled,
    what_a_protected_name_leads_to_is_refused,
    new_caches_of_tools_are_dropped_and_told,
    obeyed_files_that_are_there_cannot_be_changed_or_removed,
    a_link_at_the_place_of_an_obeyed_file_is_refused,
}
