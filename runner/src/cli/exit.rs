//! Which exit code a command ends with.

use agency_protocols::finding::Finding;

use crate::app::error::ErrorKind;

pub(crate) const USAGE: u8 = 2;
pub(crate) const UNAVAILABLE: u8 = 3;
/// The command ended, and something is not done.
pub(crate) const UNDONE: u8 = 10;
/// A scope violation was refused.
pub(crate) const OUT_OF_SCOPE: u8 = 20;
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code of a command that failed.
pub(crate) fn error_exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Internal => 1,
        ErrorKind::Usage => USAGE,
        ErrorKind::Unavailable => UNAVAILABLE,
        ErrorKind::NoSuch => 4,
        ErrorKind::Undone => UNDONE,
        ErrorKind::SandboxFailed => 125,
        ErrorKind::Interrupted => INTERRUPTED,
    }
}

/// The exit code of a command that lists findings.
pub(crate) fn findings_exit_code(findings: &[Finding]) -> u8 {
    if findings.iter().any(Finding::is_error) { UNDONE } else { 0 }
}
