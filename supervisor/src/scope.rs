//! Scopes, with the names that this program obeys beside those that every tool obeys.

use agency_protocols::detect::STEERING;
use agency_sandbox::scope::{Author, GlobError, ProtectedName, Scope};

/// The file that says how agents are run.
const CONFIGURATION: &str = "agency.toml";

/// A scope of these globs, by this author.
pub fn parse<S: AsRef<str>>(write: &[S], deny: &[S], author: Author) -> Result<Scope, GlobError> {
    Ok(Scope::parse(write, deny)?.written_by(author).protecting(protected()))
}

/// What a scope has to spell, because it steers work.
pub fn protected() -> Vec<ProtectedName> {
    let own = std::iter::once((CONFIGURATION, true)).chain(STEERING.iter().copied());
    own.map(|(path, nested)| ProtectedName { path: path.to_owned(), nested, reader: "agency".to_owned() })
        .collect()
}
