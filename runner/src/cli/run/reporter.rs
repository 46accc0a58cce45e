//! How a run is told: to programs as events, at a terminal as a view that lives, and anywhere else line by line.

use std::path::Path;

use agency_supervisor::dispatch::RunSummary;
use agency_supervisor::run_event::{EventSink, RunEvent};

use super::progress::RunProgress;
use super::view::LiveView;
use super::{events, summary_table};
use crate::cli::message;
use crate::cli::terminal;

/// How a run is reported.
#[derive(Debug)]
pub(super) struct Reporter {
    manner: ReportMode,
    progress: RunProgress,
}

#[derive(Debug)]
enum ReportMode {
    Events,
    Lines,
    Live(LiveView),
}

impl Reporter {
    pub(super) fn new(json: bool, state: &Path) -> Self {
        let manner = match json {
            true => ReportMode::Events,
            false if terminal::is_drawable() => ReportMode::Live(LiveView::open(state.to_owned())),
            false => ReportMode::Lines,
        };
        Self { manner, progress: RunProgress::default() }
    }

    /// Clears the live view; printed lines stay.
    pub(super) fn close(&self) {
        if let ReportMode::Live(view) = &self.manner {
            view.close();
        }
    }

    /// Prints the summary.
    pub(super) fn summary(&self, summary: &RunSummary) {
        match self.manner {
            ReportMode::Events => events::summary(summary),
            ReportMode::Lines => summary_table::tell(summary, &self.progress, None),
            ReportMode::Live(_) => summary_table::tell(summary, &self.progress, Some(terminal::size().0)),
        }
    }
}

impl EventSink for Reporter {
    fn tell(&self, notice: &RunEvent) {
        if let ReportMode::Events = self.manner {
            return events::tell(notice);
        }
        let sentence = self.progress.sentence(notice);
        match (&self.manner, sentence) {
            (ReportMode::Live(view), sentence) => {
                view.on_event(notice);
                // How far an attempt is, is seen.
                if let Some(sentence) = sentence.filter(|_| !matches!(notice, RunEvent::Phase { .. })) {
                    view.above(|| message::notice(&sentence));
                }
            }
            (_, Some(sentence)) => message::notice(&sentence),
            (_, None) => {}
        }
    }
}
