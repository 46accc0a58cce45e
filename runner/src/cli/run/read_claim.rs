//! `agency read-claim`: reads what an agent wrote, for a shim. It may fail, and nothing else does.

use std::io::{self, Read, Write};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use crate::app::error::CommandError;
use crate::app::run::helper_programs::{ClaimRequest, LONGEST_CLAIM};

/// Its limit of processor time in seconds, in case its parent is gone.
const SECONDS: u64 = 20;

pub(crate) fn run(about: &[String]) -> Result<u8, CommandError> {
    let [protocol, kind, task, agent] = about else {
        return Err(CommandError::usage("a protocol, a kind, a task and an agent are needed"));
    };
    let failed = |error: io::Error| CommandError::internal(&error);
    // It is not to outlive its shim. Neither of them is needed where it comes to its end.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    for (resource, most) in [(Resource::Cpu, SECONDS), (Resource::Core, 0)] {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    let mut text = Vec::new();
    io::stdin().lock().take(LONGEST_CLAIM).read_to_end(&mut text).map_err(failed)?;
    let claim = ClaimRequest { protocol, kind, task, agent }.read(&text)?;
    io::stdout().write_all(&claim).map_err(failed)?;
    Ok(0)
}
