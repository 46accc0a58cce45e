//! A tokio runtime for one command.

use tokio::runtime::{Builder, Runtime};

use crate::app::error::CommandError;

/// A runtime of one thread, with a few more threads for calls that wait for files and for git.
pub(crate) fn new() -> Result<Runtime, CommandError> {
    let built = Builder::new_current_thread().enable_all().max_blocking_threads(8).build();
    built.map_err(|error| CommandError::internal(&error))
}
