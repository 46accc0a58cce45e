//! A tokio runtime for one command.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::app::error::CommandError;

/// How long what still waits for files or for git when a verb is over may take.
const LAST_WORK: Duration = Duration::from_secs(10);

/// A runtime of one thread, with a few more threads for calls that wait for files and for git.
pub(crate) fn new() -> Result<Runtime, CommandError> {
    let built = Builder::new_current_thread().enable_all().max_blocking_threads(8).build();
    built.map_err(|error| CommandError::internal(&error))
}

/// Lets a verb come to its end. A thread that waits for git ends as well, unless git does not.
pub(crate) fn run_to_end<T>(verb: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = new()?;
    let answer = runtime.block_on(verb);
    runtime.shutdown_timeout(LAST_WORK);
    answer
}
