//! What became of each task, told from what is seen when all is over: the board, the attempts, the branch.

#![allow(clippy::disallowed_methods, reason = "opens our own sample repository")]

use std::path::Path;

use agency_supervisor::attempt::{Attempt, AttemptEnd, FailureKind, Phase};
use serde::Serialize;

use super::sample_repo::{self, DemoTask, ExpectedOutcome, TASKS};
use crate::app::error::{CommandError, without_control_chars};
use crate::app::scratch_repo::ScratchRepo;

/// What became of a task.
#[derive(Debug, Serialize)]
pub(super) struct DemoOutcome {
    #[serde(skip)]
    task: DemoTask,
    id: &'static str,
    agent: &'static str,
    /// As the board has it.
    status: String,
    attempts: u64,
    /// The commit that has its work, and the files that changed there.
    commit: Option<String>,
    files: Vec<String>,
    /// Why its last attempt did not do, and of which kind that was.
    reason: Option<String>,
    #[serde(skip)]
    kind: Option<FailureKind>,
    /// What its agent wrote last, line by line.
    #[serde(skip)]
    words: Vec<String>,
    /// Whether what it must not change is as it was.
    kept: bool,
}

impl DemoOutcome {
    pub(super) fn of(place: &ScratchRepo, task: &DemoTask) -> Result<Self, CommandError> {
        let listed = place.agency_json(&["ps", "--all"])?;
        let attempts: Vec<Attempt> = serde_json::from_value(listed["attempts"].clone())
            .map_err(|error| CommandError::internal(&error))?;
        let last = attempts.into_iter().find(|attempt| attempt.task.id == task.id);
        let shown = place.agency_json(&["task", "show", task.id])?;
        let status = shown["task"]["status"].as_str().or(shown["status"].as_str());
        let ending = last.as_ref().and_then(|attempt| match &attempt.phase {
            Phase::Over(ending) => Some(ending.clone()),
            _ => None,
        });
        let commit = match &ending {
            Some(AttemptEnd::Done { commit }) => Some(commit.clone()),
            _ => None,
        };
        let files = match &commit {
            Some(commit) => place.git(&["show", "--name-only", "--format=", commit])?,
            None => String::new(),
        };
        let (kind, reason) = match ending {
            Some(AttemptEnd::Failed { failure, .. }) => (Some(failure.kind), Some(failure.reason)),
            Some(AttemptEnd::Blocked { reason } | AttemptEnd::Lost { reason }) => (None, Some(reason)),
            _ => (None, None),
        };
        let words = match &last {
            Some(_) => place.agency(&["logs", task.id])?,
            None => String::new(),
        };
        let kept = match task.should {
            ExpectedOutcome::BeRefused(path) => {
                std::fs::read_to_string(place.folder.join(path)).ok().as_deref()
                    == sample_repo::original(path)
            }
            ExpectedOutcome::Land(_) | ExpectedOutcome::BeStopped => true,
        };
        Ok(Self {
            task: *task,
            id: task.id,
            agent: task.agent,
            status: status.unwrap_or("gone").to_owned(),
            attempts: last.map_or(0, |attempt| attempt.epoch.0),
            commit,
            files: files.lines().map(str::to_owned).collect(),
            reason,
            kind,
            words: words.lines().map(without_control_chars).collect(),
            kept,
        })
    }

    /// Whether it came as it should.
    pub(super) fn is_as_it_should(&self) -> bool {
        match self.task.should {
            ExpectedOutcome::Land(attempt) => {
                self.status == "DONE" && self.attempts == attempt && self.files == [self.task.scope]
            }
            ExpectedOutcome::BeRefused(_) => {
                let refused = self.kind == Some(FailureKind::Scope);
                self.status == "BLOCKED" && refused && self.kept && self.commit.is_none()
            }
            ExpectedOutcome::BeStopped => self.status == "BLOCKED" && self.kind == Some(FailureKind::Stopped),
        }
    }

    fn text(&self) -> String {
        let DemoTask { id, agent, title, .. } = self.task;
        let mut text = format!("{id}  {title}, by `{agent}`: {}\n", self.status);
        let mut say = |words: &str| text.push_str(&format!("  {words}\n"));
        let reason = self.reason.as_deref().unwrap_or("nobody knows why");
        match (self.is_as_it_should(), self.task.should) {
            (true, ExpectedOutcome::Land(1)) => {
                say(&format!(
                    "It changed {}, which is its scope. The checks held on exactly that, and",
                    self.files.join(", ")
                ));
                say(&format!("it landed on main as {}.", self.short()));
            }
            (true, ExpectedOutcome::Land(_)) => {
                say(
                    "Its first work did not pass `sh tests/run.sh`. It was told so, went on from what it had,",
                );
                say(&format!("and what it did then landed on main as {}.", self.short()));
            }
            (true, ExpectedOutcome::BeRefused(path)) => {
                say("It tried more than its task. What it heard:");
                let refused = ["Read-only", "No such file", "cannot", "can't"];
                let heard = self.words.iter().filter(|line| refused.iter().any(|word| line.contains(word)));
                heard.take(3).for_each(|line| say(&format!("  {line}")));
                say(&format!(
                    "Then it changed {path}, beside the file it may change. That was seen when it had"
                ));
                say("ended, and nothing of it landed, not even its honest part.");
            }
            (true, ExpectedOutcome::BeStopped) => {
                say(&format!(
                    "It was stopped, {} times: {reason}. All its processes are gone.",
                    self.attempts
                ));
                say("Somebody has to look: `agency retry` would try it again.");
            }
            (false, _) => {
                say(&format!("That is not as it should be: {reason}."));
                say("Please tell us, with what `agency doctor --json` says.");
            }
        }
        text
    }

    fn short(&self) -> &str {
        self.commit.as_deref().map_or("", |commit| &commit[..commit.len().min(12)])
    }
}

/// What is about to be seen.
pub(super) fn opening(folder: &Path, run: &[&str]) -> String {
    let mut text = format!(
        "A shop in shell, in {}, and four tasks for four agents:\n\n",
        without_control_chars(&folder.display().to_string())
    );
    for DemoTask { id, agent, title, scope, about, .. } in TASKS {
        text.push_str(&format!("  {id}  {agent:<6} {title:<21} may change {scope:<16} {about}\n"));
    }
    text.push_str("\nWhat is done is proved by `sh tests/run.sh`, each time in a sandbox of its own.\n\n");
    text.push_str(&format!("$ agency {}\n", run.join(" ")));
    text
}

/// What was seen.
pub(super) fn whole(stories: &[DemoOutcome], folder: &Path) -> String {
    let mut text = "\nWhat happened\n\n".to_owned();
    for story in stories {
        text.push_str(&story.text());
        text.push('\n');
    }
    text.push_str(&format!(
        "Look around: cd {}\n  git log --oneline     what landed\n  agency status         the board\n  \
         agency logs T0002     what an agent wrote\n  cat agents/stray.sh   what it tried\n",
        without_control_chars(&folder.display().to_string())
    ));
    text
}
