//! One tiny task, done for real by an agent in a repository that is thrown away.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agency_protocols::board::RecordedUsage;
use agency_protocols::kodingx::KodingX;
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_supervisor::attempt::AttemptEnd;
use agency_supervisor::dispatch::{Interrupt, RunSummary};
use agency_supervisor::run_event::{EventSink, RunEvent};
use agency_supervisor::settings::Committer;
use tokio::sync::mpsc;
use toml::Table;

use crate::app::agents::definition::AgentDefinition;
use crate::app::agents::{readiness, unknown_agent_error, untrusted_agent_error};
use crate::app::configuration::Configuration;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::front_end::{FrontEnd, NoticesOnly};
use crate::app::isolation;
use crate::app::queue::{self, AttemptFilter, logs};
use crate::app::run::outcome::RunOutcome;
use crate::app::run::{self, RunRequest};
use crate::app::runtime;
use crate::app::scratch_repo::{ScratchRepo, ScratchTask, make_board, make_task};
use crate::app::state_folder;

/// The file the agent is to write, and what it is to say.
const FILE: &str = "hello.txt";
const WORDS: &str = "hello from the sandbox";
const TASK: &str = "T0001";

/// Which agent is tried.
pub(crate) struct TrialRequest {
    pub(crate) agent: String,
    /// How long the agent may take.
    pub(crate) timeout: Duration,
}

/// What came of a trial.
pub(crate) struct TrialAnswer {
    /// Why the agent does not work here; `None` if the task was done, verified and landed.
    pub(crate) why_not: Option<String>,
    /// Where the output of an agent is kept that does not work: until the next trial of it.
    pub(crate) output: Option<PathBuf>,
    /// What the agent says that the task took.
    pub(crate) usage: Option<RecordedUsage>,
}

/// Lets an agent do a tiny task. `interrupts` is called in a runtime; any interrupt stops the agent.
pub(crate) fn try_agent(
    configuration: &Configuration,
    request: &TrialRequest,
    interrupts: impl FnOnce() -> Result<mpsc::Receiver<Interrupt>, CommandError>,
) -> Result<TrialAnswer, CommandError> {
    let name = request.agent.as_str();
    if !configuration.names(&["agents"]).contains(name) {
        return Err(unknown_agent_error(name, configuration));
    }
    let definition = AgentDefinition::new(name, configuration);
    if definition.is_withheld() {
        return Err(untrusted_agent_error(name));
    }
    let usual = isolation::default_level(None, configuration)?;
    if readiness::checked(definition, usual, &HostUser::observe())?.outside {
        return Err(CommandError::usage(format!("`{name}` works outside, and is never started")));
    }
    let trial = AgentTrial {
        place: ScratchRepo::new("agency-test", None)?,
        events: Arc::default(),
        last_notice: Arc::default(),
    };
    let answer = trial.prepare(configuration, request).and_then(|()| trial.work(interrupts, name));
    trial.remove();
    answer
}

/// A repository with one task, and what is heard of its run.
struct AgentTrial {
    place: ScratchRepo,
    events: Arc<TrialEvents>,
    last_notice: Arc<Mutex<Option<String>>>,
}

/// Listens to the run of a trial.
#[derive(Default)]
struct TrialEvents {
    ending: Mutex<Option<AttemptEnd>>,
    /// An agent that would have to wait has shown what it can't do: the run is told to end.
    parked: Mutex<Option<mpsc::Sender<Interrupt>>>,
}

impl EventSink for TrialEvents {
    fn tell(&self, notice: &RunEvent) {
        let RunEvent::Over { ending, .. } = notice else { return };
        if matches!(ending, AttemptEnd::Parked(_))
            && let Some(interrupt) = self.parked.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
        {
            // Where it is full, an end was asked for already.
            let _ = interrupt.try_send(Interrupt::Drain);
        }
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending.clone());
    }
}

impl AgentTrial {
    /// A repository with one task, and agents as they are where we come from.
    fn prepare(&self, configuration: &Configuration, request: &TrialRequest) -> Result<(), CommandError> {
        let (place, name) = (&self.place, request.agent.as_str());
        place.make_repository(&committer())?;
        let here = place.context(&self.front_end())?;
        make_board(&here, &[name])?;
        place.write("README.md", "A repository for one tiny task.\n")?;
        let check = format!("grep -q '{WORDS}' {FILE}");
        let profile = format!("name: hello\ndescription: The file says hello\ncommands: [\"{check}\"]\n");
        place.write(".kodingx/dod/profiles/hello.yml", &profile)?;
        place.write("agency.toml", &settings(configuration, request)?)?;
        let task = ScratchTask {
            title: &format!("Write the file {FILE} with one line: {WORDS}"),
            agent: name,
            scope: FILE,
            profile: "hello",
            // For an agent without a model, too.
            body: Some(&format!("This would do:\n\n```sh\necho {WORDS} > {FILE}\n```\n")),
        };
        make_task(&here, &task)?;
        place.commit_all("A tiny task")
    }

    /// Lets the agent work until there is something to say.
    fn work(
        &self,
        interrupts: impl FnOnce() -> Result<mpsc::Receiver<Interrupt>, CommandError>,
        agent: &str,
    ) -> Result<TrialAnswer, CommandError> {
        let was_interrupted = AtomicBool::new(false);
        let ran = self.run(interrupts, &was_interrupted);
        if was_interrupted.load(Ordering::Relaxed) {
            return Err(CommandError::new_message(ErrorKind::Interrupted, "the trial was interrupted"));
        }
        let is_done = ran.as_ref().is_ok_and(|summary| RunOutcome::of(summary) == RunOutcome::Done);
        let usage = self.usage();
        Ok(match is_done {
            true => TrialAnswer { why_not: None, output: None, usage },
            false => {
                let output = self.keep_output(agent);
                TrialAnswer { why_not: Some(self.why(ran)), output, usage }
            }
        })
    }

    /// Removes the repository, and what is kept of it: nobody works there any more.
    fn remove(self) {
        let here = self.place.context(&self.front_end());
        if let Ok(state) = here.and_then(|here| state_folder::of_folder(&here.folder)) {
            // What can't be removed is in nobody's way.
            let _ = agency_sandbox::erase::tree(state.path());
        }
        self.place.remove();
    }

    /// Copies what the agent wrote to where a person finds it when the repository is gone.
    fn keep_output(&self, agent: &str) -> Option<PathBuf> {
        let here = self.place.context(&self.front_end()).ok()?;
        let state = state_folder::of_folder(&here.folder).ok()?;
        let attempt = queue::attempts(&here, AttemptFilter::Latest).ok()?.pop()?;
        let kept = state_folder::home().ok()?.user_folder("trials").ok()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name: String = agent.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let kept = kept.join(format!("{name}.log"));
        logs::copy(&logs::file_of(state.path(), &attempt, "agent"), &kept).ok().map(|()| kept)
    }

    fn run(
        &self,
        interrupts: impl FnOnce() -> Result<mpsc::Receiver<Interrupt>, CommandError>,
        was_interrupted: &AtomicBool,
    ) -> Result<RunSummary, CommandError> {
        let request = RunRequest {
            configuration: ScratchRepo::configuration(),
            committer: Some(committer()),
            ..RunRequest::default()
        };
        let here = self.place.context(&self.front_end())?;
        let prepared = run::prepare(here, &ScratchRepo::caller(), &request)?;
        runtime::run_to_end(async {
            let mut asked = interrupts()?;
            let (interrupt, heard) = mpsc::channel(4);
            *self.events.parked.lock().unwrap_or_else(PoisonError::into_inner) = Some(interrupt.clone());
            let pass_on = async {
                while asked.recv().await.is_some() {
                    was_interrupted.store(true, Ordering::Relaxed);
                    // No other run takes the agent over: the second time stops the agent.
                    let _ = interrupt.send(Interrupt::Drain).await;
                    let _ = interrupt.send(Interrupt::Drain).await;
                }
                std::future::pending::<Infallible>().await
            };
            tokio::select! {
                summary = prepared.work(Arc::<TrialEvents>::clone(&self.events), heard) => summary,
                never = pass_on => match never {},
            }
        })
    }

    /// Why it did not work: what the agent's attempt ended with, or what else was said last.
    fn why(&self, ran: Result<RunSummary, CommandError>) -> String {
        let ending = self.events.ending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reason = match ending {
            Some(AttemptEnd::Failed { failure, .. }) => Some(failure.reason),
            Some(AttemptEnd::Blocked { reason } | AttemptEnd::Lost { reason }) => Some(reason),
            Some(AttemptEnd::Parked(parked)) => Some(parked.reason),
            _ => None,
        };
        let said = || match ran {
            Err(failure) => Some(failure.message),
            Ok(_) => self.last_notice.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        reason.or_else(said).unwrap_or_default()
    }

    fn usage(&self) -> Option<RecordedUsage> {
        let here = self.place.context(&self.front_end()).ok()?;
        let board = KodingX::open(here.tree()).ok()?;
        let (reports, _) = board.reports(here.tree(), &TaskId::parse(TASK).ok()?).ok()?;
        reports.last()?.value.usage
    }

    /// Nobody watches; what is said last may be why it did not work.
    fn front_end(&self) -> Arc<dyn FrontEnd> {
        let last = Arc::clone(&self.last_notice);
        let keep = move |message: &str| {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.to_owned());
        };
        Arc::new(NoticesOnly(Arc::new(keep)))
    }
}

fn committer() -> Committer {
    Committer { name: "agency".to_owned(), email: "agency@localhost".to_owned() }
}

/// What is configured there: one attempt, at the level and in the containers of where we come from.
fn settings(configuration: &Configuration, request: &TrialRequest) -> Result<String, CommandError> {
    // What we know ourselves is known there, too. As the words of a configuration it would count for more than the
    // environment: nobody could say that the model is elsewhere.
    let mut agents = configuration.said("agents");
    let agent = agents.entry(request.agent.as_str()).or_insert_with(|| Table::new().into());
    if let Some(agent) = agent.as_table_mut() {
        agent.insert("timeout".into(), format!("{}s", request.timeout.as_secs().max(1)).into());
    }
    let usual = isolation::default_level(None, configuration)?.name();
    let run = Table::from_iter([("attempts".to_owned(), 1.into()), ("isolation".to_owned(), usual.into())]);
    let container = configuration.said("container");
    let whole = [("run", run), ("agents", agents), ("container", container)];
    let whole = Table::from_iter(whole.map(|(name, table)| (name.to_owned(), table.into())));
    toml::to_string(&whole).map_err(|error| CommandError::internal(&error))
}
