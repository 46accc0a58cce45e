//! As whom a tracker is asked.
//!
//! Tokens come from the environment and leave as one header. Nothing here can be printed.

use std::ffi::OsString;
use std::fmt;

use ureq::http::HeaderValue;

use super::error::ImportError;

/// Something that is in no message and no log.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SecretText(String);

impl fmt::Debug for SecretText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrackerCredential {
    /// Public issues can be read without a token.
    None,
    Bearer {
        variable: &'static str,
        token: SecretText,
    },
    /// Jira in the cloud wants to know whose token it is.
    Basic {
        variable: &'static str,
        token: SecretText,
        pair: SecretText,
    },
}

impl TrackerCredential {
    pub(super) fn variable(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Bearer { variable, .. } | Self::Basic { variable, .. } => Some(variable),
        }
    }

    pub(super) fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::None => return None,
            Self::Bearer { token, .. } => format!("Bearer {}", token.0),
            Self::Basic { pair, .. } => format!("Basic {}", pair.0),
        };
        // Both are visible ASCII by now, which every header may hold.
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// What a server sent, without what we had sent it.
    pub(super) fn scrub(&self, said: &str) -> String {
        match self {
            Self::None => said.to_owned(),
            Self::Bearer { token, .. } => said.replace(&token.0, "(secret)"),
            Self::Basic { token, pair, .. } => {
                said.replace(&token.0, "(secret)").replace(&pair.0, "(secret)")
            }
        }
    }
}

/// GH_TOKEN is for the tools that know it, and goes before the general one, as in GitHub's own.
pub(super) fn github(variable: &impl Fn(&str) -> Option<OsString>) -> Result<TrackerCredential, ImportError> {
    for name in ["GH_TOKEN", "GITHUB_TOKEN"] {
        if let Some(value) = variable(name) {
            return Ok(TrackerCredential::Bearer { variable: name, token: token(name, value)? });
        }
    }
    Ok(TrackerCredential::None)
}

/// With an address of mail it is an account in the cloud, without one a token of a server of one's own.
pub(super) fn jira(variable: &impl Fn(&str) -> Option<OsString>) -> Result<TrackerCredential, ImportError> {
    let Some(value) = variable("JIRA_TOKEN") else { return Ok(TrackerCredential::None) };
    let token = token("JIRA_TOKEN", value)?;
    let Some(email) = variable("JIRA_EMAIL") else {
        return Ok(TrackerCredential::Bearer { variable: "JIRA_TOKEN", token });
    };
    let email = email
        .into_string()
        .ok()
        .map(|email| email.trim().to_owned())
        // A colon would end the name, and begin the password, too early.
        .filter(|email| email.contains('@') && !email.contains(|c: char| c.is_control() || c == ':'))
        .ok_or(ImportError::Variable { variable: "JIRA_EMAIL", what: "an address of mail" })?;
    let pair = SecretText(base64(format!("{email}:{}", token.0).as_bytes()));
    Ok(TrackerCredential::Basic { variable: "JIRA_TOKEN", token, pair })
}

fn token(variable: &'static str, value: OsString) -> Result<SecretText, ImportError> {
    let wrong = ImportError::Variable { variable, what: "a token" };
    let Ok(value) = value.into_string() else { return Err(wrong) };
    let value = value.trim();
    let right = !value.is_empty() && value.len() <= 4096 && value.bytes().all(|byte| byte.is_ascii_graphic());
    if right { Ok(SecretText(value.to_owned())) } else { Err(wrong) }
}

/// As RFC 4648 §4 has it, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place)) & 0x3f;
            text.push(if place <= three.len() { char::from(ALPHABET[six as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        // The examples of RFC 4648 §10.
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn a_token_that_no_header_can_hold_is_refused_and_not_shown() {
        for value in ["two words", "line\nbreak", "töken", " "] {
            let variables = |name: &str| (name == "GITHUB_TOKEN").then(|| OsString::from(value));
            let error = github(&variables).expect_err(value);
            assert_eq!(error.to_string(), "GITHUB_TOKEN does not hold a token");
        }
    }

    #[test]
    fn a_credential_shows_nothing_of_itself() {
        let variables = |name: &str| match name {
            "JIRA_TOKEN" => Some(OsString::from("hunter2")),
            "JIRA_EMAIL" => Some(OsString::from("me@example.org")),
            _ => None,
        };
        let credential = jira(&variables).expect("a credential");
        let shown = format!("{credential:?} {:?}", credential.header());
        assert!(!shown.contains("hunter2") && !shown.contains("me@example.org"), "{shown}");
        assert_eq!(credential.scrub("hunter2 bWVAZXhhbXBsZS5vcmc6aHVudGVyMg=="), "(secret) (secret)");
    }
}
