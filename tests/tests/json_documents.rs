//! What each verb prints, byte for byte: one repository for each protocol, one for both, and every document in a fixture.
//!
//! `AGENCY_WRITE_FIXTURES=1` writes the fixtures anew. Times, hashes and paths are masked.

use std::fs;
use std::path::{Path, PathBuf};

use agency_tests::ground::Ground;

const PROFILE: &str = "name: quick\ndescription: Of a test\ncommands: [\"true\"]\n";
const CONFIGURATION: &str = r#"[run]
backoff = "100ms"
attempts = 1
[roles]
builder = "shell"
[agents.shell]
command = ["sh", "-c", "mkdir -p src && echo by $AGENCY_TASK_ID | tee src/$AGENCY_TASK_ID"]
"#;
const CONTRACT: &str = r#"{
  "protocol": "codifica",
  "version": "0.2",
  "spec": "codifica-spec.md",
  "state": "work.md"
}
"#;
const WORK: &str = "# Work\n\n```yaml\n\
- id: C-1\n  type: build\n  state: todo\n  owner: agent:shell\n  title: First\n  acceptance:\n    - it works\n\
- id: C-2\n  type: test\n  state: in_progress\n  owner: agent:codex\n  title: Second\n  priority: high\n\
- id: C-3\n  type: build\n  state: blocked\n  owner: human\n  title: Third\n\
- id: C-4\n  type: build\n  state: done\n  owner: unassigned\n  title: Fourth\n  depends_on: [C-1]\n```\n";

/// What was typed, and what came of it.
struct Transcript {
    ground: Ground,
    text: String,
}

impl Transcript {
    fn new(files: &[(&str, &str)]) -> Self {
        let files = [files, &[("src/a.txt", "one\n"), ("Makefile", "check:\n\ttrue\n")]].concat();
        Self { ground: Ground::without_board(&files), text: String::new() }
    }

    fn commit(&self) {
        self.ground.write(".kodingx/dod/profiles/quick.yml", PROFILE);
        self.ground.write("agency.toml", CONFIGURATION);
        self.ground.ok(&["trust", "--yes"]);
        self.ground.commit_all();
    }

    /// Runs each line.
    fn type_all(&mut self, lines: &[&str]) {
        for line in lines {
            let said = self.ground.typed(line);
            let masked = |text: &str| mask(&self.without_paths(text));
            let (out, err) = (masked(&said.out), masked(&said.err));
            self.text.push_str(&format!("$ agency {line}\n{out}"));
            self.text.push_str(&err.lines().map(|line| format!("! {line}\n")).collect::<String>());
            self.text.push_str(&format!("= {}\n\n", said.code));
        }
    }

    fn without_paths(&self, text: &str) -> String {
        let state = self.ground.state_home().display().to_string();
        let user = self.ground.user().display().to_string();
        let text = text.replace(&self.ground.path().display().to_string(), "<folder>");
        let name = self.ground.path().file_name().expect("a name").to_string_lossy().into_owned();
        text.replace(&state, "<state>").replace(&user, "<user>").replace(&name, "<folder name>")
    }

    #[track_caller]
    fn assert_is(self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/json").join(name);
        if std::env::var_os("AGENCY_WRITE_FIXTURES").is_some() {
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(&file, &self.text).expect("written");
        }
        let expected = fs::read_to_string(&file).expect("a fixture");
        if self.text != expected {
            let seen = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
            fs::write(&seen, &self.text).expect("written");
            let differs = self.text.lines().zip(expected.lines()).position(|(one, other)| one != other);
            let line = differs.unwrap_or_else(|| self.text.lines().count().min(expected.lines().count()));
            let of = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
            panic!(
                "{name}:{}: `{}`, but the fixture says `{}`; all of it is in {}",
                line + 1,
                of(&self.text),
                of(&expected),
                seen.display()
            );
        }
    }
}

/// Shapes of times: `9` is a digit. The longest comes first.
const TIMES: &[&str] = &[
    "9999-99-99T99:99:99",
    "9999-99-99T99-99-99",
    "9999-99-99T99:99",
    "9999-99-99T9999",
    "9999-99-99 99:99:99",
    "9999-99-99 99:99",
    "9999-99-99",
    "99999999T999999",
    "99999999-999999",
    "99999999-9999",
    "9999999999",
    "99:99:99",
];

/// Text without what is another in each run.
fn mask(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut masked = String::new();
    let mut at = 0;
    while at < characters.len() {
        let rest = &characters[at..];
        let begins = at == 0 || !characters[at - 1].is_ascii_alphanumeric();
        let hex = rest.iter().take_while(|one| one.is_ascii_hexdigit()).count();
        // One hash in a hundred begins with as many digits as a time has.
        let is_hash = hex >= 12 && rest[..hex].iter().any(|one| !one.is_ascii_digit());
        let time = TIMES.iter().find(|shape| is_shape(rest, shape)).filter(|_| begins && !is_hash);
        let digits = rest.iter().take_while(|one| one.is_ascii_digit() || **one == '.').count();
        let is_name = rest.first() == Some(&'c')
            && rest[1..].iter().take_while(|one| one.is_ascii_hexdigit()).count() == 12;
        let is_hour = at > 0 && characters[at - 1] == '-' && is_shape(rest, "9999-") && begins;
        if masked.ends_with("_ms\":") && digits > 0 {
            masked.push_str("<n>");
            at += digits;
        } else if let Some(shape) = time {
            masked.push_str("<time>");
            at += shape.len();
            // A fraction, and a zone.
            at += characters[at..]
                .iter()
                .take_while(|one| one.is_ascii_digit() || matches!(one, '.' | 'Z' | '+'))
                .count();
        } else if begins && hex >= 12 {
            masked.push_str("<hash>");
            at += hex;
        } else if begins && is_name {
            masked.push_str("<name>");
            at += 13;
        } else if is_hour {
            masked.push_str("<hour>");
            at += 4;
        } else if begins && digits > 0 && is_duration(&rest[..digits], &rest[digits..]) {
            masked.push_str("<n>");
            at += digits;
        } else {
            masked.push(characters[at]);
            at += 1;
        }
    }
    masked
}

/// A number of seconds: `3 s`, `3s`, or a fraction in a document.
fn is_duration(number: &[char], rest: &[char]) -> bool {
    let rest = rest.strip_prefix(&[' ']).unwrap_or(rest);
    let is_seconds = rest.first() == Some(&'s') && !rest.get(1).is_some_and(|one| one.is_alphanumeric());
    is_seconds || number.contains(&'.') && matches!(rest.first(), Some(',' | '}'))
}

fn is_shape(text: &[char], shape: &str) -> bool {
    text.len() >= shape.len()
        && shape.chars().zip(text).all(|(shape, one)| match shape {
            '9' => one.is_ascii_digit(),
            other => other == *one,
        })
}

#[test]
fn a_board_of_kodingx() {
    let mut typed = Transcript::new(&[]);
    typed.type_all(&[
        "status --json",
        "init --orchestrator other --builders shell,codex --json",
        "init --orchestrator other --builders shell,codex",
        "upgrade --add risks --json",
        "upgrade --add risks",
        "install --force --json",
    ]);
    typed.commit();
    typed.type_all(&[
        "trust --yes",
        "trust --yes --json",
        "task new --title First --assignee shell --must-touch 'src/**' --dod-profile quick --json",
        "task new --title Second --assignee shell --must-touch 'src/**' --dod-profile quick --priority P0",
        "assign --title Third --assignee codex --acceptance 'it works' --json",
        "task new --title Fourth --type build",
        "assign T0003 --assignee shell --reason why",
        "assign T0003 --assignee shell --json",
        "task list",
        "task list --json",
        "task list --status NEW",
        "task list --status ODD",
        "task list --assignee shell --json",
        "task show T0001",
        "task show T0001 --json",
        "task show T0099",
        "task move T0003 CANCELED --reason 'not needed'",
        "task move T0003 NEW --json",
        "task move T0002 DONE",
        "task move T0002 odd",
        "task renumber nothing.md",
        "status",
        "status --json",
        "lint",
        "lint --json",
        "lint --fix",
        "verify T0001 --json",
        "verify T0001 --override --reason x --followup y",
        "report T0001",
        "report T0001 --json",
        "ps",
        "ps --json",
        "logs T0001",
        "decide",
        "decide --json",
        "pause --json",
        "pause",
        "run --dry-run --task T0001",
        "resume --json",
        "resume",
        "drain --json",
        "resume",
        "run --dry-run",
        "run --dry-run --json",
        "run --task T0099",
    ]);
    typed.ground.commit_all();
    typed.type_all(&[
        "run --task T0001",
        "run --task T0004 --json",
        "ps --all --json",
        "logs T0001",
        "logs T0001 --json",
        "logs T0001 --attempt 7",
        "report T0001",
        "report T0001 --json",
        "decide T0001 --attempt 1 --answer pass --reason ' '",
        "--as human:ann decide T0001 --attempt 1 --answer pass --reason why",
        "decide T0001 --attempt 1 --answer pass --reason why",
        "--as agent:codex decide T0001 --attempt 1 --answer pass --reason why",
        "cancel T0002 --json",
        "cancel T0004",
        "cancel T0099",
        "retry T0001",
        "retry T0001 --json",
        "retry T0099",
        "archive --older-than 1",
        "archive --older-than 1 --json",
        "archive --older-than 0",
        "archive --older-than 0 --json",
        "migrate --to agency/1.1 --json",
        "migrate --to agency/1.1",
        "migrate --to 7",
        "adopt",
        "adopt --yes",
        "adopt --yes --json",
        "store rebuild",
        "store rebuild --yes",
        "store rebuild --yes --json",
        "config explain",
        "config explain --json",
        "agents show shell",
        "agents show shell --json",
        "agents show nobody",
        "agents test nobody",
        "import jira --json",
        "verify T0002",
        "sandbox --write odd -- ",
        "man nothing",
        "status",
    ]);
    typed.assert_is("kodingx.txt");
}

#[test]
fn a_board_of_codifica() {
    let mut fresh = Transcript::new(&[]);
    fresh.type_all(&[
        "init --protocol codifica --builders shell --json",
        "init --protocol codifica --builders shell",
        "init --protocol codifica --builders shell --force",
        "init --protocol codifica --orchestrator other --builders shell --force",
    ]);
    fresh.assert_is("codifica_init.txt");
    let files =
        [("codifica.json", CONTRACT), ("codifica-spec.md", "# The specification\n"), ("work.md", WORK)];
    let mut typed = Transcript::new(&files);
    typed.ground.write("agency.toml", CONFIGURATION);
    typed.ground.ok(&["trust", "--yes"]);
    typed.ground.commit_all();
    typed.type_all(&[
        "trust --yes --json",
        "task list",
        "task list --json",
        "task list --status todo --json",
        "task list --status odd",
        "task list --assignee codex",
        "task show C-1",
        "task show C-1 --json",
        "task show C-9",
        "status",
        "status --json",
        "lint",
        "lint --json",
        "lint --fix",
        "upgrade --add risks",
        "task renumber x",
        "task new --title Fifth --type build --assignee shell --json",
        "task new --title Sixth --type build --assignee shell --acceptance 'it works'",
        "task new --title Seventh --must-touch x",
        "assign C-3 --assignee shell",
        "task move C-2 to_be_tested --as agent:codex",
        "task move C-3 rejected",
        "--as human:ann task move C-3 rejected --reason 'not needed' --json",
        "task move C-2 odd",
        "verify C-2 --check-risks",
        "verify C-2",
        "report C-2",
        "report C-2 --json",
        "report C-9",
        "ps --json",
        "decide --json",
        "pause --json",
        "resume",
        "run --dry-run",
        "run --dry-run --json",
        "run --task C-1",
        "ps --all --json",
        "logs C-1",
        "report C-1",
        "report C-1 --json",
        "cancel C-1",
        "retry C-1 --json",
        "archive --older-than 0",
        "archive --older-than 0 --json",
        "migrate --to 0.2 --json",
        "migrate --to agency/1.1",
        "import jira",
    ]);
    typed.assert_is("codifica.txt");
}

#[test]
fn boards_of_both_protocols() {
    let files =
        [("codifica.json", CONTRACT), ("codifica-spec.md", "# The specification\n"), ("work.md", WORK)];
    let mut typed = Transcript::new(&files);
    typed.ground.ok(&["init", "--protocol", "kodingx", "--orchestrator", "other", "--builders", "shell"]);
    typed.commit();
    typed.type_all(&[
        "--protocol kodingx task new --title First --assignee shell --must-touch 'src/**' --dod-profile quick",
        "task list",
        "task list --json",
        "task list --status odd",
        "task show C-1",
        "task show kodingx:T0001",
        "status",
        "status --json",
        "lint --json",
        "lint --fix",
        "report C-1 --json",
        "report T0001",
        "archive --older-than 0",
        "--protocol odd status",
        "run",
    ]);
    typed.assert_is("both.txt");
}
