//! The rules themselves, written once for every tool (§13, §14, §18).
//!
//! An agent pays for every sentence in every session, and some tools cut a long file without a word. The text
//! holds no `@`: Claude Code and Antigravity take `@name` for a file to pull in.

use crate::kodingx::templates::{RoleMode, TemplateContext, fill};

const RULES: &str = include_str!("rules.md");

/// A list of builders longer than this is cut: the manifest has them all.
const MOST_NAMES: usize = 12;

/// The rules for one repository; `note` is what is different in one tool.
pub(super) fn rules(setting: &TemplateContext, note: Option<&str>) -> String {
    let note = note.map(|note| format!("\n{note}")).unwrap_or_default();
    fill(
        RULES,
        &[
            ("people", &people(setting)),
            ("note", &note),
            ("builder", setting.first_builder()),
            ("mode", mode(setting.role_mode)),
        ],
    )
}

fn people(setting: &TemplateContext) -> String {
    let builders = setting.builders();
    let mut text = match builders.len() {
        0 => "Builders: none yet; `.kodingx/agency.json` names them".to_owned(),
        _ => {
            let names: Vec<String> =
                builders.iter().take(MOST_NAMES).map(|name| format!("`{name}`")).collect();
            format!("Builders: {}", names.join(", "))
        }
    };
    if let more @ 1.. = builders.len().saturating_sub(MOST_NAMES) {
        text.push_str(&format!(" and {more} more in `.kodingx/agency.json`"));
    }
    match setting.auditor() {
        Some(auditor) => text.push_str(&format!(". Auditor: `{auditor}`.")),
        None => text.push_str(". No auditor: verify decides alone."),
    }
    text
}

/// How much is delegated, and who approves (§11.3, §12.2).
fn mode(mode: RoleMode) -> &'static str {
    match mode {
        RoleMode::Solo => {
            "A smaller change you may make yourself, still as a task with report and verify. The user's \
             request approves its tasks; ask before anything it does not cover."
        }
        RoleMode::TechLead => {
            "Here every change to code is delegated, small ones too. The user is the tech lead: show the \
             tasks before `agency run` and the reports before other work builds on them; both wait for \
             approval."
        }
        RoleMode::AiFirst => {
            "Here every change to code is delegated, and you run without asking. Ask the user only for what \
             goes beyond the request, a task that failed twice, an auditor's `NEEDS_REVIEW`, or anything \
             destructive."
        }
    }
}
