//! The inner ends of the ways out: sockets that listen in the sandbox's own network namespace.
//!
//! They are made by the sandbox's first process and handed to the supervisor, which accepts from them. The
//! agent never holds them.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::List;

/// A socket that listens inside, held outside.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) socket: OwnedFd,
}

/// As many as the kernel allows wait for their turn.
const BACKLOG: i32 = 4096;

/// Listens at every address of a list, in the current network namespace.
pub(crate) fn listen(list: &List) -> Result<Vec<Listener>, (SocketAddr, io::Error)> {
    let all = std::iter::once(list.proxy()).chain(list.forwarded());
    all.map(|address| {
        let socket = listen_at(address).map_err(|error| (address, error))?;
        Ok(Listener { address, socket })
    })
    .collect()
}

fn listen_at(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl List {
    /// Every address that is listened at inside.
    pub(crate) fn listeners(&self) -> BTreeSet<SocketAddr> {
        std::iter::once(self.proxy()).chain(self.forwarded()).collect()
    }
}

/// What listens in a process's network namespace, as the kernel lists it.
pub(crate) fn listening(pid: i32) -> io::Result<BTreeSet<SocketAddr>> {
    let mut found = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        match std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) {
            Ok(text) => found.extend(text.lines().filter_map(parse_listening)),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table == "tcp6" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// One line of /proc/net/tcp, if it is of a socket that listens. Addresses are words of the machine's own byte
/// order in hexadecimal, ports are numbers.
fn parse_listening(line: &str) -> Option<SocketAddr> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<u32> = (0..address.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(address.get(at..at + 8)?, 16).ok())
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    (state == LISTENS).then(|| SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_that_listens_is_found_and_one_that_is_connected_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("connected");
        let found = listening(std::process::id() as i32).expect("listed");
        assert!(found.contains(&address), "{found:?}");
        assert!(!found.contains(&client.local_addr().expect("an address")));
        assert_eq!(parse_listening("  sl  local_address rem_address   st tx_queue rx_queue"), None);
        assert_eq!(parse_listening("0: zz"), None);
    }
}
