//! Runs a profile, and records the results as a proof.
//!
//! Every command gets a sandbox of its own: the candidate as it is, all of it writable, and discarded afterwards. So no
//! command depends on the leftovers of another or breaks them, and the folder stays as it was. A sandbox that can't be
//! started is an error; it is neither a pass nor a failure of the work.
//!
//! The calling process must have a single thread whenever a command is started.

mod command_run;
mod request;
mod subject;

use agency_sandbox::attest::{Attestation, ControlStatement};

pub use request::{ProofCandidate, ProofEvent, ProofRequest, ProveError};

use crate::proof::{self, CommandOutcome, CommandProof, Proof};
use crate::resolve::ResolvedProfile;
use command_run::CommandRun;
use request::ProofFolders;
use subject::ProofSubject;

/// Runs every command of a profile, and reports the progress.
pub fn prove(
    order: &ProofRequest<'_>,
    profile: &ResolvedProfile,
    tell: &mut dyn FnMut(ProofEvent<'_>),
) -> Result<Proof, ProveError> {
    if !order.trusted && !profile.untrusted().is_empty() {
        return Err(ProveError::NotTrusted {
            files: profile.untrusted().iter().map(|own| own.path.clone()).collect(),
        });
    }
    let site = ProofFolders::open(order)?;
    let started = (order.clock)();
    let subject = ProofSubject::observe(order, &site)?;
    let mut notes = [profile.notes(), &subject.notes].concat();
    let (mut commands, mut first) = (Vec::new(), None);
    let total = profile.steps().len();
    let mut enough = false;
    for (index, step) in profile.steps().iter().enumerate() {
        let attempt = CommandRun::new(order, &site, step)?;
        let cmd = attempt.redacted_command();
        if enough {
            commands.push(not_run(cmd));
            continue;
        }
        let log = order.logs.join(log_name(index, total, &cmd));
        tell(ProofEvent::Started { index, total, cmd: &cmd, log: &log });
        let ran = attempt.run(&subject, &log)?;
        let attestation = first.get_or_insert_with(|| ran.attestation.clone());
        notes.extend(ran.notes.iter().map(|note| format!("`{cmd}`: {note}")));
        let command = CommandProof {
            cmd,
            exit_code: ran.ended.exit_code(),
            duration_ms: u64::try_from(ran.elapsed.as_millis()).unwrap_or(u64::MAX),
            ended: ran.ended,
            log: Some(log),
            differs: differences(attestation, &ran.attestation),
        };
        tell(ProofEvent::Ended { index, total, command: &command });
        enough = order.fail_fast && !command.passed();
        commands.push(command);
    }
    let attestation = first.ok_or(ProveError::Nothing)?;
    let changed_meanwhile = subject.changed_paths(order)?;
    if let Some(path) = changed_meanwhile.first() {
        let count = changed_meanwhile.len();
        notes.push(format!("the folder was changed while it was proved ({count} files, {path} among them): not all commands saw the same tree"));
    }
    Ok(Proof {
        version: proof::VERSION,
        profile: profile.name().to_owned(),
        hash: profile.hash(),
        level: attestation.level,
        commit: subject.commit,
        tree: subject.tree,
        dirty: subject.dirty,
        started,
        finished: (order.clock)(),
        commands,
        attestation,
        changed_meanwhile,
        notes,
    })
}

fn not_run(cmd: String) -> CommandProof {
    let ended = CommandOutcome::NotRun;
    CommandProof { cmd, exit_code: None, duration_ms: 0, ended, log: None, differs: Vec::new() }
}

/// The controls whose state differs in the second attestation. Its wording may differ: the kernel's details change with
/// every sandbox.
fn differences(first: &Attestation, second: &Attestation) -> Vec<ControlStatement> {
    let same = |one: &ControlStatement| {
        first
            .statement(one.control)
            .is_some_and(|known| (known.requested, known.enforced) == (one.requested, one.enforced))
    };
    second.controls.iter().filter(|one| !same(one)).cloned().collect()
}

/// `01-pnpm-run-typecheck.log`
fn log_name(index: usize, total: usize, run: &str) -> String {
    const LONGEST: usize = 40;
    let words = run.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words {
        if !slug.is_empty() && slug.len() + 1 + word.len() > LONGEST {
            break;
        }
        slug.push_str(if slug.is_empty() { "" } else { "-" });
        slug.extend(word.chars().take(LONGEST));
    }
    let slug = if slug.is_empty() { "command".to_owned() } else { slug.to_ascii_lowercase() };
    let width = total.to_string().len().max(2);
    format!("{:0width$}-{slug}.log", index + 1)
}

#[cfg(test)]
mod tests {
    use agency_sandbox::attest::Enforcement;
    use agency_sandbox::control::Control;
    use agency_sandbox::policy::IsolationLevel;

    use super::*;

    #[test]
    fn a_log_is_named_after_its_command() {
        assert_eq!(log_name(0, 4, "pnpm typecheck"), "01-pnpm-typecheck.log");
        assert_eq!(log_name(9, 100, "cargo test --offline -- \"x\"/../y"), "010-cargo-test-offline-x-y.log");
        let long = "cargo clippy --workspace --all-targets --offline -- -D warnings";
        assert_eq!(log_name(1, 3, long), "02-cargo-clippy-workspace-all-targets.log");
        assert_eq!(log_name(1, 2, "!!!"), "02-command.log");
        assert!(log_name(0, 1, &"word ".repeat(50)).len() < 60);
        assert!(log_name(0, 1, &"x".repeat(500)).len() < 60);
    }
    fn attestation(memory: Enforcement, how: &str) -> Attestation {
        let statement =
            |control, enforced| ControlStatement { control, requested: true, enforced, how: how.into() };
        Attestation {
            version: 1,
            level: IsolationLevel::Process,
            kernel: "6.12".into(),
            container: None,
            controls: vec![
                statement(Control::Network, Enforcement::Enforced),
                statement(Control::Memory, memory),
            ],
        }
    }

    #[test]
    fn a_sandbox_that_holds_something_otherwise_is_told_apart_and_one_that_says_it_otherwise_is_not() {
        let first = attestation(Enforcement::Enforced, "net:[1]");
        assert!(differences(&first, &attestation(Enforcement::Enforced, "net:[2]")).is_empty());
        let watched = differences(&first, &attestation(Enforcement::Watched, "net:[3]"));
        assert_eq!(watched.iter().map(|one| one.control).collect::<Vec<_>>(), [Control::Memory]);
    }
}
