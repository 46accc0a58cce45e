//! `agency sandbox` as people meet it: what is kept, what is refused, what is said, and with which code.

use std::fs;
use std::process::{Command, Output, Stdio};

use agency_tests::repository::{Actor, Repository, actors, said, skip};

const FILES: &[(&str, &str)] = &[
    ("src/a.ts", "one\n"),
    ("src/b.ts", "two\n"),
    ("src/secrets/key", "hush\n"),
    ("docs/guide.md", "text\n"),
    (".gitignore", "/target\n.env\n"),
];

fn repositories() -> impl Iterator<Item = Repository> {
    actors().into_iter().map(|actor| Repository::new(actor, FILES).expect("a repository"))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no code: {output:?}"))
}

#[test]
fn what_is_not_kept_never_reaches_the_folder() {
    for repository in repositories() {
        let output = repository.script(&["--write", "src/**"], "echo three >> src/a.ts").expect("runs");
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(said(&output).1.contains("~ src/a.ts"), "{output:?}");
        assert_eq!(repository.status().expect("git runs"), "");
        assert!(repository.leftovers().expect("a folder").is_empty());
    }
}

#[test]
fn changes_in_scope_are_applied_as_a_whole() {
    for repository in repositories() {
        let script = "echo three >> src/a.ts && rm src/b.ts && mkdir -p src/new && echo n > src/new/c.ts \
                      && chmod +x src/new/c.ts && ln -s a.ts src/link";
        let output = repository.script(&["--write", "src/**", "--apply"], script).expect("runs");
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!(repository.read("src/a.ts").expect("reads"), "one\nthree\n");
        let status = repository.status().expect("git runs");
        assert_eq!(status, " M src/a.ts\n D src/b.ts\n?? src/link\n?? src/new/\n");
        use std::os::unix::fs::PermissionsExt;
        let mode =
            fs::metadata(repository.path().join("src/new/c.ts")).expect("is there").permissions().mode();
        assert_eq!(mode & 0o111, 0o111);
    }
}

#[test]
fn one_change_out_of_scope_and_nothing_is_applied() {
    for repository in repositories() {
        // The directory is open because of `src/a.ts`; the neighbour is held by the harvest.
        let output = repository
            .script(&["--write", "src/a.ts", "--apply"], "echo x >> src/a.ts; echo y >> src/b.ts")
            .expect("runs");
        assert_eq!(code(&output), 20, "{output:?}");
        assert!(said(&output).1.contains("src/b.ts"), "{output:?}");
        assert_eq!(repository.status().expect("git runs"), "");
    }
}

#[test]
fn a_denied_folder_is_read_only_inside_its_scope() {
    for repository in repositories() {
        let flags = &["--write", "src/**", "--deny", "src/secrets/**", "--apply"];
        let output =
            repository.script(flags, "echo x > src/secrets/key; echo $?; echo ok >> src/a.ts").expect("runs");
        let (stdout, stderr) = said(&output);
        assert!(stderr.contains("Read-only file system"), "{stderr}");
        assert!(!stdout.starts_with('0'), "{stdout}");
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!(repository.status().expect("git runs"), " M src/a.ts\n");
    }
}

#[test]
fn without_a_scope_nothing_but_scratch_is_writable() {
    for repository in repositories() {
        let output = repository
            .script(
                &["--apply"],
                "touch x 2>/dev/null || echo held; echo built > target/out && cat target/out",
            )
            .expect("runs");
        assert_eq!(said(&output).0, "held\nbuilt\n");
        assert!(!repository.path().join("target").exists(), "scratch is thrown away");
    }
}

#[test]
fn a_patch_says_the_same_as_the_changes() {
    for repository in repositories() {
        let patch = repository.path().join("target.patch");
        let flags = &["--write", "src/**", "--patch", "target.patch"];
        let script = "echo three >> src/a.ts; git mv src/b.ts src/c.ts; printf '\\000\\377' > src/binary";
        let output = repository.script(flags, script).expect("runs");
        assert_eq!(code(&output), 0, "{output:?}");
        let applied =
            repository.command("git").args(["apply", "--index", "target.patch"]).output().expect("runs");
        assert!(applied.status.success(), "{applied:?}");
        fs::remove_file(patch).expect("the patch is there");
        assert_eq!(
            repository.status().expect("git runs"),
            "M  src/a.ts\nA  src/binary\nR  src/b.ts -> src/c.ts\n"
        );
    }
}

#[test]
fn a_file_the_person_changed_meanwhile_is_never_overwritten() {
    for repository in repositories() {
        let mut child = repository
            .sandbox(&[
                "--write",
                "src/**",
                "--apply",
                "--",
                "sh",
                "-c",
                "echo agent >> src/a.ts; echo ready; read line",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("reads");
        assert_eq!(line, "ready\n");
        fs::write(repository.path().join("src/a.ts"), "person\n").expect("writes");
        drop(child.stdin.take());
        let output = child.wait_with_output().expect("ends");
        assert_eq!(code(&output), 125, "{output:?}");
        assert!(said(&output).1.contains("src/a.ts"), "{output:?}");
        assert_eq!(repository.read("src/a.ts").expect("reads"), "person\n");
    }
}

#[test]
fn the_code_is_the_commands_own_and_json_says_so() {
    for repository in repositories() {
        let output = repository.script(&["--json"], "echo out; exit 7").expect("runs");
        assert_eq!(code(&output), 7);
        let (stdout, stderr) = said(&output);
        let report: serde_json::Value = serde_json::from_str(&stdout).expect("only JSON on standard output");
        assert_eq!(report["version"], 1);
        assert_eq!(report["exit"], serde_json::json!({ "code": 7, "by": "command" }));
        assert_eq!(report["end"], serde_json::json!({ "kind": "exited", "code": 7 }));
        assert_eq!(report["result"], "discarded");
        assert_eq!(stderr, "out\n");
        let controls = report["attestation"]["controls"].as_array().expect("a list");
        for control in controls {
            assert_eq!(control["requested"], true, "{control}");
            // A limit that nobody asked for is only looked at.
            let held = if control["control"] == "memory" { "watched" } else { "enforced" };
            assert_eq!(control["enforced"], held, "{control}");
        }
    }
}

#[test]
fn a_command_that_cannot_be_found_is_127_and_a_deadline_124() {
    for repository in repositories() {
        let output = repository.sandbox(&["--", "no-such-program"]).output().expect("runs");
        assert_eq!(code(&output), 127, "{output:?}");
        let output = repository.sandbox(&["--timeout", "300ms", "--", "sleep", "60"]).output().expect("runs");
        assert_eq!(code(&output), 124, "{output:?}");
        let output = repository.sandbox(&["--stall", "300ms", "--", "sleep", "60"]).output().expect("runs");
        assert_eq!(code(&output), 124, "{output:?}");
    }
}

/// However the start is spread over processors, the command has all that its caller has.
#[test]
fn a_command_may_use_every_processor_that_its_caller_may() {
    for repository in repositories() {
        let outside =
            repository.command("grep").args(["Cpus_allowed", "/proc/self/status"]).output().expect("runs");
        for level in ["process", "landlock"] {
            let inside = repository
                .script(&["--isolation", level], "grep Cpus_allowed /proc/self/status")
                .expect("runs");
            assert_eq!(said(&inside).0, said(&outside).0, "{level}: {inside:?}");
        }
    }
}

#[test]
fn output_and_changes_put_a_stall_off() {
    let repository = Repository::new(actors()[0], FILES).expect("a repository");
    let script = "for i in 1 2 3 4; do sleep 0.4; echo $i; done; for i in 1 2 3 4; do sleep 0.4; echo $i > src/a.ts; done";
    let output = repository.script(&["--write", "src/**", "--stall", "1200ms"], script).expect("runs");
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn input_and_output_pass_through_unchanged() {
    for repository in repositories() {
        let input: Vec<u8> = (0..1_000_000u32).flat_map(|number| number.to_le_bytes()).collect();
        let file = repository.path().join("input");
        fs::write(&file, &input).expect("writes");
        let output = repository
            .sandbox(&["--", "cat"])
            .stdin(fs::File::open(&file).expect("opens"))
            .output()
            .expect("runs");
        assert!(output.stdout == input, "{} bytes came back", output.stdout.len());
    }
}

#[test]
fn mistakes_get_one_clear_line_and_touch_nothing() {
    for repository in repositories() {
        let cases: &[(&[&str], &str)] = &[
            (&["--no-such-flag", "--", "true"], "--no-such-flag"),
            (&["--write", "../x", "--", "true"], "`..`"),
            (&["--write", "/etc/**", "--", "true"], "absolute"),
            (&["--write", "!(a)", "--", "true"], "extended glob"),
            (&["--deny", "src/@(a|b)", "--", "true"], "extended glob"),
            (&["--write", "src/[", "--", "true"], "does not parse"),
            (&["--write", "", "--", "true"], "empty"),
            (&["--read", "/no/such/path", "--", "true"], "no such path"),
            (&["--hide", "no-such-path", "--", "true"], "no such path"),
            (&["--memory", "0", "--", "true"], "zero"),
            (&["--memory", "lots", "--", "true"], "not a size"),
            (&["--processes", "0", "--", "true"], "zero"),
            (&["--output", "0", "--", "true"], "zero"),
            (&["--output", "much", "--", "true"], "not a size"),
            (&["--timeout", "0s", "--", "true"], "zero"),
            (&["--timeout", "soon", "--", "true"], "not a duration"),
            (&["--env", "NO_SUCH_VARIABLE", "--", "true"], "not set"),
            (&["--without", "everything", "--", "true"], "no control"),
            (&["--isolation", "magic", "--", "true"], "magic"),
            (&["--apply", "--discard", "--", "true"], "--discard"),
            (&["--patch", "no/such/folder/x", "--", "true"], "no folder"),
            (&["--write", "src/**"], "COMMAND"),
        ];
        for (arguments, expected) in cases {
            let output = repository.sandbox(arguments).output().expect("runs");
            let (stdout, stderr) = said(&output);
            assert_eq!(code(&output), 2, "{arguments:?}: {stderr}");
            assert_eq!(stdout, "", "{arguments:?}");
            let mut lines = stderr.lines();
            let first = lines.next().unwrap_or_default();
            assert!(first.starts_with("agency: ") && first.contains(expected), "{arguments:?}: {stderr}");
            assert!(lines.all(|line| line.starts_with("  hint: ")), "{arguments:?}: {stderr}");
        }
        use std::os::unix::ffi::OsStrExt;
        let odd = std::ffi::OsStr::from_bytes(b"src/\xff");
        let output = repository
            .sandbox(&[std::ffi::OsStr::new("--write"), odd])
            .args(["--", "true"])
            .output()
            .expect("runs");
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(!repository.state().exists(), "a mistake leaves nothing behind");
    }
}

#[test]
fn what_a_level_cannot_hold_is_refused_before_anything_starts() {
    for repository in repositories() {
        for (arguments, said) in [
            (&["--isolation", "landlock", "--net", "a.example:443"][..], "can't hold a list of hosts"),
            (&["--isolation", "landlock", "--layer", "memory"], "can't hold changes in memory"),
        ] {
            let output =
                repository.sandbox(arguments).args(["--", "touch", "started"]).output().expect("runs");
            assert_eq!(code(&output), 3, "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{output:?}");
        }
        let flags = ["--isolation", "landlock", "--without", "pid-namespace", "--", "true"];
        assert_eq!(code(&repository.sandbox(&flags).output().expect("runs")), 2);
        assert_eq!(repository.status().expect("git runs"), "");
    }
}

/// However early the first process of a sandbox gives up, what it said is what a person reads.
#[test]
fn a_host_without_what_is_needed_is_told_what_is_missing() {
    if !actors().contains(&Actor::Root) {
        return skip(
            "a_host_without_what_is_needed_is_told_what_is_missing",
            "only root can take devices away",
        );
    }
    let repository = Repository::new(Actor::Root, FILES).expect("a repository");
    for (kept, missing) in [("", "/dev/null"), ("null zero full", "/dev/urandom")] {
        let script = r#"
            mount -t tmpfs none /mnt || exit 9
            for name in $1; do touch "/mnt/$name" && mount --bind "/dev/$name" "/mnt/$name" || exit 9; done
            mount --rbind /mnt /dev || exit 9
            shift; exec "$@"
        "#;
        for _ in 0..20 {
            let mut command = repository.command("unshare");
            command.args(["--mount", "--propagation=private", "sh", "-c", script, "sh", kept]);
            command.arg(repository.agency()).args(["sandbox", "--", "echo", "started"]);
            let output = command.output().expect("unshare starts");
            let (told, complained) = said(&output);
            assert_eq!((code(&output), told.as_str()), (3, ""), "{complained}");
            assert!(complained.contains(&format!("can't bind {missing}: No such file")), "{complained}");
        }
    }
}

/// Where /proc numbers processes otherwise than we do, as in a namespace of processes without a /proc of its own.
#[test]
fn whoever_has_another_number_in_proc_is_told_from_nobody_else() {
    for repository in repositories() {
        let Some(mut command) = in_another_pid_namespace(&repository) else {
            return skip("whoever_has_another_number_in_proc_is_told_from_nobody_else", "it takes root");
        };
        let output = command.args(["sandbox", "--json", "--", "true"]).output().expect("unshare starts");
        // Root writes to files of others there, by their number.
        if repository.owner().is_none() {
            assert_eq!(code(&output), 3, "{output:?}");
            assert!(
                said(&output).1.contains("/proc is that of another namespace of processes"),
                "{output:?}"
            );
            continue;
        }
        assert_eq!(code(&output), 0, "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        let controls = report["attestation"]["controls"].as_array().expect("controls");
        assert!(controls.iter().all(|one| one["enforced"] != "missing"), "{report}");
    }
}

/// `agency`, by whoever works in the repository.
fn in_another_pid_namespace(repository: &Repository) -> Option<Command> {
    if !actors().contains(&Actor::Root) {
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]).current_dir(repository.path()).stdin(Stdio::null());
    command.env("AGENCY_STATE_DIR", repository.state_home());
    if let Some((uid, gid)) = repository.owner() {
        let (user, group) = (format!("--reuid={uid}"), format!("--regid={gid}"));
        command.args(["setpriv", &user, &group, "--clear-groups", "env", "HOME=/nonexistent"]);
    }
    command.arg(repository.agency());
    Some(command)
}

/// Each folder that git ignores is a mount of its own. There may be more of them than files can be open.
#[test]
fn more_ignored_folders_than_open_files_are_no_trouble() {
    for repository in repositories() {
        let script = "echo 'build-*/' > .gitignore; for n in $(seq 0 149); do mkdir build-$n; done";
        let made = repository.command("sh").args(["-c", script]).status().expect("sh starts");
        assert!(made.success());
        let mut command = repository.command("sh");
        command.args(["-c", r#"ulimit -n 100; exec "$@""#, "sh"]).arg(repository.agency());
        command.args(["sandbox", "--write", "src/**", "--", "touch", "build-0/here", "build-149/here"]);
        let output = command.output().expect("runs");
        assert_eq!(code(&output), 0, "{output:?}");
    }
}

#[test]
fn globs_are_relative_to_where_one_stands() {
    for repository in repositories() {
        let output = repository
            .sandbox(&[
                "--write",
                "*.ts",
                "--apply",
                "--",
                "sh",
                "-c",
                "pwd; echo x >> a.ts; cat ../docs/guide.md",
            ])
            .current_dir(repository.path().join("src"))
            .output()
            .expect("runs");
        assert_eq!(code(&output), 0, "{output:?}");
        let expected = format!("{}/src\ntext\n", repository.path().display());
        assert_eq!(said(&output).0, expected);
        assert_eq!(repository.status().expect("git runs"), " M src/a.ts\n");
    }
}

#[test]
fn a_folder_without_a_repository_works_and_keeps_its_state_elsewhere() {
    for actor in actors() {
        let folder = Repository::without_git(actor, FILES).expect("a folder");
        let output = folder
            .sandbox(&["--write", "src/**", "--apply", "--", "sh", "-c", "echo x >> src/a.ts"])
            .output()
            .expect("runs");
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!(folder.read("src/a.ts").expect("reads"), "one\nx\n");
        assert!(!folder.path().join(".git").exists());
        assert!(folder.state_home().join("folders").is_dir());
    }
}

#[test]
fn ignored_secrets_are_out_of_sight_and_ignored_files_are_not_harvested() {
    for repository in repositories() {
        fs::write(repository.path().join(".env"), "TOKEN=abc\n").expect("writes");
        let output = repository
            .script(
                &["--write", "**", "--apply"],
                "cat .env; echo built > src/x.ts; mkdir -p target; echo y > target/z",
            )
            .expect("runs");
        let (stdout, stderr) = said(&output);
        assert!(!stdout.contains("abc") && stderr.contains("Permission denied"), "{output:?}");
        assert_eq!(repository.status().expect("git runs"), "?? src/x.ts\n");
        assert_eq!(repository.read(".env").expect("reads"), "TOKEN=abc\n");
    }
}

#[test]
fn hidden_paths_are_out_of_sight() {
    for repository in repositories() {
        let flags = &["--write", "src/**", "--hide", "src/secrets", "--hide", "docs/guide.md"];
        let output =
            repository.script(flags, "ls src/secrets; cat docs/guide.md; cat src/a.ts").expect("runs");
        let (stdout, _) = said(&output);
        assert_eq!(stdout, "one\n", "{output:?}");
        // What commits hold of it is not hidden, and the attestation says so.
        let output = repository
            .script(&["--json", "--hide", "docs/guide.md"], "git show HEAD:docs/guide.md")
            .expect("runs");
        let (stdout, stderr) = said(&output);
        assert_eq!(stderr, "text\n");
        assert!(stdout.contains("not held: what the history has of"), "{stdout}");
    }
}

#[test]
fn a_linked_worktree_has_a_private_repository_too() {
    for repository in repositories() {
        let linked =
            tempfile::Builder::new().prefix("agency-linked-").tempdir_in("/var/tmp").expect("a folder");
        let owner = fs::metadata(repository.path()).expect("is there");
        use std::os::unix::fs::MetadataExt;
        std::os::unix::fs::chown(linked.path(), Some(owner.uid()), Some(owner.gid())).expect("gives");
        let tree = linked.path().join("tree");
        let added =
            repository.command("git").args(["worktree", "add", "-q"]).arg(&tree).output().expect("runs");
        assert!(added.status.success(), "{added:?}");
        let before = repository.command("git").args(["for-each-ref"]).output().expect("runs").stdout;
        let output = repository
            .sandbox(&[
                "--write",
                "src/**",
                "--",
                "sh",
                "-c",
                "echo x >> src/a.ts; git commit -qam inside && git log --format=%s -1",
            ])
            .current_dir(&tree)
            .output()
            .expect("runs");
        assert_eq!(said(&output).0, "inside\n", "{output:?}");
        let after = repository.command("git").args(["for-each-ref"]).output().expect("runs").stdout;
        assert_eq!(before, after, "no branch moved outside");
    }
}

#[test]
fn an_actor_is_named_inside_and_nobody_outside() {
    let repository = Repository::new(actors()[0], FILES).expect("a repository");
    let output = repository.script(&[], "id -un; echo $HOME | wc -l; hostname").expect("runs");
    assert_eq!(said(&output).0, "agent\n1\nagency\n");
    if actors().contains(&Actor::Root) {
        let output = repository.script(&[], "cat /etc/shadow").expect("runs");
        assert!(said(&output).1.contains("Permission denied"), "{output:?}");
    }
}

/// Whoever keeps what they make to themselves still lets the agent in.
#[test]
fn the_umask_of_the_caller_keeps_nobody_out() {
    for repository in repositories() {
        for base in ["", "--base HEAD"] {
            let script = format!(
                "umask 077; exec \"$0\" sandbox {base} --write 'src/**' -- sh -c 'cat src/a.ts; echo x > /var/tmp/x && umask'"
            );
            let mut command = repository.command("sh");
            let output = command.args(["-c", &script]).arg(repository.agency()).output().expect("runs");
            assert_eq!(code(&output), 0, "{base}: {output:?}");
            assert_eq!(said(&output).0, "one\n0022\n", "{base}: {output:?}");
        }
    }
}

#[test]
fn a_commit_can_be_worked_on_instead_of_the_folder() {
    for repository in repositories() {
        fs::write(repository.path().join("src/a.ts"), "not committed\n").expect("writes");
        let flags = &["--base", "HEAD", "--write", "src/**", "--patch", "agent.patch"];
        let script = "git status --porcelain; cat src/a.ts; echo two >> src/a.ts; git log --format=%s; git commit -qam x; git log --format=%s -1";
        for _ in 0..2 {
            let output = repository.script(flags, script).expect("runs");
            assert_eq!(code(&output), 0, "{output:?}");
            assert_eq!(said(&output).0, "one\nFirst\nx\n", "{output:?}");
        }
        let patch = repository.read("agent.patch").expect("a patch");
        assert!(patch.contains("+two") && !patch.contains("not committed"), "{patch}");
        assert_eq!(repository.read("src/a.ts").expect("reads"), "not committed\n");

        // A moved base is a delta over the same snapshot.
        let move_base = "git rm -q docs/guide.md && echo new > src/c.ts && git add src/c.ts && git commit -qm Second -- docs src/c.ts";
        let moved = repository.command("sh").args(["-c", move_base]).output().expect("runs");
        assert!(moved.status.success(), "{moved:?}");
        let output = repository
            .script(&["--base", "main"], "git status --porcelain; ls docs src; git log --format=%s")
            .expect("runs");
        assert_eq!(said(&output).0, "src:\na.ts\nb.ts\nc.ts\nsecrets\nSecond\nFirst\n", "{output:?}");
        let output = repository.script(&["--base", "no-such-branch"], "true").expect("runs");
        assert_eq!(code(&output), 2, "{output:?}");
    }
}

/// A program that reads its credentials keeps its other files beside them.
#[test]
fn folders_of_the_home_that_lead_to_something_readable_are_the_commands_own() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("a", "a\n")]).expect("a repository");
        let home = tempfile::tempdir().expect("a home");
        fs::create_dir_all(home.path().join(".tool/deep")).expect("made");
        for name in [".tool/auth", ".tool/deep/key", ".tool/other"] {
            fs::write(home.path().join(name), name).expect("written");
        }
        if let Some((uid, gid)) = repository.owner() {
            for name in ["", ".tool", ".tool/deep", ".tool/auth", ".tool/deep/key", ".tool/other"] {
                std::os::unix::fs::chown(home.path().join(name), Some(uid), Some(gid)).expect("given");
            }
        }
        let path = |name: &str| home.path().join(name).display().to_string();
        let output = repository
            .sandbox(&["--read", &path(".tool/auth"), "--read", &path(".tool/deep/key"), "--", "sh", "-c"])
            .arg("cat ~/.tool/auth ~/.tool/deep/key; ls ~/.tool; echo > ~/.tool/mine; echo > ~/.tool/deep/mine; ls ~/.tool ~/.tool/deep | grep -c mine; echo > ~/.tool/auth")
            .env("HOME", home.path())
            .output()
            .expect("runs");
        let (stdout, stderr) = said(&output);
        assert_eq!(stdout, ".tool/auth.tool/deep/keyauth\ndeep\n2\n", "{actor:?}: {stderr}");
        assert!(stderr.contains("Read-only file system"), "{actor:?}: {stderr}");
        assert_eq!(fs::read_to_string(home.path().join(".tool/auth")).expect("read"), ".tool/auth");
        assert!(!home.path().join(".tool/mine").exists());
    }
}
