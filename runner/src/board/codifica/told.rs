//! What was said about a task, and what was proved of it.

use agency_profiles::proof::Proof;
use agency_protocols::board::Evidence;
use agency_protocols::codifica::acts::RUNNER;
use agency_protocols::codifica::block::Block;
use agency_protocols::codifica::evidence::Verified;
use agency_protocols::codifica::{Codifica, notes};
use agency_protocols::names::{Actor, TaskId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::task::there;
use crate::board::task::shown;
use crate::board::{Here, print, print_json};
use crate::message::{self, Failure, NO_SUCH, UNDONE};

/// Its execution notes and artifacts.
pub(in crate::board) fn report(
    id: &TaskId,
    as_json: bool,
    here: &Here,
    board: &Codifica,
) -> Result<u8, Failure> {
    let found = there(board, here, id)?;
    let block = Block::parse(found.block(), found.span.line)
        .map_err(|error| Failure::usage(format!("{}:{}: {}", found.file, error.line, error.reason)))?;
    let (said, made, moved) = (notes::notes(&block), notes::artifacts(&block), notes::steps(&block));
    if as_json {
        print_json(&json!({
            "version": 1,
            "task": id,
            "file": found.file,
            "execution_notes": said,
            "artifacts": made,
            "state_transitions": moved,
        }))?;
        return Ok(0);
    }
    if said.is_empty() && made.is_empty() {
        return Err(Failure::new_message(NO_SUCH, format!("nobody has said anything about {id} yet")));
    }
    let mut text = String::new();
    for note in &said {
        let by = note.by.as_deref().unwrap_or("somebody");
        let at = note.timestamp.as_deref().unwrap_or("at some time");
        text.push_str(&format!("{at}  {by}: {}\n", note.summary.as_deref().unwrap_or("")));
        note.note.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    for artifact in &made {
        text.push_str(&format!("artifact  {}  {}\n", artifact.path, artifact.kind.as_deref().unwrap_or("")));
    }
    message::notice(&format!("{}:{}", found.file, found.span.line));
    print(&shown(&text))?;
    Ok(0)
}

/// Keeps a proof.
pub(in crate::board) fn verified(
    (id, actor): (&TaskId, &Actor),
    (evidence, proof): (&Evidence, &Proof),
    as_json: bool,
    here: &Here,
    board: &Codifica,
) -> Result<u8, Failure> {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let Verified { artifact_path, passed } = here.act_on(board, |tree| {
        let by = match (actor, board.find(tree, id)?.task.owner.agent()) {
            (Actor::Agent(name), _) | (_, Some(name)) => format!("agent:{name}"),
            _ => RUNNER.to_owned(),
        };
        board.verified(tree, id, evidence, &by, &now)
    })?;
    let result = if passed { "pass" } else { "fail" };
    if as_json {
        let document =
            json!({ "version": 1, "task": id, "result": result, "artifact": artifact_path, "proof": proof });
        print_json(&document)?;
    } else {
        message::notice(&format!("{id}: {result}, see {artifact_path}"));
    }
    Ok(if passed { 0 } else { UNDONE })
}
