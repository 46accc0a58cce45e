//! What an agent says it used, read from its output or from a file it left.

use regex::bytes::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rules::{TokenPrice, UsageRules};

/// What an agent says it used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentUsage {
    pub tokens: u64,
    /// Those it read and those it wrote, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// In millionths of the unit people count in; `None` where it says nothing of it.
    #[serde(default)]
    pub cost_micros: Option<u64>,
    /// Whether it says more than can be, and this is only the most that can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub impossible: bool,
}

impl AgentUsage {
    /// More tokens in a second than any model reads and writes: requests of a million tokens, one every ten seconds.
    const TOKENS_PER_SECOND: u64 = 100_000;
    /// What as many of the dearest tokens cost.
    const MICROS_PER_SECOND: u64 = 15_000_000;
    /// What the shortest attempt may have used.
    const LEAST_SECONDS: u64 = 10;

    /// The most that can have been used in a time, where it says more; `None` where it does not.
    pub fn capped(self, elapsed_ms: u64) -> Option<Self> {
        let seconds = (elapsed_ms / 1000).max(Self::LEAST_SECONDS);
        let tokens = seconds.saturating_mul(Self::TOKENS_PER_SECOND);
        let micros = seconds.saturating_mul(Self::MICROS_PER_SECOND);
        let capped = Self {
            tokens: self.tokens.min(tokens),
            input: self.input.map(|input| input.min(tokens)),
            output: self.output.map(|output| output.min(tokens)),
            cost_micros: self.cost_micros.map(|cost| cost.min(micros)),
            impossible: self.impossible,
        };
        (capped != self).then_some(Self { impossible: true, ..capped })
    }
}

/// Counts along.
#[derive(Debug)]
pub(super) struct UsageMeter {
    reading: Option<UsageRules>,
    line: Option<Regex>,
    /// The lines that name the model, and what was named last.
    model: Option<Regex>,
    price: Option<TokenPrice>,
    counted: Option<UsageCount>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct UsageCount {
    input: Option<u64>,
    output: Option<u64>,
    /// Those of `input` that came from a cache.
    cached: Option<u64>,
    cost: Option<f64>,
    /// What it comes to by the price that was known when it was said, in millionths.
    priced: Option<u64>,
}

impl UsageCount {
    fn says_something(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }

    fn plus(self, more: Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        };
        let cost = match (self.cost, more.cost) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        };
        Self {
            input: both(self.input, more.input),
            output: both(self.output, more.output),
            cached: both(self.cached, more.cached),
            cost,
            priced: both(self.priced, more.priced),
        }
    }

    fn priced(self, price: Option<TokenPrice>) -> Self {
        let of = |price: TokenPrice| {
            price.of(self.input.unwrap_or(0), self.cached.unwrap_or(0), self.output.unwrap_or(0))
        };
        Self { priced: price.map(of), ..self }
    }
}

impl UsageMeter {
    pub(super) fn new(reading: Option<UsageRules>, line: Option<Regex>, model: Option<Regex>) -> Self {
        let price = reading.as_ref().and_then(|reading| reading.price);
        Self { reading, line, model, price, counted: None }
    }

    /// A line that names the model: from here on, its price counts.
    pub(super) fn name_model(&mut self, line: &[u8]) {
        let (Some(reading), Some(pattern)) = (&self.reading, &self.model) else { return };
        let named = pattern.captures(line).and_then(|groups| groups.name("model"));
        if let Some(named) = named.filter(|_| reading.price.is_none()) {
            self.price = reading.prices.price_of(&String::from_utf8_lossy(named.as_bytes()));
        }
    }

    /// A line that says it.
    pub(super) fn read(&mut self, line: &[u8]) {
        let (Some(reading), Some(pattern)) = (&self.reading, &self.line) else { return };
        let counted = match serde_json::from_slice::<Value>(line) {
            Ok(value) => from_json(reading, &value),
            Err(_) => from_text(pattern, line),
        };
        if let Some(counted) = counted.map(|counted| counted.priced(self.price)) {
            let before = self.counted.filter(|_| reading.adds_up);
            self.counted = Some(before.map_or(counted, |before| before.plus(counted)));
        }
    }

    /// All of it.
    pub(super) fn finish(self, left: Option<&[u8]>) -> Option<AgentUsage> {
        let left = left.and_then(|text| serde_json::from_slice::<Value>(text).ok());
        let Some(reading) = self.reading else { return left.as_ref().and_then(claim) };
        let in_file = || {
            let counted = from_json(&reading, left.as_ref()?)?;
            Some(counted.priced(self.price))
        };
        let counted = match reading.line {
            Some(_) => self.counted,
            None => in_file(),
        };
        let Some(counted) = counted else { return left.as_ref().and_then(claim) };
        let (input, output) = (counted.input.unwrap_or(0), counted.output.unwrap_or(0));
        // A model without a known price is told as one that costs nothing.
        let said = counted.cost.filter(|cost| *cost > 0.0 || input.saturating_add(output) == 0).map(micros);
        Some(AgentUsage {
            tokens: input.saturating_add(output),
            input: counted.input,
            output: counted.output,
            cost_micros: said.or(counted.priced),
            impossible: false,
        })
    }
}

/// What is said in our own manner: `{"tokens": 1200, "cost": 0.04}`, or `input_tokens` and `output_tokens`. Anything
/// else says nothing.
fn claim(said: &Value) -> Option<AgentUsage> {
    let count = |key: &str| said.get(key).and_then(Value::as_u64);
    let (input, output) = (count("input_tokens"), count("output_tokens"));
    let both =
        (input.is_some() || output.is_some()).then(|| input.unwrap_or(0).saturating_add(output.unwrap_or(0)));
    let cost = said.get("cost").and_then(Value::as_f64).filter(|cost| *cost >= 0.0);
    let tokens = count("tokens").or(both);
    (tokens.is_some() || cost.is_some()).then(|| AgentUsage {
        tokens: tokens.unwrap_or(0),
        input,
        output,
        cost_micros: cost.map(micros),
        impossible: false,
    })
}

/// A number that is too large becomes the largest there is.
fn micros(cost: f64) -> u64 {
    (cost * 1_000_000.0).round() as u64
}

fn from_json(reading: &UsageRules, value: &Value) -> Option<UsageCount> {
    let sum = |paths: &[String]| {
        let numbers = paths.iter().flat_map(|path| at(value, path)).filter_map(Value::as_u64);
        numbers.fold(None, |sum: Option<u64>, number| Some(sum.unwrap_or(0).saturating_add(number)))
    };
    let costs = reading.cost.iter().flat_map(|path| at(value, path)).filter_map(Value::as_f64);
    let cost = costs
        .filter(|cost| *cost >= 0.0)
        .fold(None, |sum: Option<f64>, cost| Some(sum.unwrap_or(0.0) + cost));
    let (input, output, cached) = (sum(&reading.input), sum(&reading.output), sum(&reading.cached));
    UsageCount { input, output, cached, cost, priced: None }.says_something()
}

/// Everything at a path, in which `*` stands for each.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in path.split('/').skip(1) {
        found = found
            .into_iter()
            .flat_map(|value| match (step, value) {
                ("*", Value::Array(items)) => items.iter().collect(),
                ("*", Value::Object(items)) => items.values().collect(),
                (key, Value::Array(items)) => {
                    key.parse().ok().and_then(|index: usize| items.get(index)).into_iter().collect::<Vec<_>>()
                }
                (key, value) => value.get(key).into_iter().collect(),
            })
            .collect();
    }
    found
}

fn from_text(pattern: &Regex, line: &[u8]) -> Option<UsageCount> {
    let groups = pattern.captures(line)?;
    let number = |name: &str| scaled(std::str::from_utf8(groups.name(name)?.as_bytes()).ok()?);
    let count = |name: &str| number(name).map(|number| number.round() as u64);
    let (input, output, cached) = (count("input"), count("output"), count("cached"));
    UsageCount { input, output, cached, cost: number("cost"), priced: None }.says_something()
}

/// `1,234`, `2.1k`, `0.3M`
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim().replace(',', "");
    let (digits, scale) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1e6),
            None => (&text[..], 1.0),
        },
    };
    digits.parse::<f64>().ok().map(|number| number * scale).filter(|number| *number >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output_signals::pattern;
    use crate::output_signals::rules::PriceTable;

    fn used(reading: &UsageRules, lines: &[&str], left: Option<&str>) -> Option<(u64, Option<u64>)> {
        let line = reading.line.as_deref().map(|line| pattern::one(line).expect("a pattern"));
        let model = reading.model.as_deref().map(|model| pattern::one(model).expect("a pattern"));
        let mut meter = UsageMeter::new(Some(reading.clone()), line, model);
        for line in lines {
            meter.name_model(line.as_bytes());
            meter.read(line.as_bytes());
        }
        meter.finish(left.map(str::as_bytes)).map(|usage| (usage.tokens, usage.cost_micros))
    }

    #[test]
    fn no_agent_can_have_used_more_than_there_was_time_for() {
        let said = AgentUsage {
            tokens: u64::MAX,
            input: Some(u64::MAX),
            output: None,
            cost_micros: Some(u64::MAX),
            impossible: false,
        };
        let capped = said.capped(60_000).expect("capped");
        assert_eq!((capped.tokens, capped.input, capped.output), (6_000_000, Some(6_000_000), None));
        assert_eq!((capped.cost_micros, capped.impossible), (Some(900_000_000), true));
        assert_eq!(said.capped(5).expect("capped").tokens, 1_000_000);
        let honest = AgentUsage { tokens: 900_000, cost_micros: Some(3_000_000), ..AgentUsage::default() };
        assert_eq!(honest.capped(1), None);
    }

    #[test]
    fn a_line_of_json_says_it() {
        let claude = UsageRules {
            line: Some("result".into()),
            input: vec!["/usage/input_tokens".into(), "/usage/cache_read_input_tokens".into()],
            output: vec!["/usage/output_tokens".into()],
            cost: Some("/total_cost_usd".into()),
            ..UsageRules::default()
        };
        let line = r#"{"type":"result","total_cost_usd":0.015,"usage":{"input_tokens":2000,"cache_read_input_tokens":30,"output_tokens":200}}"#;
        assert_eq!(used(&claude, &[line], None), Some((2230, Some(15_000))));
        assert_eq!(used(&claude, &[line, line], None), Some((2230, Some(15_000))), "the last one counts");
        let adds_up = UsageRules { adds_up: true, ..claude.clone() };
        assert_eq!(used(&adds_up, &[line, line], None), Some((4460, Some(30_000))));
        assert_eq!(used(&claude, &[r#"{"usage":{"input_tokens":-4}}"#, "{}", "["], None), None);
    }

    #[test]
    fn a_price_is_used_where_no_cost_is_said() {
        let codex = UsageRules {
            line: Some("turn".into()),
            input: vec!["/in".into()],
            output: vec!["/out".into()],
            price: Some(TokenPrice { input: 2_000_000, output: 10_000_000, cached: None }),
            ..UsageRules::default()
        };
        assert_eq!(
            used(&codex, &[r#"{"in":1000000,"out":100000}"#], None),
            Some((1_100_000, Some(3_000_000)))
        );
    }

    #[test]
    fn the_model_that_was_named_last_has_the_price() {
        let prices = [("small", 1_000_000, 2_000_000), ("large", 10_000_000, 20_000_000)].map(
            |(name, input, output)| (name.to_owned(), TokenPrice { input, output, cached: Some(input / 10) }),
        );
        let gemini = UsageRules {
            line: Some(
                r#""(?:prompt": (?<input>\d+)|candidates": (?<output>\d+)|cached": (?<cached>\d+))"#.into(),
            ),
            model: Some(r#"^\s*"(?<model>[a-z/]+)": \{"#.into()),
            prices: PriceTable(prices.into()),
            adds_up: true,
            ..UsageRules::default()
        };
        let tokens = [r#""prompt": 1000000"#, r#""candidates": 100000"#];
        let lines = |model| [&[model][..], &tokens].concat();
        assert_eq!(used(&gemini, &lines(r#""x/small": {"#), None), Some((1_100_000, Some(1_200_000))));
        let both = [lines(r#""small": {"#), lines(r#""large": {"#)].concat();
        assert_eq!(used(&gemini, &both, None), Some((2_200_000, Some(13_200_000))));
        assert_eq!(used(&gemini, &lines(r#""other": {"#), None), Some((1_100_000, None)), "not known");
        assert_eq!(used(&gemini, &tokens, None), Some((1_100_000, None)), "not named");
        let own = UsageRules { price: Some(TokenPrice::default()), ..gemini };
        assert_eq!(
            used(&own, &lines(r#""large": {"#), None),
            Some((1_100_000, Some(0))),
            "its own price counts"
        );
        let codex = UsageRules {
            line: Some("turn".into()),
            input: vec!["/in".into()],
            cached: vec!["/cached".into()],
            price: Some(TokenPrice { input: 1_000_000, output: 0, cached: Some(100_000) }),
            ..UsageRules::default()
        };
        let line = r#"{"turn":1,"in":1000000,"cached":500000}"#;
        assert_eq!(used(&codex, &[line], None), Some((1_000_000, Some(550_000))));
    }

    #[test]
    fn words_say_it_too() {
        let aider = UsageRules {
            line: Some(
                r"Tokens: (?<input>[\d.,]+[kM]?) sent.*?(?<output>[\d.,]+[kM]?) received.*Cost: \$(?<cost>[\d.]+) message"
                    .into(),
            ),
            adds_up: true,
            ..UsageRules::default()
        };
        let line = "Tokens: 2.1k sent, 123 received. Cost: $0.0012 message, $0.0012 session.";
        assert_eq!(used(&aider, &[line, line], None), Some((4446, Some(2400))));
    }

    #[test]
    fn a_file_says_it_for_each_answer() {
        let mini = UsageRules {
            input: vec!["/messages/*/usage/in".into()],
            output: vec!["/messages/*/usage/out".into()],
            cost: Some("/cost".into()),
            ..UsageRules::default()
        };
        let file = r#"{"cost":0.5,"messages":[{"usage":{"in":3,"out":1}},{"role":"user"},{"usage":{"in":4,"out":2}}]}"#;
        assert_eq!(used(&mini, &[], Some(file)), Some((10, Some(500_000))));
        assert_eq!(used(&mini, &[], None), None);
    }

    #[test]
    fn what_an_agent_says_it_used_is_a_claim_that_harms_nobody() {
        let said = |text: &str| {
            let usage = UsageMeter::new(None, None, None).finish(Some(text.as_bytes()));
            usage.map(|usage| (usage.tokens, usage.cost_micros))
        };
        assert_eq!(said(r#"{"tokens": 1200, "cost": 0.04}"#), Some((1200, Some(40_000))));
        assert_eq!(said(r#"{"input_tokens": 7, "output_tokens": 5}"#), Some((12, None)));
        assert_eq!(said(r#"{"cost": 1e300}"#), Some((0, Some(u64::MAX))));
        for nothing in ["", "[]", "{}", "12", r#"{"tokens": -4}"#, r#"{"cost": -1}"#, r#"{"tokens": "many"}"#]
        {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }
}
