//! How an agent's output is read: which of its lines mean what. It is data, written down with the agent's order.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRules {
    /// The first that is found in a line is what the line means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SignalRule>,
    /// A pattern of lines that show that its model answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageRules>,
    /// The name of the format of its lines, for those who show them to people. Nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// A line that means something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRule {
    pub name: String,
    /// A regular expression. What its group `says` finds is the sentence people are told, what its group `until` finds
    /// is when the agent may go on.
    pub pattern: String,
    pub means: SignalMeaning,
    /// Only lines of this stream; `None` for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SignalStream>,
    /// The sentence people are told, where it is not in the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// How long the agent waits where the line does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// It ends an agent whose model has not answered yet; one that was at work already sees for itself.
    #[serde(default)]
    pub early: bool,
}

/// Where a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalStream {
    Output,
    Errors,
}

/// What a line means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalMeaning {
    /// It has used up what it may use for now.
    Quota,
    /// Its model can't be reached, or answers nothing that makes sense.
    Unreachable,
    /// It can't be used as it is: no user is logged in, a key is refused, it wants to be asked something.
    Unfit,
    /// It can't go on with this task before a person does something.
    Blocked,
    /// Why it ended without having done it.
    Failed,
}

impl SignalMeaning {
    pub const ALL: [Self; 5] = [Self::Quota, Self::Unreachable, Self::Unfit, Self::Blocked, Self::Failed];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Unreachable => "unreachable",
            Self::Unfit => "unfit",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|means| means.name() == name)
    }
}

/// Where an agent says what it used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRules {
    /// A regular expression for the lines of its output that say it; `None` where it stands in the file it is given
    /// for that. Its groups `input`, `output` and `cost` are read, where the line is not JSON.
    pub line: Option<String>,
    /// Where in JSON the tokens are that it read: paths like `/usage/input_tokens`, in which `*` stands for each.
    pub input: Vec<String>,
    pub output: Vec<String>,
    pub cost: Option<String>,
    /// Each line says what was used since the one before.
    pub adds_up: bool,
    pub price: Option<TokenPrice>,
}

/// What a million tokens cost, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPrice {
    pub input: u64,
    pub output: u64,
}
