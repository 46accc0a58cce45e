//! Scopes, with the names that this program obeys beside those that every tool obeys.

use agency_protocols::detect::STEERING_PATHS;
use agency_sandbox::scope::{GlobError, ProtectedName, Scope, ScopeOrigin};

/// The file that says how agents are run.
const CONFIGURATION: &str = "agency.toml";

/// A scope of these globs, by this author.
pub fn parse<S: AsRef<str>>(write: &[S], deny: &[S], author: ScopeOrigin) -> Result<Scope, GlobError> {
    Ok(Scope::parse(write, deny)?.with_origin(author).with_protected(protected_names()))
}

/// What a scope has to spell, because it steers work.
pub fn protected_names() -> Vec<ProtectedName> {
    let own = std::iter::once((CONFIGURATION, true)).chain(STEERING_PATHS.iter().copied());
    own.map(|(path, nested)| ProtectedName { path: path.to_owned(), nested, reader: "agency".to_owned() })
        .collect()
}
