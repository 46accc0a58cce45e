//! How a run is told: to programs as events, at a terminal as a view that lives, and anywhere else line by line.

use std::path::Path;

use agency_supervisor::dispatch::Summary;
use agency_supervisor::notice::{Notice, Teller};

use super::progress::Progress;
use super::view::{self, View};
use super::{events, table};
use crate::message;

/// Whoever tells.
#[derive(Debug)]
pub(super) struct Voice {
    manner: Manner,
    progress: Progress,
}

#[derive(Debug)]
enum Manner {
    Events,
    Lines,
    Live(View),
}

impl Voice {
    pub(super) fn new(json: bool, state: &Path) -> Self {
        let manner = match json {
            true => Manner::Events,
            false if view::is_watched() => Manner::Live(View::open(state.to_owned())),
            false => Manner::Lines,
        };
        Self { manner, progress: Progress::default() }
    }

    /// Nothing more happens: what is drawn goes, and what was said stays.
    pub(super) fn close(&self) {
        if let Manner::Live(view) = &self.manner {
            view.close();
        }
    }

    /// What it all came to.
    pub(super) fn summary(&self, summary: &Summary) {
        match self.manner {
            Manner::Events => events::summary(summary),
            Manner::Lines => table::tell(summary, &self.progress, None),
            Manner::Live(_) => table::tell(summary, &self.progress, Some(view::size().0)),
        }
    }
}

impl Teller for Voice {
    fn tell(&self, notice: &Notice) {
        if let Manner::Events = self.manner {
            return events::tell(notice);
        }
        let sentence = self.progress.sentence(notice);
        match (&self.manner, sentence) {
            (Manner::Live(view), sentence) => {
                view.heed(notice);
                // How far an attempt is, is seen.
                if let Some(sentence) = sentence.filter(|_| !matches!(notice, Notice::Phase { .. })) {
                    view.above(|| message::notice(&sentence));
                }
            }
            (_, Some(sentence)) => message::notice(&sentence),
            (_, None) => {}
        }
    }
}
