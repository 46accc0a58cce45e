//! Whether an agent can be used here: its program, the version of it, and what it logs in with.

use std::path::Path;

use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::settings::AgentSettings;
use serde::Serialize;

use super::definition::AgentDefinition;
use super::program::{self, InstalledProgram};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::scratch_repo::ScratchRepo;

/// What `agency sandbox` ends with where no sandbox can be made.
const UNAVAILABLE: i32 = 3;

/// How long a program has to say its version.
const PATIENCE: &str = "30s";

/// What an agent logs in with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "credentials", content = "names")]
pub(crate) enum CredentialStatus {
    /// It has none.
    NotNeeded,
    /// These variables and files are there.
    Present(Vec<String>),
    /// None of these is.
    Missing(Vec<String>),
}

/// An agent that can be started, with what has to be shown to it.
/// `usual` is how those are held that do not say it.
pub(crate) fn agent(
    definition: AgentDefinition<'_>,
    usual: IsolationLevel,
    host: &HostUser,
) -> Result<AgentSettings, CommandError> {
    let name = definition.name;
    let mut agent = definition.agent(host)?;
    if agent.outside {
        return Ok(agent);
    }
    let Some(program) = agent.program.command.first() else {
        return Err(CommandError::usage(format!("the agent `{name}` has no command"))
            .with_hint(format!("[agents.{name}] command = [\"PROGRAM\", \"{{prompt}}\"] in agency.toml")));
    };
    // An image has its own programs, and we do not look into it for that.
    let found = match program::is_host_program(program) && !is_contained(&agent, usual) {
        true => Some(find(name, program, host)?),
        false => None,
    };
    if let CredentialStatus::Missing(wanted) = credentials(&agent) {
        let login = definition.text(&["login"]).map(str::to_owned);
        let login = login.unwrap_or_else(|| format!("set {}", wanted.join(" or ")));
        return Err(CommandError::usage(format!("the agent `{name}` is not logged in")).with_hint(login));
    }
    if let Some(InstalledProgram { path, start, needs }) = found {
        if start != path {
            agent.program.command[0] = start.display().to_string();
        }
        agent.program.read.extend(needs);
    }
    Ok(agent)
}

/// The same, and its program is new enough.
pub(crate) fn checked(
    definition: AgentDefinition<'_>,
    usual: IsolationLevel,
    host: &HostUser,
) -> Result<AgentSettings, CommandError> {
    let agent = agent(definition, usual, host)?;
    let asked = !agent.outside && !is_contained(&agent, usual);
    let Some(least) = definition.text(&["min_version"]).filter(|_| asked) else {
        return Ok(agent);
    };
    let name = definition.name;
    let version = match version(definition, &agent) {
        // Where nothing can be started, that is said when it is known what would be.
        Err(failure) if failure.kind == ErrorKind::Unavailable => return Ok(agent),
        version => version?,
    };
    match version {
        Some(version) if is_at_least(&version, least) => Ok(agent),
        Some(version) => Err(CommandError::usage(format!(
            "the agent `{name}` needs version {least} of its program, and {version} is there"
        ))
        .with_hint(format!(
            "update it, or say how this one is started: agents.{name}.command in agency.toml"
        ))),
        None => {
            Err(CommandError::usage(format!("the program of the agent `{name}` does not say its version"))
                .with_hint(format!("`{}` shows why", definition.texts(&["version", "command"]).join(" "))))
        }
    }
}

/// Whether an agent's program is one of an image.
pub(crate) fn is_contained(agent: &AgentSettings, usual: IsolationLevel) -> bool {
    agent.level.unwrap_or(usual).needs_image()
}

pub(crate) fn find(name: &str, program: &str, host: &HostUser) -> Result<InstalledProgram, CommandError> {
    program::find(program, host).ok_or_else(|| {
        CommandError::usage(format!("the agent `{name}` is not installed: there is no `{program}` on PATH"))
            .with_hint(format!("install it, or say what to start: agents.{name}.command in agency.toml"))
    })
}

pub(crate) fn credentials(agent: &AgentSettings) -> CredentialStatus {
    let program = &agent.program;
    let is_set = |name: &&String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let files = || program.credentials.iter().map(|file| file.display().to_string());
    let present: Vec<String> = program
        .env
        .iter()
        .filter(is_set)
        .cloned()
        .chain(files().filter(|file| Path::new(file).is_file()))
        .collect();
    match present.is_empty() {
        false => CredentialStatus::Present(present),
        true if program.env.is_empty() && program.credentials.is_empty() => CredentialStatus::NotNeeded,
        true => CredentialStatus::Missing(program.env.iter().cloned().chain(files()).collect()),
    }
}

/// What its program says that its version is. It is asked in a sandbox, like everything an agent does.
pub(crate) fn version(
    definition: AgentDefinition<'_>,
    agent: &AgentSettings,
) -> Result<Option<String>, CommandError> {
    let mut command = definition.texts(&["version", "command"]);
    if command.is_empty() {
        return Ok(None);
    }
    // The same program, wherever it is.
    if definition.command().first() == command.first()
        && let Some(program) = agent.program.command.first()
    {
        command[0].clone_from(program);
    }
    let place = ScratchRepo::new("agency-version", None)?;
    let program = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    let mut asked = place.command(&program, &["sandbox", "--timeout", PATIENCE]);
    for path in agent.program.read.iter().filter(|path| path.exists()) {
        asked.arg("--read").arg(path);
    }
    let said = asked.arg("--").args(&command).output();
    place.remove();
    let said = said.map_err(|error| CommandError::internal(&error))?;
    if said.status.code() == Some(UNAVAILABLE) {
        return Err(CommandError::new_message(ErrorKind::Unavailable, "no sandbox can be made here"));
    }
    let text = [said.stdout, said.stderr].concat();
    Ok(said.status.success().then(|| number(&String::from_utf8_lossy(&text))).flatten())
}

/// The first thing in a text that looks like a version.
fn number(text: &str) -> Option<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')));
    let bare = words.map(|word| word.trim_start_matches('v').trim_end_matches('.'));
    bare.filter(|word| parts(word).len() >= 2).map(str::to_owned).next()
}

fn parts(version: &str) -> Vec<u64> {
    let numbers = version.split(['-', '+']).next().unwrap_or_default().split('.');
    numbers.map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
}

fn is_at_least(version: &str, least: &str) -> bool {
    parts(version) >= parts(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_and_compared() {
        for (text, version) in [
            ("2.1.197 (Claude Code)", Some("2.1.197")),
            ("codex-cli 0.166.0\n", Some("0.166.0")),
            ("This is mini-swe-agent version 2.4.6.\nCheck", Some("2.4.6")),
            ("aider v0.86.1-dev", Some("0.86.1-dev")),
            ("no version", None),
        ] {
            assert_eq!(number(text).as_deref(), version, "{text}");
        }
        for (version, least, enough) in [
            ("2.1.197", "2.0.0", true),
            ("0.99.3", "0.100.0", false),
            ("1.0", "1.0.0", false),
            ("2.0.0-rc1", "2.0.0", true),
        ] {
            assert_eq!(is_at_least(version, least), enough, "{version} {least}");
        }
    }
}
