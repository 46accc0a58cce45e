//! Names that come from outside, checked once.

use std::fmt;

use serde::Serialize;

/// The id of a task, in any protocol: one word that is safe in a file name and in a git ref.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TaskId(String);

/// The name of an agent: lowercase letters, digits, `-`, `_` and `.`; safe as a folder's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct AgentName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("`{text}` is no task id: letters, digits, `-` and `_`, at most 64 of them")]
    TaskId { text: String },
    #[error(
        "`{text}` is no agent name: a plain name of letters, digits, `-`, `_` and `.`, at most 64 of them, without `/` or `..`"
    )]
    AgentName { text: String },
}

impl TaskId {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if starts && text.len() <= 64 && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::TaskId { text: text.to_owned() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AgentName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if starts && text.len() <= 64 && text.bytes().all(allowed) && !text.contains("..") {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::AgentName { text: text.to_owned() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// For whom a task is, as people type it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignee {
    Agent(AgentName),
    Human,
    Unassigned,
}

impl Assignee {
    /// `human`, `unassigned`, `NAME` or `agent:NAME`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text {
            "human" => Ok(Self::Human),
            "unassigned" => Ok(Self::Unassigned),
            name => AgentName::parse(name.strip_prefix("agent:").unwrap_or(name)).map(Self::Agent),
        }
    }
}

impl fmt::Display for Assignee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => name.fmt(f),
            Self::Human => f.pad("human"),
            Self::Unassigned => f.pad("unassigned"),
        }
    }
}

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    Orchestrator,
    /// A person, by name where it is known.
    Human(Option<String>),
    Agent(AgentName),
}

impl Actor {
    /// `orchestrator`, `human`, `human:name` or `agent:name`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("orchestrator", "") => Ok(Actor::Orchestrator),
            ("human", "") => Ok(Actor::Human(None)),
            ("human", name) => Ok(Actor::Human(Some(name.to_owned()))),
            ("agent", name) if !name.is_empty() => {
                AgentName::parse(name).map(Actor::Agent).map_err(|error| error.to_string())
            }
            _ => Err(format!("`{text}` is no actor: say orchestrator, human, human:NAME or agent:NAME")),
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Orchestrator => f.write_str("orchestrator"),
            Actor::Human(None) => f.write_str("human"),
            Actor::Human(Some(name)) => write!(f, "human:{name}"),
            Actor::Agent(name) => write!(f, "agent:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        for bad in ["", "../x", "a/b", "..", ".hidden", "-flag", "a b", "a\n", "ä", "a..b", &"a".repeat(65)]
        {
            assert!(AgentName::parse(bad).is_err(), "{bad:?}");
            assert!(TaskId::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(AgentName::parse("claude-code").expect("a name").as_str(), "claude-code");
        assert_eq!(TaskId::parse("T0007").expect("an id").as_str(), "T0007");
    }

    #[test]
    fn an_assignee_is_an_agent_with_or_without_its_prefix_a_human_or_nobody() {
        let codex = Assignee::Agent(AgentName::parse("codex").expect("a name"));
        assert_eq!(Assignee::parse("codex"), Ok(codex.clone()));
        assert_eq!(Assignee::parse("agent:codex"), Ok(codex));
        assert_eq!(Assignee::parse("human"), Ok(Assignee::Human));
        assert_eq!(Assignee::parse("unassigned"), Ok(Assignee::Unassigned));
        for text in ["", "agent:", "agent:../x", "human:ada", "agent:agent:x"] {
            assert!(Assignee::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn actors_read_as_they_are_written() {
        for text in ["orchestrator", "human", "human:Ada", "agent:codex"] {
            assert_eq!(Actor::parse(text).expect("somebody").to_string(), text);
        }
        for text in ["", "agent", "agent:", "agent:../x", "root", "orchestrator:x"] {
            assert!(Actor::parse(text).is_err(), "{text}");
        }
    }
}
