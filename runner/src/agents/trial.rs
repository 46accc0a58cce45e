//! `agency agents test`: one tiny task, done for real in a repository that is thrown away.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use agency_sandbox::host::Host;
use clap::Args;
use serde_json::{Value, json};
use toml::Table;

use super::definition::Definition;
use super::{ready, root, unknown, untrusted};
use crate::board::print_json;
use crate::configuration::{Configuration, Operator};
use crate::isolation;
use crate::message::{self, Failure, INTERNAL, UNDONE};
use crate::place::Place;
use crate::units;

/// Let an agent do a tiny task, in a repository that is thrown away
///
/// It is started as for any task: in a sandbox, with its credentials and its hosts and nothing else. What it is to do
/// takes a model a few seconds.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency agents test claude-code")]
pub(super) struct Test {
    /// The agent
    name: String,
    /// How long it may take
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    operator: Operator,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// The file the agent is to write, and what it is to say.
const FILE: &str = "hello.txt";
const WORDS: &str = "hello from the sandbox";
const BODY: &str = "task.md";

pub(super) fn run(test: &Test) -> Result<u8, Failure> {
    let configuration = Configuration::load(&root()?, &test.operator)?;
    let name = test.name.as_str();
    if !configuration.names(&["agents"]).contains(name) {
        return Err(unknown(name));
    }
    let definition = Definition::new(name, &configuration);
    if definition.is_withheld() {
        return Err(untrusted(name));
    }
    let usual = isolation::usual(None, &configuration)?;
    if ready::checked(definition, usual, &Host::observe())?.outside {
        return Err(Failure::usage(format!("`{name}` works outside, and is never started")));
    }
    let place = Place::new("agency-test", None)?;
    let told = prepare(&place, &configuration, test).and_then(|()| work(&place));
    place.remove();
    tell(test, &told?)
}

/// A repository with one task, and agents as they are where we come from.
fn prepare(place: &Place, configuration: &Configuration, test: &Test) -> Result<(), Failure> {
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

fn settings(configuration: &Configuration, name: &str, timeout: Duration) -> Result<String, Failure> {
    let mut agents = configuration.whole("agents");
    let agent = agents.entry(name).or_insert_with(|| Table::new().into());
    if let Some(agent) = agent.as_table_mut() {
        agent.insert("timeout".into(), format!("{}s", timeout.as_secs().max(1)).into());
    }
    let usual = isolation::name(isolation::usual(None, configuration)?);
    let run = Table::from_iter([("attempts".to_owned(), 1.into()), ("isolation".to_owned(), usual.into())]);
    let container = configuration.whole("container");
    let whole = [("run", run), ("agents", agents), ("container", container)];
    let whole = Table::from_iter(whole.map(|(name, table)| (name.to_owned(), table.into())));
    toml::to_string(&whole).map_err(|error| Failure::new(INTERNAL, &error))
}

/// What came of it.
struct Told {
    done: bool,
    why: String,
    usage: Value,
}

/// Lets it work until there is something to say: an agent that would have to wait has said it.
fn work(place: &Place) -> Result<Told, Failure> {
    let failed = |error: std::io::Error| Failure::new(INTERNAL, &error);
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
    Ok(Told { done: ran.status.success(), why, usage })
}

fn tell(test: &Test, told: &Told) -> Result<u8, Failure> {
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
