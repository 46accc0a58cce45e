//! Lists the tracked files that a person has changed and not committed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use agency_sandbox::path::RelPath;

use super::error::{Error, files as at, git};
use super::file_access::{read_file, unique_name};
use super::names::RefName;
use super::refs;
use super::repository::LandingRepository;

/// Larger than the index of any repository.
const LARGEST: u64 = 4 << 30;

/// The tracked files that differ from a branch. Our own git compares with a copy of the index, so no program runs that
/// the repository configures. It does not look into submodules, which are repositories with a configuration of their
/// own.
pub fn files(repository: &LandingRepository, branch: &RefName) -> Result<Vec<RelPath>, Error> {
    const DOING: &str = "compare the work tree with the branch";
    let Some(root) = &repository.root else { return Ok(Vec::new()) };
    let Some(found) = refs::read(repository, std::slice::from_ref(branch))?.remove(branch) else {
        return Ok(Vec::new());
    };
    let index = repository.real.git.join("index");
    let Some(contents) = read_file(&index, LARGEST).map_err(at("read", &index))? else {
        return Ok(Vec::new());
    };
    let copy = repository.place.join(format!("uncommitted.{}", unique_name()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy);
    if let Err(error) = file.and_then(|mut file| file.write_all(&contents)) {
        let _ = fs::remove_file(&copy);
        return Err(at("write", &copy)(error));
    }
    // Unlike `diff-index`, it compares the contents of files whose times differ: all files of a copied repository do.
    let arguments = [
        "diff",
        "--name-only",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=all",
        "-z",
    ];
    let mut command = repository.objects.command(arguments);
    command.arg(found.at.as_str()).env("GIT_INDEX_FILE", &copy).env("GIT_WORK_TREE", root).current_dir(root);
    let output = agency_sandbox::git::IsolatedGit::run_with(command, "diff", |_| Ok::<(), Error>(()));
    let _ = fs::remove_file(&copy);
    let output = output.map_err(|error| match error {
        Error::Git { source, .. } => git(DOING)(source),
        other => other,
    })?;
    let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| RelPath::parse(name).map_err(|_| Error::Answer { doing: DOING })).collect()
}
