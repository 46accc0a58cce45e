//! Every key of `agency.toml`: what it holds, and whether a repository that the user does not trust may set it.
//!
//! A repository's own configuration is hostile input. Until a person trusts it, it may only narrow: make runs
//! smaller, shorter or fewer. What would start a program, pass a variable, open the network or choose the
//! isolation is withheld.

use agency_profiles::likeness::likeness;
use agency_sandbox::container::WIDENING;
use toml::Value;

/// One key. `*` stands for a name that people choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigKey {
    pub(crate) path: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) needs: TrustRequirement,
    /// What it says, in a few words.
    pub(crate) means: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
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
pub(crate) enum TrustRequirement {
    Nothing,
    Trust,
}

const fn free(path: &'static str, kind: ValueKind, means: &'static str) -> ConfigKey {
    ConfigKey { path, kind, needs: TrustRequirement::Nothing, means }
}

const fn trusted(path: &'static str, kind: ValueKind, means: &'static str) -> ConfigKey {
    ConfigKey { path, kind, needs: TrustRequirement::Trust, means }
}

/// What holds where no configuration says anything else: the last of all configurations.
pub(crate) const DEFAULTS: &str = r#"
[run]
parallel = 1
isolation = "process"
land = "merge"
attempts = 3
repeats = 2
check_base = "auto"
lease = "15m"
backoff = "5s"
"#;

pub(crate) const KEYS: &[ConfigKey] = &[
    free("run.protocol", ValueKind::Text, "the protocol of the board, where it can't be told from its files"),
    free("run.parallel", ValueKind::Count, "how many attempts run at the same time"),
    trusted("run.isolation", ValueKind::Text, "how the scope of agents is held"),
    trusted("run.land", ValueKind::Text, "where work goes: merge, branch or none"),
    trusted("run.attempts", ValueKind::Count, "maximum attempts; infrastructure failures don't count"),
    trusted(
        "run.repeats",
        ValueKind::Count,
        "how often the same work may fail in the same way before its task is given up",
    ),
    trusted(
        "run.check_base",
        ValueKind::Text,
        "whether checks run on the branch before the first agent starts: auto or never",
    ),
    trusted("run.lease", ValueKind::Duration, "how long an agent goes on without a supervisor"),
    free("run.backoff", ValueKind::Duration, "how long the second attempt waits; later ones wait longer"),
    trusted("agents.*.command", ValueKind::Command, "the program and its arguments"),
    trusted("agents.*.external", ValueKind::Flag, "it runs elsewhere; its reports are waited for"),
    trusted("agents.*.like", ValueKind::Text, "inherit unset keys from this agent"),
    free("agents.*.timeout", ValueKind::Duration, "how long it may take"),
    free(
        "agents.*.idle_timeout",
        ValueKind::Duration,
        "stop it after so long without output or a changed file",
    ),
    free("agents.*.grace", ValueKind::Duration, "how long it has to end when it is asked to"),
    free(
        "agents.*.parallel",
        ValueKind::Count,
        "how many of it run at the same time, whether they build or judge",
    ),
    trusted("agents.*.env", ValueKind::Texts, "variables that are passed on, whose values are secrets"),
    trusted(
        "agents.*.variables",
        ValueKind::Texts,
        "variables that are no secret: NAME, passed on, or NAME=value",
    ),
    trusted(
        "agents.*.credentials",
        ValueKind::Texts,
        "files it finds in its HOME, whose contents are secrets",
    ),
    trusted("agents.*.read", ValueKind::Texts, "other paths of the host that it sees"),
    trusted(
        "agents.*.needs",
        ValueKind::Texts,
        "other programs it needs: on PATH, or installed by workspace.setup",
    ),
    trusted("agents.*.login", ValueKind::Text, "what people are told who have nothing to log in with"),
    trusted(
        "agents.*.endpoint",
        ValueKind::Text,
        "a variable with the address of its model, which it can reach too",
    ),
    trusted("agents.*.network", ValueKind::Network, "what it can reach"),
    trusted(
        "agents.*.hosts.*",
        ValueKind::Texts,
        "what else it can reach where a variable of this name is set",
    ),
    trusted("agents.*.isolation", ValueKind::Text, "how its scope is held"),
    trusted("agents.*.image", ValueKind::Text, "the image of its container"),
    trusted("agents.*.memory", ValueKind::Size, "how much memory all its processes may use"),
    trusted("agents.*.processes", ValueKind::Count, "how many processes it may have"),
    trusted("agents.*.version.command", ValueKind::Command, "how its program is asked for its version"),
    trusted("agents.*.min_version", ValueKind::Text, "the oldest version that works"),
    trusted("agents.*.price.input", ValueKind::Amount, "what a million tokens cost that it reads"),
    trusted("agents.*.price.output", ValueKind::Amount, "what a million tokens cost that it writes"),
    trusted(
        "agents.*.price.cached",
        ValueKind::Amount,
        "what a million tokens cost that it reads from a cache",
    ),
    trusted("agents.*.price.model", ValueKind::Text, "the model whose price in `prices` counts"),
    trusted(
        "agents.*.usage.line",
        ValueKind::Text,
        "the lines of its output that say what it used, as a pattern",
    ),
    trusted("agents.*.usage.input", ValueKind::Texts, "where in JSON the tokens are that it read"),
    trusted("agents.*.usage.output", ValueKind::Texts, "where in JSON the tokens are that it wrote"),
    trusted(
        "agents.*.usage.cached",
        ValueKind::Texts,
        "where in JSON those of the tokens are that it read from a cache",
    ),
    trusted(
        "agents.*.usage.model",
        ValueKind::Text,
        "the lines of its output that name its model, as a pattern",
    ),
    trusted("agents.*.usage.cost", ValueKind::Text, "where in JSON its cost is"),
    trusted("agents.*.usage.incremental", ValueKind::Flag, "each line counts from the line before it"),
    trusted(
        "agents.*.output_format",
        ValueKind::Text,
        "how its output is shown: text, claude, codex, cursor, gemini or opencode",
    ),
    trusted(
        "agents.*.answered",
        ValueKind::Text,
        "the lines of its output that show that its model answers, as a pattern",
    ),
    trusted(
        "agents.*.signals.*.pattern",
        ValueKind::Text,
        "lines of its output that mean something, as a pattern",
    ),
    trusted(
        "agents.*.signals.*.means",
        ValueKind::Text,
        "what they mean: quota, unreachable, unfit, blocked or failed",
    ),
    trusted(
        "agents.*.signals.*.from",
        ValueKind::Text,
        "where they stand: output or errors; in both, if it is not said",
    ),
    trusted(
        "agents.*.signals.*.says",
        ValueKind::Text,
        "what people are told, where the line does not say it",
    ),
    trusted(
        "agents.*.signals.*.wait",
        ValueKind::Duration,
        "how long the agent waits, where the line does not say it",
    ),
    trusted("agents.*.signals.*.early", ValueKind::Flag, "it ends an agent whose model has not answered yet"),
    trusted("prices.*.input", ValueKind::Amount, "what a million tokens cost that a model reads"),
    trusted("prices.*.output", ValueKind::Amount, "what a million tokens cost that a model writes"),
    trusted(
        "prices.*.cached",
        ValueKind::Amount,
        "what a million tokens cost that a model reads from a cache",
    ),
    trusted("roles.builder", ValueKind::Text, "the agent that does what is unassigned"),
    trusted("roles.auditor", ValueKind::Text, "the agent that judges the work of the others"),
    trusted(
        "budget.task.time",
        ValueKind::Duration,
        "how long the agents of a task may be at work, all together",
    ),
    trusted("budget.task.tokens", ValueKind::Count, "how many tokens a task may use"),
    trusted("budget.task.cost", ValueKind::Amount, "how much a task may cost"),
    trusted("budget.run.time", ValueKind::Duration, "after how long a run starts nothing new"),
    trusted("budget.run.attempts", ValueKind::Count, "how many attempts a run may begin"),
    trusted("budget.run.tokens", ValueKind::Count, "how many tokens a run may use"),
    trusted("budget.run.cost", ValueKind::Amount, "how much a run may cost"),
    trusted("workspace.setup.command", ValueKind::Text, "what prepares a workspace"),
    trusted(
        "workspace.setup.cache_key",
        ValueKind::Texts,
        "files that decide whether the setup has to run again",
    ),
    trusted("workspace.setup.network", ValueKind::Network, "what preparing can reach"),
    trusted("container.image", ValueKind::Text, "the image of those that have none of their own"),
    trusted(
        "container.engine",
        ValueKind::Text,
        "the socket of the engine, where it is not one of the usual ones",
    ),
    trusted("container.pull", ValueKind::Text, "when images are fetched: missing or never"),
    trusted("container.cpus", ValueKind::Amount, "how many processors each container may use"),
];

/// The key a path is, e.g. `agents.codex.timeout`.
pub(crate) fn find(path: &[String]) -> Option<&'static ConfigKey> {
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

/// The known key or table that an unknown one was probably meant to be, if one is close: beside it, or, for a key outside of
/// all tables, in one of them.
pub(crate) fn nearest(path: &[String]) -> Option<String> {
    let (wanted, beside) = path.split_last()?;
    let filled = |key: &ConfigKey, length: usize| {
        let parts: Vec<&str> = key.path.split('.').take(length).collect();
        let name = |(index, part): (usize, &&str)| match (*part, path.get(index)) {
            ("*", Some(given)) => given.clone(),
            ("*", None) => "NAME".to_owned(),
            (part, _) => part.to_owned(),
        };
        // A name that people choose is no mistake.
        let is_chosen = parts.last() == Some(&"*");
        (!is_chosen).then(|| parts.iter().enumerate().map(name).collect::<Vec<_>>())
    };
    let close = KEYS.iter().flat_map(|key| [filled(key, path.len()), filled(key, usize::MAX)]).flatten();
    let close = close.filter_map(|name| {
        let (last, table) = name.split_last()?;
        let is_beside = table == beside;
        let is_whole = !name.contains(&"NAME".to_owned());
        let alike = likeness(last, wanted).filter(|_| is_beside || beside.is_empty() && last == wanted)?;
        Some((((is_beside, is_whole), alike), name.join(".")))
    });
    close.max_by(|((a, x), _), ((b, y), _)| a.cmp(b).then(x.total_cmp(y))).map(|(_, name)| name)
}

impl ValueKind {
    /// What is wrong with a value, if anything.
    pub(crate) fn check(self, value: &Value) -> Result<(), &'static str> {
        let fits = match (self, value) {
            (ValueKind::Text, Value::String(text)) => !text.is_empty(),
            (ValueKind::Count, Value::Integer(count)) => *count > 0,
            (ValueKind::Amount, Value::Integer(amount)) => *amount > 0,
            (ValueKind::Amount, Value::Float(amount)) => *amount > 0.0 && amount.is_finite(),
            (ValueKind::Flag, Value::Boolean(_)) => true,
            (ValueKind::Duration, Value::String(text)) => crate::app::units::duration(text).is_ok(),
            (ValueKind::Size, Value::String(text)) => crate::app::units::size(text).is_ok(),
            (ValueKind::Texts, Value::Array(items)) => items.iter().all(Value::is_str),
            (ValueKind::Command, Value::Array(items)) => !items.is_empty() && items.iter().all(Value::is_str),
            (ValueKind::Network, Value::String(text)) => matches!(text.as_str(), "none" | "full"),
            (ValueKind::Network, Value::Array(items)) => items.iter().all(Value::is_str),
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.wanted()) }
    }

    const fn wanted(self) -> &'static str {
        match self {
            ValueKind::Text => "a string",
            ValueKind::Count => "a number above zero",
            ValueKind::Amount => "an amount above zero",
            ValueKind::Flag => "true or false",
            ValueKind::Duration => "a duration like \"45m\"",
            ValueKind::Size => "a size like \"4GiB\"",
            ValueKind::Texts => "a list of strings",
            ValueKind::Command => "a list of strings, the program first",
            ValueKind::Network => "\"none\", \"full\" or a list of \"HOST:PORT\"",
        }
    }
}
