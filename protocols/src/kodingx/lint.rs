//! §19 and §23: checks whether a repository complies.
//!
//! Every finding names its file, its line where there is one, and its section. An error in one file hides no finding
//! about the others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::adapters::{Adapter, AdapterContent, AdapterPart, Orchestrator, adapters, missing_parts};
use super::artifact::Artifact;
use super::board::cycles;
use super::layout::{self, BoardFileKind, BoardPath};
use super::report::Report;
use super::risks::{RiskRegister, is_id};
use super::status::TaskStatus;
use super::task::{ParsedFile, Task};
use super::templates::{RoleMode, TemplateContext};
use super::views::{self, StateLists};
use super::{KodingX, decisions};
use crate::board::BoardError;
use crate::finding::Finding;
use crate::store::tree::RepoTree;
use crate::text::frontmatter::Frontmatter;
use crate::text::yaml;

/// Checks everything. `profiles` are the names of the profiles that need no file; `closed` says which files a glob of a
/// scope seems to open, and does not.
pub fn lint(
    board: &KodingX,
    tree: &RepoTree,
    profiles: &[String],
    closed: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Finding>, BoardError> {
    let (open, archived) = (board.tasks(tree)?, board.archived_tasks(tree)?);
    let mut findings = Vec::new();
    findings.extend(open.findings.iter().chain(&archived.findings).cloned());
    let all: Vec<&(BoardPath, Task)> = open.tasks.iter().chain(&archived.tasks).collect();
    let site =
        BoardLint { board, tree, tasks: &all, known: all.iter().map(|(_, task)| task.id.as_str()).collect() };
    findings.extend(site.structure()?);
    findings.extend(site.manifest());
    findings.extend(site.tasks(profiles)?);
    findings.extend(scopes(&open.tasks, closed));
    findings.extend(cycles(&open.tasks));
    findings.extend(site.reports()?);
    findings.extend(site.state(&open.tasks));
    findings.extend(site.profiles()?);
    findings.extend(site.artifacts()?);
    findings.extend(site.done()?);
    findings.extend(site.risks());
    findings.extend(site.adapter());
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// §6.3: globs of open tasks that open fewer files than they seem to.
fn scopes(open: &[(BoardPath, Task)], closed: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, task) in open.iter().filter(|(_, task)| !task.status.is_final()) {
        let Some(scope) = &task.scope else { continue };
        for (name, globs) in [("must_touch", &scope.must_touch), ("may_touch", &scope.may_touch)] {
            found.extend(globs.iter().filter_map(|glob| closed(glob)).map(|message| {
                let message = format!("`scope.{name}`: {message}");
                Finding::warning(&place.path, None, "6.3", message).of_field("scope")
            }));
        }
    }
    found
}

struct BoardLint<'a> {
    board: &'a KodingX,
    tree: &'a RepoTree,
    tasks: &'a [&'a (BoardPath, Task)],
    known: BTreeSet<&'a str>,
}

impl BoardLint<'_> {
    /// The text of a file. An error is a finding, and hides nothing of the other files.
    fn text(&self, path: &str, section: &'static str, found: &mut Vec<Finding>) -> Option<String> {
        super::text(self.tree, path, section).unwrap_or_else(|finding| {
            found.push(finding);
            None
        })
    }

    /// §4: required files, and their names.
    fn structure(&self) -> Result<Vec<Finding>, BoardError> {
        let mut found = Vec::new();
        for path in [layout::STATE, layout::TASK_BOARD, layout::RISKS, layout::DECISIONS] {
            if !self.tree.exists(path) {
                found.push(Finding::error(
                    path,
                    None,
                    "4",
                    "it is missing; `agency upgrade --full` makes it",
                ));
            }
        }
        for path in [".kodingx/inbox", ".kodingx/outbox", ".kodingx/verify", layout::PROFILES] {
            if !self.tree.exists(path) {
                let message = "the folder is missing; `agency upgrade --full` makes it";
                found.push(Finding::error(path, None, "4", message));
            }
        }
        for entry in self.tree.list(layout::ROOT)? {
            let lower = entry.name.to_ascii_lowercase();
            if entry.is_folder && entry.name != lower {
                let path = format!("{}/{}", layout::ROOT, entry.name);
                found.push(Finding::error(
                    &path,
                    None,
                    "4",
                    format!("folder names are lowercase: `{lower}`"),
                ));
            }
        }
        for (kind, section) in
            [(BoardFileKind::Task, "6.1"), (BoardFileKind::Report, "7.1"), (BoardFileKind::Artifact, "11.1")]
        {
            for place in layout::list_files(self.tree, kind, false)? {
                found.extend(misplaced(&place, section));
            }
        }
        Ok(found)
    }

    /// §5: the manifest's contents. An unreadable manifest is an error before.
    fn manifest(&self) -> Vec<Finding> {
        let manifest = &self.board.manifest;
        let json: Value =
            serde_json::from_str(manifest.text.trim_start_matches('\u{feff}')).unwrap_or_default();
        let mut found = Vec::new();
        for (field, section) in [
            ("project", "5"),
            ("created_at", "5"),
            ("license_mode", "16"),
            ("orchestrator", "5"),
            ("builders", "5"),
            ("task_id_strategy", "5.1"),
            ("defaults", "5"),
        ] {
            if json.get(field).is_none_or(Value::is_null) {
                found.push(
                    Finding::error(manifest.path, None, section, format!("`{field}` is missing"))
                        .of_field(field),
                );
            }
        }
        if let Some(name) = &manifest.orchestrator
            && Orchestrator::parse(name).is_none()
        {
            let known: Vec<&str> = Orchestrator::ALL.iter().map(|tool| tool.as_str()).collect();
            let message = format!("`orchestrator` is `{name}`; it must be one of {}", known.join(", "));
            found.push(Finding::error(manifest.path, None, "12.2", message).of_field("orchestrator"));
        }
        if manifest.path == layout::OLDER_MANIFEST {
            let message = format!("an older tool's name; the manifest is {}", layout::MANIFEST);
            found.push(Finding::warning(manifest.path, None, "5", message));
        }
        found
    }

    /// §6: ids, assignees, links.
    fn tasks(&self, profiles: &[String]) -> Result<Vec<Finding>, BoardError> {
        let mut found = Vec::new();
        let mut by_id: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let own: BTreeSet<String> = self
            .tree
            .list(layout::PROFILES)?
            .into_iter()
            .filter_map(|entry| {
                Some(entry.name.strip_suffix(".yml").or(entry.name.strip_suffix(".yaml"))?.to_owned())
            })
            .collect();
        for (place, task) in self.tasks {
            by_id.entry(task.id.as_str()).or_default().push(&place.path);
            let mut say = |section, message: String, field: &str| {
                found.push(Finding::error(&place.path, None, section, message).of_field(field));
            };
            if !place.is_about(&task.id) {
                say("6.1", format!("its name begins with {}, and its `id` is {}", place.id(), task.id), "id");
            }
            if place.agent.as_deref() != Some(task.assignee.as_str()) {
                let folder = place.agent.as_deref().unwrap_or_default();
                say(
                    "6.1",
                    format!("it is in the inbox of `{folder}`, and its `assignee` is `{}`", task.assignee),
                    "assignee",
                );
            }
            for dependency in &task.depends_on {
                if !self.known.contains(dependency.as_str()) {
                    say("6.2", format!("`depends_on`: there is no task {dependency}"), "depends_on");
                }
            }
            let profile = &task.dod_profile;
            if profile != "auto" && !own.contains(profile) && !profiles.contains(profile) {
                say("10", format!("`dod_profile`: there is no profile `{profile}`"), "dod_profile");
            }
        }
        for (id, files) in by_id.into_iter().filter(|(_, files)| files.len() > 1) {
            for file in &files {
                let others: Vec<&str> = files.iter().filter(|other| *other != file).copied().collect();
                let message = format!(
                    "{id} is also the id of {}; `agency task renumber {file}` gives this one another",
                    others.join(", ")
                );
                found.push(Finding::error(file, None, "5.1", message).of_field("id"));
            }
        }
        Ok(found)
    }

    /// §7
    fn reports(&self) -> Result<Vec<Finding>, BoardError> {
        let mut found = Vec::new();
        for archived in [false, true] {
            for place in layout::list_files(self.tree, BoardFileKind::Report, archived)? {
                let Some(text) = self.text(&place.path, "7.2", &mut found) else { continue };
                let agent = place.agent.as_deref();
                let ParsedFile { value, findings } =
                    Report::read(&place.path, &text, agent, self.board.zone());
                found.extend(findings);
                let Some(report) = value else { continue };
                let mut say = |message: String, field: &str| {
                    found.push(Finding::error(&place.path, None, "7.2", message).of_field(field));
                };
                if !self.known.contains(report.task_id.as_str()) {
                    say(format!("`task_id`: there is no task {}", report.task_id), "task_id");
                } else if !place.is_about(&report.task_id) {
                    say(
                        format!(
                            "its name begins with {}, and its `task_id` is {}",
                            place.id(),
                            report.task_id
                        ),
                        "task_id",
                    );
                }
                if agent != Some(report.agent.as_str()) {
                    say(
                        format!(
                            "it is in the outbox of `{}`, and its `agent` is `{}`",
                            agent.unwrap_or_default(),
                            report.agent
                        ),
                        "agent",
                    );
                }
            }
        }
        Ok(found)
    }

    /// §8, and whether both views agree with the tasks.
    fn state(&self, open: &[(BoardPath, Task)]) -> Vec<Finding> {
        let rows: Vec<views::ViewRow> = open.iter().map(|(_, task)| views::ViewRow::of(task)).collect();
        let mut found = Vec::new();
        if let Some(text) = self.text(layout::STATE, "8.1", &mut found) {
            found.extend(self.state_of(&text, &rows));
        }
        if let Some(text) = self.text(layout::TASK_BOARD, "4", &mut found) {
            let board = views::BoardTable::of(&rows, &views::BoardTable::read(&text).unwrap_or_default());
            match board.write(&text) {
                Ok(written) if written == text => {}
                Ok(_) => {
                    let message = "it is not what the tasks say; `agency lint --fix` puts it right";
                    found.push(Finding::error(layout::TASK_BOARD, None, "4", message));
                }
                Err(error) => found.push(Finding::error(layout::TASK_BOARD, None, "15.2", error.to_string())),
            }
        }
        found
    }

    fn state_of(&self, text: &str, rows: &[views::ViewRow]) -> Vec<Finding> {
        let mut found = Vec::new();
        let matter = match Frontmatter::parse(text) {
            Ok(matter) => matter,
            Err(error) => {
                return vec![Finding::error(layout::STATE, Some(error.line), "8.1", error.reason)];
            }
        };
        for field in
            ["protocol", "updated_at", "active_tasks", "blocked_tasks", "done_tasks_recent", "last_verify"]
        {
            match matter.value(field) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let message = format!("`{field}` is missing");
                    found.push(
                        Finding::error(layout::STATE, Some(matter.last_line()), "8.1", message)
                            .of_field(field),
                    );
                }
                Err(error) => found.push(
                    Finding::error(layout::STATE, Some(error.line), "8.1", error.reason).of_field(field),
                ),
            }
        }
        let says = matter.value("protocol").ok().flatten();
        let version = self.board.manifest.version.to_string();
        if says.as_ref().and_then(|value| value.as_str()).is_some_and(|says| says != version) {
            let message = format!("`protocol` differs from the manifest's, which is {version}");
            found.push(
                Finding::error(layout::STATE, matter.line("protocol"), "17", message).of_field("protocol"),
            );
        }
        let before = StateLists::read(text);
        let after = StateLists::of(rows, &before);
        for (field, before, after) in [
            ("active_tasks", &before.active, &after.active),
            ("blocked_tasks", &before.blocked, &after.blocked),
            ("done_tasks_recent", &before.done, &after.done),
        ] {
            if before != after {
                let message =
                    format!("`{field}` is not what the tasks say; `agency lint --fix` puts it right");
                found.push(Finding::error(layout::STATE, matter.line(field), "8.1", message).of_field(field));
            }
        }
        found
    }

    /// §10.1
    fn profiles(&self) -> Result<Vec<Finding>, BoardError> {
        let mut found = Vec::new();
        for entry in self.tree.list(layout::PROFILES)? {
            let path = format!("{}/{}", layout::PROFILES, entry.name);
            if !entry.name.ends_with(".yml") && !entry.name.ends_with(".yaml") {
                continue;
            }
            let Some(text) = self.text(&path, "10.1", &mut found) else { continue };
            let profile: serde_yaml::Value = match yaml::read(&text) {
                Ok(profile) => profile,
                Err(error) => {
                    let line = error.location().map(|location| location.line());
                    found.push(Finding::error(&path, line, "10.1", format!("it is not valid YAML: {error}")));
                    continue;
                }
            };
            for field in ["name", "description", "commands"] {
                if profile.get(field).is_none_or(serde_yaml::Value::is_null) {
                    found.push(
                        Finding::error(&path, None, "10.1", format!("`{field}` is missing")).of_field(field),
                    );
                }
            }
        }
        Ok(found)
    }

    /// §11, §20: artifacts that can be read, and overrides that are recorded.
    fn artifacts(&self) -> Result<Vec<Finding>, BoardError> {
        let mut found = Vec::new();
        let recorded = self.text(layout::DECISIONS, "20.4", &mut found).unwrap_or_default();
        let numbers = decisions::numbers(&recorded);
        for archived in [false, true] {
            for place in layout::list_files(self.tree, BoardFileKind::Artifact, archived)? {
                let Some(text) = self.text(&place.path, "11.1", &mut found) else { continue };
                let artifact = match Artifact::parse(&text) {
                    Ok(artifact) => artifact,
                    Err(error) => {
                        let message = format!("it is no verify artifact: {error}");
                        found.push(Finding::error(&place.path, Some(error.line()), "11.1", message));
                        continue;
                    }
                };
                let mut say = |section, message: String| {
                    found.push(Finding::error(&place.path, None, section, message));
                };
                let claimed = &artifact.task_id;
                if !self.known.contains(claimed.as_str()) {
                    say("11.1", format!("there is no task {claimed}"));
                } else if !place.has_id(claimed) {
                    say(
                        "11.1",
                        format!("its name begins with {}, and its `task_id` is {claimed}", place.id()),
                    );
                }
                let Some(given) = artifact.overridden else { continue };
                for (field, value) in [("approver", &given.approver), ("reason", &given.reason)] {
                    if value.trim().is_empty() {
                        say("20.3", format!("`override.{field}` is missing"));
                    }
                }
                let number = given.decision_ref.strip_prefix("ADR-").and_then(|number| number.parse().ok());
                if !number.is_some_and(|number: u32| numbers.contains(&number)) {
                    say(
                        "20.4",
                        format!(
                            "the override's decision `{}` is not in {}",
                            given.decision_ref,
                            layout::DECISIONS
                        ),
                    );
                }
                if !self.known.contains(given.followup_task.as_str()) {
                    say(
                        "20.2",
                        format!("the override's follow-up task `{}` does not exist", given.followup_task),
                    );
                }
            }
        }
        Ok(found)
    }

    /// §19: a report and a verification for every DONE task.
    fn done(&self) -> Result<Vec<Finding>, BoardError> {
        let mut found = Vec::new();
        let mut reported: BTreeSet<String> = BTreeSet::new();
        for archived in [false, true] {
            let places = layout::list_files(self.tree, BoardFileKind::Report, archived)?;
            reported.extend(places.iter().map(|place| place.id().to_owned()));
        }
        for (place, task) in self.tasks.iter().filter(|(_, task)| task.status == TaskStatus::Done) {
            if !reported.contains(task.id.as_str()) {
                found.push(Finding::error(
                    &place.path,
                    None,
                    "2",
                    format!("{} is DONE without a report", task.id),
                ));
            }
            match self.board.artifact(self.tree, &task.id) {
                Ok(Some(artifact)) => {
                    if let Err(obstacle) = artifact.value.check_done() {
                        let message = format!("{} is DONE, and {obstacle}", task.id);
                        found.push(Finding::error(&place.path, None, "9.2", message));
                    }
                }
                Ok(None) => {
                    let message = format!("{} is DONE and was never verified", task.id);
                    found.push(Finding::error(&place.path, None, "9.2", message));
                }
                // Reported by the check of artifacts.
                Err(BoardError::Unreadable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// §21: the register, and links that go both ways.
    fn risks(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(text) = self.text(layout::RISKS, "21.3", &mut found) else { return found };
        let register = RiskRegister::parse(&text);
        found.extend(register.findings.iter().cloned());
        for (place, task) in self.tasks {
            for risk in &task.risks {
                let message = match register.get(risk) {
                    _ if !is_id(risk) => format!("`risks`: `{risk}` is no id of a risk; they are like R-001"),
                    None => format!("`risks`: there is no {risk} in {}", layout::RISKS),
                    Some(entry) if !entry.linked_tasks.contains(&task.id.to_string()) => {
                        let message = format!("{risk} does not list {} among its linked tasks", task.id);
                        found.push(Finding::error(layout::RISKS, Some(entry.line), "21.3", message));
                        continue;
                    }
                    Some(_) => continue,
                };
                found.push(Finding::error(&place.path, None, "21.2", message).of_field("risks"));
            }
        }
        for risk in &register.risks {
            for linked in &risk.linked_tasks {
                let task = self.tasks.iter().find(|(_, task)| task.id.as_str() == linked);
                let message = match task {
                    None => format!("{}: there is no task {linked}", risk.id),
                    Some((_, task)) if !task.risks.contains(&risk.id) => {
                        format!("{}: {linked} does not name it in its `risks`", risk.id)
                    }
                    Some(_) => continue,
                };
                found.push(Finding::error(layout::RISKS, Some(risk.line), "21.3", message));
            }
        }
        found
    }

    /// §13: the adapter of the orchestrator, with everything it must contain.
    fn adapter(&self) -> Vec<Finding> {
        let manifest = &self.board.manifest;
        let tool =
            manifest.orchestrator.as_deref().and_then(Orchestrator::parse).unwrap_or(Orchestrator::Other);
        let protocol = manifest.version.to_string();
        let setting = TemplateContext {
            protocol: &protocol,
            generator: "",
            license_mode: manifest.license().as_str(),
            project: &manifest.project,
            builders: &[],
            auditor: None,
            role_mode: RoleMode::default(),
        };
        let mut candidates = adapters(tool, &setting);
        candidates.retain(|adapter| !matches!(adapter.content, AdapterContent::NamedInRead { .. }));
        let paths: Vec<&str> =
            candidates.iter().map(|Adapter { path, .. }| *path).chain(others(tool).iter().copied()).collect();
        let (mut texts, mut found) = (Vec::new(), Vec::new());
        for path in &paths {
            // Of a link that leads elsewhere it is said so.
            let target = self.tree.follow(path).unwrap_or_else(|_| (*path).to_owned());
            texts.extend(self.text(&target, "13", &mut found).map(|text| (*path, text)));
        }
        let Some((path, text)) = texts.into_iter().min_by_key(|(_, text)| missing_parts(text).len()) else {
            // An unreadable file matters only where there is no other.
            if !found.is_empty() {
                return found;
            }
            let message = format!(
                "the adapter of `{}` is missing; `agency upgrade --add adapter` makes it",
                tool.as_str()
            );
            return vec![Finding::error(paths[0], None, "13", message)];
        };
        let finding = |part: &AdapterPart| {
            let message = format!("{part} is missing ({})", part.section());
            Finding::error(path, None, "13", message)
        };
        missing_parts(&text).iter().map(finding).collect()
    }
}

/// Other files in which a tool may have its rules.
fn others(tool: Orchestrator) -> &'static [&'static str] {
    match tool {
        Orchestrator::Windsurf => &[".devin/rules/agency.md"],
        Orchestrator::Antigravity => &[".agent/rules/agency.md"],
        Orchestrator::Cursor => &[".cursorrules"],
        Orchestrator::ClaudeCode | Orchestrator::Aider | Orchestrator::Continue | Orchestrator::Other => &[],
    }
}

/// A file whose folder or name is not as in the layout.
fn misplaced(place: &BoardPath, section: &'static str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |message: String| found.push(Finding::error(&place.path, None, section, message));
    match place.date.as_deref() {
        None => say("it must lie in a folder of its day, YYYY-MM-DD".to_owned()),
        Some(date) if !layout::is_date(date) => {
            say(format!("`{date}` is no date; folders are named YYYY-MM-DD"));
        }
        Some(_) => {}
    }
    if !layout::is_whole_stem(&place.stem) {
        say(format!("its name `{}` is not T{{ID}}-{{HHMM}}-{{slug}}", place.stem));
    }
    found
}
