//! One question over HTTP, and what its answer means.
//!
//! The token goes to one origin: every `Url` has it, redirects are not followed, and a proxy sees a tunnel. An
//! answer has a largest size and a longest time. What both trackers say with a status (no access, too many
//! requests) is judged here; what only one of them means by it, there.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body, RequestBuilder};

use super::address::{ApiBase, ApiUrl};
use super::credential::TrackerCredential;
use super::error::{CleanCause, ImportError, RetryTime, ServerMessage};
use super::{LARGEST_PAGE, Tracker, TrackerServer, sanitize};

const GITHUB: &str = "https://api.github.com";
/// From the look-up of the name to the last byte of the answer.
const LONGEST_REQUEST: Duration = Duration::from_secs(30);
/// As much of an explanation as a person reads.
const LARGEST_EXPLANATION: u64 = 64 * 1024;

pub(super) struct TrackerClient {
    agent: Agent,
    base: ApiBase,
    tracker: Tracker,
    credential: TrackerCredential,
}

/// A page that a server was willing to show.
pub(super) struct TrackerPage {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl TrackerClient {
    pub(super) fn new(tracker: Tracker, server: &TrackerServer) -> Result<Self, ImportError> {
        Self::with_patience(tracker, server, LONGEST_REQUEST)
    }

    pub(super) fn with_patience(
        tracker: Tracker,
        server: &TrackerServer,
        patience: Duration,
    ) -> Result<Self, ImportError> {
        let environment = &server.environment;
        let (address, credential) = match (tracker, &server.api_url) {
            (Tracker::Github, given) => (given.as_deref().unwrap_or(GITHUB), &environment.github),
            (Tracker::Jira, Some(given)) => (given.as_str(), &environment.jira),
            (Tracker::Jira, None) => return Err(ImportError::NoAddress),
        };
        let base = ApiBase::parse(address)?;
        let agent = environment.way.agent(base.origin(), patience)?;
        Ok(Self { agent, base, tracker, credential: credential.clone()? })
    }

    pub(super) fn base(&self) -> &ApiBase {
        &self.base
    }

    pub(super) fn get(&self, url: &ApiUrl) -> Result<TrackerPage, ImportError> {
        let request = self.signed(self.agent.get(url.as_str()));
        let response = request.call().map_err(|error| self.trouble(error))?;
        self.judge(response)
    }

    pub(super) fn post(&self, url: &ApiUrl, question: &impl Serialize) -> Result<TrackerPage, ImportError> {
        let request = self.signed(self.agent.post(url.as_str()));
        let response = request.send_json(question).map_err(|error| self.trouble(error))?;
        self.judge(response)
    }

    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let request = match self.tracker {
            // Version 2022-11-28 is the one that every GitHub Enterprise in use knows too.
            Tracker::Github => request
                .header("Accept", "application/vnd.github+json")
                .header("X-GitHub-Api-Version", "2022-11-28"),
            Tracker::Jira => request.header("Accept", "application/json"),
        };
        match self.credential.header() {
            Some(value) => request.header("Authorization", value),
            None => request,
        }
    }

    fn judge(&self, mut response: Response<Body>) -> Result<TrackerPage, ImportError> {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        match status {
            // Jira shows strangers what is public, also when it did not believe who they say they are.
            200..=299 if !not_believed(&headers) => {
                let body = response.body_mut().with_config().limit(LARGEST_PAGE).read_to_vec();
                let body = body.map_err(|error| self.trouble(error))?;
                Ok(TrackerPage { headers, body })
            }
            300..=399 => {
                let to = self.astray(header(&headers, "location").unwrap_or_default());
                Err(ImportError::Redirected { host: self.host(), to, tracker: self.tracker })
            }
            _ if is_rate_limited(status, &headers) => Err(ImportError::RateLimited {
                host: self.host(),
                again: again(&headers),
                tracker: self.tracker,
                token_in: self.credential.variable(),
            }),
            _ => {
                let said = self.explanation(&mut response);
                Err(if matches!(status, 401 | 403) || not_believed(&headers) {
                    self.refused(status, said)
                } else {
                    ImportError::Failed { host: self.host(), status, said }
                })
            }
        }
    }

    fn explanation(&self, response: &mut Response<Body>) -> ServerMessage {
        let body = response.body_mut().with_config().limit(LARGEST_EXPLANATION).read_to_vec();
        let said = body.ok().and_then(|body| serde_json::from_slice(&body).ok()).map(|said| explained(&said));
        ServerMessage(sanitize::line(&self.credential.scrub(&said.unwrap_or_default()), 200))
    }

    fn refused(&self, status: u16, said: ServerMessage) -> ImportError {
        let token_in = self.credential.variable();
        ImportError::Refused { host: self.host(), status, said, tracker: self.tracker, token_in }
    }

    pub(super) fn not_found(&self, what: String, said: ServerMessage) -> ImportError {
        let token_in = self.credential.variable();
        ImportError::NotFound { host: self.host(), what, said, tracker: self.tracker, token_in }
    }

    pub(super) fn not_understood(&self, why: &dyn std::fmt::Display) -> ImportError {
        let cause = CleanCause::new(&self.credential.scrub(&why.to_string()));
        ImportError::NotUnderstood { host: self.host(), tracker: self.tracker, cause }
    }

    pub(super) fn read<T: DeserializeOwned>(&self, page: &TrackerPage) -> Result<T, ImportError> {
        serde_json::from_slice(&page.body).map_err(|error| self.not_understood(&error))
    }

    /// The page after this one, as its `Link` headers have it (RFC 8288).
    pub(super) fn next(&self, page: &TrackerPage) -> Result<Option<ApiUrl>, ImportError> {
        let mut links = page.headers.get_all("link").iter().filter_map(|value| value.to_str().ok());
        let Some(next) = links.find_map(next_link) else { return Ok(None) };
        let strayed = |_| ImportError::Strayed { host: self.host(), to: self.astray(next) };
        self.base.follow(next).map(Some).map_err(strayed)
    }

    /// Where an address leads, in a form that can be shown.
    fn astray(&self, link: &str) -> String {
        match self.base.follow(&self.credential.scrub(link)) {
            Ok(_) => "another place".to_owned(),
            Err(origin) => sanitize::line(&origin, 200),
        }
    }

    pub(super) fn host(&self) -> String {
        self.base.host().to_owned()
    }

    fn trouble(&self, error: ureq::Error) -> ImportError {
        let host = self.host();
        match error {
            ureq::Error::BodyExceedsLimit(_) => ImportError::TooLarge { host },
            ureq::Error::Timeout(_) => ImportError::TooSlow { host },
            ureq::Error::HostNotFound => {
                ImportError::Unreachable { host, cause: CleanCause::new(&"its name has no address") }
            }
            ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => self.not_understood(&error),
            ureq::Error::Io(error) => match error.kind() {
                std::io::ErrorKind::TimedOut => ImportError::TooSlow { host },
                _ => unreachable_or_untrusted(host, CleanCause::new(&error)),
            },
            error => unreachable_or_untrusted(host, CleanCause::new(&error)),
        }
    }
}

/// TLS has no error of its own by the time it gets here, but only it speaks of certificates.
fn unreachable_or_untrusted(host: String, cause: CleanCause) -> ImportError {
    if cause.to_string().contains("certificate") {
        ImportError::Untrusted { host, cause }
    } else {
        ImportError::Unreachable { host, cause }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// How Jira says that a token is wrong while it answers as if there had been none.
fn not_believed(headers: &HeaderMap) -> bool {
    header(headers, "x-seraph-loginreason").is_some_and(|reason| {
        reason.contains("AUTHENTICATED_FAILED") || reason.contains("AUTHENTICATION_DENIED")
    })
}

/// GitHub refuses with 403 as well, and then says that nothing is left, or when to come back.
fn is_rate_limited(status: u16, headers: &HeaderMap) -> bool {
    let used_up = header(headers, "x-ratelimit-remaining") == Some("0");
    status == 429 || status == 403 && (used_up || header(headers, "retry-after").is_some())
}

/// Seconds or a date in `Retry-After`; in `X-RateLimit-Reset` GitHub's seconds since 1970, or Jira's date.
fn again(headers: &HeaderMap) -> RetryTime {
    if let Some(value) = header(headers, "retry-after") {
        match value.parse() {
            Ok(0) => {}
            Ok(seconds) => return RetryTime::In(Duration::from_secs(seconds)),
            Err(_) => {
                if let Ok(time) = jiff::fmt::rfc2822::parse(value) {
                    return RetryTime::At(time.timestamp());
                }
            }
        }
    }
    let reset = header(headers, "x-ratelimit-reset").and_then(|value| match value.parse() {
        Ok(seconds) => Timestamp::from_second(seconds).ok(),
        Err(_) => value.parse().ok(),
    });
    reset.map_or(RetryTime::Later, RetryTime::At)
}

/// `message` is GitHub's, `errorMessages` and `errors` are Jira's.
fn explained(said: &Value) -> String {
    let listed = said["errorMessages"].as_array().into_iter().flatten();
    let named = said["errors"].as_object().into_iter().flat_map(|errors| errors.values());
    let all = std::iter::once(&said["message"]).chain(listed).chain(named);
    all.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// The target of `<…>; rel="next"` among others. A comma may stand in a target, so it is read from the left.
fn next_link(value: &str) -> Option<&str> {
    let mut rest = value;
    loop {
        let (_, from) = rest.split_once('<')?;
        let (target, after) = from.split_once('>')?;
        let (parameters, others) = after.split_once(",").unwrap_or((after, ""));
        let is_next =
            parameters.split(';').filter_map(|parameter| parameter.split_once('=')).any(|(name, value)| {
                let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
                name.trim().eq_ignore_ascii_case("rel")
                    && relations.any(|one| one.eq_ignore_ascii_case("next"))
            });
        if is_next {
            return Some(target);
        }
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn the_next_page_is_found_among_others() {
        let value =
            "<https://x/?page=1&labels=a,b>; rel=\"prev\", <https://x/?page=3>; foo=1; REL=\"next last\"";
        assert_eq!(next_link(value), Some("https://x/?page=3"));
        assert_eq!(next_link("<https://x/?page=2>; rel=next"), Some("https://x/?page=2"));
        for value in ["<https://x/>; rel=\"last\"", "<https://x/", "rel=\"next\"", "", "<a>; rel=\"nextish\""]
        {
            assert_eq!(next_link(value), None, "{value}");
        }
    }

    #[test]
    fn when_to_come_back_is_read_in_every_way_it_is_said() {
        let at = |text: &str| RetryTime::At(text.parse().expect("a time"));
        for (pairs, expected) in [
            (
                &[("retry-after", "90"), ("x-ratelimit-reset", "1")][..],
                RetryTime::In(Duration::from_secs(90)),
            ),
            (&[("retry-after", "Thu, 05 Nov 2026 14:05:00 GMT")][..], at("2026-11-05T14:05:00Z")),
            (&[("x-ratelimit-reset", "1793887500")][..], at("2026-11-05T14:05:00Z")),
            (&[("x-ratelimit-reset", "2026-11-05T14:05Z")][..], at("2026-11-05T14:05:00Z")),
            (&[("retry-after", "0"), ("x-ratelimit-reset", "soon")][..], RetryTime::Later),
            (&[][..], RetryTime::Later),
        ] {
            assert_eq!(again(&headers(pairs)), expected, "{pairs:?}");
        }
        assert_eq!(at("2026-11-05T14:05:00Z").to_string(), "after 14:05 UTC on 2026-11-05");
        assert_eq!(RetryTime::In(Duration::from_secs(3601)).to_string(), "in 61 minutes");
    }

    #[test]
    fn a_refusal_is_a_limit_only_if_it_says_so() {
        assert!(is_rate_limited(429, &headers(&[])));
        assert!(is_rate_limited(403, &headers(&[("x-ratelimit-remaining", "0")])));
        assert!(is_rate_limited(403, &headers(&[("retry-after", "60")])));
        assert!(!is_rate_limited(403, &headers(&[("x-ratelimit-remaining", "4999")])));
        assert!(!is_rate_limited(404, &headers(&[("x-ratelimit-remaining", "0")])));
    }
}
