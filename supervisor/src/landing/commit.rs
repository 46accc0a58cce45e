//! What a commit of ours says: who made it, when, and which task, attempt and proof it belongs to.
//!
//! The same input gives the same commit, to the last bit, so making it again after a crash makes nothing new.

use std::fmt;
use std::process::Command;

use super::error::Error;
use super::names::{Oid, Task};
use super::objects::ObjectKind;
use super::repository::Repository;

/// A name, an address and a moment, none of which can break out of a commit's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    name: String,
    email: String,
    /// Since 1970.
    seconds: i64,
    /// East of Greenwich.
    minutes: i32,
}

impl Signature {
    /// Characters that a header can't hold are left out.
    pub fn new(name: &str, email: &str, seconds: i64, minutes_east: i32) -> Self {
        let plain = |text: &str| {
            let kept: String = text.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
            kept.trim_matches(|c: char| c.is_whitespace() || ".,:;\"\\'".contains(c)).to_owned()
        };
        let (name, email) = (plain(name), plain(email));
        Self {
            name: if name.is_empty() { "agency".to_owned() } else { name },
            email: if email.is_empty() { "agency@localhost".to_owned() } else { email },
            seconds: seconds.max(0),
            minutes: minutes_east.clamp(-14 * 60, 14 * 60),
        }
    }

    fn moment(&self) -> String {
        let (sign, minutes) = (if self.minutes < 0 { '-' } else { '+' }, self.minutes.abs());
        format!("{} {sign}{:02}{:02}", self.seconds, minutes / 60, minutes % 60)
    }

    pub(super) fn as_committer(&self, command: &mut Command) {
        command.env("GIT_COMMITTER_NAME", &self.name).env("GIT_COMMITTER_EMAIL", &self.email);
        command.env("GIT_COMMITTER_DATE", format!("@{}", self.moment()));
    }
}

/// As a header has it.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}> {}", self.name, self.email, self.moment())
    }
}

/// Everything of a commit but its tree and its parent.
#[derive(Debug, Clone)]
pub struct Statement<'a> {
    pub author: &'a Signature,
    pub committer: &'a Signature,
    pub subject: &'a str,
    pub body: &'a str,
    pub task: &'a Task,
    pub epoch: u64,
    /// The id of the proof, given out before it is made.
    pub verify: Option<&'a str>,
}

impl Statement<'_> {
    /// The text of the commit, with the trailers as its last paragraph. A line of an agent's text that looks
    /// like one of them is quoted.
    pub fn message(&self) -> String {
        let subject = one_line(self.subject);
        let mut message = if subject.is_empty() { one_line(self.task.id()) } else { quoted(&subject) };
        let body: Vec<String> = self.body.lines().map(|line| quoted(one_line(line).trim_end())).collect();
        let body = body.join("\n");
        if !body.trim().is_empty() {
            message.push_str("\n\n");
            message.push_str(body.trim_matches('\n'));
        }
        message.push_str(&format!(
            "\n\nAgency-Task: {}\nAgency-Attempt: {}\n",
            one_line(self.task.id()),
            self.epoch
        ));
        if let Some(verify) = self.verify {
            message.push_str(&format!("Agency-Verify: {}\n", one_line(verify)));
        }
        message
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim_end().to_owned()
}

fn quoted(line: &str) -> String {
    let ours = line.trim_start().get(..7).is_some_and(|start| start.eq_ignore_ascii_case("agency-"));
    if ours { format!("> {line}") } else { line.to_owned() }
}

/// Makes a commit of a tree on its parent.
pub fn write(
    repository: &Repository,
    tree: &Oid,
    parent: &Oid,
    statement: &Statement<'_>,
) -> Result<Oid, Error> {
    let Statement { author, committer, .. } = statement;
    repository.write_object(
        ObjectKind::Commit,
        text(tree, Some(parent), author, committer, &statement.message()).as_bytes(),
    )
}

/// Makes a commit of a tree on two others.
pub fn write_merge(
    repository: &Repository,
    tree: &Oid,
    [ours, theirs]: [&Oid; 2],
    who: &Signature,
    message: &str,
) -> Result<Oid, Error> {
    let text = format!(
        "tree {tree}\nparent {ours}\nparent {theirs}\nauthor {who}\ncommitter {who}\n\n{}\n",
        one_line(message)
    );
    repository.write_object(ObjectKind::Commit, text.as_bytes())
}

/// A commit, as git keeps it.
pub(super) fn text(
    tree: &Oid,
    parent: Option<&Oid>,
    author: &Signature,
    committer: &Signature,
    message: &str,
) -> String {
    let parent = parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
    format!("tree {tree}\n{parent}author {author}\ncommitter {committer}\n\n{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement<'a>(task: &'a Task, who: &'a Signature, subject: &'a str, body: &'a str) -> Statement<'a> {
        Statement { author: who, committer: who, subject, body, task, epoch: 3, verify: Some("V1") }
    }

    #[test]
    fn trailers_are_the_last_paragraph() {
        let (task, who) = (Task::new("kodingx", "T0001").expect("a task"), Signature::new("A", "a@b", 1, 0));
        let message = statement(&task, &who, "Do it", "Because.\n\nReally.\n").message();
        assert_eq!(
            message,
            "Do it\n\nBecause.\n\nReally.\n\nAgency-Task: T0001\nAgency-Attempt: 3\nAgency-Verify: V1\n"
        );
    }

    #[test]
    fn an_agents_text_can_forge_no_trailer_and_no_header() {
        let (task, who) = (
            Task::new("kodingx", "T\nAgency-Task: X").expect("a task"),
            Signature::new("A\n<x", "", -5, -90),
        );
        let message = statement(&task, &who, "agency-Verify: forged\r\nx", "AGENCY-TASK: other\n\u{1b}[2J\0");
        let message = message.message();
        let forged = message.lines().filter(|line| line.to_lowercase().starts_with("agency-")).count();
        assert_eq!(forged, 3, "{message}");
        assert!(!message.contains(['\u{1b}', '\0', '\r']));
        assert_eq!(who.to_string(), "Ax <agency@localhost> 0 -0130");
    }

    #[test]
    fn no_subject_is_the_tasks_name() {
        let (task, who) = (Task::new("kodingx", "T1").expect("a task"), Signature::new("", "", 0, 0));
        assert!(statement(&task, &who, " ", "").message().starts_with("T1\n\nAgency-Task: T1\n"));
    }
}
