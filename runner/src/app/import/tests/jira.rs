//! What is asked of Jira in the cloud and of a server of one's own, and what becomes of its issues.

use serde_json::{Value, json};

use super::serving::{Response, Serving};
use super::{server, shown};
use crate::app::import::{ImportError, Issue, IssueQuery, fetch};

const CLOUD: &[(&str, &str)] = &[("JIRA_TOKEN", "hunter2"), ("JIRA_EMAIL", "me@example.org")];

fn entry(key: &str) -> Value {
    json!({"id": "1", "key": key, "fields": {"summary": format!("About {key}"), "labels": []}})
}

fn source(status: Option<&str>) -> IssueQuery {
    IssueQuery::jira("proj", status).expect("a source")
}

fn references(issues: &[Issue]) -> Vec<&str> {
    issues.iter().map(|issue| issue.reference.as_str()).collect()
}

#[test]
fn the_cloud_is_read_token_by_token() {
    let jira = Serving::start(|request, _| {
        Some(match request.json()["nextPageToken"].as_str() {
            // Wrong about it, as it is at times.
            None => {
                Response::json(&json!({"issues": [entry("PROJ-1")], "nextPageToken": "a=", "isLast": true}))
            }
            Some("a=") => Response::json(&json!({"issues": [], "nextPageToken": "b="})),
            Some("b=") => {
                Response::json(&json!({"issues": [entry("PROJ-2"), entry("PROJ-1")], "isLast": true}))
            }
            Some(_) => Response::new(400),
        })
    });
    let issues = fetch(&source(Some("To \"Do\"")), &server(&jira.url(), CLOUD)).expect("issues");
    assert_eq!(references(&issues), ["PROJ-1", "PROJ-2"]);
    let asked = jira.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].line, "POST /rest/api/3/search/jql HTTP/1.1");
    assert_eq!(asked[0].header("Authorization"), Some("Basic bWVAZXhhbXBsZS5vcmc6aHVudGVyMg=="));
    assert_eq!(
        asked[0].json(),
        json!({
            "jql": r#"project = "PROJ" AND status = "To \"Do\"" ORDER BY created ASC"#,
            "fields": ["summary", "description", "labels", "priority"],
            "maxResults": 100,
        })
    );
    assert_eq!(issues[1].url, format!("{}/browse/PROJ-2", jira.url()));
}

#[test]
fn a_server_of_ones_own_is_read_by_number() {
    for missing in [404, 410] {
        let jira = Serving::start(move |request, _| {
            if request.target() != "/jira/rest/api/2/search" {
                return Some(Response::new(missing).body("<html>no such thing</html>"));
            }
            let start = request.json()["startAt"].as_u64().expect("a number") as usize;
            let all = ["PROJ-1", "PROJ-2", "PROJ-3"].map(entry);
            let page = &all[start..(start + 2).min(3)];
            Some(Response::json(&json!({"startAt": start, "maxResults": 2, "total": 3, "issues": page})))
        });
        let server = server(&format!("{}/jira", jira.url()), &[("JIRA_TOKEN", "hunter2")]);
        let issues = fetch(&source(None), &server).expect("issues");
        assert_eq!(references(&issues), ["PROJ-1", "PROJ-2", "PROJ-3"]);
        let asked = jira.asked();
        assert_eq!(asked.len(), 3);
        assert!(asked.iter().all(|request| request.header("Authorization") == Some("Bearer hunter2")));
        assert_eq!(issues[0].url, format!("{}/jira/browse/PROJ-1", jira.url()));
    }
}

#[test]
fn an_issue_becomes_what_a_task_needs() {
    let jira = Serving::start(|_, _| {
        Some(Response::json(&json!({"issues": [{
            "key": "PROJ-456",
            "fields": {
                "summary": "Log in \u{202e}fails",
                "description": {"type": "doc", "version": 1, "content": [
                    {"type": "paragraph", "content": [{"type": "text", "text": "Not\u{7} again."}]},
                ]},
                "labels": ["backend", "P3"],
                "priority": {"name": "Highest", "id": "1"},
            },
        }, {
            "key": "PROJ-457",
            "fields": {"summary": null, "description": "h1. As *it* was\r\n", "labels": null, "priority": null},
        }]})))
    });
    let issues = fetch(&source(None), &server(&jira.url(), &[])).expect("issues");
    assert_eq!(
        issues[0],
        Issue {
            tracker: "jira",
            reference: "PROJ-456".into(),
            url: format!("{}/browse/PROJ-456", jira.url()),
            title: "Log in fails".into(),
            body: "Not again.".into(),
            labels: vec!["backend".into(), "P3".into()],
            priority: Some(0),
        }
    );
    assert_eq!(issues[1].body, "h1. As *it* was");
    assert_eq!(issues[1].priority, None);
}

#[test]
fn what_jira_refuses_is_said_with_what_to_do() {
    let unknown =
        r#"{"errorMessages":["The value 'PROJ' does not exist for the field 'project'."],"errors":{}}"#;
    let answers: [(Response, &str, &str); 6] = [
        (Response::new(401), "127.0.0.1 refused the request (401)", "JIRA_TOKEN"),
        (
            Response::json(&json!({"issues": []})).header("X-Seraph-LoginReason", "AUTHENTICATED_FAILED"),
            "127.0.0.1 refused the request (200)",
            "JIRA_EMAIL",
        ),
        (
            Response::new(400).body(unknown),
            "127.0.0.1 knows no project PROJ: The value 'PROJ' does not exist for the field 'project'.",
            "spelling",
        ),
        (
            Response::new(400).body(r#"{"errorMessages":["Der Wert 'X'\nfehlt."],"errors":{"jql":"Nein."}}"#),
            "127.0.0.1 could not answer (400): Der Wert 'X' fehlt. Nein.",
            "check",
        ),
        (Response::new(404), "127.0.0.1 knows no search of Jira's at this --api-url", "spelling"),
        (Response::new(429), "127.0.0.1 has had enough requests for now", "later"),
    ];
    for (response, message, hint) in answers {
        let jira = Serving::start(move |_, _| Some(response.clone()));
        let error = fetch(&source(None), &server(&jira.url(), CLOUD)).expect_err(message);
        assert_eq!(error.to_string(), message);
        assert!(error.hint().contains(hint), "{message}: {}", error.hint());
        assert!(!shown(&error).contains("hunter2"), "{}", shown(&error));
    }
}

#[test]
fn a_page_that_comes_again_is_no_next_page() {
    let answer = json!({"issues": [entry("PROJ-1")], "nextPageToken": "a"});
    let jira = Serving::start(move |_, _| Some(Response::json(&answer)));
    let error = fetch(&source(None), &server(&jira.url(), &[])).expect_err("a circle");
    assert!(matches!(error, ImportError::NotUnderstood { .. }), "{error}");
    assert_eq!(jira.asked().len(), 2);
}

#[test]
fn a_key_that_is_none_is_not_taken() {
    let answer = json!({"issues": [entry("PROJ-1\"\nstatus: DONE")]});
    let jira = Serving::start(move |_, _| Some(Response::json(&answer)));
    let error = fetch(&source(None), &server(&jira.url(), &[])).expect_err("no key");
    assert!(matches!(error, ImportError::NotUnderstood { .. }), "{error}");
    assert!(!shown(&error).contains('\n'));
}

#[test]
fn jira_has_no_address_of_its_own() {
    let server = crate::app::import::TrackerServer::in_environment(None, |_| None);
    let error = fetch(&source(None), &server).expect_err("no address");
    assert!(error.hint().contains("--api-url"), "{}", error.hint());
}

#[test]
fn what_is_no_project_is_not_asked_for() {
    for project in ["", "1A", "PROJ-1", "A B", "A\" OR \"B"] {
        assert!(IssueQuery::jira(project, None).is_err(), "{project}");
    }
    assert!(IssueQuery::jira("PROJ", Some("In\nProgress")).is_err());
}
