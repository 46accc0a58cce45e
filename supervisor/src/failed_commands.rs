//! The commands of a proof that failed, in one sentence: which, how they ended, and the last lines of the first.

#![allow(clippy::disallowed_methods, reason = "opens our own logs")]

use std::fs::File;
use std::path::PathBuf;

use agency_protocols::board::ProofEvidence;
use serde_json::Value;

use crate::log_excerpt::tail_on_one_line;

/// How much of a failed command's output is quoted, in bytes.
const QUOTED: u64 = 300;
/// The codes by which a shell says that a program is missing, or can't be started.
const NOT_FOUND: [i64; 2] = [126, 127];

/// The commands of a proof that failed. There is at least one.
#[derive(Debug)]
pub(crate) struct FailedCommands {
    commands: Vec<FailedCommand>,
    /// The end of the first one's output, on one line.
    quoted: String,
}

#[derive(Debug)]
struct FailedCommand {
    name: String,
    exit_code: Option<i64>,
    log: Option<PathBuf>,
}

impl FailedCommands {
    /// `None` where every command succeeded.
    pub(crate) fn of(evidence: &ProofEvidence) -> Option<Self> {
        let failed = evidence.commands.iter().filter(|command| command["exit_code"] != 0);
        let commands: Vec<FailedCommand> = failed.map(FailedCommand::read).collect();
        let log = commands.first()?.log.as_ref().and_then(|log| File::open(log).ok());
        let quoted = log.and_then(|mut log| tail_on_one_line(&mut log, 0, QUOTED).ok()).unwrap_or_default();
        Some(Self { commands, quoted })
    }

    /// The log of the first one.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        self.commands.first()?.log.clone()
    }

    /// The end of the first one's output.
    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    /// The first command whose program is missing.
    pub(crate) fn without_program(&self) -> Option<&str> {
        let is_missing = |one: &&FailedCommand| one.exit_code.is_some_and(|code| NOT_FOUND.contains(&code));
        self.commands.iter().find(is_missing).map(|one| one.name.as_str())
    }
}

impl FailedCommand {
    fn read(command: &Value) -> Self {
        Self {
            name: command["cmd"].as_str().unwrap_or("a command").to_owned(),
            exit_code: command["exit_code"].as_i64(),
            log: command["log"].as_str().map(PathBuf::from),
        }
    }
}

impl std::fmt::Display for FailedCommands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, FailedCommand { name, exit_code, .. }) in self.commands.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            match exit_code {
                Some(code) => write!(f, "`{name}` ended with exit code {code}")?,
                None => write!(f, "`{name}` did not end")?,
            }
            if exit_code == &Some(127) {
                f.write_str(" (a program is missing)")?;
            }
        }
        match self.quoted.as_str() {
            "" => Ok(()),
            quoted => write!(f, "; its last output: {quoted}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn evidence(commands: Vec<Value>) -> ProofEvidence {
        let (notes, bound_to) = (Vec::new(), Map::new());
        ProofEvidence { profile: "x".into(), passed: false, commands, notes, bound_to }
    }

    #[test]
    fn a_failed_command_is_quoted_and_its_log_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("01-npm-test.log");
        std::fs::write(&log, "> shop@1.0.0 test\n\n\u{1b}[31msh: 1: jest: not found\n").expect("a log");
        let failed = FailedCommands::of(&evidence(vec![
            json!({"cmd": "true", "exit_code": 0}),
            json!({"cmd": "npm test", "exit_code": 127, "log": log}),
            json!({"cmd": "npm run lint", "exit_code": 1}),
        ]));
        let failed = failed.expect("two failed");
        assert_eq!(
            failed.to_string(),
            "`npm test` ended with exit code 127 (a program is missing), `npm run lint` ended with exit code 1; \
             its last output: > shop@1.0.0 test [31msh: 1: jest: not found"
        );
        assert_eq!((failed.log(), failed.without_program()), (Some(log), Some("npm test")));
        assert!(FailedCommands::of(&evidence(vec![json!({"cmd": "true", "exit_code": 0})])).is_none());
    }
}
