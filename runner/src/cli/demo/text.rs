//! The demo for people: what is about to be seen, and what was seen, in plain words.

use std::path::Path;

use crate::app::demo::outcomes::DemoOutcome;
use crate::app::demo::sample_repo::{DemoTask, ExpectedOutcome, TASKS};
use crate::app::error::without_control_chars;
use crate::app::wording::short_commit;

/// The text before the run.
pub(super) fn opening(folder: &Path, command: &str) -> String {
    let mut text = format!(
        "A shop in shell, in {}, and four tasks for four agents:\n\n",
        without_control_chars(&folder.display().to_string())
    );
    for DemoTask { id, agent, title, scope, about, .. } in TASKS {
        text.push_str(&format!("  {id}  {agent:<6} {title:<21} may change {scope:<16} {about}\n"));
    }
    text.push_str("\nWhat is done is proved by `sh tests/run.sh`, each time in a sandbox of its own.\n\n");
    text.push_str(&format!("$ agency {command}\n"));
    text
}

/// The text after the run.
pub(super) fn whole(outcomes: &[DemoOutcome], folder: &Path) -> String {
    let mut text = "\nWhat happened\n\n".to_owned();
    for outcome in outcomes {
        text.push_str(&told(outcome));
        text.push('\n');
    }
    text.push_str(&format!(
        "Look around: cd {}\n  git log --oneline     what landed\n  agency status         the board\n  \
         agency logs T0002     what an agent wrote\n  cat agents/stray.sh   what it tried\n",
        without_control_chars(&folder.display().to_string())
    ));
    text
}

fn told(outcome: &DemoOutcome) -> String {
    let DemoTask { id, agent, title, .. } = outcome.task;
    let mut text = format!("{id}  {title}, by `{agent}`: {}\n", outcome.status);
    let mut say = |words: &str| text.push_str(&format!("  {words}\n"));
    let reason = outcome.reason.as_deref().unwrap_or("the reason is not known");
    match (outcome.is_as_it_should(), outcome.task.should) {
        (true, ExpectedOutcome::Land(1)) => {
            say(&format!(
                "It changed {}, which is its scope. The checks held on exactly that, and",
                outcome.files.join(", ")
            ));
            say(&format!(
                "it landed on main as {}.",
                short_commit(outcome.commit.as_deref().unwrap_or_default())
            ));
        }
        (true, ExpectedOutcome::Land(_)) => {
            say("Its first work did not pass `sh tests/run.sh`. It was told so, went on from what it had,");
            say(&format!(
                "and what it did then landed on main as {}.",
                short_commit(outcome.commit.as_deref().unwrap_or_default())
            ));
        }
        (true, ExpectedOutcome::BeRefused(path)) => {
            say("It tried more than its task. What it heard:");
            let refused = ["Read-only", "No such file", "cannot", "can't"];
            let heard = outcome.words.iter().filter(|line| refused.iter().any(|word| line.contains(word)));
            heard.take(3).for_each(|line| say(&format!("  {line}")));
            say(&format!("Then it changed {path}, beside the file it may change. That was seen when it had"));
            say("ended, and nothing of it landed, not even its honest part.");
        }
        (true, ExpectedOutcome::BeStopped) => {
            say(&format!(
                "It was stopped, {} times: {reason}. All its processes are gone.",
                outcome.attempts
            ));
            say("It is blocked: `agency retry` would try it again.");
        }
        (false, _) => {
            say(&format!("That is not as it should be: {reason}."));
            say("Please tell us, with what `agency doctor --json` says.");
        }
    }
    text
}
