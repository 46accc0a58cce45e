//! Commits that take landed work back, found again in a branch's history.

use super::error::{Error, git};
use super::names::Oid;
use super::objects::ObjectReader;
use super::repository::LandingRepository;

/// Names the commit that was taken back.
pub(super) const TRAILER: &str = "Agency-Undo";

/// The commit on the branch that takes another one back, unless a person has reverted that one since.
pub(super) fn undone_by(
    repository: &LandingRepository,
    commit: &Oid,
    tip: &Oid,
) -> Result<Option<Oid>, Error> {
    let newest = |after: &Oid, line: &str| -> Result<Option<Oid>, Error> {
        let (grep, range) = (format!("--grep=^{line}"), format!("{after}..{tip}"));
        let found = repository.objects.run(["rev-list", "--max-count=1", &grep, &range]);
        let found = found.map_err(git("look for an undo"))?;
        let found = String::from_utf8_lossy(&found);
        let found = found.trim();
        if found.is_empty() { Ok(None) } else { Oid::parse(found).map(Some) }
    };
    let Some(mut last) = newest(commit, &format!("{TRAILER}: {commit}$"))? else { return Ok(None) };
    let mut is_undone = true;
    // What `git revert` writes. A revert of a revert brings the work back.
    while let Some(revert) = newest(&last, &format!("This reverts commit {last}"))? {
        (last, is_undone) = (revert, !is_undone);
    }
    Ok(is_undone.then_some(last))
}

/// Whether a commit takes a landed one back, with nothing between them.
pub(super) fn is_undo(
    repository: &LandingRepository,
    objects: &mut ObjectReader,
    landed: &Oid,
    commit: &Oid,
) -> Result<bool, Error> {
    let follows = objects.parents(commit)? == std::slice::from_ref(landed);
    Ok(follows && undone_by(repository, landed, commit)?.as_ref() == Some(commit))
}
