//! The sample: a small shop in shell, a Definition of Done, and four tasks for four agents.

use std::sync::Arc;

use agency_supervisor::settings::Committer;

use crate::app::error::CommandError;
use crate::app::front_end::FrontEnd;
use crate::app::scratch_repo::{ScratchRepo, ScratchTask, make_board, make_task};

/// A task of the demo.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DemoTask {
    pub(crate) id: &'static str,
    pub(crate) agent: &'static str,
    pub(crate) title: &'static str,
    pub(crate) scope: &'static str,
    /// What is shown with it.
    pub(crate) about: &'static str,
    pub(crate) should: ExpectedOutcome,
}

/// What should become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedOutcome {
    /// It lands at this attempt.
    Land(u64),
    /// Its work is refused, and this file is as it was.
    BeRefused(&'static str),
    /// It is stopped.
    BeStopped,
}

pub(crate) const TASKS: [DemoTask; 4] = [
    DemoTask {
        id: "T0001",
        agent: "good",
        title: "Say hello in Spanish",
        scope: "src/hello_es.sh",
        about: "does what it is told",
        should: ExpectedOutcome::Land(1),
    },
    DemoTask {
        id: "T0002",
        agent: "stray",
        title: "Write the guide",
        scope: "docs/guide.md",
        about: "strays out of its scope",
        should: ExpectedOutcome::BeRefused("docs/prices.md"),
    },
    DemoTask {
        id: "T0003",
        agent: "mend",
        title: "Round prices",
        scope: "src/round.sh",
        about: "is wrong at first",
        should: ExpectedOutcome::Land(2),
    },
    DemoTask {
        id: "T0004",
        agent: "hang",
        title: "Draw a logo",
        scope: "logo/**",
        about: "never ends",
        should: ExpectedOutcome::BeStopped,
    },
];

macro_rules! samples {
    ($($path:literal)*) => { [$(($path, include_str!(concat!("sample/", $path)))),*] };
}

const FILES: [(&str, &str); 10] = samples!(
    "README.md" "agency.toml" "src/price.sh" "docs/guide.md" "docs/prices.md" "tests/run.sh"
    "agents/good.sh" "agents/stray.sh" "agents/mend.sh" "agents/hang.sh"
);

const CONFIGURATION: &str = "agency.toml";

/// What was in a file when the demo began.
pub(super) fn original(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

/// In whose name the sample is committed, and what lands on it.
pub(super) fn committer() -> Committer {
    Committer { name: "You".to_owned(), email: "you@example.org".to_owned() }
}

/// Makes the repository, its board and its tasks.
pub(super) fn make(
    place: &ScratchRepo,
    image: Option<&str>,
    front_end: &Arc<dyn FrontEnd>,
) -> Result<(), CommandError> {
    for (path, text) in FILES {
        place.write(path, text)?;
    }
    if let (Some(image), Some(usual)) = (image, original(CONFIGURATION)) {
        place.write(CONFIGURATION, &format!("{usual}\n[container]\nimage = \"{image}\"\n"))?;
    }
    place.make_repository(&committer())?;
    let here = place.context(front_end)?;
    make_board(&here, &TASKS.map(|task| task.agent))?;
    place.write(".kodingx/dod/profiles/shop.yml", include_str!("sample/profile.yml"))?;
    for DemoTask { agent, title, scope, .. } in TASKS {
        make_task(&here, &ScratchTask { title, agent, scope, profile: "shop", body: None })?;
    }
    place.commit_all("A shop, and four tasks")
}
