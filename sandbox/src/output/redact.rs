//! Secrets taken out of a stream: the values that were passed to the agent, and everything that has the shape of a
//! well-known credential ([`tokens`]).
//!
//! One search looks for the values and for the beginnings of credentials at once; what it hits is then compared
//! or judged in full. Everything found becomes a span, spans that overlap become one, and a span is replaced by
//! one mark. The result depends on the bytes alone, never on the pieces they arrive in: a byte is let go only
//! when nothing that begins at or before it is undecided, and nothing else is held back.
//!
//! ```text
//!            out          scanned
//!   ──────────┼──────────────┼─────────────────┤
//!    let go,  │   let go     │  held back: the beginning of a value,
//!    context  │   at once    │  or a credential that is too short yet
//! ```

use std::cell::OnceCell;
use std::rc::Rc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

use super::tokens::{self, SHAPES, TokenMatch, TokenRun};
use crate::secret::{NamedSecret, SHORTEST_SECRET};

/// As much of a value as the search looks for; the rest is compared.
const NEEDLE: usize = 64;

/// How much of a value may be shown to a user who waits for a line to go on.
const HARMLESS: usize = 3;

/// What is looked for, in every stream of a run.
#[derive(Debug)]
pub(crate) struct RedactionPatterns {
    /// Longer ones first: they give a span its name.
    values: Vec<RedactedValue>,
    /// Made when there is output: most starts are measured without.
    search: OnceCell<RedactionSearch>,
}

struct RedactedValue {
    mark: Vec<u8>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for RedactedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.mark))
    }
}

#[derive(Debug)]
struct RedactionSearch {
    automaton: AhoCorasick,
    /// For each pattern, all patterns that it begins with, itself among them: they are hit with it.
    hit_with: Vec<Vec<usize>>,
}

impl RedactionPatterns {
    pub(crate) fn new(secrets: &[NamedSecret]) -> Self {
        let mut values: Vec<RedactedValue> = Vec::new();
        for secret in secrets {
            let mark = format!("[redacted: {}]", secret.name).into_bytes();
            values.extend(
                secret
                    .spellings()
                    .map(|bytes| RedactedValue { mark: mark.clone(), bytes: bytes.into_owned() }),
            );
        }
        values.sort_by_key(|value| std::cmp::Reverse(value.bytes.len()));
        Self { values, search: OnceCell::new() }
    }

    fn search(&self) -> &RedactionSearch {
        self.search.get_or_init(|| {
            let values = self.values.iter().map(|value| &value.bytes[..value.bytes.len().min(NEEDLE)]);
            let patterns: Vec<&[u8]> = values.chain(SHAPES.iter().map(|shape| shape.beginning)).collect();
            let begins = |pattern: &&[u8]| {
                (0..patterns.len()).filter(|other| pattern.starts_with(patterns[*other])).collect()
            };
            let hit_with = patterns.iter().map(begins).collect();
            let automaton = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&patterns)
                .expect("a few short patterns fit into any automaton");
            RedactionSearch { automaton, hit_with }
        })
    }
}

/// A part of the stream that is replaced.
#[derive(Debug)]
struct RedactedSpan {
    start: usize,
    end: usize,
    /// Which value it is; none for a credential.
    value: Option<usize>,
    marked: bool,
}

/// Takes secrets out of one stream.
#[derive(Debug)]
pub(crate) struct Redactor {
    needles: Rc<RedactionPatterns>,
    /// The end of the stream so far: some context, and what is held back.
    window: Vec<u8>,
    /// Before this, bytes of the window are let go.
    out: usize,
    /// Everything that begins before this is decided.
    scanned: usize,
    /// In their order, none of them overlapping.
    spans: Vec<RedactedSpan>,
    /// Credentials that may go on, one of each class, and where they end so far.
    runs: Vec<(TokenRun, usize)>,
    /// How many spans were replaced.
    count: u64,
}

impl Redactor {
    pub(crate) fn new(needles: Rc<RedactionPatterns>) -> Self {
        Self {
            needles,
            window: Vec::new(),
            out: 0,
            scanned: 0,
            spans: Vec::new(),
            runs: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(&[u8])) {
        let fresh = self.window.len();
        self.window.extend_from_slice(bytes);
        self.look(fresh, false);
        self.let_go(self.scanned, emit);
        self.forget();
    }

    /// Nothing more comes. A value that was cut off is taken out too, if at least as much of it is there as the
    /// shortest secret has, and more than half.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(&[u8])) {
        let end = self.window.len();
        self.look(end, true);
        let needles = Rc::clone(&self.needles);
        for (index, value) in needles.values.iter().enumerate() {
            let start = self.cut_off(&value.bytes, self.window.len().saturating_sub(value.bytes.len()));
            let there = end - start;
            if there >= SHORTEST_SECRET && there > value.bytes.len() / 2 {
                self.cover(RedactedSpan { start, end, value: Some(index), marked: false });
            }
        }
        self.let_go(end, emit);
        self.forget();
    }

    /// Whether [`Self::flush_partial`] would let something go.
    pub(crate) fn can_flush_partial(&self) -> bool {
        let end = self.window.len();
        let value = self.needles.values.iter().map(|value| end - self.cut_off(&value.bytes, self.scanned));
        self.out < end && end - self.scanned < SHORTEST_SECRET && value.max().unwrap_or(0) <= HARMLESS
    }

    /// Shows what is held back if it is so little that it tells nothing: a user is waiting for it. It is still
    /// remembered, so that a secret that begins with it is recognised.
    pub(crate) fn flush_partial(&mut self, emit: &mut dyn FnMut(&[u8])) {
        if self.can_flush_partial() {
            self.let_go(self.window.len(), emit);
        }
    }

    /// Decides as much as can be decided. The bytes from `fresh` on were not seen before.
    fn look(&mut self, fresh: usize, ended: bool) {
        for (run, end) in self.runs.iter_mut().filter(|(_, end)| *end == fresh) {
            *end += run.advance(&self.window[fresh..]);
            if let Some(last) = self.spans.last_mut().filter(|last| last.end >= fresh) {
                last.end = last.end.max(*end);
            }
        }
        let undecided = if ended { self.window.len() } else { self.undecided() };
        let needles = Rc::clone(&self.needles);
        while self.scanned < undecided {
            let search = needles.search();
            let input = Input::new(&self.window).range(self.scanned..);
            let hit = search.automaton.find(input).filter(|hit| hit.start() < undecided);
            let Some(hit) = hit else {
                self.scanned = undecided;
                return;
            };
            self.scanned = hit.start();
            if !self.judge(&search.hit_with[hit.pattern().as_usize()], ended) {
                return;
            }
            self.scanned += 1;
        }
    }

    /// The first place from which on the window may be the beginning of something that is looked for.
    fn undecided(&self) -> usize {
        let end = self.window.len();
        let values = self.needles.values.iter().map(|value| self.cut_off(&value.bytes, self.scanned));
        let shapes = SHAPES.iter().map(|shape| {
            let least = self.scanned.max((end + 1).saturating_sub(shape.beginning.len()));
            let mut starts = least..end;
            let begins = |start: &usize| {
                shape.beginning.starts_with(&self.window[*start..])
                    && shape.may_follow(&self.window[..*start])
            };
            starts.find(begins).unwrap_or(end)
        });
        values.chain(shapes).min().unwrap_or(end)
    }

    /// Where the beginning of a value starts with which the window ends, from `least` on; the end if none does.
    fn cut_off(&self, value: &[u8], least: usize) -> usize {
        let end = self.window.len();
        let least = least.max((end + 1).saturating_sub(value.len()));
        let mut starts = memchr::memchr_iter(value[0], &self.window[least..]).map(|at| least + at);
        starts.find(|start| value.starts_with(&self.window[*start..])).unwrap_or(end)
    }

    /// Looks at everything that may begin where the search stands; whether it could be decided.
    fn judge(&mut self, patterns: &[usize], ended: bool) -> bool {
        let (start, needles) = (self.scanned, Rc::clone(&self.needles));
        for &pattern in patterns {
            let rest = &self.window[start..];
            if let Some(value) = needles.values.get(pattern) {
                if rest.starts_with(&value.bytes) {
                    let end = start + value.bytes.len();
                    self.cover(RedactedSpan { start, end, value: Some(pattern), marked: false });
                }
                continue;
            }
            let shape = &SHAPES[pattern - needles.values.len()];
            if !shape.may_follow(&self.window[..start]) {
                continue;
            }
            match shape.judge(rest, ended) {
                TokenMatch::Nothing => {}
                TokenMatch::Unsure => return false,
                TokenMatch::Credential { start: within, body, run } => {
                    let end = self.end_of(run, start + body);
                    self.cover(RedactedSpan { start: start + within, end, value: None, marked: false });
                }
            }
        }
        true
    }

    /// Where a run that begins at `from` ends so far. One of the same class that goes beyond ends there too.
    fn end_of(&mut self, mut run: TokenRun, from: usize) -> usize {
        if let Some((_, end)) = self.runs.iter().find(|(other, end)| other.class == run.class && *end > from)
        {
            return *end;
        }
        let end = from + run.advance(&self.window[from..]);
        self.runs.retain(|(other, _)| other.class != run.class);
        self.runs.push((run, end));
        end
    }

    /// Adds a span. Those it overlaps become one with it, named by what begins first.
    fn cover(&mut self, mut span: RedactedSpan) {
        let first = self.spans.partition_point(|other| other.end <= span.start);
        let overlapping = self.spans[first..].iter().take_while(|other| other.start < span.end).count();
        for other in self.spans.drain(first..first + overlapping) {
            let named = other.start == span.start && other.value.is_some();
            if other.start < span.start || named {
                span.value = other.value;
            }
            span.start = span.start.min(other.start);
            span.end = span.end.max(other.end);
            span.marked |= other.marked;
        }
        self.spans.insert(first, span);
    }

    /// Lets everything before `end` go, with a mark in the place of each span.
    fn let_go(&mut self, end: usize, emit: &mut dyn FnMut(&[u8])) {
        for span in self.spans.iter_mut().take_while(|span| span.start < end) {
            if span.start > self.out {
                emit(&self.window[self.out..span.start]);
            }
            if !span.marked {
                span.marked = true;
                self.count += 1;
                emit(span.value.map_or(&b"[redacted]"[..], |value| &self.needles.values[value].mark));
            }
            self.out = self.out.max(span.end.min(end));
        }
        if self.out < end {
            emit(&self.window[self.out..end]);
            self.out = end;
        }
    }

    /// Forgets what can't matter any more.
    fn forget(&mut self) {
        let gone = self.scanned.min(self.out.saturating_sub(2 * tokens::CONTEXT));
        self.window.drain(..gone);
        self.out -= gone;
        self.scanned -= gone;
        self.spans.retain(|span| span.end >= gone + self.out);
        for span in &mut self.spans {
            (span.start, span.end) = (span.start.saturating_sub(gone), span.end - gone);
        }
        self.runs.retain(|(_, end)| *end >= gone + self.scanned);
        for (_, end) in &mut self.runs {
            *end -= gone;
        }
    }
}

#[cfg(test)]
mod tests;
