//! Parses a [`Profile`] from a file. Every error has its file, line and field.

use std::path::Path;
use std::time::Duration;

use agency_sandbox::container;
use agency_sandbox::egress::HostAllowlist;
use agency_sandbox::path::{RelPath, escape};
use serde::de::Error as _;
use serde_yaml::{Mapping, Value};

use super::condition::{WhenClause, WhenCondition, WhenRule};
use super::definition::{Platform, Profile, ProfileCommand, ProfileNetwork};
use super::error::{ProfileError, ProfileLocation};
use super::field_lines::{self, FieldSegment};
use super::name::ProfileName;
use super::units;
use crate::likeness::nearest;

const KEYS: [&str; 11] = [
    "name",
    "description",
    "environment",
    "platform",
    "commands",
    "timeout",
    "network",
    "env",
    "memory",
    "image",
    "caches",
];
const COMMAND_KEYS: [&str; 4] = ["run", "timeout", "network", "when"];

/// A profile, and notes about parts of its file that were not understood and do not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedProfile {
    pub profile: Profile,
    pub notes: Vec<String>,
}

impl Profile {
    /// Parses a profile. `file` is only named in errors.
    pub fn parse(file: &Path, text: &str) -> Result<ParsedProfile, ProfileError> {
        let value: Value = read_yaml(text).map_err(|source| {
            let line = source.location().map(|location| location.line());
            ProfileError::Syntax { at: ProfileLocation { file: file.to_owned(), line }, source }
        })?;
        let mut reader = ProfileReader { file, text, notes: Vec::new(), image: None };
        let Value::Mapping(map) = &value else {
            let at = ProfileLocation { file: file.to_owned(), line: None };
            let reason =
                format!("a profile is a map of `name`, `description` and `commands`, not {}", kind(&value));
            return Err(ProfileError::Shape { at, reason });
        };
        let profile = reader.profile(map)?;
        Ok(ParsedProfile { profile, notes: reader.notes })
    }
}

/// Parses a repository's YAML. The parser's time grows with the square of how deep brackets are nested; no real profile
/// nests so many.
pub(crate) fn read_yaml(text: &str) -> Result<Value, serde_yaml::Error> {
    const DEEPEST: usize = 100;
    let deeper = |depth: usize, byte: u8| match byte {
        b'[' | b'{' => Some(depth + 1).filter(|depth| *depth <= DEEPEST),
        b']' | b'}' => Some(depth.saturating_sub(1)),
        _ => Some(depth),
    };
    match text.bytes().try_fold(0, deeper) {
        Some(_) => serde_yaml::from_str(text),
        None => Err(serde_yaml::Error::custom(format!("brackets are nested deeper than {DEEPEST}"))),
    }
}

struct ProfileReader<'a> {
    file: &'a Path,
    text: &'a str,
    notes: Vec<String>,
    /// The image whose programs the commands find.
    image: Option<String>,
}

/// The path to a value, for errors.
type FieldPath<'a> = [FieldSegment<'a>];

impl ProfileReader<'_> {
    fn wrong(&self, path: &FieldPath<'_>, reason: impl Into<String>) -> ProfileError {
        let at = ProfileLocation { file: self.file.to_owned(), line: field_lines::line_of(self.text, path) };
        ProfileError::Field { at, field: field_lines::field_name(path), reason: reason.into() }
    }

    fn profile(&mut self, map: &Mapping) -> Result<Profile, ProfileError> {
        for (key, reason) in container::WIDENING {
            if map.contains_key(*key) {
                return Err(self.wrong(&[FieldSegment::Key(key)], format!("is refused: {reason}")));
            }
        }
        self.note_unknown(map, &[], &KEYS);
        let required = |key: &'static str| {
            map.get(key)
                .filter(|value| !value.is_null())
                .ok_or_else(|| self.wrong(&[FieldSegment::Key(key)], "is missing"))
        };
        let (name, description) = (required("name")?, required("description")?);
        let commands = required("commands")?;
        let name = self.text(&[FieldSegment::Key("name")], name)?;
        let name = ProfileName::parse(name).map_err(|error| {
            self.wrong(
                &[FieldSegment::Key("name")],
                format!("is `{}`: {}", escape(name.as_bytes()), error.reason),
            )
        })?;
        self.image = self.optional(map, &[], "image", Self::image)?;
        Ok(Profile {
            name,
            description: self.text(&[FieldSegment::Key("description")], description)?.to_owned(),
            environment: self.optional(map, &[], "environment", Self::environment)?,
            platform: self.optional(map, &[], "platform", Self::platform)?.unwrap_or(Platform::Any),
            commands: self.commands(commands)?,
            timeout: self.optional(map, &[], "timeout", Self::timeout)?,
            network: self.optional(map, &[], "network", Self::network)?.unwrap_or(ProfileNetwork::None),
            env: self.optional(map, &[], "env", Self::env)?.unwrap_or_default(),
            memory: self.optional(map, &[], "memory", Self::memory)?,
            image: self.image.clone(),
            caches: self.optional(map, &[], "caches", Self::caches)?.unwrap_or_default(),
        })
    }

    /// A key that may be left out, or left empty.
    fn optional<T>(
        &self,
        map: &Mapping,
        inside: &FieldPath<'_>,
        key: &'static str,
        read: impl Fn(&Self, &FieldPath<'_>, &Value) -> Result<T, ProfileError>,
    ) -> Result<Option<T>, ProfileError> {
        let path = [inside, &[FieldSegment::Key(key)]].concat();
        map.get(key).filter(|value| !value.is_null()).map(|value| read(self, &path, value)).transpose()
    }

    fn commands(&mut self, value: &Value) -> Result<Vec<ProfileCommand>, ProfileError> {
        let path = [FieldSegment::Key("commands")];
        let Value::Sequence(items) = value else {
            return Err(self.wrong(&path, format!("is {}; write a list of commands", kind(value))));
        };
        if items.is_empty() {
            return Err(self.wrong(&path, "is empty: a profile that checks nothing would always hold"));
        }
        items
            .iter()
            .enumerate()
            .map(|(index, item)| self.command(&[path[0], FieldSegment::Item(index)], item))
            .collect()
    }

    fn command(&mut self, path: &FieldPath<'_>, value: &Value) -> Result<ProfileCommand, ProfileError> {
        let Value::Mapping(map) = value else {
            return Ok(ProfileCommand::unconditional(self.script(path, value)?));
        };
        self.note_unknown(map, path, &COMMAND_KEYS);
        let run = self.optional(map, path, "run", Self::script)?;
        let missing = || self.wrong(path, "has no `run`: the command itself is missing");
        Ok(ProfileCommand {
            run: run.ok_or_else(missing)?,
            timeout: self.optional(map, path, "timeout", Self::timeout)?,
            network: self.optional(map, path, "network", Self::network)?,
            when: self.optional(map, path, "when", Self::when)?.unwrap_or_default(),
        })
    }

    /// Reads a script for the shell.
    fn script(&self, path: &FieldPath<'_>, value: &Value) -> Result<String, ProfileError> {
        let text = self.text(path, value)?;
        if text.contains('\0') {
            return Err(self.wrong(path, "has a NUL character in it, which no command can have"));
        }
        Ok(text.to_owned())
    }

    fn text<'v>(&self, path: &FieldPath<'_>, value: &'v Value) -> Result<&'v str, ProfileError> {
        match value {
            Value::String(text) if text.trim().is_empty() => Err(self.wrong(path, "is empty")),
            Value::String(text) => Ok(text),
            other => Err(self.wrong(path, format!("is {}; write text, in quotes if need be", kind(other)))),
        }
    }

    fn environment(&self, path: &FieldPath<'_>, value: &Value) -> Result<String, ProfileError> {
        Ok(self.text(path, value)?.to_owned())
    }

    fn platform(&self, path: &FieldPath<'_>, value: &Value) -> Result<Platform, ProfileError> {
        let text = self.text(path, value)?;
        let known = Platform::ALL.into_iter().find(|platform| platform.as_str() == text);
        let reason = || format!("is `{}`; known are any, linux, darwin and windows", escape(text.as_bytes()));
        known.ok_or_else(|| self.wrong(path, reason()))
    }

    fn timeout(&self, path: &FieldPath<'_>, value: &Value) -> Result<Duration, ProfileError> {
        let text = match value {
            Value::Number(number) => {
                return Err(
                    self.wrong(path, format!("is `{number}`, without a unit; write for example {number}s"))
                );
            }
            other => self.text(path, other)?,
        };
        units::duration(text).map_err(|reason| self.wrong(path, reason))
    }

    fn caches(&self, path: &FieldPath<'_>, value: &Value) -> Result<Vec<String>, ProfileError> {
        let names = self.texts(path, value)?;
        for name in &names {
            container::caches::check(name)
                .map_err(|reason| self.wrong(path, format!("has `{}`: {reason}", escape(name.as_bytes()))))?;
        }
        Ok(names)
    }

    fn image(&self, path: &FieldPath<'_>, value: &Value) -> Result<String, ProfileError> {
        let name = self.text(path, value)?;
        let odd = |reason| self.wrong(path, format!("is `{}`: {reason}", escape(name.as_bytes())));
        container::image_name(name).map_err(odd)?;
        Ok(name.to_owned())
    }

    fn memory(&self, path: &FieldPath<'_>, value: &Value) -> Result<u64, ProfileError> {
        let text = match value {
            Value::Number(number) => number.to_string(),
            other => self.text(path, other)?.to_owned(),
        };
        units::size(&text).map_err(|reason| self.wrong(path, reason))
    }

    fn network(&self, path: &FieldPath<'_>, value: &Value) -> Result<ProfileNetwork, ProfileError> {
        if let Value::String(text) = value {
            match text.as_str() {
                "none" => return Ok(ProfileNetwork::None),
                "full" => return Ok(ProfileNetwork::Full),
                _ => {}
            }
        }
        let hosts = self.texts(path, value)?;
        let list = HostAllowlist::parse(&hosts.join(",")).map_err(|error| {
            self.wrong(path, format!("has {error}; write none, full, or a list of HOST:PORT"))
        })?;
        Ok(ProfileNetwork::Hosts(list))
    }

    fn env(&self, path: &FieldPath<'_>, value: &Value) -> Result<Vec<String>, ProfileError> {
        let names = self.texts(path, value)?;
        for name in &names {
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !plain || name.starts_with(|first: char| first.is_ascii_digit()) {
                let reason =
                    format!("has `{}`; name variables, without their values", escape(name.as_bytes()));
                return Err(self.wrong(path, reason));
            }
        }
        Ok(names)
    }

    /// Reads one text, or a list of texts that is not empty.
    fn texts(&self, path: &FieldPath<'_>, value: &Value) -> Result<Vec<String>, ProfileError> {
        match value {
            Value::Sequence(items) if items.is_empty() => {
                Err(self.wrong(path, "is an empty list; leave it out"))
            }
            Value::Sequence(items) => {
                items.iter().map(|item| self.text(path, item).map(str::to_owned)).collect()
            }
            one => Ok(vec![self.text(path, one)?.to_owned()]),
        }
    }

    fn when(&self, path: &FieldPath<'_>, value: &Value) -> Result<WhenRule, ProfileError> {
        let clauses = match value {
            Value::Sequence(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        if clauses.is_empty() {
            return Err(self.wrong(path, "is an empty list; leave it out"));
        }
        Ok(WhenRule(clauses.iter().map(|clause| self.clause(path, clause)).collect::<Result<_, _>>()?))
    }

    /// Reads a condition. An unknown condition is an error where another unknown key would be a note: leaving it out
    /// would leave out a check, or run one that was not requested.
    fn clause(&self, path: &FieldPath<'_>, value: &Value) -> Result<WhenClause, ProfileError> {
        let map = match value {
            Value::Mapping(map) if !map.is_empty() => map,
            other => {
                let reason = format!("is {}; write a map such as {{file: mypy.ini}}", kind(other));
                return Err(self.wrong(path, reason));
            }
        };
        let condition = |(key, value): (&Value, &Value)| {
            let key = show_key(key);
            let Some(known) = WhenCondition::KEYS.into_iter().find(|known| **known == key) else {
                let reason = match nearest(&key, WhenCondition::KEYS) {
                    Some(known) => format!("has no condition `{key}`; did you mean `{known}`?"),
                    None => {
                        format!("has no condition `{key}`; there are {}", WhenCondition::KEYS.join(", "))
                    }
                };
                return Err(self.wrong(path, reason));
            };
            let path = [path, &[FieldSegment::Key(known)]].concat();
            Ok(match known {
                "file" => WhenCondition::File(self.patterns(&path, value)?),
                "script" => WhenCondition::Script(self.texts(&path, value)?),
                "requires" => WhenCondition::Requires(self.texts(&path, value)?),
                "pyproject" => WhenCondition::Pyproject(self.texts(&path, value)?),
                "target" => WhenCondition::Target(self.texts(&path, value)?),
                "program" => WhenCondition::Program(self.programs(&path, value)?),
                _ => WhenCondition::Not(self.when(&path, value)?),
            })
        };
        Ok(WhenClause(map.iter().map(condition).collect::<Result<_, _>>()?))
    }

    fn patterns(&self, path: &FieldPath<'_>, value: &Value) -> Result<Vec<String>, ProfileError> {
        let patterns = self.texts(path, value)?;
        for pattern in &patterns {
            let shown = || escape(pattern.as_bytes());
            if let Err(error) = RelPath::parse(pattern.as_bytes()) {
                return Err(self.wrong(path, format!("has `{}`: {error}", shown())));
            }
            if pattern.rsplit_once('/').is_some_and(|(folder, _)| folder.contains('*')) {
                return Err(self.wrong(path, format!("has `{}`: `*` may only be in the last part", shown())));
            }
        }
        Ok(patterns)
    }

    /// Reads a condition about programs. It is decided on this host. The programs of an image are unknown before a
    /// container of it runs, and an answer of the host could leave out a check that the image could run.
    fn programs(&self, path: &FieldPath<'_>, value: &Value) -> Result<Vec<String>, ProfileError> {
        let programs = self.texts(path, value)?;
        if let Some(image) = &self.image {
            let reason = format!(
                "asks for a program of this host, and the commands find those of the image `{image}`; leave it out, \
                 for an image always has the same ones, or ask for a file of the repository"
            );
            return Err(self.wrong(path, reason));
        }
        match programs.iter().find(|program| program.contains('/')) {
            Some(program) => {
                let reason = format!("has `{}`; write the name of a program", escape(program.as_bytes()));
                Err(self.wrong(path, reason))
            }
            None => Ok(programs),
        }
    }

    fn note_unknown(&mut self, map: &Mapping, inside: &FieldPath<'_>, known: &[&str]) {
        for key in map.keys().map(show_key).filter(|key| !known.contains(&key.as_str())) {
            let path = [inside, &[FieldSegment::Key(&key)]].concat();
            let at =
                ProfileLocation { file: self.file.to_owned(), line: field_lines::line_of(self.text, &path) };
            let field = field_lines::field_name(&path);
            let guess = nearest(&key, known.iter().copied())
                .map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
            self.notes.push(format!("{at}: `{field}` is not known and is ignored{guess}"));
        }
    }
}

fn show_key(key: &Value) -> String {
    match key {
        Value::String(text) => escape(text.as_bytes()),
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "a map",
        Value::Tagged(_) => "a value with a tag",
    }
}
