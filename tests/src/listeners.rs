//! Listeners on this machine that count what reaches them: the other half of every network denial.
//!
//! "Connection refused" inside a sandbox could mean that the fence held, or that nobody was listening. Each
//! listener here runs in a thread of the test and counts; a test asserts both the denial and the zero. They
//! answer, too, so that the same attack can be shown to arrive without a sandbox.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::processes::{Marker, wait_until};

/// How long a listener sleeps in the kernel before it looks whether it should end.
const GLANCE: Duration = Duration::from_millis(20);

/// How long whoever arrived is listened to.
const HEARING: Duration = Duration::from_secs(1);

/// A thread that counts arrivals until the listener is dropped.
#[derive(Debug)]
pub struct Listener {
    arrived: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    at: At,
}

/// Where a listener is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    Port(SocketAddr),
    Path(PathBuf),
    Abstract(String),
}

impl Listener {
    /// On a free port of 127.0.0.1. Greets with nothing, answers every line with `HTTP/1.1 200 OK`.
    pub fn tcp() -> io::Result<Self> {
        Self::tcp_on(Ipv4Addr::LOCALHOST.into())
    }

    pub fn tcp6() -> io::Result<Self> {
        Self::tcp_on(Ipv6Addr::LOCALHOST.into())
    }

    fn tcp_on(address: IpAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        listener.set_nonblocking(true)?;
        let at = At::Port(listener.local_addr()?);
        Self::start(at, move || {
            listener.accept().map(|(stream, _)| {
                let _ = answer(stream);
            })
        })
    }

    /// On a free port of 127.0.0.1. Sends every datagram back.
    pub fn udp() -> io::Result<Self> {
        Self::udp_on(Ipv4Addr::LOCALHOST.into())
    }

    pub fn udp6() -> io::Result<Self> {
        Self::udp_on(Ipv6Addr::LOCALHOST.into())
    }

    fn udp_on(address: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        let at = At::Port(socket.local_addr()?);
        Self::start(at, move || {
            let mut buffer = [0; 2048];
            let (length, from) = socket.recv_from(&mut buffer)?;
            let _ = socket.send_to(&buffer[..length], from);
            Ok(())
        })
    }

    /// A stream socket with a name in the filesystem, as Docker's.
    pub fn unix(path: &Path) -> io::Result<Self> {
        Self::unix_streams(UnixListener::bind(path)?, At::Path(path.to_owned()))
    }

    /// A stream socket with a name in the network namespace and nowhere else, as the X server's.
    pub fn unix_abstract() -> io::Result<Self> {
        let name = Marker::new().as_str().to_owned();
        Self::unix_streams(
            UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?,
            At::Abstract(name),
        )
    }

    fn unix_streams(listener: UnixListener, at: At) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::start(at, move || {
            let (mut stream, _) = listener.accept()?;
            // Whoever is hung up on before it has spoken takes that for a refusal.
            let _ = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(HEARING)));
            let _ = stream.read(&mut [0; 64]);
            Ok(())
        })
    }

    /// A datagram socket with a name in the filesystem, as the system log's.
    pub fn unix_datagram(path: &Path) -> io::Result<Self> {
        Self::unix_datagrams(UnixDatagram::bind(path)?, At::Path(path.to_owned()))
    }

    pub fn unix_abstract_datagram() -> io::Result<Self> {
        let name = Marker::new().as_str().to_owned();
        Self::unix_datagrams(
            UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(&name)?)?,
            At::Abstract(name),
        )
    }

    fn unix_datagrams(socket: UnixDatagram, at: At) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::start(at, move || socket.recv(&mut [0; 2048]).map(drop))
    }

    fn start(at: At, mut receive: impl FnMut() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (arrived, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (Arc::clone(&arrived), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
            loop {
                // Read before the look at the socket, so that what came before the end is counted.
                let last = stopped.load(Ordering::SeqCst);
                match receive() {
                    Ok(()) => {
                        counter.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(_) if last => return,
                    Err(_) => std::thread::park_timeout(GLANCE),
                }
            }
        })?;
        Ok(Self { arrived, stop, thread: Some(thread), at })
    }

    pub fn at(&self) -> &At {
        &self.at
    }

    /// The port of a TCP or UDP listener.
    pub fn port(&self) -> u16 {
        match &self.at {
            At::Port(address) => address.port(),
            other => panic!("{other:?} is not a port"),
        }
    }

    /// `ADDRESS:PORT`, a path, or an abstract name: what an attack takes as its argument.
    pub fn name(&self) -> String {
        match &self.at {
            At::Port(address) => address.to_string(),
            At::Path(path) => path.display().to_string(),
            At::Abstract(name) => name.clone(),
        }
    }

    /// Connections or datagrams so far.
    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Waits for something to arrive; whether it did.
    pub fn reached_within(&self, deadline: Duration) -> bool {
        wait_until(deadline, || self.arrived() > 0)
    }

    /// Ends the listener and says how much arrived, including what still lay in the socket: after this, zero
    /// means zero.
    pub fn close(mut self) -> usize {
        self.end();
        self.arrived()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

/// Enough of a server for a client to see that it has reached one.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    if stream.read(&mut [0; 1024])? == 0 {
        return Ok(());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_arrives_is_counted_once_and_what_does_not_is_not() {
        let listener = Listener::udp().expect("bound");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.send_to(b"one", listener.name()).expect("sent");
        socket.send_to(b"two", listener.name()).expect("sent");
        assert_eq!(listener.close(), 2);
        assert_eq!(Listener::tcp().expect("bound").close(), 0);
    }

    #[test]
    fn a_unix_listener_is_reached_by_its_path() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listener = Listener::unix(&folder.path().join("socket")).expect("bound");
        UnixStream::connect(listener.name()).expect("connected");
        assert_eq!(listener.close(), 1);
    }
}
