//! One place to go: a host and a port.
//!
//! The same reading is used for what an operator lists and for what an agent asks for, so the two can't differ
//! in what they mean. A host that is neither a plain name nor a plain address is neither listed nor found: no
//! short, octal or hexadecimal addresses, no zones, no names in another script.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::path::escape;

/// The longest name the domain name system knows.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    pub host: DestinationHost,
    pub port: u16,
}

/// The host of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationHost {
    Name(HostName),
    Address(IpAddr),
}

/// A host name in lower case, without the dot that may end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

/// What was listed is no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}`: {reason}")]
pub struct DestinationError {
    entry: String,
    reason: &'static str,
}

impl Destination {
    /// Reads one entry of a list.
    pub fn parse(entry: &str) -> Result<Self, DestinationError> {
        let entry = entry.trim();
        let wrong = |reason| DestinationError { entry: escape(entry.as_bytes()), reason };
        if entry.is_empty() {
            return Err(wrong("an entry is empty"));
        }
        if entry.contains('*') {
            return Err(wrong("there are no wildcards, name each host"));
        }
        if entry.contains("://") || entry.contains('/') {
            return Err(wrong("write HOST:PORT alone, without a scheme or a path"));
        }
        if entry.parse::<Ipv6Addr>().is_ok() {
            return Err(wrong("write an IPv6 address in brackets, with a port: [::1]:8080"));
        }
        let (host, port) = split(entry).ok_or_else(|| wrong("the port is missing, write HOST:PORT"))?;
        let port = match parse_port(port) {
            Some(0) => return Err(wrong("there is no port 0")),
            Some(port) => port,
            None => return Err(wrong("the port is not a number up to 65535")),
        };
        if !host.is_ascii() {
            return Err(wrong("write the name in its ASCII form (xn--…)"));
        }
        let host = DestinationHost::parse(host)
            .ok_or_else(|| wrong("this is neither the name of a host nor an address"))?;
        match &host {
            DestinationHost::Name(name) if name.is_localhost() => {
                Err(wrong("name the address that is meant: 127.0.0.1 or [::1]"))
            }
            DestinationHost::Address(address) if address.is_unspecified() || address.is_multicast() => {
                Err(wrong("this is no address of one host"))
            }
            _ => Ok(Self { host, port }),
        }
    }
}

impl DestinationHost {
    /// Reads the host of an authority: a name, an IPv4 address, or an IPv6 address in brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let address: Ipv6Addr = address.parse().ok()?;
            // An IPv4 address in IPv6's clothes is that IPv4 address.
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        match text.parse() {
            Ok(address @ IpAddr::V4(_)) => Some(Self::Address(address)),
            Ok(IpAddr::V6(_)) => None,
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }
}

impl HostName {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let sound = |label: &str| {
            (1..=LONGEST_LABEL).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if text.len() > LONGEST_NAME || !text.split('.').all(sound) {
            return None;
        }
        // Some resolvers take `127.1` and `0x7f000001` for addresses. No top-level domain looks like that.
        let last = text.rsplit('.').next()?.to_ascii_lowercase();
        let numeric = last.bytes().all(|byte| byte.is_ascii_digit());
        let hexadecimal =
            last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        (!numeric && !hexadecimal).then(|| Self(text.to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names the asking machine itself: which one that is depends on the asker.
    fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

/// Splits an authority at its last colon, unless that is inside brackets.
pub(crate) fn split(authority: &str) -> Option<(&str, &str)> {
    let (host, port) = authority.rsplit_once(':')?;
    (!port.contains(']')).then_some((host, port))
}

/// Digits and nothing else.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Display for DestinationHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestinationHost::Name(name) => f.write_str(name.as_str()),
            DestinationHost::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            DestinationHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reads(entry: &str) -> String {
        Destination::parse(entry).expect("a destination").to_string()
    }

    #[test]
    fn names_and_addresses_are_read_as_people_write_them() {
        assert_eq!(reads("Registry.NPMjs.org.:443"), "registry.npmjs.org:443");
        assert_eq!(reads(" build-1:8080 "), "build-1:8080");
        assert_eq!(reads("10.0.0.5:443"), "10.0.0.5:443");
        assert_eq!(reads("[0:0::1]:8080"), "[::1]:8080");
        assert_eq!(reads("[::ffff:127.0.0.1]:80"), "127.0.0.1:80");
        assert_eq!(reads("xn--bcher-kva.example:65535"), "xn--bcher-kva.example:65535");
    }

    #[test]
    fn what_is_no_destination_is_said_to_be_none() {
        for (entry, word) in [
            ("", "empty"),
            ("example.org", "port is missing"),
            ("example.org:", "not a number"),
            ("example.org:0", "port 0"),
            ("example.org:65536", "not a number"),
            ("example.org:+443", "not a number"),
            ("example.org:443x", "not a number"),
            ("https://example.org", "without a scheme"),
            ("example.org:443/path", "without a scheme"),
            ("*", "wildcards"),
            ("*:443", "wildcards"),
            ("*.example.org:443", "wildcards"),
            ("localhost:8723", "127.0.0.1"),
            ("a.LocalHost.:8723", "127.0.0.1"),
            ("::1", "brackets"),
            ("[::1]", "port is missing"),
            ("::1:80", "brackets"),
            ("[fe80::1%eth0]:80", "neither"),
            ("0.0.0.0:80", "no address of one host"),
            ("[::]:80", "no address of one host"),
            ("224.0.0.1:80", "no address of one host"),
            ("127.1:80", "neither"),
            ("2130706433:80", "neither"),
            ("0x7f000001:80", "neither"),
            ("0177.0.0.1:80", "neither"),
            ("-option.example:80", "neither"),
            ("a..example:80", "neither"),
            (".:80", "neither"),
            (":80", "neither"),
            ("user@example.org:80", "neither"),
            ("bücher.example:80", "xn--"),
            ("exa mple.org:80", "neither"),
        ] {
            let error = Destination::parse(entry).expect_err(entry).to_string();
            assert!(error.contains(word), "{entry}: {error}");
            assert!(!error.contains('\n'));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_read_the_same_again(entry in "\\PC{0,40}") {
            if let Ok(destination) = Destination::parse(&entry) {
                prop_assert_eq!(Destination::parse(&destination.to_string()), Ok(destination));
            }
        }

        #[test]
        fn a_name_never_looks_like_an_option_or_an_address(text in "[-a-zA-Z0-9.x:\\[\\]]{1,30}") {
            if let Some(DestinationHost::Name(name)) = DestinationHost::parse(&text) {
                prop_assert!(!name.as_str().starts_with('-'));
                prop_assert!(name.as_str().parse::<IpAddr>().is_err());
            }
        }
    }
}
