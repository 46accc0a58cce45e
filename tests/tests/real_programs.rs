//! Real programs in the sandbox: a build, git, editors that save by renaming, a shell with job control.

use agency_tests::repository::{Actor, Repository, actors, said, skip};
use agency_tests::terminal::Terminal;

#[test]
fn a_crate_builds_offline_with_its_target_as_scratch() {
    for actor in actors() {
        if actor == Actor::User && actors().len() > 1 {
            skip(
                "a_crate_builds_offline_with_its_target_as_scratch (user)",
                "the toolchain is in root's home, which the test user can't enter",
            );
            continue;
        }
        let repository = Repository::new(
            actor,
            &[
                ("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
                ("src/main.rs", "fn main() { println!(\"built inside\"); }\n"),
                (".gitignore", "/target\n"),
            ],
        )
        .expect("a repository");
        let output = repository
            .script(
                &["--write", "Cargo.lock"],
                "cargo build --quiet --offline && ./target/debug/small && cargo test --quiet --offline",
            )
            .expect("runs");
        assert!(output.status.success(), "{output:?}");
        let (stdout, stderr) = said(&output);
        assert!(stdout.starts_with("built inside\n"), "{stdout}");
        assert!(stderr.contains("+ Cargo.lock"), "{stderr}");
        assert!(!repository.path().join("target").exists());
    }
}

#[test]
fn git_behaves_and_touches_only_its_private_repository() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("src/a", "one\n"), ("b", "two\n")]).expect("a repository");
        let refs = || repository.command("git").args(["for-each-ref"]).output().expect("runs").stdout;
        let before = refs();
        let script = "git status --porcelain; echo x >> src/a; git diff --stat; git add -A; git commit -qm 'Inside' \
                      && git log --format=%s; git branch other; git checkout -q other; git stash list; git config user.name New; \
                      git config user.name; git gc --quiet && git fsck";
        let output = repository.script(&["--write", "src/**"], script).expect("runs");
        let (stdout, stderr) = said(&output);
        assert!(output.status.success(), "{stderr}");
        assert!(
            stdout.starts_with(" src/a | 1 +\n 1 file changed, 1 insertion(+)\nInside\nFirst\nNew\n"),
            "{stdout}"
        );
        assert_eq!(refs(), before);
        let name = repository.command("git").args(["config", "user.name"]).output().expect("runs");
        assert_eq!(said(&name).0, "Somebody\n");
        assert!(repository.command("git").args(["fsck"]).status().expect("runs").success());
    }
}

#[test]
fn editors_that_save_by_renaming_work_on_a_scope_of_one_file() {
    for actor in actors() {
        let repository =
            Repository::new(actor, &[("src/a.ts", "one\n"), ("src/b.ts", "two\n")]).expect("a repository");
        let one_file = &["--write", "src/a.ts", "--apply"];
        // sed and perl write a neighbour and rename it over the file, as most editors do.
        for (editor, expected) in [
            ("sed -i s/one/uno/ src/a.ts", "uno\n"),
            ("perl -pi -e s/uno/eins/ src/a.ts", "eins\n"),
            ("ex -sc '%s/eins/un/|x' src/a.ts 2>/dev/null || sed -i s/eins/un/ src/a.ts", "un\n"),
        ] {
            let output = repository.script(one_file, editor).expect("runs");
            assert!(output.status.success(), "{editor}: {output:?}");
            assert_eq!(repository.read("src/a.ts").expect("reads"), expected, "{editor}");
        }
        let output =
            repository.script(one_file, "sed -i s/un/x/ src/a.ts; sed -i s/two/y/ src/b.ts").expect("runs");
        assert_eq!(output.status.code(), Some(20), "{output:?}");
        assert_eq!(repository.read("src/a.ts").expect("reads"), "un\n");
        assert_eq!(repository.read("src/b.ts").expect("reads"), "two\n");
    }
}

#[test]
fn a_shell_under_a_terminal_has_job_control() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("a", "one\n")]).expect("a repository");
        let mut terminal =
            Terminal::start(&repository, &["--tty", "--", "bash", "--norc", "--noprofile", "-i"], &[]);
        terminal.press("PS1='ready> '\n");
        terminal.see("\nready> ");
        terminal.press("tty\n");
        terminal.see("/dev/pts/0");
        // What is typed comes back on the screen too; the quotes tell it from what the job prints.
        let job = "sh -c 'echo run\"\"ning; exec sleep 300'";
        terminal.press(&format!("{job}\n"));
        terminal.see("running");
        // Ctrl-Z stops the job and gives the shell its terminal back; Ctrl-C ends one.
        terminal.press("\x1a");
        terminal.see("Stopped");
        terminal.press("bg; jobs\n");
        terminal.see("Running");
        terminal.press(&format!("kill %1; wait %1 2>/dev/null; {job}\n"));
        terminal.see("running");
        terminal.press("\x03");
        terminal.see("ready> ");
        terminal.press("exit 7\n");
        assert_eq!(terminal.wait(), Some(7));
    }
}

/// What stands before a command for each level.
const LEVELS: &[&[&str]] = &[&["--isolation", "process"], &["--isolation", "landlock"]];

#[test]
fn python_and_shell_pipelines_with_children_run() {
    for (actor, level) in
        actors().into_iter().flat_map(|actor| LEVELS.iter().map(move |level| (actor, *level)))
    {
        let repository = Repository::new(actor, &[("a", "one\n")]).expect("a repository");
        let script = "seq 1 1000 | sort -rn | head -1; \
            python3 -c 'import subprocess; print(subprocess.run([\"echo\",\"child\"],capture_output=True,text=True).stdout.strip())'; \
            python3 -c 'import multiprocessing as m; a,b=m.Pipe(); p=m.Process(target=b.send,args=(\"sent\",)); p.start(); print(a.recv()); p.join()'; \
            python3 -c 'import pty,os; pty.spawn([\"echo\",\"pty\"])'; mktemp >/dev/null && echo temp";
        let output = repository.script(level, script).expect("runs");
        let (stdout, stderr) = said(&output);
        assert_eq!(
            stdout.replace('\r', ""),
            "1000\nchild\nsent\npty\ntemp\n",
            "{actor:?} {level:?}: {stderr}"
        );
        // Semaphores with names are in /dev/shm, which an ordinary user shares with itself without namespaces.
        if actor == Actor::Root || level == LEVELS[0] {
            let pool = "python3 -c 'import multiprocessing as m; print(sum(m.Pool(2).map(abs,range(10))))'";
            assert_eq!(said(&repository.script(level, pool).expect("runs")).0, "45\n", "{actor:?} {level:?}");
        }
    }
}

#[test]
fn node_runs_with_children_pipes_threads_and_a_terminal() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        skip("node_runs_with_children_pipes_threads_and_a_terminal", "there is no node here");
        return;
    }
    const PROGRAM: &str = r#"
const { spawn } = require("child_process");
const { Worker } = require("worker_threads");
const run = (program, args, input) => new Promise((resolve) => {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  let heard = "";
  child.stdout.on("data", (data) => { heard += data; });
  child.on("close", () => resolve(heard.replace(/\r/g, "")));
  child.stdin.end(input);
});
(async () => {
  process.stdout.write(await run("cat", [], "piped\n"));
  process.stdout.write(await run("script", ["-qec", "test -t 1 && echo at a terminal", "/dev/null"], ""));
  await new Promise((resolve) => {
    const worker = new Worker("require('worker_threads').parentPort.postMessage('from a thread')", { eval: true });
    worker.on("message", (message) => { console.log(message); resolve(); });
  });
})();
"#;
    for (actor, level) in
        actors().into_iter().flat_map(|actor| LEVELS.iter().map(move |level| (actor, *level)))
    {
        let repository = Repository::new(actor, &[("program.js", PROGRAM)]).expect("a repository");
        let output = repository.script(level, "node program.js").expect("runs");
        let (stdout, stderr) = said(&output);
        assert_eq!(stdout, "piped\nat a terminal\nfrom a thread\n", "{actor:?} {level:?}: {stderr}");
    }
}
