//! The texts `agency init`, `install` and `upgrade` leave in a repository for people and for agents (§4).
//!
//! The templates lie beside this file, with slots like `«agent»`, which are filled here. All of them have the header of
//! §16, after the frontmatter if there is one.

pub(crate) mod context;

use super::layout;
pub use context::{RoleMode, TemplateContext};

/// One file, and the whole of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// From the root of the repository.
    pub path: String,
    pub content: String,
}

pub const TASK_TEMPLATE: &str = ".kodingx/templates/task.md";
pub const REPORT_TEMPLATE: &str = ".kodingx/templates/report.md";
pub const WORKFLOW: &str = ".github/workflows/agency.yml";

/// The protocol on one page, for people.
pub fn protocol(setting: &TemplateContext) -> TextFile {
    let builders = setting.builders();
    let builders = if builders.is_empty() { "not named yet".to_owned() } else { builders.join(", ") };
    let slots = [
        ("project", setting.project()),
        ("protocol", setting.protocol()),
        ("builders", builders),
        ("builder", setting.first_builder().to_owned()),
        ("auditor", setting.auditor().unwrap_or("none; verify decides alone").to_owned()),
    ];
    text(layout::PROTOCOL, include_str!("protocol.md"), &slots, setting)
}

/// The rules for builders and auditors, one file for each agent (§3.2, §6.3, §7). An agent with both roles gets both in
/// one file.
pub fn contracts(setting: &TemplateContext) -> Vec<TextFile> {
    let mut names = setting.builders();
    names.extend(setting.auditor().filter(|auditor| !setting.builders().contains(auditor)));
    let contract = |name: &str| {
        let builds = setting.builders().contains(&name);
        let audits = setting.auditor() == Some(name);
        let template = match (builds, audits) {
            (true, true) => {
                concat!(
                    include_str!("both.md"),
                    "\n",
                    include_str!("builder.md"),
                    "\n",
                    include_str!("auditor.md")
                )
            }
            (_, false) => concat!("«header»\n\n", include_str!("builder.md")),
            (false, true) => concat!("«header»\n\n", include_str!("auditor.md")),
        };
        let slots = [("agent", name.to_owned())];
        text(&format!(".kodingx/agents/{name}.md"), template, &slots, setting)
    };
    names.into_iter().map(contract).collect()
}

/// An empty task and an empty report, for people who write one by hand (§6.2, §7.2).
pub fn templates(setting: &TemplateContext) -> Vec<TextFile> {
    let slots = [("agent", setting.first_builder().to_owned())];
    vec![
        text(TASK_TEMPLATE, include_str!("task.md"), &slots, setting),
        text(REPORT_TEMPLATE, include_str!("report.md"), &slots, setting),
    ]
}

/// The register of risks, empty (§21.3).
pub fn risks(setting: &TemplateContext) -> TextFile {
    text(layout::RISKS, include_str!("risks.md"), &[], setting)
}

/// The record of decisions, empty (§20.4).
pub fn decisions(setting: &TemplateContext) -> TextFile {
    text(layout::DECISIONS, include_str!("decisions.md"), &[], setting)
}

/// `agency lint` on pull requests. It is optional, so it is not part of [`all`].
pub fn workflow(setting: &TemplateContext) -> TextFile {
    let slots = [("version", setting.generator())];
    text(WORKFLOW, include_str!("workflow.yml"), &slots, setting)
}

/// Everything a full scaffold has of these.
pub fn all(setting: &TemplateContext) -> Vec<TextFile> {
    let mut all = vec![protocol(setting), risks(setting), decisions(setting)];
    all.extend(contracts(setting));
    all.extend(templates(setting));
    all
}

fn text(path: &str, template: &str, slots: &[(&str, String)], setting: &TemplateContext) -> TextFile {
    let (quoted, plain) = (setting.quoted_header(), setting.header());
    let mut all = vec![("header", quoted.as_str()), ("plain header", plain.as_str())];
    all.extend(slots.iter().map(|(name, value)| (*name, value.as_str())));
    TextFile { path: path.to_owned(), content: fill(template, &all) }
}

/// `template` with its slots filled. Values are not searched for slots: a value with a `«` in it stays as it is.
pub(crate) fn fill(template: &str, slots: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, name, after)) = next_slot(rest) {
        filled.push_str(before);
        if let Some((_, value)) = slots.iter().find(|(slot, _)| *slot == name) {
            filled.push_str(value);
        }
        rest = after;
    }
    filled.push_str(rest);
    filled
}

fn next_slot(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('«')?;
    let (name, after) = rest.split_once('»')?;
    Some((before, name, after))
}

#[cfg(test)]
mod tests;
