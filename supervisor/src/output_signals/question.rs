//! Whether an agent waits for an answer: its last line has no end, reads like a question, and nothing follows.
//!
//! No user answers an unattended agent. Only a line without an end counts: programs that write whole lines are heard by
//! their signals, and may quote any question they like.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::bytes::Regex;

use super::pattern;

/// How long nothing follows.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most of a question that is looked at.
const LONGEST: usize = 400;

/// One character, of any number of bytes.
const ANY: &str = r"(?:[^\n\x80-\xff]|[\xc2-\xf4][\x80-\xbf]+)";

static QUESTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let secret = "password|passphrase|user ?name|api[ -]?key|access token";
    let code = "(?:verification|authori[sz]ation|security) code|code from";
    let wanted = format!("(?:{secret}|{code}){ANY}{{0,40}}[:>]");
    let choice = r"(?:\[y(?:es)?/n(?:o)?\]|\(y(?:es)?/n(?:o)?(?:/[^)]*)?\))[:?]?";
    let doubt = "continue|proceed|log ?in|sign ?in|trust|accept|overwrite|are you sure";
    let doubt = format!(r"\b(?:{doubt})\b{ANY}{{0,60}}\?");
    let key = format!("press (?:enter|return|any key){ANY}{{0,40}}");
    pattern::one(&format!(r"(?i)(?:{wanted}|{choice}|{doubt}|{key})$")).ok()
});

/// The end of what an agent said last.
#[derive(Debug)]
pub(super) struct QuestionDetector {
    question: Option<String>,
    since: Instant,
}

impl QuestionDetector {
    pub(super) fn new(now: Instant) -> Self {
        Self { question: None, since: now }
    }

    /// Something was said; this line has no end yet.
    pub(super) fn observe(&mut self, open: &[u8], now: Instant) {
        self.since = now;
        let tail = String::from_utf8_lossy(&open[open.len().saturating_sub(LONGEST)..]);
        let tail = tail.trim();
        let asks = QUESTION.as_ref().is_some_and(|question| question.is_match(tail.as_bytes()));
        self.question = asks.then(|| tail.to_owned());
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.question.as_ref().map(|_| self.since + PATIENCE)
    }

    /// What it waits for an answer to, if that is certain by now.
    pub(super) fn asks(&mut self, now: Instant) -> Option<String> {
        match self.due() {
            Some(due) if now >= due => self.question.take(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_after(line: &str) -> bool {
        let mut asking = QuestionDetector::new(Instant::now());
        asking.observe(line.as_bytes(), Instant::now());
        asking.due().is_some()
    }

    #[test]
    fn questions_are_told_from_what_only_has_no_end() {
        for question in [
            "Password: ",
            "Paste your API key here > ",
            "Do you trust the files in this folder? ",
            "Continue? [y/N] ",
            "Enter the code from your browser: ",
            "Press Enter to continue…",
            "Password:\u{a0}",
            "Proceed with 変更をすべて元に戻してから新しい枝に移します? ",
        ] {
            assert!(due_after(question), "{question}");
        }
        for other in [
            "",
            "Compiling agency v0.1.0",
            "50% [=====>    ]",
            "thinking...",
            "src/password.rs",
            "tests/test_login.py::test_token[a] ",
            "note: 120 tokens used (cached)",
            "Generating code…",
            "password in a line that goes on for longer than any question would, and then ends: ",
        ] {
            assert!(!due_after(other), "{other}");
        }
    }

    #[test]
    fn whoever_goes_on_did_not_wait() {
        let (mut asking, start) = (QuestionDetector::new(Instant::now()), Instant::now());
        asking.observe(b"Password: ", start);
        assert_eq!(asking.asks(start + PATIENCE / 2), None);
        asking.observe(b"Password: ****", start + PATIENCE / 2);
        assert_eq!(asking.asks(start + PATIENCE * 3), None);
        asking.observe(b"Password: ", start);
        assert_eq!(asking.asks(start + PATIENCE).as_deref(), Some("Password:"));
        assert_eq!(asking.due(), None, "it is found once");
    }
}
