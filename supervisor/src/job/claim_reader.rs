//! Reading what an agent wrote, in a process of its own.
//!
//! It is unknown what a parser does with a text that was made to harm it: it may take for ever, use all memory, or end
//! its process. So a program that has bounds of time and memory, and on which nothing depends, reads the text;
//! if that fails, the text is one that can't be read.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use agency_protocols::claim::{AgentClaim, ClaimKind, LONGEST_TEXT};
use agency_sandbox::git::{BoundedOutput, CommandBounds, output_within};

use crate::attempt::TaskKey;

/// What reading one text may cost. Of texts that are known, none takes a second or 100 MiB, in a build for tests.
const BOUNDS: CommandBounds =
    CommandBounds { time: Duration::from_secs(10), output: 4 << 20, memory: Some(1 << 30) };

/// The program that reads what an agent wrote: it gets the text by its input, and answers with a [`AgentClaim`] as JSON. To
/// its arguments are added the protocol, what the text is meant to be, the task and the agent.
#[derive(Debug, Clone)]
pub struct ClaimReader {
    pub command: Vec<OsString>,
}

/// What an agent wrote, and what about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentText<'a> {
    pub kind: ClaimKind,
    pub task: &'a TaskKey,
    pub agent: &'a str,
    pub text: &'a str,
}

impl ClaimReader {
    /// What the text says. A text that can't be read is a claim, too; an error means that the reader could not be run.
    pub(crate) fn read(&self, text: AgentText<'_>) -> io::Result<AgentClaim> {
        self.read_within(text, BOUNDS)
    }

    fn read_within(&self, text: AgentText<'_>, bounds: CommandBounds) -> io::Result<AgentClaim> {
        let AgentText { kind, task, agent, text } = text;
        let unread = |why: &str| Ok(AgentClaim::unreadable(kind, text, why));
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).args([&task.protocol, kind.as_str(), &task.id, agent]);
        command.env_clear().current_dir("/");
        command.stdin(input(text)?).stdout(Stdio::piped()).stderr(Stdio::null());
        match output_within(&mut command, bounds)? {
            BoundedOutput::Ended(output) if output.status.success() => {
                match serde_json::from_slice::<AgentClaim>(&output.stdout) {
                    Ok(claim) if is_of(&claim, kind) => Ok(claim.bounded()),
                    _ => unread("what its reader answered makes no sense"),
                }
            }
            BoundedOutput::Ended(output) => unread(&format!("its reader ended with {}", output.status)),
            BoundedOutput::TooLong => unread(&format!("reading it took longer than {:?}", bounds.time)),
            BoundedOutput::TooMuch => unread("its reader answered with too much"),
        }
    }
}

fn is_of(claim: &AgentClaim, kind: ClaimKind) -> bool {
    match claim {
        AgentClaim::Report(_) => kind == ClaimKind::Report,
        AgentClaim::Verdict(_) | AgentClaim::NoVerdict { .. } => kind == ClaimKind::Verdict,
    }
}

/// The text as a file in memory, which a program that does not read it can't hold up.
fn input(text: &str) -> io::Result<File> {
    let mut file: File = rustix::fs::memfd_create("claim", rustix::fs::MemfdFlags::CLOEXEC)?.into();
    // One more than is read: that it is cut off is told there.
    file.write_all(text.as_bytes().get(..LONGEST_TEXT + 4).unwrap_or(text.as_bytes()))?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn read(script: &str, kind: ClaimKind, text: &str) -> AgentClaim {
        let reader = ClaimReader { command: ["sh", "-c", script].map(OsString::from).to_vec() };
        let task = TaskKey { protocol: "any".into(), id: "T0001".into() };
        let bounds = CommandBounds { time: Duration::from_secs(1), output: 1 << 20, memory: Some(256 << 20) };
        reader.read_within(AgentText { kind, task: &task, agent: "codex", text }, bounds).expect("run")
    }

    #[test]
    fn a_reader_that_comes_to_no_good_end_leaves_a_text_that_cannot_be_read() {
        let began = Instant::now();
        for (script, why) in [
            ("kill -ABRT $$", "signal: 6"),
            ("exit 3", "exit status: 3"),
            ("exec sleep 60", "took longer than 1s"),
            ("while :; do :; done", "took longer than 1s"),
            ("exec cat /dev/zero", "too much"),
            ("exec tail /dev/zero", "its reader"),
            ("echo {}", "makes no sense"),
            ("echo '{\"claim\":\"verdict\",\"ruling\":\"PASS\",\"findings\":[]}'", "makes no sense"),
        ] {
            let AgentClaim::Report(report) = read(script, ClaimKind::Report, "its words") else { panic!() };
            assert!(report.unread.as_ref().is_some_and(|told| told.contains(why)), "{script}: {report:?}");
            assert_eq!(report.words, "its words", "{script}");
        }
        let AgentClaim::NoVerdict { why } = read("exit 3", ClaimKind::Verdict, "verdict: PASS") else {
            panic!()
        };
        assert!(why.contains("exit status: 3"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn what_a_reader_answers_is_used_within_bounds() {
        let long = "x".repeat(100_000);
        let answer = format!("echo '{{\"claim\":\"report\",\"words\":\"{long}\"}}'");
        let AgentClaim::Report(report) = read(&answer, ClaimKind::Report, &"y".repeat(300_000)) else {
            panic!()
        };
        assert!(report.words.starts_with("xxx") && report.words.len() <= LONGEST_TEXT);
        let passes = "grep -q . && echo '{\"claim\":\"verdict\",\"ruling\":\"PASS\",\"findings\":[]}'";
        assert!(matches!(read(passes, ClaimKind::Verdict, "x"), AgentClaim::Verdict(_)));
    }
}
