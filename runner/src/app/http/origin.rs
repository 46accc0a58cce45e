//! Where a server is: a scheme, a host and a port.

use std::net::IpAddr;

use ureq::http::Uri;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) secure: bool,
    /// Lower case; an IPv6 address in its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host()?.to_ascii_lowercase();
        let named = !host.is_empty()
            && host.len() <= 253
            && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        if !named && literal(&host).is_none() {
            return None;
        }
        // A port that is there and is none is a mistake, not a wish for the usual one.
        let port = match uri.port() {
            Some(port) => Some(port.as_u16()),
            None if uri.authority()?.as_str().ends_with(':') => None,
            None => Some(if secure { 443 } else { 80 }),
        }?;
        Some(Self { secure, host, port })
    }

    pub(crate) fn text(&self) -> String {
        let (scheme, usual) = if self.secure { ("https", 443) } else { ("http", 80) };
        match self.port {
            port if port == usual => format!("{scheme}://{}", self.host),
            port => format!("{scheme}://{}:{port}", self.host),
        }
    }

    /// `localhost` is never looked up here (RFC 6761), so it is an address of this machine as much as 127.0.0.1 is.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || literal(&self.host).is_some_and(|address| address.is_loopback())
    }
}

/// An address written out, IPv6 in its brackets or not.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}
