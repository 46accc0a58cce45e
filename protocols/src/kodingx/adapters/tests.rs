use std::collections::BTreeSet;

use serde_yaml::Value;

use super::*;
use crate::kodingx::templates::context::tests::setting;
use crate::kodingx::templates::{RoleMode, TemplateContext};
use crate::text::region::CommentStyle;

/// The text an agent gets to read.
fn read_by_the_agent(adapters: &[Adapter]) -> String {
    let texts = adapters.iter().filter_map(|adapter| match &adapter.content {
        AdapterContent::Whole(text) | AdapterContent::Region { inside: text, .. } => Some(text.as_str()),
        AdapterContent::NamedInRead { .. } => None,
    });
    texts.collect()
}

fn every(check: impl Fn(Orchestrator, RoleMode, &str)) {
    for tool in Orchestrator::ALL {
        for role_mode in [RoleMode::Solo, RoleMode::TechLead, RoleMode::AiFirst] {
            let setting = TemplateContext { role_mode, ..setting() };
            check(tool, role_mode, &read_by_the_agent(&adapters(tool, &setting)));
        }
    }
}

/// What stands between the two `---` at the very beginning, and the rest.
fn frontmatter(text: &str) -> (Value, &str) {
    let (inside, rest) =
        text.strip_prefix("---\n").and_then(|text| text.split_once("\n---\n")).expect("frontmatter first");
    (serde_yaml::from_str(inside).expect("YAML"), rest)
}

fn only_file(tool: Orchestrator) -> (&'static str, String) {
    let mut adapters = adapters(tool, &setting());
    assert_eq!(adapters.len(), 1);
    match adapters.remove(0) {
        Adapter { path, content: AdapterContent::Whole(text) } => (path, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_names_of_the_manifest_are_read_and_written() {
    for tool in Orchestrator::ALL {
        assert_eq!(Orchestrator::parse(tool.as_str()), Some(tool));
    }
    assert_eq!(Orchestrator::parse("claude-code"), Some(Orchestrator::ClaudeCode));
    assert_eq!(Orchestrator::parse("emacs"), None);
}

#[test]
fn every_tool_in_every_mode_is_told_every_part_and_every_rule() {
    every(|tool, mode, text| assert_eq!(missing_parts(text), [], "{tool:?} {mode:?}"));
}

#[test]
fn every_tool_knows_the_commands_the_paths_and_the_statuses() {
    let facts = [
        "`agency status`",
        "`agency task new ",
        "`agency run`",
        "`agency report ID`",
        "`agency verify --task ID`",
        ".kodingx/inbox/{agent}/YYYY-MM-DD/T{ID}-{HHMM}-{slug}.md",
        ".kodingx/outbox/{agent}/YYYY-MM-DD/T{ID}-{HHMM}-{slug}-report.md",
        ".kodingx/verify/YYYY-MM-DD/T{ID}-{HHMM}-{slug}.verify.json",
        "NEW",
        "ASSIGNED",
        "IN_PROGRESS",
        "BLOCKED",
        "READY_FOR_REVIEW",
        "DONE",
        "CANCELED",
        "Splitting the user's request into tasks is your work",
        "`agency --version` fails",
        "200 lines",
        "5 files",
    ];
    every(|tool, _, text| {
        for fact in facts {
            assert!(text.contains(fact), "{tool:?} is not told {fact:?}");
        }
    });
}

#[test]
fn every_tool_is_told_what_never_to_do() {
    every(|tool, _, text| {
        let never = text.split_once("\n## Never\n").expect("a list").1;
        for fact in [
            "DONE without verify",
            "reading a report",
            "destructive commands",
            "expose secrets",
            "conflict with these rules",
            "STATE.md` or `.kodingx/TASK_BOARD.md` by hand",
            "--override",
        ] {
            assert!(never.contains(fact), "{tool:?}: {fact:?}");
        }
    });
}

#[test]
fn an_agent_that_was_handed_a_task_is_told_that_the_rules_are_not_for_it() {
    // Claude Code as a builder reads the same CLAUDE.md as Claude Code as the orchestrator.
    every(|tool, _, text| {
        let role =
            text.split_once("## Role\n").and_then(|(_, rest)| rest.split_once("\n## ")).expect("a part").0;
        assert!(role.contains("you are not the Orchestrator"), "{tool:?}");
        assert!(role.contains("`.kodingx/agents/{agent}.md`"), "{tool:?}");
    });
}

#[test]
fn the_three_modes_differ_in_who_approves_and_nowhere_else() {
    let text = |role_mode| {
        read_by_the_agent(&adapters(Orchestrator::Other, &TemplateContext { role_mode, ..setting() }))
    };
    let modes = [text(RoleMode::Solo), text(RoleMode::TechLead), text(RoleMode::AiFirst)];
    let differing: BTreeSet<&str> = modes
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| !modes.iter().all(|text| text.lines().any(|other| other == *line)))
        .collect();
    assert_eq!(differing.len(), 3, "{differing:?}");
    assert!(modes[0].contains("you may make yourself"));
    assert!(modes[1].contains("wait for approval"));
    assert!(modes[2].contains("run without asking"));
}

#[test]
fn builders_and_auditor_are_named_and_a_long_list_is_cut() {
    let text = read_by_the_agent(&adapters(Orchestrator::Other, &setting()));
    assert!(text.contains("Builders: `claude-code`, `codex`. Auditor: `gemini`."));
    assert!(text.contains("--assignee claude-code "));

    let many: Vec<String> = (0..50).map(|number| format!("agent-{number}")).collect();
    let text =
        read_by_the_agent(&adapters(Orchestrator::Other, &TemplateContext { builders: &many, ..setting() }));
    assert!(text.contains("`agent-11` and 38 more in `.kodingx/agency.json`"));

    let nobody = TemplateContext { builders: &[], auditor: None, ..setting() };
    let text = read_by_the_agent(&adapters(Orchestrator::Other, &nobody));
    assert!(text.contains("Builders: none yet") && text.contains("No auditor"));
}

#[test]
fn no_tool_cuts_the_rules() {
    let many: Vec<String> = (0..50).map(|number| format!("a-builder-with-a-long-name-{number}")).collect();
    every(|tool, role_mode, _| {
        let setting = TemplateContext { builders: &many, role_mode, ..setting() };
        let text = read_by_the_agent(&adapters(tool, &setting));
        // The smallest limit is that of older builds of Windsurf.
        assert!(text.chars().count() < 6_000, "{tool:?}: {}", text.chars().count());
        assert!(text.lines().count() < 200, "{tool:?}");
    });
}

#[test]
fn no_rule_pulls_in_a_file_or_leaves_a_gap() {
    every(|tool, _, text| {
        assert!(!text.contains('@'), "{tool:?}");
        assert!(!text.contains(['«', '»']), "{tool:?}");
        assert!(!text.contains("<!--") && !text.contains("\n\n\n"), "{tool:?}");
        assert!(text.ends_with('\n') && !text.contains('\r'), "{tool:?}");
    });
}

#[test]
fn the_header_comes_first_or_right_after_the_frontmatter() {
    let header = format!("{}\n\n# ", setting().quoted_header());
    every(|tool, _, text| {
        let text = if text.starts_with("---\n") { frontmatter(text).1 } else { text };
        assert!(text.starts_with(&header), "{tool:?}: {text}");
    });
}

#[test]
fn cursor_applies_its_file_always() {
    let (path, text) = only_file(Orchestrator::Cursor);
    assert_eq!(path, ".cursor/rules/agency.mdc");
    let (keys, _) = frontmatter(&text);
    assert_eq!(keys["alwaysApply"], Value::Bool(true));
    assert!(keys["description"].is_string());
    assert!(keys.get("globs").is_some_and(Value::is_null));
}

#[test]
fn continue_applies_its_file_always_under_a_name() {
    let (path, text) = only_file(Orchestrator::Continue);
    assert_eq!(path, ".continue/rules/agency.md");
    let (keys, _) = frontmatter(&text);
    assert_eq!(keys["alwaysApply"], Value::Bool(true));
    assert_eq!(keys["name"], Value::from("KodingX Agency"));
}

#[test]
fn windsurf_and_antigravity_apply_their_files_always() {
    for (tool, wanted) in [
        (Orchestrator::Windsurf, ".windsurf/rules/agency.md"),
        (Orchestrator::Antigravity, ".agents/rules/agency.md"),
    ] {
        let (path, text) = only_file(tool);
        assert_eq!(path, wanted);
        assert_eq!(frontmatter(&text).0["trigger"], Value::from("always_on"));
    }
}

#[test]
fn claude_code_and_other_tools_get_a_region_in_a_shared_file() {
    for (tool, wanted) in [(Orchestrator::ClaudeCode, "CLAUDE.md"), (Orchestrator::Other, "AGENTS.md")] {
        let adapters = adapters(tool, &setting());
        assert_eq!(adapters.len(), 1);
        assert_eq!(adapters[0].path, wanted);
        assert!(matches!(adapters[0].content, AdapterContent::Region { comment: CommentStyle::Html, .. }));
    }
}

#[test]
fn aider_is_told_to_read_the_file_that_is_written_for_it() {
    let adapters = adapters(Orchestrator::Aider, &setting());
    let [rules, configuration] = adapters.as_slice() else { panic!("{adapters:?}") };
    assert!(matches!(rules.content, AdapterContent::Whole(_)));
    assert!(!rules.path.starts_with(".aider"), "aider lets git ignore that");
    assert_eq!(configuration.path, ".aider.conf.yml");
    assert_eq!(configuration.content, AdapterContent::NamedInRead { file: rules.path });
}
