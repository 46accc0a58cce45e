//! What stands for the placeholders of a command, and where an agent finds its prompt.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use agency_sandbox::workspace::Workspace;
use agency_sandbox::workspace::state::RunFolder;

use super::order::{AgentOrder, JobOrder};

/// Where the agent finds what it is told, in its private repository, which is never part of its work.
pub(super) const PROMPT: &[u8] = b"AGENCY_PROMPT.md";
/// What it is to call its report.
pub(super) const REPORT: &str = "report.md";
/// Where it may say what it used.
pub(super) const USAGE: &str = "usage.json";

/// What stands for the placeholders of a command.
pub(super) struct Placeholders {
    pub(super) prompt: String,
    pairs: Vec<(&'static str, OsString)>,
}

impl Placeholders {
    pub(super) fn new(workspace: &Workspace, order: &JobOrder, agent: &AgentOrder, run: &RunFolder) -> Self {
        let seen = workspace.path_in_sandbox(order.level, run);
        let left = |name: &str| match &workspace.outbox {
            Some(outbox) => outbox.at.join(name).into_os_string(),
            None => OsString::new(),
        };
        let report = left(REPORT);
        // Some programs write files without asking their environment for anything.
        let prompt = format!("{}\nThat file is `{}`.\n", agent.prompt.trim_end(), report.to_string_lossy());
        let prompt_file = seen.join(".git").join(OsStr::from_bytes(PROMPT));
        let pairs = vec![
            ("prompt", prompt.clone().into()),
            ("prompt_file", prompt_file.into_os_string()),
            ("task_id", order.task.id.clone().into()),
            ("task_file", seen.join(&agent.task_file).into_os_string()),
            ("report_file", report),
            ("usage_file", left(USAGE)),
            ("workspace", seen.into_os_string()),
        ];
        Self { prompt, pairs }
    }

    /// A command with its placeholders filled in. What is put in is not looked at again.
    pub(super) fn command(&self, agent: &AgentOrder) -> Vec<OsString> {
        agent.program.command.iter().map(|argument| self.fill_in(argument)).collect()
    }

    fn fill_in(&self, argument: &str) -> OsString {
        let mut filled = OsString::new();
        let mut rest = argument;
        while let Some(start) = rest.find('{') {
            filled.push(&rest[..start]);
            rest = &rest[start..];
            let known = self
                .pairs
                .iter()
                .find(|(name, _)| rest[1..].strip_prefix(name).is_some_and(|after| after.starts_with('}')));
            match known {
                Some((name, value)) => {
                    filled.push(value);
                    rest = &rest[name.len() + 2..];
                }
                None => {
                    filled.push("{");
                    rest = &rest[1..];
                }
            }
        }
        filled.push(rest);
        filled
    }

    /// The same for programs that look at their environment, as `AGENCY_TASK_ID` and so on.
    pub(super) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let shown = self.pairs.iter().filter(|(name, _)| *name != "prompt");
        shown.map(|(name, value)| (format!("AGENCY_{}", name.to_uppercase()).into(), value.clone()))
    }

    /// An agent whose command does not say where the prompt goes reads it from its input.
    pub(super) fn input(&self, agent: &AgentOrder) -> io::Result<File> {
        if agent
            .program
            .command
            .iter()
            .any(|argument| argument.contains("{prompt}") || argument.contains("{prompt_file}"))
        {
            return File::open("/dev/null");
        }
        let mut file = tempfile_in_memory()?;
        file.write_all(self.prompt.as_bytes())?;
        io::Seek::rewind(&mut file)?;
        Ok(file)
    }
}

fn tempfile_in_memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("prompt", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_once() {
        let pairs = vec![("prompt", "do {task_id} {".into()), ("task_id", "T1".into())];
        let words = Placeholders { prompt: String::new(), pairs };
        assert_eq!(words.fill_in("--say={prompt}"), "--say=do {task_id} {");
        assert_eq!(words.fill_in("{task_id}{task_id}}"), "T1T1}");
        assert_eq!(words.fill_in("a{b}${HOME}{"), "a{b}${HOME}{");
    }
}
