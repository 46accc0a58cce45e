//! Tasks that are done, and whose commit has left its branch: told by `lint` and `status`.

use agency_protocols::board::Board as _;
use agency_protocols::codifica::Codifica;
use agency_protocols::codifica::transitions::State;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::status::Status;
use agency_protocols::names::TaskId;
use agency_sandbox::host::Host;
use agency_supervisor::charge;
use agency_supervisor::identity;
use agency_supervisor::landing::repository::Repository;
use agency_supervisor::landing::strayed;

use super::Here;
use crate::state;

pub(super) fn of_kodingx(here: &Here, board: &KodingX) -> Vec<Finding> {
    findings(here, board.protocol(), "11", |id| {
        let found = board.find(here.tree(), id).ok()?;
        (!found.place.archived && found.value.status == Status::Done).then_some(found.place.path)
    })
}

pub(super) fn of_codifica(here: &Here, board: &Codifica) -> Vec<Finding> {
    findings(here, board.protocol(), "5", |id| {
        let found = board.find(here.tree(), id).ok()?;
        (found.task.state == State::Done).then_some(found.file)
    })
}

/// A finding for each, in the file that `done` names for a task that is done.
fn findings(
    here: &Here,
    protocol: &str,
    section: &'static str,
    done: impl Fn(&TaskId) -> Option<String>,
) -> Vec<Finding> {
    // Where nothing of ours can be asked, nothing of ours has landed.
    let strayed = opened(here).and_then(|repository| strayed::find(&repository).ok()).unwrap_or_default();
    let of_it = strayed.into_iter().filter(|one| one.task.protocol() == protocol);
    of_it
        .filter_map(|one| {
            let id = TaskId::parse(one.task.id()).ok()?;
            let message = format!("{id} {}", one.sentence());
            Some(Finding::error(&done(&id)?, None, section, message))
        })
        .collect()
}

fn opened(here: &Here) -> Option<Repository> {
    let common = &here.folder.repository.as_ref()?.common;
    let state = state::home().ok()?.existing(common)?;
    state::check_writable(&here.folder).ok()?;
    let repository = charge::open_repository(&here.folder, state.path(), &Host::observe().home).ok()?;
    // Landings that came along with a repository say nothing.
    identity::is_confirmed(&repository, state.path()).then_some(repository)
}
