//! `agency status`: what is going on, once or for as long as somebody watches ([`watch`](super::watch)).

use std::fmt;

use agency_protocols::detect::Protocol;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::layout::{Kind, STATE, places};
use agency_protocols::kodingx::status::Status;
use agency_protocols::text::frontmatter::Frontmatter;
use agency_supervisor::attempt::Attempt;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::spoken::Spoken;
use super::task::{Row, Shown, json, rows_of, table};
use super::{Boards, Here, Who, code, codifica, mention, print, strayed};
use crate::message::{Failure, INTERNAL};
use crate::run::view::picture::doing;

/// Say what is going on: tasks by state, reports, the last verification
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency status --json\n  agency status --watch\n\nExit codes: 0, 10 if something on the board can't be read, 130 when --watch is ended with Ctrl-C."
)]
pub(crate) struct StatusCommand {
    /// Go on: the status again, each time something changed, and what is being worked on
    #[arg(short, long)]
    watch: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    version: u32,
    protocol: Protocol,
    project: &'a str,
    counts: serde_json::Map<String, serde_json::Value>,
    tasks: Vec<Shown<'a>>,
    /// How many reports are in the outbox.
    reports: usize,
    last_verify: Option<serde_json::Value>,
    findings: &'a [Finding],
    /// What is being worked on, for those who watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    working: Option<Vec<AtWork<'a>>>,
}

#[derive(Debug, Serialize)]
struct AtWork<'a> {
    task: &'a str,
    agent: &'a str,
    attempt: u64,
    doing: &'static str,
    /// Seconds since 1970.
    since: i64,
}

impl<'a> AtWork<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            task: &attempt.task.id,
            agent: &attempt.agent,
            attempt: attempt.epoch.0,
            doing: doing(&attempt.phase),
            since: attempt.claimed_at,
        }
    }
}

/// Since when, and not for how long: that would be news each second.
impl fmt::Display for AtWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, agent, attempt, doing, since } = self;
        let since = Timestamp::from_second(*since).unwrap_or_default().to_zoned(TimeZone::system());
        write!(f, "{task}  {agent} is {doing}, attempt {attempt}, since {}", since.strftime("%H:%M:%S"))
    }
}

pub(crate) fn run(command: &StatusCommand, who: &Who) -> Result<u8, Failure> {
    if command.watch {
        return super::watch::run(command.json, who);
    }
    let (text, findings) = told(&Here::find()?, who, None, command.json)?;
    print(&text)?;
    if !command.json {
        mention(&findings);
    }
    Ok(code(&findings))
}

/// The status as it is now, as JSON or for people, and what could not be read.
pub(super) fn told(
    here: &Here,
    who: &Who,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> Result<(String, Vec<Finding>), Failure> {
    let board = match here.boards(who)? {
        Boards::Several(boards) => return told_all(here, boards, working, as_json),
        Boards::One(Spoken::Kodingx(board)) => board,
        Boards::One(Spoken::Codifica(board)) => {
            let told = codifica::status::told(here, &board, false)?;
            return Ok((with_work(told.document, told.text, working, as_json), told.findings));
        }
    };
    told_kodingx(here, &board, working, as_json)
}

/// What is being worked on, before or in what else is said.
fn with_work(
    mut document: serde_json::Value,
    text: String,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> String {
    let at_work: Option<Vec<AtWork<'_>>> = working.map(|attempts| attempts.iter().map(AtWork::of).collect());
    if as_json {
        if let Some(at_work) = at_work {
            document["working"] = json(&at_work);
        }
        return format!("{document}\n");
    }
    let lines: String = at_work.unwrap_or_default().iter().map(|one| format!("{one}\n")).collect();
    lines + &text
}

/// The boards of several protocols: ids say which they are of.
fn told_all(
    here: &Here,
    boards: Vec<Spoken>,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> Result<(String, Vec<Finding>), Failure> {
    let (mut documents, mut text, mut findings) = (Vec::new(), String::new(), Vec::new());
    for board in boards {
        match board {
            Spoken::Kodingx(board) => {
                let listing = board.tasks(here.tree()).map_err(|error| super::refused(error.into()))?;
                let tasks: Vec<serde_json::Value> = listing
                    .tasks
                    .iter()
                    .map(|(place, task)| {
                        let mut task = json(&Shown { file: &place.path, task });
                        task["id"] = format!("kodingx:{}", task["id"].as_str().unwrap_or_default()).into();
                        task
                    })
                    .collect();
                documents.push(serde_json::json!({ "protocol": "kodingx", "tasks": tasks }));
                let open = listing.tasks.iter().map(|(_, task)| task).filter(|task| !task.status.is_final());
                text.push_str(&rows_of(
                    &open.map(|task| Row::of(task).prefixed("kodingx")).collect::<Vec<_>>(),
                ));
                findings.extend(listing.findings);
                findings.extend(strayed::of_kodingx(here, &board));
            }
            Spoken::Codifica(board) => {
                let told = codifica::status::told(here, &board, true)?;
                documents.push(told.document);
                text.push_str(&told.text);
                findings.extend(told.findings);
            }
        }
    }
    let document = serde_json::json!({ "version": 1, "boards": documents, "findings": &findings });
    Ok((with_work(document, text, working, as_json), findings))
}

fn told_kodingx(
    here: &Here,
    board: &KodingX,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> Result<(String, Vec<Finding>), Failure> {
    let failed = |error| super::refused(agency_protocols::board::BoardError::Tree(error));
    let mut listing = board.tasks(here.tree()).map_err(failed)?;
    listing.findings.extend(strayed::of_kodingx(here, board));
    let reports = places(here.tree(), Kind::Report, false).map_err(failed)?.len();
    let state = here.tree().read_text(STATE).map_err(failed)?.unwrap_or_default();
    let last_verify = Frontmatter::parse(&state)
        .ok()
        .and_then(|matter| matter.value("last_verify").ok().flatten())
        .filter(|verify| verify.get("task_id").is_some_and(|id| !id.is_null()))
        .and_then(|verify| serde_json::to_value(verify).ok());
    let count = |status: Status| listing.tasks.iter().filter(|(_, task)| task.status == status).count();
    if as_json {
        let document = serde_json::to_string(&Summary {
            version: 1,
            protocol: Protocol::Kodingx,
            project: &board.manifest.project,
            counts: Status::ALL.iter().map(|status| (status.to_string(), count(*status).into())).collect(),
            tasks: listing.tasks.iter().map(|(place, task)| Shown { file: &place.path, task }).collect(),
            reports,
            last_verify,
            findings: &listing.findings,
            working: working.map(|attempts| attempts.iter().map(AtWork::of).collect()),
        });
        let document = document.map_err(|error| Failure::new(INTERNAL, &error))?;
        return Ok((document + "\n", listing.findings));
    }
    let mut open: Vec<_> =
        listing.tasks.iter().map(|(_, task)| task).filter(|task| !task.status.is_final()).collect();
    open.sort_by_key(|task| (urgency(task.status), task.priority));
    let counts: Vec<String> = Status::ALL
        .iter()
        .filter(|status| count(**status) > 0)
        .map(|status| format!("{} {status}", count(*status)))
        .collect();
    let working = working.unwrap_or_default().iter().map(AtWork::of);
    let mut text: String = working.map(|one| format!("{one}\n")).collect();
    text.push_str(&table(open.into_iter()));
    text.push_str(&if counts.is_empty() { "no tasks yet".to_owned() } else { counts.join(", ") });
    text.push_str(&format!("; {reports} reports"));
    if let Some(verify) = last_verify {
        let word = |key: &str| verify[key].as_str().unwrap_or_default().to_owned();
        text.push_str(&format!(
            "; last verified: {} {} ({})",
            word("task_id"),
            word("result"),
            word("timestamp")
        ));
    }
    text.push('\n');
    Ok((text, listing.findings))
}

/// What needs somebody comes first.
fn urgency(status: Status) -> u8 {
    match status {
        Status::Blocked => 0,
        Status::ReadyForReview => 1,
        Status::InProgress => 2,
        Status::Assigned => 3,
        Status::New => 4,
        Status::Done | Status::Canceled => 5,
    }
}
