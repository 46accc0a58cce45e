//! How an agent's output is read: which of its lines mean what. It is data, written down with the agent's order.

use std::collections::BTreeMap;

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
    /// Where those are of the tokens it read that came from a cache: `input` counts them, too. In other lines, they are the
    /// group `cached`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached: Vec<String>,
    /// Each line says what was used since the one before.
    pub adds_up: bool,
    pub price: Option<TokenPrice>,
    /// A regular expression for the lines of its output that name the model: the group `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What models cost, where the agent has no price of its own and says its model.
    #[serde(default, skip_serializing_if = "PriceTable::is_empty")]
    pub prices: PriceTable,
}

/// What a million tokens cost, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPrice {
    pub input: u64,
    pub output: u64,
    /// Of those that are read from a cache; `None` where they cost what others do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
}

impl TokenPrice {
    /// What these tokens cost, in millionths. `cached` are some of `input`.
    pub fn of(self, input: u64, cached: u64, output: u64) -> u64 {
        let cached = cached.min(input);
        let of = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price) / 1_000_000;
        let read = of(input - cached, self.input) + of(cached, self.cached.unwrap_or(self.input));
        u64::try_from(read + of(output, self.output)).unwrap_or(u64::MAX)
    }
}

/// What models cost, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable(pub BTreeMap<String, TokenPrice>);

impl PriceTable {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The price of a model. Programs put a provider before its name, and a date or a size of its context behind it.
    pub fn price_of(&self, model: &str) -> Option<TokenPrice> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let name = name.split(['[', ':', '@']).next().unwrap_or(name);
        let is_it = |known: &str| match name.strip_prefix(known) {
            Some("" | "-latest") => true,
            Some(rest) => rest.strip_prefix('-').is_some_and(is_date),
            None => false,
        };
        self.0.iter().find(|(known, _)| is_it(known)).map(|(_, price)| *price)
    }
}

/// `2025-08-07` or `20250807`
fn is_date(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    digits == 8 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_its_name_with_what_programs_add_to_it() {
        let price = |input| TokenPrice { input, ..TokenPrice::default() };
        let table = PriceTable(
            [("gpt-5", 1), ("gpt-5-mini", 2), ("o3", 3)]
                .map(|(name, input)| (name.to_owned(), price(input)))
                .into(),
        );
        for (model, input) in [
            ("gpt-5", Some(1)),
            ("openai/gpt-5", Some(1)),
            ("gpt-5-2025-08-07", Some(1)),
            ("openrouter/openai/gpt-5-mini-20250807", Some(2)),
            ("gpt-5-latest", Some(1)),
            ("o3[1m]", Some(3)),
            ("gpt-5-nano", None),
            ("gpt-55", None),
            ("", None),
        ] {
            assert_eq!(table.price_of(model).map(|price| price.input), input, "{model}");
        }
    }

    #[test]
    fn tokens_of_a_cache_have_a_price_of_their_own() {
        let price = TokenPrice { input: 2_000_000, output: 10_000_000, cached: Some(500_000) };
        assert_eq!(price.of(1_000_000, 400_000, 100_000), 1_200_000 + 200_000 + 1_000_000);
        assert_eq!(price.of(10, 1000, 0), 5, "no more than were read");
        assert_eq!(TokenPrice { cached: None, ..price }.of(1_000_000, 400_000, 0), 2_000_000);
        assert_eq!(price.of(u64::MAX, 0, u64::MAX), u64::MAX);
    }
}
