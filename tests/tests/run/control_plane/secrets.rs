//! A secret that an agent was given does not come back: not in its work, not in its words, not in the name of a file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agency_tests::ground::Said;
use agency_tests::queue::{HONEST, Queue};

const KEY: &str = "correct-horse-battery-staple";
/// What stands in its place.
const REDACTED: &str = "[redacted: KEY]";

/// Everything below a folder, names too, that holds the secret; what is packed in git is looked at apart.
fn holding(folder: &Path, found: &mut Vec<String>) {
    let holds = |bytes: &[u8]| bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        let link = fs::read_link(&path).unwrap_or_default();
        let content = if kind.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let name: &OsStr = &entry.file_name();
        if holds(name.as_bytes()) || holds(link.as_os_str().as_bytes()) || holds(&content) {
            found.push(path.display().to_string());
        }
        if kind.is_dir() {
            holding(&path, found);
        }
    }
}

/// Nothing on disk, in any object of git, or of what was said has it.
#[track_caller]
fn assert_nowhere(queue: &Queue, said: &Said) {
    let mut found = Vec::new();
    holding(queue.path(), &mut found);
    assert!(found.is_empty(), "{found:#?}");
    let objects =
        queue.ground.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered"]);
    for object in objects.lines() {
        let shown = queue.ground.git(&["cat-file", "-p", object]);
        assert!(!shown.contains(KEY), "{object}: {shown}");
    }
    assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "{said:?}");
}

/// Each of these puts it somewhere else, in one run.
fn run(scripts: &[&str], json: bool) -> (Queue, Vec<String>, Said) {
    let mut queue = Queue::new();
    queue.settings("attempts = 1");
    for (number, script) in scripts.iter().enumerate() {
        // Without it, there is nothing to find.
        let script = format!("test -n \"$KEY\" || exit 99\n{script}");
        queue.agent(&format!("leaky{number}"), &script, "env = [\"KEY\"]");
    }
    queue.ground.commit_all();
    let tasks: Vec<String> =
        (0..scripts.len()).map(|number| queue.task(&format!("leaky{number}"), &[])).collect();
    let mut command = queue.ground.command(&["run", "--parallel", "8"]);
    command.args(json.then_some("--json")).env("KEY", KEY);
    let said = Said::from(command.output().expect("it starts"));
    (queue, tasks, said)
}

#[test]
fn a_secret_in_the_work_or_in_a_name_lands_nothing_and_is_shown_nowhere() {
    for json in [false, true] {
        let (queue, tasks, said) = run(
            &[
                "echo \"key = $KEY\" > src/config",
                "echo x > \"src/$KEY\"",
                "mkdir \"src/$KEY\" && echo x > \"src/$KEY/deep\"",
                "ln -s \"$KEY\" src/link",
                "printf '\\0%s\\0' \"$KEY\" > src/binary",
                // Beside the work it is out of scope, too.
                "echo x > \"src/$KEY\"; echo x > src/.envrc",
            ],
            json,
        );
        assert_eq!(said.code, 20, "{said:?}");
        queue.assert_landed(&[]);
        queue.assert_nothing_left();
        for id in &tasks {
            assert_eq!(queue.ground.status(id), "BLOCKED", "{said:?}");
            let text = queue.ground.read(&queue.ground.file(id));
            assert!(text.contains("change refused"), "{text}");
        }
        let all = format!("{}{}", said.out, said.err);
        assert!(all.contains("src/config") && all.contains("KEY"), "it says where, and which: {said:?}");
        assert_nowhere(&queue, &said);
    }
}

#[test]
fn a_secret_in_what_an_agent_says_is_redacted_wherever_that_is_kept() {
    let blocked = "cat > \"$AGENCY_REPORT_FILE\" <<END\n---\ntask_id: $AGENCY_TASK_ID\nagent: x\nstatus: BLOCKED\n\
         started_at: 2026-01-31T16:12:00Z\nfinished_at: 2026-01-31T16:12:00Z\nchanges:\n  files_modified: [$KEY]\n\
         commands_run: [\"login $KEY\"]\nverification:\n  dod_passed: false\nrisks: [\"$KEY\"]\n---\n\n\
         ## Summary\nThe key $KEY does not work.\nEND\n";
    let (queue, tasks, said) = run(
        &[
            &format!("echo \"I was given $KEY\"; echo $KEY >&2; {HONEST}"),
            &format!("echo \"I used $KEY.\" > \"$AGENCY_REPORT_FILE\"; {HONEST}"),
            "echo \"it fails with $KEY\"; exit 3",
            blocked,
            // The end of its output comes in the middle of it.
            "printf %s \"$KEY\" | head -c 20; exit 4",
        ],
        true,
    );
    assert_eq!(said.code, 10, "{said:?}");
    queue.assert_landed(&tasks[..2]);
    queue.assert_nothing_left();
    let log = |number: usize| {
        let path = queue.records(&tasks[number], 1).join("agent/output.log");
        fs::read_to_string(path).expect("a log")
    };
    assert_eq!(log(0), format!("I was given {REDACTED}\n{REDACTED}\n"));
    assert_eq!(log(4), REDACTED);
    assert!(said.out.contains(&format!("it fails with {REDACTED}")), "{said:?}");
    assert!(said.out.contains(&format!("The key {REDACTED} does not work.")), "{said:?}");
    let reports: String =
        queue.ground.files(".kodingx/outbox").iter().map(|file| queue.ground.read(file)).collect();
    assert!(reports.contains(&format!("I used {REDACTED}.")), "{reports}");
    assert!(reports.contains(&format!("login {REDACTED}")), "{reports}");
    let outcome = queue.records(&tasks[3], 1).join("agent/outcome.json");
    assert!(fs::read_to_string(outcome).expect("read").contains(REDACTED));
    assert_nowhere(&queue, &said);
}
