//! What a person has changed and not committed, as far as git's index knows it.

use std::fs;

use agency_sandbox::path::RelPath;

use super::error::{Error, files as at, git};
use super::names::RefName;
use super::refs;
use super::repository::Repository;

/// The tracked files that differ from a branch. Our own git looks at a copy of the index: nothing that the
/// repository is configured to run is run for it.
pub fn files(repository: &Repository, branch: &RefName) -> Result<Vec<RelPath>, Error> {
    const DOING: &str = "compare the work tree with the branch";
    let Some(root) = &repository.root else { return Ok(Vec::new()) };
    let Some(found) = refs::read(repository, std::slice::from_ref(branch))?.remove(branch) else {
        return Ok(Vec::new());
    };
    let (index, copy) = (repository.real.git.join("index"), repository.place.join("uncommitted.index"));
    fs::copy(&index, &copy).map_err(at("copy", &index))?;
    let mut command = repository.objects.command(["diff-index", "--name-only", "--no-ext-diff", "-z"]);
    command.arg(found.at.as_str()).env("GIT_INDEX_FILE", &copy).env("GIT_WORK_TREE", root).current_dir(root);
    let output = agency_sandbox::git::OwnGit::run_with(command, "diff-index", |_| Ok::<(), Error>(()));
    let _ = fs::remove_file(&copy);
    let output = output.map_err(|error| match error {
        Error::Git { source, .. } => git(DOING)(source),
        other => other,
    })?;
    let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| RelPath::parse(name).map_err(|_| Error::Answer { doing: DOING })).collect()
}
