//! Proves a folder as a caller of the library would, and prints what came of it as JSON.
//!
//! `prove_here key=value …` with `folder`, `logs`, `state`, and if need be `profiles`, `profile` (auto), `level`
//! (process), `commit`, `junit`, `aside`; `trusted` and `fail_fast` without a value.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agency_profiles::junit;
use agency_profiles::library::ProfileLibrary;
use agency_profiles::project_files::ProjectFiles;
use agency_profiles::prove::{self, ProofCandidate, ProofEvent, ProofRequest, ProveError};
use agency_sandbox::host::HostUser;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::workspace::folder::WorkspaceFolder;
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

    let host = HostUser::observe();
    let folder = WorkspaceFolder::discover(&needed("folder")?)?;
    let home = StateHome::at(&needed("state")?);
    let state = folder.state(&home)?;
    let profile = ProfileLibrary::new(path("profiles"))
        .resolve(value("profile").unwrap_or("auto"), &ProjectFiles::open(&folder.root)?)?;
    let variables: Vec<_> = std::env::vars_os().collect();
    let mut events = Vec::new();
    let proof = prove::prove(
        &ProofRequest {
            folder: &folder,
            candidate: value("commit").map_or(ProofCandidate::Live, ProofCandidate::Commit),
            level: match value("level") {
                Some("landlock") => IsolationLevel::Landlock,
                Some("container") => IsolationLevel::Container,
                _ => IsolationLevel::Process,
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
            attendant: &agency_sandbox::monitor::NoMonitor,
        },
        &profile,
        &mut |event| {
            events.push(match event {
                ProofEvent::Started { index, total, cmd, .. } => format!("{}/{total} {cmd}", index + 1),
                ProofEvent::Ended { index, total, command } => {
                    format!("{}/{total} {}", index + 1, command.ended)
                }
            });
        },
    )?;
    if let Some(file) = path("junit") {
        std::fs::write(file, junit::render(&proof))?;
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
