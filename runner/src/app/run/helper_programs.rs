//! The processes of our own that a run starts: this very program, as a shim that holds a sandbox, and as a reader of what
//! an agent wrote.

use std::ffi::OsString;

use agency_supervisor::job::claim_reader::ClaimReader;
use agency_supervisor::job::shim_client::ShimProgram;

use crate::app::error::CommandError;

/// What is started for each sandbox: `agency shim`.
pub(crate) fn shim() -> Result<ShimProgram, CommandError> {
    let program = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    Ok(ShimProgram { command: vec![program.into(), "shim".into()] })
}

/// `agency read-claim`: this program, whatever its file is called by now.
pub(crate) fn claim_reader() -> ClaimReader {
    ClaimReader { command: ["/proc/self/exe", "read-claim"].map(OsString::from).to_vec() }
}
