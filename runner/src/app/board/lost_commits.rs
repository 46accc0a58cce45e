//! Tasks that are done, and whose commit has left its branch: told by `lint` and `status`.

use agency_landing::lost_landings;
use agency_landing::repository::LandingRepository;
use agency_protocols::board_verbs::BoardVerbs;
use agency_protocols::finding::Finding;
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_supervisor::startup;
use agency_supervisor::store_identity;

use super::RepoContext;
use crate::app::state_folder;

/// A finding for each task that is done, in the file that has the task.
pub(crate) fn findings(here: &RepoContext, board: &dyn BoardVerbs) -> Vec<Finding> {
    // Where nothing of ours can be asked, nothing of ours has landed.
    let lost = opened(here).and_then(|repository| lost_landings::find(&repository).ok()).unwrap_or_default();
    let of_board = lost.into_iter().filter(|one| one.task.protocol() == board.protocol());
    of_board
        .filter_map(|one| {
            let id = TaskId::parse(one.task.id()).ok()?;
            let (file, section) = board.done_task(here.tree(), &id)?;
            Some(Finding::error(&file, None, section, format!("{id} {}", one.sentence())))
        })
        .collect()
}

/// The repository, where our own records in it are confirmed.
pub(crate) fn opened(here: &RepoContext) -> Option<LandingRepository> {
    let common = &here.folder.repository.as_ref()?.common;
    let state = state_folder::home().ok()?.existing(common)?;
    state_folder::check_writable(&here.folder).ok()?;
    let repository = startup::open_repository(&here.folder, state.path(), &HostUser::observe().home).ok()?;
    // Landings that came along with a repository say nothing.
    store_identity::is_confirmed(&repository, state.path()).then_some(repository)
}
