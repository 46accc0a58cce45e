//! The durable steps of an attempt, and their names.

use std::sync::Arc;

use crate::attempt::TaskKey;

/// One durable step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptStep {
    Claim,
    Announce,
    Order,
    Send,
    Permit,
    Begin,
    Keep,
    Report,
    Collect,
    Ask,
    Heed,
    Merge,
    Prove,
    Attest,
    Land,
    Settle,
    Release,
}

impl AttemptStep {
    pub const ALL: [Self; 17] = [
        Self::Claim,
        Self::Announce,
        Self::Order,
        Self::Send,
        Self::Permit,
        Self::Begin,
        Self::Keep,
        Self::Report,
        Self::Collect,
        Self::Ask,
        Self::Heed,
        Self::Merge,
        Self::Prove,
        Self::Attest,
        Self::Land,
        Self::Settle,
        Self::Release,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Announce => "announce",
            Self::Order => "order",
            Self::Send => "send",
            Self::Permit => "permit",
            Self::Begin => "begin",
            Self::Collect => "collect",
            Self::Keep => "keep",
            Self::Report => "report",
            Self::Ask => "ask",
            Self::Heed => "heed",
            Self::Merge => "merge",
            Self::Prove => "prove",
            Self::Attest => "attest",
            Self::Land => "land",
            Self::Settle => "settle",
            Self::Release => "release",
        }
    }

    /// What is known of it while it is done.
    pub(crate) fn span(self) -> tracing::Span {
        tracing::info_span!("step", step = self.name())
    }
}

/// Which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepSide {
    Before,
    After,
}

/// Told every step, before and after. Tests die here.
pub type StepHook = Arc<dyn Fn(&TaskKey, AttemptStep, StepSide) + Send + Sync>;
