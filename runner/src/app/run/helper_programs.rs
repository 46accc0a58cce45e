//! The processes of our own that a run starts, and what they do: this very program, as a shim that holds a sandbox, and as
//! a reader of what an agent wrote.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use agency_protocols::claim::{self, ClaimKind};
use agency_protocols::claim_reader;
use agency_protocols::detect::Protocol;
use agency_protocols::names::{AgentName, TaskId};
use agency_supervisor::attempt::Term;
use agency_supervisor::job;
use agency_supervisor::job::claim_reader::ClaimReader;
use agency_supervisor::job::shim_client::ShimProgram;

use crate::app::error::CommandError;

/// What is started for each sandbox: `agency shim`.
pub(crate) fn shim() -> Result<ShimProgram, CommandError> {
    let program = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    Ok(ShimProgram { command: vec![program.into(), "shim".into()] })
}

/// `agency read-claim`: this program, whatever its file is called by now.
pub(super) fn claim_reader() -> ClaimReader {
    ClaimReader { command: ["/proc/self/exe", "read-claim"].map(OsString::from).to_vec() }
}

/// Holds the sandbox that an order in a folder asks for. Its supervisor reads from `out` that it is ready.
pub(crate) fn be_shim(folder: &Path, term: u64, out: &mut impl Write) -> Result<(), CommandError> {
    let done = job::shim::run(folder, Term(term), &claim_reader(), out);
    done.map_err(|error| CommandError::internal(&error))
}

/// Of a text that an agent wrote, no more is read.
pub(crate) const LONGEST_CLAIM: u64 = claim::LONGEST_READ;

/// What is to be read of a text that an agent wrote.
pub(crate) struct ClaimRequest<'a> {
    pub(crate) protocol: &'a str,
    /// A report or a verdict.
    pub(crate) kind: &'a str,
    pub(crate) task: &'a str,
    pub(crate) agent: &'a str,
}

impl ClaimRequest<'_> {
    /// The claim that a text makes, as JSON for a shim.
    pub(crate) fn read(&self, text: &[u8]) -> Result<Vec<u8>, CommandError> {
        let Self { protocol, kind, task, agent } = self;
        let (Some(protocol), Some(kind)) = (Protocol::parse(protocol), ClaimKind::parse(kind)) else {
            return Err(CommandError::usage(format!("no {kind} is read for the protocol `{protocol}`")));
        };
        let named = |error: &dyn std::error::Error| CommandError::usage(error.to_string());
        let task = TaskId::parse(task).map_err(|error| named(&error))?;
        let agent = AgentName::parse(agent).map_err(|error| named(&error))?;
        let claim = claim_reader::read(protocol, kind, &task, &agent, &String::from_utf8_lossy(text));
        serde_json::to_vec(&claim).map_err(|error| CommandError::internal(&error))
    }
}
