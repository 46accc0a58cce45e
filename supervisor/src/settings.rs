//! What a supervisor is told before it begins.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agency_sandbox::container::Container;
use agency_sandbox::policy::Level;

use crate::budget::Budget;
use crate::errand::order::{Limits, Program, Setup, SetupOrder, Trust};
use crate::landing::commit::Signature;
use crate::landing::names::RefName;

/// How a repository's tasks are to be run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The work tree.
    pub root: PathBuf,
    /// The state folder.
    pub state: PathBuf,
    /// Below which private copies are kept, at the level that needs them.
    pub copies: PathBuf,
    pub level: Level,
    /// What containers are made of, at the level that has them and for checks that ask for one.
    pub container: Option<Container>,
    /// What agents start from, and land on.
    pub branch: RefName,
    pub land: Land,
    pub agents: BTreeMap<String, Agent>,
    /// Those that can't be started here, with the reason.
    pub unusable: BTreeMap<String, String>,
    /// Which of the repository's own profiles may be run.
    pub trust: Trust,
    /// Who lands.
    pub committer: Committer,
    /// How many attempts run at the same time, all together.
    pub parallel: usize,
    /// How often a task is tried, counting only what is its agent's fault.
    pub attempts: u32,
    /// How often an attempt may fail as the one before did, with the same work, until the task is given up.
    pub repeats: u32,
    pub budget: Budget,
    /// Who judges the work of others, if somebody does.
    pub auditor: Option<String>,
    /// What prepares a workspace, if something does.
    pub setup: Option<Setup>,
    /// How long the second attempt waits for its turn; later ones wait longer.
    pub backoff: Duration,
    pub leases: Leases,
}

impl Settings {
    /// What an agent's container is made of.
    pub fn container_of(&self, agent: &Agent) -> Option<Container> {
        match (&agent.image, &self.container) {
            (Some(image), usual) => {
                Some(Container { image: image.clone(), ..usual.clone().unwrap_or_default() })
            }
            (None, usual) => usual.clone(),
        }
    }

    /// What prepares a workspace, for an order. Whatever is landed was judged.
    pub(crate) fn setup_order<'a>(&self, landed: impl IntoIterator<Item = &'a str>) -> Option<SetupOrder> {
        let setup = self.setup.clone()?;
        let mut landed: Vec<String> = landed.into_iter().map(str::to_owned).collect();
        landed.dedup();
        Some(SetupOrder { setup, landed })
    }
}

/// Where work lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Land {
    /// On the branch that agents start from.
    Merge,
    /// On a branch of the task's own.
    Branch,
    /// Nowhere: it is verified and kept.
    None,
}

/// One agent.
#[derive(Debug, Clone, Default)]
pub struct Agent {
    pub program: Program,
    /// It works by itself somewhere else: it is never started, and its reports are waited for.
    pub outside: bool,
    pub limits: Limits,
    /// Its own level, where it has one.
    pub level: Option<Level>,
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
    pub(crate) fn signature(&self, seconds: i64) -> Signature {
        Signature::new(&self.name, &self.email, seconds, 0)
    }
}

/// How long a lease is good for without a word from its owner.
#[derive(Debug, Clone, Copy)]
pub struct Leases {
    pub ttl: Duration,
    pub heartbeat: Duration,
}

impl Leases {
    /// Two words in a row may get lost.
    pub fn of(ttl: Duration) -> Self {
        Self { ttl, heartbeat: (ttl / 3).max(Duration::from_millis(1)) }
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self::of(Duration::from_secs(900))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Settings with nobody in them.
    pub(crate) fn settings() -> Settings {
        Settings {
            root: PathBuf::from("/repository"),
            state: PathBuf::from("/state"),
            copies: PathBuf::from("/var/tmp"),
            level: Level::Process,
            container: None,
            branch: RefName::parse("refs/heads/main").expect("a name"),
            land: Land::Merge,
            agents: BTreeMap::new(),
            unusable: BTreeMap::new(),
            trust: Trust::All,
            committer: Committer { name: "a".into(), email: "a@localhost".into() },
            parallel: 1,
            attempts: 3,
            repeats: 2,
            budget: Budget::default(),
            auditor: None,
            setup: None,
            backoff: Duration::from_millis(100),
            leases: Leases::default(),
        }
    }
}
