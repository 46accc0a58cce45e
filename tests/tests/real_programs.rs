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

#[test]
fn python_and_shell_pipelines_with_children_run() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("a", "one\n")]).expect("a repository");
        let script = "seq 1 1000 | sort -rn | head -1; \
            python3 -c 'import subprocess,multiprocessing as m; print(subprocess.run([\"echo\",\"child\"],capture_output=True,text=True).stdout.strip()); p=m.Pool(2); print(sum(p.map(abs,range(10))))'; \
            python3 -c 'import pty,os; pty.spawn([\"echo\",\"pty\"])'; mktemp >/dev/null && echo temp";
        let output = repository.script(&[], script).expect("runs");
        let (stdout, stderr) = said(&output);
        assert_eq!(stdout.replace('\r', ""), "1000\nchild\n45\npty\ntemp\n", "{stderr}");
    }
}
