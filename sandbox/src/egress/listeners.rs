//! The inner ends of the ways out: sockets that listen in the sandbox's own network namespace.
//!
//! They are made by the sandbox's first process and handed to the supervisor, which accepts from them. The
//! agent never holds them.

#![allow(clippy::disallowed_methods, reason = "opens /proc")]

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::HostAllowlist;
use crate::sys;

/// A socket that listens inside, held outside.
#[derive(Debug)]
pub(crate) struct EgressListener {
    pub(crate) address: SocketAddr,
    pub(crate) socket: OwnedFd,
}

/// As many as the kernel allows wait for their turn.
const BACKLOG: i32 = 4096;

/// Listens at every address of a list, in the current network namespace.
pub(crate) fn listen(list: &HostAllowlist) -> Result<Vec<EgressListener>, (SocketAddr, io::Error)> {
    let all = std::iter::once(list.proxy()).chain(list.forwarded());
    all.map(|address| {
        let socket = listen_at(address).map_err(|error| (address, error))?;
        Ok(EgressListener { address, socket })
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

impl HostAllowlist {
    /// Every address that is listened at inside.
    pub(crate) fn listeners(&self) -> BTreeSet<SocketAddr> {
        std::iter::once(self.proxy()).chain(self.forwarded()).collect()
    }
}

impl EgressListener {
    /// Where the kernel says that it listens; `None` if it does not.
    pub(crate) fn listens_at(&self) -> io::Result<Option<SocketAddr>> {
        if !rustix::net::sockopt::socket_acceptconn(&self.socket)? {
            return Ok(None);
        }
        Ok(Some(rustix::net::getsockname(&self.socket)?.try_into()?))
    }

    /// The network namespace it is in, as /proc names it.
    pub(crate) fn network(&self) -> io::Result<String> {
        let namespace = sys::network_of(self.socket.as_fd())?;
        Ok(format!("net:[{}]", rustix::fs::fstat(namespace)?.st_ino))
    }

    /// Whether the kernel lists it among the sockets of the network that a process is in. To name a namespace takes rights
    /// over it, which a user has of its own and not of one that an engine made; to be shown its sockets does not.
    pub(crate) fn is_listed_for(&self, pid: i32) -> io::Result<bool> {
        const INODE: usize = 9;
        let own = rustix::fs::fstat(&self.socket)?.st_ino.to_string();
        for table in ["tcp", "tcp6"] {
            let list = std::fs::read_to_string(format!("/proc/{pid}/net/{table}"))?;
            if list.lines().skip(1).any(|line| line.split_whitespace().nth(INODE) == Some(&own)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_where_the_kernel_says_it_is() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = EgressListener { address, socket: listen_at(address).expect("listens") };
        let found = listener.listens_at().expect("told").expect("listens");
        assert_eq!((found.ip(), found.port() > 0), (address.ip(), true));
        let me = std::process::id() as i32;
        assert!(listener.is_listed_for(me).expect("told"));
        // Naming a namespace takes rights over it.
        if rustix::process::geteuid().is_root() {
            let ours = std::fs::read_link("/proc/self/ns/net").expect("a link");
            assert_eq!(listener.network().expect("told"), ours.display().to_string());
        }
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let listener = EgressListener { address, socket: socket.expect("a socket") };
        assert_eq!(listener.listens_at().expect("told"), None);
    }
}
