//! What can go wrong with an import, and what to do about it.
//!
//! Every message is one line. What a server or a library said is cleaned and short before it gets here, and no
//! variant has a place for a token.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{MOST_ISSUES, MOST_PAGES, Tracker, sanitize};
use crate::app::http::HttpError;

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("`{given}` is not a repository")]
    NotARepository { given: String },
    #[error("`{given}` is not the key of a Jira project")]
    NotAProject { given: String },
    #[error("{flag} has no name that a tracker could know")]
    NotAValue { flag: &'static str },
    #[error("Jira has no address of its own to ask")]
    NoAddress,
    #[error("--api-url {why}")]
    Address { why: &'static str },
    #[error("{variable} does not hold {what}")]
    Variable { variable: &'static str, what: &'static str },
    #[error("the certificates in {} can't be used", path.display())]
    Certificates {
        path: PathBuf,
        #[source]
        cause: CleanCause,
    },
    #[error("{host} can't be reached")]
    Unreachable {
        host: String,
        #[source]
        cause: CleanCause,
    },
    #[error("{host} took too long to answer")]
    TooSlow { host: String },
    #[error("{host} shows a certificate that is not trusted")]
    Untrusted {
        host: String,
        #[source]
        cause: CleanCause,
    },
    #[error("{host} sends on to {to}, and a token is not carried to another address")]
    Redirected { host: String, to: String, tracker: Tracker },
    #[error("the next page of {host} is at {to}, and a token is not carried to another address")]
    Strayed { host: String, to: String },
    #[error("{host} refused the request ({status}){said}")]
    Refused {
        host: String,
        status: u16,
        said: ServerMessage,
        tracker: Tracker,
        token_in: Option<&'static str>,
    },
    #[error("{host} has had enough requests for now")]
    RateLimited { host: String, again: RetryTime, tracker: Tracker, token_in: Option<&'static str> },
    #[error("{host} knows no {what}{said}")]
    NotFound {
        host: String,
        what: String,
        said: ServerMessage,
        tracker: Tracker,
        token_in: Option<&'static str>,
    },
    #[error("{host} could not answer ({status}){said}")]
    Failed { host: String, status: u16, said: ServerMessage },
    #[error("{host} did not answer as {tracker} does")]
    NotUnderstood {
        host: String,
        tracker: Tracker,
        #[source]
        cause: CleanCause,
    },
    #[error("a page of {host} is larger than 10 MiB")]
    TooLarge { host: String },
    #[error("more than {MOST_ISSUES} issues, or more than {MOST_PAGES} pages of them, match")]
    TooMany,
}

impl From<HttpError> for ImportError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Proxy { variable } => {
                Self::Variable { variable, what: "the address of an HTTP proxy" }
            }
            HttpError::Certificates { path, why } => {
                Self::Certificates { path, cause: CleanCause::new(&why) }
            }
        }
    }
}

impl ImportError {
    /// What to do next.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NotARepository { .. } => {
                "name it as on its page, for example --repo octocat/hello-world".into()
            }
            Self::NotAProject { .. } => "it is what issues begin with: PROJ for PROJ-456".into(),
            Self::NotAValue { flag } => format!("give one name, on one line, or leave {flag} out"),
            Self::NoAddress => "give your site's, for example --api-url https://example.atlassian.net".into(),
            Self::Address { .. } => {
                "for example https://github.example.org/api/v3 or https://example.atlassian.net".into()
            }
            Self::Variable { variable, .. } => format!("set {variable} again, or unset it"),
            Self::Certificates { .. } => {
                "SSL_CERT_FILE names a file of PEM certificates; unset it for the public ones".into()
            }
            Self::Unreachable { .. } => {
                "check the address and the network; behind a proxy, set HTTPS_PROXY and NO_PROXY".into()
            }
            Self::TooSlow { .. } => "try again; behind a proxy, set HTTPS_PROXY".into(),
            Self::Untrusted { .. } => {
                "if your company signs its own certificates, name its file of them in SSL_CERT_FILE".into()
            }
            Self::Redirected { tracker: Tracker::Github, .. } => {
                "if the repository was renamed or moved, give its present name with --repo; \
                 if the server has moved, its present address with --api-url"
                    .into()
            }
            Self::Redirected { tracker: Tracker::Jira, .. } => {
                "give the address it sends to with --api-url, if you trust it; \
                 a page to sign in on means that the address is not the one of the API"
                    .into()
            }
            Self::Strayed { .. } => {
                "the server does not know its own address; its administrator can set it".into()
            }
            Self::Refused { tracker, token_in, .. } => token_hint(*tracker, *token_in),
            Self::RateLimited { again, tracker: Tracker::Github, token_in: None, .. } => {
                format!("try again {again}; with a token in GITHUB_TOKEN the limit is far higher")
            }
            Self::RateLimited { again, .. } => format!("try again {again}"),
            Self::NotFound { tracker, token_in, .. } => {
                format!(
                    "check the spelling; what a token may not see is also not found: {}",
                    token_hint(*tracker, *token_in)
                )
            }
            Self::Failed { status: 500.., .. } => "the trouble is on its side: try again later".into(),
            Self::Failed { .. } => "check the names that were given, and --api-url".into(),
            Self::NotUnderstood { tracker: Tracker::Github, .. } => {
                "is --api-url the address of its API? GitHub Enterprise has it at https://HOST/api/v3".into()
            }
            Self::NotUnderstood { tracker: Tracker::Jira, .. } => {
                "is --api-url the address of a Jira site, without /rest?".into()
            }
            Self::TooLarge { .. } | Self::TooMany => "ask for fewer, with --label or --status".into(),
        }
    }
}

fn token_hint(tracker: Tracker, token_in: Option<&'static str>) -> String {
    match (tracker, token_in) {
        (Tracker::Github, None) => "set GITHUB_TOKEN to a token that may read the repository's issues".into(),
        (Tracker::Github, Some(variable)) => {
            format!("the token in {variable} must be valid and allowed to read the repository's issues")
        }
        (Tracker::Jira, None) => {
            "set JIRA_TOKEN, and for a site at atlassian.net JIRA_EMAIL too, to those of an account that may see \
             the project"
                .into()
        }
        (Tracker::Jira, Some(_)) => {
            "JIRA_TOKEN must be valid and its account allowed to see the project; a site at atlassian.net wants \
             JIRA_EMAIL too, a server of your own does not"
                .into()
        }
    }
}

/// When to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryTime {
    At(Timestamp),
    In(Duration),
    Later,
}

impl fmt::Display for RetryTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => {
                write!(out, "after {}", time.to_zoned(TimeZone::UTC).strftime("%H:%M UTC on %Y-%m-%d"))
            }
            Self::In(time) if time.as_secs() < 120 => write!(out, "in {} seconds", time.as_secs()),
            Self::In(time) => write!(out, "in {} minutes", time.as_secs().div_ceil(60)),
            Self::Later => out.write_str("later"),
        }
    }
}

/// What a server said of a refusal: nothing, or one clean line that follows the rest of the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ServerMessage(pub(super) String);

impl fmt::Display for ServerMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(out, ": {}", self.0) }
    }
}

/// What a library said went wrong. It may quote the server, so it is one short clean line too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CleanCause(String);

impl CleanCause {
    pub(super) fn new(said: &dyn fmt::Display) -> Self {
        Self(sanitize::line(&said.to_string(), 200))
    }
}
