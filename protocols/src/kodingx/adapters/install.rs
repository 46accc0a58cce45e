//! Plans which adapters are added to a repository with files of its own, and which files are left alone (§22.3, §22.4).
//!
//! Nothing of a person's is replaced: a file of ours is new, a region of ours is appended. Each decision comes
//! with a sentence for the person.

use super::aider;
use super::tools::{Adapter, AdapterContent, Orchestrator, adapters, antigravity, cursor, region, windsurf};
use crate::kodingx::templates::{self, TemplateContext};
use crate::text::region::CommentStyle;

/// Which files exist already. Files that we generated do not count: a `CLAUDE.md` that has only our region counts as
/// missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExistingFiles {
    pub cursorrules: bool,
    /// Any `.cursor/rules/*.mdc`.
    pub cursor_rules: bool,
    pub claude_md: bool,
    pub agents_md: bool,
    /// `.devin`, Windsurf's newer folder.
    pub devin_folder: bool,
    /// `.agents`, Antigravity's folder.
    pub agents_folder: bool,
    /// `.agent`, its older name.
    pub agent_folder: bool,
    /// `.github`
    pub github: bool,
    pub makefile: bool,
    pub package_json: bool,
    pub gitignore: bool,
}

/// What happens to one file, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterStep {
    pub path: &'static str,
    pub deed: AdapterAction,
    /// A sentence for the person.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdapterAction {
    /// A file of ours. One of that name is not overwritten without `--force`.
    Add(AdapterContent),
    /// A part of ours at the end of a file that may have been there before.
    Append(AdapterContent),
    LeaveAlone,
}

/// Every adapter to be written for `orchestrator` beside what exists, and every file that is left alone.
/// `workflow`: the person asked for the check on pull requests.
pub fn plan_install(
    existing: &ExistingFiles,
    orchestrator: Orchestrator,
    workflow: bool,
    setting: &TemplateContext,
) -> Vec<AdapterStep> {
    let mut steps = own(existing, orchestrator, setting);
    if existing.cursorrules {
        let why = "`.cursorrules` is there: the rules are appended to it. Cursor's agent no longer reads this \
                   file, `.cursor/rules/` has taken its place.";
        steps.push(append(region(".cursorrules", setting), why));
    }
    if existing.claude_md && orchestrator != Orchestrator::ClaudeCode {
        let why = "`CLAUDE.md` is there: the rules are appended to it, for Claude Code.";
        steps.push(append(region("CLAUDE.md", setting), why));
    }
    if existing.cursor_rules && orchestrator != Orchestrator::Cursor {
        let why =
            "Cursor's rules are there: ours are a file of their own beside them, which stay as they are.";
        steps.push(add(cursor(setting), why));
    }
    steps.extend(plan_other_files(existing, orchestrator, workflow, setting));
    steps
}

/// The adapters of the orchestrator itself.
fn own(existing: &ExistingFiles, orchestrator: Orchestrator, setting: &TemplateContext) -> Vec<AdapterStep> {
    let tool = orchestrator.as_str();
    match orchestrator {
        // Claude Code reads `AGENTS.md` only where there is no `CLAUDE.md` (since 2.1.277; before, never). A
        // new `CLAUDE.md` would silence it, unless it pulls it in.
        // (https://code.claude.com/docs/en/changelog#2-1-277)
        Orchestrator::ClaudeCode if existing.agents_md && !existing.claude_md => {
            let why = "`CLAUDE.md` is new and pulls in `AGENTS.md`, which Claude Code reads only where there \
                       is no `CLAUDE.md`.";
            vec![append(with_import(region("CLAUDE.md", setting)), why)]
        }
        // Where `.devin` and `.windsurf` both are, the first takes precedence.
        Orchestrator::Windsurf if existing.devin_folder => {
            let why = "The rules go to `.devin/rules/`: it is there, and takes precedence over `.windsurf`.";
            vec![add(windsurf(".devin/rules/agency.md", setting), why)]
        }
        // Antigravity looks into `.agent` only where there is no `.agents`: a new `.agents` would silence the
        // rules in the other one.
        Orchestrator::Antigravity if existing.agent_folder && !existing.agents_folder => {
            let why = "The rules go to `.agent/rules/`: Antigravity would no longer read that folder if there \
                       were an `.agents`.";
            vec![add(antigravity(".agent/rules/agency.md", setting), why)]
        }
        _ => {
            let steps = adapters(orchestrator, setting).into_iter().map(|adapter| match adapter.content {
                AdapterContent::Whole(_) => add(adapter, &format!("The rules, where `{tool}` reads them.")),
                AdapterContent::Region { .. } => {
                    append(adapter, &format!("The rules, where `{tool}` reads them; other text stays."))
                }
                AdapterContent::NamedInRead { file } => append(
                    adapter,
                    &format!(
                        "Aider is told to read `{file}`. A `read` list in your home's {} no longer counts \
                         here, and git may be told to ignore `.aider*`: then add this file with `git add -f`.",
                        aider::CONFIGURATION
                    ),
                ),
            });
            steps.collect()
        }
    }
}

/// Files that are no adapters.
fn plan_other_files(
    existing: &ExistingFiles,
    orchestrator: Orchestrator,
    workflow: bool,
    setting: &TemplateContext,
) -> Vec<AdapterStep> {
    let mut steps = Vec::new();
    if workflow {
        let content = AdapterContent::Whole(templates::workflow(setting).content);
        let why = "`agency lint` checks pull requests; other workflows stay as they are.";
        steps.push(add(Adapter { path: templates::WORKFLOW, content }, why));
    }
    let reads_agents = matches!(orchestrator, Orchestrator::Other | Orchestrator::ClaudeCode);
    let alone = [
        (existing.agents_md && !reads_agents, "AGENTS.md", "The orchestrator has a file of its own."),
        (
            existing.github && !workflow,
            ".github/",
            "`--github-workflow` would add a check of pull requests with `agency lint`.",
        ),
        (existing.makefile, "Makefile", "A DoD profile can call its targets."),
        (existing.package_json, "package.json", "Agency is no dependency of your program."),
        (
            existing.gitignore,
            ".gitignore",
            "No pattern is added; see that yours do not hide `.kodingx/` or the rules.",
        ),
    ];
    steps.extend(alone.into_iter().filter(|(there, ..)| *there).map(|(_, path, why)| AdapterStep {
        path,
        deed: AdapterAction::LeaveAlone,
        why: why.to_owned(),
    }));
    steps
}

fn add(adapter: Adapter, why: &str) -> AdapterStep {
    AdapterStep { path: adapter.path, deed: AdapterAction::Add(adapter.content), why: why.to_owned() }
}

fn append(adapter: Adapter, why: &str) -> AdapterStep {
    AdapterStep { path: adapter.path, deed: AdapterAction::Append(adapter.content), why: why.to_owned() }
}

fn with_import(adapter: Adapter) -> Adapter {
    let content = match adapter.content {
        AdapterContent::Region { inside, comment: comment @ CommentStyle::Html } => {
            AdapterContent::Region { inside: inside.replacen("\n\n", "\n\n@AGENTS.md\n\n", 1), comment }
        }
        other => other,
    };
    Adapter { content, ..adapter }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kodingx::adapters::missing_parts;
    use crate::kodingx::templates::context::tests::setting;

    fn steps(existing: ExistingFiles, orchestrator: Orchestrator) -> Vec<AdapterStep> {
        let steps = plan_install(&existing, orchestrator, false, &setting());
        let mut paths: Vec<_> = steps.iter().map(|step| step.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), steps.len(), "one decision per file: {paths:?}");
        assert!(steps.iter().all(|step| step.why.ends_with('.')));
        steps
    }

    fn deed(steps: &[AdapterStep], path: &str) -> AdapterAction {
        steps
            .iter()
            .find(|step| step.path == path)
            .unwrap_or_else(|| panic!("{path}: {steps:?}"))
            .deed
            .clone()
    }

    fn appended_region(steps: &[AdapterStep], path: &str) -> String {
        match deed(steps, path) {
            AdapterAction::Append(AdapterContent::Region { inside, .. }) => inside,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn an_empty_repository_gets_the_orchestrators_files_and_no_more() {
        for tool in Orchestrator::ALL {
            let paths: Vec<_> = steps(ExistingFiles::default(), tool).iter().map(|step| step.path).collect();
            let wanted: Vec<_> = adapters(tool, &setting()).iter().map(|adapter| adapter.path).collect();
            assert_eq!(paths, wanted);
        }
    }

    #[test]
    fn files_of_other_tools_get_the_whole_rules_appended_whatever_the_orchestrator() {
        let existing = ExistingFiles { cursorrules: true, claude_md: true, ..ExistingFiles::default() };
        for tool in Orchestrator::ALL {
            let steps = steps(existing, tool);
            for path in [".cursorrules", "CLAUDE.md"] {
                assert_eq!(missing_parts(&appended_region(&steps, path)), [], "{tool:?} {path}");
            }
        }
    }

    #[test]
    fn cursors_own_rules_get_a_file_beside_them() {
        let existing = ExistingFiles { cursor_rules: true, ..ExistingFiles::default() };
        for tool in Orchestrator::ALL {
            let deed = deed(&steps(existing, tool), ".cursor/rules/agency.mdc");
            assert!(matches!(deed, AdapterAction::Add(AdapterContent::Whole(_))), "{tool:?}");
        }
    }

    #[test]
    fn a_new_claude_md_does_not_silence_agents_md() {
        let existing = ExistingFiles { agents_md: true, ..ExistingFiles::default() };
        let inside = appended_region(&steps(existing, Orchestrator::ClaudeCode), "CLAUDE.md");
        assert!(inside.lines().any(|line| line == "@AGENTS.md"));
        assert!(inside.starts_with("> Generated by"));

        // A user who has both has decided what Claude Code reads.
        let both = ExistingFiles { claude_md: true, ..existing };
        assert!(!appended_region(&steps(both, Orchestrator::ClaudeCode), "CLAUDE.md").contains('@'));
    }

    #[test]
    fn a_new_agents_folder_does_not_silence_the_old_one() {
        let old = ExistingFiles { agent_folder: true, ..ExistingFiles::default() };
        deed(&steps(old, Orchestrator::Antigravity), ".agent/rules/agency.md");
        let both = ExistingFiles { agents_folder: true, ..old };
        deed(&steps(both, Orchestrator::Antigravity), ".agents/rules/agency.md");
    }

    #[test]
    fn rules_for_windsurf_go_where_a_renamed_windsurf_looks_first() {
        let renamed = ExistingFiles { devin_folder: true, ..ExistingFiles::default() };
        let steps = steps(renamed, Orchestrator::Windsurf);
        deed(&steps, ".devin/rules/agency.md");
        assert!(!steps.iter().any(|step| step.path.starts_with(".windsurf")));
    }

    #[test]
    fn what_is_not_ours_is_left_alone_and_said_so() {
        let existing = ExistingFiles {
            agents_md: true,
            github: true,
            makefile: true,
            package_json: true,
            gitignore: true,
            ..ExistingFiles::default()
        };
        let steps = steps(existing, Orchestrator::Cursor);
        for path in ["AGENTS.md", ".github/", "Makefile", "package.json", ".gitignore"] {
            assert_eq!(deed(&steps, path), AdapterAction::LeaveAlone, "{path}");
        }
    }

    #[test]
    fn the_workflow_is_added_only_when_asked_for() {
        let existing = ExistingFiles { github: true, ..ExistingFiles::default() };
        let asked = plan_install(&existing, Orchestrator::Cursor, true, &setting());
        assert!(matches!(
            deed(&asked, ".github/workflows/agency.yml"),
            AdapterAction::Add(AdapterContent::Whole(_))
        ));
        assert!(!asked.iter().any(|step| step.path == ".github/"));
        let not = plan_install(&existing, Orchestrator::Cursor, false, &setting());
        assert!(!not.iter().any(|step| step.path.starts_with(".github/workflows")));
    }
}
