//! `[workspace] setup`: what prepares a workspace runs once, and everybody finds what it left.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use agency_tests::listeners::Listener;
use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};
use agency_tests::repository::{Actor, actors, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Leaves something that no other run of it leaves.
const INSTALL: &str = "cat /proc/sys/kernel/random/uuid > deps/id; ln -s id deps/link";
/// Tells what it found, and breaks it for itself.
const TELL: &str =
    "mkdir -p src && cat deps/link > src/$AGENCY_TASK_ID && echo mine > deps/id && echo more > deps/more";

/// A queue whose agent runs a script, with a setup that is keyed by `lock.txt`, and a profile that looks for what the
/// setup left as it was.
fn queue(actor: Actor, setup: &str, script: &str) -> Queue {
    let mut queue = Queue::of(actor, script);
    queue.ground.write(".gitignore", "deps/\n");
    queue.ground.write("lock.txt", "one\n");
    queue.ground.profile("quick", &["test -s deps/id && ! grep mine deps/id && ! test -e deps/more"]);
    configure(&mut queue, setup, "");
    // These are about the setup of an attempt, and not about the one of the base.
    queue.settings("attempts = 1\ncheck_base = \"never\"");
    queue.ground.commit_all();
    queue
}

fn configure(queue: &mut Queue, setup: &str, more: &str) {
    let command = serde_json::json!(setup);
    queue.tables(&format!("[workspace.setup]\ncommand = {command}\ncache_key = [\"lock.txt\"]\n{more}\n"));
}

/// The layers there are, whole or not.
fn layers(queue: &Queue) -> Vec<PathBuf> {
    let entries = fs::read_dir(queue.state().join("setup")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| !path.ends_with("building")).collect();
    found.sort();
    found
}

/// What the agents of these tasks found.
fn told(queue: &Queue, tasks: &[String]) -> BTreeSet<String> {
    tasks.iter().map(|id| queue.ground.read(&format!("src/{id}"))).collect()
}

fn log(queue: &Queue, id: &str, attempt: u64) -> String {
    fs::read_to_string(queue.records(id, attempt).join("agent/output.log")).unwrap_or_default()
}

/// Everybody finds the same, what they do to it is theirs alone, and the Definition of Done finds it, too.
#[test]
fn a_setup_runs_once_and_what_it_left_is_for_everybody() {
    for actor in actors() {
        let queue = queue(actor, &format!("{INSTALL}; sleep 1"), TELL);
        let tasks = queue.tasks(3);
        let said = queue.run(&["--parallel", "3"]);
        assert_eq!(said.code, 0, "{actor:?}: {said:?}");
        queue.assert_landed(&tasks);
        assert_eq!(told(&queue, &tasks).len(), 1, "{actor:?}: it ran more than once");
        let ran = tasks.iter().filter(|id| log(&queue, id, 1).contains("agency: setup: done")).count();
        assert_eq!((ran, layers(&queue).len()), (1, 1), "{actor:?}");
        assert_eq!(queue.ground.git(&["ls-tree", "-r", "--name-only", "main", "deps"]), "");
        queue.assert_nothing_left();
        // Another run finds it again.
        let later = queue.tasks(1);
        assert_eq!(queue.run(&[]).code, 0);
        assert_eq!(told(&queue, &[tasks, later].concat()).len(), 1, "{actor:?}: it ran again");
    }
}

#[test]
fn a_file_of_its_key_that_changes_has_it_run_again() {
    let queue = queue(actors()[0], &format!("{INSTALL}; cp lock.txt deps/lock"), TELL);
    let first = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    queue.ground.write("README.md", "Another\n");
    queue.ground.commit_all();
    let second = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    assert_eq!(told(&queue, &[first.clone(), second].concat()).len(), 1, "another file has no say");
    queue.ground.write("lock.txt", "two\n");
    queue.ground.commit_all();
    let third = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    assert_eq!(told(&queue, &[first, third].concat()).len(), 2);
    assert_eq!(layers(&queue).len(), 2);
}

/// What an agent has not landed yet is prepared for itself: nobody else is given what its files made.
#[test]
fn work_that_changes_the_key_is_proved_on_what_it_asks_for() {
    let install = format!("{INSTALL}; cp lock.txt deps/lock; cp src/evil deps/evil 2>&1 || :");
    let script =
        "mkdir -p src && echo two > lock.txt && echo evil > src/evil && echo it > src/$AGENCY_TASK_ID";
    let queue = queue(actors()[0], &install, script);
    queue.ground.profile("proved", &["cmp lock.txt deps/lock && test -e deps/evil"]);
    queue.ground.commit_all();
    let more = ["--assignee", "shell", "--dod-profile", "proved", "--may-touch", "lock.txt"];
    let id = queue.ground.task("A task", &more);
    let said = queue.run(&["--land", "none"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(layers(&queue).len(), 2, "{id}");
    // Somebody else comes to the same key, by another way.
    queue.ground.write("lock.txt", "two\n");
    queue.ground.commit_all();
    let mut queue = queue;
    queue.agent("looks", "mkdir -p src && ls deps > src/$AGENCY_TASK_ID", "");
    let other = queue.task("looks", &[]);
    assert_eq!(queue.run(&["--task", &other]).code, 0);
    assert_eq!(queue.ground.read(&format!("src/{other}")), "id\nlink\nlock\n");
    assert_eq!(layers(&queue).len(), 3);
}

/// Nobody takes half a layer for one, and nobody waits for the dead.
#[test]
fn a_setup_that_is_killed_leaves_nothing_that_is_used() {
    let mut queue =
        queue(actors()[0], &format!("echo half > deps/half; echo here; sleep 600; {INSTALL}"), TELL);
    queue.settings("lease = \"3s\"");
    let first = queue.tasks(1);
    let mut run = queue.start(&[]);
    assert!(wait_until(LONG, || log(&queue, &first[0], 1).contains("here")), "{}", run.said_so_far());
    let shim = queue.marker().alive().into_iter().find(|one| one.command.contains(" shim "));
    let shim = shim.unwrap_or_else(|| panic!("no shim: {:?}", queue.marker().alive()));
    kill(Pid::from_raw(i32::try_from(shim.pid).expect("a number")), Signal::SIGKILL).expect("killed");
    run.signal(Signal::SIGKILL);
    run.gone();
    let left = layers(&queue);
    assert!(left.iter().all(|path| path.to_string_lossy().contains("/making-")), "{left:?}");
    queue.ground.edit("agency.toml", "sleep 600;", "true;");
    queue.ground.ok(&["trust", "--yes"]);
    let second = queue.tasks(1);
    let said = queue.run(&["--task", &second[0]]);
    assert_eq!(queue.ground.status(&second[0]), "DONE", "{said:?}");
    assert_eq!(queue.landed().keys().collect::<Vec<_>>(), [&second[0]]);
    queue.assert_nothing_left();
}

/// The same key, and whoever made it is gone: the next one makes it.
#[test]
fn whoever_waits_for_a_setup_notices_that_its_maker_is_dead() {
    let install = format!("echo here; sleep 2; {INSTALL}");
    let queue = queue(actors()[0], &install, TELL);
    let tasks = queue.tasks(2);
    let run = queue.start(&["--parallel", "2"]);
    let maker = || tasks.iter().find(|id| log(&queue, id, 1).contains("here")).cloned();
    assert!(wait_until(LONG, || maker().is_some()), "{}", run.said_so_far());
    let maker = maker().expect("somebody");
    let folder = queue.records(&maker, 1).join("agent").display().to_string();
    let shim = queue.marker().alive().into_iter().find(|one| one.command.contains(&folder));
    let shim = shim.unwrap_or_else(|| panic!("no shim: {:?}", queue.marker().alive()));
    kill(Pid::from_raw(i32::try_from(shim.pid).expect("a number")), Signal::SIGKILL).expect("killed");
    run.end();
    let other = tasks.iter().find(|id| **id != maker).expect("the other one");
    assert_eq!(queue.ground.status(other), "DONE");
    assert!(log(&queue, other, 1).contains("agency: setup: done"), "{}", log(&queue, other, 1));
    let whole = layers(&queue);
    assert_eq!(whole.len(), 1, "{whole:?}");
    queue.assert_nothing_left();
}

/// Whoever makes it and whoever waits for it: both go at once, and neither is blamed.
#[test]
fn a_setup_is_stopped_with_its_run() {
    let queue = queue(actors()[0], &format!("echo here; sleep 600; {INSTALL}"), TELL);
    let tasks = queue.tasks(2);
    let run = queue.start(&["--parallel", "2"]);
    let begun = || tasks.iter().any(|id| log(&queue, id, 1).contains("here"));
    assert!(wait_until(LONG, begun), "{}", run.said_so_far());
    tasks.iter().for_each(|id| queue.until_phase(id, "started"));
    run.signal(Signal::SIGINT);
    run.says("draining: ");
    run.signal(Signal::SIGINT);
    let said = run.end();
    assert_eq!(said.code, 130, "{said:?}");
    said.assert_names(&["is still open; `agency run` takes it up again"]);
    assert_eq!(queue.marker().gone_within(LONG), Ok(()));
    assert_eq!(layers(&queue), Vec::<PathBuf>::new());
    queue.ground.edit("agency.toml", "sleep 600", "true");
    queue.ground.ok(&["trust", "--yes"]);
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

/// Whoever judges finds what the work was made with.
#[test]
fn an_auditor_finds_it_too() {
    let mut queue = queue(actors()[0], INSTALL, TELL);
    queue.auditor(&format!("cmp deps/id src/$AGENCY_TASK_ID && {}", crate::audit::PASS));
    queue.ground.commit_all();
    let tasks = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
}

/// Root in somebody's repository leaves them what is theirs.
#[test]
fn what_root_prepares_in_somebodys_repository_is_the_owners() {
    if !nix::unistd::Uid::current().is_root() {
        skip("what_root_prepares_in_somebodys_repository_is_the_owners", "only root can visit somebody");
        return;
    }
    let queue = queue(Actor::User, INSTALL, TELL);
    let tasks = queue.tasks(1);
    let mut command = Command::new(queue.ground.program_path());
    command.env("AGENCY_STATE_DIR", queue.ground.state_home()).current_dir(queue.path());
    let output = command.args(["run", "--trust"]).output().expect("agency starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(queue.ground.status(&tasks[0]), "DONE");
    let mut waiting = vec![queue.state().join("setup")];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        let stat = fs::symlink_metadata(&path).expect("looked");
        assert_eq!(Some((stat.uid(), stat.gid())), queue.ground.owner(), "{}", path.display());
        seen += 1;
        if stat.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.path()));
        }
    }
    assert!(seen > 6, "{seen}");
}

#[test]
fn a_setup_that_fails_blocks_the_task_with_its_last_words() {
    for actor in actors() {
        let queue = queue(actor, "echo no such package >&2; exit 7", TELL);
        let id = queue.task("shell", &[]);
        let said = queue.run(&[]);
        assert_eq!(said.code, 10, "{said:?}");
        assert_eq!(queue.ground.status(&id), "BLOCKED");
        let words = "it could not be started: the setup `echo no such package >&2; exit 7` ended with exit \
                     code 7; its last words: no such package";
        said.assert_names(&[words]);
        assert!(queue.ground.read(&queue.ground.file(&id)).contains(words));
        assert_eq!(layers(&queue), Vec::<PathBuf>::new());
        queue.assert_nothing_left();
    }
}

/// Its sandbox holds it: the tree can't be written, and what is not listed can't be reached.
#[test]
fn a_setup_changes_nothing_but_scratch_and_reaches_only_its_list() {
    for actor in actors() {
        let (listed, other) = (Listener::tcp().expect("listens"), Listener::tcp().expect("listens"));
        let reach = |port: u16| format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null");
        let tries = format!(
            "{} && touch deps/listed; {} && touch deps/other; \
             echo x > README.md; echo x > src/a.txt; touch new; mkdir -p elsewhere; touch ~/home /tmp/gone",
            reach(listed.port()),
            reach(other.port())
        );
        let script = serde_json::json!(format!("{tries}; {INSTALL}"));
        let command = format!("bash -c {}", shell_quoted(script.as_str().expect("text")));
        let look = "mkdir -p src; { ls deps; cat README.md; ls; } > src/$AGENCY_TASK_ID";
        let mut queue = Queue::of(actor, look);
        queue.ground.write(".gitignore", "deps/\n");
        configure(&mut queue, &command, &format!("network = [\"127.0.0.1:{}\"]", listed.port()));
        queue.settings("check_base = \"never\"");
        queue.ground.commit_all();
        let id = queue.task("shell", &[]);
        let said = queue.run(&[]);
        assert_eq!(said.code, 0, "{actor:?}: {said:?}: {}", log(&queue, &id, 1));
        let found = queue.ground.read(&format!("src/{id}"));
        let words: Vec<&str> = found.split_whitespace().collect();
        assert_eq!(&words[..4], ["id", "link", "listed", "Hello"], "{actor:?}: {}", log(&queue, &id, 1));
        assert!(!words.contains(&"new") && !words.contains(&"elsewhere"), "{actor:?}: {found}");
        assert_eq!(other.arrived(), 0, "{actor:?}");
        let refused = log(&queue, &id, 1).matches("Read-only file system").count();
        assert_eq!(refused, 4, "{actor:?}: {}", log(&queue, &id, 1));
        assert_eq!(queue.ground.read("README.md"), "Hello\n");
    }
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What lends somebody's rights, and what is neither file nor folder, is no part of a layer. A file that the
/// repository has in an ignored folder stays the repository's.
#[test]
fn a_layer_holds_files_folders_and_links_and_none_of_the_trees() {
    for actor in actors() {
        let install = format!(
            "{INSTALL}; mkfifo deps/pipe; cp /bin/true deps/suid; chmod 6755 deps/suid; mkdir deps/sub; \
             echo changed > deps/kept; echo deep > deps/sub/deep; chmod 555 deps/sub"
        );
        let look = "mkdir -p src; { stat -c '%a %F' deps/suid; cat deps/kept deps/sub/deep; ls deps; } \
                    > src/$AGENCY_TASK_ID; rm -rf deps/link; echo more > deps/kept";
        let queue = queue(actor, &install, look);
        queue.ground.write("deps/kept", "the tree's\n");
        queue.ground.git(&["add", "--force", "deps/kept"]);
        queue.ground.commit_all();
        let id = queue.task("shell", &[]);
        let said = queue.run(&[]);
        assert_eq!(said.code, 0, "{actor:?}: {said:?}: {}", log(&queue, &id, 1));
        let found = queue.ground.read(&format!("src/{id}"));
        let wanted = "755 regular file\nthe tree's\ndeep\nid\nkept\nlink\nsub\nsuid\n";
        assert_eq!(found, wanted, "{actor:?}");
        assert_eq!(queue.ground.git(&["show", "main:deps/kept"]), "the tree's\n");
    }
}

/// The level that mounts nothing copies it.
#[test]
fn without_namespaces_it_is_copied() {
    for actor in actors() {
        let queue = queue(actor, INSTALL, TELL);
        let tasks = queue.tasks(2);
        let said = queue.run(&["--isolation", "landlock"]);
        assert_eq!(said.code, 0, "{actor:?}: {said:?}: {}", log(&queue, &tasks[0], 1));
        queue.assert_landed(&tasks);
        assert_eq!(told(&queue, &tasks).len(), 1, "{actor:?}");
        assert_eq!(layers(&queue).len(), 1, "{actor:?}");
    }
}

#[test]
fn what_can_not_be_meant_is_refused_before_anything_starts() {
    for (lines, code, words) in [
        ("command = \"true\"", 2, "workspace.setup has no cache_key"),
        ("command = \"true\"\ncache_key = []", 2, "workspace.setup has no cache_key"),
        ("cache_key = [\"lock.txt\"]", 2, "workspace.setup has no command"),
        (
            "command = \"true\"\ncache_key = [\"/etc/passwd\"]",
            2,
            "`/etc/passwd` is no file of the repository",
        ),
        ("command = \"true\"\ncache_key = [\"a/../b\"]", 2, "`a/../b` is no file of the repository"),
        ("command = \"true\"\ncache_key = [\"\"]", 2, "the path is empty"),
        ("command = \"true\"\ncache_key = [\"a\"]\nnetwork = [\"*:x\"]", 2, "workspace.setup.network"),
    ] {
        let mut queue = Queue::new();
        let id = queue.task("shell", &[]);
        queue.tables(&format!("[workspace.setup]\n{lines}\n"));
        let said = queue.run(&[]);
        assert_eq!(said.code, code, "{lines}: {said:?}");
        said.assert_names(&[words]);
        assert!(!queue.records(&id, 1).exists(), "{lines}");
    }
    let mut queue = queue(actors()[0], INSTALL, TELL);
    queue.tables("network = [\"127.0.0.1:1\"]\n");
    queue.tasks(1);
    let said = queue.run(&["--isolation", "landlock"]);
    assert_eq!(said.code, 3, "{said:?}");
    said.assert_names(&["isolation `landlock` can't hold the list of hosts in workspace.setup.network"]);
}
