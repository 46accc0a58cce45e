//! The tools that can orchestrate, and the files that each of them reads.

use super::aider;
use super::rules::rules;
use crate::kodingx::templates::TemplateContext;
use crate::text::region::CommentStyle;

/// The tool that coordinates the work (§12.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Orchestrator {
    Cursor,
    ClaudeCode,
    Aider,
    Continue,
    Windsurf,
    Antigravity,
    Other,
}

impl Orchestrator {
    pub const ALL: [Self; 7] = [
        Self::Cursor,
        Self::ClaudeCode,
        Self::Aider,
        Self::Continue,
        Self::Windsurf,
        Self::Antigravity,
        Self::Other,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cursor => "cursor",
            Self::ClaudeCode => "claude_code",
            Self::Aider => "aider",
            Self::Continue => "continue",
            Self::Windsurf => "windsurf",
            Self::Antigravity => "antigravity",
            Self::Other => "other",
        }
    }

    /// The names of the manifest; `claude-code`, the agent's name, is the same tool.
    pub fn parse(name: &str) -> Option<Self> {
        let name = if name == "claude-code" { "claude_code" } else { name };
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }
}

/// One file a tool reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// From the root of the repository.
    pub path: &'static str,
    pub content: AdapterContent,
}

/// The content of an adapter's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdapterContent {
    /// The file is ours alone.
    Whole(String),
    /// The inside of a fenced region, in a file that others write too.
    Region { inside: String, comment: CommentStyle },
    /// The list `read` of aider's configuration must name this file: see [`aider::add_to_read`].
    NamedInRead { file: &'static str },
}

/// The files that `orchestrator` reads, in a repository without files of its own. For other repositories,
/// [`super::plan_install()`] decides.
pub fn adapters(orchestrator: Orchestrator, setting: &TemplateContext) -> Vec<Adapter> {
    match orchestrator {
        Orchestrator::Cursor => vec![cursor(setting)],
        Orchestrator::ClaudeCode => vec![region("CLAUDE.md", setting)],
        Orchestrator::Aider => aider(setting),
        Orchestrator::Continue => vec![continue_dev(setting)],
        Orchestrator::Windsurf => vec![windsurf(".windsurf/rules/agency.md", setting)],
        Orchestrator::Antigravity => vec![antigravity(".agents/rules/agency.md", setting)],
        Orchestrator::Other => vec![region("AGENTS.md", setting)],
    }
}

/// Cursor reads `.mdc` files below `.cursor/rules/`. The frontmatter must come first and decides when the rule
/// is sent; `alwaysApply` must be the boolean `true`, a string is silently taken for false. With it, `globs`
/// and `description` decide nothing, but Cursor's own editor writes all three.
/// (<https://cursor.com/docs/context/rules>,
/// <https://raw.githubusercontent.com/stbenjam/skillsaw/main/docs/rules/cursor-rules-valid.md>)
pub(super) fn cursor(setting: &TemplateContext) -> Adapter {
    let frontmatter = "description: Orchestrating work with KodingX Agency\nglobs:\nalwaysApply: true\n";
    whole(".cursor/rules/agency.mdc", frontmatter, setting)
}

/// Continue reads `.md` files in `.continue/rules/`, in the order of their names. `name` is shown to people;
/// only `alwaysApply: true` sends the rule with any files open.
/// (<https://docs.continue.dev/customize/deep-dives/rules>)
fn continue_dev(setting: &TemplateContext) -> Adapter {
    let frontmatter = "name: KodingX Agency\ndescription: Orchestrating work with KodingX Agency\n\
                       alwaysApply: true\n";
    whole(".continue/rules/agency.md", frontmatter, setting)
}

/// Windsurf reads `.md` files in `.windsurf/rules/`; without `trigger: always_on` a rule waits to be
/// mentioned. A file is cut at 12,000 characters, in older builds at 6,000, without a word: the rules stay
/// below both. The product is called Devin Desktop since June 2026, and its `.devin/rules/` takes precedence;
/// older builds know this folder alone. (<https://docs.devin.ai/desktop/cascade/memories>,
/// <https://docs.windsurf.com/plugins/cascade/memories>)
pub(super) fn windsurf(path: &'static str, setting: &TemplateContext) -> Adapter {
    let frontmatter = "trigger: always_on\ndescription: Orchestrating work with KodingX Agency\n";
    whole(path, frontmatter, setting)
}

/// Antigravity reads `.md` files of at most 12,000 characters in `.agents/rules/`, or, only where there is no
/// `.agents`, in `.agent/rules/`, its older folder. Its documentation leaves the frontmatter out, but a rule
/// without `trigger: always_on` is not loaded. `@name` in a rule pulls in a file.
/// (<https://antigravity.google/docs/rules-workflows>,
/// <https://discuss.ai.google.dev/t/new-folder-for-rules/126165>, <https://github.com/rtk-ai/rtk/pull/2916>)
pub(super) fn antigravity(path: &'static str, setting: &TemplateContext) -> Adapter {
    whole(path, "trigger: always_on\n", setting)
}

/// Aider reads no rules of its own accord: `read` in `.aider.conf.yml` names the files it loads, read-only, in
/// every session. Ours has a name that does not start with `.aider`, because aider offers to ignore `.aider*`
/// in git, and lies outside `.kodingx/`, which is the same for every tool (§12.1).
/// (<https://aider.chat/docs/usage/conventions.html>, <https://github.com/Aider-AI/aider/issues/471>)
fn aider(setting: &TemplateContext) -> Vec<Adapter> {
    let note = "In aider you see only the files of the chat and run nothing yourself: propose each command, \
                the user confirms it. `/run agency status` puts its output into the chat.";
    let text = format!("{}\n\n{}", setting.quoted_header(), rules(setting, Some(note)));
    vec![
        Adapter { path: aider::RULES, content: AdapterContent::Whole(text) },
        Adapter { path: aider::CONFIGURATION, content: AdapterContent::NamedInRead { file: aider::RULES } },
    ]
}

/// A file of ours alone: frontmatter first, because each of these tools reads it only there.
fn whole(path: &'static str, frontmatter: &str, setting: &TemplateContext) -> Adapter {
    let text = format!("---\n{frontmatter}---\n{}\n\n{}", setting.quoted_header(), rules(setting, None));
    Adapter { path, content: AdapterContent::Whole(text) }
}

/// A part of a file that others write too: `CLAUDE.md`, `AGENTS.md`, `.cursorrules`. None of them has a
/// frontmatter. (<https://code.claude.com/docs/en/memory>, <https://agents.md>)
pub(super) fn region(path: &'static str, setting: &TemplateContext) -> Adapter {
    let inside = format!("{}\n\n{}", setting.quoted_header(), rules(setting, None));
    Adapter { path, content: AdapterContent::Region { inside, comment: CommentStyle::Html } }
}
