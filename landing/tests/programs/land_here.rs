//! Lands a commit as an engine would, and prints what came of it as JSON. It is a program of its own because
//! the tests kill it, stop it, run several at once, and run it as somebody else.
//!
//! `land_here key=value …` with `git`, `root`, `home`, `task`, `epoch`, `scope` (globs, split at commas) and
//! `candidate`; if need be `protocol` (kodingx), `term` (1), `target` (main), `lease` (the record of one that was taken before, which
//! is not taken again), `reopened`, `act` (merge, branch, none, claim or recover), and what to do to itself at a
//! moment: `kill`, `kill_group` or `stop`, each `Step:When`, with `:undo` when that is meant.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agency_landing::commit::{self, CommitMetadata, Signature};
use agency_landing::land::{self, LandOutcome};
use agency_landing::lease::{self, GitLease, LeaseResult};
use agency_landing::merge::{self, MergeOutcome};
use agency_landing::names::{Oid, RefName, TaskName};
use agency_landing::plan::{LandRequest, LandWork};
use agency_landing::repository::{LandingRepository, RepositoryOptions};
use agency_landing::steps::{LandMoment, StepPoint};
use agency_landing::{candidate, refs};
use agency_sandbox::scope::Scope;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use rustix::process::{Signal, getpgrp, getpid, kill_process, kill_process_group};
use serde_json::{Value, json};

#[allow(clippy::print_stdout)]
fn main() {
    let said = run().unwrap_or_else(|error| {
        let (mut text, mut cause) = (error.to_string(), error.source());
        while let Some(deeper) = cause {
            text.push_str(&format!(": {deeper}"));
            cause = deeper.source();
        }
        json!({ "outcome": "error", "error": text })
    });
    println!("{said}");
}

struct Arguments(Vec<String>);

impl Arguments {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find_map(|one| one.strip_prefix(key)?.strip_prefix('='))
    }

    fn needed(&self, key: &'static str) -> Result<&str, &'static str> {
        self.value(key).ok_or(key)
    }
}

fn run() -> Result<Value, Box<dyn Error>> {
    let arguments = Arguments(std::env::args().skip(1).collect());
    let repository = open(&arguments)?;
    let who = Signature::new("agency", "agency@localhost", 1_700_000_000, 0);
    let task = TaskName::new(arguments.value("protocol").unwrap_or("kodingx"), arguments.needed("task")?)?;
    let act = arguments.value("act").unwrap_or("merge");
    if act == "recover" {
        return Ok(json!({ "outcome": format!("{:?}", land::recover(&repository)?) }));
    }
    let lease = match claim(&arguments, &repository, &task)? {
        LeaseResult::Held(lease) => lease,
        LeaseResult::Lost { found } => return Ok(json!({ "outcome": "lost", "found": found })),
    };
    if act == "claim" {
        return Ok(json!({ "outcome": "claimed", "lease": lease.object }));
    }
    let commit = Oid::parse(arguments.needed("candidate")?)?;
    let kept = candidate::keep(&repository, &lease, &commit)?;
    if act == "none" {
        return Ok(json!({ "outcome": "kept", "kept": kept }));
    }
    let globs: Vec<&str> = arguments.needed("scope")?.split(',').collect();
    let scope = Scope::parse(&globs, &[])?;
    let engine =
        Engine { arguments: &arguments, repository: &repository, lease: &lease, scope: &scope, who: &who };
    match act {
        "branch" => engine.branch(&task.branch(), &commit),
        _ => engine.merge(&RefName::branch(arguments.value("target").unwrap_or("main"))?, &commit),
    }
}

fn open(arguments: &Arguments) -> Result<LandingRepository, Box<dyn Error>> {
    let root = PathBuf::from(arguments.needed("root")?);
    let bare = root.join("HEAD").exists();
    let found = match bare {
        true => {
            agency_sandbox::workspace::folder::RepositoryPaths { git: root.clone(), common: root.clone() }
        }
        false => WorkspaceFolder::discover(&root)?.repository.ok_or("no repository")?,
    };
    Ok(LandingRepository::open(&RepositoryOptions {
        program: Path::new(arguments.value("git").unwrap_or("git")),
        repository: &found,
        root: (!bare).then_some(root.as_path()),
        place: Path::new(arguments.needed("place")?),
        home: arguments.value("home").map(Path::new),
        patience: Duration::from_secs(60),
    })?)
}

fn claim(
    arguments: &Arguments,
    repository: &LandingRepository,
    task: &TaskName,
) -> Result<LeaseResult, Box<dyn Error>> {
    let epoch = arguments.value("epoch").unwrap_or("1").parse()?;
    let term = arguments.value("term").unwrap_or("1").parse()?;
    if let Some(object) = arguments.value("lease") {
        return Ok(LeaseResult::Held(GitLease {
            task: task.clone(),
            epoch,
            term,
            object: Oid::parse(object)?,
        }));
    }
    let expected = lease::read(repository, task)?.map(|last| last.lease.object);
    Ok(lease::take(repository, task, (epoch, term), expected.as_ref())?)
}

struct Engine<'a> {
    arguments: &'a Arguments,
    repository: &'a LandingRepository,
    lease: &'a GitLease,
    scope: &'a Scope,
    who: &'a Signature,
}

impl Engine<'_> {
    /// Merges and lands until the branch keeps still. An engine would verify in between.
    fn merge(&self, target: &RefName, candidate: &Oid) -> Result<Value, Box<dyn Error>> {
        let base = candidate::base_of(self.repository, candidate)?;
        loop {
            let at = refs::at(self.repository, target)?;
            let Some(tip) = &at else {
                let work = LandWork::Commit { commit: candidate, base: &base };
                return self.said(&self.land(target, None, work)?);
            };
            let outcome = match merge::merge_candidate(self.repository, &base, candidate, tip)? {
                MergeOutcome::Conflict { paths } => {
                    return Ok(json!({ "outcome": "conflict", "paths": paths }));
                }
                MergeOutcome::Contained => self.land(target, Some(tip), LandWork::Contained)?,
                MergeOutcome::Clean { .. } if *tip == base => {
                    self.land(target, Some(tip), LandWork::Commit { commit: candidate, base: &base })?
                }
                MergeOutcome::Clean { tree } => {
                    let commit = commit::write(self.repository, &tree, tip, &self.statement())?;
                    self.land(target, Some(tip), LandWork::Commit { commit: &commit, base: tip })?
                }
            };
            if !matches!(outcome, LandOutcome::Moved { .. }) {
                return self.said(&outcome);
            }
        }
    }

    fn branch(&self, target: &RefName, candidate: &Oid) -> Result<Value, Box<dyn Error>> {
        let base = candidate::base_of(self.repository, candidate)?;
        let at = refs::at(self.repository, target)?;
        self.said(&self.land(target, at.as_ref(), LandWork::Commit { commit: candidate, base: &base })?)
    }

    fn statement(&self) -> CommitMetadata<'_> {
        CommitMetadata {
            author: self.who,
            committer: self.who,
            subject: "Work",
            body: "",
            task: &self.lease.task,
            epoch: self.lease.epoch,
            verify: Some("V1"),
        }
    }

    fn land(
        &self,
        target: &RefName,
        expected: Option<&Oid>,
        work: LandWork<'_>,
    ) -> Result<LandOutcome, Box<dyn Error>> {
        let reopened_after = self.arguments.value("reopened").map(str::parse).transpose()?;
        let request = LandRequest {
            lease: self.lease,
            target,
            expected,
            work,
            scope: self.scope,
            reopened_after,
            who: self.who,
        };
        let mut observer = |moment: LandMoment| {
            let here = shown(&moment);
            let asked = |key: &str| self.arguments.value(key) == Some(&here);
            if asked("kill") {
                let _ = kill_process(getpid(), Signal::KILL);
            }
            if asked("kill_group") {
                let _ = kill_process_group(getpgrp(), Signal::KILL);
            }
            if asked("stop") {
                let _ = kill_process(getpid(), Signal::STOP);
            }
            ControlFlow::Continue(())
        };
        Ok(land::land_observed(self.repository, &request, &mut observer)?)
    }

    fn said(&self, outcome: &LandOutcome) -> Result<Value, Box<dyn Error>> {
        let mut said = serde_json::to_value(outcome)?;
        if let LandOutcome::Waits { obstacles } = outcome {
            said["text"] = obstacles.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n").into();
        }
        if let LandOutcome::Refused { refusal } = outcome {
            said["text"] = refusal.to_string().into();
        }
        Ok(said)
    }
}

/// `PlaceFiles:Before`, `PlaceFiles:Operated`, `PlaceIndex:After:undo`.
fn shown(moment: &LandMoment) -> String {
    let when = match moment.when {
        StepPoint::Before => "Before".to_owned(),
        StepPoint::After => "After".to_owned(),
        StepPoint::Within(step) => format!("{step:?}"),
    };
    format!("{:?}:{when}{}", moment.step, if moment.undoing { ":undo" } else { "" })
}
