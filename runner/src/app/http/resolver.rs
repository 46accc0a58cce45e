//! From the name of a server to its addresses.
//!
//! This program is linked statically and can't ask the C library (decision 008): names are looked up as they are for
//! sandboxes. Addresses that are written out are taken as they are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use agency_sandbox::egress::look_up;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::origin::literal;

const LONGEST: Duration = Duration::from_secs(10);
/// As many as the client takes.
const MOST_ADDRESSES: usize = 16;

#[derive(Debug)]
pub(super) struct HostResolver;

impl Resolver for HostResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        let addresses = match literal(host) {
            Some(address) => vec![address],
            None if host.eq_ignore_ascii_case("localhost") => {
                vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
            }
            None => look_up(host, Instant::now() + LONGEST.min(*timeout.after))?,
        };
        let mut resolved = self.empty();
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            resolved.push(SocketAddr::new(address, port));
        }
        if resolved.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(resolved) }
    }
}
