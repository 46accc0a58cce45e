//! Writes a [`Profile`] as a file, such as a person would write.

use serde::{Serialize, Serializer};
use serde_yaml::{Mapping, Value};

use super::condition::{WhenClause, WhenCondition, WhenRule};
use super::definition::{Platform, Profile, ProfileCommand, ProfileNetwork};
use super::units::{show_duration, show_size};

impl Profile {
    /// The profile as YAML; reading it gives the profile back.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        serde_yaml::to_string(self)
    }
}

/// Default values are left out.
impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = Mapping::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(key.into(), value);
            }
        };
        put("name", Some(self.name.as_str().into()));
        put("description", Some(self.description.as_str().into()));
        put("environment", self.environment.as_deref().map(Into::into));
        put("platform", (self.platform != Platform::Any).then(|| self.platform.as_str().into()));
        put("timeout", self.timeout.map(|timeout| show_duration(timeout).into()));
        put("network", (self.network != ProfileNetwork::None).then(|| network(&self.network)));
        put("env", (!self.env.is_empty()).then(|| sequence(&self.env)));
        put("memory", self.memory.map(|memory| show_size(memory).into()));
        put("image", self.image.as_deref().map(Into::into));
        put("caches", (!self.caches.is_empty()).then(|| sequence(&self.caches)));
        put("commands", Some(Value::Sequence(self.commands.iter().map(command).collect())));
        map.serialize(serializer)
    }
}

fn command(command: &ProfileCommand) -> Value {
    if *command == ProfileCommand::unconditional(command.run.as_str()) {
        return command.run.as_str().into();
    }
    let mut map = Mapping::new();
    map.insert("run".into(), command.run.as_str().into());
    if let Some(timeout) = command.timeout {
        map.insert("timeout".into(), show_duration(timeout).into());
    }
    if let Some(one) = &command.network {
        map.insert("network".into(), network(one));
    }
    if !command.when.is_always() {
        map.insert("when".into(), when(&command.when));
    }
    Value::Mapping(map)
}

fn network(network: &ProfileNetwork) -> Value {
    match network {
        ProfileNetwork::None => "none".into(),
        ProfileNetwork::Full => "full".into(),
        ProfileNetwork::Hosts(list) => {
            let hosts: Vec<String> = list.destinations().iter().map(ToString::to_string).collect();
            sequence(&hosts)
        }
    }
}

fn when(when: &WhenRule) -> Value {
    match &when.0[..] {
        [one] => clause(one),
        several => Value::Sequence(several.iter().map(clause).collect()),
    }
}

fn clause(clause: &WhenClause) -> Value {
    let entry = |condition: &WhenCondition| {
        let value = match condition {
            WhenCondition::Not(inner) => when(inner),
            WhenCondition::File(values)
            | WhenCondition::Script(values)
            | WhenCondition::Requires(values)
            | WhenCondition::Pyproject(values)
            | WhenCondition::Target(values)
            | WhenCondition::Program(values) => match &values[..] {
                [one] => one.as_str().into(),
                several => sequence(several),
            },
        };
        (condition.key().into(), value)
    };
    Value::Mapping(clause.0.iter().map(entry).collect())
}

fn sequence(values: &[String]) -> Value {
    Value::Sequence(values.iter().map(|value| value.as_str().into()).collect())
}
