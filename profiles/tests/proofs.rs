//! Proofs in real sandboxes: what passes, what does not, and what stays as it was.

mod support;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agency_profiles::builtin;
use serde_json::json;
use support::{Place, Prover, is_running};

#[test]
fn commands_that_all_succeed_are_a_pass() {
    let prover = Prover::of("commands:\n  - cat src/a\n  - echo to stderr >&2; echo $CI\n");
    let said = prover.prove(&[]);
    assert!(said.passed(), "{:?}", said.0);
    let proof = said.proof();
    assert_eq!(
        (&proof["profile"], &proof["level"], &proof["dirty"]),
        (&json!("mine"), &json!("process"), &json!(false))
    );
    assert_eq!(proof["commit"], prover.place.git(&["rev-parse", "HEAD"]));
    assert_eq!(proof["tree"], prover.place.git(&["rev-parse", "HEAD^{tree}"]));
    assert_eq!(proof["hash"].as_str().map(str::len), Some(64));
    assert_eq!(proof["started"], "1970-01-01T00:00:00Z");
    let command = said.command(0);
    assert_eq!((&command["cmd"], &command["exit_code"]), (&json!("cat src/a"), &json!(0)));
    assert_eq!(command["ended"], json!({ "how": "exited", "code": 0 }));
    assert!(command["log"].as_str().is_some_and(|log| log.ends_with("/logs/01-cat-src-a.log")), "{command}");
    assert_eq!(prover.log("01-"), "one\n");
    assert_eq!(prover.log("02-"), "to stderr\ntrue\n");
    assert_eq!(
        said.0["events"],
        json!(["1/2 cat src/a", "1/2 exit code 0", "2/2 echo to stderr >&2; echo $CI", "2/2 exit code 0"])
    );
    let controls = proof["attestation"]["controls"].as_array().expect("controls");
    assert!(controls.iter().all(|control| control["enforced"] != "missing"));
    assert!(controls.iter().any(|control| control["control"] == "network" && control["requested"] == true));
    assert!(command.get("differs").is_none(), "{command}");
}

#[test]
fn one_that_fails_is_a_fail_and_the_others_are_run_all_the_same() {
    let prover = Prover::of("commands: ['true', 'exit 7', 'no-such-program', 'kill -9 $$', 'true']");
    let said = prover.prove(&[]);
    assert!(!said.passed());
    let ended: Vec<_> = (0..5)
        .map(|index| (said.command(index)["exit_code"].clone(), said.command(index)["ended"]["how"].clone()))
        .collect();
    assert_eq!(
        json!(ended),
        json!([[0, "exited"], [7, "exited"], [127, "exited"], [137, "killed"], [0, "exited"]])
    );
    assert!(prover.log("03-").contains("no-such-program"));
    let hasty = prover.prove(&["fail_fast"]);
    assert!(!hasty.passed());
    assert_eq!(hasty.command(1)["exit_code"], 7);
    assert_eq!(
        (&hasty.command(2)["ended"]["how"], &hasty.command(2)["exit_code"]),
        (&json!("not-run"), &json!(null))
    );
    assert_eq!(hasty.0["events"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_command_that_outlives_its_deadline_is_no_pass_whatever_it_says() {
    let prover = Prover::of(
        "commands:\n  - {run: \"trap 'exit 0' TERM; while :; do sleep 0.1; done\", timeout: 1s}\n  - 'true'\n",
    );
    let said = prover.prove(&[]);
    assert!(!said.passed());
    assert_eq!(
        (&said.command(0)["exit_code"], &said.command(0)["ended"]),
        (&json!(124), &json!({ "how": "timed-out" }))
    );
    assert!(said.command(0)["duration_ms"].as_u64().is_some_and(|ms| (1000..20_000).contains(&ms)));
    assert!(said.command(1)["exit_code"] == 0);
}

const EVERYWHERE: &str = "commands:\n  - echo x > new; echo y >> src/a; rm -rf .gitignore; mkdir -p target && echo z > target/z; \
    chmod 777 src/a; git config a.b c; git commit -qam inside; rm -rf .git/refs; ln -s /etc/passwd link; ls -A\n  \
    - test ! -e new && test ! -e link && test -e .gitignore && test \"$(cat src/a)\" = one && test ! -e target/z && git log --format=%s\n";

#[test]
fn a_command_may_write_everywhere_and_the_folder_stays_as_it_was() {
    for level in ["process", "landlock"] {
        let prover = Prover::of(EVERYWHERE);
        let before = prover.place.everything();
        let said = prover.prove(&[&format!("level={level}")]);
        assert!(said.passed(), "{level}: {} {}", prover.log("01-"), prover.log("02-"));
        assert!(prover.log("01-").contains("link\n"), "{level}: {}", prover.log("01-"));
        // The second sandbox was made of the same untouched tree.
        assert_eq!(prover.log("02-"), "First\n", "{level}");
        assert_eq!(prover.place.everything(), before, "{level}");
        assert_eq!(said.proof()["level"], level);
    }
}

#[test]
fn nothing_of_a_run_is_left() {
    let prover = Prover::of("commands: ['echo x > new', 'true']");
    assert!(prover.prove(&[]).passed());
    let states = fs::read_dir(prover.outside("state/repositories")).expect("a folder").flatten();
    let runs: Vec<_> = states.map(|state| state.path().join("sandboxes")).collect();
    assert_eq!(runs.len(), 1);
    assert_eq!(fs::read_dir(&runs[0]).expect("a folder").count(), 0);
}

#[test]
fn a_process_that_would_outlive_its_command_is_gone() {
    // A number of seconds that nobody else sleeps.
    let word = format!("86400.{}", std::process::id());
    for level in ["process", "landlock"] {
        let prover = Prover::of(&format!(
            "commands: ['setsid sleep {word} >/dev/null 2>&1 & test -n \"$!\" && echo started']"
        ));
        let said = prover.prove(&[&format!("level={level}")]);
        assert_eq!(prover.log("01-"), "started\n", "{level}");
        assert_eq!(said.command(0)["exit_code"], 0, "{level}");
        assert!(!is_running(&word), "{level}");
    }
}

/// Somebody on this machine who answers, and counts to whom.
fn server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = connection.write_all(b"reached\n");
        }
    });
    (port, count)
}

#[test]
fn there_is_no_network_unless_a_trusted_profile_asks() {
    let (port, count) = server();
    let call = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3'");
    for level in ["process", "landlock"] {
        let prover = Prover::of(&format!("commands: [\"{call}\"]"));
        let said = prover.prove(&[&format!("level={level}")]);
        assert!(!said.passed(), "{level}");
        assert!(!prover.log("01-").contains("reached"), "{level}");
        assert_eq!(count.load(Ordering::SeqCst), 0, "{level}");
    }
    // The same call gets through where it is asked for, more than once, and still not where it is not.
    let asked = format!(
        "network: ['127.0.0.1:{port}']\ncommands: [\"{call}\", \"{call}\", {{run: \"{call}\", network: none}}]"
    );
    let prover = Prover::of(&asked);
    let said = prover.prove(&[]);
    let codes: Vec<_> = (0..3).map(|index| said.command(index)["exit_code"] == 0).collect();
    assert_eq!(codes, [true, true, false], "{}", said.0);
    assert_eq!((prover.log("01-"), prover.log("02-")), ("reached\n".into(), "reached\n".into()));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn a_repositorys_own_profile_is_not_run_until_it_is_trusted() {
    let prover = Prover::of("commands: ['true']");
    let said = prover.prove_as(&["profile=mine"]);
    assert!(
        said.error().ends_with("mine.yml is the repository's own, and is not trusted"),
        "{}",
        said.error()
    );
    assert!(!prover.outside("logs").exists());
    // A copy of a builtin one needs nobody's word.
    fs::write(prover.outside("profiles/make.yml"), builtin::text("make").expect("text")).expect("a copy");
    prover.place.write("Makefile", "test:\n\t@echo made\n");
    let said = prover.prove_as(&["profile=make"]);
    assert!(said.passed(), "{}", prover.log("01-"));
    assert_eq!(prover.log("01-make-test"), "made\n");
    assert!(said.notes().contains(&"left out: `make lint`, which is for a make target `lint`"));
    assert_eq!(said.proof()["dirty"], true);
}

#[test]
fn named_variables_are_passed_and_their_values_never_come_back() {
    let prover = Prover::of("env: [MY_TOKEN, MISSING]\ncommands: ['echo \"<$MY_TOKEN> <$OTHER_TOKEN>\"; test \"$MY_TOKEN\" = s3cret-value-1']")
        .with("MY_TOKEN", "s3cret-value-1")
        .with("OTHER_TOKEN", "s3cret-value-2");
    let said = prover.prove(&[]);
    assert!(said.passed(), "{}", prover.log("01-"));
    assert_eq!(prover.log("01-"), "<[redacted: MY_TOKEN]> <>\n");
    assert!(!said.0.to_string().contains("s3cret"));
    assert!(
        said.notes().iter().any(|note| note.ends_with("the variable MISSING is not set")),
        "{:?}",
        said.notes()
    );
}

#[test]
fn a_commit_is_proved_as_it_is_whatever_the_folder_holds() {
    let prover = Prover::of("commands: ['cat src/a', 'git status --porcelain; git rev-parse HEAD']");
    let first = prover.place.git(&["rev-parse", "HEAD"]);
    prover.place.write("src/a", "two\n");
    prover.place.commit("Second");
    prover.place.write("src/a", "uncommitted\n");
    let said = prover.prove(&["commit=main~1"]);
    assert!(said.passed(), "{}", said.0);
    assert_eq!(prover.log("01-"), "one\n");
    assert_eq!(prover.log("02-"), format!("{first}\n"));
    assert_eq!((&said.proof()["commit"], &said.proof()["dirty"]), (&json!(first), &json!(false)));
    assert_eq!(said.proof()["tree"], prover.place.git(&["rev-parse", &format!("{first}^{{tree}}")]));
    let live = prover.prove(&[]);
    assert!(live.passed());
    assert_eq!(prover.log("01-"), "uncommitted\n");
    assert_eq!(live.proof()["dirty"], true);
    assert!(prover.prove(&["commit=nothing"]).error().contains("there is no commit `nothing`"));
}

#[test]
fn a_folder_in_no_repository_has_no_tree_and_can_be_proved() {
    let prover = Prover::on(Place::new(&[("a", "one\n")]), "commands: ['cat a; echo x > b']");
    let said = prover.prove(&[]);
    assert!(said.passed(), "{}", said.0);
    assert!(said.proof().get("tree").is_none() && said.proof().get("commit").is_none());
    assert!(!prover.place.path().join("b").exists());
    assert!(
        prover
            .prove(&["commit=HEAD"])
            .error()
            .ends_with("is not in a repository, so there is no commit `HEAD`")
    );
}

/// A proof whose only command waits until the test has done something.
fn meanwhile(arguments: &[&str], act: impl FnOnce(&Prover, &Child)) -> support::Said {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let prover = Prover::of(&format!(
        "network: ['127.0.0.1:{port}']\ncommands: [\"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3'\"]"
    ));
    let mut arguments = arguments.to_vec();
    arguments.extend(["profile=mine", "trusted"]);
    let child = prover.command(&arguments).stdout(Stdio::piped()).spawn().expect("starts");
    let (connection, _) = listener.accept().expect("a connection");
    act(&prover, &child);
    drop(connection);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.signal(), None);
    support::Said(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn a_folder_that_changes_while_it_is_proved_is_no_pass() {
    let said = meanwhile(&[], |prover, _| prover.place.write("src/b", "changed"));
    assert_eq!(said.command(0)["exit_code"], 0, "{}", said.0);
    assert!(!said.passed());
    assert_eq!(said.proof()["changed_meanwhile"], json!(["src/b"]));
    assert!(said.notes().iter().any(|note| note.contains("src/b among them")));
    // What is no part of the work may.
    let said = meanwhile(&["aside=board"], |prover, _| prover.place.write("board/b", "changed"));
    assert!(said.passed(), "{}", said.0);
}

#[test]
fn logs_inside_the_folder_do_not_count_as_a_change() {
    let prover = Prover::of("commands: ['true']");
    let logs = prover.place.path().join("verify/logs");
    let output = Command::new(env!("CARGO_BIN_EXE_prove_here"))
        .args(["profile=mine", "trusted", &format!("logs={}", logs.display())])
        .arg(format!("folder={}", prover.place.path().display()))
        .arg(format!("state={}", prover.outside("state").display()))
        .arg(format!("profiles={}", prover.outside("profiles").display()))
        .output()
        .expect("runs");
    let said = support::Said(serde_json::from_slice(&output.stdout).expect("JSON"));
    assert!(said.passed(), "{}", said.0);
    assert!(logs.join("01-true.log").exists());
}

#[test]
fn what_cannot_be_held_here_is_an_error_and_neither_pass_nor_fail() {
    let prover = Prover::of("network: ['a.example:443']\ncommands: ['true']");
    let said = prover.prove(&["level=landlock"]);
    assert_eq!(said.0["unavailable"], true, "{}", said.0);
    assert!(
        said.error().contains("a list of hosts can't be held without a network namespace"),
        "{}",
        said.error()
    );
    let said = Prover::of("commands: ['true']").prove(&["level=container"]);
    assert_eq!(said.0["unavailable"], true, "{}", said.0);
}

#[test]
fn memory_is_bounded() {
    let prover = Prover::of("memory: 64MiB\ncommands: [\"head -c 300m /dev/zero | tail -c 300m | wc -c\"]");
    let said = prover.prove(&[]);
    assert!(!prover.log("01-").contains("314572800"), "{}", prover.log("01-"));
    let memory = said.proof()["attestation"]["controls"]
        .as_array()
        .expect("controls")
        .iter()
        .find(|one| one["control"] == "memory");
    assert_eq!(memory.map(|memory| memory["requested"].clone()), Some(json!(true)));
}

#[test]
fn an_interruption_ends_the_proof_without_a_verdict() {
    let said = meanwhile(&[], |_, child| {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    });
    assert_eq!(said.error(), "interrupted by signal 2");
}

#[test]
fn a_builtin_profile_proves_a_real_project() {
    let files = [
        ("pyproject.toml", "[project]\nname = 'small'\n"),
        ("small.py", "def double(x):\n    return 2 * x\n"),
        (
            "tests/test_small.py",
            "import unittest\nfrom small import double\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(double(2), 4)\n",
        ),
    ];
    let prover = Prover::on(Place::repository(&files), "commands: [x]");
    let said = prover.prove_as(&["profile=auto"]);
    assert!(said.passed(), "{}", prover.log("01-"));
    assert_eq!(said.proof()["profile"], "python_strict");
    assert!(prover.log("01-").contains("Ran 1 test"), "{}", prover.log("01-"));
    prover.place.write("small.py", "def double(x):\n    return x\n");
    let said = prover.prove_as(&["profile=auto"]);
    assert!(!said.passed());
    assert!(prover.log("01-").contains("AssertionError"));
}
