//! §4: the layout of the files.
//!
//! ```text
//! .kodingx/
//!   agency.json  PROTOCOL.md  STATE.md  TASK_BOARD.md  RISKS.md  DECISIONS.md
//!   dod/profiles/*.yml
//!   inbox/{agent}/YYYY-MM-DD/T{ID}-{HHMM}-{slug}.md
//!   outbox/{agent}/YYYY-MM-DD/T{ID}-{HHMM}-{slug}-report.md
//!   verify/YYYY-MM-DD/T{ID}-{HHMM}-{slug}.verify.json
//!   agents/{agent}.md  templates/
//!   archive/        what `agency archive` put aside, laid out the same way
//! ```

use crate::names::{AgentName, TaskId};
use crate::store::tree::{RepoTree, RepoTreeError};

pub const ROOT: &str = ".kodingx";
pub const MANIFEST: &str = ".kodingx/agency.json";
/// The manifest's name in older tools.
pub const OLDER_MANIFEST: &str = ".kodingx/kodingx.json";
pub const PROTOCOL: &str = ".kodingx/PROTOCOL.md";
pub const STATE: &str = ".kodingx/STATE.md";
pub const TASK_BOARD: &str = ".kodingx/TASK_BOARD.md";
pub const RISKS: &str = ".kodingx/RISKS.md";
pub const DECISIONS: &str = ".kodingx/DECISIONS.md";
pub const PROFILES: &str = ".kodingx/dod/profiles";
pub const AGENTS: &str = ".kodingx/agents";
pub const TEMPLATES: &str = ".kodingx/templates";
pub const ARCHIVE: &str = ".kodingx/archive";

/// The three kinds of files that come by date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoardFileKind {
    Task,
    Report,
    Artifact,
}

impl BoardFileKind {
    /// Their folder, and the folder for archived ones.
    pub const fn folders(self) -> [&'static str; 2] {
        match self {
            BoardFileKind::Task => [".kodingx/inbox", ".kodingx/archive/inbox"],
            BoardFileKind::Report => [".kodingx/outbox", ".kodingx/archive/outbox"],
            BoardFileKind::Artifact => [".kodingx/verify", ".kodingx/archive/verify"],
        }
    }

    /// How their names end, after the stem they share.
    pub const fn suffix(self) -> &'static str {
        match self {
            BoardFileKind::Task => ".md",
            BoardFileKind::Report => "-report.md",
            BoardFileKind::Artifact => ".verify.json",
        }
    }
}

/// A file of one of the kinds, known by its name alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoardPath {
    /// Relative to the repository.
    pub path: String,
    /// The agent whose folder it is in; artifacts have none.
    pub agent: Option<String>,
    pub date: Option<String>,
    /// `T0007-1610-fix-vat`
    pub stem: String,
    pub archived: bool,
}

impl BoardPath {
    /// The id its name begins with.
    pub fn id(&self) -> &str {
        self.stem.split('-').next().unwrap_or_default()
    }

    /// Whether its name is about this task: `T1` is not `T10`.
    pub fn is_about(&self, id: &TaskId) -> bool {
        self.has_id(id.as_str())
    }

    /// The same, for an id that the file states.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.stem.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Its path in the archive.
    pub fn archived_path(&self) -> String {
        self.path.replacen(ROOT, ARCHIVE, 1)
    }
}

/// Where a task is written.
pub fn task_path(agent: &AgentName, date: &str, stem: &str) -> String {
    format!("{}/{agent}/{date}/{stem}.md", BoardFileKind::Task.folders()[0])
}

pub fn report_path(agent: &AgentName, date: &str, stem: &str) -> String {
    format!("{}/{agent}/{date}/{stem}-report.md", BoardFileKind::Report.folders()[0])
}

pub fn artifact_path(date: &str, stem: &str) -> String {
    format!("{}/{date}/{stem}.verify.json", BoardFileKind::Artifact.folders()[0])
}

/// An earlier artifact of the same day, kept beside the current one.
pub fn earlier_artifact_path(date: &str, stem: &str, number: usize) -> String {
    format!("{}/{date}/{stem}.verify.{number}.json", BoardFileKind::Artifact.folders()[0])
}

/// Every file of a kind, in the order of paths. Files that lie directly in an agent's folder are found too:
/// older tools and people put them there.
pub fn list_files(
    tree: &RepoTree,
    kind: BoardFileKind,
    archived: bool,
) -> Result<Vec<BoardPath>, RepoTreeError> {
    let mut found = Vec::new();
    let top = kind.folders()[usize::from(archived)];
    let by_agent = !matches!(kind, BoardFileKind::Artifact);
    let mut add = |path: String, agent: Option<&str>, date: Option<&str>, name: &str| {
        if let Some(stem) = stem(kind, name) {
            let (agent, date) = (agent.map(str::to_owned), date.map(str::to_owned));
            found.push(BoardPath { path, agent, date, stem: stem.to_owned(), archived });
        }
    };
    for first in tree.list(top)? {
        let folder = format!("{top}/{}", first.name);
        if !first.is_folder {
            continue;
        }
        for second in tree.list(&folder)? {
            let path = format!("{folder}/{}", second.name);
            match (second.is_folder, by_agent) {
                (false, true) => add(path, Some(&first.name), None, &second.name),
                (false, false) => add(path, None, Some(&first.name), &second.name),
                (true, true) => {
                    for third in tree.list(&path)?.iter().filter(|entry| !entry.is_folder) {
                        let path = format!("{path}/{}", third.name);
                        add(path, Some(&first.name), Some(&second.name), &third.name);
                    }
                }
                (true, false) => {}
            }
        }
    }
    Ok(found)
}

/// The stem of a name, if it is one of this kind.
fn stem(kind: BoardFileKind, name: &str) -> Option<&str> {
    if name.starts_with('.') {
        return None;
    }
    let stem = name.strip_suffix(kind.suffix())?;
    // A report ends like a task, too.
    (kind != BoardFileKind::Task || !name.ends_with(BoardFileKind::Report.suffix())).then_some(stem)
}

/// Whether text is an ISO date, as folders are named.
pub fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Whether a stem has the form of §4: `T{ID}-{HHMM}-{slug}`.
pub fn is_whole_stem(stem: &str) -> bool {
    let mut parts = stem.splitn(3, '-');
    let (id, time, slug) = (parts.next(), parts.next(), parts.next());
    let time = time.is_some_and(|time| {
        time.len() == 4
            && time.bytes().all(|byte| byte.is_ascii_digit())
            && &time[..2] < "24"
            && &time[2..] < "60"
    });
    let slug = slug.is_some_and(|slug| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !slug.is_empty() && slug.bytes().all(plain)
    });
    id.is_some_and(|id| id.starts_with('T') && id.len() > 1) && time && slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_judged_as_the_layout_says() {
        for good in ["T0007-1610-fix-vat", "T01J-0000-x", "T10000-2359-a1"] {
            assert!(is_whole_stem(good), "{good}");
        }
        for bad in [
            "T0007",
            "T0007-fix-vat",
            "T0007-2460-x",
            "T0007-2400-x",
            "T0007-1610-",
            "T0007-1610-Fix",
            "-1610-x",
        ] {
            assert!(!is_whole_stem(bad), "{bad}");
        }
    }

    #[test]
    fn a_task_is_told_from_its_report_and_from_a_longer_id() {
        assert_eq!(stem(BoardFileKind::Task, "T1-1610-a.md"), Some("T1-1610-a"));
        assert_eq!(stem(BoardFileKind::Task, "T1-1610-a-report.md"), None);
        assert_eq!(stem(BoardFileKind::Report, "T1-1610-a-report.md"), Some("T1-1610-a"));
        assert_eq!(stem(BoardFileKind::Task, ".T1-1610-a.md.agency-new"), None);
        let place = BoardPath {
            path: String::new(),
            agent: None,
            date: None,
            stem: "T10-1610-a".into(),
            archived: false,
        };
        assert!(!place.is_about(&TaskId::parse("T1").expect("an id")));
        assert!(place.is_about(&TaskId::parse("T10").expect("an id")));
    }
}
