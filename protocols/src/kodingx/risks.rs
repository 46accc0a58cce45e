//! §21: the risk register, RISKS.md.

use serde::Serialize;

use super::artifact::{RiskCheck, VerifyResult};
use super::layout;
use super::task::Priority;
use crate::finding::Finding;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RiskStatus {
    Open,
    Mitigated,
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// `R-001`
    pub id: String,
    pub title: String,
    pub priority: Priority,
    pub status: RiskStatus,
    pub linked_tasks: Vec<String>,
    #[serde(skip)]
    pub line: usize,
}

/// The register: its entries, and findings about it.
#[derive(Debug, Clone, Default)]
pub struct RiskRegister {
    pub risks: Vec<Risk>,
    pub findings: Vec<Finding>,
}

/// Whether text is the id of a risk.
pub fn is_id(text: &str) -> bool {
    text.strip_prefix("R-")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The heading of an entry: its id and its title.
pub(super) fn heading<'t>(line: &'t str, prefix: &str) -> Option<(&'t str, &'t str)> {
    let text = line.strip_prefix("### ")?.trim();
    let (id, title) = text.split_once(':').unwrap_or((text, ""));
    let number = id.strip_prefix(prefix)?;
    let fine = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    fine.then_some((id, title.trim()))
}

/// The value of a line like `**Status:** OPEN`.
fn field<'t>(line: &'t str, name: &str) -> Option<&'t str> {
    line.trim().strip_prefix("**")?.strip_prefix(name)?.strip_prefix(":**").map(str::trim)
}

impl RiskRegister {
    pub fn parse(text: &str) -> Self {
        let mut register = Self::default();
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            let Some((id, title)) = heading(lines[at], "R-") else {
                at += 1;
                continue;
            };
            let end = (at + 1..lines.len()).find(|next| lines[*next].starts_with('#')).unwrap_or(lines.len());
            register.entry(id, title, at + 1, &lines[at + 1..end]);
            at = end;
        }
        register
    }

    fn entry(&mut self, id: &str, title: &str, line: usize, body: &[&str]) {
        let mut wrong = |offset: usize, message: String| {
            self.findings.push(Finding::error(layout::RISKS, Some(line + offset), "21.3", message));
        };
        let find =
            |name| body.iter().enumerate().find_map(|(index, text)| Some((index + 1, field(text, name)?)));
        // An unreadable priority counts as the highest, so that a misspelling lets nothing pass.
        let priority = match find("Priority") {
            Some((offset, text)) => Priority::parse(text.get(..2).unwrap_or(text)).unwrap_or_else(|| {
                wrong(offset, format!("{id}: priority `{text}` must be P0, P1, P2 or P3; it counts as P0"));
                Priority::P0
            }),
            None => {
                wrong(0, format!("{id} has no `**Priority:**` line; it counts as P0"));
                Priority::P0
            }
        };
        let status = match find("Status") {
            Some((offset, text)) => match text.split([' ', '(']).next().unwrap_or_default() {
                _ if text.contains('|') => {
                    wrong(
                        offset,
                        format!("{id}: status `{text}` is a choice; leave one of them. It counts as OPEN"),
                    );
                    RiskStatus::Open
                }
                "OPEN" => RiskStatus::Open,
                "MITIGATED" => RiskStatus::Mitigated,
                "CLOSED" => RiskStatus::Closed,
                _ => {
                    wrong(
                        offset,
                        format!("{id}: status `{text}` must be OPEN, MITIGATED or CLOSED; it counts as OPEN"),
                    );
                    RiskStatus::Open
                }
            },
            None => {
                wrong(0, format!("{id} has no `**Status:**` line; it counts as OPEN"));
                RiskStatus::Open
            }
        };
        if self.risks.iter().any(|risk| risk.id == id) {
            wrong(0, format!("{id} is there twice"));
        }
        let linked = find("Linked Tasks").map_or("", |(_, text)| text);
        let linked_tasks =
            linked.split([',', ' ']).filter(|id| id.starts_with('T')).map(str::to_owned).collect();
        self.risks.push(Risk {
            id: id.to_owned(),
            title: title.to_owned(),
            priority,
            status,
            linked_tasks,
            line,
        });
    }

    pub fn get(&self, id: &str) -> Option<&Risk> {
        self.risks.iter().find(|risk| risk.id == id)
    }

    /// §21.4: what a task's linked risks mean for its verification.
    pub fn check(&self, linked: &[String]) -> (VerifyResult, RiskCheck) {
        let mut verdict = VerifyResult::Pass;
        let (mut blocking_risks, mut reasons) = (Vec::new(), Vec::new());
        for id in linked {
            let reason = match self.get(id) {
                None => Some((VerifyResult::Fail, format!("{id} is not in RISKS.md"))),
                Some(risk) => match (risk.status, risk.priority) {
                    (RiskStatus::Open, Priority::P0) => {
                        Some((VerifyResult::Fail, format!("{id} is P0 OPEN — resolve before DONE")))
                    }
                    (RiskStatus::Open, Priority::P1) => {
                        Some((VerifyResult::Warn, format!("{id} is P1 OPEN — DONE needs an override")))
                    }
                    (RiskStatus::Open, Priority::P2 | Priority::P3)
                    | (RiskStatus::Mitigated | RiskStatus::Closed, _) => None,
                },
            };
            if let Some((found, reason)) = reason {
                if verdict != VerifyResult::Fail {
                    verdict = found;
                }
                blocking_risks.push(id.clone());
                reasons.push(reason);
            }
        }
        let check =
            RiskCheck { linked_risks: linked.to_vec(), blocking_risks, blocking_reason: reasons.join("; ") };
        (verdict, check)
    }

    /// The next free id.
    pub fn next_id(&self) -> String {
        let number = |risk: &Risk| risk.id.strip_prefix("R-")?.parse::<u32>().ok();
        format!("R-{:03}", self.risks.iter().filter_map(number).max().unwrap_or(0) + 1)
    }
}

/// RISKS.md with a task on the linked-tasks line of a risk. Only that line changes; one that is missing is
/// added below the status.
pub fn link(text: &str, risk: &str, task: &str) -> String {
    let register = RiskRegister::parse(text);
    let Some(entry) = register.get(risk) else { return text.to_owned() };
    if entry.linked_tasks.iter().any(|linked| linked == task) {
        return text.to_owned();
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut tasks = entry.linked_tasks.clone();
    tasks.push(task.to_owned());
    let written = format!("**Linked Tasks:** {}{newline}", tasks.join(", "));
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let from = entry.line;
    let end = (from..lines.len()).find(|next| lines[*next].starts_with('#')).unwrap_or(lines.len());
    match (from..end).find(|at| field(lines[*at], "Linked Tasks").is_some()) {
        Some(at) => lines[at] = &written,
        None => {
            let after =
                (from..end).rev().find(|at| field(lines[*at], "Status").is_some()).unwrap_or(from - 1);
            lines.insert(after + 1, &written);
        }
    }
    lines.concat()
}

/// RISKS.md with a new entry at its end.
pub fn append(text: &str, risk: &Risk, note: &str) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let status = match risk.status {
        RiskStatus::Open => "OPEN",
        RiskStatus::Mitigated => "MITIGATED",
        RiskStatus::Closed => "CLOSED",
    };
    let priority = match risk.priority {
        Priority::P0 => "P0 (Critical)",
        Priority::P1 => "P1 (High)",
        Priority::P2 => "P2 (Medium)",
        Priority::P3 => "P3 (Low)",
    };
    let entry = format!(
        "\n### {}: {}\n**Priority:** {priority}\n**Status:** {status}\n**Linked Tasks:** {}\n\n{note}\n",
        risk.id,
        risk.title,
        risk.linked_tasks.join(", ")
    );
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
    [text, gap, &entry.replace('\n', newline)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Risks\n\n### R-001: Database Migration Risk\n**Priority:** P0 (Critical)\n**Status:** OPEN\n**Linked Tasks:** T0007, T0012\nmine\n\n### R-004: Old\n**Priority:** P2\n**Status:** MITIGATED\n";

    #[test]
    fn the_table_of_21_4_holds() {
        for (status, priority, verdict) in [
            ("OPEN", "P0", VerifyResult::Fail),
            ("OPEN", "P1", VerifyResult::Warn),
            ("OPEN", "P2", VerifyResult::Pass),
            ("OPEN", "P3", VerifyResult::Pass),
            ("MITIGATED", "P0", VerifyResult::Pass),
            ("CLOSED", "P0", VerifyResult::Pass),
            ("MITIGATED", "P1", VerifyResult::Pass),
            ("CLOSED", "P1", VerifyResult::Pass),
        ] {
            let text = format!("### R-001: x\n**Priority:** {priority}\n**Status:** {status}\n");
            let (found, check) = RiskRegister::parse(&text).check(&["R-001".to_owned()]);
            assert_eq!(found, verdict, "{status} {priority}");
            assert_eq!(check.blocking_risks.is_empty(), verdict == VerifyResult::Pass);
        }
        assert_eq!(
            RiskRegister::parse(TEXT).check(&["R-009".to_owned()]).0,
            VerifyResult::Fail,
            "an unknown risk"
        );
    }

    #[test]
    fn what_cannot_be_read_counts_as_the_worst() {
        let text =
            "### R-001: x\n**Priority:** high\n**Status:** OPEN | MITIGATED | CLOSED\n\n### R-002: y\n";
        let register = RiskRegister::parse(text);
        assert_eq!(register.findings.len(), 4, "{:?}", register.findings);
        assert_eq!((register.findings[0].line, register.findings[1].line), (Some(2), Some(3)));
        for risk in &register.risks {
            assert_eq!((risk.priority, risk.status), (Priority::P0, RiskStatus::Open));
        }
    }

    #[test]
    fn linking_touches_one_line() {
        let linked = link(TEXT, "R-001", "T0013");
        assert_eq!(linked, TEXT.replace("T0007, T0012", "T0007, T0012, T0013"));
        assert_eq!(link(&linked, "R-001", "T0013"), linked);
        let added = link(TEXT, "R-004", "T0001");
        assert_eq!(added, TEXT.replace("MITIGATED\n", "MITIGATED\n**Linked Tasks:** T0001\n"));
        assert_eq!(link(TEXT, "R-009", "T0001"), TEXT);
        let crlf = TEXT.replace('\n', "\r\n");
        assert_eq!(link(&crlf, "R-001", "T0013"), linked.replace('\n', "\r\n"));
    }

    #[test]
    fn an_appended_risk_reads_back() {
        let register = RiskRegister::parse(TEXT);
        let id = register.next_id();
        assert_eq!(id, "R-005");
        let risk = Risk {
            id,
            title: "New".to_owned(),
            priority: Priority::P2,
            status: RiskStatus::Open,
            linked_tasks: vec!["T0008".to_owned()],
            line: 13,
        };
        let text = append(TEXT, &risk, "Because.");
        assert!(text.starts_with(TEXT));
        let read = RiskRegister::parse(&text);
        assert_eq!(read.get("R-005"), Some(&risk));
        assert!(read.findings.is_empty());
    }
}
