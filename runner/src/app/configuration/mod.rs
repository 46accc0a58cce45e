//! Where settings come from: a flag, the environment, `agency.toml`, the user's own configuration, a default,
//! in this order.

#![allow(clippy::disallowed_methods, reason = "opens the user's own configuration")]

mod renamed;
pub(crate) mod schema;
pub(crate) mod trust;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agency_sandbox::host::HostUser;
use agency_sandbox::untrusted;
use toml::{Table, Value};

use crate::app::error::{CommandError, ErrorKind};
use renamed::OldKey;
use schema::TrustRequirement;

/// What an operator says about configuration on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigOptions {
    /// A configuration to use instead of the repository's agency.toml.
    pub(crate) config: Option<PathBuf>,
    /// Whether the repository's own configuration and profiles are trusted this once.
    pub(crate) trust: bool,
    pub(crate) user: UserConfiguration,
}

/// Whether the user's own configuration has a say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum UserConfiguration {
    #[default]
    Read,
    /// What is shown or tried is the same for everybody.
    Ignored,
}

impl ConfigOptions {
    /// What an operator says in the environment, to commands that have no such options.
    pub(crate) fn from_environment() -> Self {
        let trust =
            std::env::var("AGENCY_TRUST").is_ok_and(|value| matches!(value.as_str(), "1" | "true" | "yes"));
        Self { trust, ..Self::default() }
    }
}

/// What is configured.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    layers: Vec<ConfigLayer>,
    /// Keys of a repository that the user does not trust.
    withheld: Vec<String>,
    /// What people should know although all went well.
    notices: Vec<String>,
}

#[derive(Debug)]
struct ConfigLayer {
    values: Table,
    /// The file it was read from, `preset` or `default`.
    from: String,
}

pub(crate) const FILE: &str = "agency.toml";
/// Agents that work without being configured.
const PRESETS: &str = include_str!("presets.toml");
/// What models cost.
const PRICES: &str = include_str!("prices.toml");
pub(crate) const PRESET: &str = "preset";
const DEFAULT: &str = "default";

impl Configuration {
    /// Reads what there is. What a repository may not say without trust is left out.
    pub(crate) fn load(root: &Path, operator: &ConfigOptions) -> Result<Self, CommandError> {
        let (mut layers, mut withheld, mut untrusted) = (Vec::new(), Vec::new(), false);
        let mut notices = Vec::new();
        match &operator.config {
            Some(file) => {
                let text = read(file)?
                    .ok_or_else(|| CommandError::usage(format!("there is no {}", file.display())))?;
                let from = file.display().to_string();
                layers.push(ConfigLayer { values: parse(&text, &from, &mut notices)?, from });
            }
            None => {
                if let Some(text) = read_own(root)? {
                    let mut values = parse(&text, FILE, &mut notices)?;
                    if !operator.trust && !trust::TrustRecord::of(root)?.covers(FILE, &text) {
                        withheld = narrow(&mut values);
                        untrusted = true;
                    }
                    layers.push(ConfigLayer { values, from: FILE.to_owned() });
                }
            }
        }
        let user = (operator.user == UserConfiguration::Read).then(user_file);
        if let Some(user) = user
            && let Some(text) = read(&user)?
        {
            let from = user.display().to_string();
            layers.push(ConfigLayer { values: parse(&text, &from, &mut notices)?, from });
        }
        for ours in [PRESETS, PRICES] {
            layers.push(ConfigLayer { values: parse(ours, PRESET, &mut notices)?, from: PRESET.to_owned() });
        }
        layers.push(ConfigLayer {
            values: parse(schema::DEFAULTS, DEFAULT, &mut notices)?,
            from: DEFAULT.to_owned(),
        });
        let mut configuration = Self { layers, withheld, notices };
        if untrusted {
            configuration.shorten();
        }
        Ok(configuration)
    }

    /// Takes out times of the first layer that are longer than what holds without it: it may only narrow.
    fn shorten(&mut self) {
        let Some((first, others)) = self.layers.split_first_mut() else { return };
        let Some(agents) = first.values.get_mut("agents").and_then(Value::as_table_mut) else { return };
        let length = |value: &Value| value.as_str().and_then(|text| crate::app::units::duration(text).ok());
        for (agent, settings) in agents.iter_mut() {
            let Some(settings) = settings.as_table_mut() else { continue };
            for key in ["timeout", "idle_timeout", "grace"] {
                let usual = others.iter().find_map(|layer| layer.values.get("agents")?.get(agent)?.get(key));
                let (said, usual) = (settings.get(key).and_then(length), usual.and_then(length));
                if said.zip(usual).is_some_and(|(said, usual)| said > usual) {
                    settings.remove(key);
                    self.withheld.push(format!("agents.{agent}.{key}"));
                }
            }
        }
    }

    /// Keys that are given by an old name, as sentences.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// What the repository's configuration has no say in, as a sentence; `None` if it has a say in everything.
    pub(crate) fn withheld_notice(&self) -> Option<String> {
        (!self.withheld.is_empty()).then(|| {
            format!(
                "{FILE} is not trusted, so it has no say in {}; `agency trust` shows it to you",
                self.withheld.join(", ")
            )
        })
    }

    /// A text, from the first place that says it.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.value(&path.split('.').collect::<Vec<_>>())?.as_str()
    }

    /// A value, from the first place that says it. The schema has looked at its kind.
    pub(crate) fn value(&self, path: &[&str]) -> Option<&Value> {
        self.found(path).map(|(value, _)| value)
    }

    /// A value, and where it comes from.
    pub(crate) fn found(&self, path: &[&str]) -> Option<(&Value, &str)> {
        self.layers.iter().find_map(|layer| {
            let (first, rest) = path.split_first()?;
            let value = rest.iter().try_fold(layer.values.get(*first)?, |value, part| value.get(part))?;
            Some((value, layer.from.as_str()))
        })
    }

    /// The names that stand for a `*` below a key: every agent that is mentioned anywhere.
    pub(crate) fn names(&self, key: &[&str]) -> BTreeSet<&str> {
        self.tables(key).flat_map(|(table, _)| table.keys().map(String::as_str)).collect()
    }

    /// A table, wherever it stands.
    fn tables<'a>(&'a self, key: &[&str]) -> impl Iterator<Item = (&'a Table, &'a ConfigLayer)> {
        self.layers.iter().filter_map(move |layer| {
            let (first, rest) = key.split_first()?;
            let value = rest.iter().try_fold(layer.values.get(*first)?, |value, part| value.get(part))?;
            Some((value.as_table()?, layer))
        })
    }

    /// Whether a configuration other than our presets says something of an agent.
    pub(crate) fn is_mentioned(&self, agent: &str) -> bool {
        self.tables(&["agents", agent]).any(|(_, layer)| layer.from != PRESET)
    }

    /// All that is said below a name, as one table.
    pub(crate) fn whole(&self, name: &str) -> Table {
        let mut whole = Table::new();
        for (table, _) in self.tables(&[name]) {
            complete(&mut whole, table);
        }
        whole
    }

    /// The same, without what we say ourselves: our presets and defaults hold anywhere.
    pub(crate) fn said(&self, name: &str) -> Table {
        let mut said = Table::new();
        for (table, _) in self.tables(&[name]).filter(|(_, layer)| ![PRESET, DEFAULT].contains(&&*layer.from))
        {
            complete(&mut said, table);
        }
        said
    }

    /// Whether a key was said by a repository that the user does not trust.
    pub(crate) fn is_withheld(&self, path: &str) -> bool {
        self.withheld.iter().any(|key| key == path)
    }
}

/// The texts of a list; none where there is none.
pub(crate) fn string_list(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Adds what is not there yet.
fn complete(table: &mut Table, with: &Table) {
    for (key, value) in with {
        match (table.get_mut(key), value) {
            (None, value) => drop(table.insert(key.clone(), value.clone())),
            (Some(Value::Table(known)), Value::Table(more)) => complete(known, more),
            (Some(_), _) => {}
        }
    }
}

/// `~/.config/agency/agency.toml`
fn user_file() -> PathBuf {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.unwrap_or_else(|| HostUser::observe().home.join(".config")).join("agency").join(FILE)
}

/// The repository's own configuration, which any person may have written.
fn read_own(root: &Path) -> Result<Option<String>, CommandError> {
    const LARGEST: u64 = 1 << 20;
    let bytes =
        untrusted::read(root, FILE, LARGEST).map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|_| CommandError::usage(format!("{} is not UTF-8", root.join(FILE).display())))
}

/// A configuration of the user's, or of the operator's.
fn read(file: &Path) -> Result<Option<String>, CommandError> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CommandError::usage(format!("can't read {}: {error}", file.display()))),
    }
}

/// A configuration whose every key is known and whose every value fits.
fn parse(text: &str, file: &str, notices: &mut Vec<String>) -> Result<Table, CommandError> {
    let mut values: Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        CommandError::usage(format!("{file}:{line}: it is not valid TOML: {}", error.message()))
    })?;
    check(&values, &mut Vec::new(), text, file)?;
    let old = renamed::apply(&mut values).map_err(|OldKey { old, new }| {
        CommandError::usage(format!("{file}: `{new}` is set twice, once by its old name `{old}`"))
    })?;
    for OldKey { old, new } in old {
        notices.push(format!("{file}: `{old}` is called `{new}` now"));
    }
    Ok(values)
}

fn check(values: &Table, path: &mut Vec<String>, text: &str, file: &str) -> Result<(), CommandError> {
    for (name, value) in values {
        path.push(name.clone());
        let at = || format!("{file}:{}", line(text, name));
        match (schema::find(&renamed::current(path)), value) {
            (Some(key), value) => key.kind.check(value).map_err(|wanted| {
                CommandError::usage(format!("{}: `{}` must be {wanted}", at(), path.join(".")))
            })?,
            (None, Value::Table(inner)) if schema::leads_on(path) => check(inner, path, text, file)?,
            (None, _) if let Some(reason) = schema::refused(path) => {
                let message = format!("{}: `{}` is refused", at(), path.join("."));
                return Err(CommandError::usage(message).with_hint(reason));
            }
            (None, _) => {
                let message = format!("{}: there is no key `{}`", at(), path.join("."));
                let hint = match schema::nearest(path) {
                    Some(key) => format!("did you mean `{key}`?"),
                    None => "`agency config explain` lists the keys".to_owned(),
                };
                return Err(CommandError::usage(message).with_hint(hint));
            }
        }
        path.pop();
    }
    Ok(())
}

/// The line a name first stands on as a key or in a table's heading.
fn line(text: &str, name: &str) -> usize {
    let is_it = |line: &str| {
        let line = line.trim_start();
        line.starts_with(name) || (line.starts_with('[') && line.contains(name))
    };
    text.lines().position(is_it).map_or(1, |index| index + 1)
}

/// Takes out what only a trusted configuration may say. Returns the keys that were taken.
fn narrow(values: &mut Table) -> Vec<String> {
    fn walk(values: &mut Table, path: &mut Vec<String>, withheld: &mut Vec<String>) {
        values.retain(|name, value| {
            path.push(name.to_owned());
            let keep = match schema::find(path) {
                Some(key) => key.needs == TrustRequirement::Nothing,
                None => {
                    if let Value::Table(inner) = value {
                        walk(inner, path, withheld);
                    }
                    true
                }
            };
            if !keep {
                withheld.push(path.join("."));
            }
            path.pop();
            keep
        });
    }
    let mut withheld = Vec::new();
    walk(values, &mut Vec::new(), &mut withheld);
    withheld
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
[run]
parallel = 4
isolation = "process"
land = "merge"
[agents.claude-code]
command = ["claude", "--print", "{prompt}"]
timeout = "45m"
idle_timeout = "10m"
env = ["ANTHROPIC_API_KEY"]
network = ["api.anthropic.com:443"]
memory = "4GiB"
processes = 256
[roles]
auditor = "gemini"
[workspace]
setup = { command = "npm ci", cache_key = ["package-lock.json"], network = ["npm.example.org:443"] }
[container]
image = "localhost/toolbox:1"
"#;

    fn refused(text: &str) -> (String, String) {
        let failure = parse(text, FILE, &mut Vec::new()).expect_err("refused");
        (failure.message, failure.hint.unwrap_or_default())
    }

    #[test]
    fn a_whole_configuration_reads() {
        let values = parse(WHOLE, FILE, &mut Vec::new()).expect("read");
        let configuration = Configuration {
            layers: vec![ConfigLayer { values, from: FILE.to_owned() }],
            withheld: Vec::new(),
            notices: Vec::new(),
        };
        assert_eq!(configuration.text("run.isolation"), Some("process"));
        assert_eq!(configuration.text("agents.claude-code.timeout"), Some("45m"));
        assert_eq!(configuration.text("agents.codex.timeout"), None);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
        let (message, hint) = refused("[run]\nparalel = 4\n");
        assert_eq!(message, "agency.toml:2: there is no key `run.paralel`");
        assert_eq!(hint, "did you mean `run.parallel`?");
        let (_, hint) = refused("[agents.codex]\ntimout = \"1m\"\n");
        assert_eq!(hint, "did you mean `agents.codex.timeout`?");
        let guess = |text: &str| refused(text).1;
        assert_eq!(refused("parallel = 1\n").0, "agency.toml:1: there is no key `parallel`");
        assert_eq!(guess("parallel = 1\n"), "did you mean `run.parallel`?");
        assert_eq!(guess("[agent.codex]\ntimeout = \"1m\"\n"), "did you mean `agents`?");
        // A guess that is far off would send people elsewhere.
        for text in ["[run]\ncolour = true\n", "[agents.codex]\ntemperature = 1\n", "[build]\njobs = 1\n"] {
            assert_eq!(guess(text), "`agency config explain` lists the keys", "{text}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_named() {
        assert_eq!(
            refused("[run]\nparallel = 0\n").0,
            "agency.toml:2: `run.parallel` must be a number above zero"
        );
        assert!(refused("[agents.a]\ntimeout = \"soon\"\n").0.contains("must be a duration"));
        assert!(refused("[run\n").0.starts_with("agency.toml:1: it is not valid TOML"));
    }

    #[test]
    fn without_trust_only_what_narrows_is_left() {
        let mut values = parse(WHOLE, FILE, &mut Vec::new()).expect("read");
        let withheld = narrow(&mut values);
        assert_eq!(
            values["run"].as_table().map(|run| run.keys().cloned().collect()),
            Some(vec!["parallel".to_owned()])
        );
        let agent = values["agents"]["claude-code"].as_table().expect("an agent");
        assert_eq!(agent.keys().collect::<Vec<_>>(), ["idle_timeout", "timeout"]);
        for key in [
            "run.isolation",
            "agents.claude-code.command",
            "agents.claude-code.env",
            "agents.claude-code.network",
            "workspace.setup.command",
            "container.image",
            "roles.auditor",
        ] {
            assert!(withheld.iter().any(|taken| taken == key), "{key}");
        }
    }
}
