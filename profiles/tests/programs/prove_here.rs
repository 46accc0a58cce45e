//! Proves a folder as a caller of the library would, and prints what came of it as JSON.
//!
//! `prove_here key=value …` with `folder`, `logs`, `state`, and if need be `profiles`, `profile` (auto), `level`
//! (process), `commit`, `junit`, `aside`; `trusted` and `fail_fast` without a value.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agency_profiles::junit;
use agency_profiles::library::Library;
use agency_profiles::prove::{self, Candidate, Event, Order, ProveError};
use agency_profiles::sight::Sight;
use agency_sandbox::host::Host;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::Level;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::state::{HOMELESS, StateHome};
use serde_json::json;

#[allow(clippy::print_stdout)]
fn main() -> ExitCode {
    let (code, said) = match run() {
        Ok(said) => (0, said),
        Err(error) => {
            let unavailable = error.downcast_ref::<ProveError>().is_some_and(ProveError::is_unavailable);
            (1, json!({ "error": chain(error.as_ref()), "unavailable": unavailable }))
        }
    };
    println!("{said:#}");
    ExitCode::from(code)
}

fn run() -> Result<serde_json::Value, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |key: &str| arguments.iter().find_map(|one| one.strip_prefix(key)?.strip_prefix('='));
    let path = |key: &str| value(key).map(PathBuf::from);
    let needed = |key: &'static str| path(key).ok_or(key);

    let host = Host::observe();
    let folder = Folder::around(&needed("folder")?)?;
    let home = StateHome::at(&needed("state")?);
    let state = folder.state(&home)?;
    let profile = Library::new(path("profiles"))
        .resolve(value("profile").unwrap_or("auto"), &Sight::of(&folder.root)?)?;
    let variables: Vec<_> = std::env::vars_os().collect();
    let mut events = Vec::new();
    let proof = prove::prove(
        &Order {
            folder: &folder,
            candidate: value("commit").map_or(Candidate::Live, Candidate::Commit),
            level: match value("level") {
                Some("landlock") => Level::Landlock,
                Some("container") => Level::Container,
                _ => Level::Process,
            },
            container: None,
            host: &host,
            state: &state,
            // Root's agents are nobody, who can't enter a test's private folders.
            copies: if host.is_root() { Path::new(HOMELESS) } else { home.path() },
            logs: &needed("logs")?,
            variables: &variables,
            handed: &[],
            trusted: arguments.iter().any(|one| one == "trusted"),
            fail_fast: arguments.iter().any(|one| one == "fail_fast"),
            prepared: None,
            aside: &value("aside")
                .map(|path| RelPath::parse(path.as_bytes()))
                .transpose()?
                .into_iter()
                .collect::<Vec<_>>(),
            clock: &|| jiff::Timestamp::UNIX_EPOCH,
            attendant: &agency_sandbox::supervise::Nobody,
        },
        &profile,
        &mut |event| {
            events.push(match event {
                Event::Started { index, total, cmd, .. } => format!("{}/{total} {cmd}", index + 1),
                Event::Ended { index, total, command } => format!("{}/{total} {}", index + 1, command.ended),
            });
        },
    )?;
    if let Some(file) = path("junit") {
        std::fs::write(file, junit::document(&proof))?;
    }
    Ok(json!({ "passed": proof.passed(), "proof": proof, "events": events }))
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
