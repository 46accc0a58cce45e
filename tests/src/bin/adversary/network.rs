//! Talking to anybody.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::files::MARK;
use crate::sys;

const GROUP: &str = "network";
const NONE: &str = "TCP, UDP and DNS with `network = \"none\"`";
const UNIX: &str = "abstract and path unix sockets: Docker's, D-Bus, ssh-agent";
const PROXY: &str =
    "through the proxy: a host not on the list, an IP literal, another port, a Host header that differs";
/// Long enough for anything on this machine, short enough for a silent drop not to stall a suite.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "tcp", &["host", "port"], NONE, tcp),
    attack(GROUP, "tcp6", &["host", "port"], NONE, tcp),
    attack(GROUP, "udp", &["host", "port", "[expect-echo]"], NONE, udp),
    attack(GROUP, "udp6", &["host", "port", "[expect-echo]"], NONE, udp),
    attack(GROUP, "dns", &["server", "port", "name"], NONE, dns),
    attack(GROUP, "resolve", &["name"], NONE, resolve),
    attack(GROUP, "icmp", &["host"], NONE, icmp).needs_root(),
    attack(GROUP, "listen-visible", &["port", "millis"], NONE, listen_visible),
    attack(GROUP, "loopback-inside", &[], "a server and its client inside must work", loopback_inside),
    attack(
        GROUP,
        "socketpair-inside",
        &[],
        "pipes between an agent's own processes must work",
        socketpair_inside,
    ),
    attack(GROUP, "unix-path", &["path"], UNIX, unix_path),
    attack(GROUP, "unix-path-datagram", &["path"], UNIX, unix_path_datagram),
    attack(GROUP, "unix-abstract", &["name"], UNIX, unix_abstract),
    attack(GROUP, "unix-abstract-datagram", &["name"], UNIX, unix_abstract_datagram),
    attack(GROUP, "proxy-connect", &["proxy", "target"], PROXY, proxy_connect),
    attack(GROUP, "proxy-get", &["proxy", "url", "host"], PROXY, proxy_get),
];

/// Addresses only: a name would need a look-up, which is an attack of its own.
fn target(args: &Args) -> Result<SocketAddr, Failure> {
    let host: IpAddr =
        args.text(0)?.parse().map_err(|_| Failure::Mistake("the host is not an address".to_owned()))?;
    Ok(SocketAddr::new(host, args.number(1)?))
}

fn tcp(args: &Args) -> Attempt {
    let mut stream = TcpStream::connect_timeout(&target(args)?, PATIENCE).step("connect")?;
    stream.write_all(MARK).step("send")?;
    Ok("connected".to_owned())
}

/// That a datagram was sent does not mean that it arrives; an echo does.
fn udp(args: &Args) -> Attempt {
    let target = target(args)?;
    let echo = match args.optional(2)? {
        Some("expect-echo") => true,
        None => false,
        Some(other) => return Err(Failure::Mistake(format!("{other:?} is not `expect-echo`"))),
    };
    let socket = any_port(&target)?;
    socket.send_to(MARK, target).step("send")?;
    if echo {
        let mut answer = [0; 1500];
        receive(&socket, &mut answer)?;
    }
    Ok(if echo { "sent, and answered" } else { "sent" }.to_owned())
}

fn any_port(target: &SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind(if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).step("bind")?;
    socket.set_read_timeout(Some(PATIENCE)).step("set a timeout")?;
    Ok(socket)
}

fn receive(socket: &UdpSocket, answer: &mut [u8]) -> Result<usize, Failure> {
    match socket.recv(answer) {
        Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => {
            Err(Failure::Held("sent, and never answered".to_owned()))
        }
        other => other.step("receive"),
    }
}

/// A question of type A, made by hand: no resolver library or configuration of the sandbox is in the way.
fn dns(args: &Args) -> Attempt {
    let target = target(args)?;
    let mut question = vec![0xad, 0x5e, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in args.text(2)?.split('.').filter(|label| !label.is_empty()) {
        question
            .push(u8::try_from(label.len()).map_err(|_| Failure::Mistake("a label is too long".to_owned()))?);
        question.extend_from_slice(label.as_bytes());
    }
    question.extend_from_slice(&[0, 0, 1, 0, 1]);
    let socket = any_port(&target)?;
    socket.send_to(&question, target).step("send")?;
    let mut answer = [0; 1500];
    let length = receive(&socket, &mut answer)?;
    if length < 12 || answer[..2] != question[..2] {
        return Err(Failure::Held("the answer belongs to no question".to_owned()));
    }
    Ok(format!("an answer of {length} bytes"))
}

/// As programs do it, through the system's resolver.
fn resolve(args: &Args) -> Attempt {
    match (args.text(0)?, 0).to_socket_addrs() {
        Ok(mut addresses) => match addresses.next() {
            Some(address) => Ok(address.ip().to_string()),
            None => Err(Failure::Held("no address".to_owned())),
        },
        Err(error) => Err(Failure::Held(error.to_string())),
    }
}

/// An echo request, through a ping socket or, where those are not allowed, a raw one.
fn icmp(args: &Args) -> Attempt {
    let host: std::net::Ipv4Addr =
        args.text(0)?.parse().map_err(|_| Failure::Mistake("the host is not an IPv4 address".to_owned()))?;
    let fd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)
        .or_else(|_| sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
        .step("socket")?;
    // What `std` calls a UDP socket sends and receives on any datagram socket.
    let socket = UdpSocket::from(fd);
    socket.set_read_timeout(Some(PATIENCE)).step("set a timeout")?;
    // Type 8, code 0, checksum, identifier, sequence number: the sum of all words is 0xffff.
    socket.send_to(&[8, 0, 0xf7, 0xfe, 0, 0, 0, 1], (host, 0)).step("send")?;
    // A raw socket sees the request too when it goes to this machine, and an IP header before each.
    for _ in 0..4 {
        let mut answer = [0; 1500];
        let length = receive(&socket, &mut answer)?;
        let header = if answer[0] == 0x45 { 20 } else { 0 };
        if length > header && answer[header] == 0 {
            return Ok(format!("an echo reply of {} bytes", length - header));
        }
    }
    Err(Failure::Held("other messages, and no reply".to_owned()))
}

/// Waits for somebody from outside to come in. Says `ready` and the port on stderr first.
fn listen_visible(args: &Args) -> Attempt {
    let listener = TcpListener::bind(("0.0.0.0", args.number(0)?)).step("bind")?;
    let port = listener.local_addr().step("ask for the port")?.port();
    let end = Instant::now() + Duration::from_millis(args.number(1)?);
    listener.set_nonblocking(true).step("set nonblocking")?;
    let _ = writeln!(std::io::stderr(), "ready {port}");
    loop {
        match listener.accept() {
            Ok((_, from)) => return Ok(format!("{from} came in")),
            Err(error) if error.raw_os_error() != Some(Errno::EAGAIN as i32) => {
                return Err(error).step("accept");
            }
            Err(_) if Instant::now() >= end => return Err(Failure::Held("nobody came".to_owned())),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn loopback_inside(_: &Args) -> Attempt {
    let listener = TcpListener::bind(("127.0.0.1", 0)).step("bind")?;
    let address = listener.local_addr().step("ask for the port")?;
    let mut client = TcpStream::connect_timeout(&address, PATIENCE).step("connect")?;
    let (mut server, _) = listener.accept().step("accept")?;
    client.write_all(MARK).step("send")?;
    let mut received = vec![0; MARK.len()];
    server.read_exact(&mut received).step("receive")?;
    Ok("a server and a client".to_owned())
}

fn socketpair_inside(_: &Args) -> Attempt {
    let (mut one, mut other) = UnixStream::pair().step("socketpair")?;
    one.write_all(MARK).step("send")?;
    other.read_exact(&mut vec![0; MARK.len()]).step("receive")?;
    Ok("a pair".to_owned())
}

fn unix_path(args: &Args) -> Attempt {
    let mut stream = UnixStream::connect(args.path(0)).step("connect")?;
    stream.write_all(MARK).step("send")?;
    Ok("connected".to_owned())
}

fn unix_path_datagram(args: &Args) -> Attempt {
    let socket = UnixDatagram::unbound().step("socket")?;
    socket.send_to(MARK, args.path(0)).step("send")?;
    Ok("sent".to_owned())
}

fn unix_abstract(args: &Args) -> Attempt {
    let address = UnixAddr::from_abstract_name(args.text(0)?).step("make the address")?;
    let mut stream = UnixStream::connect_addr(&address).step("connect")?;
    stream.write_all(MARK).step("send")?;
    Ok("connected".to_owned())
}

fn unix_abstract_datagram(args: &Args) -> Attempt {
    let address = UnixAddr::from_abstract_name(args.text(0)?).step("make the address")?;
    let socket = UnixDatagram::unbound().step("socket")?;
    socket.send_to_addr(MARK, &address).step("send")?;
    Ok("sent".to_owned())
}

/// `proxy` is an address and a port; `target` anything that is to stand behind `CONNECT`.
fn proxy_connect(args: &Args) -> Attempt {
    let target = args.text(1)?;
    ask_proxy(args, &format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"))
}

/// A plain request whose line names one host and whose header another.
fn proxy_get(args: &Args) -> Attempt {
    let (url, host) = (args.text(1)?, args.text(2)?);
    ask_proxy(args, &format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn ask_proxy(args: &Args, request: &str) -> Attempt {
    let proxy: SocketAddr =
        args.text(0)?.parse().map_err(|_| Failure::Mistake("the proxy is not ADDRESS:PORT".to_owned()))?;
    let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE).step("connect to the proxy")?;
    stream.set_read_timeout(Some(PATIENCE)).step("set a timeout")?;
    stream.write_all(request.as_bytes()).step("ask")?;
    let mut answer = Vec::new();
    let mut buffer = [0; 512];
    while !answer.contains(&b'\n') && answer.len() < 4096 {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
            Err(error) => return Err(error).step("read the answer"),
        }
    }
    let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(line),
        _ => Err(Failure::Held(format!("answered {line:?}"))),
    }
}
