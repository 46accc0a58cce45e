//! A list of hosts, and the way out to them.
//!
//! An agent with a list lives in a network namespace of its own, as one without any network does. Two kinds of
//! sockets lead out of it, both made inside before the agent starts (`listeners`) and accepted outside, where
//! the agent can't follow:
//!
//! - a literal loopback address on the list is *forwarded*: what connects to it inside is connected to the same
//!   address and port outside;
//! - everything else goes through a *proxy* (`proxy`), which reads the name a client asks for (`request`),
//!   compares it with the list before anything is looked up, looks up the name that is on the list (`lookup`),
//!   refuses addresses that are not meant (`address`) and this machine's own (`local_address`), and connects to the very
//!   address it checked.
//!
//! Names are what people can review in a policy, and what certificates are for; see decision 011. The proxy's
//! threads run from the moment the agent is let go until its run is over, and every one of their decisions is
//! an [`ConnectionEvent`].

mod address;
mod body;
mod client;
mod destination;
mod event;
mod listeners;
mod local_address;
mod lookup;
mod proxy;
mod relay;
mod request;
mod wait;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use destination::{Destination, DestinationError, DestinationHost, HostName};
pub use event::{ConnectionEvent, ConnectionKind, ConnectionReason, NetworkTraffic};
pub(crate) use listeners::{EgressListener, listen};
pub(crate) use lookup::find_getent;
pub use lookup::look_up;
pub(crate) use proxy::EgressProxy;

/// The proxy's port, below those the kernel hands out by itself.
const PROXY_PORT: u16 = 28128;

/// Where an agent may go: exactly these, no wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAllowlist {
    destinations: Vec<Destination>,
}

impl HostAllowlist {
    /// Reads `HOST:PORT,…`.
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let mut destinations: Vec<Destination> = Vec::new();
        for entry in text.split(',') {
            let destination = Destination::parse(entry)?;
            if !destinations.contains(&destination) {
                destinations.push(destination);
            }
        }
        Ok(Self { destinations })
    }

    /// Where on the list this is, if it is there.
    pub(crate) fn find(&self, host: &DestinationHost, port: u16) -> Option<usize> {
        self.destinations.iter().position(|one| one.port == port && one.host == *host)
    }

    /// Whether a name on the list may lead to this address: one out in the world that is not this machine's, or one that
    /// is on the list too.
    pub(crate) fn allows(&self, address: IpAddr, port: u16) -> bool {
        self.find(&DestinationHost::Address(address.to_canonical()), port).is_some()
            || (!address::is_refused(address) && !local_address::is_local(address))
    }

    pub fn destinations(&self) -> &[Destination] {
        &self.destinations
    }

    /// Addresses that are the same inside and outside.
    pub(crate) fn forwarded(&self) -> impl Iterator<Item = SocketAddr> {
        self.destinations.iter().filter_map(|one| match one.host {
            DestinationHost::Address(address) if address.is_loopback() => {
                Some(SocketAddr::new(address, one.port))
            }
            _ => None,
        })
    }

    /// Where the proxy listens inside: not where something is forwarded.
    pub(crate) fn proxy(&self) -> SocketAddr {
        let taken = |port: &u16| self.forwarded().any(|address| address.port() == *port);
        let port = (PROXY_PORT..=u16::MAX).find(|port| !taken(port)).unwrap_or(PROXY_PORT);
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }

    pub(crate) fn needs_lookup(&self) -> bool {
        self.destinations.iter().any(|one| matches!(one.host, DestinationHost::Name(_)))
    }

    /// An environment in which programs find the proxy, even if the caller's names another one.
    pub fn environment(&self, caller: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
        let proxy = format!("http://{}", self.proxy());
        let mut own: Vec<(OsString, OsString)> = Vec::new();
        for (name, value) in [
            ("HTTP_PROXY", proxy.as_str()),
            ("HTTPS_PROXY", &proxy),
            ("ALL_PROXY", &proxy),
            ("NO_PROXY", "localhost,127.0.0.1,::1"),
        ] {
            own.push((name.into(), value.into()));
            own.push((name.to_ascii_lowercase().into(), value.into()));
        }
        // Node's own fetch asks for this before it looks at the others.
        own.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
        let mut environment: Vec<_> =
            caller.into_iter().filter(|(name, _)| !own.iter().any(|(known, _)| known == name)).collect();
        environment.extend(own);
        environment.sort();
        environment
    }
}

impl std::fmt::Display for HostAllowlist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, destination) in self.destinations.iter().enumerate() {
            write!(f, "{}{destination}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> HostAllowlist {
        HostAllowlist::parse(text).expect("a list")
    }

    fn finds(list: &HostAllowlist, host: &str, port: u16) -> bool {
        DestinationHost::parse(host).is_some_and(|host| list.find(&host, port).is_some())
    }

    #[test]
    fn a_host_is_found_by_its_exact_name_and_port() {
        let list = list("Example.org:443,10.0.0.5:8080,[2606:4700::1]:443");
        assert!(finds(&list, "example.org", 443));
        assert!(finds(&list, "EXAMPLE.ORG.", 443));
        assert!(finds(&list, "10.0.0.5", 8080));
        assert!(finds(&list, "[2606:4700:0:0::1]", 443));
        for (host, port) in [
            ("example.org", 80),
            ("www.example.org", 443),
            ("example.org.evil.example", 443),
            ("xample.org", 443),
            ("10.0.0.5", 443),
            ("10.0.0.6", 8080),
            ("2606:4700::1", 443),
        ] {
            assert!(!finds(&list, host, port), "{host}:{port}");
        }
    }

    #[test]
    fn a_name_may_lead_out_or_to_a_listed_address() {
        let list = list("a.example:443,10.0.0.5:443");
        let lets = |address: &str, port| list.allows(address.parse().expect("an address"), port);
        assert!(lets("1.1.1.1", 443) && lets("10.0.0.5", 443) && lets("::ffff:10.0.0.5", 443));
        assert!(!lets("10.0.0.5", 80) && !lets("10.0.0.6", 443) && !lets("127.0.0.1", 443));
    }

    #[test]
    fn the_proxy_gives_way_to_what_is_forwarded() {
        assert_eq!(list("a.example:1").proxy().port(), 28128);
        assert_eq!(list("127.0.0.1:28128,[::1]:28129").proxy().port(), 28130);
        let forwarded: Vec<_> = list("a.example:1,127.0.0.2:80,10.0.0.1:80").forwarded().collect();
        assert_eq!(forwarded, ["127.0.0.2:80".parse().expect("an address")]);
    }

    #[test]
    fn the_proxy_is_what_programs_find_whatever_the_caller_says() {
        let caller = [("PATH", "/bin"), ("https_proxy", "http://other:1"), ("NO_PROXY", "*")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec();
        let environment = list("a.example:443").environment(caller);
        let value = |name: &str| {
            let found: Vec<_> = environment.iter().filter(|(known, _)| known == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            found[0].1.to_string_lossy().into_owned()
        };
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            assert_eq!(value(name), "http://127.0.0.1:28128");
        }
        assert_eq!(value("NO_PROXY"), "localhost,127.0.0.1,::1");
        assert_eq!(value("PATH"), "/bin");
    }
}
