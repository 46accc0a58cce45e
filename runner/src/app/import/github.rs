//! GitHub's issues, and those of GitHub Enterprise.
//!
//! Its list of issues has the pull requests in it too; they are no work to be done, and are left out.

use serde::Deserialize;
use serde::de::IgnoredAny;
use ureq::http::Uri;

use super::address::encode;
use super::client::TrackerClient;
use super::error::{ImportError, ServerMessage};
use super::{Issue, IssueCollector, MOST_PAGES, Tracker, comments, priority, sanitize};

#[derive(Debug, Deserialize)]
struct GithubIssue {
    number: u64,
    title: Option<String>,
    body: Option<String>,
    html_url: Option<String>,
    #[serde(default)]
    labels: Vec<GithubLabel>,
    pull_request: Option<IgnoredAny>,
}

/// The documented forms are both in use.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum GithubLabel {
    Name(String),
    Described { name: Option<String> },
}

impl GithubLabel {
    fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Described { name } => name.as_deref().unwrap_or_default(),
        }
    }
}

pub(super) fn fetch(
    client: &TrackerClient,
    repo: &str,
    label: Option<&str>,
) -> Result<Vec<Issue>, ImportError> {
    let path = repo.split('/').map(encode).collect::<Vec<_>>().join("/");
    // From the oldest on: an issue that is opened meanwhile comes last, and moves no other to the next page.
    let mut question = format!("/repos/{path}/issues?state=open&sort=created&direction=asc&per_page=100");
    if let Some(label) = label {
        question.push_str("&labels=");
        question.push_str(&encode(label));
    }
    let mut url = client.base().join(&question);
    let mut found = IssueCollector::default();
    for _ in 0..MOST_PAGES {
        let page = client.get(&url).map_err(|error| explain(client, repo, error))?;
        for entry in client.read::<Vec<GithubIssue>>(&page)? {
            if entry.pull_request.is_none() {
                found.take(issue(client, repo, entry))?;
            }
        }
        match client.next(&page)? {
            Some(next) => url = next,
            None => return Ok(found.issues),
        }
    }
    Err(ImportError::TooMany)
}

fn explain(client: &TrackerClient, repo: &str, error: ImportError) -> ImportError {
    match error {
        ImportError::Failed { status: 404, .. } => {
            client.not_found(format!("repository {repo}"), ServerMessage::default())
        }
        // What GitHub answers for a repository whose issues are turned off.
        ImportError::Failed { status: 410, said, .. } => client.not_found(format!("issues of {repo}"), said),
        error => error,
    }
}

fn issue(client: &TrackerClient, repo: &str, entry: GithubIssue) -> Issue {
    let url = match entry.html_url {
        Some(url) if is_page(&url) => url,
        _ => client.base().join(&format!("/repos/{repo}/issues/{}", entry.number)).as_str().to_owned(),
    };
    let labels = sanitize::labels(entry.labels.iter().map(GithubLabel::name));
    Issue {
        tracker: Tracker::Github.key(),
        reference: format!("#{}", entry.number),
        title: sanitize::title(&entry.title.unwrap_or_default()),
        body: sanitize::body(&comments::without(&entry.body.unwrap_or_default()), &url),
        priority: priority::of_labels(&labels),
        labels,
        url,
    }
}

/// An address that can be shown and clicked, and nothing else.
fn is_page(url: &str) -> bool {
    let plain =
        url.len() <= 2000 && url.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"`".contains(&byte));
    plain
        && url.parse::<Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("https" | "http"))
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_a_page_is_shown() {
        assert!(is_page("https://github.com/octocat/hello-world/issues/1"));
        for url in
            ["javascript:alert(1)", "https://a b", "https://me@evil.example/x", "file:///etc/passwd", ""]
        {
            assert!(!is_page(url), "{url}");
        }
    }
}
