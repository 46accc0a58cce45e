//! Detects the protocols of a repository by their marker files.

use std::fmt;

use serde::Serialize;

use crate::store::tree::RepoTree;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Kodingx,
    Codifica,
    ReviewLoop,
    Contract,
    Collaboration,
}

impl Protocol {
    pub const ALL: [Protocol; 5] = [
        Protocol::Kodingx,
        Protocol::Codifica,
        Protocol::ReviewLoop,
        Protocol::Contract,
        Protocol::Collaboration,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Protocol::Kodingx => "kodingx",
            Protocol::Codifica => "codifica",
            Protocol::ReviewLoop => "review-loop",
            Protocol::Contract => "contract",
            Protocol::Collaboration => "collaboration",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == name)
    }

    /// Marker files and folders; one is enough to mark a repository of this protocol.
    pub const fn marker_files(self) -> &'static [&'static str] {
        match self {
            Protocol::Kodingx => &[".kodingx/agency.json", ".kodingx/kodingx.json"],
            Protocol::Codifica => &["codifica.json"],
            Protocol::ReviewLoop => &[".review-loop-state.json"],
            Protocol::Contract => &[".agents-work"],
            Protocol::Collaboration => &["collaboration/state/tasks.json"],
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Files and folders that steer work: tasks, states, profiles and instructions of the protocols. An agent changes one
/// only where a person's scope spells it. In lower case; each with whether it counts in every folder, or only at the
/// top of the repository.
pub const STEERING_PATHS: &[(&str, bool)] = &[
    (".kodingx", true),
    ("agency.md", false),
    ("codifica.json", true),
    (".codifica", true),
    (".review-loop-state.json", true),
    (".agents-work", true),
    ("collaboration", false),
];

/// The protocols whose markers exist.
pub fn detect(tree: &RepoTree) -> Vec<Protocol> {
    let marked = |protocol: &Protocol| protocol.marker_files().iter().any(|marker| tree.exists(marker));
    Protocol::ALL.into_iter().filter(marked).collect()
}
