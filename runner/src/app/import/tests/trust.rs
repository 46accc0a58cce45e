//! Who gets to see the token, and how much a server may send.

use std::time::Duration;

use serde_json::json;

use super::serving::{Response, Serving};
use super::{server, shown};
use crate::app::import::client::TrackerClient;
use crate::app::import::{ImportError, IssueQuery, Tracker, fetch};

const TOKEN: &[(&str, &str)] = &[("GITHUB_TOKEN", "hunter2")];

fn source() -> IssueQuery {
    IssueQuery::github("octo/hello", None).expect("a source")
}

fn empty() -> Serving {
    Serving::start(|_, _| Some(Response::json(&json!([]))))
}

#[test]
fn the_token_is_sent_and_the_tools_own_goes_first() {
    let github = empty();
    fetch(&source(), &server(&github.url(), TOKEN)).expect("issues");
    let both = [("GITHUB_TOKEN", "hunter2"), ("GH_TOKEN", "hunter3\n"), ("JIRA_TOKEN", "hunter4")];
    fetch(&source(), &server(&github.url(), &both)).expect("issues");
    let sent: Vec<String> = github
        .asked()
        .iter()
        .map(|request| request.header("Authorization").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(sent, ["Bearer hunter2", "Bearer hunter3"]);
}

#[test]
fn a_redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = empty();
        let to = elsewhere.url();
        let moved =
            Serving::start(move |_, _| Some(Response::new(status).header("Location", format!("{to}/x"))));
        let error = fetch(&source(), &server(&moved.url(), TOKEN)).expect_err("a redirect");
        assert!(matches!(error, ImportError::Redirected { .. }), "{error}");
        assert!(error.to_string().contains(&elsewhere.url()), "{error}");
        let jira = IssueQuery::jira("PROJ", None).expect("a source");
        let error =
            fetch(&jira, &server(&moved.url(), &[("JIRA_TOKEN", "hunter2")])).expect_err("a redirect");
        assert!(matches!(error, ImportError::Redirected { .. }), "{error}");
        assert!(elsewhere.asked().is_empty());
        assert_eq!(moved.asked().len(), 2);
    }
}

#[test]
fn a_redirect_on_the_same_origin_is_not_followed_either() {
    let moved =
        Serving::start(|_, url| Some(Response::new(301).header("Location", format!("{url}/repositories/1"))));
    let error = fetch(&source(), &server(&moved.url(), TOKEN)).expect_err("a redirect");
    assert!(error.hint().contains("--repo"), "{}", error.hint());
    assert_eq!(moved.asked().len(), 1);
}

#[test]
fn a_next_page_elsewhere_is_not_asked_for() {
    let elsewhere = empty();
    let to = elsewhere.url();
    let github = Serving::start(move |_, _| {
        Some(Response::json(&json!([])).header("Link", format!("<{to}/x?page=2>; rel=\"next\"")))
    });
    let error = fetch(&source(), &server(&github.url(), TOKEN)).expect_err("another origin");
    assert!(matches!(error, ImportError::Strayed { .. }), "{error}");
    assert!(elsewhere.asked().is_empty());
}

#[test]
fn a_token_that_a_server_repeats_is_not_shown() {
    let repeat = |status: u16| {
        Serving::start(move |request, _| {
            let token = request.header("Authorization").unwrap_or_default();
            Some(
                Response::new(status)
                    .header(
                        "Location",
                        format!("https://{}.example/", token.rsplit(' ').next().unwrap_or_default()),
                    )
                    .body(json!({"message": token, "errorMessages": [token]}).to_string()),
            )
        })
    };
    for status in [200, 302, 400, 401, 403, 404, 410, 422, 500] {
        let echo = repeat(status);
        let error =
            fetch(&source(), &server(&echo.url(), &[("GITHUB_TOKEN", "Hunter2")])).expect_err("no list");
        assert!(!shown(&error).to_lowercase().contains("hunter2"), "{}", shown(&error));
        assert_eq!(echo.asked()[0].header("Authorization"), Some("Bearer Hunter2"));
    }
}

#[test]
fn what_is_given_is_not_shown() {
    let server =
        server("https://me:hunter2@example.org", &[("GITHUB_TOKEN", "hunter2"), ("HTTPS_PROXY", "hunter2")]);
    assert!(!format!("{server:?}").contains("hunter2"));
    let error = fetch(&source(), &server).expect_err("no address");
    assert!(!shown(&error).contains("hunter2"), "{}", shown(&error));
}

#[test]
fn an_answer_that_does_not_end_is_not_read_to_its_end() {
    let github = Serving::start(|_, _| {
        let mut body = b"[".to_vec();
        body.resize(11 * 1024 * 1024, b' ');
        Some(Response::new(200).body(body))
    });
    let error = fetch(&source(), &server(&github.url(), &[])).expect_err("too large");
    assert!(matches!(error, ImportError::TooLarge { .. }), "{error}");
}

#[test]
fn a_server_that_says_nothing_is_left() {
    let silent = Serving::start(|_, _| None);
    let patience = Duration::from_millis(200);
    let client = TrackerClient::with_patience(Tracker::Github, &server(&silent.url(), &[]), patience)
        .expect("a client");
    let error = client.get(&client.base().join("/x")).err().expect("nothing");
    assert!(matches!(error, ImportError::TooSlow { .. }), "{error}");
}

#[test]
fn nobody_at_the_address_is_said_so() {
    let gone = empty().url();
    let error = fetch(&source(), &server(&gone, TOKEN)).expect_err("nobody");
    assert!(matches!(error, ImportError::Unreachable { .. }), "{error}");
    assert!(error.hint().contains("HTTPS_PROXY"));
}

#[test]
fn what_is_not_http_is_not_understood() {
    let odd = Serving::start(|_, _| Some(Response::new(200).header("X", "y\r\nnonsense\u{1}")));
    let error = fetch(&source(), &server(&odd.url(), &[])).expect_err("nonsense");
    assert!(matches!(error, ImportError::NotUnderstood { .. }), "{}", shown(&error));
}

#[test]
fn a_proxy_sees_a_tunnel_and_no_token() {
    let proxy = Serving::start(|_, _| Some(Response::new(403)));
    let address = proxy.address();
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let environment = [("GITHUB_TOKEN", "hunter2"), (variable, &*format!("http://me:pw@{address}"))];
        let error =
            fetch(&source(), &server("https://api.example.invalid", &environment)).expect_err("no way");
        assert!(matches!(error, ImportError::Unreachable { .. }), "{error}");
        assert!(!shown(&error).contains("pw"), "{}", shown(&error));
    }
    let asked = proxy.asked();
    assert_eq!(asked.len(), 3);
    for request in asked {
        assert_eq!(request.line, "CONNECT api.example.invalid:443 HTTP/1.1");
        assert_eq!(request.header("Authorization"), None);
        assert_eq!(request.header("Proxy-Authorization"), Some("Basic bWU6cHc="));
    }
}

#[test]
fn a_server_on_this_machine_is_asked_without_a_proxy() {
    let proxy = empty();
    let github = empty();
    let address = proxy.url();
    let environment =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"].map(|variable| (variable, address.as_str()));
    fetch(&source(), &server(&github.url(), &environment)).expect("issues");
    let by_name = github.url().replace("127.0.0.1", "localhost");
    fetch(&source(), &server(&by_name, &environment)).expect("issues");
    assert_eq!(github.asked().len(), 2);
    assert!(proxy.asked().is_empty());
}
