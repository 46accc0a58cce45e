//! From the name of a server to its addresses.
//!
//! This program is linked statically and can't ask the C library (decision 008): the host's own `getent` is run,
//! which asks whatever the machine is set up with. Addresses that are written out are taken as they are.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::address::literal;

/// Where the program may be. The caller's PATH is not asked.
const PLACES: &[&str] = &["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];
const LONGEST: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 64 * 1024;
/// As many as the client takes.
const MOST_ADDRESSES: usize = 16;

#[derive(Debug)]
pub(super) struct Names;

impl Resolver for Names {
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

/// All addresses of a name; none if it has none.
fn look_up(name: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    let program = PLACES
        .iter()
        .map(Path::new)
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::other("names can't be looked up: there is no `getent` here"))?;
    let child = Command::new(program)
        .args(["ahosts", "--", name])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut running = Running(child);
    let Some(mut output) = running.0.stdout.take() else { return Ok(Vec::new()) };
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let within = Timespec::try_from(left).map_err(io::Error::other)?;
        let ready = || poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&within));
        if left.is_zero() || retry_on_intr(ready)? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("looking up {name} took too long")));
        }
        match output.read(&mut piece)? {
            0 => return Ok(parse(&answer)),
            length => answer.extend_from_slice(&piece[..length]),
        }
        if answer.len() > LARGEST_ANSWER {
            return Ok(Vec::new());
        }
    }
}

/// A program that does not outlive our interest in it.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each address once, in the order of preference in which they come.
fn parse(answer: &[u8]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for line in String::from_utf8_lossy(answer).lines() {
        let address = line.split_whitespace().next().and_then(|word| word.parse::<IpAddr>().ok());
        if let Some(address) = address.filter(|address| !addresses.contains(address)) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_taken_once_and_in_order() {
        let answer = b"2001:db8::1 STREAM x\n2001:db8::1 DGRAM\n192.0.2.7 STREAM\nfe80::1%2 STREAM\n\xff\n";
        let expected: [IpAddr; 2] = ["2001:db8::1", "192.0.2.7"].map(|text| text.parse().expect("one"));
        assert_eq!(parse(answer), expected);
    }

    #[test]
    fn the_hosts_own_program_is_asked() {
        let addresses = look_up("localhost", Instant::now() + LONGEST).expect("an answer");
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }

    #[test]
    fn a_deadline_that_is_over_ends_the_look_up() {
        let error = look_up("localhost", Instant::now()).expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
