//! `agency read-claim`: reads what an agent wrote, for a shim. It may fail, and nothing else does.

use std::io::{self, Read, Write};

use agency_protocols::claim::{self, ClaimKind};
use agency_protocols::claim_reader;
use agency_protocols::detect::Protocol;
use agency_protocols::names::{AgentName, TaskId};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use crate::app::error::CommandError;

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
    let (Some(protocol), Some(kind)) = (Protocol::parse(protocol), ClaimKind::parse(kind)) else {
        return Err(CommandError::usage(format!("no {kind} is read for the protocol `{protocol}`")));
    };
    let named = |error: &dyn std::error::Error| CommandError::usage(error.to_string());
    let task = TaskId::parse(task).map_err(|error| named(&error))?;
    let agent = AgentName::parse(agent).map_err(|error| named(&error))?;
    let mut text = Vec::new();
    io::stdin().lock().take(claim::LONGEST_READ).read_to_end(&mut text).map_err(failed)?;
    let claim = claim_reader::read(protocol, kind, &task, &agent, &String::from_utf8_lossy(&text));
    let written = serde_json::to_vec(&claim).map_err(|error| CommandError::internal(&error))?;
    io::stdout().write_all(&written).map_err(failed)?;
    Ok(0)
}
