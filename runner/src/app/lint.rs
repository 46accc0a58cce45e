//! Whether boards comply with their protocols.

use agency_protocols::board::ReadyTask;
use agency_protocols::board_verbs::{BoardVerbs, LintRequest};
use agency_protocols::detect::Protocol;
use agency_protocols::finding::Finding;
use serde::Serialize;

use crate::app::board::{BrokenBoard, Caller, RepoContext, board_error, lost_commits};
use crate::app::closed_globs::closed_glob_message;
use crate::app::configuration::ConfigOptions;
use crate::app::error::CommandError;
use crate::app::work_tree_profiles::WorkTreeProfiles;

/// Everything that does not comply.
#[derive(Debug, Serialize)]
pub(crate) struct LintAnswer {
    version: u32,
    pub(crate) compliant: bool,
    pub(crate) findings: Vec<Finding>,
}

/// Checks every board. With `fix`, what is computed from the tasks of one board is written anew first.
pub(crate) fn lint(here: &RepoContext, who: &Caller, fix: bool) -> Result<LintAnswer, CommandError> {
    let (boards, broken) = match fix {
        true => (vec![here.board(who)?], Vec::new()),
        false => {
            let (boards, broken) = here.open_boards(who)?;
            (boards.all(), broken)
        }
    };
    let profiles: Vec<String> = agency_profiles::builtin::names().map(str::to_owned).collect();
    let request = LintRequest { now: &here.now, profiles: &profiles, closed_glob: closed_glob_message };
    let mut findings: Vec<Finding> = broken.iter().map(|one| broken_board(here, one)).collect();
    for board in boards {
        if fix {
            if board.is_shared() {
                // A verb that the protocol does not have is refused before anything is fetched.
                board.board_views(here.tree(), &here.now).map_err(board_error)?;
            }
            here.update_board(board.as_ref(), |tree| Ok(((), board.board_views(tree, &here.now)?)))?;
        }
        findings.extend(board.board_lint(here.tree(), &request).map_err(board_error)?);
        findings.extend(lost_commits::findings(here, board.as_ref()));
        findings.extend(unfit_profiles(here, board.as_ref())?);
    }
    Ok(LintAnswer { version: 1, compliant: !findings.iter().any(Finding::is_error), findings })
}

/// Tasks that may start, and whose checks can't run here. A name that stands for no profile is the board's finding.
fn unfit_profiles(here: &RepoContext, board: &dyn BoardVerbs) -> Result<Vec<Finding>, CommandError> {
    let options = ConfigOptions::from_environment();
    let profiles = WorkTreeProfiles::open(here, board.profiles_folder(), &options)?;
    let ready = board.agenda(here.tree()).map_err(board_error)?.ready;
    let finding = |start: ReadyTask| {
        profiles.check_name(&start.profile).ok()?;
        let why = profiles.problem(&start.profile)?;
        let message = format!("the checks of `{}` can't run here: {why}", start.profile);
        Some(Finding::warning(&start.file, None, "10", message).of_field("dod_profile"))
    };
    Ok(ready.into_iter().filter_map(finding).collect())
}

/// The finding for a board that can't be opened: its neighbour says nothing about it.
fn broken_board(here: &RepoContext, (protocol, failure): &BrokenBoard) -> Finding {
    let markers = protocol.marker_files();
    let file = markers.iter().find(|marker| here.tree().exists(marker)).unwrap_or(&markers[0]);
    // The sentence may begin with the file and the line.
    let said = failure.message.as_str();
    let said = said.strip_prefix(file).and_then(|rest| rest.strip_prefix(':')).unwrap_or(said).trim_start();
    let (line, said) = match said.split_once(':').map(|(line, rest)| (line.parse::<usize>(), rest)) {
        Some((Ok(line), rest)) => (Some(line), rest.trim_start()),
        _ => (None, said),
    };
    let section = if *protocol == Protocol::Codifica { "3.1" } else { "5" };
    match protocol {
        Protocol::Kodingx | Protocol::Codifica => Finding::error(file, line, section, said),
        // This program knows only that it is there.
        Protocol::ReviewLoop | Protocol::Contract | Protocol::Collaboration => {
            Finding::warning(file, line, section, said)
        }
    }
}
