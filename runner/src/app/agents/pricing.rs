//! What agents cost: by the price that is configured for one, or by the model that it names and a table of models
//! (`configuration/prices.toml`). And what is said of those whose cost nobody can know.

use std::collections::BTreeSet;

use agency_supervisor::job::order::NetworkAccess;
use agency_supervisor::output_signals::rules::{PriceTable, TokenPrice};
use agency_supervisor::settings::{AgentSettings, RunSettings};
use toml::Value;

use super::definition::AgentDefinition;
use crate::app::configuration::Configuration;
use crate::app::error::CommandError;

/// The price that is configured for an agent: in numbers, or as that of a model.
pub(super) fn own_price(definition: AgentDefinition<'_>) -> Result<Option<TokenPrice>, CommandError> {
    let price = price(|key| definition.value(&["price", key]));
    match definition.text(&["price", "model"]) {
        Some(model) if price.is_none() => match prices(definition.configuration).price_of(model) {
            Some(price) => Ok(Some(price)),
            None => Err(definition
                .refused("price.model", format!("no price of the model `{model}` is known"))
                .with_hint(format!(
                    "[prices] \"{model}\" = {{ input = 1.25, output = 10.0 }} in agency.toml"
                ))),
        },
        _ => Ok(price),
    }
}

/// The prices of models, for an agent that says which one it works with and has no price of its own.
pub(super) fn table(definition: AgentDefinition<'_>) -> PriceTable {
    let is_needed = definition.text(&["usage", "model"]).is_some() && definition.value(&["price"]).is_none();
    if is_needed { prices(definition.configuration) } else { PriceTable::default() }
}

/// What models cost, by what is configured and by our own table.
fn prices(configuration: &Configuration) -> PriceTable {
    let of = |model: &str| price(|key| configuration.value(&["prices", model, key]));
    let names = configuration.names(&["prices"]).into_iter();
    PriceTable(names.filter_map(|model| Some((model.to_owned(), of(model)?))).collect())
}

/// What a million tokens cost.
fn price<'a>(value: impl Fn(&'static str) -> Option<&'a Value>) -> Option<TokenPrice> {
    let micros = |key| {
        let price = value(key)?;
        let price = price.as_float().or(price.as_integer().map(|price| price as f64))?;
        // A number that is too large becomes the largest there is.
        Some((price * 1_000_000.0).round() as u64)
    };
    let (input, output, cached) = (micros("input"), micros("output"), micros("cached"));
    let is_said = input.is_some() || output.is_some();
    is_said.then(|| TokenPrice { input: input.unwrap_or(0), output: output.unwrap_or(0), cached })
}

/// What is known of an agent's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CostKnowledge {
    /// The agent says it, or its tokens have a price; or it costs nothing, because it reaches no model.
    Known,
    /// The agent says its tokens, and nothing has a price.
    TokensOnly,
    /// The agent says nothing.
    Unknown,
}

impl CostKnowledge {
    fn of(agent: &AgentSettings) -> Self {
        let program = &agent.program;
        if agent.outside || program.network == NetworkAccess::None {
            return Self::Known;
        }
        // An agent may say it in the file that is meant for it.
        let writes_file = program.command.iter().any(|part| part.to_ascii_lowercase().contains("usage_file"));
        match &program.reading.usage {
            Some(usage) => {
                let says_cost = usage.cost.is_some()
                    || usage.line.as_ref().is_some_and(|line| line.contains("(?<cost>"))
                    || usage.price.is_some()
                    || !usage.prices.is_empty();
                if says_cost { Self::Known } else { Self::TokensOnly }
            }
            None if writes_file => Self::Known,
            None => Self::Unknown,
        }
    }
}

/// What is said before a run that has a budget of cost: which of its agents no such budget counts. `builders` are those
/// that have something to do.
pub(crate) fn notices<'a>(settings: &'a RunSettings, builders: impl Iterator<Item = &'a str>) -> Vec<String> {
    let budget = &settings.budget;
    let limits = [("budget.run.cost", &budget.run), ("budget.task.cost", &budget.task)];
    let limits = limits.into_iter().filter(|(_, of)| of.cost_micros.is_some()).map(|(key, _)| key);
    let limits = limits.collect::<Vec<_>>().join(" and ");
    if limits.is_empty() {
        return Vec::new();
    }
    let names: BTreeSet<&str> = builders.chain(settings.auditor.as_deref()).collect();
    let notice = |name: &str| {
        let knowledge = CostKnowledge::of(settings.agents.get(name)?);
        let counts = if limits.contains(" and ") { "do not count" } else { "does not count" };
        let of = format!("{limits} {counts} the agent `{name}`");
        match knowledge {
            CostKnowledge::Known => None,
            CostKnowledge::TokensOnly => Some(format!(
                "{of}: it reports its tokens and no cost; set agents.{name}.price.input and .output, or \
                 agents.{name}.price.model"
            )),
            CostKnowledge::Unknown => Some(format!(
                "{of}: it reports neither tokens nor cost; set agents.{name}.usage, or limit budget.run.time and \
                 budget.run.attempts"
            )),
        }
    };
    names.into_iter().filter_map(notice).collect()
}
