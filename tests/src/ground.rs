//! A repository with a board in it, and `agency` run there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::repository::{Actor, Repository, actors, said};
use crate::tree::Tree;
use serde_json::Value as Json;
use serde_yaml::Value as Yaml;
use tempfile::TempDir;

/// Every tool that can orchestrate, with the file it reads its rules from.
pub const TOOLS: [(&str, &str); 7] = [
    ("cursor", ".cursor/rules/agency.mdc"),
    ("claude_code", "CLAUDE.md"),
    ("aider", "AGENCY.md"),
    ("continue", ".continue/rules/agency.md"),
    ("windsurf", ".windsurf/rules/agency.md"),
    ("antigravity", ".agents/rules/agency.md"),
    ("other", "AGENTS.md"),
];

/// A repository of its own, whose user has nothing else of ours: no trust, no configuration.
#[derive(Debug)]
pub struct Ground {
    repository: Repository,
    user: TempDir,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let (out, err) = said(&output);
        let code = output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"));
        Self { code, out, err }
    }
}

impl Said {
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn assert_names(&self, words: &[&str]) {
        for word in words {
            assert!(self.err.contains(word), "nothing is said of {word:?}: {self:?}");
        }
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

impl Ground {
    /// A repository without a board, whoever runs the tests.
    pub fn without_board(files: &[(&str, &str)]) -> Self {
        Self::of(actors()[0], files)
    }

    /// A folder with nothing in it, not even a repository.
    pub fn of_nothing() -> Self {
        Self::folder(actors()[0], &[])
    }

    pub fn of(actor: Actor, files: &[(&str, &str)]) -> Self {
        let ground = Self::folder(actor, files);
        ground.git(&["init", "--quiet", "--initial-branch=main"]);
        ground.git(&["config", "user.email", "ada@example.org"]);
        ground
    }

    fn folder(actor: Actor, files: &[(&str, &str)]) -> Self {
        let repository = Repository::without_git(actor, files).expect("a repository");
        let user = tempfile::Builder::new().prefix("agency-board-").tempdir().expect("a folder");
        if let Some((uid, gid)) = repository.owner() {
            std::os::unix::fs::chown(user.path(), Some(uid), Some(gid)).expect("given");
        }
        Self { repository, user }
    }

    /// The person who works here is in this group besides.
    pub fn in_group(mut self, group: u32) -> Self {
        self.repository = self.repository.in_group(group);
        self
    }

    /// With a whole board: two builders, and a tool without a place of its own.
    pub fn new() -> Self {
        Self::with_tool("other")
    }

    pub fn with_tool(tool: &str) -> Self {
        // Checks of the profile `auto`: without them, lint would say so of every task.
        let ground = Self::without_board(&[("Makefile", "check:\n\t@true\n")]);
        ground.ok(&["init", "--orchestrator", tool, "--builders", "codex,claude-code"]);
        ground
    }

    pub fn path(&self) -> &Path {
        self.repository.path()
    }

    /// Where `agency` keeps the state of this repository.
    pub fn state(&self) -> PathBuf {
        self.repository.state()
    }

    /// Where `agency` keeps the state of whatever is worked on here.
    pub fn state_home(&self) -> &Path {
        self.repository.state_home()
    }

    /// Where the user's own configuration is.
    pub fn user(&self) -> &Path {
        self.user.path()
    }

    /// `agency` with these arguments, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(self.repository.agency());
        command.args(arguments);
        command
    }

    /// The `agency` that whoever works here can start.
    pub fn program_path(&self) -> &Path {
        self.repository.agency()
    }

    /// User and group of who works here, where that is not who runs the tests.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.repository.owner()
    }

    /// Another program, as `agency` is run here.
    pub fn program(&self, program: &Path) -> Command {
        self.environment(self.repository.command(program))
    }

    /// Runs it to its end, which is near: nothing in a repository may keep it waiting.
    pub fn agency(&self, arguments: &[&str]) -> Said {
        self.environment(self.repository.command("timeout"))
            .arg("100")
            .arg(self.repository.agency())
            .args(arguments)
            .output()
            .expect("agency starts")
            .into()
    }

    /// Runs a line as a shell would: `agency` and what follows it.
    pub fn typed(&self, line: &str) -> Said {
        self.environment(self.repository.command("sh"))
            .args(["-c", &format!("exec \"$0\" {line}")])
            .arg(self.repository.agency())
            .output()
            .expect("a shell starts")
            .into()
    }

    fn environment(&self, mut command: Command) -> Command {
        command.env("XDG_CONFIG_HOME", self.user.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// Runs what must work.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Said {
        let said = self.agency(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said
    }

    /// Runs what must fail with this code, and have changed nothing.
    #[track_caller]
    pub fn refused(&self, code: i32, arguments: &[&str]) -> Said {
        let said = self.unchanged(code, arguments);
        assert!(said.err.starts_with("agency: ") && said.out.is_empty(), "{arguments:?}: {said:?}");
        said
    }

    /// Runs what must end with this code and change nothing, not even the time of a file.
    #[track_caller]
    pub fn unchanged(&self, code: i32, arguments: &[&str]) -> Said {
        let before = self.fingerprint();
        let said = self.agency(arguments);
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        self.assert_unchanged(&before);
        said
    }

    /// Everything in the work tree.
    pub fn fingerprint(&self) -> Tree {
        Tree::of_all_but(self.path(), &[Path::new(".git")]).expect("the tree can be read")
    }

    #[track_caller]
    pub fn assert_unchanged(&self, before: &Tree) {
        let changes = before.diff(&self.fingerprint());
        assert!(changes.is_empty(), "{}", changes.join("\n"));
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        let output = self.repository.command("git").args(arguments).output().expect("git starts");
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        said(&output).0
    }

    pub fn commit_all(&self) {
        self.git(&["add", "--all"]);
        self.git(&["-c", "user.name=Ada", "commit", "--quiet", "--allow-empty", "--message=x"]);
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path().join(name).symlink_metadata().is_ok()
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A file that can be run; where it is.
    pub fn write_program(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, content);
        let path = self.path().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        path
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
        if let Some((uid, gid)) = self.repository.owner() {
            let mut path = self.path().join(name);
            while path != self.path() {
                std::os::unix::fs::lchown(&path, Some(uid), Some(gid)).expect("given");
                path.pop();
            }
        }
    }

    /// Changes a piece of text that is there.
    #[track_caller]
    pub fn edit(&self, name: &str, from: &str, to: &str) {
        let text = self.read(name);
        assert!(text.contains(from), "{name} has no {from:?}: {text}");
        self.write(name, text.replacen(from, to, 1));
    }

    pub fn remove(&self, name: &str) {
        let path = self.path().join(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
    }

    /// Files below a folder, by their paths from the root.
    pub fn files(&self, below: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut waiting: Vec<PathBuf> = vec![self.path().join(below)];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.is_symlink() {
                    waiting.push(path);
                } else {
                    found.push(path.strip_prefix(self.path()).expect("below").to_string_lossy().into_owned());
                }
            }
        }
        found.retain(|name| !name.starts_with(".git/"));
        found.sort();
        found
    }

    /// The header of a Markdown file, as a parser of YAML reads it that is not ours.
    #[track_caller]
    pub fn header(&self, name: &str) -> Yaml {
        header(&self.read(name)).unwrap_or_else(|| panic!("{name} has no header: {}", self.read(name)))
    }

    pub fn json(&self, name: &str) -> Json {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A new task for codex; its id.
    #[track_caller]
    pub fn task(&self, title: &str, more: &[&str]) -> String {
        let arguments = ["task", "new", "--title", title, "--must-touch", "src/**"];
        self.ok(&[&arguments, more].concat()).out.trim().to_owned()
    }

    /// The file of a task.
    #[track_caller]
    pub fn file(&self, id: &str) -> String {
        let found: Vec<String> = self
            .files(".kodingx")
            .into_iter()
            .filter(|file| {
                let name = file.rsplit('/').next().unwrap_or_default();
                file.contains("/inbox/") && name.starts_with(&format!("{id}-"))
            })
            .collect();
        assert_eq!(found.len(), 1, "{id}: {found:?}");
        found[0].clone()
    }

    /// Writes a builder's report on a task, as a builder would.
    pub fn report(&self, id: &str, status: &str) -> String {
        let path = self.file(id).replace("/inbox/", "/outbox/").replace(".md", "-report.md");
        let agent = path.split('/').nth(2).expect("an agent").to_owned();
        self.write(
            &path,
            REPORT.replace("T0007", id).replace("codex", &agent).replace("READY_FOR_REVIEW", status),
        );
        path
    }

    /// Writes an artifact by hand, as an equivalent of `agency verify` would (§13.5).
    pub fn artifact(&self, id: &str, result: &str) -> String {
        let file = self.file(id);
        let stem = file.rsplit('/').next().expect("a name").strip_suffix(".md").expect("a task");
        let path = format!(".kodingx/verify/2026-01-31/{stem}.verify.json");
        let text = serde_json::json!({
            "protocol": "agency/1.0", "task_id": id, "timestamp": "2026-01-31T16:58:00+01:00",
            "dod_profile": "make", "result": result,
            "commands": [{"cmd": "make test", "exit_code": 0, "duration_ms": 12}], "notes": [],
        });
        self.write(&path, text.to_string());
        path
    }

    /// Sets the status of a task as a person with an editor would.
    #[track_caller]
    pub fn set_status(&self, id: &str, status: &str) {
        let file = self.file(id);
        let text = self.read(&file);
        let line = text.lines().find(|line| line.starts_with("status: ")).expect("a status");
        self.write(&file, text.replacen(line, &format!("status: {status}"), 1));
    }

    pub fn status(&self, id: &str) -> String {
        self.header(&self.file(id))["status"].as_str().expect("a status").to_owned()
    }

    /// A task that may become DONE, as soon as it is verified: reported, ready for review.
    pub fn reported(&self, title: &str, more: &[&str]) -> String {
        let id = self.task(title, more);
        self.set_status(&id, "READY_FOR_REVIEW");
        self.report(&id, "READY_FOR_REVIEW");
        self.ok(&["lint", "--fix"]);
        id
    }

    /// Writes a profile and trusts it.
    pub fn profile(&self, name: &str, commands: &[&str]) {
        let commands = serde_json::json!(commands);
        let text = format!("name: {name}\ndescription: Of a test\ncommands: {commands}\n");
        self.write(&format!(".kodingx/dod/profiles/{name}.yml"), text);
        self.ok(&["trust", "--yes"]);
    }

    /// What `agency lint` finds: nothing, or `file: message (§section)`.
    #[track_caller]
    pub fn lint(&self) -> Vec<Json> {
        let said = self.agency(&["lint", "--json"]);
        let document = said.json();
        let findings = document["findings"].as_array().expect("findings").clone();
        let errors = findings.iter().any(|finding| finding["severity"] == "error");
        assert_eq!(said.code, if errors { 10 } else { 0 }, "{said:?}");
        assert_eq!(document["compliant"], !errors);
        findings
    }

    #[track_caller]
    pub fn assert_compliant(&self) {
        let findings = self.lint();
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// Lint finds this in this file, with this section of the specification.
    #[track_caller]
    pub fn assert_found(&self, file: &str, section: &str, words: &str) {
        let findings = self.lint();
        let is_it = |finding: &&Json| {
            finding["file"] == file
                && finding["section"] == section
                && finding["message"].as_str().is_some_and(|message| message.contains(words))
        };
        assert!(
            findings.iter().any(|one| is_it(&one)),
            "no {words:?} of §{section} in {file}: {findings:#?}"
        );
    }
}

/// The header of a text, if it begins with one.
pub fn header(text: &str) -> Option<Yaml> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let (inside, _) = text.strip_prefix("---\n")?.split_once("\n---\n")?;
    serde_yaml::from_str(inside).ok()
}

pub const REPORT: &str = "---
task_id: T0007
agent: codex
status: READY_FOR_REVIEW
started_at: 2026-01-31T16:12:00+01:00
finished_at: 2026-01-31T16:45:00+01:00
changes:
  files_modified:
    - \"src/totals.ts\"
commands_run:
  - \"make test\"
verification:
  dod_passed: true
risks: []
---

## Summary
It works now.
";
