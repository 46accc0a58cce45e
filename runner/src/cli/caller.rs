//! What every command can be told about who acts and where.

use std::path::{Path, PathBuf};

use agency_protocols::detect::Protocol;
use agency_protocols::names::{Actor, TaskId};
use agency_sandbox::policy::IsolationLevel;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use crate::app::board::{Caller, RepoContext, protocol};
use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::{CommandError, ErrorKind};
use crate::cli::message;
use crate::cli::prompt::TerminalFrontEnd;

/// Who acts, and on which board.
#[derive(Debug, Clone, Args)]
pub(crate) struct CallerArgs {
    /// The protocol, if the repository has several
    #[arg(long, global = true, value_name = "NAME", value_parser = protocol, env = "AGENCY_PROTOCOL", hide_env = true,
        help_heading = "Board"
    )]
    protocol: Option<Protocol>,
    /// The actor: `orchestrator` (default), `human[:NAME]` or `agent:NAME`
    #[arg(long = "as", global = true, value_name = "WHO", value_parser = Actor::parse, help_heading = "Board")]
    actor: Option<Actor>,
}

impl From<CallerArgs> for Caller {
    fn from(CallerArgs { protocol, actor }: CallerArgs) -> Self {
        Self { protocol, actor }
    }
}

/// Configuration options of the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Use this configuration file instead of the repository's agency.toml
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    config: Option<PathBuf>,
    /// Trust the repository's own configuration and profiles this once
    #[arg(long, env = "AGENCY_TRUST", hide_env = true, value_parser = BoolishValueParser::new(), help_heading = "Configuration")]
    trust: bool,
}

impl ConfigArgs {
    pub(crate) fn options(&self) -> ConfigOptions {
        ConfigOptions { config: self.config.clone(), trust: self.trust, ..ConfigOptions::default() }
    }

    /// Loads the configuration of a folder, and prints its notices.
    pub(crate) fn load(&self, root: &Path) -> Result<Configuration, CommandError> {
        let configuration = Configuration::load(root, &self.options())?;
        message::notices(configuration.notices().to_vec());
        Ok(configuration)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// Namespaces, an overlay, Landlock and seccomp
    Process,
    /// A private copy, Landlock and seccomp, where namespaces are forbidden
    Landlock,
    /// A container of an image, with Landlock and seccomp in it
    Container,
}

impl From<IsolationArg> for IsolationLevel {
    fn from(isolation: IsolationArg) -> Self {
        match isolation {
            IsolationArg::Process => Self::Process,
            IsolationArg::Landlock => Self::Landlock,
            IsolationArg::Container => Self::Container,
        }
    }
}

/// The repository around the current folder; where there is none, the folder a board is in, or this one.
pub(crate) fn repository() -> Result<RepoContext, CommandError> {
    let current = std::env::current_dir().map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    RepoContext::from_folder(&current, std::sync::Arc::new(TerminalFrontEnd))
}

/// The same, and the task that is meant by an id as it was typed.
pub(crate) fn repository_with_task(
    who: &Caller,
    typed: &TaskId,
) -> Result<(RepoContext, TaskId), CommandError> {
    let here = repository()?;
    let id = here.full_id(who, typed)?;
    Ok((here, id))
}
