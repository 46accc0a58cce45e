//! What a supervisor is told before it begins.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agency_protocols::board::{ReadyTask, TaskRole};
use agency_sandbox::policy::ContainerConfig;
use agency_sandbox::policy::IsolationLevel;

use crate::budget::Budget;
use crate::job::order::{AgentLimits, AgentProgram, ProfileTrust, SetupOrder, WorkspaceSetup};
use agency_landing::commit::Signature;
use agency_landing::names::RefName;

/// How a repository's tasks are to be run.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// The work tree.
    pub root: PathBuf,
    /// The state folder.
    pub state: PathBuf,
    /// Below which private copies are kept, at the level that needs them.
    pub copies: PathBuf,
    pub level: IsolationLevel,
    /// What containers are made of, at the level that has them and for checks that ask for one.
    pub container: Option<ContainerConfig>,
    /// What agents start from, and land on.
    pub branch: RefName,
    pub land: LandingTarget,
    pub agents: BTreeMap<String, AgentSettings>,
    /// Those that can't be started here, with the reason.
    pub unusable: BTreeMap<String, String>,
    /// Which of the repository's own profiles may be run.
    pub trust: ProfileTrust,
    /// Who lands.
    pub committer: Committer,
    /// How many attempts run at the same time, all together.
    pub parallel: usize,
    /// Maximum attempts; infrastructure failures don't count.
    pub attempts: u32,
    /// How often an attempt may fail as the one before did, with the same work, until the task is given up.
    pub repeats: u32,
    pub budget: Budget,
    /// The agent that judges the work of others, if there is one.
    pub auditor: Option<String>,
    /// What prepares a workspace, if something does.
    pub setup: Option<WorkspaceSetup>,
    /// Whether a profile's checks run on the base before its first task starts.
    pub checks_base: bool,
    /// How long the second attempt waits for its turn; later ones wait longer.
    pub backoff: Duration,
    pub leases: LeaseTimes,
}

impl RunSettings {
    /// Whether a start is about work that was done elsewhere. A report that lies about for one of our own builders is no
    /// reason not to start it.
    pub(crate) fn is_review(&self, start: &ReadyTask) -> bool {
        let ours = self.agents.get(start.agent.as_str()).is_some_and(|agent| !agent.outside);
        start.role == TaskRole::Reviewer || (start.handed_in && !ours)
    }

    /// What an agent's container is made of.
    pub fn container_of(&self, agent: &AgentSettings) -> Option<ContainerConfig> {
        match (&agent.image, &self.container) {
            (Some(image), usual) => {
                Some(ContainerConfig { image: image.clone(), ..usual.clone().unwrap_or_default() })
            }
            (None, usual) => usual.clone(),
        }
    }

    /// What prepares a workspace, for an order. All that is `landed` was judged.
    pub(crate) fn setup_order<'a>(&self, landed: impl IntoIterator<Item = &'a str>) -> Option<SetupOrder> {
        let setup = self.setup.clone()?;
        let mut landed: Vec<String> = landed.into_iter().map(str::to_owned).collect();
        landed.dedup();
        Some(SetupOrder { setup, landed })
    }
}

/// Where work lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingTarget {
    /// On the branch that agents start from.
    Merge,
    /// On a branch of the task's own.
    Branch,
    /// Nowhere: it is verified and kept.
    None,
}

/// One agent.
#[derive(Debug, Clone, Default)]
pub struct AgentSettings {
    pub program: AgentProgram,
    /// It works by itself somewhere else: it is never started, and its reports are waited for.
    pub outside: bool,
    pub limits: AgentLimits,
    /// Its own level, where it has one.
    pub level: Option<IsolationLevel>,
    /// Its own image, where it has one.
    pub image: Option<String>,
    /// How many of it run at the same time.
    pub parallel: Option<usize>,
}

/// In whose name commits are made.
#[derive(Debug, Clone)]
pub struct Committer {
    pub name: String,
    pub email: String,
}

impl Committer {
    pub fn signature(&self, seconds: i64) -> Signature {
        Signature::new(&self.name, &self.email, seconds, 0)
    }
}

/// How long a lease is good for without a word from its owner.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTimes {
    pub ttl: Duration,
    pub heartbeat: Duration,
}

impl LeaseTimes {
    /// Two words in a row may get lost.
    pub fn of(ttl: Duration) -> Self {
        Self { ttl, heartbeat: (ttl / 3).max(Duration::from_millis(1)) }
    }
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self::of(Duration::from_secs(900))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Settings without agents.
    pub(crate) fn settings() -> RunSettings {
        RunSettings {
            root: PathBuf::from("/repository"),
            state: PathBuf::from("/state"),
            copies: PathBuf::from("/var/tmp"),
            level: IsolationLevel::Process,
            container: None,
            branch: RefName::parse("refs/heads/main").expect("a name"),
            land: LandingTarget::Merge,
            agents: BTreeMap::new(),
            unusable: BTreeMap::new(),
            trust: ProfileTrust::All,
            committer: Committer { name: "a".into(), email: "a@localhost".into() },
            parallel: 1,
            attempts: 3,
            repeats: 2,
            budget: Budget::default(),
            auditor: None,
            setup: None,
            checks_base: false,
            backoff: Duration::from_millis(100),
            leases: LeaseTimes::default(),
        }
    }
}
