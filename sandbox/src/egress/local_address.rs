//! Whether an address is this machine's own.
//!
//! A public address that one of this machine's interfaces has looks like any other in the world, and leads to services
//! that were never meant for an agent. The kernel knows: it is asked for the route it would take, at the moment of the
//! connection, so that addresses that come and go, whole networks that are declared local and every interface count.
//! An address that only another network's router leads back here, such as a cloud's, is not known to this machine.

use std::io;
use std::net::IpAddr;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with, sockopt,
};

use super::address;

/// Whether a connection to the address stays on this machine, also by the IPv4 address that an IPv6 address carries.
/// What can't be found out is taken for local.
pub(super) fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let carried = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => address::carried_v4(address).map(IpAddr::V4),
    };
    [Some(address), carried].into_iter().flatten().any(|address| leads_here(address).unwrap_or(true))
}

/// A message to the kernel: a header, what kind of route is meant, and the address.
const HEADER: usize = 16;
const ROUTE: usize = 12;
/// Where in an answer the kind of route is, and an error.
const KIND: usize = HEADER + 7;
const ERROR: usize = HEADER;
/// Kinds of route that end on this machine, or on every machine of its network.
const HERE: &[u8] = &[libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST, libc::RTN_MULTICAST];

fn leads_here(address: IpAddr) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC;
    // Without a protocol it is the one of routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let patience = std::time::Duration::from_secs(5);
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &question(address), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 4096];
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    read(answer.get(..length).unwrap_or_default())
}

fn question(address: IpAddr) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let attribute = 4 + bytes.len();
    let mut question = Vec::with_capacity(HEADER + ROUTE + attribute);
    question.extend(((HEADER + ROUTE + attribute) as u32).to_ne_bytes());
    question.extend(libc::RTM_GETROUTE.to_ne_bytes());
    question.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    question.extend([0; 8]);
    question.extend([family as u8, (bytes.len() * 8) as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    question.extend((attribute as u16).to_ne_bytes());
    question.extend(libc::RTA_DST.to_ne_bytes());
    question.extend(bytes);
    question
}

/// What the kernel said: a route, or why there is none.
fn read(answer: &[u8]) -> io::Result<bool> {
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    if kind == Some(libc::RTM_NEWROUTE) {
        let kind = answer.get(KIND).ok_or_else(|| io::Error::other("a route without a kind"))?;
        return Ok(HERE.contains(kind));
    }
    let code = answer.get(ERROR..ERROR + 4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code.map(|code| -code) {
        // No route leads there; a connection gets the same error.
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => Ok(false),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Err(io::Error::other("no answer about a route")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_own_addresses_in_any_clothes() {
        for own in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"]
        {
            assert!(is_local(own.parse().expect("an address")), "{own}");
        }
        // Documentation addresses belong to no machine, whether or not there is a way to them.
        for other in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(!is_local(other.parse().expect("an address")), "{other}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_not_taken_for_one() {
        assert!(read(&[]).is_err());
        assert!(read(&[0; 64]).is_err(), "an error of zero is no route");
        let mut route = vec![0; HEADER + ROUTE];
        route[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        for (kind, here) in [(libc::RTN_UNICAST, false), (libc::RTN_LOCAL, true), (libc::RTN_BROADCAST, true)]
        {
            route[KIND] = kind;
            assert_eq!(read(&route).ok(), Some(here));
        }
        assert!(read(&route[..KIND]).is_err());
    }
}
