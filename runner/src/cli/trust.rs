//! `agency trust`: shows a person what a repository wants to run, and records that they trust it.

use clap::Args;

use crate::app::approval::{ConfirmationRequest, confirm};
use crate::app::error::CommandError;
use crate::app::trust::{TrustReview, review};
use crate::cli::caller::repository;
use crate::cli::message;
use crate::cli::output::{for_terminal, print, print_json};

/// Show and trust this repository's own configuration and profiles
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency trust --yes")]
pub(crate) struct TrustArgs {
    /// Also trust this address of the shared board. A path on this machine has to be named here
    #[arg(long, value_name = "ADDRESS")]
    upstream: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &TrustArgs) -> Result<u8, CommandError> {
    let here = repository()?;
    let review = review(&here, command.upstream.as_deref())?;
    message::notices(review.shared.clone());
    if !command.json {
        print(&for_terminal(&review.diff()))?;
    }
    if review.is_all_trusted() {
        message::notice(match review.has_no_files() {
            true => "there is nothing here to trust",
            false => "everything here is trusted",
        });
    } else if !command.yes {
        let request = ConfirmationRequest {
            act: "trusting a repository",
            without_asking: "agency trust --yes",
            question: &question(&review),
            refused: "nothing is trusted",
        };
        confirm(&here, &request)?;
    }
    let new = review.new.join(", ");
    let answer = review.save(&here)?;
    if command.json {
        print_json(&answer)?;
    } else if !new.is_empty() {
        message::notice(&format!("trusted: {new}"));
    }
    Ok(0)
}

fn question(review: &TrustReview) -> String {
    match (review.new.len(), review.is_upstream_new) {
        (0, _) => "share the board there?".to_owned(),
        (count, false) => format!("trust these {count} files to run commands?"),
        (count, true) => format!("trust these {count} files to run commands, and share the board there?"),
    }
}
