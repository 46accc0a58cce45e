//! Asks a person at the terminal.

use std::io::{IsTerminal, Write};

use agency_protocols::names::Actor;

use crate::app::board::{Caller, RepoContext};
use crate::app::error::CommandError;

/// Asks a person at a terminal before something is done that can't be undone. `verb` is the command that does not ask, and
/// `otherwise` what became of a no.
pub(crate) fn confirm_at_terminal(
    deed: &str,
    verb: &str,
    question: &str,
    otherwise: &str,
) -> Result<(), CommandError> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(CommandError::usage(format!("{deed} is for a person at a terminal"))
            .with_hint(format!("`{verb}` does not ask")));
    }
    match ask_yes_no(question)? {
        true => Ok(()),
        false => Err(CommandError::usage(otherwise)),
    }
}

/// Asks at the terminal.
pub(crate) fn ask_yes_no(question: &str) -> Result<bool, CommandError> {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "agency: {question} [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| CommandError::internal(&error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What is done only by people: `--as human` says so, and at a terminal one is asked.
pub(crate) fn require_person(who: &Caller, what: &str) -> Result<Option<String>, CommandError> {
    match who.actor() {
        Actor::Human(name) => return Ok(name),
        Actor::Agent(_) => return Err(CommandError::usage(format!("{what} is for people, not for agents"))),
        Actor::Orchestrator => {}
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(CommandError::usage(format!("{what} is for people"))
            .with_hint("a person says so with --as human"));
    }
    if ask_yes_no(&format!("{what}. Are you a person who may decide this?"))? {
        Ok(None)
    } else {
        Err(CommandError::usage("nothing was done"))
    }
}

/// The person who answers for an act that is reserved to people.
pub(crate) fn require_approver(
    given: Option<&str>,
    who: &Caller,
    here: &RepoContext,
    what: &str,
) -> Result<String, CommandError> {
    let name = require_person(who, what)?;
    let known = match given.map(str::to_owned).or(name) {
        Some(known) => Some(known),
        None => here.git_config("user.email")?,
    };
    known.ok_or_else(|| {
        CommandError::usage("nobody is named who approves this")
            .with_hint("say --approver NAME, or set git's user.email")
    })
}
