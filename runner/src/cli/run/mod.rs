//! `agency run`: runs the board's tasks.
//!
//! This module parses and prints; `app::run` does the work. Events are printed in one of three ways ([`reporter`]), and
//! `--dry-run` prints what a run would do ([`mod@dry_run`]).

pub(crate) mod adopt;
pub(crate) mod control;
pub(crate) mod decide;
mod dry_run;
mod events;
pub(crate) mod logs;
mod progress;
pub(crate) mod ps;
pub(crate) mod read_claim;
mod reporter;
pub(crate) mod signals;
pub(crate) mod store;
mod summary_table;
pub(crate) mod view;

use std::path::Path;
use std::sync::Arc;

use agency_protocols::names::TaskId;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::dispatch::RunSummary;
use clap::{Args, ValueEnum};

use crate::app::board::{Caller, RepoContext, task_id};
use crate::app::error::CommandError;
use crate::app::run::dry_run::dry_run;
use crate::app::run::helper_programs::be_shim;
use crate::app::run::outcome::RunOutcome;
use crate::app::run::{self, LandingTarget, PreparedRun, RunRequest};
use crate::app::runtime;
use crate::app::units;
use crate::cli::caller::ConfigArgs;
use crate::cli::caller::IsolationArg;
use crate::cli::exit::{INTERRUPTED, OUT_OF_SCOPE, UNDONE, error_exit_code};
use crate::cli::telemetry::{self, TraceConfig};
use reporter::Reporter;

/// Run the board's tasks: each by its agent in a sandbox, verified, and landed
///
/// Agents start from the last commit of the checked-out branch; of uncommitted files they see only the board. Their work
/// lands on that branch if all of it is in scope and the task's checks pass on the merged tree. Ctrl-C lets running tasks
/// finish; a second Ctrl-C stops them. If `agency` is killed or gets SIGTERM, its agents keep working, and the next
/// `agency run` takes them over. A terminal shows a live view; a pipe gets one line for each event.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency run --parallel 4\n  agency run --task T0007 --land branch\n  agency run --dry-run\n\nExit codes: 0 if all is done, 10 if something is not, 20 if a change was out of scope, 2 for a mistake in\nthe arguments, the configuration or the repository's state, 130 if interrupted."
)]
pub(crate) struct RunArgs {
    /// Maximum number of agents at a time [default: run.parallel, or 1]
    #[arg(long, value_name = "N", value_parser = units::count)]
    parallel: Option<u64>,
    /// Only tasks of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only this task; may be repeated
    #[arg(long, value_name = "ID", value_parser = task_id)]
    task: Vec<TaskId>,
    /// Isolation level of agents [default: run.isolation, or process]
    #[arg(long, value_enum)]
    isolation: Option<IsolationArg>,
    /// Where work lands [default: run.land, or merge]
    #[arg(long, value_enum)]
    land: Option<LandArg>,
    /// Run only tasks that are ready now
    #[arg(long)]
    once: bool,
    /// Keep running when the queue is empty, and take up new tasks and reports
    #[arg(long, conflicts_with = "once")]
    watch: bool,
    /// Continue with other agents if one can't be started
    #[arg(long)]
    keep_going: bool,
    /// Only show what would start, what would start later, and why the rest would not
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    operator: ConfigArgs,
    /// Print one JSON object for each event (docs/events.md)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LandArg {
    /// On the checked-out branch
    Merge,
    /// On a separate branch `agency/ID`
    Branch,
    /// Nowhere: the work is verified and kept
    None,
}

impl From<LandArg> for LandingTarget {
    fn from(land: LandArg) -> Self {
        match land {
            LandArg::Merge => Self::Merge,
            LandArg::Branch => Self::Branch,
            LandArg::None => Self::None,
        }
    }
}

impl RunArgs {
    fn request(&self, here: &RepoContext, who: &Caller) -> Result<RunRequest, CommandError> {
        let tasks = self.task.iter().map(|typed| here.full_id(who, typed));
        Ok(RunRequest {
            tasks: tasks.collect::<Result<_, _>>()?,
            agent: self.agent.clone(),
            once: self.once,
            watch: self.watch,
            keep_going: self.keep_going,
            parallel: self.parallel,
            isolation: self.isolation.map(IsolationLevel::from),
            land: self.land.map(LandingTarget::from),
            configuration: self.operator.options(),
            committer: None,
        })
    }
}

pub(crate) fn run(command: &RunArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let trace = telemetry::trace_config(|name| std::env::var_os(name))?;
    let request = command.request(&here, who)?;
    if command.dry_run {
        return dry_run::tell(dry_run(here, who, &request)?, command.json);
    }
    attend(run::prepare(here, who, &request)?, trace, command.json)
}

/// Reports a run from its start to its end. Returns the exit code.
pub(crate) fn attend(
    prepared: PreparedRun,
    trace: Option<TraceConfig>,
    as_json: bool,
) -> Result<u8, CommandError> {
    let telemetry = telemetry::start(trace, &prepared.settings)?;
    let reporter = Arc::new(Reporter::new(as_json, &prepared.settings.state));
    let events = Arc::<Reporter>::clone(&reporter);
    let ended = runtime::run_to_end(async { prepared.work(events, signals::interrupts()?).await });
    // However it ended: the terminal is as it was.
    reporter.close();
    let ended = ended.map(|summary| {
        reporter.summary(&summary);
        code(&summary)
    });
    telemetry.end(match &ended {
        Ok(code) => *code,
        Err(error) => error_exit_code(error.kind),
    });
    ended
}

fn code(summary: &RunSummary) -> u8 {
    match RunOutcome::of(summary) {
        RunOutcome::Done => 0,
        RunOutcome::Undone => UNDONE,
        RunOutcome::OutOfScope => OUT_OF_SCOPE,
        RunOutcome::Interrupted => INTERRUPTED,
    }
}

/// The shim: a supervisor starts one for each sandbox.
pub(crate) fn shim(folder: &Path, term: u64) -> Result<u8, CommandError> {
    be_shim(folder, term, &mut std::io::stdout()).map(|()| 0)
}
