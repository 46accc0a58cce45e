//! `agency status --watch`: the status, again each time something changed.
//!
//! At a terminal it is drawn over the last one; elsewhere each comes after the other. Somebody's change to the store
//! is seen at once, an edit of the board within a second or two: to find it, the board has to be read.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use agency_supervisor::attempt::Attempt;
use agency_supervisor::charge;
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::{Store, StoreError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::{Here, Who, print, status};
use crate::message::{Failure, INTERNAL, INTERRUPTED};
use crate::run::runtime;
use crate::run::view::canvas::Pane;
use crate::run::view::columns::cut;
use crate::run::view::{is_watched, size};
use crate::state;

/// How often the store is asked whether it has changed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the board is read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// A board that takes long to read is read less often: no more of the time than one part in so many.
const READ_SHARE: u32 = 20;

pub(super) fn run(json: bool, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let state = state::of(&here.folder)?;
    let screen = match !json && std::io::stdout().is_terminal() && is_watched() {
        true => Screen::Drawn(Pane::open()),
        false => Screen::Written,
    };
    let mut watch = Watch { json, who, state: state.path(), store: None, screen, last: String::new() };
    runtime()?.block_on(async {
        let failed = |error: std::io::Error| Failure::new(INTERNAL, &error);
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let ended = tokio::select! {
            _ = interrupted.recv() => Ok(INTERRUPTED),
            ended = watch.go_on(&here.folder.root) => ended.map(|()| 0),
        };
        watch.close()?;
        ended
    })
}

struct Watch<'a> {
    json: bool,
    who: &'a Who,
    state: &'a Path,
    /// There is none before the first run.
    store: Option<SqliteStore>,
    screen: Screen,
    last: String,
}

enum Screen {
    Drawn(Pane),
    Written,
}

impl Watch<'_> {
    /// Until nobody reads it any more.
    async fn go_on(&mut self, root: &Path) -> Result<(), Failure> {
        let failed = |error: StoreError| Failure::new(INTERNAL, &error);
        loop {
            let began = Instant::now();
            let (working, version) = self.working().await.map_err(failed)?;
            let (text, findings) = status::told(&Here::at(root)?, self.who, Some(&working), self.json)?;
            let told: String = match self.json {
                true => String::new(),
                false => findings.iter().map(|finding| format!("{finding}\n")).collect(),
            };
            if !self.show(text + &told)? {
                return Ok(());
            }
            let pause = READ_EVERY.max(began.elapsed() * READ_SHARE);
            while began.elapsed() < pause {
                sleep(LOOK_EVERY).await;
                if self.version().await.map_err(failed)? != version {
                    break;
                }
            }
        }
    }

    /// What is being worked on, and the version of the store that says so.
    async fn working(&mut self) -> Result<(Vec<Attempt>, Option<u64>), StoreError> {
        let version = self.version().await?;
        match &self.store {
            Some(store) => Ok((store.open().await?, version)),
            None => Ok((Vec::new(), None)),
        }
    }

    async fn version(&mut self) -> Result<Option<u64>, StoreError> {
        if self.store.is_none() && charge::store_path(self.state).exists() {
            self.store = Some(charge::open_store(self.state).await?);
        }
        match &self.store {
            Some(store) => store.version().await.map(Some),
            None => Ok(None),
        }
    }

    /// Shows what is new; `false` if nobody reads it.
    fn show(&mut self, text: String) -> Result<bool, Failure> {
        match &self.screen {
            Screen::Drawn(pane) => {
                pane.draw(&fitting(&text));
                self.last = text;
            }
            Screen::Written if text == self.last => {}
            Screen::Written => {
                let mut out = std::io::stdout().lock();
                let apart = if self.json || self.last.is_empty() { "" } else { "\n" };
                match out.write_all(format!("{apart}{text}").as_bytes()).and_then(|()| out.flush()) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
                    written => written.map_err(|error| Failure::new(INTERNAL, &error))?,
                }
                self.last = text;
            }
        }
        Ok(true)
    }

    /// What was drawn last stays, all of it.
    fn close(&self) -> Result<(), Failure> {
        match &self.screen {
            Screen::Drawn(pane) => {
                pane.clear();
                print(&self.last)
            }
            Screen::Written => Ok(()),
        }
    }
}

/// As much of it as the terminal has room for.
fn fitting(text: &str) -> String {
    let (width, height) = size();
    let lines: Vec<String> = text.lines().map(|line| cut(line, width)).collect();
    let room = height.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines.join("\n");
    }
    // What sums it up comes last.
    let (last, left) = (lines.last().cloned().unwrap_or_default(), lines.len() + 1 - room);
    let mut shown = lines[..room.saturating_sub(2)].to_vec();
    shown.extend([cut(&format!("… and {left} more"), width), last]);
    shown.join("\n")
}
