//! Tasks that are done, and whose commit has left its branch: told by `lint` and `status`.

use agency_landing::lost_landings;
use agency_landing::repository::LandingRepository;
use agency_protocols::board::Board as _;
use agency_protocols::codifica::Codifica;
use agency_protocols::codifica::task::TaskState;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::status::TaskStatus;
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_supervisor::startup;
use agency_supervisor::store_identity;

use super::RepoContext;
use crate::app::state_folder;

pub(crate) fn kodingx_findings(here: &RepoContext, board: &KodingX) -> Vec<Finding> {
    findings(here, board.protocol(), "11", |id| {
        let found = board.find(here.tree(), id).ok()?;
        (!found.place.archived && found.value.status == TaskStatus::Done).then_some(found.place.path)
    })
}

pub(crate) fn codifica_findings(here: &RepoContext, board: &Codifica) -> Vec<Finding> {
    findings(here, board.protocol(), "5", |id| {
        let found = board.find(here.tree(), id).ok()?;
        (found.task.state == TaskState::Done).then_some(found.file)
    })
}

/// A finding for each, in the file that `done` names for a task that is done.
fn findings(
    here: &RepoContext,
    protocol: &str,
    section: &'static str,
    done: impl Fn(&TaskId) -> Option<String>,
) -> Vec<Finding> {
    // Where nothing of ours can be asked, nothing of ours has landed.
    let strayed =
        opened(here).and_then(|repository| lost_landings::find(&repository).ok()).unwrap_or_default();
    let of_it = strayed.into_iter().filter(|one| one.task.protocol() == protocol);
    of_it
        .filter_map(|one| {
            let id = TaskId::parse(one.task.id()).ok()?;
            let message = format!("{id} {}", one.sentence());
            Some(Finding::error(&done(&id)?, None, section, message))
        })
        .collect()
}

fn opened(here: &RepoContext) -> Option<LandingRepository> {
    let common = &here.folder.repository.as_ref()?.common;
    let state = state_folder::home().ok()?.existing(common)?;
    state_folder::check_writable(&here.folder).ok()?;
    let repository = startup::open_repository(&here.folder, state.path(), &HostUser::observe().home).ok()?;
    // Landings that came along with a repository say nothing.
    store_identity::is_confirmed(&repository, state.path()).then_some(repository)
}
