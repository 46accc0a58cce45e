//! From configuration to an agent that can be started.

use std::collections::BTreeSet;
use std::path::PathBuf;

use agency_sandbox::egress::HostAllowlist;
use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::job::order::{AgentLimits, AgentProgram, NetworkAccess};
use agency_supervisor::output_signals::OutputScanner;
use agency_supervisor::output_signals::rules::{
    OutputRules, SignalMeaning, SignalRule, SignalStream, UsageRules,
};
use agency_supervisor::settings::AgentSettings;
use toml::Value;

use super::pricing;
use crate::app::configuration::{Configuration, PRESET, string_list};
use crate::app::error::CommandError;
use crate::app::http::origin::Origin;
use crate::app::isolation;
use crate::app::transcript::OutputFormat;
use crate::app::units;

/// An agent may be like another one that is like another one, so many times.
const LIKE: usize = 8;

/// What is configured under the name of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentDefinition<'a> {
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a Configuration,
}

impl<'a> AgentDefinition<'a> {
    pub(crate) fn new(name: &'a str, configuration: &'a Configuration) -> Self {
        Self { name, configuration }
    }

    /// The agent itself, and those it is like.
    fn names(self) -> Vec<&'a str> {
        let mut names = vec![self.name];
        while let Some(other) = self.configuration.value(&["agents", names[names.len() - 1], "like"]) {
            match other.as_str() {
                Some(other) if names.len() < LIKE && !names.contains(&other) => names.push(other),
                _ => break,
            }
        }
        names
    }

    /// A value, of its own or of what it is like.
    pub(crate) fn value(self, key: &[&str]) -> Option<&'a Value> {
        let path =
            |name: &'a str| ["agents", name].into_iter().chain(key.iter().copied()).collect::<Vec<_>>();
        self.names().into_iter().find_map(|name| self.configuration.value(&path(name)))
    }

    pub(crate) fn text(self, key: &[&str]) -> Option<&'a str> {
        self.value(key).and_then(Value::as_str)
    }

    pub(crate) fn texts(self, key: &[&str]) -> Vec<String> {
        string_list(self.value(key))
    }

    fn flag(self, key: &[&str]) -> bool {
        self.value(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn is_external(self) -> bool {
        self.flag(&["external"])
    }

    pub(crate) fn command(self) -> Vec<String> {
        self.texts(&["command"])
    }

    /// Whether a repository that the user does not trust says how it is started.
    pub(crate) fn is_withheld(self) -> bool {
        let keys = ["command", "like"].map(|key| format!("agents.{}.{key}", self.name));
        keys.iter().any(|key| self.configuration.is_withheld(key))
    }

    /// Whether a value comes from a configuration, and not from our presets.
    fn is_said_by_somebody(self, key: &[&str]) -> bool {
        let path =
            |name: &'a str| ["agents", name].into_iter().chain(key.iter().copied()).collect::<Vec<_>>();
        let first = self.names().into_iter().find_map(|name| self.configuration.found(&path(name)));
        first.is_some_and(|(_, from)| from != PRESET)
    }

    pub(super) fn refused(self, key: &str, reason: impl std::fmt::Display) -> CommandError {
        CommandError::usage(format!("agents.{}.{key}: {reason}", self.name))
    }

    fn ms(self, key: &[&str]) -> Result<Option<u64>, CommandError> {
        let found = self.text(key).map(units::duration).transpose();
        let found = found.map_err(|reason| self.refused(&key.join("."), reason))?;
        Ok(found.map(|found| u64::try_from(found.as_millis()).unwrap_or(u64::MAX)))
    }

    fn count(self, key: &str) -> Option<u64> {
        self.value(&[key]).and_then(Value::as_integer).and_then(|count| u64::try_from(count).ok())
    }

    /// Everything a supervisor needs to know.
    pub(crate) fn agent(self, host: &HostUser) -> Result<AgentSettings, CommandError> {
        if self.is_external() {
            return Ok(AgentSettings { outside: true, ..AgentSettings::default() });
        }
        let memory = self.text(&["memory"]).map(units::size).transpose();
        let memory = memory.map_err(|reason| self.refused("memory", reason))?;
        let in_home = |path: String| match path.strip_prefix("~/") {
            Some(rest) => host.home.join(rest),
            None => PathBuf::from(path),
        };
        let paths = |key: &str| self.texts(&[key]).into_iter().map(in_home).collect();
        Ok(AgentSettings {
            program: AgentProgram {
                command: self.command(),
                env: self.texts(&["env"]),
                variables: self.texts(&["variables"]),
                credentials: paths("credentials"),
                read: paths("read"),
                network: self.network()?,
                reading: self.reading()?,
            },
            outside: false,
            limits: AgentLimits {
                memory,
                processes: self.count("processes"),
                wall_ms: self.ms(&["timeout"])?,
                stall_ms: self.ms(&["idle_timeout"])?,
                grace_ms: self.ms(&["grace"])?,
                output: None,
            },
            level: self.level()?,
            image: self.image()?,
            parallel: self.count("parallel").and_then(|count| usize::try_from(count).ok()),
        })
    }

    fn level(self) -> Result<Option<IsolationLevel>, CommandError> {
        let named = |name| isolation::parse_level(&format!("agents.{}.isolation", self.name), name);
        self.text(&["isolation"]).map(named).transpose()
    }

    fn image(self) -> Result<Option<String>, CommandError> {
        let Some(image) = self.text(&["image"]) else { return Ok(None) };
        isolation::check_image(&format!("agents.{}.image", self.name), image)?;
        Ok(Some(image.to_owned()))
    }

    /// The hosts of its list, those that come with a key, and the one that a variable of its own names.
    fn network(self) -> Result<NetworkAccess, CommandError> {
        let mut hosts = match self.value(&["network"]) {
            Some(Value::Array(_)) => self.texts(&["network"]),
            Some(Value::String(text)) if text == "full" => return Ok(NetworkAccess::Full),
            _ => Vec::new(),
        };
        // A user who says it themselves has said all of it.
        if self.is_said_by_somebody(&["network"]) {
            return self.reach(hosts);
        }
        for name in self.names_below("hosts") {
            if std::env::var_os(name).is_some_and(|value| !value.is_empty()) {
                hosts.extend(self.texts(&["hosts", name]));
            }
        }
        let named = self.text(&["endpoint"]).and_then(|name| Some((name, std::env::var(name).ok()?)));
        if let Some((name, url)) = named.filter(|(_, url)| !url.is_empty()) {
            let origin = url.parse().ok().as_ref().and_then(Origin::of);
            // It may have a password in it.
            let origin = origin.ok_or_else(|| {
                CommandError::usage(format!(
                    "{name}: it is not the address of a server, like https://HOST:PORT"
                ))
            })?;
            // By its name it is not forwarded.
            let host = if origin.host == "localhost" { "127.0.0.1" } else { &origin.host };
            hosts.push(format!("{host}:{}", origin.port));
        }
        self.reach(hosts)
    }

    fn reach(self, hosts: Vec<String>) -> Result<NetworkAccess, CommandError> {
        if hosts.is_empty() {
            return Ok(NetworkAccess::None);
        }
        let list = hosts.join(",");
        HostAllowlist::parse(&list).map_err(|error| self.refused("network", error))?;
        Ok(NetworkAccess::Hosts(list))
    }

    fn reading(self) -> Result<OutputRules, CommandError> {
        let mut signals = Vec::new();
        for name in self.names_below("signals") {
            let key = |key: &'static str| ["signals", name, key];
            let Some(pattern) = self.text(&key("pattern")) else { continue };
            let means = self.text(&key("means")).unwrap_or_default();
            let means = SignalMeaning::parse(means).ok_or_else(|| {
                let known: Vec<&str> = SignalMeaning::ALL.iter().map(|means| means.name()).collect();
                let key = format!("signals.{name}.means");
                self.refused(&key, format!("`{means}` is none of {}", known.join(", ")))
            })?;
            let from = match self.text(&key("from")) {
                None => None,
                Some("output") => Some(SignalStream::Output),
                Some("errors") => Some(SignalStream::Errors),
                Some(other) => {
                    let key = format!("signals.{name}.from");
                    return Err(self.refused(&key, format!("`{other}` is none of output, errors")));
                }
            };
            signals.push(SignalRule {
                name: name.to_owned(),
                pattern: pattern.to_owned(),
                means,
                from,
                says: self.text(&key("says")).map(str::to_owned),
                wait_ms: self.ms(&key("wait"))?,
                early: self.flag(&key("early")),
            });
        }
        let usage = UsageRules {
            line: self.text(&["usage", "line"]).map(str::to_owned),
            input: self.texts(&["usage", "input"]),
            output: self.texts(&["usage", "output"]),
            cost: self.text(&["usage", "cost"]).map(str::to_owned),
            cached: self.texts(&["usage", "cached"]),
            adds_up: self.flag(&["usage", "incremental"]),
            price: pricing::own_price(self)?,
            model: self.text(&["usage", "model"]).map(str::to_owned),
            prices: pricing::table(self),
        };
        let answered = self.text(&["answered"]).map(str::to_owned);
        let usage = Some(usage).filter(|usage| *usage != UsageRules::default());
        let format = self.text(&["output_format"]).map(|name| {
            OutputFormat::parse(name).ok_or_else(|| {
                let known = OutputFormat::ALL.map(OutputFormat::name).join(", ");
                self.refused("output_format", format!("`{name}` is none of {known}"))
            })
        });
        let format = format.transpose()?.map(|format| format.name().to_owned());
        let reading = OutputRules { signals, answered, usage, format };
        // What is no pattern is said now, and not by an agent that can't be started.
        OutputScanner::new(&reading)
            .map_err(|reason| CommandError::usage(format!("agents.{}.{reason}", self.name)))?;
        Ok(reading)
    }

    /// The names that people chose below a key.
    fn names_below(self, key: &str) -> BTreeSet<&'a str> {
        let of = |name: &'a str| self.configuration.names(&["agents", name, key]);
        self.names().into_iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use agency_sandbox::monitor::OutputStream;

    use super::*;
    use crate::app::configuration::ConfigOptions;

    /// Some write a narrow space before `pm`.
    #[test]
    fn when_a_limit_ends_is_heard_whatever_lies_between_its_digits_and_its_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let configuration = Configuration::load(folder.path(), &ConfigOptions::default()).expect("presets");
        for space in ["", " ", "\u{202f}"] {
            let agent = AgentDefinition::new("claude-code", &configuration)
                .agent(&HostUser::observe())
                .expect("known");
            let ear = OutputScanner::new(&agent.program.reading).expect("patterns");
            let line = format!(
                "{{\"type\":\"result\",\"is_error\":true,\"result\":\"You\u{2019}ve hit your limit · resets 10:15{space}pm\"}}\n"
            );
            ear.hear(OutputStream::Output, line.as_bytes(), Instant::now());
            let heard = ear.finish(None).0.expect("heard");
            assert_eq!((heard.means, heard.until.is_some()), (SignalMeaning::Quota, true), "{line}");
            assert!(heard.says.contains("You\u{2019}ve hit your limit"), "{}", heard.says);
        }
    }
}
