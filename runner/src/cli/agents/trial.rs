//! `agency agents test`: one tiny task, done for real in a repository that is thrown away.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use agency_sandbox::host::HostUser;
use clap::Args;
use serde_json::{Value, json};
use toml::Table;

use super::{root, unknown};
use crate::app::agents::definition::AgentDefinition;
use crate::app::agents::{readiness, untrusted_agent_error};
use crate::app::configuration::Configuration;
use crate::app::error::CommandError;
use crate::app::isolation;
use crate::app::scratch_repo::ScratchRepo;
use crate::app::units;
use crate::cli::caller::ConfigArgs;
use crate::cli::exit::UNDONE;
use crate::cli::message;
use crate::cli::output::print_json;

/// Let an agent do a tiny task, in a repository that is thrown away
///
/// It is started as for any task: in a sandbox, with its credentials and its hosts and nothing else. What it is to do
/// takes a model a few seconds.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency agents test claude-code")]
pub(super) struct TestAgentArgs {
    /// The agent
    name: String,
    /// How long it may take
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    operator: ConfigArgs,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// The file the agent is to write, and what it is to say.
const FILE: &str = "hello.txt";
const WORDS: &str = "hello from the sandbox";
const BODY: &str = "task.md";

pub(super) fn run(test: &TestAgentArgs) -> Result<u8, CommandError> {
    let configuration = test.operator.load(&root()?)?;
    let name = test.name.as_str();
    if !configuration.names(&["agents"]).contains(name) {
        return Err(unknown(name));
    }
    let definition = AgentDefinition::new(name, &configuration);
    if definition.is_withheld() {
        return Err(untrusted_agent_error(name));
    }
    let usual = isolation::default_level(None, &configuration)?;
    if readiness::checked(definition, usual, &HostUser::observe())?.outside {
        return Err(CommandError::usage(format!("`{name}` works outside, and is never started")));
    }
    let place = ScratchRepo::new("agency-test", None)?;
    let told = prepare(&place, &configuration, test).and_then(|()| work(&place));
    place.remove();
    tell(test, &told?)
}

/// A repository with one task, and agents as they are where we come from.
fn prepare(
    place: &ScratchRepo,
    configuration: &Configuration,
    test: &TestAgentArgs,
) -> Result<(), CommandError> {
    let name = test.name.as_str();
    place.git(&["init", "--quiet", "--initial-branch=main"])?;
    for (key, value) in [("user.name", "agency"), ("user.email", "agency@localhost")] {
        place.git(&["config", key, value])?;
    }
    place.agency(&["init", "--protocol", "kodingx", "--orchestrator", "other", "--builders", name])?;
    place.write("README.md", "A repository for one tiny task.\n")?;
    let check = format!("grep -q '{WORDS}' {FILE}");
    let profile = format!("name: hello\ndescription: The file says hello\ncommands: [\"{check}\"]\n");
    place.write(".kodingx/dod/profiles/hello.yml", &profile)?;
    place.write("agency.toml", &settings(configuration, name, test.timeout)?)?;
    let title = format!("Write the file {FILE} with one line: {WORDS}");
    // For an agent without a model, too.
    place.write(BODY, &format!("This would do:\n\n```sh\necho {WORDS} > {FILE}\n```\n"))?;
    let task = ["task", "new", "--title", &title, "--assignee", name, "--must-touch", FILE];
    place.agency(&[&task[..], &["--dod-profile", "hello", "--body", BODY]].concat())?;
    place.git(&["add", "--all"])?;
    place.git(&["commit", "--quiet", "--message", "A tiny task"]).map(drop)
}

fn settings(configuration: &Configuration, name: &str, timeout: Duration) -> Result<String, CommandError> {
    let mut agents = configuration.whole("agents");
    let agent = agents.entry(name).or_insert_with(|| Table::new().into());
    if let Some(agent) = agent.as_table_mut() {
        agent.insert("timeout".into(), format!("{}s", timeout.as_secs().max(1)).into());
    }
    let usual = isolation::default_level(None, configuration)?.name();
    let run = Table::from_iter([("attempts".to_owned(), 1.into()), ("isolation".to_owned(), usual.into())]);
    let container = configuration.whole("container");
    let whole = [("run", run), ("agents", agents), ("container", container)];
    let whole = Table::from_iter(whole.map(|(name, table)| (name.to_owned(), table.into())));
    toml::to_string(&whole).map_err(|error| CommandError::internal(&error))
}

/// What came of it.
struct TrialResult {
    done: bool,
    why: String,
    usage: Value,
}

/// Lets it work until there is something to say: an agent that would have to wait has said it.
fn work(place: &ScratchRepo) -> Result<TrialResult, CommandError> {
    let failed = |error: std::io::Error| CommandError::internal(&error);
    let mut command = place.command(&place.program, &["run", "--json"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut over = Value::Null;
    for line in
        run.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok)
    {
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if event["event"] == "over" {
            over = event;
            if over["ending"]["ending"] == "parked" {
                let _ = run.kill();
            }
        }
    }
    let ran = run.wait_with_output().map_err(failed)?;
    let reason =
        ["/ending/failure/reason", "/ending/reason"].iter().find_map(|path| over.pointer(path)?.as_str());
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = || said.lines().last().unwrap_or_default().trim_start_matches("agency: ");
    let why = reason.unwrap_or_else(last).to_owned();
    let report = place.agency_json(&["report", "T0001"]).unwrap_or_default();
    let usage = report.pointer("/report/usage").cloned().unwrap_or_default();
    Ok(TrialResult { done: ran.status.success(), why, usage })
}

fn tell(test: &TestAgentArgs, told: &TrialResult) -> Result<u8, CommandError> {
    let name = &test.name;
    if test.json {
        let why = (!told.done).then_some(&told.why);
        print_json(
            &json!({ "version": 1, "agent": name, "works": told.done, "why": why, "usage": told.usage }),
        )?;
    } else if told.done {
        let tokens = told.usage.get("tokens").and_then(Value::as_u64);
        let used = tokens.map(|tokens| format!(" It used {tokens} tokens.")).unwrap_or_default();
        message::notice(&format!("`{name}` works: the task was done, verified and landed.{used}"));
    } else {
        message::notice(&format!("`{name}` does not work here: {}", told.why));
    }
    Ok(if told.done { 0 } else { UNDONE })
}
