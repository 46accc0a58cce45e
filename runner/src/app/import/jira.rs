//! Jira's issues: the cloud's search, and the older one that servers of one's own have.
//!
//! The cloud took `/rest/api/2/search` away in 2025 and answers `/rest/api/3/search/jql`, page by token; servers
//! know only the former, page by number. The newer is tried first, and where there is none the older.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::TrackerClient;
use super::error::{ImportError, ServerMessage};
use super::{Issue, IssueCollector, MOST_PAGES, Tracker, adf, priority, sanitize};

const FIELDS: [&str; 4] = ["summary", "description", "labels", "priority"];
const PER_PAGE: usize = 100;
/// Where tokens with scopes work. It is the API of a site, and not the site.
const GATEWAY: &str = "api.atlassian.com";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JiraSearch<'a> {
    jql: &'a str,
    fields: [&'a str; 4],
    max_results: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JiraPage {
    issues: Vec<JiraIssue>,
    next_page_token: Option<String>,
    is_last: Option<bool>,
    /// The older search counts.
    total: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct JiraIssue {
    key: String,
    fields: JiraFields,
}

#[derive(Debug, Deserialize)]
struct JiraFields {
    summary: Option<String>,
    /// A document from the newer search, text from the older.
    #[serde(default)]
    description: Value,
    labels: Option<Vec<String>>,
    priority: Option<JiraPriority>,
}

#[derive(Debug, Deserialize)]
struct JiraPriority {
    name: Option<String>,
}

pub(super) fn fetch(
    client: &TrackerClient,
    project: &str,
    status: Option<&str>,
) -> Result<Vec<Issue>, ImportError> {
    let jql = jql(project, status);
    let found = match by_token(client, &jql) {
        Err(ImportError::Failed { status: 404 | 410, .. }) => by_number(client, &jql),
        found => found,
    };
    found.map_err(|error| explain(client, project, error))
}

/// Pages go on for as long as a token for the next one comes with them. `isLast` is not always right about it.
fn by_token(client: &TrackerClient, jql: &str) -> Result<Vec<Issue>, ImportError> {
    let url = client.base().join("/rest/api/3/search/jql");
    let mut found = IssueCollector::default();
    let mut token: Option<String> = None;
    let mut used = HashSet::new();
    for _ in 0..MOST_PAGES {
        let next_page_token = token.as_deref();
        let question =
            JiraSearch { jql, fields: FIELDS, max_results: PER_PAGE, next_page_token, start_at: None };
        let answer: JiraPage = client.read(&client.post(&url, &question)?)?;
        for entry in answer.issues {
            found.take(issue(client, entry)?)?;
        }
        match answer.next_page_token.filter(|next| !next.is_empty()) {
            Some(next) if used.insert(next.clone()) => token = Some(next),
            Some(_) if answer.is_last != Some(true) => {
                return Err(
                    client.not_understood(&"it names a page as the next one that it has shown before")
                );
            }
            _ => return Ok(found.issues),
        }
    }
    Err(ImportError::TooMany)
}

fn by_number(client: &TrackerClient, jql: &str) -> Result<Vec<Issue>, ImportError> {
    let url = client.base().join("/rest/api/2/search");
    let mut found = IssueCollector::default();
    let mut start = 0;
    for _ in 0..MOST_PAGES {
        let question = JiraSearch {
            jql,
            fields: FIELDS,
            max_results: PER_PAGE,
            next_page_token: None,
            start_at: Some(start),
        };
        let answer: JiraPage = client.read(&client.post(&url, &question)?)?;
        // A server may give fewer than it was asked for; only none, or as many as there are, is the end.
        let count = answer.issues.len();
        start += count;
        for entry in answer.issues {
            found.take(issue(client, entry)?)?;
        }
        if count == 0 || answer.total.is_some_and(|total| start >= total) {
            return Ok(found.issues);
        }
    }
    Err(ImportError::TooMany)
}

fn explain(client: &TrackerClient, project: &str, error: ImportError) -> ImportError {
    match error {
        ImportError::Failed { status: 404 | 410, .. } => {
            client.not_found("search of Jira's at this --api-url".into(), ServerMessage::default())
        }
        // Said in the language of the account; other than in English it stands as it was said.
        ImportError::Failed { status: 400, said, .. } if said.0.contains("for the field 'project'") => {
            client.not_found(format!("project {project}"), said)
        }
        error => error,
    }
}

fn issue(client: &TrackerClient, entry: JiraIssue) -> Result<Issue, ImportError> {
    if !is_key(&entry.key) {
        return Err(client.not_understood(&format!("`{}` is no key of an issue", entry.key)));
    }
    let place = if client.base().host() == GATEWAY { "/rest/api/3/issue/" } else { "/browse/" };
    let url = client.base().join(&format!("{place}{}", entry.key)).as_str().to_owned();
    let fields = entry.fields;
    let body = match &fields.description {
        Value::String(text) => text.clone(),
        document => adf::markdown(document),
    };
    let labels = sanitize::labels(fields.labels.iter().flatten().map(String::as_str));
    let named = fields.priority.and_then(|priority| priority.name);
    Ok(Issue {
        tracker: Tracker::Jira.key(),
        title: sanitize::title(&fields.summary.unwrap_or_default()),
        body: sanitize::body(&body, &url),
        priority: named.as_deref().and_then(priority::of_name).or_else(|| priority::of_labels(&labels)),
        labels,
        reference: entry.key,
        url,
    })
}

/// `PROJ-456`.
fn is_key(key: &str) -> bool {
    key.rsplit_once('-').is_some_and(|(project, number)| {
        key.len() <= 300
            && project.starts_with(|c: char| c.is_ascii_alphabetic())
            && project.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Without a status, what GitHub calls open: everything that is not done.
fn jql(project: &str, status: Option<&str>) -> String {
    let wanted = match status {
        Some(status) => format!("status = {}", quoted(status)),
        None => "statusCategory != Done".to_owned(),
    };
    format!("project = {} AND {wanted} ORDER BY created ASC", quoted(project))
}

/// A value that stays one, with any text in it.
fn quoted(value: &str) -> String {
    let mut quoted = String::from("\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_cannot_change_the_question() {
        assert_eq!(
            jql("PROJ", Some(r#"x" OR project != "PROJ"#)),
            r#"project = "PROJ" AND status = "x\" OR project != \"PROJ" ORDER BY created ASC"#
        );
        assert_eq!(quoted(r#"back\"#), r#""back\\""#);
        assert_eq!(quoted(r#"\" OR 1"#), r#""\\\" OR 1""#);
        assert_eq!(quoted("In Prüfung's"), "\"In Prüfung's\"");
    }

    #[test]
    fn without_a_status_everything_that_is_not_done_is_asked_for() {
        assert_eq!(jql("A_1", None), r#"project = "A_1" AND statusCategory != Done ORDER BY created ASC"#);
    }

    #[test]
    fn a_key_is_a_project_and_a_number() {
        assert!(is_key("PROJ-456") && is_key("A_1-2"));
        for key in ["PROJ", "PROJ-", "-1", "PROJ-4x", "../x-1", "P J-1", ""] {
            assert!(!is_key(key), "{key}");
        }
    }
}
