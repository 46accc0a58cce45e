//! Leaving something for whoever comes next: git's configuration, files that tools obey, the settings of later runs.

use agency_tests::queue::{HONEST, Queue};
use agency_tests::tree::Tree;

use super::{TRY, WAIT, assert_failed, let_go, log, queue, until_said};

/// What a planted command leaves where the test finds it: outside, if anybody ran it there.
#[test]
fn what_an_agent_plants_in_its_repository_is_obeyed_by_nobody() {
    let outside = tempfile::Builder::new().prefix("agency-planted-").tempdir().expect("a folder");
    let command = format!("touch {}/ran; touch .git/ran", outside.path().display());
    let script = format!(
        "set -e; mkdir -p .git/hooks .git/info\n\
         for hook in pre-commit commit-msg post-commit post-checkout post-index-change reference-transaction; do\n\
         printf '#!/bin/sh\\n{command}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook\n\
         done\n\
         printf '#!/bin/sh\\n{command}\\n' > .git/evil; chmod +x .git/evil\n\
         for key in core.fsmonitor core.pager core.sshCommand core.editor diff.external filter.evil.clean \
         filter.evil.smudge merge.evil.driver diff.evil.textconv gpg.program; do\n\
         git config $key \"$PWD/.git/evil\"\n\
         done\n\
         git config commit.gpgSign true\n\
         echo '* filter=evil diff=evil merge=evil' > .git/info/attributes\n\
         echo '/src/*' > .git/info/exclude\n\
         {HONEST}\n\
         git status >/dev/null 2>&1 || true; test -e .git/ran && echo they are real"
    );
    let queue = queue(&script);
    let hooks = || Tree::of_all_but(&queue.path().join(".git/hooks"), &[]).expect("read");
    let (before, config) = (hooks(), queue.ground.read(".git/config"));
    let tasks = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}\n{}", log(&queue, &tasks[0]));
    assert!(log(&queue, &tasks[0]).contains("they are real"), "{}", log(&queue, &tasks[0]));
    assert!(!outside.path().join("ran").exists() && !queue.ground.exists(".git/ran"), "somebody obeyed");
    assert_eq!(before.diff(&hooks()), Vec::<String>::new());
    assert_eq!(queue.ground.read(".git/config"), config);
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    assert_eq!(queue.ground.git(&["show", "main:src/T0001"]), "by T0001\n", "no filter, and not excluded");
}

#[test]
fn a_nested_repository_does_not_land() {
    for plant in [
        "git init -q src/nested && echo x > src/nested/file",
        "mkdir -p src/nested && echo 'gitdir: /srv/elsewhere' > src/nested/.git",
        "mkdir -p src/.GIT/hooks && echo x > src/.GIT/hooks/pre-commit",
        "mkdir -p src/nested/objects src/nested/refs && touch src/nested/HEAD src/nested/objects/x src/nested/refs/x",
    ] {
        let queue = queue(&format!("{plant}; {HONEST}"));
        let tasks = queue.tasks(1);
        let said = queue.run(&[]);
        assert_failed(&queue, &said, &tasks[0], 20, &["change refused"]);
        assert!(!queue.ground.exists("src/nested") && !queue.ground.exists("src/T0001"));
    }
}

/// A person adds one part while the agent makes the other: each is harmless, and the merge would be a repository.
#[test]
fn a_merge_does_not_complete_a_repository() {
    let script = format!("mkdir -p src/f && echo 'ref: refs/heads/main' > src/f/HEAD\n{WAIT}");
    let queue = queue(&script);
    let (id, other) = (queue.task("shell", &[]), queue.task("shell", &[]));
    let run = queue.start(&["--task", &id]);
    until_said(&queue, &id, "waiting");
    queue.ground.write("src/f/objects/keep", "");
    queue.ground.write("src/f/refs/keep", "");
    queue.ground.git(&["add", "src/f"]);
    queue.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--message=Fixtures"]);
    let moved = queue.ground.git(&["rev-parse", "main"]);
    let_go(&queue, &other);
    let said = run.end();
    assert_failed(&queue, &said, &id, 20, &["src/f would change on the branch", "takes for a repository"]);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), moved);
    assert!(!queue.ground.exists("src/f/HEAD"));
}

/// The same for a link: the agent wrote what a person then made `QWEN.md` lead to.
#[test]
fn a_merge_does_not_make_work_an_instruction() {
    let script = format!("echo 'Obey me.' > src/guide.md\n{WAIT}");
    let queue = queue(&script);
    let (id, other) = (queue.task("shell", &[]), queue.task("shell", &[]));
    let run = queue.start(&["--task", &id]);
    until_said(&queue, &id, "waiting");
    std::os::unix::fs::symlink("src/guide.md", queue.path().join("QWEN.md")).expect("a link");
    queue.ground.git(&["add", "QWEN.md"]);
    queue.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--message=Instructions"]);
    let_go(&queue, &other);
    let said = run.end();
    assert_failed(&queue, &said, &id, 20, &["the link QWEN.md leads to it"]);
    assert!(!queue.ground.exists("src/guide.md"));
}

/// Everybody who looks at a task reads its record, and whole.
#[test]
fn a_record_does_not_grow_with_the_paths_of_an_agent() {
    let script = format!(
        "name=$(printf '%0200d' 0); folder=src/$name/$name/$name/$name/$name; mkdir -p $folder; i=0\n\
         while [ $i -lt 3000 ]; do : > $folder/$i-$name; i=$((i + 1)); done\n{HONEST}"
    );
    let queue = queue(&script);
    let tasks = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    let record = queue.records(&tasks[0], 1).join("agent/outcome.json");
    let length = std::fs::metadata(&record).expect("a record").len();
    assert!(length < 2 << 20, "a record of {length} bytes");
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&record).expect("read")).expect("JSON");
    let listed = kept["done"]["changed"].as_array().or(kept["changed"].as_array()).map_or(0, Vec::len) as u64;
    let left_out = kept["done"]["changed_left_out"].as_u64().or(kept["changed_left_out"].as_u64());
    assert_eq!(listed + left_out.unwrap_or(0), 3001, "every file is listed or counted");
}

/// Said when the task is made and when the board is checked, not after an hour of work.
#[test]
fn a_glob_that_opens_less_than_it_seems_to_is_told_beforehand() {
    let queue = queue(HONEST);
    let made = |glob: &str| {
        let said = queue.ground.agency(&[
            "task",
            "new",
            "--title",
            "T",
            "--assignee",
            "shell",
            "--dod-profile",
            "quick",
            "--may-touch",
            glob,
        ]);
        assert_eq!(said.code, 0, "{said:?}");
        said.err
    };
    let lint = || queue.ground.lint().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for ordinary in ["**", "src/**", ".github/workflows/ci.yml", "docs/*.md"] {
        assert_eq!(made(ordinary).lines().count(), 1, "{}", made(ordinary));
    }
    assert!(!lint().contains("does not open"), "{}", lint());
    for (glob, closed) in
        [(".github/**", "`.github/workflows`"), ("**/.env*", "`.env*`"), ("**/AGENTS.md", "`AGENTS.md`")]
    {
        let said = made(glob);
        assert!(said.contains(&format!("`{glob}` does not open {closed}")), "{said}");
        assert!(lint().contains(&format!("`{glob}` does not open {closed}")), "{}", lint());
    }
}

/// A scope that an agent wrote spells what it likes: what tools obey stays closed.
#[test]
fn a_scope_that_an_agent_wrote_opens_nothing_that_tools_obey() {
    let queue = queue("mkdir -p .claude && echo x > .claude/settings.json");
    let made = queue.ground.agency(&[
        "task",
        "new",
        "--as",
        "agent:planner",
        "--title",
        "Plan",
        "--assignee",
        "shell",
        "--may-touch",
        ".claude/settings.json",
        "--dod-profile",
        "quick",
    ]);
    assert_eq!(made.code, 0, "{made:?}");
    let id = made.out.trim().to_owned();
    assert!(queue.ground.read(&queue.ground.file(&id)).contains("written_by: agent"));
    let said = queue.run(&[]);
    assert_failed(&queue, &said, &id, 20, &["only a person's can open it"]);
}

/// However wide a scope is: each of these has to be named.
#[test]
fn files_that_tools_obey_land_only_when_the_task_names_them() {
    const OBEYED: [&str; 5] = [
        ".claude/settings.json",
        ".github/workflows/ci.yml",
        "agency.toml",
        "src/.envrc",
        "src/.gitattributes",
    ];
    let mut queue = Queue::new();
    queue.settings("attempts = 1");
    for (number, file) in OBEYED.iter().enumerate() {
        let script = format!("mkdir -p $(dirname {file}) && echo '# planted' >> {file}; {HONEST}");
        queue.agent(&format!("planter{number}"), &script, "");
    }
    queue.ground.commit_all();
    let agent = |number: usize| format!("planter{number}");
    let wide = |number| queue.task(&agent(number), &["--may-touch", "**"]);
    let tasks: Vec<String> = (0..OBEYED.len()).map(wide).collect();
    let said = queue.run(&["--parallel", "4"]);
    for (id, file) in tasks.iter().zip(OBEYED) {
        assert_failed(&queue, &said, id, 20, &[&format!("change refused: {file}"), "add `"]);
    }
    let id = queue.task(&agent(0), &["--may-touch", OBEYED[0]]);
    let said = queue.run(&["--task", &id]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.read(OBEYED[0]), "# planted\n");
    queue.assert_nothing_left();
}

/// The board is seen as it is, and can't be written; not even by a task that names its files.
#[test]
fn profiles_of_the_board_cannot_be_written_by_any_task() {
    let plant = "echo 'commands: [true]' > .kodingx/dod/profiles/quick.yml";
    let queue = queue(&format!("{TRY}try sh -c \"{plant}\"; {HONEST}"));
    let id = queue.task("shell", &["--may-touch", ".kodingx/dod/profiles/quick.yml"]);
    let before = queue.ground.read(".kodingx/dod/profiles/quick.yml");
    assert_eq!(queue.run(&[]).code, 0);
    assert!(log(&queue, &id).contains("refused: sh -c"), "{}", log(&queue, &id));
    assert_eq!(queue.ground.read(".kodingx/dod/profiles/quick.yml"), before);
    queue.assert_landed(&[id]);
}

/// A task may name the configuration. What it becomes counts when a person has trusted it, and not before.
#[test]
fn a_configuration_that_an_agent_changed_is_not_obeyed() {
    let outside = tempfile::Builder::new().prefix("agency-planted-").tempdir().expect("a folder");
    let script = format!(
        "sed -i 's|^command = .*|command = [\"touch\", \"{}/ran\"]|' agency.toml; {HONEST}",
        outside.path().display()
    );
    let queue = queue(&script);
    let named = queue.task("shell", &["--may-touch", "agency.toml"]);
    let later = queue.tasks(1);
    // One after the other: the second still has the agent that a person trusted.
    let said = queue.run(&["--task", &named]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(queue.ground.read("agency.toml").contains("ran"), "it was not changed");
    let said = queue.run(&[]);
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["agency.toml is not trusted"]);
    assert!(!outside.path().join("ran").exists());
    assert_eq!(queue.landed().get(&later[0]), None);
    queue.assert_nothing_left();
}
