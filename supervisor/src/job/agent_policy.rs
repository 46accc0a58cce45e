//! What an agent is given: its environment, its credentials, the hosts it may reach, and how much of everything.

#![allow(clippy::disallowed_methods, reason = "opens the user's own credentials")]

use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use agency_sandbox::egress::HostAllowlist;
use agency_sandbox::host::{self, HostUser};
use agency_sandbox::policy::{Deadlines, IsolationLevel, MemoryLimit, NetworkPolicy, Policy, ResourceLimits};
use agency_sandbox::secret::NamedSecret;
use serde_json::Value;

use super::order::{AgentOrder, AgentProgram, JobOrder, NetworkAccess};
use super::placeholders::Placeholders;
use crate::scope;

/// How much of its output is kept, by default.
const LOGGED: u64 = 64 << 20;
/// What is shorter than this in a file of credentials is a name or a number, not a secret.
const SHORTEST_CREDENTIAL: usize = 16;
/// The largest file of credentials that is looked into.
const LARGEST_CREDENTIAL: u64 = 1 << 20;

pub(super) fn policy(
    order: &JobOrder,
    agent: &AgentOrder,
    host: &HostUser,
    words: &Placeholders,
) -> Result<Policy, Box<dyn Error>> {
    let program = &agent.program;
    let network = network(&program.network)?;
    let mut environment = environment(program, host, order.level);
    environment.extend(words.variables());
    order.export_trace(&mut environment);
    if let NetworkPolicy::Hosts(list) = &network {
        environment = list.environment(environment);
    }
    let usual = ResourceLimits::default();
    let ms = |value: Option<u64>| value.map(Duration::from_millis);
    let there =
        |paths: &[std::path::PathBuf]| paths.iter().filter(|path| path.exists()).cloned().collect::<Vec<_>>();
    let credentials: Vec<_> = program.credentials.iter().filter(|path| path.is_file()).cloned().collect();
    let mut secrets: Vec<NamedSecret> = program.env.iter().flat_map(|name| passed(name)).collect();
    for file in &credentials {
        secrets.extend(written_in(file)?);
    }
    Ok(Policy {
        level: order.level,
        scope: scope::parse(&agent.scope.write, &agent.scope.deny, agent.scope.author)?,
        read: there(&program.read).into_iter().chain(credentials).collect(),
        network,
        limits: ResourceLimits {
            memory: agent.limits.memory.map_or(MemoryLimit::Share, MemoryLimit::Bytes),
            processes: agent.limits.processes.or(usual.processes),
            output: agent.limits.output.unwrap_or(LOGGED),
            ..usual
        },
        deadlines: Deadlines {
            wall: ms(agent.limits.wall_ms),
            stall: ms(agent.limits.stall_ms),
            grace: ms(agent.limits.grace_ms).unwrap_or(Deadlines::default().grace),
        },
        environment,
        secrets,
        container: order.container(),
        ..Policy::deny_all()
    })
}

/// What can be reached.
pub(super) fn network(reach: &NetworkAccess) -> Result<NetworkPolicy, Box<dyn Error>> {
    Ok(match reach {
        NetworkAccess::None => NetworkPolicy::None,
        NetworkAccess::Full => NetworkPolicy::Full,
        NetworkAccess::Hosts(hosts) => NetworkPolicy::Hosts(HostAllowlist::parse(hosts)?),
    })
}

/// What it finds in its environment, but for what only a task can tell.
fn environment(program: &AgentProgram, host: &HostUser, level: IsolationLevel) -> Vec<(OsString, OsString)> {
    let set = |variable: &&String| variable.contains('=');
    let passed = program.env.iter().chain(program.variables.iter().filter(|variable| !set(variable)));
    let named: Vec<OsString> = passed.map(OsString::from).collect();
    let mut environment = host::environment(host, level, std::env::vars_os(), &named);
    environment.retain(|(name, _)| !name.as_bytes().starts_with(b"AGENCY_") || named.contains(name));
    for (name, value) in program.variables.iter().filter_map(|variable| variable.split_once('=')) {
        environment.retain(|(other, _)| other != name);
        environment.push((name.into(), value.into()));
    }
    environment
}

/// A variable's value; and, where that is JSON, everything in it that looks like a secret of its own.
fn passed(name: &str) -> Vec<NamedSecret> {
    let Some(value) = std::env::var_os(name) else { return Vec::new() };
    let inside = match serde_json::from_slice::<Value>(value.as_bytes()) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => secrets_of(name, texts(&value)),
        _ => Vec::new(),
    };
    std::iter::once(NamedSecret { name: name.to_owned(), value: value.as_bytes().to_vec() })
        .chain(inside)
        .collect()
}

/// Everything in a file of credentials that looks like a secret, in any format: JSON, YAML, TOML, `NAME=value`, a
/// key in its armour, or the token alone.
fn written_in(file: &Path) -> std::io::Result<Vec<NamedSecret>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(LARGEST_CREDENTIAL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let texts = match serde_json::from_str::<Value>(&text) {
        Ok(value) => texts(&value),
        Err(_) => vec![text.into_owned()],
    };
    Ok(secrets_of(&file.file_name().unwrap_or_default().to_string_lossy(), texts))
}

fn secrets_of(name: &str, texts: Vec<String>) -> Vec<NamedSecret> {
    let separates = |c: char| c.is_whitespace() || c.is_control() || "\"'`,;{}[]()<>\\".contains(c);
    let mut words: Vec<&str> = Vec::new();
    for word in texts.iter().flat_map(|text| text.split(separates)) {
        words.push(word);
        // `NAME=value` and `name:value`; what ends a token is part of it.
        words.extend(word.split_once(['=', ':']).map(|(_, value)| value));
    }
    words.retain(|word| looks_secret(word));
    words.sort_unstable();
    words.dedup();
    words
        .into_iter()
        .map(|word| NamedSecret { name: name.to_owned(), value: word.as_bytes().to_vec() })
        .collect()
}

/// Long, and of letters and digits, or of letters of both kinds. Addresses, times, paths and the names of scopes are
/// none: work that mentions them would be refused.
fn looks_secret(word: &str) -> bool {
    let has = |kind: fn(&char) -> bool| word.chars().any(|c| kind(&c));
    let random = has(char::is_ascii_digit) || (word.len() >= 24 && has(char::is_ascii_uppercase));
    let is_time =
        word.len() > 4 && word.as_bytes()[4] == b'-' && word[..4].bytes().all(|byte| byte.is_ascii_digit());
    let is_place = word.contains('@') || word.contains("://") || word.starts_with(['/', '~', '.']);
    word.is_ascii()
        && word.len() >= SHORTEST_CREDENTIAL
        && has(char::is_ascii_lowercase) | has(char::is_ascii_uppercase)
        && random
        && !is_time
        && !is_place
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(items) => items.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(text: &str) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let found = written_in(file.path()).expect("read");
        found.into_iter().map(|secret| String::from_utf8_lossy(&secret.value).into_owned()).collect()
    }

    #[test]
    fn every_secret_in_a_file_of_credentials_is_known() {
        let json = r#"{"tokens":{"access":"eyJhbGciOiJSUzI1NiJ9.x","list":["Bearer sk-0123456789abcdef"]},"mode":"chatgpt"}"#;
        assert_eq!(secrets(json), ["eyJhbGciOiJSUzI1NiJ9.x", "sk-0123456789abcdef"]);
        let pem = r#"{"private_key":"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n"}"#;
        assert_eq!(secrets(pem), ["AQEFAASCBKcwggSjAgEAAoIB", "MIIEvQIBADANBgkqhkiG9w0B"]);
        for text in [
            "# mine\nKEY=\"sk-0123456789abcdef\"\nMODEL=small\n",
            "sk-0123456789abcdef\n",
            "oauth_token: sk-0123456789abcdef # mine\n",
            "key = \"sk-0123456789abcdef\" # mine\n",
            "machine api.example.org\n  login me\n  password sk-0123456789abcdef\n",
        ] {
            assert_eq!(secrets(text), ["sk-0123456789abcdef"], "{text}");
        }
        assert_eq!(secrets("c2stMDEyMzQ1Njc4OWFiY2RlZg==\n"), ["c2stMDEyMzQ1Njc4OWFiY2RlZg=="]);
        for harmless in [
            r#"{"active":"somebody42@gmail.com"}"#,
            r#"{"scopes":["org:create_api_key","user:sessions:claude_code"],"at":"2026-11-17T10:15:00.123Z"}"#,
            r#"{"url":"https://api.example.org/v1/0123456789"}"#,
            "path = /home/me/.config/tool0123456789\n",
        ] {
            assert!(secrets(harmless).is_empty(), "{harmless}: {:?}", secrets(harmless));
        }
        assert!(secrets("").is_empty());
    }

    #[test]
    fn a_variable_is_passed_on_or_set() {
        let host = HostUser { uid: 1000, gid: 1000, home: "/home/me".into() };
        let variables =
            vec!["IS_SANDBOX=1".to_owned(), "PATH=/opt/bin".to_owned(), "UNSET_ANYWHERE".to_owned()];
        let found = environment(
            &AgentProgram { variables, ..AgentProgram::default() },
            &host,
            IsolationLevel::Process,
        );
        let value = |name: &str| {
            let values: Vec<_> =
                found.iter().filter(|(other, _)| other == name).map(|(_, value)| value).collect();
            values.iter().map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(value("IS_SANDBOX"), ["1"]);
        assert_eq!(value("PATH"), ["/opt/bin"]);
        assert!(value("UNSET_ANYWHERE").is_empty());
    }
}
