//! The sample: a small shop in shell, a Definition of Done, and four tasks for four agents.

use crate::app::error::CommandError;
use crate::app::scratch_repo::ScratchRepo;

/// A task of the demo.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemoTask {
    pub(super) id: &'static str,
    pub(super) agent: &'static str,
    pub(super) title: &'static str,
    pub(super) scope: &'static str,
    /// What is shown with it.
    pub(super) about: &'static str,
    pub(super) should: ExpectedOutcome,
}

/// What should become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedOutcome {
    /// It lands at this attempt.
    Land(u64),
    /// Its work is refused, and this file is as it was.
    BeRefused(&'static str),
    /// It is stopped.
    BeStopped,
}

pub(super) const TASKS: [DemoTask; 4] = [
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

/// Makes the repository, its board and its tasks.
pub(super) fn make(place: &ScratchRepo, image: Option<&str>) -> Result<(), CommandError> {
    for (path, text) in FILES {
        place.write(path, text)?;
    }
    if let (Some(image), Some(usual)) = (image, original(CONFIGURATION)) {
        place.write(CONFIGURATION, &format!("{usual}\n[container]\nimage = \"{image}\"\n"))?;
    }
    place.git(&["init", "--quiet", "--initial-branch=main"])?;
    for (key, value) in [("user.name", "You"), ("user.email", "you@example.org")] {
        place.git(&["config", key, value])?;
    }
    let builders: Vec<&str> = TASKS.iter().map(|task| task.agent).collect();
    place.agency(&["init", "--orchestrator", "other", "--builders", &builders.join(",")])?;
    place.write(".kodingx/dod/profiles/shop.yml", include_str!("sample/profile.yml"))?;
    for task in &TASKS {
        let what = ["task", "new", "--title", task.title, "--assignee", task.agent];
        let how = ["--must-touch", task.scope, "--dod-profile", "shop"];
        place.agency(&[&what[..], &how[..]].concat())?;
    }
    place.git(&["add", "--all"])?;
    place.git(&["commit", "--quiet", "--message", "A shop, and four tasks"])?;
    Ok(())
}
