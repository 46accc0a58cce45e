//! §12, §15 and §22: makes a board, or adds parts to one.
//!
//! `init` makes everything, `install` makes it beside a repository's existing files and changes none of them, `upgrade`
//! adds missing parts. Files have owners: a file that the protocol's tools wrote whole may be written again with
//! `--force`; a file that people edit (STATE.md, RISKS.md, their own CLAUDE.md …) is made where it is missing, and
//! otherwise gets at most a region of ours.

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::KodingX;
use super::adapters::{self, AdapterAction, AdapterContent, ExistingFiles, Orchestrator};
use super::generated_file::{GeneratedFile, GeneratedUpdate};
use super::layout;
use super::manifest::{self, BoardManifest, LicenseMode};
use super::templates::{self, RoleMode, TemplateContext, TextFile};
use super::views::{self, BoardTable};
use crate::board::BoardError;
use crate::names::AgentName;
use crate::store::Effects;
use crate::store::tree::{RepoTree, RepoTreeError};
use crate::text::region::{self, CommentStyle, RegionError};
use crate::timestamp::{self, OffsetTimestamp};

/// The options that a person gave. Others come from the manifest, or are the default.
#[derive(Debug, Clone, Default)]
pub struct ScaffoldOptions {
    pub orchestrator: Option<Orchestrator>,
    pub builders: Option<Vec<AgentName>>,
    pub license_mode: Option<LicenseMode>,
    pub environment: Option<String>,
    pub role_mode: Option<RoleMode>,
}

/// What the caller knows about the repository and the program.
#[derive(Debug, Clone)]
pub struct ScaffoldContext {
    /// The repository's name.
    pub project: String,
    /// `Europe/Zurich`, where it is known.
    pub timezone: Option<String>,
    /// The repository's environment, as far as its files show it.
    pub environment: Option<String>,
    /// This program's version.
    pub generator: String,
    /// DoD profiles that fit the repository: their names and texts.
    pub profiles: Vec<(String, String)>,
}

/// A part of a board that can be added alone (§22.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoardComponent {
    Core,
    Verify,
    Profiles,
    Board,
    Risks,
    Decisions,
    Protocol,
    Agents,
    Templates,
    Adapter,
    Workflow,
}

impl BoardComponent {
    /// Every part there is, by the name people add it with.
    pub const NAMED: [(&'static str, BoardComponent); 10] = [
        ("dod-profiles", BoardComponent::Profiles),
        ("verify", BoardComponent::Verify),
        ("task-board", BoardComponent::Board),
        ("risks", BoardComponent::Risks),
        ("decisions", BoardComponent::Decisions),
        ("protocol", BoardComponent::Protocol),
        ("agents", BoardComponent::Agents),
        ("templates", BoardComponent::Templates),
        ("adapter", BoardComponent::Adapter),
        ("github-workflow", BoardComponent::Workflow),
    ];

    /// What `install --minimal` makes (§22.2).
    pub const MINIMAL: [BoardComponent; 1] = [BoardComponent::Core];

    /// What `init` makes. The workflow is only made when it is asked for (§22.3).
    pub const FULL: [BoardComponent; 10] = [
        BoardComponent::Core,
        BoardComponent::Verify,
        BoardComponent::Profiles,
        BoardComponent::Board,
        BoardComponent::Risks,
        BoardComponent::Decisions,
        BoardComponent::Protocol,
        BoardComponent::Agents,
        BoardComponent::Templates,
        BoardComponent::Adapter,
    ];

    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, component)| *component)
    }
}

/// What happened to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScaffoldChange {
    pub path: String,
    pub what: ScaffoldAction,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaffoldAction {
    Made,
    Changed,
    /// The file is as it should be, or it is a person's.
    Kept,
    /// A person has to do something.
    Asked,
}

/// Whether generated files may be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverwritePolicy {
    Never,
    /// `--force`
    Generated,
}

/// Makes the components of a board that are missing.
///
/// The caller decides whether a board may exist already: `init` and `install` refuse one without `--force`, `upgrade`
/// needs one.
pub fn scaffold(
    tree: &RepoTree,
    components: &[BoardComponent],
    overwrite: OverwritePolicy,
    wishes: &ScaffoldOptions,
    place: &ScaffoldContext,
    now: &Zoned,
) -> Result<(Vec<ScaffoldChange>, Effects), BoardError> {
    let old = match KodingX::open(tree) {
        Ok(board) => Some(board.manifest),
        Err(BoardError::NoBoard) => None,
        Err(error) => return Err(error),
    };
    let path = old.as_ref().map_or(layout::MANIFEST, |manifest| manifest.path);
    let text = manifest_text(old.as_ref(), wishes, place, now)?;
    let manifest =
        BoardManifest::parse(path, text.clone()).map_err(|error| BoardError::Marker(Box::new(error)))?;
    let board = KodingX { manifest };
    let builders: Vec<String> = board.manifest.builders.iter().map(ToString::to_string).collect();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let protocol = board.manifest.version.to_string();
    let setting = TemplateContext {
        protocol: &protocol,
        generator: &place.generator,
        license_mode: board.manifest.license().as_str(),
        project: &board.manifest.project,
        builders: &builders,
        auditor: json["auditor"].as_str(),
        role_mode: json["role_mode"].as_str().and_then(RoleMode::parse).unwrap_or_default(),
    };
    let orchestrator = board.manifest.orchestrator.as_deref().and_then(Orchestrator::parse);
    let mut site = Scaffolder {
        tree,
        overwrite,
        deeds: Vec::new(),
        effects: Effects::none(),
        written: Vec::new(),
        followed: Vec::new(),
    };
    for component in components {
        let now = board.local(now);
        match component {
            BoardComponent::Core => {
                let was = old.as_ref().map(|manifest| manifest.text.as_str());
                site.settled(path, was, &text);
                let header = setting.quoted_header();
                site.made_once(layout::STATE, || {
                    views::new_state(board.manifest.version, OffsetTimestamp::from_zoned(&now), Some(&header))
                })?;
                site.folder(".kodingx/inbox")?;
                site.folder(".kodingx/outbox")?;
            }
            BoardComponent::Verify => site.folder(".kodingx/verify")?,
            BoardComponent::Profiles => {
                if place.profiles.is_empty() {
                    site.folder(layout::PROFILES)?;
                }
                for (name, text) in &place.profiles {
                    let text = format!("# {}\n{text}", setting.header());
                    site.generated(&format!("{}/{name}.yml", layout::PROFILES), &text, "")?;
                }
            }
            BoardComponent::Board => {
                let rows: Vec<_> =
                    board.tasks(tree)?.tasks.iter().map(|(_, task)| views::ViewRow::of(task)).collect();
                let head = format!("# Task board\n\n{}\n", setting.quoted_header());
                let text = BoardTable::of(&rows, &BoardTable::default())
                    .write(&head)
                    .map_err(|error| BoardError::refused(error.to_string()))?;
                site.made_once(layout::TASK_BOARD, || text)?;
            }
            BoardComponent::Risks => site.made_once(layout::RISKS, || templates::risks(&setting).content)?,
            BoardComponent::Decisions => {
                site.made_once(layout::DECISIONS, || templates::decisions(&setting).content)?;
            }
            BoardComponent::Protocol => site.texts(vec![templates::protocol(&setting)])?,
            BoardComponent::Agents => site.texts(templates::contracts(&setting))?,
            BoardComponent::Templates => site.texts(templates::templates(&setting))?,
            BoardComponent::Adapter => {
                site.adapter(orchestrator.unwrap_or(Orchestrator::Other), &setting)?;
            }
            BoardComponent::Workflow => site.texts(vec![templates::workflow(&setting)])?,
        }
    }
    Ok((site.deeds, site.effects))
}

/// The manifest (§5). An old manifest keeps every field that no option sets, unknown ones included; without options it
/// is not changed at all.
fn manifest_text(
    old: Option<&BoardManifest>,
    wishes: &ScaffoldOptions,
    place: &ScaffoldContext,
    now: &Zoned,
) -> Result<String, BoardError> {
    let mut wanted = Map::new();
    if let Some(orchestrator) = wishes.orchestrator {
        wanted.insert("orchestrator".into(), orchestrator.as_str().into());
    }
    if let Some(builders) = &wishes.builders {
        wanted.insert("builders".into(), builders.iter().map(AgentName::as_str).collect::<Vec<_>>().into());
    }
    if let Some(mode) = wishes.license_mode {
        wanted.insert("license_mode".into(), mode.as_str().into());
    }
    if let Some(environment) = &wishes.environment {
        wanted.insert("repo_environment".into(), environment.as_str().into());
    }
    if let Some(mode) = wishes.role_mode {
        wanted.insert("role_mode".into(), mode.as_str().into());
    }
    let mut fields = match old {
        Some(old) => {
            let fields: Map<String, Value> = serde_json::from_str(old.text.trim_start_matches('\u{feff}'))
                .map_err(|error| BoardError::refused(format!("{}: {error}", old.path)))?;
            if wanted.iter().all(|(key, value)| fields.get(key) == Some(value)) {
                return Ok(old.text.clone());
            }
            fields
        }
        None => {
            let zone = place.timezone.clone().unwrap_or_else(|| "UTC".to_owned());
            let local = timestamp::zone(&zone).map_or_else(|| now.clone(), |zone| now.with_time_zone(zone));
            let made = json!({
                "protocol": manifest::CURRENT.to_string(),
                "project": place.project,
                "created_at": OffsetTimestamp::from_zoned(&local).to_string(),
                "license_mode": LicenseMode::Community.as_str(),
                "orchestrator": Orchestrator::Other.as_str(),
                "builders": [],
                "repo_environment": place.environment,
                "role_mode": RoleMode::default().as_str(),
                "task_id_strategy": "sequential",
                "defaults": { "dod_profile": "auto", "timezone": zone },
            });
            match made {
                Value::Object(fields) => fields,
                _ => Map::new(),
            }
        }
    };
    fields.extend(wanted);
    let text = serde_json::to_string_pretty(&fields)
        .map_err(|error| BoardError::refused(format!("the manifest can't be written: {error}")))?;
    Ok(text + "\n")
}

/// The scaffolding of one repository.
struct Scaffolder<'t> {
    tree: &'t RepoTree,
    overwrite: OverwritePolicy,
    deeds: Vec<ScaffoldChange>,
    effects: Effects,
    /// The files of other authors that got our region, and the names by which they were found.
    written: Vec<String>,
    followed: Vec<String>,
}

impl Scaffolder<'_> {
    fn note(&mut self, path: &str, what: ScaffoldAction, why: &str) {
        self.deeds.push(ScaffoldChange { path: path.to_owned(), what, why: why.to_owned() });
    }

    /// Writes a file with the text `new`, over any text it had.
    fn settled(&mut self, path: &str, old: Option<&str>, new: &str) {
        let what = match old {
            None => ScaffoldAction::Made,
            Some(old) if old == new => ScaffoldAction::Kept,
            Some(_) => ScaffoldAction::Changed,
        };
        self.effects.put(path, old, new);
        self.note(path, what, "");
    }

    /// Makes a file that people edit, if it is missing; it is never changed again.
    fn made_once(&mut self, path: &str, text: impl FnOnce() -> String) -> Result<(), BoardError> {
        match self.tree.read(path)? {
            Some(_) => self.note(path, ScaffoldAction::Kept, ""),
            None => {
                self.effects.create(path, text());
                self.note(path, ScaffoldAction::Made, "");
            }
        }
        Ok(())
    }

    /// Makes a folder, with a file by which git keeps it although it is empty.
    fn folder(&mut self, path: &str) -> Result<(), BoardError> {
        if self.tree.list(path)?.is_empty() {
            self.made_once(&format!("{path}/.gitkeep"), String::new)?;
        }
        Ok(())
    }

    fn texts(&mut self, texts: Vec<TextFile>) -> Result<(), BoardError> {
        texts.into_iter().try_for_each(|text| self.generated(&text.path, &text.content, ""))
    }

    /// Writes a file that the tools write, in a region of ours: text of people around it stays.
    fn generated(&mut self, path: &str, text: &str, why: &str) -> Result<(), BoardError> {
        let file = GeneratedFile::new(path, text);
        let refused = |error: RegionError| BoardError::refused(format!("{path}: {error}"));
        let Some(old) = self.tree.read_text(path)? else {
            self.effects.create(path, file.fenced().map_err(refused)?);
            self.note(path, ScaffoldAction::Made, why);
            return Ok(());
        };
        let force = self.overwrite == OverwritePolicy::Generated;
        match file.over(&old).map_err(refused)? {
            GeneratedUpdate::Same => self.note(path, ScaffoldAction::Kept, ""),
            _ if !force => {
                self.note(path, ScaffoldAction::Kept, "it is there already; --force would write it anew");
            }
            GeneratedUpdate::Region(new) => self.settled(path, Some(&old), &new),
            GeneratedUpdate::Whole(new) => {
                let saved = (1..)
                    .map(|number| format!("{path}.saved-{number}"))
                    .find(|saved| !self.tree.exists(saved))
                    .unwrap_or_default();
                self.effects.create(&saved, &old);
                self.effects.replace(path, &old, new);
                let why = format!("what it was is in {saved}: move your own text from there, and remove it");
                self.note(path, ScaffoldAction::Changed, &why);
            }
        }
        Ok(())
    }

    /// Writes the rules where the coordinating tool reads them, and beside the rules of other tools.
    fn adapter(
        &mut self,
        orchestrator: Orchestrator,
        setting: &TemplateContext<'_>,
    ) -> Result<(), BoardError> {
        let existing = existing(self.tree, orchestrator)?;
        self.adapters(adapters::plan_install(&existing, orchestrator, false, setting), setting)?;
        for path in SHARED.into_iter().filter(|path| is_link(self.tree, path)) {
            self.link_kept(path);
        }
        Ok(())
    }

    fn adapters(
        &mut self,
        steps: Vec<adapters::AdapterStep>,
        setting: &TemplateContext<'_>,
    ) -> Result<(), BoardError> {
        for step in steps {
            match step.deed {
                AdapterAction::LeaveAlone if self.written.iter().any(|path| path == step.path) => {}
                AdapterAction::LeaveAlone => self.note(step.path, ScaffoldAction::Kept, &step.why),
                AdapterAction::Add(AdapterContent::Whole(text)) => {
                    self.generated(step.path, &text, &step.why)?;
                }
                AdapterAction::Add(content) | AdapterAction::Append(content) => {
                    self.appended(step.path, content, &step.why, setting)?;
                }
            }
        }
        Ok(())
    }

    /// Notes a link that was not written through.
    fn link_kept(&mut self, path: &str) {
        match self.tree.follow(path) {
            // It is the coordinating tool's own file, and was said of its target.
            Ok(target) if self.followed.iter().any(|name| name == path) && self.written.contains(&target) => {
            }
            Ok(target) if self.written.contains(&target) => {
                let why = format!("it is a link to {target}, which has the rules");
                self.note(path, ScaffoldAction::Kept, &why);
            }
            _ => self.note(path, ScaffoldAction::Kept, "it is a link, and what it leads to is left alone"),
        }
    }

    /// Writes a region of ours in a file of another author. A link to such a file stays a link.
    fn appended(
        &mut self,
        name: &str,
        content: AdapterContent,
        why: &str,
        setting: &TemplateContext<'_>,
    ) -> Result<(), BoardError> {
        let target = shared_target(self.tree, name)?;
        let path = target.as_str();
        let why = match path == name {
            true => why.to_owned(),
            false => format!("`{name}` is a link to it. {why}"),
        };
        self.written.push(target.clone());
        self.followed.push(name.to_owned());
        let old = self.tree.read_text(path)?;
        let text = old.as_deref().unwrap_or_default();
        let new = match content {
            AdapterContent::Whole(text) => text,
            AdapterContent::Region { inside, comment } => region::upsert(text, REGION, &inside, comment)
                .map_err(|error| BoardError::refused(format!("{path}: {error}")))?,
            AdapterContent::NamedInRead { file } => {
                match adapters::aider::add_to_read(text, file, &setting.header()) {
                    adapters::aider::ReadListEdit::Already => text.to_owned(),
                    adapters::aider::ReadListEdit::Appended(new) => new,
                    adapters::aider::ReadListEdit::ByHand(reason) => {
                        self.note(path, ScaffoldAction::Asked, &reason.to_string());
                        return Ok(());
                    }
                }
            }
        };
        let what = match &old {
            None => ScaffoldAction::Made,
            Some(old) if *old == new => ScaffoldAction::Kept,
            Some(_) => ScaffoldAction::Changed,
        };
        self.effects.put(path, old.as_deref(), new);
        self.note(path, what, if what == ScaffoldAction::Kept { "" } else { &why });
        Ok(())
    }
}

/// The name of the region with our rules, in files of other authors.
pub const REGION: &str = "rules";

/// Files of several tools that our rules may be appended to.
const SHARED: [&str; 3] = [".cursorrules", "CLAUDE.md", "AGENTS.md"];

fn is_link(tree: &RepoTree, path: &str) -> bool {
    !matches!(tree.follow(path), Ok(target) if target == path)
}

/// The file that is written for a name: many repositories have one file of rules, and links to it for other tools. A link
/// is followed to a Markdown file of this repository, and to nothing else.
fn shared_target(tree: &RepoTree, name: &str) -> Result<String, BoardError> {
    let refused = |leads: &str| {
        BoardError::refused(format!("{name} is a link that leads {leads}; nothing was changed")).with_hint(
            format!("put a file in place of the link {name}, or a link to a Markdown file of this repository; or name another tool with --orchestrator"),
        )
    };
    let target = match tree.follow(name) {
        Ok(target) => target,
        Err(RepoTreeError::Link { .. }) => return Err(refused("out of the repository")),
        Err(error) => return Err(error.into()),
    };
    let is_ours = |part: &str| part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case(layout::ROOT);
    let is_rules = target.ends_with(".md") || target.ends_with(".mdc") || target.ends_with(".cursorrules");
    match target == name || (is_rules && !target.split('/').any(is_ours)) {
        true => Ok(target),
        false => Err(refused(&format!("to {target}"))),
    }
}

/// Which files of §22.3 exist. A file with only our region does not count, nor does a link that leads elsewhere.
fn existing(tree: &RepoTree, orchestrator: Orchestrator) -> Result<ExistingFiles, BoardError> {
    let theirs = |path: &str| -> Result<bool, BoardError> {
        // A link is another name of a file that counts by itself; only the tool's own is followed.
        let is_own = path == "CLAUDE.md" && orchestrator == Orchestrator::ClaudeCode;
        let target = match is_link(tree, path) {
            true if !is_own => return Ok(false),
            true => shared_target(tree, path)?,
            false => path.to_owned(),
        };
        let Some(text) = tree.read_text(&target)? else { return Ok(false) };
        let ours = region::find(&text, REGION, CommentStyle::Html).ok().flatten();
        Ok(ours.is_none_or(|range| {
            let rest = [&text[..range.start], &text[range.end..]].concat();
            rest.lines().any(|line| !line.trim().is_empty() && !line.contains("agency:"))
        }))
    };
    let rules = tree.list(".cursor/rules")?;
    Ok(ExistingFiles {
        cursorrules: theirs(".cursorrules")?,
        cursor_rules: rules.iter().any(|entry| entry.name.ends_with(".mdc") && entry.name != "agency.mdc"),
        claude_md: theirs("CLAUDE.md")?,
        agents_md: theirs("AGENTS.md")?,
        devin_folder: tree.exists(".devin"),
        agents_folder: tree.exists(".agents"),
        agent_folder: tree.exists(".agent"),
        github: tree.exists(".github"),
        makefile: tree.exists("Makefile"),
        package_json: tree.exists("package.json"),
        gitignore: tree.exists(".gitignore"),
    })
}
