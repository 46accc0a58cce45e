//! A proof as JUnit XML, which every continuous integration shows: one test for each command.

#![allow(clippy::disallowed_methods, reason = "opens a log of ours")]

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::proof::{CommandOutcome, CommandProof, Proof};

/// How much of a failed command's log is shown: its end.
const TAIL: u64 = 16 << 10;

/// Renders the document. Logs are read from the paths in the proof; a missing log is left out.
pub fn render(proof: &Proof) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String can't fail.
    let _ = write(&mut out, proof);
    out
}

fn write(out: &mut String, proof: &Proof) -> std::fmt::Result {
    let count = |is: fn(&CommandProof) -> bool| proof.commands.iter().filter(|command| is(command)).count();
    let errors = count(|command| matches!(command.ended, CommandOutcome::CouldNotStart { .. }));
    let skipped = count(|command| command.ended == CommandOutcome::NotRun);
    let failures = count(|command| !command.passed()) - errors - skipped;
    let total: u64 = proof.commands.iter().map(|command| command.duration_ms).sum();
    let counts = format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{}\"",
        proof.commands.len(),
        seconds(total)
    );
    let name = attribute(&proof.profile);
    writeln!(out, "<testsuites {counts}>")?;
    writeln!(out, "  <testsuite name=\"{name}\" timestamp=\"{}\" {counts}>", proof.started)?;
    writeln!(out, "    <properties>")?;
    let commit = proof.commit.as_deref().map(|commit| ("commit", commit));
    let tree = proof.tree.as_deref().map(|tree| ("tree", tree));
    for (key, value) in [("profile_hash", proof.hash.as_str())].into_iter().chain(commit).chain(tree) {
        writeln!(out, "      <property name=\"{key}\" value=\"{}\"/>", attribute(value))?;
    }
    writeln!(out, "    </properties>")?;
    for command in &proof.commands {
        let (cmd, time) = (attribute(&command.cmd), seconds(command.duration_ms));
        write!(out, "    <testcase classname=\"{name}\" name=\"{cmd}\" time=\"{time}\"")?;
        let message = attribute(&command.ended.to_string());
        let element = match command.ended {
            _ if command.passed() => {
                writeln!(out, "/>")?;
                continue;
            }
            CommandOutcome::NotRun => {
                writeln!(out, ">\n      <skipped message=\"{message}\"/>\n    </testcase>")?;
                continue;
            }
            CommandOutcome::CouldNotStart { .. } => "error",
            CommandOutcome::Exited { .. }
            | CommandOutcome::TimedOut
            | CommandOutcome::OutOfMemory
            | CommandOutcome::Killed { .. } => "failure",
        };
        let log = command.log.as_deref().and_then(|log| tail(log).ok()).unwrap_or_default();
        writeln!(
            out,
            ">\n      <{element} message=\"{message}\">{}</{element}>\n    </testcase>",
            text(&log)
        )?;
    }
    if !proof.notes.is_empty() {
        writeln!(out, "    <system-out>{}</system-out>", text(&proof.notes.join("\n")))?;
    }
    writeln!(out, "  </testsuite>\n</testsuites>")
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// The end of a log, from the beginning of a line on where there is one.
fn tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    if length <= TAIL {
        return Ok(text.into_owned());
    }
    let whole = text.split_once('\n').map_or(&*text, |(_, whole)| whole);
    Ok(format!("[… the beginning is in {}]\n{whole}", log.display()))
}

/// Text for an attribute: line ends would become spaces there, so they are written as references.
fn attribute(value: &str) -> String {
    text(value).replace('\n', "&#10;").replace('\t', "&#9;")
}

/// Text for an element. What XML has no way to write, not even as a reference, is shown as U+FFFD.
fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' => out.push(character),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_forbids_is_replaced_and_the_rest_is_kept() {
        assert_eq!(
            text("a<b>&\"c\"\n\x1b[0m\0ü\u{ffff}"),
            "a&lt;b&gt;&amp;&quot;c&quot;\n\u{fffd}[0m\u{fffd}ü\u{fffd}"
        );
        assert_eq!(attribute("a\tb\r\n"), "a&#9;b&#13;&#10;");
    }
}
