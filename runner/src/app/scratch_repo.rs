//! A repository of our own, made to show or to try something.
//!
//! Neither the environment nor what somebody configured for themselves has a say in it: git is started without any of its
//! variables, and a run gets the configuration, the committer and the protocol as values.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use agency_protocols::board::ScopeAuthor;
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::actions::NewTask;
use agency_protocols::kodingx::adapters::Orchestrator;
use agency_protocols::kodingx::scaffold::{
    BoardComponent, OverwritePolicy, ScaffoldContext, ScaffoldOptions, scaffold,
};
use agency_protocols::kodingx::task::KodingXScope;
use agency_protocols::names::AgentName;
use agency_supervisor::settings::Committer;

use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::configuration::{ConfigOptions, UserConfiguration};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::front_end::FrontEnd;

/// A folder of our own, and how commands are given there.
pub(crate) struct ScratchRepo {
    pub(crate) folder: PathBuf,
}

/// A task for a repository that is made to show or to try something.
pub(crate) struct ScratchTask<'a> {
    pub(crate) title: &'a str,
    pub(crate) agent: &'a str,
    /// What has to change.
    pub(crate) scope: &'a str,
    pub(crate) profile: &'a str,
    /// The text of the task; a skeleton where there is none.
    pub(crate) body: Option<&'a str>,
}

impl ScratchRepo {
    /// A folder that is not there yet, or has nothing in it.
    pub(crate) fn new(name: &str, wanted: Option<&Path>) -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| CommandError::internal(&error);
        let folder = match wanted {
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
                if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
                    let what = format!("{} is not empty", folder.display());
                    return Err(CommandError::usage(what).with_hint("name a folder that is not there yet"));
                }
                folder.to_owned()
            }
            None => fresh(&std::env::temp_dir(), name).map_err(failed)?,
        };
        Ok(Self { folder: folder.canonicalize().map_err(failed)? })
    }

    /// Removes the folder when no user looks around in it any more.
    pub(crate) fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// What is configured there: what was just written needs no second look, and nobody's own configuration is read.
    pub(crate) fn configuration() -> ConfigOptions {
        ConfigOptions { config: None, trust: true, user: UserConfiguration::Ignored }
    }

    /// Who acts there: the orchestrator, on a board of KodingX.
    pub(crate) fn caller() -> Caller {
        Caller { protocol: Some(Protocol::Kodingx), actor: None }
    }

    /// The repository, as verbs see it.
    pub(crate) fn context(&self, front_end: &Arc<dyn FrontEnd>) -> Result<RepoContext, CommandError> {
        RepoContext::from_folder(&self.folder, Arc::clone(front_end))
    }

    /// A program, started there without what the environment says to git and to us.
    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_"))
        {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.env("XDG_CONFIG_HOME", self.folder.join(".git/none")).env_remove("AGENCY_PROTOCOL");
        command
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), CommandError> {
        let file = self.folder.join(path);
        let folder = file.parent().unwrap_or(&self.folder);
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, text));
        written.map_err(|error| CommandError::internal(&error))
    }

    /// What git said; that it fails is our own failure.
    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String, CommandError> {
        let internal = |what| CommandError::new_message(ErrorKind::Internal, what);
        let output = self
            .command(Path::new("git"), arguments)
            .output()
            .map_err(|error| internal(format!("`git` can't be started: {error}")))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(internal(format!("`git {}` failed: {why}", arguments.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes a repository of the folder. Whoever works in it later commits in the same name.
    pub(crate) fn make_repository(&self, committer: &Committer) -> Result<(), CommandError> {
        self.git(&["init", "--quiet", "--initial-branch=main"])?;
        self.git(&["config", "user.name", &committer.name])?;
        self.git(&["config", "user.email", &committer.email]).map(drop)
    }

    /// Commits all there is.
    pub(crate) fn commit_all(&self, message: &str) -> Result<(), CommandError> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message]).map(drop)
    }
}

/// Makes a board of KodingX with these builders, as `agency init` does where a repository shows no environment.
pub(crate) fn make_board(here: &RepoContext, builders: &[&str]) -> Result<(), CommandError> {
    let builders = builders.iter().map(|name| agent_name(name)).collect::<Result<Vec<_>, _>>()?;
    let options = ScaffoldOptions {
        orchestrator: Some(Orchestrator::Other),
        builders: Some(builders),
        ..ScaffoldOptions::default()
    };
    let name = here.folder.root.file_name();
    let surroundings = ScaffoldContext {
        project: name.map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned()),
        timezone: jiff::tz::TimeZone::system().iana_name().map(str::to_owned),
        environment: None,
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        profiles: Vec::new(),
    };
    let parts = &BoardComponent::FULL;
    here.update_files(|tree| {
        scaffold(tree, parts, OverwritePolicy::Never, &options, &surroundings, &here.now)
    })
    .map(drop)
}

/// Makes a task on the board.
pub(crate) fn make_task(here: &RepoContext, task: &ScratchTask<'_>) -> Result<(), CommandError> {
    let board = KodingX::open(here.tree()).map_err(board_error)?;
    let new = NewTask {
        assignee: Some(agent_name(task.agent)?),
        scope: KodingXScope {
            must_touch: vec![task.scope.to_owned()],
            author: ScopeAuthor::Person,
            ..KodingXScope::default()
        },
        dod_profile: Some(task.profile.to_owned()),
        body: task.body.map(str::to_owned),
        ..NewTask::titled(task.title)
    };
    here.update_files(|tree| board.new_task(tree, &new, &here.now)).map(drop)
}

fn agent_name(name: &str) -> Result<AgentName, CommandError> {
    AgentName::parse(name).map_err(|error| CommandError::new(ErrorKind::Usage, &error))
}

/// A new folder that no other process has.
fn fresh(parent: &Path, name: &str) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let number = std::process::id();
    for attempt in 0..1000 {
        let folder = parent.join(format!("{name}-{number}-{attempt}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}
