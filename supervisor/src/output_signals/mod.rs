//! What an agent's output says to a reader that knows its words.
//!
//! Every program has its own words for what it used, that its quota is used up, or that no user is logged in. Which
//! words those are is data that comes with the agent's configuration ([`rules`]); here it is applied, line by line,
//! as the output comes. What is heard is a claim: it may end work and let an agent wait, and it lands nothing.

mod pattern;
mod question;
mod reset_time;
pub mod rules;
mod usage;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use agency_sandbox::monitor::{MonitorDecision, OutputStream};
use regex::bytes::{Regex, RegexSet};
use serde::{Deserialize, Serialize};

use crate::log_excerpt::on_one_line;
use question::QuestionDetector;
use rules::{OutputRules, SignalMeaning, SignalRule, SignalStream};
pub use usage::AgentUsage;
use usage::UsageMeter;

/// The most of a line that is kept. What follows is not heard.
const LONGEST_LINE: usize = 1 << 20;
/// The most of a line in which signals are looked for.
const LONGEST_SIGNAL_LINE: usize = 16 << 10;
/// The most of a sentence that is passed on.
const LONGEST_SAYING: usize = 400;

/// Something an agent said of itself that decides how its end is understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSignal {
    pub means: SignalMeaning,
    /// A sentence a person understands.
    pub says: String,
    /// When it says that it may go on: seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Who listens to one agent.
#[derive(Debug)]
pub struct OutputScanner {
    signals: Vec<(SignalRule, Regex)>,
    answered: Option<usize>,
    metered: Option<usize>,
    names_model: Option<usize>,
    /// All the patterns at once: the signals, and then the others.
    patterns: RegexSet,
    state: RefCell<ScannerState>,
}

#[derive(Debug)]
struct ScannerState {
    lines: [PartialLine; 2],
    asking: QuestionDetector,
    /// The model has answered: what is said of trying again is the agent's own business from here on.
    answered: bool,
    heard: Option<OutputSignal>,
    /// It is of no use to wait any longer.
    hopeless: bool,
    /// That was said.
    told: bool,
    meter: UsageMeter,
}

/// A line that is not at its end yet.
#[derive(Debug, Default)]
struct PartialLine {
    text: Vec<u8>,
}

impl PartialLine {
    fn push(&mut self, piece: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

impl OutputScanner {
    /// For an agent that is to be read like this; an error names the pattern that is none.
    pub fn new(reading: &OutputRules) -> Result<Self, String> {
        let named = |what: &str, pattern: &str| {
            pattern::one(pattern).map_err(|error| format!("{what}: {}", on_one_line(&error.to_string())))
        };
        let mut signals = Vec::new();
        for signal in &reading.signals {
            let pattern = named(&format!("signals.{}.pattern", signal.name), &signal.pattern)?;
            signals.push((signal.clone(), pattern));
        }
        let mut patterns: Vec<&str> = reading.signals.iter().map(|signal| signal.pattern.as_str()).collect();
        let answered = reading.answered.as_deref();
        answered.map(|pattern| named("answered", pattern)).transpose()?;
        let answered = answered.map(|pattern| {
            patterns.push(pattern);
            patterns.len() - 1
        });
        let metered = reading.usage.as_ref().and_then(|usage| usage.line.as_deref());
        let line = metered.map(|pattern| named("usage.line", pattern)).transpose()?;
        let metered = metered.map(|pattern| {
            patterns.push(pattern);
            patterns.len() - 1
        });
        let model = reading.usage.as_ref().and_then(|usage| usage.model.as_deref());
        let model_line = model.map(|pattern| named("usage.model", pattern)).transpose()?;
        let names_model = model.map(|pattern| {
            patterns.push(pattern);
            patterns.len() - 1
        });
        let patterns = pattern::all(&patterns).map_err(|error| on_one_line(&error.to_string()))?;
        let state = ScannerState {
            lines: Default::default(),
            asking: QuestionDetector::new(Instant::now()),
            answered: false,
            heard: None,
            hopeless: false,
            told: false,
            meter: UsageMeter::new(reading.usage.clone(), line, model_line),
        };
        Ok(Self { signals, answered, metered, names_model, patterns, state: RefCell::new(state) })
    }

    /// A piece of its output.
    pub fn hear(&self, from: OutputStream, piece: &[u8], now: Instant) {
        let mut state = self.state.borrow_mut();
        let which = usize::from(from == OutputStream::Errors);
        let mut rest = piece;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            state.lines[which].push(&rest[..end]);
            let line = std::mem::take(&mut state.lines[which].text);
            self.line(&mut state, from, &line);
            rest = &rest[end + 1..];
        }
        state.lines[which].push(rest);
        let ScannerState { lines, asking, answered, .. } = &mut *state;
        // An agent that was answered is at work, and quotes what it likes.
        let open = if *answered { &[][..] } else { &lines[which].text };
        asking.observe(open, now);
    }

    fn line(&self, state: &mut ScannerState, from: OutputStream, line: &[u8]) {
        let start = &line[..line.len().min(LONGEST_SIGNAL_LINE)];
        let found = self.patterns.matches(start);
        if !found.matched_any() {
            return;
        }
        let counts = |signal: &SignalRule| match signal.from {
            None => true,
            Some(SignalStream::Output) => from == OutputStream::Output,
            Some(SignalStream::Errors) => from == OutputStream::Errors,
        };
        let mut signs = self.signals.iter().enumerate();
        let sign = signs.find(|(index, (signal, _))| found.matched(*index) && counts(signal));
        if let Some((_, (signal, pattern))) = sign {
            let heard = understand(signal, pattern, start);
            state.hopeless |= signal.early && !state.answered;
            // What it gives as the reason for its end does not hide what is known to be behind it.
            if heard.means != SignalMeaning::Failed
                || state.heard.as_ref().is_none_or(|heard| heard.means == SignalMeaning::Failed)
            {
                state.heard = Some(heard);
            }
        } else if self.answered.is_some_and(|index| found.matched(index)) {
            // The problem that it reported before is over.
            state.answered = true;
            state.heard = None;
        }
        if self.names_model.is_some_and(|index| found.matched(index)) {
            state.meter.name_model(line);
        }
        if self.metered.is_some_and(|index| found.matched(index)) {
            state.meter.read(line);
        }
    }

    /// When it wants to be asked next.
    pub fn due(&self) -> Option<Instant> {
        let state = self.state.borrow();
        match (state.told, state.hopeless) {
            (true, _) => None,
            (false, true) => Some(Instant::now()),
            (false, false) => state.asking.due(),
        }
    }

    /// Whether the agent is to go on. That it is not is said once.
    pub fn attend(&self, now: Instant) -> MonitorDecision {
        let mut state = self.state.borrow_mut();
        if let Some(question) = state.asking.asks(now) {
            let says = format!(
                "it waits for an answer to `{}`, and no person is there",
                saying(question.as_bytes())
            );
            state.heard = Some(OutputSignal { means: SignalMeaning::Unfit, says, until: None });
            state.hopeless = true;
        }
        match state.hopeless && !state.told {
            true => {
                state.told = true;
                MonitorDecision::Stop
            }
            false => MonitorDecision::GoOn,
        }
    }

    /// What it came to, when nothing more will be heard. `left` is the file in which it may have said what it used.
    pub fn finish(self, left: Option<&[u8]>) -> (Option<OutputSignal>, Option<AgentUsage>) {
        {
            let mut state = self.state.borrow_mut();
            for (which, from) in [OutputStream::Output, OutputStream::Errors].into_iter().enumerate() {
                let line = std::mem::take(&mut state.lines[which].text);
                self.line(&mut state, from, &line);
            }
        }
        let state = self.state.into_inner();
        (state.heard, state.meter.finish(left))
    }
}

/// What a line means that a signal was found in.
fn understand(signal: &SignalRule, pattern: &Regex, line: &[u8]) -> OutputSignal {
    let groups = pattern.captures(line);
    let group =
        |name: &str| groups.as_ref().and_then(|groups| groups.name(name)).map(|found| found.as_bytes());
    let says = match &signal.says {
        Some(says) => says.clone(),
        None => saying(group("says").unwrap_or(line)),
    };
    let until = group("until").and_then(|text| reset_time::moment(&String::from_utf8_lossy(text)));
    let after = |wait: u64| {
        crate::clock::wall_seconds().saturating_add_unsigned(Duration::from_millis(wait).as_secs().max(1))
    };
    OutputSignal { means: signal.means, says, until: until.or_else(|| signal.wait_ms.map(after)) }
}

/// A sentence out of a line, which may be the inside of a text in JSON.
fn saying(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = match serde_json::from_str::<String>(&format!("\"{text}\"")) {
        Ok(inner) => inner,
        Err(_) => text.into_owned(),
    };
    on_one_line(&text).chars().take(LONGEST_SAYING).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(name: &str, pattern: &str, means: SignalMeaning) -> SignalRule {
        SignalRule {
            name: name.into(),
            pattern: pattern.into(),
            means,
            from: None,
            says: None,
            wait_ms: None,
            early: false,
        }
    }

    fn codex() -> OutputRules {
        let early = |signal| SignalRule { early: true, ..signal };
        OutputRules {
            signals: vec![
                signal(
                    "limit",
                    r#"^\{"type":"turn.failed".*usage limit.*try again at (?<until>[^."]+)"#,
                    SignalMeaning::Quota,
                ),
                early(signal(
                    "retry",
                    r#"^\{"type":"error","message":"(?<says>Reconnecting... 2[^"]*401[^"]*)"#,
                    SignalMeaning::Unfit,
                )),
                signal(
                    "end",
                    r#"^\{"type":"turn.failed","error":\{"message":"(?<says>(?:[^"\\]|\\.)*)"#,
                    SignalMeaning::Failed,
                ),
            ],
            answered: Some(r#""type":"agent_message""#.into()),
            ..OutputRules::default()
        }
    }

    fn heard(pieces: &[&str]) -> (OutputScanner, Instant) {
        let (ear, now) = (OutputScanner::new(&codex()).expect("patterns"), Instant::now());
        pieces.iter().for_each(|piece| ear.hear(OutputStream::Output, piece.as_bytes(), now));
        (ear, now)
    }

    #[test]
    fn a_sign_is_found_in_whatever_pieces_it_comes() {
        let line = "{\"type\":\"turn.failed\",\"error\":{\"message\":\"it broke: \\\"x\\\"\"}}\n";
        for size in [1, 7, 1000] {
            let pieces: Vec<&str> =
                line.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).expect("text")).collect();
            let (ear, _) = heard(&pieces);
            let found = ear.finish(None).0.expect("heard");
            assert_eq!(
                (found.means, found.says.as_str()),
                (SignalMeaning::Failed, "it broke: \"x\""),
                "{size}"
            );
        }
        let (ear, _) = heard(&[line.trim_end()]);
        assert!(ear.finish(None).0.is_some(), "the last line need not end");
    }

    #[test]
    fn the_inside_of_a_text_is_no_sign() {
        let quoted = serde_json::json!({"type": "item", "text": "{\"type\":\"turn.failed\",\"error\":{\"message\":\"x\"}}"});
        let (ear, _) = heard(&[&format!("{quoted}\n")]);
        assert_eq!(ear.finish(None).0, None);
    }

    #[test]
    fn trying_again_is_hopeless_only_before_the_first_answer() {
        let retry = "{\"type\":\"error\",\"message\":\"Reconnecting... 2/5 (401 Unauthorized)\"}\n";
        let (ear, now) = heard(&[retry]);
        assert!(ear.due().is_some_and(|due| due <= Instant::now()));
        assert_eq!(ear.attend(now), MonitorDecision::Stop);
        assert_eq!((ear.attend(now), ear.due()), (MonitorDecision::GoOn, None), "it is said once");
        assert_eq!(ear.finish(None).0.map(|heard| heard.means), Some(SignalMeaning::Unfit));

        let (ear, now) = heard(&["{\"type\":\"agent_message\"}\n", retry]);
        assert_eq!((ear.due(), ear.attend(now)), (None, MonitorDecision::GoOn));
        let (ear, _) = heard(&["{\"type\":\"agent_message\"}\n", retry, "{\"type\":\"agent_message\"}\n"]);
        assert_eq!(ear.finish(None).0, None, "it got over it");
    }

    #[test]
    fn what_is_known_is_not_hidden_by_the_words_of_the_end() {
        let limit =
            "{\"type\":\"turn.failed\",\"error\":{\"message\":\"usage limit, try again at 10:15 AM.\"}}\n";
        let (ear, _) = heard(&[limit, "{\"type\":\"turn.failed\",\"error\":{\"message\":\"over\"}}\n"]);
        let found = ear.finish(None).0.expect("heard");
        assert_eq!(found.means, SignalMeaning::Quota);
        assert!(found.until.is_some_and(|until| until > crate::clock::wall_seconds()), "{found:?}");
    }

    #[test]
    fn a_question_that_nobody_answers_is_the_end() {
        let (ear, now) = heard(&["Welcome\n", "Paste your API key: "]);
        let due = ear.due().expect("it is waited for");
        assert_eq!(ear.attend(now), MonitorDecision::GoOn);
        assert_eq!(ear.attend(due), MonitorDecision::Stop);
        let found = ear.finish(None).0.expect("heard");
        assert_eq!(found.means, SignalMeaning::Unfit);
        assert!(found.says.contains("Paste your API key:"), "{}", found.says);
    }

    #[test]
    fn a_flood_without_an_end_takes_a_bounded_amount_of_memory() {
        let (ear, now) = heard(&[]);
        for _ in 0..64 {
            ear.hear(OutputStream::Output, &[b'x'; 256 << 10], now);
        }
        assert!(ear.state.borrow().lines[0].text.capacity() <= 4 * LONGEST_LINE);
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        let reading = OutputRules {
            signals: vec![signal("quota", "(", SignalMeaning::Quota)],
            ..OutputRules::default()
        };
        assert!(OutputScanner::new(&reading).expect_err("refused").starts_with("signals.quota.pattern: "));
    }
}
