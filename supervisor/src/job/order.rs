//! What a job is to do. It is written down once and holds no secret: variables are named, their values come
//! from the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use agency_sandbox::policy::ContainerConfig;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::scope::ScopeOrigin;
use serde::{Deserialize, Serialize};

use crate::attempt::{Epoch, TaskKey};
use crate::output_signals::rules::OutputRules;

/// The format of an order.
pub const VERSION: u32 = 1;

/// The variable by which a program is told where it belongs in a trace (W3C Trace Context).
pub const TRACE_VARIABLE: &str = "TRACEPARENT";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobOrder {
    pub version: u32,
    pub task: TaskKey,
    pub epoch: Epoch,
    /// A folder of the repository's work tree.
    pub root: PathBuf,
    /// The repository's state folder.
    pub state: PathBuf,
    /// Below which private copies are kept, at the level that needs them.
    pub copies: PathBuf,
    pub level: IsolationLevel,
    /// What containers are made of, at the level that has them and for checks that ask for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerConfig>,
    /// Where in a trace it belongs, if a trace is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    pub what: JobKind,
}

/// What a job is told of where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceParent {
    /// As `TRACEPARENT` has it.
    pub parent: String,
    /// Whether the span that it names is the job's own, and made when that is over.
    pub promised: bool,
}

impl JobOrder {
    /// What its container is made of, with what it is for.
    pub(super) fn container(&self) -> Option<ContainerConfig> {
        let mut container = self.container.clone()?;
        container.labels.extend([
            ("io.agency.protocol".to_owned(), self.task.protocol.clone()),
            ("io.agency.task".to_owned(), self.task.id.clone()),
            ("io.agency.attempt".to_owned(), self.epoch.0.to_string()),
        ]);
        Some(container)
    }

    /// Tells what runs in the sandbox where it belongs in a trace.
    pub(super) fn export_trace(&self, environment: &mut Vec<(OsString, OsString)>) {
        if let Some(trace) = &self.trace {
            environment.retain(|(name, _)| name != TRACE_VARIABLE);
            environment.push((TRACE_VARIABLE.into(), trace.parent.clone().into()));
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum JobKind {
    Agent(Box<AgentOrder>),
    /// An agent that judges what another one did.
    Audit(Box<AgentOrder>),
    Proof(Box<ProofOrder>),
}

/// An agent is to work on a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentOrder {
    /// The branch as it is when it begins: what its work is compared with.
    pub base: String,
    /// The commit it starts from, where that is another one: the base with earlier work on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Its name, and the name under which its commit is made.
    pub agent: String,
    #[serde(flatten)]
    pub program: AgentProgram,
    pub prompt: String,
    /// The Definition of Done it is held to.
    pub profile: String,
    /// The file the task is written in, relative to the work tree.
    pub task_file: String,
    pub scope: ScopeOrder,
    /// Folders of the real work tree that it sees as they are.
    pub live: Vec<String>,
    pub limits: AgentLimits,
    /// Whose budget has less time left than it may take, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_of_time: Option<BudgetOwner>,
    /// Files it finds beside its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub papers: Vec<Attachment>,
    /// What is done before it begins, unless it was done before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<SetupOrder>,
    pub subject: String,
    /// What it says may be all there is to show for it.
    #[serde(default, skip_serializing_if = "is_not")]
    pub may_change_nothing: bool,
    /// What the task's own branch is called, where the board says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

fn is_not(flag: &bool) -> bool {
    !flag
}

impl AgentOrder {
    /// The commit it starts from.
    pub fn start(&self) -> &str {
        self.start.as_deref().unwrap_or(&self.base)
    }
}

/// How an agent's program is started, what it is given, and how it is understood.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgram {
    /// With placeholders: `{prompt}`, `{prompt_file}`, `{task_id}`, `{task_file}`, `{report_file}`, `{usage_file}`,
    /// `{workspace}`.
    pub command: Vec<String>,
    /// Variables that are passed on. Their values are secrets.
    pub env: Vec<String>,
    /// Variables that are no secret: `NAME`, passed on, or `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// Files of the host that it reads in its private HOME. What they say is secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<PathBuf>,
    /// Other paths of the host that it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathBuf>,
    pub network: NetworkAccess,
    #[serde(default)]
    pub reading: OutputRules,
}

/// Who pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetOwner {
    Task,
    Run,
}

/// A file of ours that an agent is given to read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attachment {
    pub name: String,
    pub source: PathBuf,
}

/// What may change; of `must`, at least one path has to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScopeOrder {
    pub must: Vec<String>,
    pub write: Vec<String>,
    pub deny: Vec<String>,
    /// Who wrote it: what an agent wrote opens no file that tools obey.
    #[serde(default)]
    pub author: ScopeOrigin,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reach", content = "hosts", rename_all = "snake_case")]
pub enum NetworkAccess {
    #[default]
    None,
    Full,
    /// `HOST:PORT`, with commas between them.
    Hosts(String),
}

/// How a workspace is prepared before an agent works on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSetup {
    /// For a shell.
    pub command: String,
    /// The files whose contents say whether it has to be run again, relative to the work tree.
    pub keyed_by: Vec<String>,
    pub network: NetworkAccess,
}

/// A workspace is to be prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupOrder {
    #[serde(flatten)]
    pub setup: WorkspaceSetup,
    /// Commits of the branch: what is prepared on one of them may be used for others.
    pub landed: Vec<String>,
}

/// How much an agent may use, and for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLimits {
    pub memory: Option<u64>,
    pub processes: Option<u64>,
    pub wall_ms: Option<u64>,
    pub stall_ms: Option<u64>,
    pub grace_ms: Option<u64>,
    pub output: Option<u64>,
}

/// A Definition of Done is to be tried on a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProofOrder {
    pub commit: String,
    /// The commit that says what is to be checked: what the agent changed has no say in it.
    pub judged_by: String,
    pub profile: String,
    /// The folder of the repository's own profiles, relative to the work tree.
    pub profiles: Option<String>,
    pub trust: ProfileTrust,
    /// What is done before the first command, unless it was done before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<SetupOrder>,
}

/// Which of the repository's own profiles may be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileTrust {
    All,
    /// Files whose text has one of these names (`sha256:…`).
    These(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Orders that were written before there were setups are read, and those without one are written as before.
    #[test]
    fn an_order_without_a_setup_is_as_it_was() {
        let before = r#"{"commit":"c","judged_by":"b","profile":"p","profiles":null,"trust":"all"}"#;
        let order: ProofOrder = serde_json::from_str(before).expect("read");
        assert_eq!(order.setup, None);
        assert_eq!(serde_json::to_string(&order).expect("written"), before);
        let setup = WorkspaceSetup {
            command: "make".into(),
            keyed_by: vec!["lock".into()],
            network: NetworkAccess::Full,
        };
        let order = ProofOrder { setup: Some(SetupOrder { setup, landed: vec!["b".into()] }), ..order };
        let text = serde_json::to_string(&order).expect("written");
        assert_eq!(serde_json::from_str::<ProofOrder>(&text).expect("read").setup, order.setup);
    }
}
