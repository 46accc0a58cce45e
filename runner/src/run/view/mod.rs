//! The live view of a run, at a terminal: what has happened stays, line by line, and below it is drawn what goes on.
//!
//! What is drawn is a [`picture`] of what was heard, and of the last thing each agent wrote ([`tail`]). A thread of
//! its own draws it, a few times a second and only if it has changed.

pub(crate) mod canvas;
pub(crate) mod columns;
pub(crate) mod picture;
mod tail;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use agency_supervisor::attempt::{Attempt, Epoch, Phase};
use agency_supervisor::dispatch::Standing;
use agency_supervisor::life;
use agency_supervisor::notice::Notice;

use canvas::Pane;
use picture::Working;
use tail::Tail;

/// How often it is drawn at most.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// A run that is watched.
#[derive(Debug)]
pub(super) struct View {
    stage: Arc<Stage>,
    painter: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Stage {
    pane: Pane,
    /// Where records of attempts are.
    state: PathBuf,
    scene: Mutex<Scene>,
    wake: Condvar,
}

/// What is known of the run.
#[derive(Debug, Default)]
struct Scene {
    attempts: HashMap<String, Known>,
    standing: Standing,
    ended: bool,
}

#[derive(Debug)]
struct Known {
    epoch: Epoch,
    agent: String,
    /// Whose output is shown.
    errand: String,
    doing: &'static str,
    claimed_at: i64,
    tail: Tail,
}

impl View {
    pub(super) fn open(state: PathBuf) -> Self {
        let stage =
            Arc::new(Stage { pane: Pane::open(), state, scene: Mutex::default(), wake: Condvar::new() });
        let painted = Arc::clone(&stage);
        let painter = std::thread::Builder::new().name("view".to_owned()).spawn(move || painted.paint()).ok();
        Self { stage, painter: Mutex::new(painter) }
    }

    /// Takes note of what happens.
    pub(super) fn heed(&self, notice: &Notice) {
        let mut scene = self.stage.scene();
        match notice {
            Notice::Phase { attempt } | Notice::Adopted { attempt } => self.stage.know(&mut scene, attempt),
            Notice::Over { task, .. } => drop(scene.attempts.remove(&task.id)),
            Notice::Standing(standing) => scene.standing = standing.clone(),
            _ => {}
        }
    }

    /// Lets something be written that stays, above what is drawn.
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

impl Stage {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know(&self, scene: &mut Scene, attempt: &Attempt) {
        let doing = picture::doing(&attempt.phase);
        // Whoever judges is whom people watch meanwhile.
        let (agent, errand) = match &attempt.phase {
            Phase::Auditing(auditing) => (&auditing.audit.auditor, auditing.audit.errand()),
            _ => (&attempt.agent, "agent".to_owned()),
        };
        match scene.attempts.get_mut(&attempt.task.id) {
            Some(known) if known.epoch == attempt.epoch && known.errand == errand => known.doing = doing,
            _ => {
                let tail = Tail::of(life::records(&self.state, attempt).join(&errand).join("output.log"));
                let (epoch, agent, claimed_at) = (attempt.epoch, agent.clone(), attempt.claimed_at);
                let known = Known { epoch, agent, errand, doing, claimed_at, tail };
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

impl Scene {
    fn text(&mut self) -> String {
        let now = jiff::Timestamp::now().as_second();
        let working: Vec<Working> = self
            .standing
            .running
            .iter()
            .filter_map(|id| {
                let known = self.attempts.get_mut(id)?;
                Some(Working {
                    task: id.clone(),
                    agent: known.agent.clone(),
                    phase: known.doing,
                    seconds: u64::try_from(now - known.claimed_at).unwrap_or(0),
                    last: known.tail.line().to_owned(),
                })
            })
            .collect();
        let (width, height) = size();
        picture::lines(&working, &self.standing, width, height).join("\n")
    }
}

/// Whether somebody watches who has a terminal that can be drawn on, and nothing else writes there.
pub(crate) fn is_watched() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stderr().is_terminal()
        && set("TERM").is_some_and(|term| term != "dumb")
        && set("CI").is_none()
        && set("AGENCY_LOG").is_none()
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}
