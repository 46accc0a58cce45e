//! What an agent wrote, as a small value of ours.
//!
//! An agent's text is parsed once, by [`read`], in a process that may fail: it has a bound on time and memory, and
//! nothing depends on it. Everybody else gets a [`Claim`], whose strings and lists have bounds, and never the text.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::board::Verdict;
use crate::detect::Protocol;
use crate::names::{AgentName, TaskId};

/// Bytes that are read of an agent's text.
pub const LONGEST_READ: u64 = 256 << 10;
/// Bytes of an agent's text that are parsed; the rest is cut off.
pub const LONGEST_TEXT: usize = 64 << 10;
/// Bytes of a header that has aliases.
const LONGEST_WITH_ALIASES: usize = 2 << 10;
/// Bytes of a sentence: why an agent is blocked, or why its text can't be understood.
const LONGEST_SENTENCE: usize = 2_000;
/// Bytes of one entry of a list, and of a name.
const LONGEST_ENTRY: usize = 4 << 10;
/// Entries of one list, and bytes of all of them.
const MOST_ENTRIES: usize = 1_000;
const LONGEST_LIST: usize = 64 << 10;

/// What an agent wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum Claim {
    /// A builder's report.
    Report(Box<ReportClaim>),
    /// An auditor's verdict.
    Verdict(Verdict),
    /// An auditor's text without a verdict in it.
    NoVerdict { why: String },
}

/// What a builder says of its work. Nothing of it is believed that can be seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportClaim {
    /// The task and the agent that it names.
    pub task: Option<String>,
    pub agent: Option<String>,
    /// Why the agent can't go on, if it says that it can't.
    pub blocked: Option<String>,
    /// Its work in one line.
    pub summary: Option<String>,
    /// The files that it says it changed or made.
    pub files: Vec<ClaimedFile>,
    pub commands: Vec<String>,
    /// Whether it says that its checks passed.
    pub passed: bool,
    pub risks: Vec<String>,
    /// Its own words: everything below the header, or everything where no header can be read.
    pub words: String,
    /// Why the header can't be understood.
    pub unread: Option<String>,
    /// How many entries of its lists were left out, because there were too many of them.
    pub left_out: u64,
}

/// A file that an agent names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedFile {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// What an agent's text is meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    Report,
    Verdict,
}

impl ClaimKind {
    pub const ALL: [Self; 2] = [Self::Report, Self::Verdict];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Verdict => "verdict",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Reads what an agent wrote, as its protocol has it.
pub fn read(protocol: Protocol, kind: ClaimKind, task: &TaskId, agent: &AgentName, text: &str) -> Claim {
    let text = &cut(text.to_owned(), LONGEST_TEXT);
    if grows(header(text)) {
        return Claim::unread(kind, text, "its header repeats parts of itself by aliases");
    }
    let claim = match (kind, protocol) {
        // No protocol has a format of its own for it.
        (ClaimKind::Verdict, _) => match crate::verdict::read(task, text) {
            Ok(verdict) => Claim::Verdict(verdict),
            Err(why) => Claim::NoVerdict { why },
        },
        (ClaimKind::Report, Protocol::Kodingx) => {
            Claim::Report(crate::kodingx::read_report(text, agent).into())
        }
        (ClaimKind::Report, Protocol::Codifica) => Claim::Report(crate::codifica::read_report(text).into()),
        (ClaimKind::Report, other) => Claim::unread(kind, text, &format!("no report is read for `{other}`")),
    };
    claim.bounded()
}

impl Claim {
    /// A text that could not be read; a builder's words are kept as they are.
    pub fn unread(kind: ClaimKind, text: &str, why: &str) -> Self {
        let claim = match kind {
            ClaimKind::Report => Self::Report(Box::new(ReportClaim {
                words: cut(text.to_owned(), LONGEST_TEXT),
                unread: Some(why.to_owned()),
                ..ReportClaim::default()
            })),
            ClaimKind::Verdict => Self::NoVerdict { why: why.to_owned() },
        };
        claim.bounded()
    }

    /// The claim with everything cut off that is longer than it may be. What is within the bounds stays as it is.
    pub fn bounded(self) -> Self {
        match self {
            Self::Report(report) => Self::Report(Box::new(report.bounded())),
            Self::Verdict(verdict) => Self::Verdict(verdict.bounded()),
            Self::NoVerdict { why } => Self::NoVerdict { why: cut(why, LONGEST_SENTENCE) },
        }
    }
}

impl ReportClaim {
    fn bounded(mut self) -> Self {
        for name in [&mut self.task, &mut self.agent] {
            *name = name.take().map(|name| cut(name, LONGEST_ENTRY));
        }
        for sentence in [&mut self.blocked, &mut self.summary, &mut self.unread] {
            *sentence = sentence.take().map(|sentence| cut(sentence, LONGEST_SENTENCE));
        }
        for list in [&mut self.commands, &mut self.risks] {
            self.left_out = self.left_out.saturating_add(shorten(list, |entry| {
                *entry = cut(std::mem::take(entry), LONGEST_ENTRY);
                entry.len()
            }));
        }
        self.left_out = self.left_out.saturating_add(shorten(&mut self.files, |file| {
            file.path = cut(std::mem::take(&mut file.path), LONGEST_ENTRY);
            file.kind = file.kind.take().map(|kind| cut(kind, LONGEST_ENTRY));
            file.path.len() + file.kind.as_ref().map_or(0, String::len)
        }));
        self.words = cut(self.words, LONGEST_TEXT);
        self
    }
}

/// The lines of a text up to the end of its header.
fn header(text: &str) -> &str {
    let mut rules = 0;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        rules += usize::from(line.trim_end() == "---");
        if rules == 2 {
            break;
        }
    }
    &text[..end]
}

/// Whether a header may become much larger when it is read: an anchor in it (`&a`) has an alias (`*a`), and it is longer
/// than the short text for which the parser's own bound, a hundred times its size, is enough. 60 KB took 40 seconds and
/// 1.6 GiB.
fn grows(header: &str) -> bool {
    // The beginnings of names: whatever else may stand in one, it stands in both.
    let ends_name = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
    let names = |sign: char| -> BTreeSet<&str> {
        header.split(sign).skip(1).filter_map(|rest| rest.split(ends_name).next()).collect()
    };
    header.len() > LONGEST_WITH_ALIASES && names('&').intersection(&names('*')).any(|name| !name.is_empty())
}

/// Keeps the first entries of a list, each made as long as it may be. Says how many are left out.
pub(crate) fn shorten<T>(list: &mut Vec<T>, mut bound: impl FnMut(&mut T) -> usize) -> u64 {
    let (mut room, mut kept) = (LONGEST_LIST, 0);
    for entry in list.iter_mut().take(MOST_ENTRIES) {
        let Some(left) = room.checked_sub(bound(entry)) else { break };
        (room, kept) = (left, kept + 1);
    }
    let left_out = list.len() - kept;
    list.truncate(kept);
    left_out as u64
}

/// The text, or its beginning with a sign that there was more.
pub(crate) fn cut(text: String, longest: usize) -> String {
    const MORE: &str = " …";
    match text.len() > longest {
        true => format!("{}{MORE}", start_of(&text, longest.saturating_sub(MORE.len()))),
        false => text,
    }
}

/// The first bytes of a text, up to the end of a character.
fn start_of(text: &str, longest: usize) -> &str {
    match text.len() > longest {
        true => &text[..text.floor_char_boundary(longest)],
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn task() -> TaskId {
        TaskId::parse("T0001").expect("an id")
    }

    fn of(protocol: Protocol, kind: ClaimKind, text: &str) -> Claim {
        read(protocol, kind, &task(), &AgentName::parse("codex").expect("a name"), text)
    }

    const BOTH: [Protocol; 2] = [Protocol::Kodingx, Protocol::Codifica];

    fn report(protocol: Protocol, text: &str) -> ReportClaim {
        match of(protocol, ClaimKind::Report, text) {
            Claim::Report(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    /// The largest a claim can be, with what JSON adds to it.
    const LARGEST: usize = 8 * (LONGEST_TEXT + 3 * LONGEST_LIST);

    #[track_caller]
    fn assert_small(claim: &Claim) {
        let written = serde_json::to_string(claim).expect("written");
        assert!(written.len() < LARGEST, "{} bytes", written.len());
        assert_eq!(&serde_json::from_str::<Claim>(&written).expect("read"), claim);
        assert_eq!(&claim.clone().bounded(), claim, "what is bounded stays as it is");
    }

    fn whole(risks: &str) -> String {
        format!(
            "---\ntask_id: T0001\nagent: codex\nstatus: READY_FOR_REVIEW\nstarted_at: 2026-01-31T16:45:00Z\n\
             finished_at: 2026-01-31T16:45:00Z\nchanges: {{files_modified: []}}\ncommands_run: []\n\
             verification: {{dod_passed: true}}\nrisks: {risks}\nsummary: s\nartifacts: {risks}\n---\nDid it.\n"
        )
    }

    #[test]
    fn a_report_has_bounds_whatever_its_shape() {
        let many = format!("[{}]", "a, ".repeat(8_000));
        let long = format!("[\"{}\"]", "x".repeat(25_000));
        let deep = "[".repeat(30_000);
        let laughs: String = (1..=9)
            .map(|n| format!("\n  - &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", ")))
            .collect();
        for protocol in BOTH {
            for risks in [&many, &long, &deep, &laughs] {
                assert_small(&of(protocol, ClaimKind::Report, &whole(risks)));
                assert_small(&of(protocol, ClaimKind::Verdict, &whole(risks)));
            }
            assert_small(&of(protocol, ClaimKind::Report, &"\u{1}".repeat(300_000)));
            assert_small(&of(protocol, ClaimKind::Report, &"\u{1F600}".repeat(300_000)));
        }
        let read = report(Protocol::Kodingx, &whole(&many));
        assert_eq!(read.risks.len(), MOST_ENTRIES, "{:?}", read.unread);
        assert_eq!(read.left_out, 7_000);
        assert_eq!(report(Protocol::Kodingx, &whole(&long)).risks[0].len(), LONGEST_ENTRY);
    }

    /// Aliases are read where they are few.
    #[test]
    fn no_report_grows_when_it_is_read() {
        let grown =
            |many: usize| whole(&format!("\n  - &a [{}]\n  - [{}]", "x, ".repeat(many), "*a, ".repeat(many)));
        let began = std::time::Instant::now();
        for protocol in BOTH {
            for many in [100, 200, 1_000, 4_000] {
                assert_small(&of(protocol, ClaimKind::Report, &grown(many)));
                assert_small(&of(protocol, ClaimKind::Verdict, &grown(many)));
            }
        }
        // One of them would take longer, if it grew.
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
        let why = report(Protocol::Kodingx, &grown(4_000)).unread;
        assert_eq!(why.as_deref(), Some("its header repeats parts of itself by aliases"));
        let read = report(Protocol::Kodingx, &whole("[&a one, *a]"));
        assert_eq!((read.risks, read.unread), (vec!["one".to_owned(); 2], None));
        let keys = whole(&format!("\n  - &a [{}]\n  - {{*a: 1}}", "x, ".repeat(1_000)));
        assert!(report(Protocol::Kodingx, &keys).unread.is_some(), "an alias as a key");
        let indented = format!("---\n ---\n{}", &keys[4..]);
        assert!(report(Protocol::Kodingx, &indented).unread.is_some(), "a rule begins its line");
        let globs = whole(&format!("[{}\"src/*.rs & &more, *.ts\"]", "\"a file\", ".repeat(400)));
        assert_eq!(report(Protocol::Kodingx, &globs).unread, None, "no alias");
        let words = format!("{}\nA & b, *d &d {}", whole("[]"), "word ".repeat(2_000));
        assert_eq!(report(Protocol::Kodingx, &words).unread, None, "words are not read");
    }

    #[test]
    fn what_is_within_the_bounds_is_told_whole() {
        let read = report(Protocol::Kodingx, &whole("[slow]"));
        assert_eq!((read.risks, read.passed, read.left_out), (vec!["slow".to_owned()], true, 0));
        assert_eq!((read.words.as_str(), read.unread), ("Did it.", None));
        let read = report(Protocol::Codifica, &whole("[src/a]"));
        assert_eq!(read.files[0].path, "src/a");
        assert_eq!((read.summary.as_deref(), read.blocked), (Some("s"), None));
    }

    #[test]
    fn what_could_not_be_read_keeps_a_builders_words_and_is_no_verdict() {
        let Claim::Report(report) = Claim::unread(ClaimKind::Report, "words", "too slow") else { panic!() };
        assert_eq!((report.words.as_str(), report.unread.as_deref()), ("words", Some("too slow")));
        let none = Claim::unread(ClaimKind::Verdict, "verdict: PASS", &"x".repeat(9000));
        let Claim::NoVerdict { why } = none else { panic!() };
        assert_eq!(why.len(), LONGEST_SENTENCE);
    }

    proptest! {
        #[test]
        fn any_text_is_read_into_a_claim_with_bounds(text in any::<String>(), head in any::<String>()) {
            for protocol in Protocol::ALL {
                for kind in ClaimKind::ALL {
                    assert_small(&of(protocol, kind, &text));
                    assert_small(&of(protocol, kind, &whole(&head)));
                }
            }
        }
    }
}
