//! Acts that are reserved to people, and acts that can't be undone: a person has to say so.

use agency_protocols::names::Actor;

use crate::app::board::{Caller, RepoContext};
use crate::app::error::CommandError;

/// An act that can't be undone, as it is asked for.
pub(crate) struct ConfirmationRequest<'a> {
    /// What is done, for a sentence.
    pub(crate) act: &'a str,
    /// The command that does not ask.
    pub(crate) without_asking: &'a str,
    pub(crate) question: &'a str,
    /// The answer to a no.
    pub(crate) refused: &'a str,
}

/// Asks a person before an act that can't be undone.
pub(crate) fn confirm(here: &RepoContext, request: &ConfirmationRequest<'_>) -> Result<(), CommandError> {
    match here.ask(request.question)? {
        Some(true) => Ok(()),
        Some(false) => Err(CommandError::usage(request.refused)),
        None => Err(CommandError::usage(format!("{} is for a person at a terminal", request.act))
            .with_hint(format!("`{}` does not ask", request.without_asking))),
    }
}

/// The name of the person who acts, if they gave one: `--as human` says that a person acts, and at a terminal one is
/// asked.
pub(crate) fn require_person(
    here: &RepoContext,
    who: &Caller,
    what: &str,
) -> Result<Option<String>, CommandError> {
    match who.actor() {
        Actor::Human(name) => return Ok(name),
        Actor::Agent(_) => return Err(CommandError::usage(format!("{what} needs a human, not an agent"))),
        Actor::Orchestrator => {}
    }
    match here.ask(&format!("{what}. Are you a person who may decide this?"))? {
        Some(true) => Ok(None),
        Some(false) => Err(CommandError::usage("nothing was done")),
        None => Err(CommandError::usage(format!("{what} needs a human")).with_hint("add `--as human`")),
    }
}

/// The person who answers for an act that is reserved to people.
pub(crate) fn require_approver(
    here: &RepoContext,
    who: &Caller,
    given: Option<&str>,
    what: &str,
) -> Result<String, CommandError> {
    let name = require_person(here, who, what)?;
    let known = match given.map(str::to_owned).or(name) {
        Some(known) => Some(known),
        None => here.git_config("user.email")?,
    };
    known.ok_or_else(|| {
        CommandError::usage("no approver is named").with_hint("say --approver NAME, or set git's user.email")
    })
}
