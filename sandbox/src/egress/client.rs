//! One connection of the agent's, from its first byte to its last.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::destination::DestinationHost;
use super::event::{ConnectionEvent, ConnectionKind, ConnectionReason};
use super::proxy::{ListenerTarget, ProxyContext};
use super::relay::{RelayDirection, RelayEnd, relay, reset};
use super::request::{
    self, ESTABLISHED, LARGEST_HEAD, ProxyRequest, RequestRefusal, RequestTarget, ResponseStatus,
};
use super::wait::{StopSignal, WaitError};

/// A client on the same machine has said what it wants by then.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// For all addresses of a host together.
const CONNECT_DEADLINE: Duration = Duration::from_secs(20);
/// How many of a host's addresses are tried.
const MOST_ADDRESSES: usize = 8;
/// How long a client may take to hear our own last words.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves a connection, and writes down how it ended.
pub(super) fn serve(
    shared: &ProxyContext,
    client: TcpStream,
    behind: ListenerTarget,
    mut event: ConnectionEvent,
) {
    let _ = sockopt::set_tcp_nodelay(&client, true);
    match behind {
        ListenerTarget::Proxy => ask(shared, &client, &mut event),
        ListenerTarget::Address(address) => forward(shared, &client, address, &mut event),
    }
    shared.log.record(event);
}

/// Connects to the same address outside.
fn forward(shared: &ProxyContext, client: &TcpStream, address: SocketAddr, event: &mut ConnectionEvent) {
    (event.how, event.host, event.port) = (ConnectionKind::Forward, address.ip().to_string(), address.port());
    event.allowed = true;
    match connect(&[address.ip()], address.port(), &shared.stop) {
        Ok((host, address)) => {
            reached(event, address);
            let ways = (RelayDirection::tunnel(client, &host), RelayDirection::tunnel(&host, client));
            // However it ended, it is over, and was counted.
            let _ = converse(shared, ways, RelayEnd::BothEnd, event);
        }
        Err(cut) => {
            event.reason = match cut {
                WaitError::Stopped => ConnectionReason::Ended,
                WaitError::TooLate => ConnectionReason::TooSlow,
                WaitError::Broken => ConnectionReason::Unreachable,
            };
            reset(client);
        }
    }
}

/// What is refused, and how the client and the log are told.
struct ConnectionRefusal {
    status: ResponseStatus,
    reason: ConnectionReason,
    text: String,
}

/// Why a connection ends.
enum ConnectionEnd {
    Refused(ConnectionRefusal),
    /// No client is left to tell.
    Gone,
}

impl From<WaitError> for ConnectionEnd {
    fn from(_: WaitError) -> Self {
        Self::Gone
    }
}

/// Hears what the client wants, and does it or says why not.
fn ask(shared: &ProxyContext, client: &TcpStream, event: &mut ConnectionEvent) {
    match hear(client, &shared.stop).and_then(|(head, rest)| answer(shared, client, &head, rest, event)) {
        Ok(()) => farewell(client, &shared.stop),
        Err(ConnectionEnd::Refused(ConnectionRefusal { status, reason, text })) => {
            event.reason = reason;
            let deadline = Some(Instant::now() + FAREWELL);
            let _ = shared.stop.write_all(client, &request::answer(status, &text), deadline);
            farewell(client, &shared.stop);
        }
        Err(ConnectionEnd::Gone) => {}
    }
}

/// Reads a whole head, and what came after it.
fn hear(client: &TcpStream, stop: &StopSignal) -> Result<(Vec<u8>, Vec<u8>), ConnectionEnd> {
    let refused = |status, reason, text: &str| {
        ConnectionEnd::Refused(ConnectionRefusal { status, reason, text: text.to_owned() })
    };
    let deadline = Instant::now() + HEAD_DEADLINE;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stop.read(client, &mut piece, Some(deadline)) {
            Ok(0) if bytes.is_empty() => return Err(ConnectionEnd::Gone),
            Ok(0) => {
                return Err(refused(
                    ResponseStatus::BadRequest,
                    ConnectionReason::Malformed,
                    "the request is not complete",
                ));
            }
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(WaitError::TooLate) => {
                return Err(refused(
                    ResponseStatus::TooSlow,
                    ConnectionReason::TooSlow,
                    "the request took too long",
                ));
            }
            Err(cut) => return Err(cut.into()),
        }
        match request::head_length(&bytes) {
            Some(length) if length <= LARGEST_HEAD => {
                let rest = bytes.split_off(length);
                return Ok((bytes, rest));
            }
            None if bytes.len() <= LARGEST_HEAD => {}
            _ => {
                return Err(refused(
                    ResponseStatus::TooLarge,
                    ConnectionReason::Malformed,
                    "the request's head is too large",
                ));
            }
        }
    }
}

/// Does what is asked, if the list has it. `rest` is what came after the head.
fn answer(
    shared: &ProxyContext,
    client: &TcpStream,
    head: &[u8],
    rest: Vec<u8>,
    event: &mut ConnectionEvent,
) -> Result<(), ConnectionEnd> {
    let malformed = |status, why: &str| {
        ConnectionEnd::Refused(ConnectionRefusal {
            status,
            reason: ConnectionReason::Malformed,
            text: why.to_owned(),
        })
    };
    let request = request::parse(head).map_err(|RequestRefusal { status, why, target }| {
        if let Some(target) = target {
            (event.how, event.host, event.port) = (ConnectionKind::Http, target.shown, target.port);
        }
        malformed(status, why)
    })?;
    let (how, target) = match &request {
        ProxyRequest::Tunnel(target) => (ConnectionKind::Connect, target.clone()),
        ProxyRequest::Plain { target, .. } => (ConnectionKind::Http, target.clone()),
    };
    (event.how, event.host, event.port) = (how, target.shown.clone(), target.port);
    match request {
        ProxyRequest::Tunnel(_) => {
            let host = reach(shared, &target, event)?;
            let deadline = Some(Instant::now() + FAREWELL);
            shared.stop.write_all(client, ESTABLISHED, deadline)?;
            shared.stop.write_all(&host, &rest, deadline)?;
            event.sent = rest.len() as u64;
            let ways = (RelayDirection::tunnel(client, &host), RelayDirection::tunnel(&host, client));
            Ok(converse(shared, ways, RelayEnd::BothEnd, event)?)
        }
        ProxyRequest::Plain { mut head, mut body, .. } => {
            // Before we connect to a host: it is not to receive the beginning of something malformed.
            body.pass(&rest, &mut head)
                .map_err(|_| malformed(ResponseStatus::BadRequest, "the request's body is malformed"))?;
            let host = reach(shared, &target, event)?;
            // What the client sends after its request is not read.
            let ways =
                (RelayDirection::body(client, &host, head, body), RelayDirection::tunnel(&host, client));
            Ok(converse(shared, ways, RelayEnd::Answered, event)?)
        }
    }
}

/// Connects to the requested host. It asks the list first: a name that is not on it is not looked up.
fn reach(
    shared: &ProxyContext,
    target: &RequestTarget,
    event: &mut ConnectionEvent,
) -> Result<TcpStream, ConnectionEnd> {
    let refused = |status, reason: ConnectionReason| {
        let text = format!("{}:{}: {}", target.shown, target.port, reason.what());
        ConnectionEnd::Refused(ConnectionRefusal { status, reason, text })
    };
    let unanswered = |cut: WaitError| match cut {
        WaitError::Stopped => ConnectionEnd::Gone,
        WaitError::TooLate => refused(ResponseStatus::GatewayTimeout, ConnectionReason::TooSlow),
        WaitError::Broken => refused(ResponseStatus::BadGateway, ConnectionReason::Unreachable),
    };
    let found = target.host.as_ref().and_then(|host| shared.list.find(host, target.port));
    let index = found.ok_or_else(|| refused(ResponseStatus::Forbidden, ConnectionReason::NotListed))?;
    let addresses = match &shared.list.destinations()[index].host {
        DestinationHost::Address(address) => vec![*address],
        DestinationHost::Name(name) => {
            let looked_up = match &shared.lookups {
                Some(lookups) => lookups.addresses(index, name, &shared.stop),
                None => Ok(Vec::new()),
            };
            let all = looked_up.map_err(|cut| {
                event.allowed = true;
                unanswered(cut)
            })?;
            let meant: Vec<IpAddr> =
                all.iter().copied().filter(|address| shared.list.allows(*address, target.port)).collect();
            if meant.is_empty() && !all.is_empty() {
                return Err(refused(ResponseStatus::Forbidden, ConnectionReason::PrivateAddress));
            }
            meant
        }
    };
    event.allowed = true;
    if addresses.is_empty() {
        return Err(refused(ResponseStatus::BadGateway, ConnectionReason::UnknownName));
    }
    let (host, address) = connect(&addresses, target.port, &shared.stop).map_err(unanswered)?;
    reached(event, address);
    Ok(host)
}

fn reached(event: &mut ConnectionEvent, address: IpAddr) {
    event.reason = ConnectionReason::Listed;
    event.address = Some(address);
}

/// Connects to the first address that answers. They share the time there is, so that one that is silent does
/// not take it all.
fn connect(addresses: &[IpAddr], port: u16, stop: &StopSignal) -> Result<(TcpStream, IpAddr), WaitError> {
    let addresses = &addresses[..addresses.len().min(MOST_ADDRESSES)];
    let end = Instant::now() + CONNECT_DEADLINE;
    let mut last = WaitError::TooLate;
    for (index, address) in addresses.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let share = left / (addresses.len() - index) as u32;
        match connect_to(SocketAddr::new(*address, port), stop, Instant::now() + share) {
            Err(WaitError::Stopped) => return Err(WaitError::Stopped),
            Err(cut) => last = cut,
            Ok(stream) => return Ok((stream, *address)),
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, stop: &StopSignal, deadline: Instant) -> Result<TcpStream, WaitError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A host that is gone without a word is noticed, if late.
    sockopt::set_socket_keepalive(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            stop.wait_for(&socket, PollFlags::OUT, Some(deadline))?;
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(TcpStream::from(socket))
}

/// Carries both ways, and counts.
fn converse(
    shared: &ProxyContext,
    (mut up, mut down): (RelayDirection<'_>, RelayDirection<'_>),
    until: RelayEnd,
    event: &mut ConnectionEvent,
) -> Result<(), WaitError> {
    let carried = relay(&mut up, &mut down, until, &shared.stop);
    event.sent += up.moved();
    event.received += down.moved();
    carried
}

/// Lets the client read to the end. A connection that is closed while something of the client's is unread is
/// reset, and a reset may overtake what was said last.
fn farewell(client: &TcpStream, stop: &StopSignal) {
    if client.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let deadline = Some(Instant::now() + FAREWELL);
    let mut unread = [0; 4096];
    while let Ok(1..) = stop.read(client, &mut unread, deadline) {}
}
