//! Agents that misbehave: each ends as it should, and the seven beside it never notice.

use std::collections::BTreeMap;
use std::fs;

use agency_tests::ground::Said;
use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};
use serde_json::Value as Json;

/// How many honest agents work beside those that misbehave.
const HEALTHY: usize = 7;

/// A queue with agents that misbehave, one task each, and honest ones beside them.
struct Office {
    queue: Queue,
    bad: Vec<String>,
    healthy: Vec<String>,
}

/// An agent that misbehaves: what it runs, its lines of configuration, and more for its task.
struct Agent<'a> {
    script: &'a str,
    lines: &'a str,
    task: &'a [&'a str],
}

impl<'a> Agent<'a> {
    fn new(script: &'a str, lines: &'a str) -> Self {
        Self { script, lines, task: &[] }
    }

    /// May change a file of the root, which makes the root writable: what else it changes there, the harvest
    /// finds.
    fn at_the_root(script: &'a str) -> Self {
        Self { script, lines: "", task: &["--may-touch", "NOTES.md"] }
    }
}

impl Office {
    fn of(agents: &[Agent<'_>]) -> Self {
        let mut queue = Queue::new();
        // What is tried here fails the same way each time.
        queue.settings("attempts = 1");
        for (number, agent) in agents.iter().enumerate() {
            queue.agent(&name(number), agent.script, agent.lines);
        }
        queue.ground.commit_all();
        let bad = agents
            .iter()
            .enumerate()
            .map(|(number, agent)| queue.task(&name(number), agent.task))
            .collect::<Vec<_>>();
        let healthy = queue.tasks(HEALTHY);
        Self { queue, bad, healthy }
    }

    fn arguments(&self) -> [String; 3] {
        ["--json".to_owned(), "--parallel".to_owned(), (HEALTHY + self.bad.len()).to_string()]
    }

    /// Runs everything at once, to its end.
    fn run(self) -> Ended {
        let arguments = self.arguments();
        let said = self.queue.run(&arguments.each_ref().map(String::as_str));
        self.ended(said)
    }

    fn ended(self, said: Said) -> Ended {
        let mut endings = BTreeMap::new();
        for line in said.out.lines() {
            let event: Json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if event["event"] == "over" {
                let id = event["task"]["id"].as_str().expect("an id").to_owned();
                let before = endings.insert(id, event["ending"].clone());
                assert_eq!(before, None, "one attempt each: {said:?}");
            }
        }
        Ended { office: self, said, endings }
    }
}

fn name(number: usize) -> String {
    format!("bad{number}")
}

/// What it came to.
struct Ended {
    office: Office,
    said: Said,
    endings: BTreeMap<String, Json>,
}

impl Ended {
    fn ending(&self, number: usize) -> &Json {
        &self.endings[&self.office.bad[number]]
    }

    /// One that misbehaved failed for a reason of this kind that says these words, and its task says so.
    #[track_caller]
    fn assert_failed(&self, number: usize, kind: &str, words: &[&str]) {
        let (id, failure) = (&self.office.bad[number], &self.ending(number)["failure"]);
        assert_eq!(failure["kind"], kind, "{id}: {:?}", self.said);
        let reason = failure["reason"].as_str().expect("a reason");
        for word in words {
            assert!(reason.contains(word), "nothing is said of {word:?}: {reason}");
        }
        let ground = &self.office.queue.ground;
        assert_eq!(ground.status(id), "BLOCKED");
        let first = reason.lines().next().unwrap_or_default();
        assert!(ground.read(&ground.file(id)).contains(first), "{}", ground.read(&ground.file(id)));
    }

    /// What it did is landed although it misbehaved.
    #[track_caller]
    fn assert_done(&self, number: usize) {
        assert_eq!(self.ending(number)["ending"], "done", "{:?}", self.said);
    }

    /// The run ended with this code, the honest ones are done, with these of the others, and nothing is left.
    #[track_caller]
    fn assert_others_done(&self, code: i32, done: &[usize]) {
        let Self { office, said, .. } = self;
        assert_eq!(said.code, code, "{said:?}");
        let also = done.iter().map(|number| office.bad[*number].clone());
        let tasks: Vec<String> = office.healthy.iter().cloned().chain(also).collect();
        office.queue.assert_landed(&tasks);
        for id in &office.healthy {
            assert_eq!(office.queue.ground.read(&format!("src/{id}")), format!("by {id}\n"));
        }
        office.queue.assert_nothing_left();
    }

    fn log(&self, number: usize) -> Vec<u8> {
        let path = self.office.queue.records(&self.office.bad[number], 1).join("agent/output.log");
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn log_text(&self, number: usize) -> String {
        String::from_utf8_lossy(&self.log(number)).into_owned()
    }
}

#[test]
fn an_agent_that_hangs_is_stopped_when_it_has_been_silent_for_too_long() {
    let ended = Office::of(&[Agent::new("exec sleep 600", "idle_timeout = \"1s\"\ntimeout = \"10m\"")]).run();
    ended.assert_failed(0, "stopped", &["no output or file change for 1 s"]);
    ended.assert_others_done(10, &[]);
}

#[test]
fn an_agent_that_runs_for_too_long_is_stopped_however_busy_it_is() {
    let busy = "while :; do echo working; sleep 0.05; done";
    let ended = Office::of(&[Agent::new(busy, "idle_timeout = \"10m\"\ntimeout = \"1s\"")]).run();
    ended.assert_failed(0, "stopped", &["it ran for longer than 1 s"]);
    assert!(ended.log_text(0).contains("working\nworking\n"));
    ended.assert_others_done(10, &[]);
}

/// It is asked first, and answers; only then is it killed.
#[test]
fn an_agent_that_ignores_its_end_is_killed_after_its_grace() {
    let deaf = "trap 'echo I was asked' TERM\nwhile :; do sleep 0.05 || :; done";
    let ended = Office::of(&[Agent::new(deaf, "timeout = \"2s\"\ngrace = \"700ms\"")]).run();
    ended.assert_failed(0, "stopped", &["it ran for longer than 2 s"]);
    assert_eq!(ended.log_text(0).matches("I was asked").count(), 1, "{}", ended.log_text(0));
    let records = ended.office.queue.records(&ended.office.bad[0], 1).join("agent/outcome.json");
    let outcome: Json = serde_json::from_slice(&fs::read(records).expect("read")).expect("JSON");
    assert!(outcome["done"]["elapsed_ms"].as_u64() >= Some(2700), "no grace: {outcome}");
    ended.assert_others_done(10, &[]);
}

/// One that did its work lands; its daemons died before anybody looked at it.
#[test]
fn daemons_do_not_outlive_their_agent() {
    // The one in a session of its own is started with the mark by which this test finds its processes.
    let daemon = "mark=$(tr '\\0' '\\n' < /proc/$$/cmdline | sed -n 's/^# marker/marker/p')\n\
         (setsid sh -c 'exec >&- 2>&-; while :; do echo . >> src/alone; sleep 0.02; done' \"$mark\" &)\n\
         (while :; do echo . >> src/child; sleep 0.02; done >/dev/null 2>&1 &)\n\
         until [ -n \"$mark\" ] && [ -s src/alone ] && [ -s src/child ]; do sleep 0.01; done";
    let late = format!("{daemon}; sleep 600");
    let ended = Office::of(&[Agent::new(daemon, ""), Agent::new(&late, "timeout = \"2s\"")]).run();
    ended.assert_done(0);
    ended.assert_failed(1, "stopped", &["it ran for longer than 2 s"]);
    let ground = &ended.office.queue.ground;
    for name in ["src/alone", "src/child"] {
        let beats = ground.read(name);
        assert!(!beats.is_empty() && beats.lines().all(|line| line == "."), "{name}: {beats}");
    }
    ended.assert_others_done(10, &[0]);
    assert_eq!(ground.git(&["status", "--porcelain", "src"]), "");
}

/// The most memory that the shim of an attempt had, in KiB, without what is only its program's file.
fn peak(queue: &Queue, id: &str) -> Option<u64> {
    let folder = format!("kodingx.{id}.1/agent");
    let shim = queue.marker().alive().into_iter().find(|one| one.command.contains(&folder))?;
    let status = fs::read_to_string(format!("/proc/{}/status", shim.pid)).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    Some(field("VmHWM:")?.saturating_sub(field("RssFile:")?))
}

/// With and without ends of lines; both go on until all of it was taken from them.
#[test]
fn a_flood_of_output_is_cut_in_its_log_and_fills_no_memory() {
    const LIMIT: usize = 64 << 20;
    const FLOOD: usize = LIMIT + (8 << 20);
    let lines = format!("echo first; yes | head -c {FLOOD}; echo last; {HONEST}");
    let endless = format!("echo first; tr '\\0' x < /dev/zero | head -c {FLOOD}; echo; echo last; {HONEST}");
    let office = Office::of(&[Agent::new(&lines, ""), Agent::new(&endless, "")]);
    let arguments = office.arguments();
    let mut run = office.queue.start(&arguments.each_ref().map(String::as_str));
    let mut peaks = [0; 2];
    let over = wait_until(LONG, || {
        for (number, id) in office.bad.iter().enumerate() {
            peaks[number] = peak(&office.queue, id).unwrap_or(0).max(peaks[number]);
        }
        !run.is_alive()
    });
    assert!(over, "it does not end");
    let ended = office.ended(run.end());
    for (number, unit) in ["y\n", "x"].into_iter().enumerate() {
        ended.assert_done(number);
        let log = ended.log_text(number);
        let (beginning, rest) = log.split_once("[agency: ").expect("a notice");
        let (count, end) = rest.split_once(" bytes left out here]\n").expect("a notice");
        let left_out: usize = count.parse().expect("a number");
        assert!(left_out >= FLOOD - LIMIT, "{left_out}");
        assert!((LIMIT..LIMIT + 100).contains(&log.len()), "{} bytes", log.len());
        assert!(beginning.starts_with(&format!("first\n{}", unit.repeat(1000))));
        assert!(end.trim_end().ends_with(&format!("{unit}\nlast").replace("\n\n", "\n")), "{number}");
        assert!((1..12 << 10).contains(&peaks[number]), "{} KiB", peaks[number]);
    }
    ended.assert_others_done(0, &[0, 1]);
}

/// Where the folder is out of scope the write fails; where only the file is, the harvest refuses all of it.
#[test]
fn an_agent_that_writes_outside_its_scope_lands_nothing() {
    let strays = format!("{HONEST}; echo strayed >> README.md");
    let ended = Office::of(&[Agent::new(&strays, ""), Agent::at_the_root(&strays)]).run();
    ended.assert_failed(0, "exit", &["exit code", "README.md: Read-only file system"]);
    ended.assert_failed(1, "scope", &["change refused", "README.md"]);
    ended.assert_others_done(20, &[]);
    let ground = &ended.office.queue.ground;
    assert_eq!(ground.read("README.md"), "Hello\n");
    for id in &ended.office.bad {
        assert!(!ground.exists(&format!("src/{id}")), "{id} landed in part");
    }
}

/// It can go on working, and what it tried is in its log; the board is as the supervisor wrote it.
#[test]
fn an_agent_cannot_write_on_the_board() {
    let vandal = format!(
        "try() {{ if \"$@\" 2>&1; then echo \"it worked: $*\"; fi; }}\n\
         try sed -i 's/^status: .*/status: DONE/' \"$AGENCY_TASK_FILE\"\n\
         try sh -c 'echo forged >> \"$AGENCY_TASK_FILE\"'\n\
         for task in .kodingx/inbox/*/*/*.md; do try sh -c \"echo forged >> $task\"; done\n\
         try mkdir -p .kodingx/outbox/shell/2026-01-31\n\
         try sh -c 'echo forged > .kodingx/outbox/T0002-x-report.md'\n\
         try sh -c 'echo forged >> .kodingx/STATE.md'\n\
         try rm -r .kodingx/inbox\n\
         try mv .kodingx kodingx\n\
         {HONEST}"
    );
    let ended = Office::of(&[Agent::new(&vandal, ""), Agent::at_the_root(&vandal)]).run();
    for number in 0..2 {
        ended.assert_done(number);
        let log = ended.log_text(number);
        assert!(!log.contains("it worked"), "{log}");
        assert!(log.matches("Read-only file system").count() > 10, "{log}");
    }
    ended.assert_others_done(0, &[0, 1]);
    let ground = &ended.office.queue.ground;
    for file in ground.files(".kodingx") {
        assert!(!ground.read(&file).contains("forged"), "{file}");
    }
}

#[test]
fn folders_that_an_agent_locks_are_read_all_the_same() {
    let locks = "mkdir -p src/locked/deep src/empty && echo kept > src/locked/deep/file && echo top > src/shut\n\
                 chmod 000 src/locked/deep/file src/locked/deep src/locked src/empty src/shut\n\
                 chmod 000 src && ! ls src 2>/dev/null";
    let ended = Office::of(&[Agent::new(locks, "")]).run();
    ended.assert_done(0);
    let ground = &ended.office.queue.ground;
    assert_eq!(ground.git(&["show", "main:src/locked/deep/file"]), "kept\n");
    assert_eq!(ground.read("src/shut"), "top\n");
    ended.assert_others_done(0, &[0]);
}

/// As many as another may, and does: the limit is what stops it.
#[test]
fn a_fork_bomb_stops_at_its_limit() {
    let bomb = "bomb() { bomb & bomb & sleep 600; }\nbomb &\nwhile :; do sleep 600 & done";
    let many = format!("for n in $(seq 48); do sleep 600 & done; {HONEST}");
    let ended = Office::of(&[
        Agent::new(bomb, "processes = 32\ntimeout = \"60s\""),
        Agent::new(&many, "processes = 64\ntimeout = \"60s\""),
    ])
    .run();
    ended.assert_failed(0, "exit", &["exit code 2", "Cannot fork"]);
    ended.assert_done(1);
    ended.assert_others_done(10, &[1]);
}

#[test]
fn an_agent_that_takes_too_much_memory_is_stopped() {
    let takes = "x=$(head -c 256M /dev/zero | tr '\\0' x); echo survived; sleep 600";
    let holds = format!("x=$(head -c 32M /dev/zero | tr '\\0' x); {HONEST}");
    let ended = Office::of(&[
        Agent::new(takes, "memory = \"96MiB\"\ntimeout = \"60s\""),
        Agent::new(&holds, "memory = \"192MiB\"\ntimeout = \"60s\""),
    ])
    .run();
    ended.assert_failed(0, "stopped", &["it used more memory than it may"]);
    assert!(!ended.log_text(0).contains("survived"));
    ended.assert_done(1);
    ended.assert_others_done(10, &[1]);
}
