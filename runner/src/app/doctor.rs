//! Which isolation levels work on this host.

use agency_sandbox::doctor::{self, HostCheck};
use serde::Serialize;

use crate::app::error::CommandError;

/// The isolation levels, and what was checked.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorAnswer {
    version: u32,
    pub(crate) process: bool,
    pub(crate) landlock: bool,
    pub(crate) container: bool,
    pub(crate) findings: Vec<HostCheck>,
}

/// A profile for AppArmor that gives this program alone user namespaces.
pub(crate) fn apparmor_profile() -> Result<String, CommandError> {
    let program = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    Ok(doctor::apparmor_profile(&program))
}

pub(crate) fn examine() -> DoctorAnswer {
    let mut findings = doctor::findings();
    // Only cgroups have a substitute; without any of the others there is no sandbox of the first level.
    let process = findings.iter().all(|finding| finding.ok || finding.name == "cgroups");
    let landlock = findings.iter().any(|finding| finding.ok && finding.name == "landlock");
    findings.push(doctor::git());
    findings.push(doctor::containers());
    findings.push(doctor::state_folder());
    let container = landlock && findings.iter().all(|finding| finding.ok || finding.name != "containers");
    DoctorAnswer { version: 1, process, landlock, container, findings }
}
