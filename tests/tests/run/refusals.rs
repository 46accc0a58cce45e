//! What can't be begun is refused before anything is: one clear sentence, and nothing changed.

use std::fs;

use agency_tests::ground::{Ground, Said};
use agency_tests::queue::{HONEST, Queue};
use agency_tests::repository::Actor;

/// Refused with this code, these words, one sentence and at most one hint; nothing was claimed or begun.
#[track_caller]
fn refused(queue: &Queue, code: i32, arguments: &[&str], words: &[&str]) -> Said {
    let (refs, runs) = (queue.ground.git(&["for-each-ref"]), queue.state().join("runs"));
    let said = queue.ground.refused(code, &[&["run"], arguments].concat());
    said.assert_names(words);
    assert_clear(&said);
    assert_eq!(queue.ground.git(&["for-each-ref"]), refs);
    assert!(!runs.exists(), "something was begun");
    said
}

#[track_caller]
fn assert_clear(said: &Said) {
    let lines: Vec<&str> = said.err.lines().collect();
    let hints = lines.iter().filter(|line| line.starts_with("  hint: ")).count();
    assert!(lines.len() - hints == 1 && hints <= 1, "not one sentence: {said:?}");
}

fn queue_with_task() -> Queue {
    let queue = Queue::new();
    queue.tasks(1);
    queue
}

#[test]
fn an_agent_that_nobody_configured() {
    let mut queue = Queue::new();
    queue.agent("other", HONEST, "");
    queue.agent("shelf", HONEST, "");
    let id = queue.task("shelfs", &[]);
    refused(&queue, 2, &[], &[&id, "`shelfs`", "no such agent is configured", "did you mean `shelf`?"]);
    // Tasks of others don't wait for it.
    let other = queue.task("other", &[]);
    let said = queue.run(&["--agent", "other"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [other]);
}

#[test]
fn an_agent_without_a_command() {
    let queue = Queue::new();
    queue.task("mute", &[]);
    queue.ground.write("agency.toml", "[agents.mute]\ntimeout = \"5m\"\n");
    queue.ground.ok(&["trust", "--yes"]);
    refused(&queue, 2, &[], &["the agent `mute` has no command", "[agents.mute] command = "]);
}

#[test]
fn a_configuration_that_nobody_trusts() {
    let queue = queue_with_task();
    queue.ground.edit("agency.toml", "[run]", "# changed\n[run]");
    refused(&queue, 2, &[], &["agency.toml is not trusted", "`shell`", "`agency trust`", "AGENCY_TRUST=1"]);
    // An operator who says so is asked nothing.
    let said = queue.run(&["--trust"]);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn a_key_that_does_not_exist() {
    let queue = queue_with_task();
    queue.ground.edit("agency.toml", "[run]", "[run]\nparalel = 2");
    refused(&queue, 2, &[], &["agency.toml:2", "`run.paralel`", "did you mean `run.parallel`?"]);
}

#[test]
fn a_value_that_does_not_fit() {
    for (line, word) in [
        ("parallel = 0", "run.parallel"),
        ("attempts = \"many\"", "run.attempts"),
        ("lease = \"soon\"", "run.lease"),
        ("land = \"mars\"", "mars"),
        ("isolation = \"glass\"", "glass"),
    ] {
        let queue = queue_with_task();
        queue.ground.edit("agency.toml", "[run]", &format!("[run]\n{line}"));
        queue.ground.agency(&["trust", "--yes"]);
        refused(&queue, 2, &[], &[word]);
    }
}

#[test]
fn nobody_at_work_at_all() {
    let queue = queue_with_task();
    refused(&queue, 2, &["--parallel", "0"], &["--parallel", "0"]);
    refused(&queue, 2, &["--land", "mars"], &["mars"]);
}

#[test]
fn a_folder_that_is_no_repository() {
    let queue = queue_with_task();
    queue.ground.remove(".git");
    let said = queue.ground.refused(2, &["run"]);
    said.assert_names(&["is not a git repository", "git init"]);
    assert_clear(&said);
    assert!(!queue.ground.exists(".git"));
}

#[test]
fn a_head_without_a_branch() {
    let queue = queue_with_task();
    queue.ground.git(&["checkout", "--quiet", "--detach"]);
    refused(&queue, 2, &[], &["HEAD is detached", "git switch"]);
}

#[test]
fn a_branch_without_a_commit() {
    let queue = queue_with_task();
    queue.ground.git(&["checkout", "--quiet", "--orphan", "empty"]);
    refused(&queue, 2, &[], &["empty", "has no commit yet", "make a first commit"]);
}

/// Two branches that change the same line.
fn divided() -> Queue {
    let queue = Queue::new();
    queue.tasks(1);
    queue.ground.commit_all();
    queue.ground.git(&["switch", "--quiet", "--create", "other"]);
    queue.ground.write("src/a.txt", "theirs\n");
    queue.ground.commit_all();
    queue.ground.git(&["switch", "--quiet", "main"]);
    queue.ground.write("src/a.txt", "ours\n");
    queue.ground.commit_all();
    queue
}

/// Leaves a repository in the middle of something.
fn begin(queue: &Queue, arguments: &[&str]) {
    let mut command = queue.ground.program(std::path::Path::new("git"));
    let status = command.args(["-c", "user.name=Ada"]).args(arguments).output().expect("git starts").status;
    assert!(!status.success(), "git {arguments:?} came to its end");
}

#[test]
fn a_merge_or_a_rebase_under_way() {
    for (arguments, word) in [
        (["merge", "other"], "merge"),
        (["rebase", "other"], "rebase"),
        (["cherry-pick", "other"], "cherry-pick"),
    ] {
        let queue = divided();
        begin(&queue, &arguments);
        refused(&queue, 2, &[], &[word, "is under way in", "end it or abort it first"]);
    }
}

#[test]
fn an_isolation_that_can_not_be_had() {
    let mut queue = queue_with_task();
    refused(&queue, 2, &["--isolation", "container"], &["`container` takes an image", "container.image"]);
    queue.tables("[container]\nimage = \"localhost/none:1\"\nengine = \"unix:///nowhere/socket\"\n");
    let words = ["no container engine answers at /nowhere/socket", "container.engine"];
    refused(&queue, 3, &["--isolation", "container"], &words);
    queue.settings("isolation = \"container\"");
    refused(&queue, 3, &[], &words);
}

/// Nobody could tell hosts apart there.
#[test]
fn a_list_of_hosts_at_a_level_that_can_not_hold_it() {
    let mut queue = Queue::new();
    queue.agent("shell", HONEST, "network = [\"127.0.0.1:9\"]");
    queue.tasks(1);
    let words = ["isolation `landlock`", "agents.shell.network", "--isolation process"];
    refused(&queue, 3, &["--isolation", "landlock"], &words);
}

/// A host that keeps ordinary users from user namespaces: a namespace that allows none below it is one.
#[test]
fn an_isolation_that_this_host_does_not_allow() {
    let ground = Ground::of(Actor::User, &[("src/a.txt", "one\n")]);
    ground.ok(&["init", "--orchestrator", "other", "--builders", "shell"]);
    ground.write("agency.toml", "[agents.shell]\ncommand = [\"true\"]\n");
    ground.ok(&["trust", "--yes"]);
    ground.commit_all();
    let id = ground.task("A task", &["--assignee", "shell"]);
    let before = ground.fingerprint();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" run";
    let agency = ground.command(&[]).get_program().to_owned();
    let mut command = ground.program(std::path::Path::new("unshare"));
    command.args(["--user", "--map-current-user", "--keep-caps", "sh", "-c", script]).arg(agency);
    let said: Said = command.output().expect("it starts").into();
    assert_eq!(said.code, 3, "{said:?}");
    said.assert_names(&["isolation `process` is not available here", "user.max_user_namespaces"]);
    assert_clear(&said);
    ground.assert_unchanged(&before);
    assert_eq!(ground.status(&id), "NEW");
}

#[test]
fn a_folder_without_a_board() {
    let ground = Ground::without_board(&[("README.md", "Hello\n")]);
    ground.commit_all();
    let said = ground.refused(4, &["run"]);
    said.assert_names(&["there is no board", "agency init"]);
    assert_clear(&said);
    assert!(!ground.state().join("runs").exists());
}

/// A repository can tell git to read a file that never comes to an end.
#[test]
fn a_configuration_that_includes_a_pipe_is_named_and_keeps_nobody_waiting_for_ever() {
    let included = ("[include]\n\tpath = pipe\n", "pipe", &["which is a pipe; remove it"][..]);
    for (include, pipe, words) in [included, ("", "config", &["is a pipe, not a regular file"])] {
        let queue = Queue::new();
        let id = queue.tasks(1).remove(0);
        let folder = queue.path().join(".git");
        let config = fs::read_to_string(folder.join("config")).expect("a configuration");
        fs::write(folder.join("config"), format!("{config}{include}")).expect("written");
        let _ = fs::rename(folder.join(pipe), folder.join("aside"));
        nix::unistd::mkfifo(&folder.join(pipe), nix::sys::stat::Mode::from_bits_truncate(0o666))
            .expect("a pipe");
        // Nobody here asks git before it has an end, and a run that did would be killed by this.
        let said = queue.start(&[]).end();
        assert_eq!(said.code, 2, "{said:?}");
        let named = folder.canonicalize().expect("a folder").join(pipe).display().to_string();
        said.assert_names(&[&named]);
        said.assert_names(words);
        fs::remove_file(folder.join(pipe)).expect("removed");
        let _ = fs::rename(folder.join("aside"), folder.join(pipe));
        fs::write(folder.join("config"), config).expect("written");
        assert_eq!(queue.run(&[]).code, 0);
        queue.assert_landed(&[id]);
    }
}

/// Whoever decides is asked for by name, and git is asked who that is.
#[test]
fn whoever_approves_is_not_waited_for_in_a_pipe() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    let folder = queue.path().join(".git");
    let config = fs::read_to_string(folder.join("config")).expect("a configuration");
    nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o666))
        .expect("a pipe");
    fs::write(folder.join("config"), format!("{config}[include] path = pipe\n")).expect("written");
    let words = ["verify", "--task", &id, "--override", "--reason", "Known", "--followup", "Mend it"];
    let said = queue.start_command(&[&["--as", "human"], &words[..]].concat()).end();
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["pipe", "which is a pipe"]);
}
