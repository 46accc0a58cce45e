//! Where questions may go.
//!
//! A `Url` can only be made from a `Base`, and always has its origin: a request to a `Url` may carry the token.

use std::fmt::Write;

use ureq::http::Uri;

use super::error::ImportError;
use crate::app::http::origin::Origin;

/// The address of an API: an origin, and a path that everything there begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiBase {
    origin: Origin,
    /// Empty, or `/api/v3` and the like.
    path: String,
}

/// Something under a `Base`, or beside it on the same origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiUrl(String);

impl ApiUrl {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl ApiBase {
    pub(super) fn parse(given: &str) -> Result<Self, ImportError> {
        let wrong = |why| Err(ImportError::Address { why });
        let given = given.trim();
        let Ok(uri) = given.parse::<Uri>() else { return wrong("is no address") };
        // Not quoted: what stands before an @ may be a user's password.
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return wrong("must not hold a user or a password; tokens are read from the environment");
        }
        let Some(origin) = Origin::of(&uri) else { return wrong("must begin with https:// and name a host") };
        if uri.query().is_some() || given.contains('#') {
            return wrong("must not have a ? or a #");
        }
        // On the way the token could be read, and what becomes an agent's task be changed: with a token or
        // without, nothing but this machine is asked in the clear.
        if !origin.secure && !origin.is_loopback() {
            return wrong("must begin with https://; http:// is for servers on this machine only");
        }
        Ok(Self { origin, path: uri.path().trim_end_matches('/').to_owned() })
    }

    pub(super) fn host(&self) -> &str {
        &self.origin.host
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// `path` begins with a slash and is encoded already.
    pub(super) fn join(&self, path: &str) -> ApiUrl {
        ApiUrl(format!("{}{}{path}", self.origin.text(), self.path))
    }

    /// An address the server named, if it is on this origin; otherwise where it is.
    pub(super) fn follow(&self, link: &str) -> Result<ApiUrl, String> {
        let Ok(uri) = link.parse::<Uri>() else { return Err("an address that can't be read".into()) };
        let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        match Origin::of(&uri) {
            Some(origin) if plain && origin == self.origin => {
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                Ok(ApiUrl(format!("{}{path}", origin.text())))
            }
            Some(origin) => Err(origin.text()),
            None => Err("an address without a host".into()),
        }
    }
}

/// Anything, as one piece of a path or a query.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(given: &str) -> ApiBase {
        ApiBase::parse(given).expect(given)
    }

    #[test]
    fn an_address_keeps_its_path_and_loses_its_last_slash() {
        assert_eq!(
            base("https://Git.Example.org/api/v3/").join("/x").as_str(),
            "https://git.example.org/api/v3/x"
        );
        assert_eq!(base("https://[2001:db8::1]:8443").join("/x").as_str(), "https://[2001:db8::1]:8443/x");
        assert_eq!(base("https://jira.example.org:443").join("/x").as_str(), "https://jira.example.org/x");
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for given in ["http://127.0.0.1:8080", "http://127.9.9.9", "http://[::1]:1", "http://localhost/jira"]
        {
            base(given);
        }
        for given in
            ["http://example.org", "http://10.0.0.1", "http://localhost.example.org", "http://0.0.0.0"]
        {
            assert!(ApiBase::parse(given).is_err(), "{given}");
        }
    }

    #[test]
    fn an_address_with_more_than_a_place_is_refused_and_not_repeated() {
        for given in [
            "https://me:hunter2@example.org",
            "https://example.org?token=hunter2",
            "https://example.org#hunter2",
            "ftp://example.org/hunter2",
            "example.org/hunter2",
            "https://exa mple.org/hunter2",
            "https://",
            "https://example.org:/",
            "",
        ] {
            let error = ApiBase::parse(given).expect_err(given);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn only_the_same_origin_is_followed() {
        let base = base("https://git.example.org/api/v3");
        let next =
            base.follow("https://GIT.example.org:443/api/v3/repositories/1/issues?page=2").expect("same");
        assert_eq!(next.as_str(), "https://git.example.org/api/v3/repositories/1/issues?page=2");
        for link in [
            "http://git.example.org/x",
            "https://git.example.org:8443/x",
            "https://git.example.org.evil.example/x",
            "https://git.example.org@evil.example/x",
            "https://me@git.example.org/x",
            "//git.example.org/x",
            "/x",
            "nonsense nonsense",
        ] {
            assert!(base.follow(link).is_err(), "{link}");
        }
    }

    #[test]
    fn what_is_encoded_can_end_no_query() {
        assert_eq!(encode("good first&state=all #1/ü"), "good%20first%26state%3Dall%20%231%2F%C3%BC");
    }
}
