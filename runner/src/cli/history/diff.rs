//! `agency diff`: what a task changed, through a pager at a terminal.

use agency_protocols::names::TaskId;
use agency_sandbox::output::sanitize::TerminalSanitizer;
use clap::Args;

use crate::app::board::{Caller, task_id};
use crate::app::error::{CommandError, without_control_chars};
use crate::app::history::diff::{DiffAnswer, diff};
use crate::app::wording::short_commit;
use crate::cli::caller::repository_with_task;
use crate::cli::message;
use crate::cli::output::{print_bytes, print_json, print_page};
use crate::cli::terminal::colour::{self, Colour};

/// Show what a task changed: what landed, or the work of an attempt
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  agency diff T0007\n  agency diff T0007 --attempt 1")]
pub(crate) struct DiffArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// The attempt [default: what landed, or the last one with any work]
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &DiffArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, id) = repository_with_task(who, &command.id)?;
    let answer = diff(&here, who, &id, command.attempt)?;
    if command.json {
        print_json(&answer)?;
        return Ok(0);
    }
    let DiffAnswer { task, landed, attempt, commit, patch, bytes, .. } = &answer;
    let what = if *landed { "landed as" } else { "is not on the branch;" };
    message::notice(&format!("{task}, attempt {attempt}, {what} {}", short_commit(commit)));
    match colour::is_for_a_person() {
        true => print_page(&patch_text(patch))?,
        // A program gets it as it is.
        false => print_bytes(bytes)?,
    }
    Ok(0)
}

/// The patch for a person: without control characters and in colour. Signs that are not seen and reorder what is read are
/// spelt out: code that is not what it looks like is what a reader of a patch looks for.
fn patch_text(patch: &str) -> String {
    let line = |line: &str| {
        let text = with_unseen_spelt(&without_control_chars(line));
        let colour = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', ..] => {
                Some(Colour::Bold)
            }
            [b'+', ..] => Some(Colour::Green),
            [b'-', ..] => Some(Colour::Red),
            [b'@', b'@', ..] => Some(Colour::Cyan),
            _ => None,
        };
        colour.map_or_else(|| text.clone(), |colour| colour::paint(colour, &text))
    };
    patch.lines().map(|one| format!("{}\n", line(one))).collect()
}

fn with_unseen_spelt(line: &str) -> String {
    let (mut shown, mut bytes) = (TerminalSanitizer::default(), Vec::new());
    let mut keep = |piece: &[u8]| bytes.extend_from_slice(piece);
    shown.push(line.as_bytes(), &mut keep);
    shown.finish(&mut keep);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reorders_a_line_of_a_patch_is_seen_by_its_reader() {
        let shown = patch_text("+if admin {\u{202e} }\u{200b}\n-Grüße\t\u{1b}[31mred\n");
        assert_eq!(shown, "+if admin {\\u{202e} }\\u{200b}\n-Grüße\t\u{fffd}[31mred\n");
    }
}
