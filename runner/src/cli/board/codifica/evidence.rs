//! What was said about a task, and what was proved of it.

use agency_profiles::proof::Proof;
use agency_protocols::board::ProofEvidence;
use agency_protocols::codifica::actions::RUNNER_ACTOR;
use agency_protocols::codifica::block::TaskBlock;
use agency_protocols::codifica::evidence::EvidenceRecord;
use agency_protocols::codifica::{Codifica, notes};
use agency_protocols::names::{Actor, TaskId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::task::find_task;
use crate::app::board::RepoContext;
use crate::app::error::{CommandError, ErrorKind};
use crate::cli::exit::UNDONE;
use crate::cli::message;
use crate::cli::output::{for_terminal, print, print_json};

/// Its execution notes and artifacts.
pub(in crate::cli::board) fn report(
    id: &TaskId,
    as_json: bool,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    let found = find_task(board, here, id)?;
    let block = TaskBlock::parse(found.block(), found.span.line)
        .map_err(|error| CommandError::usage(format!("{}:{}: {}", found.file, error.line, error.reason)))?;
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
        return Err(CommandError::new_message(
            ErrorKind::NoSuch,
            format!("nobody has said anything about {id} yet"),
        ));
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
    print(&for_terminal(&text))?;
    Ok(0)
}

/// Keeps a proof.
pub(in crate::cli::board) fn record_proof(
    (id, actor): (&TaskId, &Actor),
    (evidence, proof): (&ProofEvidence, &Proof),
    as_json: bool,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let EvidenceRecord { artifact_path, passed } = here.update_board(board, |tree| {
        let by = match (actor, board.find(tree, id)?.task.owner.agent()) {
            (Actor::Agent(name), _) | (_, Some(name)) => format!("agent:{name}"),
            _ => RUNNER_ACTOR.to_owned(),
        };
        board.record_verification(tree, id, evidence, &by, &now)
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
