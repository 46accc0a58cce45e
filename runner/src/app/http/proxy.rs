//! The proxy that the environment names, if this host is to be asked through it.
//!
//! Behind a company's wall there is no other way out, so `HTTPS_PROXY` is honoured, as `git` and `curl` do. It
//! only ever gets to see a tunnel: what is said is inside TLS, which ends at the server. Plain HTTP, which is for this
//! machine and its neighbours, never takes one, so `HTTP_PROXY` is not read.

use std::ffi::OsString;

use ureq::{Proxy, ProxyProtocol};

use super::HttpError;
use super::origin::Origin;

/// The usual spellings. Where both are set, the one in small letters is what other programs take.
const PROXIES: &[&str] = &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const EXCEPTIONS: &[&str] = &["no_proxy", "NO_PROXY"];

/// May hold a password, so it can't be printed.
pub(crate) struct ProxySettings {
    proxy: Option<(&'static str, OsString)>,
    except: String,
}

impl ProxySettings {
    pub(crate) fn from(variable: &impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            proxy: PROXIES.iter().find_map(|name| Some((*name, variable(name)?))),
            except: EXCEPTIONS
                .iter()
                .find_map(|name| variable(name))
                .map(|value| value.to_string_lossy().into_owned())
                .unwrap_or_default(),
        }
    }

    /// One that can't be used is an error, not a reason to go round it.
    pub(super) fn to(&self, origin: &Origin) -> Result<Option<Proxy>, HttpError> {
        let Some((variable, value)) = &self.proxy else { return Ok(None) };
        if !origin.secure || is_exception(&self.except, &origin.host) {
            return Ok(None);
        }
        let proxy = value.to_str().and_then(|value| Proxy::new(value.trim()).ok());
        match proxy {
            Some(proxy) if matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) => {
                Ok(Some(proxy))
            }
            _ => Err(HttpError::Proxy { variable }),
        }
    }
}

/// `example.org` and `.example.org` are the host and all below it, `*` is everything. A port is not looked at.
fn is_exception(list: &str, host: &str) -> bool {
    list.split([',', ' ', '\t']).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.to_ascii_lowercase();
        if entry == "*" {
            return true;
        }
        let entry = entry.trim_start_matches('*').trim_start_matches('.');
        let entry = match entry.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                name
            }
            _ => entry,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let entry = entry.trim_start_matches('[').trim_end_matches(']');
        !entry.is_empty()
            && host.strip_suffix(entry).is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_hosts_and_what_is_below_them() {
        for (list, host, expected) in [
            ("example.org", "example.org", true),
            ("example.org", "git.example.org", true),
            (".example.org", "git.example.org", true),
            ("*.example.org", "git.example.org", true),
            ("other, Example.org:443", "example.org", true),
            ("*", "anything", true),
            ("::1", "[::1]", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("ample.org", "example.org", false),
            ("git.example.org", "example.org", false),
            ("", "example.org", false),
            (",,", "example.org", false),
        ] {
            assert_eq!(is_exception(list, host), expected, "{list} {host}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_not_gone_round() {
        let uri = "https://api.example.org".parse().expect("an address");
        let origin = Origin::of(&uri).expect("an origin");
        for value in ["socks5://127.0.0.1:1080", "gopher://x", "http://"] {
            let proxies = ProxySettings::from(&|name| (name == "ALL_PROXY").then(|| OsString::from(value)));
            let error = proxies.to(&origin).expect_err(value);
            assert_eq!(error.to_string(), "ALL_PROXY does not hold the address of an HTTP proxy");
        }
    }
}
