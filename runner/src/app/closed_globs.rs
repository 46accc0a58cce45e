//! Globs of a scope that seem to open a file and do not.

use agency_sandbox::harvest::protected;
use agency_sandbox::scope::Glob;

/// A sentence about a glob that does not open what it seems to open: files that tools obey have to be spelled.
pub(crate) fn closed_glob_message(glob: &str) -> Option<String> {
    let glob = Glob::parse(glob).ok()?;
    protected::unopened_name(&glob, &agency_supervisor::scope::protected_names())
}
