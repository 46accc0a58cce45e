//! What the live part of a run looks like: a line for each agent at work, what waits for you, and the totals.

use agency_supervisor::run_event::{HumanWait, ParkedAgent, QueueStatus};

use crate::app::units::{self, elapsed};
use crate::cli::terminal::columns::{columns, cut};

/// How many lines there are at most for what waits.
const WAITING: usize = 3;
/// The longest word for a phase.
const PHASE: usize = 10;

/// One agent at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkingAgent {
    pub(super) task: String,
    pub(super) agent: String,
    pub(super) phase: &'static str,
    pub(super) seconds: u64,
    /// The last thing it wrote.
    pub(super) last: String,
}

/// All lines, none wider and all together no higher than the terminal.
pub(super) fn lines(
    working: &[WorkingAgent],
    standing: &QueueStatus,
    width: usize,
    height: usize,
) -> Vec<String> {
    // One line stays for what happens, one is for the totals.
    let room = height.saturating_sub(2);
    let waiting: Vec<&HumanWait> = standing.waits_for_you.iter().take(WAITING.min(room / 2)).collect();
    let room = room - waiting.len();
    let shown = if working.len() > room { room.saturating_sub(1) } else { working.len() };
    let wide = |of: fn(&WorkingAgent) -> &str| working.iter().map(|one| columns(of(one))).max().unwrap_or(0);
    let (task, agent) = (wide(|one| &one.task), wide(|one| &one.agent));
    let mut lines: Vec<String> = working[..shown]
        .iter()
        .map(|one| {
            let elapsed = elapsed(one.seconds);
            format!(
                "{:task$}  {:agent$}  {:PHASE$}  {elapsed:>6}  {}",
                one.task, one.agent, one.phase, one.last
            )
        })
        .collect();
    if shown < working.len() {
        lines.push(format!("… and {} more", working.len() - shown));
    }
    lines.extend(waiting.iter().map(|one| format!("{:task$}  waits for you: {}", one.task, one.why)));
    lines.extend(standing.parked.iter().map(waits));
    lines.push(totals(standing));
    lines.iter().map(|line| cut(line.trim_end(), width)).collect()
}

/// An agent that can't work now.
fn waits(parked: &ParkedAgent) -> String {
    match parked.until {
        Some(until) => format!("{} waits until {}: {}", parked.agent, units::local_time(until), parked.why),
        None => format!("{} can't be used: {}", parked.agent, parked.why),
    }
}

/// What there is how much of; of nothing, nothing is said.
fn totals(standing: &QueueStatus) -> String {
    let QueueStatus { running, ready, waits_for_you, held_back, elsewhere, done, failed, .. } = standing;
    let waits = if waits_for_you.len() == 1 { "waits for you" } else { "wait for you" };
    let parts = [
        (running.len(), "running"),
        (*ready, "ready"),
        (waits_for_you.len(), waits),
        (*held_back, "held back"),
        (*elsewhere, "elsewhere"),
        (*done, "done"),
        (*failed, "failed"),
    ];
    let said = parts.iter().filter(|(count, what)| *count > 0 || *what == "running");
    said.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working(task: &str, agent: &str, seconds: u64, last: &str) -> WorkingAgent {
        WorkingAgent {
            task: task.to_owned(),
            agent: agent.to_owned(),
            phase: "working",
            seconds,
            last: last.to_owned(),
        }
    }

    fn standing(running: usize) -> QueueStatus {
        let why = "src/a.txt has been edited".to_owned();
        QueueStatus {
            running: vec![String::new(); running],
            ready: 5,
            waits_for_you: vec![HumanWait { task: "T0003".to_owned(), why }],
            done: 3,
            ..QueueStatus::default()
        }
    }

    #[test]
    fn each_agent_has_a_line_and_the_totals_come_last() {
        let agents = [working("T0007", "codex", 72, "cargo test"), working("T0010", "shell", 3, "")];
        assert_eq!(
            lines(&agents, &standing(2), 80, 24),
            [
                "T0007  codex  working      1m12s  cargo test",
                "T0010  shell  working         3s",
                "T0003  waits for you: src/a.txt has been edited",
                "2 running · 5 ready · 1 waits for you · 3 done",
            ]
        );
    }

    #[test]
    fn nothing_is_wider_or_higher_than_the_terminal() {
        let last = "世界\u{1b}[2J\n".repeat(100);
        let agents: Vec<WorkingAgent> =
            (0..50).map(|number| working(&format!("T{number:04}"), "codex", number * 999, &last)).collect();
        for (width, height) in [(40, 10), (1, 1), (0, 0), (7, 3), (200, 60)] {
            let lines = lines(&agents, &standing(50), width, height);
            assert!(lines.len() <= height.max(2), "{} lines in {height}", lines.len());
            assert!(lines.iter().all(|line| columns(line) <= width), "{lines:?} in {width}");
            assert!(!lines.iter().any(|line| line.contains(char::is_control)), "{lines:?}");
        }
        let few = lines(&agents, &standing(50), 80, 10);
        assert_eq!(few[few.len() - 3..few.len() - 2], ["… and 44 more"]);
    }

    #[test]
    fn time_is_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (72, "1m12s"), (3600, "1h00m"), (90_000, "25h00m")] {
            assert_eq!(elapsed(seconds), text);
        }
    }
}
