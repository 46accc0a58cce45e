//! The live view of a run, at a terminal: what has happened stays, line by line, and below it is drawn what goes on.
//!
//! What is drawn is a [`render`] of what was heard, and of the last thing each agent wrote ([`tail`]). A thread of
//! its own draws it, a few times a second and only if it has changed.

pub(crate) mod render;
mod tail;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use agency_supervisor::attempt::{Attempt, Epoch, Phase};
use agency_supervisor::run_event::QueueStatus;
use agency_supervisor::run_event::RunEvent;

use crate::app::queue::logs;
use crate::app::wording::phase_label;
use crate::cli::terminal::pane::TerminalPane;
use crate::cli::terminal::size;
use render::WorkingAgent;
use tail::LogTail;

/// Minimum time between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// The live view of a run.
#[derive(Debug)]
pub(super) struct LiveView {
    stage: Arc<ViewPainter>,
    painter: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct ViewPainter {
    pane: TerminalPane,
    /// The folder of the records of attempts.
    state: PathBuf,
    scene: Mutex<ViewModel>,
    wake: Condvar,
}

/// The state of the run.
#[derive(Debug, Default)]
struct ViewModel {
    attempts: HashMap<String, AttemptLine>,
    standing: QueueStatus,
    ended: bool,
}

#[derive(Debug)]
struct AttemptLine {
    epoch: Epoch,
    agent: String,
    /// Whose output is shown.
    job: String,
    doing: &'static str,
    claimed_at: i64,
    tail: LogTail,
}

impl LiveView {
    pub(super) fn open(state: PathBuf) -> Self {
        let stage = Arc::new(ViewPainter {
            pane: TerminalPane::open(),
            state,
            scene: Mutex::default(),
            wake: Condvar::new(),
        });
        let painted = Arc::clone(&stage);
        let painter = std::thread::Builder::new().name("view".to_owned()).spawn(move || painted.paint()).ok();
        Self { stage, painter: Mutex::new(painter) }
    }

    /// Takes note of what happens.
    pub(super) fn on_event(&self, notice: &RunEvent) {
        let mut scene = self.stage.scene();
        match notice {
            RunEvent::Phase { attempt } | RunEvent::Adopted { attempt } => {
                self.stage.know(&mut scene, attempt);
            }
            RunEvent::Over { task, .. } => drop(scene.attempts.remove(&task.id)),
            RunEvent::Standing(standing) => scene.standing = standing.clone(),
            _ => {}
        }
    }

    /// Writes a permanent line above the drawn area.
    pub(super) fn above(&self, write: impl FnOnce()) {
        self.stage.pane.above(write);
    }

    /// Takes everything off the terminal that does not stay.
    pub(super) fn close(&self) {
        self.stage.scene().ended = true;
        self.stage.wake.notify_all();
        let painter = self.painter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(painter) = painter {
            let _ = painter.join();
        }
        self.stage.pane.clear();
    }
}

impl ViewPainter {
    fn scene(&self) -> MutexGuard<'_, ViewModel> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know(&self, scene: &mut ViewModel, attempt: &Attempt) {
        let doing = phase_label(&attempt.phase);
        // Whoever judges is whom people watch meanwhile.
        let (agent, job) = match &attempt.phase {
            Phase::Auditing(auditing) => (&auditing.audit.auditor, auditing.audit.job_name()),
            _ => (&attempt.agent, "agent".to_owned()),
        };
        match scene.attempts.get_mut(&attempt.task.id) {
            Some(known) if known.epoch == attempt.epoch && known.job == job => known.doing = doing,
            _ => {
                let tail = LogTail::of(logs::file_of(&self.state, attempt, &job));
                let (epoch, agent, claimed_at) = (attempt.epoch, agent.clone(), attempt.claimed_at);
                let known = AttemptLine { epoch, agent, job, doing, claimed_at, tail };
                scene.attempts.insert(attempt.task.id.clone(), known);
            }
        }
    }

    fn paint(&self) {
        let mut scene = self.scene();
        while !scene.ended {
            let text = scene.text();
            // Whoever tells something does not wait for the terminal.
            drop(scene);
            self.pane.draw(&text);
            scene = self.scene();
            if !scene.ended {
                scene = self.wake.wait_timeout(scene, DRAW_EVERY).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl ViewModel {
    fn text(&mut self) -> String {
        let now = jiff::Timestamp::now().as_second();
        let working: Vec<WorkingAgent> = self
            .standing
            .running
            .iter()
            .filter_map(|id| {
                let known = self.attempts.get_mut(id)?;
                Some(WorkingAgent {
                    task: id.clone(),
                    agent: known.agent.clone(),
                    phase: known.doing,
                    seconds: u64::try_from(now - known.claimed_at).unwrap_or(0),
                    last: known.tail.line().to_owned(),
                })
            })
            .collect();
        let (width, height) = size();
        render::lines(&working, &self.standing, width, height).join("\n")
    }
}
