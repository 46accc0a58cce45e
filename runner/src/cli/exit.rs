//! Which exit code a command ends with.

use agency_protocols::finding::Finding;

use crate::app::error::UNDONE;

/// The code of a command that ended, and found something amiss.
pub(crate) fn findings_exit_code(findings: &[Finding]) -> u8 {
    if findings.iter().any(Finding::is_error) { UNDONE } else { 0 }
}
