//! Issues of a tracker, in the words a task needs (`agency import`).
//!
//! One question goes out, its pages come back, and every issue is made harmless before a person or an agent sees it.
//! `github` and `jira` know what each tracker documents; `client` is the only place that talks to a network, and gives the
//! token to one origin, the one that `--api-url` names; `sanitize` removes what a person could not see from
//! untrusted issue text. Nothing is written here, and nothing is sent but the question.

mod address;
mod adf;
mod client;
mod comments;
mod credential;
mod error;
mod github;
mod jira;
mod priority;
mod sanitize;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;

use credential::TrackerCredential;
pub(crate) use error::ImportError;

use crate::app::http::HttpSettings;

/// More issues than this are no list that a user wants to work off.
const MOST_ISSUES: usize = 10_000;
/// How many pages are asked for before the question is called too wide.
const MOST_PAGES: usize = 100;
/// What one page may weigh.
const LARGEST_PAGE: u64 = 10 * 1024 * 1024;

/// What to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IssueQuery {
    Github {
        /// `owner/name`.
        repo: String,
        label: Option<String>,
    },
    Jira {
        /// The project's key.
        project: String,
        status: Option<String>,
    },
}

impl IssueQuery {
    pub(crate) fn github(repo: &str, label: Option<&str>) -> Result<Self, ImportError> {
        let (owner, name) = repo.split_once('/').unwrap_or(("", ""));
        let plain = |text: &str, also: &str, most: usize| {
            (1..=most).contains(&text.len())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
        };
        if !plain(owner, "-_", 100) || !plain(name, "-_.", 100) || matches!(name, "." | "..") {
            return Err(ImportError::NotARepository { given: sanitize::line(repo, 80) });
        }
        Ok(Self::Github { repo: repo.to_owned(), label: value("--label", label)? })
    }

    pub(crate) fn jira(project: &str, status: Option<&str>) -> Result<Self, ImportError> {
        let right = project.starts_with(|c: char| c.is_ascii_alphabetic())
            && project.len() <= 255
            && project.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !right {
            return Err(ImportError::NotAProject { given: sanitize::line(project, 80) });
        }
        Ok(Self::Jira { project: project.to_ascii_uppercase(), status: value("--status", status)? })
    }

    fn tracker(&self) -> Tracker {
        match self {
            Self::Github { .. } => Tracker::Github,
            Self::Jira { .. } => Tracker::Jira,
        }
    }
}

/// What may stand in a question: words on one line. An empty value asks for nothing that exists.
fn value(flag: &'static str, given: Option<&str>) -> Result<Option<String>, ImportError> {
    match given.map(str::trim) {
        None => Ok(None),
        Some(text) if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) => {
            Err(ImportError::NotAValue { flag })
        }
        Some(text) => Ok(Some(text.to_owned())),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracker {
    Github,
    Jira,
}

impl Tracker {
    /// Its key in a task's `external_refs` (KodingX §22.6).
    fn key(self) -> &'static str {
        match self {
            Self::Github => "github_issue",
            Self::Jira => "jira",
        }
    }
}

impl fmt::Display for Tracker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Github => "GitHub",
            Self::Jira => "Jira",
        })
    }
}

/// Whom to ask, and as whom.
pub(crate) struct TrackerServer {
    /// `--api-url`. Only ever what a person typed: the server it names is given the token.
    api_url: Option<String>,
    environment: TrackerEnvironment,
}

impl TrackerServer {
    pub(crate) fn new(api_url: Option<String>) -> Self {
        Self::in_environment(api_url, |name| std::env::var_os(name))
    }

    fn in_environment(api_url: Option<String>, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        // A variable that is set to nothing is how people unset one for a single command.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        Self {
            api_url,
            environment: TrackerEnvironment {
                github: credential::github(&variable),
                jira: credential::jira(&variable),
                way: HttpSettings::from(&variable),
            },
        }
    }
}

/// Names and places only: the address may carry a password by mistake, and the rest are secrets.
impl fmt::Debug for TrackerServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TrackerServer").finish_non_exhaustive()
    }
}

/// What is taken from the environment.
struct TrackerEnvironment {
    github: Result<TrackerCredential, ImportError>,
    jira: Result<TrackerCredential, ImportError>,
    way: HttpSettings,
}

/// One issue, in the words a task needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issue {
    /// The key in `external_refs`: `github_issue` or `jira`.
    pub(crate) tracker: &'static str,
    /// `#123` or `PROJ-456`.
    pub(crate) reference: String,
    pub(crate) url: String,
    /// One line of at most 200 characters.
    pub(crate) title: String,
    /// Markdown of at most 64 KiB.
    pub(crate) body: String,
    pub(crate) labels: Vec<String>,
    /// 0 is the most urgent, 3 the least.
    pub(crate) priority: Option<u8>,
}

/// All issues that match, oldest first.
pub(crate) fn fetch(source: &IssueQuery, server: &TrackerServer) -> Result<Vec<Issue>, ImportError> {
    let client = client::TrackerClient::new(source.tracker(), server)?;
    match source {
        IssueQuery::Github { repo, label } => github::fetch(&client, repo, label.as_deref()),
        IssueQuery::Jira { project, status } => jira::fetch(&client, project, status.as_deref()),
    }
}

/// What has been read so far. A list that changes while it is read shows an issue on two pages; it is taken once.
#[derive(Debug, Default)]
struct IssueCollector {
    issues: Vec<Issue>,
    seen: HashSet<String>,
}

impl IssueCollector {
    fn take(&mut self, issue: Issue) -> Result<(), ImportError> {
        if self.seen.insert(issue.reference.clone()) {
            if self.issues.len() == MOST_ISSUES {
                return Err(ImportError::TooMany);
            }
            self.issues.push(issue);
        }
        Ok(())
    }
}
