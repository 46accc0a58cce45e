//! Our commits: who made one, when, and to which task, attempt and proof it belongs.
//!
//! The same input gives the same commit, to the last bit, so repeating it after a crash adds no object.

pub use super::signature::Signature;

use super::error::Error;
use super::names::{Oid, TaskName};
use super::objects::ObjectKind;
use super::repository::LandingRepository;

/// Everything of a commit but its tree and its parent.
#[derive(Debug, Clone)]
pub struct CommitMetadata<'a> {
    pub author: &'a Signature,
    pub committer: &'a Signature,
    pub subject: &'a str,
    pub body: &'a str,
    pub task: &'a TaskName,
    pub epoch: u64,
    /// The id of the proof. It is allocated before the proof is made.
    pub verify: Option<&'a str>,
}

impl CommitMetadata<'_> {
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

pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim_end().to_owned()
}

pub(super) fn quoted(line: &str) -> String {
    let ours = line.trim_start().get(..7).is_some_and(|start| start.eq_ignore_ascii_case("agency-"));
    if ours { format!("> {line}") } else { line.to_owned() }
}

/// Makes a commit of a tree on its parent.
pub fn write(
    repository: &LandingRepository,
    tree: &Oid,
    parent: &Oid,
    statement: &CommitMetadata<'_>,
) -> Result<Oid, Error> {
    let CommitMetadata { author, committer, .. } = statement;
    repository.write_object(
        ObjectKind::Commit,
        text(tree, Some(parent), author, committer, &statement.message()).as_bytes(),
    )
}

/// Makes a commit of a tree on two others.
pub fn write_merge(
    repository: &LandingRepository,
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

    fn statement<'a>(
        task: &'a TaskName,
        who: &'a Signature,
        subject: &'a str,
        body: &'a str,
    ) -> CommitMetadata<'a> {
        CommitMetadata { author: who, committer: who, subject, body, task, epoch: 3, verify: Some("V1") }
    }

    #[test]
    fn trailers_are_the_last_paragraph() {
        let (task, who) =
            (TaskName::new("kodingx", "T0001").expect("a task"), Signature::new("A", "a@b", 1, 0));
        let message = statement(&task, &who, "Do it", "Because.\n\nReally.\n").message();
        assert_eq!(
            message,
            "Do it\n\nBecause.\n\nReally.\n\nAgency-Task: T0001\nAgency-Attempt: 3\nAgency-Verify: V1\n"
        );
    }

    #[test]
    fn an_agents_text_can_forge_no_trailer_and_no_header() {
        let (task, who) = (
            TaskName::new("kodingx", "T\nAgency-Task: X").expect("a task"),
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
        let (task, who) = (TaskName::new("kodingx", "T1").expect("a task"), Signature::new("", "", 0, 0));
        assert!(statement(&task, &who, " ", "").message().starts_with("T1\n\nAgency-Task: T1\n"));
    }
}
