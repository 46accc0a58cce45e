//! `agency status`: what is going on, once or for as long as somebody watches ([`watch`](super::watch)).

use std::fmt;

use agency_protocols::detect::Protocol;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::layout::{BoardFileKind, STATE, list_files};
use agency_protocols::kodingx::status::TaskStatus;
use agency_protocols::text::frontmatter::Frontmatter;
use agency_supervisor::attempt::Attempt;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::codifica;
use super::task::{TaskJson, TaskRow, format_rows, json, table};
use crate::app::board::any_board::AnyBoard;
use crate::app::board::{Boards, Caller, RepoContext, lost_commits};
use crate::app::error::CommandError;
use crate::cli::exit::findings_exit_code;
use crate::cli::message::warn_findings;
use crate::cli::output::print;
use crate::cli::wording::phase_label;

/// Say what is going on: tasks by state, reports, the last verification
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency status --json\n  agency status --watch\n\nExit codes: 0, 10 if something on the board can't be read, 130 when --watch is ended with Ctrl-C."
)]
pub(crate) struct StatusArgs {
    /// Go on: the status again, each time something changed, and what is being worked on
    #[arg(short, long)]
    watch: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct StatusAnswer<'a> {
    version: u32,
    protocol: Protocol,
    project: &'a str,
    counts: serde_json::Map<String, serde_json::Value>,
    tasks: Vec<TaskJson<'a>>,
    /// How many reports are in the outbox.
    reports: usize,
    last_verify: Option<serde_json::Value>,
    findings: &'a [Finding],
    /// What is being worked on, for those who watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    working: Option<Vec<ActiveAttempt<'a>>>,
}

#[derive(Debug, Serialize)]
struct ActiveAttempt<'a> {
    task: &'a str,
    agent: &'a str,
    attempt: u64,
    doing: &'static str,
    /// Seconds since 1970.
    since: i64,
}

impl<'a> ActiveAttempt<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            task: &attempt.task.id,
            agent: &attempt.agent,
            attempt: attempt.epoch.0,
            doing: phase_label(&attempt.phase),
            since: attempt.claimed_at,
        }
    }
}

/// Since when, and not for how long: that would be news each second.
impl fmt::Display for ActiveAttempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, agent, attempt, doing, since } = self;
        let since = Timestamp::from_second(*since).unwrap_or_default().to_zoned(TimeZone::system());
        write!(f, "{task}  {agent} is {doing}, attempt {attempt}, since {}", since.strftime("%H:%M:%S"))
    }
}

pub(crate) fn run(command: &StatusArgs, who: &Caller) -> Result<u8, CommandError> {
    if command.watch {
        return super::watch::run(command.json, who);
    }
    let (text, findings) = render_status(&crate::cli::caller::repository()?, who, None, command.json)?;
    print(&text)?;
    if !command.json {
        warn_findings(&findings);
    }
    Ok(findings_exit_code(&findings))
}

/// The status as it is now, as JSON or for people, and what could not be read.
pub(super) fn render_status(
    here: &RepoContext,
    who: &Caller,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> Result<(String, Vec<Finding>), CommandError> {
    let board = match here.boards(who)? {
        Boards::Several(boards) => return told_all(here, boards, working, as_json),
        Boards::One(AnyBoard::Kodingx(board)) => board,
        Boards::One(AnyBoard::Codifica(board)) => {
            let told = codifica::status::render_status(here, &board, false)?;
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
    let at_work: Option<Vec<ActiveAttempt<'_>>> =
        working.map(|attempts| attempts.iter().map(ActiveAttempt::of).collect());
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
    here: &RepoContext,
    boards: Vec<AnyBoard>,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> Result<(String, Vec<Finding>), CommandError> {
    let (mut documents, mut text, mut findings) = (Vec::new(), String::new(), Vec::new());
    for board in boards {
        match board {
            AnyBoard::Kodingx(board) => {
                let listing =
                    board.tasks(here.tree()).map_err(|error| crate::app::board::board_error(error.into()))?;
                let tasks: Vec<serde_json::Value> = listing
                    .tasks
                    .iter()
                    .map(|(place, task)| {
                        let mut task = json(&TaskJson { file: &place.path, task });
                        task["id"] = format!("kodingx:{}", task["id"].as_str().unwrap_or_default()).into();
                        task
                    })
                    .collect();
                documents.push(serde_json::json!({ "protocol": "kodingx", "tasks": tasks }));
                let open = listing.tasks.iter().map(|(_, task)| task).filter(|task| !task.status.is_final());
                text.push_str(&format_rows(
                    &open.map(|task| TaskRow::of(task).prefixed("kodingx")).collect::<Vec<_>>(),
                ));
                findings.extend(listing.findings);
                findings.extend(lost_commits::kodingx_findings(here, &board));
            }
            AnyBoard::Codifica(board) => {
                let told = codifica::status::render_status(here, &board, true)?;
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
    here: &RepoContext,
    board: &KodingX,
    working: Option<&[Attempt]>,
    as_json: bool,
) -> Result<(String, Vec<Finding>), CommandError> {
    let failed = |error| crate::app::board::board_error(agency_protocols::board::BoardError::Tree(error));
    let mut listing = board.tasks(here.tree()).map_err(failed)?;
    listing.findings.extend(lost_commits::kodingx_findings(here, board));
    let reports = list_files(here.tree(), BoardFileKind::Report, false).map_err(failed)?.len();
    let state = here.tree().read_text(STATE).map_err(failed)?.unwrap_or_default();
    let last_verify = Frontmatter::parse(&state)
        .ok()
        .and_then(|matter| matter.value("last_verify").ok().flatten())
        .filter(|verify| verify.get("task_id").is_some_and(|id| !id.is_null()))
        .and_then(|verify| serde_json::to_value(verify).ok());
    let count = |status: TaskStatus| listing.tasks.iter().filter(|(_, task)| task.status == status).count();
    if as_json {
        let document = serde_json::to_string(&StatusAnswer {
            version: 1,
            protocol: Protocol::Kodingx,
            project: &board.manifest.project,
            counts: TaskStatus::ALL
                .iter()
                .map(|status| (status.to_string(), count(*status).into()))
                .collect(),
            tasks: listing.tasks.iter().map(|(place, task)| TaskJson { file: &place.path, task }).collect(),
            reports,
            last_verify,
            findings: &listing.findings,
            working: working.map(|attempts| attempts.iter().map(ActiveAttempt::of).collect()),
        });
        let document = document.map_err(|error| CommandError::internal(&error))?;
        return Ok((document + "\n", listing.findings));
    }
    let mut open: Vec<_> =
        listing.tasks.iter().map(|(_, task)| task).filter(|task| !task.status.is_final()).collect();
    open.sort_by_key(|task| (urgency(task.status), task.priority));
    let counts: Vec<String> = TaskStatus::ALL
        .iter()
        .filter(|status| count(**status) > 0)
        .map(|status| format!("{} {status}", count(*status)))
        .collect();
    let working = working.unwrap_or_default().iter().map(ActiveAttempt::of);
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
fn urgency(status: TaskStatus) -> u8 {
    match status {
        TaskStatus::Blocked => 0,
        TaskStatus::ReadyForReview => 1,
        TaskStatus::InProgress => 2,
        TaskStatus::Assigned => 3,
        TaskStatus::New => 4,
        TaskStatus::Done | TaskStatus::Canceled => 5,
    }
}
