//! §12, §15 and §22: a board where there is none, and more of one where there is some.
//!
//! `init` makes everything, `install` makes it beside what a repository has and changes nothing of it,
//! `upgrade` adds what is missing. Files belong to somebody: what the protocol's tools wrote whole may be
//! written again with `--force`; what people write into (STATE.md, RISKS.md, their own CLAUDE.md …) is made
//! where it is missing, and otherwise gets at most a region of its own.

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::KodingX;
use super::adapters::{self, Content, Deed, Existing, Orchestrator};
use super::layout;
use super::manifest::{self, LicenseMode, Manifest};
use super::texts::{self, RoleMode, Setting, Text};
use super::views::{self, Board};
use crate::board::BoardError;
use crate::moment::{self, Moment};
use crate::names::AgentName;
use crate::store::Effects;
use crate::store::tree::{Tree, TreeError};
use crate::text::region::{self, Comment};

/// What a person asked for. What they did not is taken from the manifest, or is the default.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub orchestrator: Option<Orchestrator>,
    pub builders: Option<Vec<AgentName>>,
    pub license_mode: Option<LicenseMode>,
    pub environment: Option<String>,
    pub role_mode: Option<RoleMode>,
}

/// What the caller knows about the place.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The repository's name.
    pub project: String,
    /// `Europe/Zurich`, where it is known.
    pub timezone: Option<String>,
    /// What the repository is written in, as far as its files tell.
    pub environment: Option<String>,
    /// This program's version.
    pub generator: String,
    /// DoD profiles that fit the repository: their names and texts.
    pub profiles: Vec<(String, String)>,
}

/// A part of a board that can be added alone (§22.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
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

impl Component {
    /// Every part there is, by the name people add it with.
    pub const NAMED: [(&'static str, Component); 10] = [
        ("dod-profiles", Component::Profiles),
        ("verify", Component::Verify),
        ("task-board", Component::Board),
        ("risks", Component::Risks),
        ("decisions", Component::Decisions),
        ("protocol", Component::Protocol),
        ("agents", Component::Agents),
        ("templates", Component::Templates),
        ("adapter", Component::Adapter),
        ("github-workflow", Component::Workflow),
    ];

    /// What `install --minimal` makes (§22.2).
    pub const MINIMAL: [Component; 1] = [Component::Core];

    /// What `init` makes. The workflow is only made when it is asked for (§22.3).
    pub const FULL: [Component; 10] = [
        Component::Core,
        Component::Verify,
        Component::Profiles,
        Component::Board,
        Component::Risks,
        Component::Decisions,
        Component::Protocol,
        Component::Agents,
        Component::Templates,
        Component::Adapter,
    ];

    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, component)| *component)
    }
}

/// What happened to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deeds {
    pub path: String,
    pub what: What,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Made,
    Changed,
    /// It is as it should be, or it is a person's.
    Kept,
    /// A person has to do something.
    Asked,
}

/// Whether what the tools wrote before may be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    Never,
    /// `--force`
    Generated,
}

/// Makes the components of a board that are missing.
///
/// Whether a board may be there already is the caller's question: `init` and `install` refuse one without
/// `--force`, `upgrade` needs one.
pub fn scaffold(
    tree: &Tree,
    components: &[Component],
    overwrite: Overwrite,
    wishes: &Wishes,
    place: &Surroundings,
    now: &Zoned,
) -> Result<(Vec<Deeds>, Effects), BoardError> {
    let old = match KodingX::open(tree) {
        Ok(board) => Some(board.manifest),
        Err(BoardError::NoBoard) => None,
        Err(error) => return Err(error),
    };
    let path = old.as_ref().map_or(layout::MANIFEST, |manifest| manifest.path);
    let text = manifest_text(old.as_ref(), wishes, place, now)?;
    let manifest =
        Manifest::parse(path, text.clone()).map_err(|error| BoardError::Marker(Box::new(error)))?;
    let board = KodingX { manifest };
    let builders: Vec<String> = board.manifest.builders.iter().map(ToString::to_string).collect();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let protocol = board.manifest.version.to_string();
    let setting = Setting {
        protocol: &protocol,
        generator: &place.generator,
        license_mode: board.manifest.license().as_str(),
        project: &board.manifest.project,
        builders: &builders,
        auditor: json["auditor"].as_str(),
        role_mode: json["role_mode"].as_str().and_then(RoleMode::parse).unwrap_or_default(),
    };
    let orchestrator = board.manifest.orchestrator.as_deref().and_then(Orchestrator::parse);
    let mut site = Site { tree, overwrite, deeds: Vec::new(), effects: Effects::none() };
    for component in components {
        let now = board.local(now);
        match component {
            Component::Core => {
                let was = old.as_ref().map(|manifest| manifest.text.as_str());
                site.settled(path, was, &text);
                let header = setting.quoted_header();
                site.made_once(layout::STATE, || {
                    views::new_state(board.manifest.version, Moment::of(&now), Some(&header))
                })?;
                site.folder(".kodingx/inbox")?;
                site.folder(".kodingx/outbox")?;
            }
            Component::Verify => site.folder(".kodingx/verify")?,
            Component::Profiles => {
                if place.profiles.is_empty() {
                    site.folder(layout::PROFILES)?;
                }
                for (name, text) in &place.profiles {
                    let text = format!("# {}\n{text}", setting.header());
                    site.generated(&format!("{}/{name}.yml", layout::PROFILES), &text, "")?;
                }
            }
            Component::Board => {
                let rows: Vec<_> =
                    board.tasks(tree)?.tasks.iter().map(|(_, task)| views::Row::of(task)).collect();
                let head = format!("# Task board\n\n{}\n", setting.quoted_header());
                let text = Board::of(&rows, &Board::default())
                    .write(&head)
                    .map_err(|error| BoardError::refused(error.to_string()))?;
                site.made_once(layout::TASK_BOARD, || text)?;
            }
            Component::Risks => site.made_once(layout::RISKS, || texts::risks(&setting).content)?,
            Component::Decisions => {
                site.made_once(layout::DECISIONS, || texts::decisions(&setting).content)?;
            }
            Component::Protocol => site.texts(vec![texts::protocol(&setting)])?,
            Component::Agents => site.texts(texts::contracts(&setting))?,
            Component::Templates => site.texts(texts::templates(&setting))?,
            Component::Adapter => {
                let orchestrator = orchestrator.unwrap_or(Orchestrator::Other);
                let steps = adapters::beside(&existing(tree)?, orchestrator, false, &setting);
                site.adapters(steps, &setting)?;
                for path in SHARED.into_iter().filter(|path| is_link(tree, path)) {
                    site.note(path, What::Kept, "it is a link, and what it leads to is left alone");
                }
            }
            Component::Workflow => site.texts(vec![texts::workflow(&setting)])?,
        }
    }
    Ok((site.deeds, site.effects))
}

/// The manifest (§5). An old one keeps what is not asked for, unknown fields included; without a wish it is
/// not touched at all.
fn manifest_text(
    old: Option<&Manifest>,
    wishes: &Wishes,
    place: &Surroundings,
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
            let local = moment::zone(&zone).map_or_else(|| now.clone(), |zone| now.with_time_zone(zone));
            let made = json!({
                "protocol": manifest::CURRENT.to_string(),
                "project": place.project,
                "created_at": Moment::of(&local).to_string(),
                "license_mode": LicenseMode::Lexaplus.as_str(),
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

/// A repository that is built in.
struct Site<'t> {
    tree: &'t Tree,
    overwrite: Overwrite,
    deeds: Vec<Deeds>,
    effects: Effects,
}

impl Site<'_> {
    fn note(&mut self, path: &str, what: What, why: &str) {
        self.deeds.push(Deeds { path: path.to_owned(), what, why: why.to_owned() });
    }

    /// A file becomes `new`, whatever it was.
    fn settled(&mut self, path: &str, old: Option<&str>, new: &str) {
        let what = match old {
            None => What::Made,
            Some(old) if old == new => What::Kept,
            Some(_) => What::Changed,
        };
        self.effects.put(path, old, new);
        self.note(path, what, "");
    }

    /// A file people write into: made where it is missing, never touched again.
    fn made_once(&mut self, path: &str, text: impl FnOnce() -> String) -> Result<(), BoardError> {
        match self.tree.read(path)? {
            Some(_) => self.note(path, What::Kept, ""),
            None => {
                self.effects.create(path, text());
                self.note(path, What::Made, "");
            }
        }
        Ok(())
    }

    /// A folder, kept by git although it is empty.
    fn folder(&mut self, path: &str) -> Result<(), BoardError> {
        if self.tree.list(path)?.is_empty() {
            self.made_once(&format!("{path}/.gitkeep"), String::new)?;
        }
        Ok(())
    }

    fn texts(&mut self, texts: Vec<Text>) -> Result<(), BoardError> {
        texts.into_iter().try_for_each(|text| self.generated(&text.path, &text.content, ""))
    }

    /// A file the tools write whole.
    fn generated(&mut self, path: &str, text: &str, why: &str) -> Result<(), BoardError> {
        match self.tree.read_text(path)? {
            None => {
                self.effects.create(path, text);
                self.note(path, What::Made, why);
            }
            Some(old) if old == text => self.note(path, What::Kept, ""),
            Some(old) if self.overwrite == Overwrite::Generated => self.settled(path, Some(&old), text),
            Some(_) => self.note(path, What::Kept, "it is there already; --force would write it anew"),
        }
        Ok(())
    }

    fn adapters(&mut self, steps: Vec<adapters::Step>, setting: &Setting<'_>) -> Result<(), BoardError> {
        for step in steps {
            match step.deed {
                Deed::LeaveAlone => self.note(step.path, What::Kept, &step.why),
                Deed::Add(Content::Whole(text)) => self.generated(step.path, &text, &step.why)?,
                Deed::Add(content) | Deed::Append(content) => {
                    self.appended(step.path, content, &step.why, setting)?;
                }
            }
        }
        Ok(())
    }

    /// A part of ours in a file of somebody else's.
    fn appended(
        &mut self,
        path: &str,
        content: Content,
        why: &str,
        setting: &Setting<'_>,
    ) -> Result<(), BoardError> {
        let old = self.tree.read_text(path)?;
        let text = old.as_deref().unwrap_or_default();
        let new = match content {
            Content::Whole(text) => text,
            Content::Region { inside, comment } => region::put(text, REGION, &inside, comment)
                .map_err(|error| BoardError::refused(format!("{path}: {error}")))?,
            Content::NamedInRead { file } => {
                match adapters::aider::name_in_read(text, file, &setting.header()) {
                    adapters::aider::Named::Already => text.to_owned(),
                    adapters::aider::Named::Appended(new) => new,
                    adapters::aider::Named::ByHand(reason) => {
                        self.note(path, What::Asked, &reason.to_string());
                        return Ok(());
                    }
                }
            }
        };
        let what = match &old {
            None => What::Made,
            Some(old) if *old == new => What::Kept,
            Some(_) => What::Changed,
        };
        self.effects.put(path, old.as_deref(), new);
        self.note(path, what, if what == What::Kept { "" } else { why });
        Ok(())
    }
}

/// The region our rules stand in, in files of others.
pub const REGION: &str = "rules";

/// Files of several tools that our rules may be appended to.
const SHARED: [&str; 3] = [".cursorrules", "CLAUDE.md", "AGENTS.md"];

/// Many repositories have one of these files, and links to it for the other tools.
fn is_link(tree: &Tree, path: &str) -> bool {
    matches!(tree.read(path), Err(TreeError::Link { .. }))
}

/// What of §22.3 is there. A file that holds nothing but our region is not, and neither is a link.
fn existing(tree: &Tree) -> Result<Existing, TreeError> {
    let theirs = |path: &str| -> Result<bool, TreeError> {
        if is_link(tree, path) {
            return Ok(false);
        }
        let Some(text) = tree.read_text(path)? else { return Ok(false) };
        let ours = region::find(&text, REGION, Comment::Html).ok().flatten();
        Ok(ours.is_none_or(|range| {
            let rest = [&text[..range.start], &text[range.end..]].concat();
            rest.lines().any(|line| !line.trim().is_empty() && !line.contains("agency:"))
        }))
    };
    let rules = tree.list(".cursor/rules")?;
    Ok(Existing {
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
