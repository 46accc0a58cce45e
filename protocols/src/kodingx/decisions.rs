//! §20.4: decisions, as records in DECISIONS.md.

use super::risks::heading;

/// An override, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverrideRecord<'a> {
    pub task: &'a str,
    pub date: &'a str,
    pub reason: &'a str,
    pub result: &'a str,
    pub followup: &'a str,
    pub risk: &'a str,
    pub approver: &'a str,
}

/// The numbers of the records that are there.
pub fn numbers(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| heading(line, "ADR-")?.0.strip_prefix("ADR-")?.parse().ok()).collect()
}

/// `ADR-016`, after `ADR-015`.
pub fn next_id(text: &str) -> String {
    format!("ADR-{:03}", numbers(text).into_iter().max().unwrap_or(0) + 1)
}

/// DECISIONS.md with the record of an override at its end.
pub fn append(text: &str, id: &str, record: &OverrideRecord<'_>) -> String {
    let OverrideRecord { task, date, reason, result, followup, risk, approver } = record;
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    // A reason that looks like a heading or a field would be read as one.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let entry = format!(
        "\n### {id}: Override {task} DoD\n\n\
         **Date:** {date}\n**Status:** Accepted\n**Override Type:** DoD Bypass\n\n\
         **Context:**\n{reason}\nThe verification of {task} came to `{result}`.\n\n\
         **Decision:**\n{task} may be marked DONE despite it.\n\n\
         **Consequences:**\n- Follow-up task {followup}\n- Technical debt added to RISKS.md ({risk})\n\n\
         **Approver:** {approver}\n"
    );
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
    [text, gap, &entry.replace('\n', newline)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_get_the_next_number_and_keep_what_is_there() {
        let text = "# Decisions\n\nMine.\n\n### ADR-015: Older\n";
        assert_eq!(next_id(text), "ADR-016");
        assert_eq!(next_id(""), "ADR-001");
        let record = OverrideRecord {
            task: "T0007",
            date: "2026-01-31",
            reason: "Hotfix\n### ADR-999: no",
            result: "fail",
            followup: "T0008",
            risk: "R-012",
            approver: "ada@example.org",
        };
        let grown = append(text, "ADR-016", &record);
        assert!(grown.starts_with(text));
        assert_eq!(numbers(&grown), [15, 16]);
        for part in [
            "**Date:** 2026-01-31",
            "**Override Type:** DoD Bypass",
            "**Approver:** ada@example.org",
            "R-012",
            "T0008",
        ] {
            assert!(grown.contains(part), "{part}");
        }
    }
}
