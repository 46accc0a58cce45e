//! `agency status --watch`: the status, again each time something changed.
//!
//! At a terminal it is drawn over the last one; elsewhere each comes after the other. A change of the store is seen at
//! once, an edit of the board within a second or two: to find it, the board has to be read.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::status::render;
use crate::app::board::{Caller, RepoContext};
use crate::app::error::CommandError;
use crate::app::status::{StoreWatch, status};
use crate::cli::caller::repository;
use crate::cli::exit::INTERRUPTED;
use crate::cli::output::print;
use crate::cli::prompt::TerminalFrontEnd;
use crate::cli::terminal::columns::cut;
use crate::cli::terminal::pane::TerminalPane;
use crate::cli::terminal::table::TableStyle;
use crate::cli::terminal::{is_drawable, size};

/// Interval between two looks at the store.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval between two readings of the board.
const READ_EVERY: Duration = Duration::from_secs(1);
/// A slow board is read less often: reading takes at most one part in this many of the time.
const READ_SHARE: u32 = 20;

pub(super) fn run(json: bool, who: &Caller) -> Result<u8, CommandError> {
    let here = repository()?;
    let screen = match !json && std::io::stdout().is_terminal() && is_drawable() {
        true => WatchScreen::Drawn(TerminalPane::open()),
        false => WatchScreen::Written,
    };
    let mut watch = StatusWatch { json, who, store: StoreWatch::new(&here)?, screen, last: String::new() };
    crate::app::runtime::new()?.block_on(async {
        let failed = |error: std::io::Error| CommandError::internal(&error);
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let ended = tokio::select! {
            _ = interrupted.recv() => Ok(INTERRUPTED),
            ended = watch.go_on(&here.folder.root) => ended.map(|()| 0),
        };
        watch.close()?;
        ended
    })
}

struct StatusWatch<'a> {
    json: bool,
    who: &'a Caller,
    store: StoreWatch,
    screen: WatchScreen,
    last: String,
}

enum WatchScreen {
    Drawn(TerminalPane),
    Written,
}

impl StatusWatch<'_> {
    /// Runs until the reader closes the pipe.
    async fn go_on(&mut self, root: &Path) -> Result<(), CommandError> {
        loop {
            let began = Instant::now();
            let (working, version) = self.store.working().await?;
            let here = RepoContext::from_folder(root, Arc::new(TerminalFrontEnd))?;
            let answer = status(&here, self.who, Some(&working))?;
            let told: String = match self.json {
                true => String::new(),
                false => answer.findings.iter().map(|finding| format!("{finding}\n")).collect(),
            };
            if !self.show(render(&answer, self.json, TableStyle::PLAIN) + &told)? {
                return Ok(());
            }
            let pause = READ_EVERY.max(began.elapsed() * READ_SHARE);
            while began.elapsed() < pause {
                sleep(LOOK_EVERY).await;
                if self.store.version().await? != version {
                    break;
                }
            }
        }
    }

    /// Shows a changed status; `false` if the reader has closed the pipe.
    fn show(&mut self, text: String) -> Result<bool, CommandError> {
        match &self.screen {
            WatchScreen::Drawn(pane) => {
                pane.draw(&fitting(&text));
                self.last = text;
            }
            WatchScreen::Written if text == self.last => {}
            WatchScreen::Written => {
                let mut out = std::io::stdout().lock();
                let apart = if self.json || self.last.is_empty() { "" } else { "\n" };
                match out.write_all(format!("{apart}{text}").as_bytes()).and_then(|()| out.flush()) {
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
                    written => written.map_err(|error| CommandError::internal(&error))?,
                }
                self.last = text;
            }
        }
        Ok(true)
    }

    /// Leaves the whole last status on the terminal.
    fn close(&self) -> Result<(), CommandError> {
        match &self.screen {
            WatchScreen::Drawn(pane) => {
                pane.clear();
                print(&self.last)
            }
            WatchScreen::Written => Ok(()),
        }
    }
}

/// The part of a text that fits on the terminal.
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
