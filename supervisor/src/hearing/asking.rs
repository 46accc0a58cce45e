//! Whether an agent waits for an answer: its last line has no end, reads like a question, and nothing follows.
//!
//! Nobody answers an unattended agent. Only a line without an end counts: programs that write whole lines are heard by
//! their signals, and may quote any question they like.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::bytes::Regex;

use super::pattern;

/// How long nothing follows.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most of a question that is looked at.
const LONGEST: usize = 400;

static QUESTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let wanted = r"(?:password|passphrase|user ?name|api[ -]?key|access token|(?:verification|authori[sz]ation|security) code|code from)[^\n]{0,40}[:>]";
    let choice = r"(?:\[y(?:es)?/n(?:o)?\]|\(y(?:es)?/n(?:o)?(?:/[^)]*)?\))[:?]?";
    let doubt = r"\b(?:continue|proceed|log ?in|sign ?in|trust|accept|overwrite|are you sure)\b[^\n]{0,60}\?";
    let key = r"press (?:enter|return|any key)[^\n]{0,40}";
    pattern::one(&format!(r"(?i)(?:{wanted}|{choice}|{doubt}|{key})\s*$")).ok()
});

/// The end of what an agent said last.
#[derive(Debug)]
pub(super) struct Asking {
    question: Option<String>,
    since: Instant,
}

impl Asking {
    pub(super) fn new(now: Instant) -> Self {
        Self { question: None, since: now }
    }

    /// Something was said; this line has no end yet.
    pub(super) fn sound(&mut self, open: &[u8], now: Instant) {
        self.since = now;
        let tail = &open[open.len().saturating_sub(LONGEST)..];
        let asks = QUESTION.as_ref().is_some_and(|question| question.is_match(tail));
        self.question = asks.then(|| String::from_utf8_lossy(tail).trim().to_owned());
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
        let mut asking = Asking::new(Instant::now());
        asking.sound(line.as_bytes(), Instant::now());
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
        ] {
            assert!(!due_after(other), "{other}");
        }
    }

    #[test]
    fn whoever_goes_on_did_not_wait() {
        let (mut asking, start) = (Asking::new(Instant::now()), Instant::now());
        asking.sound(b"Password: ", start);
        assert_eq!(asking.asks(start + PATIENCE / 2), None);
        asking.sound(b"Password: ****", start + PATIENCE / 2);
        assert_eq!(asking.asks(start + PATIENCE * 3), None);
        asking.sound(b"Password: ", start);
        assert_eq!(asking.asks(start + PATIENCE).as_deref(), Some("Password:"));
        assert_eq!(asking.due(), None, "it is found once");
    }
}
