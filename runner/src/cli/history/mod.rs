//! What became of tasks: `summary`, `show`, `diff` and `undo`.

pub(crate) mod diff;
pub(crate) mod show;
pub(crate) mod summary;
pub(crate) mod undo;

use crate::app::plain_line;
use crate::app::units::elapsed;
use agency_supervisor::attempt::UsageTotals;

/// `1m12s, 48200 tokens, 1.25`; what is not known is left out.
fn usage(used: &UsageTotals) -> String {
    let mut parts = vec![elapsed(used.time_ms / 1000)];
    if used.tokens > 0 {
        parts.push(format!("{} tokens", used.tokens));
    }
    if used.cost_micros > 0 {
        parts.push(format!("cost {:.2}", used.cost_micros as f64 / 1_000_000.0));
    }
    parts.join(", ")
}

/// A text, which may be an agent's, on one line that fits beside other things.
fn on_one_line(text: &str) -> String {
    plain_line::line(text, 160)
}
