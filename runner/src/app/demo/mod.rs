//! The demo: a repository is made with a board of four tasks ([`sample_repo`]), each for an agent with a character of its
//! own; the queue is worked off as anybody's; and what became of it is what is seen afterwards ([`outcomes`]).

pub(crate) mod outcomes;
pub(crate) mod sample_repo;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agency_sandbox::policy::IsolationLevel;

use crate::app::error::CommandError;
use crate::app::front_end::FrontEnd;
use crate::app::isolation;
use crate::app::queue::{self, AttemptFilter};
use crate::app::run::{self, PreparedRun, RunRequest};
use crate::app::scratch_repo::ScratchRepo;
use outcomes::DemoOutcome;
use sample_repo::TASKS;

/// How many agents of the demo work at the same time: all of them.
pub(crate) const PARALLEL: u64 = 4;

/// What a demo is asked for.
pub(crate) struct DemoRequest {
    /// Where the sample repository is made; a new folder for temporary files where none is named.
    pub(crate) folder: Option<PathBuf>,
    /// The image of the containers that agents and checks run in, if they do.
    pub(crate) image: Option<String>,
}

/// A sample repository with its board and its tasks. It stays where it is made.
pub(crate) struct DemoRepo {
    place: ScratchRepo,
    level: Option<IsolationLevel>,
    front_end: Arc<dyn FrontEnd>,
}

impl DemoRepo {
    pub(crate) fn make(request: &DemoRequest, front_end: Arc<dyn FrontEnd>) -> Result<Self, CommandError> {
        let place = ScratchRepo::new("agency-demo", request.folder.as_deref())?;
        if let Some(image) = &request.image {
            isolation::check_image("--image", image)?;
        }
        sample_repo::make(&place, request.image.as_deref(), &front_end)?;
        let level = request.image.as_ref().map(|_| IsolationLevel::Container);
        Ok(Self { place, level, front_end })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// A run of all tasks.
    pub(crate) fn prepare(&self) -> Result<PreparedRun, CommandError> {
        let request = RunRequest {
            parallel: Some(PARALLEL),
            isolation: self.level,
            configuration: ScratchRepo::configuration(),
            committer: Some(sample_repo::committer()),
            ..RunRequest::default()
        };
        run::prepare(self.place.context(&self.front_end)?, &ScratchRepo::caller(), &request)
    }

    /// What became of each task.
    pub(crate) fn outcomes(&self) -> Result<Vec<DemoOutcome>, CommandError> {
        let here = self.place.context(&self.front_end)?;
        let attempts = queue::attempts(&here, AttemptFilter::Latest)?;
        TASKS.iter().map(|task| DemoOutcome::of(&self.place, &here, &attempts, task)).collect()
    }
}
