//! Whether an agent can be used here: its program, the version of it, and what it logs in with.

use std::path::{Path, PathBuf};

use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::settings::AgentSettings;
use serde::Serialize;

use super::definition::AgentDefinition;
use super::program::{self, InstalledProgram};
use crate::app::error::{CommandError, ErrorKind, without_control_chars};
use crate::app::scratch_repo::ScratchRepo;

/// What `agency sandbox` ends with where no sandbox can be made.
const UNAVAILABLE: i32 = 3;

/// How long a program has to say its version.
const PATIENCE: &str = "30s";

/// The most of a program's words that are repeated.
const LONGEST_REASON: usize = 200;

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
    let others = other_programs(definition, &agent, usual, host)?;
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
    agent.program.read.extend(others);
    Ok(agent)
}

/// What has to be shown of the other programs that an agent needs. One that is not on this host may be installed where the
/// agent works, by the setup of the workspace.
fn other_programs(
    definition: AgentDefinition<'_>,
    agent: &AgentSettings,
    usual: IsolationLevel,
    host: &HostUser,
) -> Result<Vec<PathBuf>, CommandError> {
    let has_setup = definition.configuration.text("workspace.setup.command").is_some();
    let mut read = Vec::new();
    for program in definition.texts(&["needs"]).iter().filter(|_| !is_contained(agent, usual)) {
        match program::find(program, host) {
            Some(found) => read.extend(found.needs),
            None if has_setup => {}
            None => {
                let name = definition.name;
                return Err(CommandError::usage(format!(
                    "the agent `{name}` needs `{program}`, which is not on PATH, and no workspace.setup installs it"
                ))
                .with_hint("workspace.setup.command = \"npm ci\" in agency.toml installs a project's own: docs/configuration.md"));
            }
        }
    }
    Ok(read)
}

/// The same, and its program is new enough.
pub(crate) fn checked(
    definition: AgentDefinition<'_>,
    usual: IsolationLevel,
    host: &HostUser,
) -> Result<AgentSettings, CommandError> {
    let agent = agent(definition, usual, host)?;
    if definition.text(&["min_version"]).is_some() {
        match version(definition, &agent, usual)? {
            // Where nothing can be started, that is said when it is known what would be.
            VersionProbe::NoSandbox { .. } => {}
            found => judge(definition, &found)?,
        }
    }
    Ok(agent)
}

/// The same, for a person who looks: an agent whose program does not start in a sandbox is not ready. The version of its
/// program, too.
pub(crate) fn inspected(
    definition: AgentDefinition<'_>,
    usual: IsolationLevel,
    host: &HostUser,
) -> Result<Option<String>, CommandError> {
    let agent = agent(definition, usual, host)?;
    let found = version(definition, &agent, usual)?;
    judge(definition, &found)?;
    Ok(match found {
        VersionProbe::Known(version) => Some(version),
        _ => None,
    })
}

/// Whether an agent can be used, by what its program said of its version.
fn judge(definition: AgentDefinition<'_>, found: &VersionProbe) -> Result<(), CommandError> {
    let name = definition.name;
    let least = definition.text(&["min_version"]);
    let asked = definition.texts(&["version", "command"]).join(" ");
    let because = |why: &str| if why.is_empty() { String::new() } else { format!(": {why}") };
    match (found, least) {
        (VersionProbe::NotAsked, _) | (VersionProbe::Unnamed, None) => Ok(()),
        (VersionProbe::Known(version), Some(least)) if !is_at_least(version, least) => {
            Err(CommandError::usage(format!(
                "the agent `{name}` needs version {least} of its program, and {version} is there"
            ))
            .with_hint(format!(
                "update it, or say how this one is started: agents.{name}.command in agency.toml"
            )))
        }
        (VersionProbe::Known(_), _) => Ok(()),
        (VersionProbe::Unnamed, Some(_)) => {
            Err(CommandError::usage(format!("the program of the agent `{name}` does not say its version"))
                .with_hint(format!("`{asked}` shows why")))
        }
        (VersionProbe::Silent { why }, _) => Err(CommandError::usage(format!(
            "the program of the agent `{name}` does not say its version{}",
            because(why)
        ))
        .with_hint(format!("`{asked}` shows why"))),
        (VersionProbe::NoSandbox { why }, _) => Err(CommandError::new_message(
            ErrorKind::Unavailable,
            format!("no sandbox starts for the program of the agent `{name}`{}", because(why)),
        )
        .with_hint("`agency doctor` tells what this host offers")),
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

/// What came of asking a program for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
enum VersionProbe {
    /// Its program is one of an image, or is not started at all.
    NotAsked,
    Known(String),
    /// The program runs, and what it says has no version in it; or no command is configured that asks it.
    Unnamed,
    /// The program fails, or says nothing.
    Silent {
        why: String,
    },
    /// No sandbox starts for it.
    NoSandbox {
        why: String,
    },
}

/// Asks its program for its version. It is asked in a sandbox, like everything an agent does.
fn version(
    definition: AgentDefinition<'_>,
    agent: &AgentSettings,
    usual: IsolationLevel,
) -> Result<VersionProbe, CommandError> {
    let mut command = definition.texts(&["version", "command"]);
    if agent.outside || is_contained(agent, usual) {
        return Ok(VersionProbe::NotAsked);
    }
    if command.is_empty() {
        return Ok(VersionProbe::Unnamed);
    }
    // The same program, wherever it is.
    if definition.command().first() == command.first()
        && let Some(program) = agent.program.command.first()
    {
        command[0].clone_from(program);
    }
    let place = ScratchRepo::new("agency-version", None)?;
    let program = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    let level = agent.level.unwrap_or(usual).name();
    let mut asked = place.command(&program, &["sandbox", "--timeout", PATIENCE, "--isolation", level]);
    for path in agent.program.read.iter().filter(|path| path.exists()) {
        asked.arg("--read").arg(path);
    }
    let said = asked.arg("--").args(&command).output();
    place.remove();
    let said = said.map_err(|error| CommandError::internal(&error))?;
    Ok(probed(said.status.code(), &said.stdout, &said.stderr))
}

fn probed(code: Option<i32>, output: &[u8], errors: &[u8]) -> VersionProbe {
    let text = String::from_utf8_lossy(&[output, errors].concat()).into_owned();
    match code {
        // A program may end with this code, too; then the words are its own.
        Some(UNAVAILABLE) if errors.starts_with(b"agency: ") => {
            VersionProbe::NoSandbox { why: first_line(errors) }
        }
        Some(0) => match number(&text) {
            Some(version) => VersionProbe::Known(version),
            None if text.trim().is_empty() => VersionProbe::Silent { why: String::new() },
            None => VersionProbe::Unnamed,
        },
        _ => VersionProbe::Silent { why: first_line(if errors.is_empty() { output } else { errors }) },
    }
}

/// The first line of a text that says something, without our own name before it.
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("agency: ").unwrap_or(line);
    without_control_chars(line).chars().take(LONGEST_REASON).collect()
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
        let probe =
            |code, output: &str, errors: &str| probed(Some(code), output.as_bytes(), errors.as_bytes());
        assert_eq!(probe(0, "tool 1.2.3\n", ""), VersionProbe::Known("1.2.3".into()));
        assert_eq!(probe(0, "", "tool 1.2.3\n"), VersionProbe::Known("1.2.3".into()));
        assert_eq!(probe(0, "my tool\n", ""), VersionProbe::Unnamed);
        assert_eq!(probe(0, "\n", ""), VersionProbe::Silent { why: String::new() });
        assert_eq!(
            probe(127, "", "\n\u{1b}[2Jno such file\nmore"),
            VersionProbe::Silent { why: "\u{fffd}[2Jno such file".into() }
        );
        assert_eq!(
            probe(UNAVAILABLE, "", "agency: no way\n  hint: none\n"),
            VersionProbe::NoSandbox { why: "no way".into() }
        );
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
