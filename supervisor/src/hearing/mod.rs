//! What an agent's output says to whoever knows how to read it.
//!
//! Every program has its own words for what it used, that its quota is used up, or that nobody is logged in. Which
//! words those are is data that comes with the agent's configuration ([`reading`]); here it is applied, line by line,
//! as the output comes. What is heard is a claim: it may end work and let an agent wait, and it lands nothing.

mod asking;
mod pattern;
pub mod reading;
mod reset;
mod usage;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use agency_sandbox::supervise::{Source, Wish};
use regex::bytes::{Regex, RegexSet};
use serde::{Deserialize, Serialize};

use crate::errand::outcome::Usage;
use crate::said::on_one_line;
use asking::Asking;
use reading::{Means, Reading, Signal, Stream};
use usage::Meter;

/// The most of a line that is kept. What follows is not heard.
const LONGEST_LINE: usize = 1 << 20;
/// The most of a line in which signals are looked for.
const LONGEST_SIGN: usize = 16 << 10;
/// The most of a sentence that is passed on.
const LONGEST_SAYING: usize = 400;

/// Something an agent said of itself that decides how its end is understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    pub means: Means,
    /// A sentence a person understands.
    pub says: String,
    /// When it says that it may go on: seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Who listens to one agent.
#[derive(Debug)]
pub struct Ear {
    signals: Vec<(Signal, Regex)>,
    answered: Option<usize>,
    metered: Option<usize>,
    /// All the patterns at once: the signals, and then the others.
    patterns: RegexSet,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    lines: [Line; 2],
    asking: Asking,
    /// The model has answered: what is said of trying again is the agent's own business from here on.
    answered: bool,
    heard: Option<Heard>,
    /// It is of no use to wait any longer.
    hopeless: bool,
    /// That was said.
    told: bool,
    meter: Meter,
}

/// A line that is not at its end yet.
#[derive(Debug, Default)]
struct Line {
    text: Vec<u8>,
}

impl Line {
    fn push(&mut self, piece: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

impl Ear {
    /// For an agent that is to be read like this; an error names the pattern that is none.
    pub fn new(reading: &Reading) -> Result<Self, String> {
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
        let patterns = pattern::all(&patterns).map_err(|error| on_one_line(&error.to_string()))?;
        let state = State {
            lines: Default::default(),
            asking: Asking::new(Instant::now()),
            answered: false,
            heard: None,
            hopeless: false,
            told: false,
            meter: Meter::new(reading.usage.clone(), line),
        };
        Ok(Self { signals, answered, metered, patterns, state: RefCell::new(state) })
    }

    /// A piece of its output.
    pub fn hear(&self, from: Source, piece: &[u8], now: Instant) {
        let mut state = self.state.borrow_mut();
        let which = usize::from(from == Source::Errors);
        let mut rest = piece;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            state.lines[which].push(&rest[..end]);
            let line = std::mem::take(&mut state.lines[which].text);
            self.line(&mut state, from, &line);
            rest = &rest[end + 1..];
        }
        state.lines[which].push(rest);
        let State { lines, asking, answered, .. } = &mut *state;
        // Whoever has been answered is at work, and quotes what it likes.
        let open = if *answered { &[][..] } else { &lines[which].text };
        asking.sound(open, now);
    }

    fn line(&self, state: &mut State, from: Source, line: &[u8]) {
        let start = &line[..line.len().min(LONGEST_SIGN)];
        let found = self.patterns.matches(start);
        if !found.matched_any() {
            return;
        }
        let counts = |signal: &Signal| match signal.from {
            None => true,
            Some(Stream::Output) => from == Source::Output,
            Some(Stream::Errors) => from == Source::Errors,
        };
        let mut signs = self.signals.iter().enumerate();
        let sign = signs.find(|(index, (signal, _))| found.matched(*index) && counts(signal));
        if let Some((_, (signal, pattern))) = sign {
            let heard = understand(signal, pattern, start);
            state.hopeless |= signal.early && !state.answered;
            // What it gives as the reason for its end does not hide what is known to be behind it.
            if heard.means != Means::Failed
                || state.heard.as_ref().is_none_or(|heard| heard.means == Means::Failed)
            {
                state.heard = Some(heard);
            }
        } else if self.answered.is_some_and(|index| found.matched(index)) {
            // Whatever was in its way is not any more.
            state.answered = true;
            state.heard = None;
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
    pub fn attend(&self, now: Instant) -> Wish {
        let mut state = self.state.borrow_mut();
        if let Some(question) = state.asking.asks(now) {
            let says =
                format!("it waits for an answer to `{}`, and nobody is there", saying(question.as_bytes()));
            state.heard = Some(Heard { means: Means::Unfit, says, until: None });
            state.hopeless = true;
        }
        match state.hopeless && !state.told {
            true => {
                state.told = true;
                Wish::Stop
            }
            false => Wish::GoOn,
        }
    }

    /// What it came to, when nothing more will be heard. `left` is the file in which it may have said what it used.
    pub fn finish(self, left: Option<&[u8]>) -> (Option<Heard>, Option<Usage>) {
        {
            let mut state = self.state.borrow_mut();
            for (which, from) in [Source::Output, Source::Errors].into_iter().enumerate() {
                let line = std::mem::take(&mut state.lines[which].text);
                self.line(&mut state, from, &line);
            }
        }
        let state = self.state.into_inner();
        (state.heard, state.meter.finish(left))
    }
}

/// What a line means that a signal was found in.
fn understand(signal: &Signal, pattern: &Regex, line: &[u8]) -> Heard {
    let groups = pattern.captures(line);
    let group =
        |name: &str| groups.as_ref().and_then(|groups| groups.name(name)).map(|found| found.as_bytes());
    let says = match &signal.says {
        Some(says) => says.clone(),
        None => saying(group("says").unwrap_or(line)),
    };
    let until = group("until").and_then(|text| reset::moment(&String::from_utf8_lossy(text)));
    let after = |wait: u64| {
        crate::clock::wall().saturating_add_unsigned(Duration::from_millis(wait).as_secs().max(1))
    };
    Heard { means: signal.means, says, until: until.or_else(|| signal.wait_ms.map(after)) }
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

    fn signal(name: &str, pattern: &str, means: Means) -> Signal {
        Signal {
            name: name.into(),
            pattern: pattern.into(),
            means,
            from: None,
            says: None,
            wait_ms: None,
            early: false,
        }
    }

    fn codex() -> Reading {
        let early = |signal| Signal { early: true, ..signal };
        Reading {
            signals: vec![
                signal(
                    "limit",
                    r#"^\{"type":"turn.failed".*usage limit.*try again at (?<until>[^."]+)"#,
                    Means::Quota,
                ),
                early(signal(
                    "retry",
                    r#"^\{"type":"error","message":"(?<says>Reconnecting... 2[^"]*401[^"]*)"#,
                    Means::Unfit,
                )),
                signal(
                    "end",
                    r#"^\{"type":"turn.failed","error":\{"message":"(?<says>(?:[^"\\]|\\.)*)"#,
                    Means::Failed,
                ),
            ],
            answered: Some(r#""type":"agent_message""#.into()),
            usage: None,
        }
    }

    fn heard(pieces: &[&str]) -> (Ear, Instant) {
        let (ear, now) = (Ear::new(&codex()).expect("patterns"), Instant::now());
        pieces.iter().for_each(|piece| ear.hear(Source::Output, piece.as_bytes(), now));
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
            assert_eq!((found.means, found.says.as_str()), (Means::Failed, "it broke: \"x\""), "{size}");
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
        assert_eq!(ear.attend(now), Wish::Stop);
        assert_eq!((ear.attend(now), ear.due()), (Wish::GoOn, None), "it is said once");
        assert_eq!(ear.finish(None).0.map(|heard| heard.means), Some(Means::Unfit));

        let (ear, now) = heard(&["{\"type\":\"agent_message\"}\n", retry]);
        assert_eq!((ear.due(), ear.attend(now)), (None, Wish::GoOn));
        let (ear, _) = heard(&["{\"type\":\"agent_message\"}\n", retry, "{\"type\":\"agent_message\"}\n"]);
        assert_eq!(ear.finish(None).0, None, "it got over it");
    }

    #[test]
    fn what_is_known_is_not_hidden_by_the_words_of_the_end() {
        let limit =
            "{\"type\":\"turn.failed\",\"error\":{\"message\":\"usage limit, try again at 10:15 AM.\"}}\n";
        let (ear, _) = heard(&[limit, "{\"type\":\"turn.failed\",\"error\":{\"message\":\"over\"}}\n"]);
        let found = ear.finish(None).0.expect("heard");
        assert_eq!(found.means, Means::Quota);
        assert!(found.until.is_some_and(|until| until > crate::clock::wall()), "{found:?}");
    }

    #[test]
    fn a_question_that_nobody_answers_is_the_end() {
        let (ear, now) = heard(&["Welcome\n", "Paste your API key: "]);
        let due = ear.due().expect("it is waited for");
        assert_eq!(ear.attend(now), Wish::GoOn);
        assert_eq!(ear.attend(due), Wish::Stop);
        let found = ear.finish(None).0.expect("heard");
        assert_eq!(found.means, Means::Unfit);
        assert!(found.says.contains("Paste your API key:"), "{}", found.says);
    }

    #[test]
    fn a_flood_without_an_end_takes_a_bounded_amount_of_memory() {
        let (ear, now) = heard(&[]);
        for _ in 0..64 {
            ear.hear(Source::Output, &[b'x'; 256 << 10], now);
        }
        assert!(ear.state.borrow().lines[0].text.capacity() <= 4 * LONGEST_LINE);
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        let reading = Reading { signals: vec![signal("quota", "(", Means::Quota)], ..Reading::default() };
        assert!(Ear::new(&reading).expect_err("refused").starts_with("signals.quota.pattern: "));
    }
}
