//! Runs a profile's checks on the branch as it is, before an agent is paid for work that could not be verified.
//!
//! A check that needs a missing program, a setup that fails and a profile that can't be resolved would fail for every
//! task. So the first task of a profile waits until its checks have run once on the base: as a job of its own, in a
//! folder that is named after everything that decides the result. A result that another run can use is found there
//! again. A check that fails on the base for another reason is only a warning: a task may be there to fix it.
//!
//! Nothing depends on the job: it has a short lease, and stops by itself soon after its supervisor.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agency_landing::names::Oid;
use agency_landing::refs;
use agency_profiles::dependencies::suggest_setup;
use agency_profiles::library::ProfileLibrary;
use agency_profiles::project_files::ProjectFiles;
use agency_sandbox::erase;
use agency_sandbox::policy::{ContainerConfig, IsolationLevel};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::attempt::{Epoch, TaskKey, Term};
use crate::clock::{BootClock, Clock};
use crate::driver::{DriveError, RunContext, unexpected};
use crate::failed_commands::FailedCommands;
use crate::job::order::{self, JobKind, JobOrder, ProfileTrust, ProofOrder, WorkspaceSetup};
use crate::job::outcome::JobResult;
use crate::job::shim_client::ShimProgram;
use crate::job::{JobError, JobFolder, JobState, shim_client};
use crate::records;
use crate::run_event::{BaseCheck, RunEvent};
use crate::settings::RunSettings;
use crate::store::AttemptStore;

/// How long the job goes on without its supervisor, and how often it hears of it.
const LEASE: Duration = Duration::from_secs(20);
const BEAT: Duration = Duration::from_secs(5);
/// People are told what they wait for when it takes so long.
const LONG: Duration = Duration::from_secs(5);
/// How often another run that does the same may come in between.
const OTHERS: usize = 3;
/// The file, in the state folder, that is locked by who orders checks, and how long it is waited for.
const LOCK: &str = "base-checks.lock";
const PATIENCE: Duration = Duration::from_secs(10);
/// Folders of a repository that a setup fills.
const INSTALLED: [&str; 4] = [".venv", "venv", "node_modules", "vendor"];
/// What a cargo that may not fetch says.
const OFFLINE: [&str; 2] = ["but --offline was specified", "offline mode (--offline)"];
/// What an interpreter says of a package that is not installed, before its name.
const NO_PACKAGE: [&str; 3] = ["No module named ", "Cannot find module ", "Cannot find package "];

/// What decides the result, beside the tree.
#[derive(Serialize)]
struct CheckKey<'a> {
    tree: &'a str,
    profile: &'a str,
    /// What it is resolved to in the work tree, or why it can't be.
    resolved: &'a str,
    /// A profile that is trusted this once would be refused in the next run.
    trust: &'a ProfileTrust,
    setup: Option<&'a WorkspaceSetup>,
    level: IsolationLevel,
    container: Option<&'a ContainerConfig>,
}

/// What is known before checks run.
enum Preparation {
    Known(BaseCheck),
    /// Another run is at it.
    Running,
    Ordered,
}

/// What the checks of a commit need to know of the run, or of the verb, that asks for them.
pub struct CheckContext<'a> {
    pub settings: &'a RunSettings,
    pub shim: &'a ShimProgram,
    pub protocol: &'a str,
    /// The folder of the repository's own profiles, relative to the work tree.
    pub profiles: Option<&'a str>,
    pub term: Term,
    /// Called once when the checks take a while.
    pub on_long: &'a (dyn Fn() + Sync),
}

impl std::fmt::Debug for CheckContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckContext").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Runs the checks of a profile on the branch as it is, or finds what they came to.
pub(crate) async fn check<S: AttemptStore>(
    context: &RunContext<S>,
    profile: &str,
) -> Result<BaseCheck, DriveError> {
    let base = base_of(context).await?;
    let on_long = || context.events.tell(&RunEvent::CheckingBase { profile: profile.to_owned() });
    let checks = CheckContext {
        settings: &context.settings,
        shim: &context.shim,
        protocol: context.board_thread.protocol,
        profiles: context.board_thread.profiles,
        term: context.terms.newest(),
        on_long: &on_long,
    };
    checks.check_commit(profile, &base).await
}

/// A commit and its tree.
#[derive(Debug, Clone)]
pub struct CheckedCommit {
    pub commit: Oid,
    pub tree: Oid,
}

/// The commit that agents start from.
async fn base_of<S>(context: &RunContext<S>) -> Result<CheckedCommit, DriveError> {
    let (repository, branch) = (context.repository.clone(), context.settings.branch.clone());
    let look = move || -> Result<Option<CheckedCommit>, agency_landing::Error> {
        let Some(commit) = refs::at(&repository, &branch)? else { return Ok(None) };
        let tree = refs::tree_of(&repository, &commit)?;
        Ok(Some(CheckedCommit { commit, tree }))
    };
    let found = tokio::task::spawn_blocking(look).await.map_err(|_| unexpected("a thread broke"))?;
    found?.ok_or_else(|| unexpected("the branch has no commit to start from"))
}

impl CheckContext<'_> {
    /// Runs the checks of a profile on a commit that was landed or judged before, or finds what they came to.
    pub async fn check_commit(&self, profile: &str, base: &CheckedCommit) -> Result<BaseCheck, DriveError> {
        let place = JobFolder::new(self.folder(profile, &base.tree));
        // Another run may forget what this one came to before it is read.
        for _ in 0..OTHERS {
            match self.prepare(&place, profile, base).await? {
                Preparation::Known(found) => return Ok(found),
                Preparation::Running => {}
                Preparation::Ordered => self.carry_out(&place).await?,
            }
            while matches!(place.state()?, JobState::Alive) {
                shim_client::wait_until_gone(&place).await?;
                // It has its lock for a moment longer than its socket.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // What another run found just now is not too old either.
            if let JobState::Over(outcome) = place.state()? {
                return Ok(judge(&outcome.done, self.settings));
            }
        }
        Ok(BaseCheck::Untried { why: "the checks were stopped".to_owned() })
    }

    /// Looks for a result that may be believed, and orders the checks where there is none. Runs do so one after the
    /// other: none removes what another one has ordered meanwhile.
    async fn prepare(
        &self,
        place: &JobFolder,
        profile: &str,
        base: &CheckedCommit,
    ) -> Result<Preparation, DriveError> {
        let _turn = self.take_turn().await?;
        match place.state()? {
            JobState::Over(outcome) => {
                let found = judge(&outcome.done, self.settings);
                if found.is_kept() {
                    return Ok(Preparation::Known(found));
                }
                forget(place)?;
            }
            JobState::Lost => forget(place)?,
            JobState::Alive => return Ok(Preparation::Running),
            JobState::Unordered | JobState::Waiting => {}
        }
        place.order(&self.order(profile, &base.commit))?;
        Ok(Preparation::Ordered)
    }

    /// The turn of this process, until the file is closed. A run that was stopped with it is not waited for much longer
    /// than it takes.
    async fn take_turn(&self) -> Result<File, DriveError> {
        let path = self.settings.state.join(LOCK);
        let failed = |source: std::io::Error| JobError::File { doing: "lock", path: path.clone(), source };
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(failed)?;
        let until = Instant::now() + PATIENCE;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::AGAIN {
                return Err(failed(error.into()).into());
            }
            if Instant::now() >= until {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(lock)
    }

    fn folder(&self, profile: &str, tree: &Oid) -> PathBuf {
        let settings = self.settings;
        let own = self.profiles.map(|folder| settings.root.join(folder));
        let resolved = ProjectFiles::open(&settings.root)
            .map_err(|error| error.to_string())
            .and_then(|files| {
                ProfileLibrary::new(own).resolve(profile, &files).map_err(|error| error.to_string())
            })
            .map_or_else(|why| why, |resolved| resolved.hash());
        let key = CheckKey {
            tree: tree.as_str(),
            profile,
            resolved: &resolved,
            trust: &settings.trust,
            setup: settings.setup.as_ref(),
            level: settings.level,
            container: settings.container.as_ref(),
        };
        // Strings and numbers always become JSON.
        let digest = Sha256::digest(serde_json::to_vec(&key).unwrap_or_default());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        settings.state.join(records::BASE_CHECKS).join(name)
    }

    fn order(&self, profile: &str, commit: &Oid) -> JobOrder {
        let settings = self.settings;
        let proof = ProofOrder {
            commit: commit.to_string(),
            judged_by: commit.to_string(),
            profile: profile.to_owned(),
            profiles: self.profiles.map(str::to_owned),
            trust: settings.trust.clone(),
            setup: settings.setup_order([commit.as_str()]),
        };
        JobOrder {
            version: order::VERSION,
            task: TaskKey { protocol: self.protocol.to_owned(), id: "base".to_owned() },
            epoch: Epoch(0),
            root: settings.root.clone(),
            state: settings.state.clone(),
            copies: settings.copies.clone(),
            level: settings.level,
            container: settings.container.clone(),
            trace: None,
            what: JobKind::Proof(Box::new(proof)),
        }
    }

    /// Sends a shim, and stays with it until it is gone.
    async fn carry_out(&self, place: &JobFolder) -> Result<(), DriveError> {
        let waiting = match self.shim.send(place, self.term).await {
            Ok(waiting) => waiting,
            // Another run's shim is at it.
            Err(JobError::NotReady { said }) if said.is_empty() => {
                return Ok(shim_client::wait_until_gone(place).await?);
            }
            Err(error) => return Err(error.into()),
        };
        let begun = waiting.begin(self.term, BootClock.now() + LEASE).await;
        begun.map_err(|source| JobError::Start { source })?;
        let (gone, long) = (shim_client::wait_until_gone(place), tokio::time::sleep(LONG));
        tokio::pin!(gone, long);
        let (mut beat, mut is_told) = (tokio::time::interval(BEAT), false);
        loop {
            tokio::select! {
                gone = &mut gone => return Ok(gone?),
                () = &mut long, if !is_told => {
                    is_told = true;
                    (self.on_long)();
                }
                // A shim that does not answer is about to be gone.
                _ = beat.tick() => drop(shim_client::renew(place, self.term, BootClock.now() + LEASE).await),
            }
        }
    }
}

fn judge(done: &JobResult, settings: &RunSettings) -> BaseCheck {
    match done {
        JobResult::Proof(proof) if proof.evidence.passed => BaseCheck::Passed,
        JobResult::Proof(proof) => match FailedCommands::of(&proof.evidence) {
            Some(failed) => judge_failed(&failed, settings),
            None => BaseCheck::Untried { why: proof.evidence.notes.join("; ") },
        },
        JobResult::NotRun { reason, hint, .. } => {
            BaseCheck::Unfit { why: reason.clone(), log: None, hint: hint.clone() }
        }
        JobResult::NoRoom { reason }
        | JobResult::Away { reason }
        | JobResult::Lost { reason }
        | JobResult::Unread { reason } => BaseCheck::Untried { why: reason.clone() },
        JobResult::Stopped | JobResult::Agent(_) => BaseCheck::Untried { why: "it was stopped".to_owned() },
    }
}

/// Whether checks that fail would fail for every task.
fn judge_failed(failed: &FailedCommands, settings: &RunSettings) -> BaseCheck {
    let suggested = match settings.setup {
        Some(_) => None,
        None => ProjectFiles::open(&settings.root).ok().and_then(|files| suggest_setup(&files)),
    };
    let lacks_packages = suggested.is_some()
        && missing_packages(failed.quoted()).any(|package| !is_of_repository(package, &settings.root));
    let lacks_crates = OFFLINE.iter().any(|sign| failed.quoted().contains(sign));
    let lacks_program = failed.without_program().is_some_and(|command| !starts_own_file(command));
    if !lacks_packages && !lacks_crates && !lacks_program {
        return BaseCheck::Failing { what: failed.to_string(), log: failed.log() };
    }
    let hint = match suggested {
        Some(setup) => format!("add to agency.toml, below [workspace]: {}", setup.to_toml()),
        None if lacks_crates => {
            "run `cargo fetch` once: a sandbox sees ~/.cargo and has no network".to_owned()
        }
        None => "install the program, or let `[workspace] setup` in agency.toml install it".to_owned(),
    };
    BaseCheck::Unfit { why: failed.to_string(), log: failed.log(), hint: Some(hint) }
}

/// Whether a command starts a file of the repository: a task may be there to write it.
fn starts_own_file(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    let folder = program.trim_start_matches("./").split('/').next().unwrap_or_default();
    program.contains('/') && !program.starts_with(['/', '~', '$']) && !INSTALLED.contains(&folder)
}

/// The packages that an output misses.
fn missing_packages(output: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "'\"`;,".contains(c);
    NO_PACKAGE.iter().flat_map(move |sign| {
        output.split(sign).skip(1).map(move |rest| {
            let name = rest.trim_start_matches(ends);
            name.split(ends).next().unwrap_or_default()
        })
    })
}

/// Whether a module is one of the repository's own files: a task may be there to write it.
fn is_of_repository(module: &str, root: &Path) -> bool {
    let is_path = module.is_empty() || module.starts_with(['.', '/']);
    let package = module.split(['.', '/']).next().unwrap_or_default();
    let lies_in = |folder: &str| {
        let at = root.join(folder).join(package);
        at.symlink_metadata().is_ok() || at.with_extension("py").symlink_metadata().is_ok()
    };
    is_path || lies_in("") || lies_in("src")
}

fn forget(place: &JobFolder) -> Result<(), DriveError> {
    let path = place.path();
    erase::tree(path)
        .map_err(|source| JobError::File { doing: "remove", path: path.to_owned(), source }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_a_task_may_write_is_no_missing_package() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("src/shop")).expect("made");
        std::fs::write(folder.path().join("tool.py"), "").expect("written");
        for (output, of_repository) in [
            ("Error: Cannot find module './sum' Require stack: - /work/test.js", true),
            ("error TS2307: Cannot find module '../lib/a' or its types", true),
            ("ModuleNotFoundError: No module named 'shop.prices'", true),
            ("No module named tool.x", true),
            ("Error: Cannot find module 'express' Require stack:", false),
            ("Cannot find package '@x/y' imported from a.js", false),
            ("/usr/bin/python3: No module named pytest", false),
        ] {
            let found: Vec<bool> =
                missing_packages(output).map(|name| is_of_repository(name, folder.path())).collect();
            assert_eq!(found, [of_repository], "{output}");
        }
        assert_eq!(missing_packages("3 of 4 tests failed").count(), 0);
        for (command, is_own) in [
            ("./scripts/test.sh --all", true),
            ("scripts/test.sh", true),
            ("jest", false),
            ("node_modules/.bin/jest", false),
            ("./.venv/bin/pytest", false),
            ("/opt/x/bin/y", false),
        ] {
            assert_eq!(starts_own_file(command), is_own, "{command}");
        }
    }
}
