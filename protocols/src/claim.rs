//! Claims: what an agent wrote, as a small value of ours.
//!
//! An agent's text is parsed once, by [`crate::claim_reader::read`], in a process that may fail: the process has a bound on
//! time and memory, and nothing depends on it. All other code gets an [`AgentClaim`], whose strings and lists have bounds,
//! and never the text.

use serde::{Deserialize, Serialize};

use crate::text::bounds::{shorten, truncate};
use crate::verdict::AuditVerdict;

/// Bytes that are read of an agent's text.
pub const LONGEST_READ: u64 = 256 << 10;
/// Bytes of an agent's text that are parsed; the rest is cut off.
pub const LONGEST_TEXT: usize = 64 << 10;
/// Bytes of a sentence: why an agent is blocked, or why its text can't be understood.
pub(crate) const LONGEST_SENTENCE: usize = 2_000;
/// Bytes of one entry of a list, and of a name.
pub(crate) const LONGEST_ENTRY: usize = 4 << 10;
/// What an agent wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum AgentClaim {
    /// A builder's report.
    Report(Box<ReportClaim>),
    /// An auditor's verdict.
    Verdict(AuditVerdict),
    /// An auditor's text without a verdict in it.
    NoVerdict { why: String },
}

/// What a builder says about its work. Facts that can be observed from outside are never taken from it.
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

impl AgentClaim {
    /// A text that could not be read; a builder's words are kept as they are.
    pub fn unreadable(kind: ClaimKind, text: &str, why: &str) -> Self {
        let claim = match kind {
            ClaimKind::Report => Self::Report(Box::new(ReportClaim {
                words: truncate(text.to_owned(), LONGEST_TEXT),
                unread: Some(why.to_owned()),
                ..ReportClaim::default()
            })),
            ClaimKind::Verdict => Self::NoVerdict { why: why.to_owned() },
        };
        claim.bounded()
    }

    /// The claim with each text and list cut to its bound. A claim within the bounds stays as it is.
    pub fn bounded(self) -> Self {
        match self {
            Self::Report(report) => Self::Report(Box::new(report.bounded())),
            Self::Verdict(verdict) => Self::Verdict(verdict.bounded()),
            Self::NoVerdict { why } => Self::NoVerdict { why: truncate(why, LONGEST_SENTENCE) },
        }
    }
}

impl ReportClaim {
    fn bounded(mut self) -> Self {
        for name in [&mut self.task, &mut self.agent] {
            *name = name.take().map(|name| truncate(name, LONGEST_ENTRY));
        }
        for sentence in [&mut self.blocked, &mut self.summary, &mut self.unread] {
            *sentence = sentence.take().map(|sentence| truncate(sentence, LONGEST_SENTENCE));
        }
        for list in [&mut self.commands, &mut self.risks] {
            self.left_out = self.left_out.saturating_add(shorten(list, |entry| {
                *entry = truncate(std::mem::take(entry), LONGEST_ENTRY);
                entry.len()
            }));
        }
        self.left_out = self.left_out.saturating_add(shorten(&mut self.files, |file| {
            file.path = truncate(std::mem::take(&mut file.path), LONGEST_ENTRY);
            file.kind = file.kind.take().map(|kind| truncate(kind, LONGEST_ENTRY));
            file.path.len() + file.kind.as_ref().map_or(0, String::len)
        }));
        self.words = truncate(self.words, LONGEST_TEXT);
        self
    }
}
