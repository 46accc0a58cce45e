//! A queue of tasks on a board, agents that are shell scripts, and supervisors at work on it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;

use crate::adversary;
use crate::ground::{Ground, Said};
use crate::processes::{Marker, VARIABLE, wait_until};
use crate::repository::{Actor, actors};

/// An agent that does what it should: one file of its own, in scope.
pub const HONEST: &str = "mkdir -p src && echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID";

/// Nothing here takes so long, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(100);

/// A repository whose board has tasks for agents that are scripts.
#[derive(Debug)]
pub struct Queue {
    pub ground: Ground,
    marker: Marker,
    agents: BTreeMap<String, String>,
    run: String,
    /// Other tables.
    more: String,
}

impl Queue {
    /// With one agent, `shell`, that is honest, and a profile that holds.
    pub fn new() -> Self {
        Self::with_agent(HONEST)
    }

    /// The agent `shell` runs this script.
    pub fn with_agent(script: &str) -> Self {
        Self::of(actors()[0], script)
    }

    /// The same, whoever works there.
    pub fn of(actor: Actor, script: &str) -> Self {
        let files = [("src/a.txt", "one\ntwo\nthree\n"), ("README.md", "Hello\n")];
        let ground = Ground::of(actor, &files);
        ground.ok(&["init", "--orchestrator", "other", "--builders", "shell"]);
        let mut queue = Self {
            ground,
            marker: Marker::new(),
            agents: BTreeMap::new(),
            run: "backoff = \"100ms\"".to_owned(),
            more: String::new(),
        };
        queue.agent("shell", script, "");
        queue.ground.profile("quick", &["true"]);
        queue.ground.commit_all();
        queue
    }

    /// An agent that runs a script, with more lines of configuration; trusted.
    pub fn agent(&mut self, name: &str, script: &str, more: &str) {
        // The marker finds it again among all processes.
        let command = serde_json::json!(["sh", "-c", format!("# {}\n{script}", self.marker.as_str())]);
        self.agents.insert(name.to_owned(), format!("command = {command}\n{more}"));
        self.configure();
    }

    /// More lines for `[run]`; trusted.
    pub fn settings(&mut self, lines: &str) {
        self.run.push('\n');
        self.run.push_str(lines);
        self.configure();
    }

    /// Whole tables beside `[run]` and the agents; trusted.
    pub fn tables(&mut self, lines: &str) {
        self.more.push_str(lines);
        self.configure();
    }

    /// The agent `judge` runs this script, and judges.
    pub fn auditor(&mut self, script: &str) {
        self.agent("judge", script, "");
        self.tables("[roles]\nauditor = \"judge\"\n");
    }

    fn configure(&self) {
        let mut text = format!("[run]\n{}\n", self.run);
        for (name, lines) in &self.agents {
            text.push_str(&format!("[agents.{name}]\n{lines}\n"));
        }
        text.push_str(&self.more);
        self.ground.write("agency.toml", text);
        self.ground.ok(&["trust", "--yes"]);
    }

    /// A new task for an agent, in the scope `src/**`; its id.
    pub fn task(&self, agent: &str, more: &[&str]) -> String {
        let usual = ["--assignee", agent, "--dod-profile", "quick"];
        self.ground.task("A task", &[&usual, more].concat())
    }

    pub fn tasks(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.task("shell", &[])).collect()
    }

    /// Ann says what becomes of an attempt that was left to her.
    #[track_caller]
    pub fn decide(&self, id: &str, attempt: &str, answer: &str, reason: &str) {
        let words = ["decide", id, "--attempt", attempt, "--answer", answer, "--reason", reason];
        self.ground.ok(&[&["--as", "human:ann"], &words[..]].concat());
    }

    /// `agency run` with these arguments, to its end.
    pub fn run(&self, arguments: &[&str]) -> Said {
        self.start(arguments).end()
    }

    /// `agency run`, not waited for.
    pub fn start(&self, arguments: &[&str]) -> Supervisor {
        self.spawn(self.ground.command(&[&["run"], arguments].concat()))
    }

    /// The same, with more variables in its environment.
    pub fn start_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Supervisor {
        let mut command = self.ground.command(&[&["run"], arguments].concat());
        command.envs(variables.iter().copied());
        self.spawn(command)
    }

    /// The same, in a process group of its own: with everything it starts that does not leave it.
    pub fn start_group(&self, arguments: &[&str]) -> Supervisor {
        let mut command = self.ground.command(&[&["run"], arguments].concat());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.spawn(command)
    }

    /// Another command, not waited for.
    pub fn start_command(&self, arguments: &[&str]) -> Supervisor {
        self.spawn(self.ground.command(arguments))
    }

    /// A supervisor that does something to itself at a moment of an attempt's life.
    pub fn supervise_here(&self, arguments: &[&str]) -> Supervisor {
        let mut command = self.ground.program(&adversary::supervisor());
        command.args(arguments);
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Supervisor {
        command.env(VARIABLE, self.marker.as_str());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Supervisor::of(command.spawn().expect("it starts"))
    }

    /// How often each task stands on the branch, by what its commits say.
    pub fn landed(&self) -> BTreeMap<String, usize> {
        let format = "--format=%(trailers:key=Agency-Task,valueonly)";
        let mut counted = BTreeMap::new();
        for task in self.ground.git(&["log", "main", format]).split_whitespace() {
            *counted.entry(task.to_owned()).or_default() += 1;
        }
        counted
    }

    /// Every one of these is done and landed, once, and nothing else is.
    #[track_caller]
    pub fn assert_landed(&self, tasks: &[String]) {
        let once: BTreeMap<String, usize> = tasks.iter().map(|id| (id.clone(), 1)).collect();
        assert_eq!(self.landed(), once);
        for id in tasks {
            assert_eq!(self.ground.status(id), "DONE", "{id}");
        }
        self.ground.assert_compliant();
    }

    /// Nothing is left of any run: no process, no mount, no lease, no layer.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        if let Err(alive) = self.marker.gone_within(Duration::from_secs(20)) {
            panic!("still alive: {alive:#?}");
        }
        let root = self.ground.path().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&root)).collect();
        assert!(left.is_empty(), "still mounted: {left:#?}");
        for object in
            self.ground.git(&["for-each-ref", "--format=%(objectname)", "refs/agency/lease"]).lines()
        {
            let lease = self.ground.git(&["cat-file", "blob", object]);
            assert!(
                lease.starts_with("agency released "),
                "a lease in git: {lease}\nthe store: {:#}",
                self.ground.ok(&["ps", "--all", "--json"]).json()
            );
        }
        assert_eq!(self.open_attempts(), Vec::<Json>::new(), "leases in the store");
        let layers = fs::read_dir(self.ground.state().join("sandboxes")).expect("a folder").count();
        assert_eq!(layers, 0, "layers of sandboxes");
    }

    /// Nobody works any more, whatever is still open.
    #[track_caller]
    pub fn assert_nothing_at_work(&self) {
        if let Err(alive) = self.marker.gone_within(Duration::from_secs(20)) {
            panic!("still alive: {alive:#?}");
        }
    }

    /// What `agency ps` shows.
    pub fn open_attempts(&self) -> Vec<Json> {
        self.ground.ok(&["ps", "--json"]).json()["attempts"].as_array().expect("attempts").clone()
    }

    /// Waits until an attempt at a task is in a phase.
    #[track_caller]
    pub fn until_phase(&self, id: &str, phase: &str) {
        let there = || {
            let open = self.open_attempts();
            open.iter().any(|one| one["task"]["id"] == id && one["phase"]["phase"] == phase)
        };
        assert!(wait_until(LONG, there), "{id} does not come to be {phase}: {:?}", self.open_attempts());
    }

    /// The folder of an attempt's records.
    pub fn records(&self, id: &str, attempt: u64) -> PathBuf {
        self.ground.state().join(format!("runs/kodingx.{id}.{attempt}"))
    }

    pub fn marker(&self) -> &Marker {
        &self.marker
    }

    pub fn path(&self) -> &Path {
        self.ground.path()
    }

    /// Where `agency` keeps its state.
    pub fn state(&self) -> PathBuf {
        self.ground.state()
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

/// A supervisor that runs. One that is dropped is killed; what it runs is not.
#[derive(Debug)]
pub struct Supervisor {
    child: Child,
    out: Heard,
    err: Heard,
}

/// What comes out of a pipe, as it comes: nobody who writes there has to wait.
#[derive(Debug)]
struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Heard {
    fn listen(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("read");
        }
        self.so_far()
    }
}

impl Supervisor {
    fn of(mut child: Child) -> Self {
        let out = Heard::listen(child.stdout.take().expect("a pipe"));
        let err = Heard::listen(child.stderr.take().expect("a pipe"));
        Self { child, out, err }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process");
        kill(Pid::from_raw(pid), signal).expect("signalled");
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("asked").is_none()
    }

    /// Waits for its end, however it comes.
    pub fn gone(&mut self) -> std::process::ExitStatus {
        assert!(wait_until(LONG, || !self.is_alive()), "it does not end: {}", self.said_so_far());
        self.child.wait().expect("ended")
    }

    /// Waits until it has stopped itself.
    pub fn stopped(&mut self) {
        let path = format!("/proc/{}/stat", self.child.id());
        let state = || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.rsplit(") ").next().and_then(|rest| rest.chars().next())
        };
        assert!(wait_until(LONG, || state() == Some('T')), "it does not stop: {:?}", state());
    }

    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// What it has said to people.
    pub fn said_so_far(&self) -> String {
        self.err.so_far()
    }

    /// Waits until it has said this, to people.
    #[track_caller]
    pub fn says(&self, words: &str) {
        let said = || self.err.so_far().contains(words);
        assert!(wait_until(LONG, said), "it does not say {words:?}: {}", self.err.so_far());
    }

    /// Waits until it has written this, to programs.
    #[track_caller]
    pub fn writes(&self, words: &str) {
        let written = || self.out.so_far().contains(words);
        assert!(wait_until(LONG, written), "it does not write {words:?}: {}", self.out.so_far());
    }

    /// Waits for its end, and what it said.
    pub fn end(mut self) -> Said {
        let status = self.gone();
        let (out, err) = (self.out.whole(), self.err.whole());
        let code = status.code().unwrap_or_else(|| panic!("{status}: {err}"));
        Said { code, out, err }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
