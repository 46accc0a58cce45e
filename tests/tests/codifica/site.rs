//! A repository that speaks Codifica, and clones of it.

use std::path::Path;

use agency_tests::ground::{Ground, Said};
use serde_yaml::Value as Yaml;

pub(crate) const CONTRACT: &str = r#"{
  "protocol": "codifica",
  "version": "0.2",
  "spec": "codifica-spec.md",
  "state": "work.md"
}
"#;

/// A task that an agent could begin.
pub(crate) fn ready(id: &str) -> String {
    task(id, "build", "todo", "agent:shell") + "  acceptance:\n    - it works\n"
}

pub(crate) fn task(id: &str, kind: &str, state: &str, owner: &str) -> String {
    format!("- id: {id}\n  type: {kind}\n  state: {state}\n  owner: {owner}\n  title: Task {id}\n")
}

/// A state file as people write it.
pub(crate) fn work(tasks: &str) -> String {
    format!("<!-- ours -->\n# Work\n\n## Active\n\n```yaml\n{tasks}```\n\n## Done\n")
}

pub(crate) struct Site {
    pub(crate) ground: Ground,
}

impl Site {
    /// With these tasks, committed, and an agent `shell` that does nothing yet.
    pub(crate) fn new(tasks: &str) -> Self {
        Self::with(CONTRACT, &work(tasks))
    }

    pub(crate) fn with_rules(rules: &str, tasks: &str) -> Self {
        let contract = CONTRACT.replace("\"work.md\"", &format!("\"work.md\", \"rules\": {rules}"));
        Self::with(&contract, &work(tasks))
    }

    pub(crate) fn with(contract: &str, work: &str) -> Self {
        let ground = Ground::without_board(&[("src/a.txt", "one\n"), ("Makefile", "check:\n\ttrue\n")]);
        ground.write("codifica.json", contract);
        ground.write("codifica-spec.md", "# The specification\n");
        ground.write("work.md", work);
        ground.commit_all();
        Self { ground }
    }

    /// The agent `shell` runs this script; trusted and committed.
    pub(crate) fn agent(&self, script: &str) {
        self.configure(script, "backoff = \"100ms\"\nattempts = 1\n");
    }

    pub(crate) fn configure(&self, script: &str, run: &str) {
        let command = serde_json::json!(["sh", "-c", script]);
        let text = format!("[run]\n{run}[roles]\nbuilder = \"shell\"\n[agents.shell]\ncommand = {command}\n");
        self.ground.write("agency.toml", text);
        self.trust();
        self.ground.commit_all();
    }

    /// A bare repository that this one is a clone of.
    pub(crate) fn share(&self) -> String {
        self.share_at(&self.ground.user().join("shared.git"))
    }

    /// The same, anywhere.
    pub(crate) fn share_at(&self, remote: &Path) -> String {
        let remote = remote.display().to_string();
        self.ground.git(&["clone", "--quiet", "--bare", ".", &remote]);
        self.ground.git(&["remote", "add", "origin", &remote]);
        self.ground.git(&["fetch", "--quiet", "origin"]);
        self.ground.git(&["branch", "--quiet", "--set-upstream-to=origin/main", "main"]);
        self.ground.ok(&["trust", "--yes", "--upstream", &remote]);
        remote
    }

    /// Another clone of it, with the same configuration, trusted.
    pub(crate) fn clone_of(remote: &str) -> Self {
        let ground = Ground::without_board(&[]);
        ground.git(&["remote", "add", "origin", remote]);
        ground.git(&["fetch", "--quiet", "origin"]);
        ground.git(&["checkout", "--quiet", "--force", "-B", "main", "--track", "origin/main"]);
        ground.ok(&["trust", "--yes", "--upstream", remote]);
        Self { ground }
    }

    /// Whatever is here, and where it is shared.
    pub(crate) fn trust(&self) {
        let remotes = self.ground.git(&["remote"]);
        match remotes.contains("origin") {
            true => {
                let address = self.ground.git(&["remote", "get-url", "origin"]);
                self.ground.ok(&["trust", "--yes", "--upstream", address.trim()])
            }
            false => self.ground.ok(&["trust", "--yes"]),
        };
    }

    /// A task, as a parser reads it that is not ours.
    #[track_caller]
    pub(crate) fn task(&self, id: &str) -> Yaml {
        let shown = self.ground.ok(&["task", "show", id, "--json"]).json();
        let body = shown["body"].as_str().expect("the task's text").to_owned();
        let mut all: Vec<Yaml> =
            serde_yaml::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        all.pop().expect("a task")
    }

    #[track_caller]
    pub(crate) fn state(&self, id: &str) -> String {
        self.task(id)["state"].as_str().expect("a state").to_owned()
    }

    #[track_caller]
    pub(crate) fn moves(&self, id: &str, to: &str, actor: &str, reason: Option<&str>) -> Said {
        let mut words = vec!["task", "move", id, to, "--as", actor];
        if let Some(reason) = reason {
            words.extend(["--reason", reason]);
        }
        self.ground.agency(&words)
    }

    /// The subjects of all commits, the newest first.
    pub(crate) fn log(&self) -> Vec<String> {
        self.ground.git(&["log", "--format=%s"]).lines().map(str::to_owned).collect()
    }

    /// What the last commit changed, without the lines that did not.
    pub(crate) fn last_patch(&self) -> String {
        self.ground.git(&["show", "--format=", "--unified=0", "HEAD"])
    }
}
