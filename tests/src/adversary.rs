//! The adversary as a test sees it: where the program is, and what its report says.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use serde::{Deserialize, Serialize};

/// What came of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It worked, or what it leaves behind is in place.
    Succeeded,
    /// The kernel or a limit was in the way.
    Denied,
    /// The attack was at fault, and proves nothing.
    Error,
}

impl Outcome {
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Succeeded => 0,
            Self::Denied => 1,
            Self::Error => 2,
        }
    }
}

/// The line that an attack prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub attack: String,
    pub outcome: Outcome,
    pub errno: Option<i32>,
    pub detail: String,
}

/// An attack as `adversary list --json` describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub attack: String,
    pub group: String,
    /// What it tries, in the words of the list of escapes.
    pub escape: String,
    /// Names of the arguments, in order; those in brackets may be left out.
    pub arguments: Vec<String>,
    /// Whether it takes root for it to succeed without a sandbox.
    pub root: bool,
    /// Whether it may be carried out without a sandbox, and if not, why.
    pub native: bool,
    pub reason: Option<String>,
}

/// Why the output of a run is not a report.
#[derive(Debug)]
pub enum Unreported {
    /// It was killed before it could say anything.
    Killed { signal: i32 },
    /// There is no report in what it printed.
    NoReport { status: ExitStatus, stdout: String, stderr: String },
}

impl Report {
    /// The report in the output of a run, direct or through a sandbox: the last line that is one. What the
    /// exit code says is not compared, because a sandbox may have one of its own.
    pub fn from_output(output: &Output) -> Result<Self, Unreported> {
        let report = output
            .stdout
            .split(|byte| *byte == b'\n')
            .rev()
            // An attack that floods or escapes may have left bytes on the line.
            .filter_map(|line| {
                let start = line.windows(11).rposition(|part| part == b"{\"attack\":\"")?;
                serde_json::from_slice(&line[start..]).ok()
            })
            .next();
        match (report, output.status.signal()) {
            (Some(report), _) => Ok(report),
            (None, Some(signal)) => Err(Unreported::Killed { signal }),
            (None, None) => Err(Unreported::NoReport {
                status: output.status,
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    /// Whether the attack was denied, for one of these reasons.
    pub fn is_denied_with(&self, errnos: &[nix::errno::Errno]) -> bool {
        self.outcome == Outcome::Denied && errnos.iter().any(|errno| self.errno == Some(*errno as i32))
    }
}

/// Where the adversary was built.
pub fn binary() -> PathBuf {
    built("adversary", &["ADVERSARY_BIN", "CARGO_BIN_EXE_adversary", "NEXTEST_BIN_EXE_adversary"])
}

/// Where `agency` was built: `AGENCY_BIN`, or the folder of the tests' own programs.
pub fn agency() -> PathBuf {
    built("agency", &["AGENCY_BIN"])
}

/// Where the supervisor was built that kills or stops itself at a chosen moment.
pub fn supervisor() -> PathBuf {
    built("supervise_here", &["SUPERVISE_HERE_BIN"])
}

fn built(name: &str, variables: &[&str]) -> PathBuf {
    if let Some(path) = variables.iter().find_map(std::env::var_os) {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a test has a path");
    // target/PROFILE/deps/TEST, and the programs are in target/PROFILE.
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not built next to {}; build it, or set {}", test.display(), variables[0])
    })
}

/// A copy of the adversary in `folder`, for sandboxes that do not see where it was built.
pub fn install(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("adversary");
    copy_program(&binary(), &path)?;
    Ok(path)
}

/// Copies a program that is about to be run. Another process does it: were the copy open for writing in this
/// one, a thread that forks at that moment would pass the descriptor on, and to run it would fail with "text
/// file busy".
pub fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    let output = Command::new("cp").arg("--").arg(from).arg(to).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// An attack without a sandbox.
pub fn native<I: IntoIterator<Item: AsRef<OsStr>>>(attack: &str, arguments: I) -> Command {
    let mut command = Command::new(binary());
    command.arg(attack).args(arguments);
    command
}

/// Every attack there is.
pub fn list() -> Vec<Listed> {
    let output = native("list", ["--json"]).output().expect("the adversary starts");
    serde_json::from_slice(&output.stdout).expect("the adversary lists its attacks")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &[u8], status: i32) -> Output {
        Output { status: ExitStatus::from_raw(status), stdout: stdout.to_vec(), stderr: Vec::new() }
    }

    #[test]
    fn the_report_is_the_last_line_that_is_one_whatever_is_before_it() {
        let forged = b"{\"attack\":\"a\",\"outcome\":\"denied\",\"errno\":1,\"detail\":\"\"}\n";
        let real = b"\x1b[2Jxx{\"attack\":\"b\",\"outcome\":\"succeeded\",\"errno\":null,\"detail\":\"\"}\n";
        let report = Report::from_output(&output(&[&forged[..], real].concat(), 0)).expect("a report");
        assert_eq!((report.attack.as_str(), report.outcome), ("b", Outcome::Succeeded));
    }

    #[test]
    fn an_attack_that_was_killed_has_no_report_but_a_signal() {
        assert!(matches!(Report::from_output(&output(b"", 9)), Err(Unreported::Killed { signal: 9 })));
    }
}
