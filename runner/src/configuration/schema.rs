//! Every key of `agency.toml`: what it holds, and whether a repository that nobody trusts may set it.
//!
//! A repository's own configuration is hostile input. Until a person trusts it, it may only narrow: make runs
//! smaller, shorter or fewer. What would start a program, pass a variable, open the network or choose the
//! isolation is withheld.

use agency_sandbox::container::WIDENING;
use toml::Value;

/// One key. `*` stands for a name that people choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) needs: Needs,
    /// What it says, in a few words.
    pub(crate) means: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Count,
    /// An amount of money, `2.50`
    Amount,
    Flag,
    /// `90s`, `45m`
    Duration,
    /// `512MiB`
    Size,
    Texts,
    /// A program and its arguments
    Command,
    /// `none`, `full` or a list of HOST:PORT
    Network,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Trust,
}

const fn free(path: &'static str, kind: Kind, means: &'static str) -> Key {
    Key { path, kind, needs: Needs::Nothing, means }
}

const fn trusted(path: &'static str, kind: Kind, means: &'static str) -> Key {
    Key { path, kind, needs: Needs::Trust, means }
}

/// What holds where nobody says anything else: the last of all configurations.
pub(crate) const DEFAULTS: &str = r#"
[run]
parallel = 1
isolation = "process"
land = "merge"
attempts = 3
repeats = 2
lease = "15m"
backoff = "5s"
"#;

pub(crate) const KEYS: &[Key] = &[
    free("run.protocol", Kind::Text, "the protocol of the board, where it can't be told from its files"),
    free("run.parallel", Kind::Count, "how many attempts run at the same time"),
    trusted("run.isolation", Kind::Text, "how the scope of agents is held"),
    trusted("run.land", Kind::Text, "where work goes: merge, branch or none"),
    trusted(
        "run.attempts",
        Kind::Count,
        "how often a task is tried, counting only what is its agent's fault",
    ),
    trusted(
        "run.repeats",
        Kind::Count,
        "how often the same work may fail in the same way before its task is given up",
    ),
    trusted("run.lease", Kind::Duration, "how long an agent goes on when nobody looks after it"),
    free("run.backoff", Kind::Duration, "how long the second attempt waits; later ones wait longer"),
    trusted("agents.*.command", Kind::Command, "the program and its arguments"),
    trusted("agents.*.outside", Kind::Flag, "it works elsewhere: its reports are waited for"),
    trusted(
        "agents.*.like",
        Kind::Text,
        "another agent, of which it has everything that it does not say itself",
    ),
    free("agents.*.timeout", Kind::Duration, "how long it may take"),
    free("agents.*.stall", Kind::Duration, "how long it may say and change nothing"),
    free("agents.*.grace", Kind::Duration, "how long it has to end when it is asked to"),
    free(
        "agents.*.parallel",
        Kind::Count,
        "how many of it run at the same time, whether they build or judge",
    ),
    trusted("agents.*.env", Kind::Texts, "variables that are passed on, whose values are secrets"),
    trusted(
        "agents.*.variables",
        Kind::Texts,
        "variables that are no secret: NAME, passed on, or NAME=value",
    ),
    trusted("agents.*.credentials", Kind::Texts, "files it finds in its HOME, whose contents are secrets"),
    trusted("agents.*.read", Kind::Texts, "other paths of the host that it sees"),
    trusted("agents.*.login", Kind::Text, "what people are told who have nothing to log in with"),
    trusted(
        "agents.*.endpoint",
        Kind::Text,
        "a variable with the address of its model, which it can reach too",
    ),
    trusted("agents.*.network", Kind::Network, "what it can reach"),
    trusted("agents.*.hosts.*", Kind::Texts, "what else it can reach where a variable of this name is set"),
    trusted("agents.*.isolation", Kind::Text, "how its scope is held"),
    trusted("agents.*.image", Kind::Text, "the image of its container"),
    trusted("agents.*.memory", Kind::Size, "how much memory all its processes may use"),
    trusted("agents.*.processes", Kind::Count, "how many processes it may have"),
    trusted("agents.*.version.command", Kind::Command, "how its program is asked for its version"),
    trusted("agents.*.version.least", Kind::Text, "the oldest version that will do"),
    trusted("agents.*.price.input", Kind::Amount, "what a million tokens cost that it reads"),
    trusted("agents.*.price.output", Kind::Amount, "what a million tokens cost that it writes"),
    trusted("agents.*.usage.line", Kind::Text, "the lines of its output that say what it used, as a pattern"),
    trusted("agents.*.usage.input", Kind::Texts, "where in JSON the tokens are that it read"),
    trusted("agents.*.usage.output", Kind::Texts, "where in JSON the tokens are that it wrote"),
    trusted("agents.*.usage.cost", Kind::Text, "where in JSON its cost is"),
    trusted("agents.*.usage.adds_up", Kind::Flag, "each line says what was used since the one before"),
    trusted(
        "agents.*.answered",
        Kind::Text,
        "the lines of its output that show that its model answers, as a pattern",
    ),
    trusted(
        "agents.*.signals.*.pattern",
        Kind::Text,
        "lines of its output that mean something, as a pattern",
    ),
    trusted(
        "agents.*.signals.*.means",
        Kind::Text,
        "what they mean: quota, unreachable, unfit, blocked or failed",
    ),
    trusted(
        "agents.*.signals.*.from",
        Kind::Text,
        "where they stand: output or errors; in both, if it is not said",
    ),
    trusted("agents.*.signals.*.says", Kind::Text, "what people are told, where the line does not say it"),
    trusted(
        "agents.*.signals.*.wait",
        Kind::Duration,
        "how long the agent waits, where the line does not say it",
    ),
    trusted("agents.*.signals.*.early", Kind::Flag, "it ends an agent whose model has not answered yet"),
    trusted("roles.builder", Kind::Text, "the agent that does what is unassigned"),
    trusted("roles.auditor", Kind::Text, "the agent that judges the work of the others"),
    trusted("budget.task.time", Kind::Duration, "how long the agents of a task may be at work, all together"),
    trusted("budget.task.tokens", Kind::Count, "how many tokens a task may use"),
    trusted("budget.task.cost", Kind::Amount, "how much a task may cost"),
    trusted("budget.run.time", Kind::Duration, "after how long a run starts nothing new"),
    trusted("budget.run.attempts", Kind::Count, "how many attempts a run may begin"),
    trusted("budget.run.tokens", Kind::Count, "how many tokens a run may use"),
    trusted("budget.run.cost", Kind::Amount, "how much a run may cost"),
    trusted("workspace.setup.command", Kind::Text, "what prepares a workspace"),
    trusted(
        "workspace.setup.keyed_by",
        Kind::Texts,
        "the files that say whether it has to be prepared again",
    ),
    trusted("workspace.setup.network", Kind::Network, "what preparing can reach"),
    trusted("container.image", Kind::Text, "the image of those that have none of their own"),
    trusted(
        "container.engine",
        Kind::Text,
        "the socket of the engine, where it is not one of the usual ones",
    ),
    trusted("container.pull", Kind::Text, "when images are fetched: missing or never"),
    trusted("container.cpus", Kind::Amount, "how many processors each container may use"),
];

/// The key a path is, e.g. `agents.codex.timeout`.
pub(crate) fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| {
        let mut parts = key.path.split('.');
        path.iter().all(|part| parts.next().is_some_and(|known| known == "*" || known == part))
            && parts.next().is_none()
    })
}

/// Why a key is refused that people know from other tools, and that would undo what a container is for.
pub(crate) fn refused(path: &[String]) -> Option<&'static str> {
    let key = match path {
        [container, key] if container == "container" => key,
        [agents, _, key] if agents == "agents" => key,
        _ => return None,
    };
    WIDENING.iter().find(|(known, _)| known == key).map(|(_, reason)| *reason)
}

/// Whether a path leads to keys, as `agents.codex` does.
pub(crate) fn leads_on(path: &[String]) -> bool {
    KEYS.iter().any(|key| {
        let parts: Vec<&str> = key.path.split('.').collect();
        parts.len() > path.len()
            && path.iter().zip(&parts).all(|(part, known)| *known == "*" || known == part)
    })
}

/// The known key that looks most like an unknown one.
pub(crate) fn nearest(path: &[String]) -> String {
    let wanted = path.join(".");
    let filled = |key: &Key| {
        let parts = key.path.split('.').enumerate();
        let name = |(index, part): (usize, &str)| match (part, path.get(index)) {
            ("*", Some(given)) => given.clone(),
            _ => part.to_owned(),
        };
        parts.map(name).collect::<Vec<_>>().join(".")
    };
    let likeness = |name: &String| strsim::jaro_winkler(name, &wanted);
    KEYS.iter().map(filled).max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

impl Kind {
    /// What is wrong with a value, if anything.
    pub(crate) fn check(self, value: &Value) -> Result<(), &'static str> {
        let fits = match (self, value) {
            (Kind::Text, Value::String(text)) => !text.is_empty(),
            (Kind::Count, Value::Integer(count)) => *count > 0,
            (Kind::Amount, Value::Integer(amount)) => *amount > 0,
            (Kind::Amount, Value::Float(amount)) => *amount > 0.0 && amount.is_finite(),
            (Kind::Flag, Value::Boolean(_)) => true,
            (Kind::Duration, Value::String(text)) => crate::units::duration(text).is_ok(),
            (Kind::Size, Value::String(text)) => crate::units::size(text).is_ok(),
            (Kind::Texts, Value::Array(items)) => items.iter().all(Value::is_str),
            (Kind::Command, Value::Array(items)) => !items.is_empty() && items.iter().all(Value::is_str),
            (Kind::Network, Value::String(text)) => matches!(text.as_str(), "none" | "full"),
            (Kind::Network, Value::Array(items)) => items.iter().all(Value::is_str),
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.wanted()) }
    }

    const fn wanted(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Count => "a number above zero",
            Kind::Amount => "an amount above zero",
            Kind::Flag => "true or false",
            Kind::Duration => "a duration like \"45m\"",
            Kind::Size => "a size like \"4GiB\"",
            Kind::Texts => "a list of texts",
            Kind::Command => "a list of texts, the program first",
            Kind::Network => "\"none\", \"full\" or a list of \"HOST:PORT\"",
        }
    }
}
