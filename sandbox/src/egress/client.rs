//! One connection of the agent's, from its first byte to its last.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::destination::Host;
use super::event::{Event, How, Reason};
use super::proxy::{Behind, Shared};
use super::relay::{Until, Way, relay, reset};
use super::request::{self, ESTABLISHED, LARGEST_HEAD, Refusal, Request, Status, Target};
use super::wait::{Cut, Stop};

/// A client on the same machine has said what it wants by then.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// For all addresses of a host together.
const CONNECT_DEADLINE: Duration = Duration::from_secs(20);
/// How many of a host's addresses are tried.
const MOST_ADDRESSES: usize = 8;
/// How long a client may take to hear our own last words.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves a connection, and writes down what became of it.
pub(super) fn serve(shared: &Shared, client: TcpStream, behind: Behind, mut event: Event) {
    let _ = sockopt::set_tcp_nodelay(&client, true);
    match behind {
        Behind::Proxy => ask(shared, &client, &mut event),
        Behind::Address(address) => forward(shared, &client, address, &mut event),
    }
    shared.log.record(event);
}

/// Connects to the same address outside.
fn forward(shared: &Shared, client: &TcpStream, address: SocketAddr, event: &mut Event) {
    (event.how, event.host, event.port) = (How::Forward, address.ip().to_string(), address.port());
    event.allowed = true;
    match connect(&[address.ip()], address.port(), &shared.stop) {
        Ok((host, address)) => {
            reached(event, address);
            let ways = (Way::whole(client, &host), Way::whole(&host, client));
            // However it ended, it is over, and was counted.
            let _ = converse(shared, ways, Until::BothEnd, event);
        }
        Err(cut) => {
            event.reason = match cut {
                Cut::Stopped => Reason::Ended,
                Cut::TooLate => Reason::TooSlow,
                Cut::Broken => Reason::Unreachable,
            };
            reset(client);
        }
    }
}

/// What is refused, and how the client and the log are told.
struct Refused {
    status: Status,
    reason: Reason,
    text: String,
}

/// Why nothing more comes of a connection.
enum Over {
    Refused(Refused),
    /// There is nobody left to tell.
    Gone,
}

impl From<Cut> for Over {
    fn from(_: Cut) -> Self {
        Self::Gone
    }
}

/// Hears what the client wants, and does it or says why not.
fn ask(shared: &Shared, client: &TcpStream, event: &mut Event) {
    match hear(client, &shared.stop).and_then(|(head, rest)| answer(shared, client, &head, rest, event)) {
        Ok(()) => farewell(client, &shared.stop),
        Err(Over::Refused(Refused { status, reason, text })) => {
            event.reason = reason;
            let deadline = Some(Instant::now() + FAREWELL);
            let _ = shared.stop.write_all(client, &request::answer(status, &text), deadline);
            farewell(client, &shared.stop);
        }
        Err(Over::Gone) => {}
    }
}

/// Reads a whole head, and what came after it.
fn hear(client: &TcpStream, stop: &Stop) -> Result<(Vec<u8>, Vec<u8>), Over> {
    let refused =
        |status, reason, text: &str| Over::Refused(Refused { status, reason, text: text.to_owned() });
    let deadline = Instant::now() + HEAD_DEADLINE;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stop.read(client, &mut piece, Some(deadline)) {
            Ok(0) if bytes.is_empty() => return Err(Over::Gone),
            Ok(0) => {
                return Err(refused(Status::BadRequest, Reason::Malformed, "the request is not complete"));
            }
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(Cut::TooLate) => {
                return Err(refused(Status::TooSlow, Reason::TooSlow, "the request took too long"));
            }
            Err(cut) => return Err(cut.into()),
        }
        match request::head_length(&bytes) {
            Some(length) if length <= LARGEST_HEAD => {
                let rest = bytes.split_off(length);
                return Ok((bytes, rest));
            }
            None if bytes.len() <= LARGEST_HEAD => {}
            _ => return Err(refused(Status::TooLarge, Reason::Malformed, "the request's head is too large")),
        }
    }
}

/// Does what is asked, if the list has it. `rest` is what came after the head.
fn answer(
    shared: &Shared,
    client: &TcpStream,
    head: &[u8],
    rest: Vec<u8>,
    event: &mut Event,
) -> Result<(), Over> {
    let malformed = |status, why: &str| {
        Over::Refused(Refused { status, reason: Reason::Malformed, text: why.to_owned() })
    };
    let request = request::parse(head).map_err(|Refusal { status, why, target }| {
        if let Some(target) = target {
            (event.how, event.host, event.port) = (How::Http, target.shown, target.port);
        }
        malformed(status, why)
    })?;
    let (how, target) = match &request {
        Request::Tunnel(target) => (How::Connect, target.clone()),
        Request::Plain { target, .. } => (How::Http, target.clone()),
    };
    (event.how, event.host, event.port) = (how, target.shown.clone(), target.port);
    match request {
        Request::Tunnel(_) => {
            let host = reach(shared, &target, event)?;
            let deadline = Some(Instant::now() + FAREWELL);
            shared.stop.write_all(client, ESTABLISHED, deadline)?;
            shared.stop.write_all(&host, &rest, deadline)?;
            event.sent = rest.len() as u64;
            let ways = (Way::whole(client, &host), Way::whole(&host, client));
            Ok(converse(shared, ways, Until::BothEnd, event)?)
        }
        Request::Plain { mut head, mut body, .. } => {
            // Before anybody is connected to: a host is not to hear the beginning of something malformed.
            body.pass(&rest, &mut head)
                .map_err(|_| malformed(Status::BadRequest, "the request's body is malformed"))?;
            let host = reach(shared, &target, event)?;
            // What the client sends after its request is not read.
            let ways = (Way::body(client, &host, head, body), Way::whole(&host, client));
            Ok(converse(shared, ways, Until::Answered, event)?)
        }
    }
}

/// Connects to who is asked for. The list is asked first: of a name that is not on it, nobody hears.
fn reach(shared: &Shared, target: &Target, event: &mut Event) -> Result<TcpStream, Over> {
    let refused = |status, reason: Reason| {
        let text = format!("{}:{}: {}", target.shown, target.port, reason.what());
        Over::Refused(Refused { status, reason, text })
    };
    let unanswered = |cut: Cut| match cut {
        Cut::Stopped => Over::Gone,
        Cut::TooLate => refused(Status::GatewayTimeout, Reason::TooSlow),
        Cut::Broken => refused(Status::BadGateway, Reason::Unreachable),
    };
    let found = target.host.as_ref().and_then(|host| shared.list.find(host, target.port));
    let index = found.ok_or_else(|| refused(Status::Forbidden, Reason::NotListed))?;
    let addresses = match &shared.list.destinations()[index].host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let looked_up = match &shared.lookups {
                Some(lookups) => lookups.addresses(index, name, &shared.stop),
                None => Ok(Vec::new()),
            };
            let all = looked_up.map_err(|cut| {
                event.allowed = true;
                unanswered(cut)
            })?;
            let meant: Vec<IpAddr> =
                all.iter().copied().filter(|address| shared.list.lets(*address, target.port)).collect();
            if meant.is_empty() && !all.is_empty() {
                return Err(refused(Status::Forbidden, Reason::PrivateAddress));
            }
            meant
        }
    };
    event.allowed = true;
    if addresses.is_empty() {
        return Err(refused(Status::BadGateway, Reason::UnknownName));
    }
    let (host, address) = connect(&addresses, target.port, &shared.stop).map_err(unanswered)?;
    reached(event, address);
    Ok(host)
}

fn reached(event: &mut Event, address: IpAddr) {
    event.reason = Reason::Listed;
    event.address = Some(address);
}

/// Connects to the first address that answers. They share the time there is, so that one that is silent does
/// not take it all.
fn connect(addresses: &[IpAddr], port: u16, stop: &Stop) -> Result<(TcpStream, IpAddr), Cut> {
    let addresses = &addresses[..addresses.len().min(MOST_ADDRESSES)];
    let end = Instant::now() + CONNECT_DEADLINE;
    let mut last = Cut::TooLate;
    for (index, address) in addresses.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let share = left / (addresses.len() - index) as u32;
        match connect_to(SocketAddr::new(*address, port), stop, Instant::now() + share) {
            Err(Cut::Stopped) => return Err(Cut::Stopped),
            Err(cut) => last = cut,
            Ok(stream) => return Ok((stream, *address)),
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, stop: &Stop, deadline: Instant) -> Result<TcpStream, Cut> {
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
    shared: &Shared,
    (mut up, mut down): (Way<'_>, Way<'_>),
    until: Until,
    event: &mut Event,
) -> Result<(), Cut> {
    let carried = relay(&mut up, &mut down, until, &shared.stop);
    event.sent += up.moved();
    event.received += down.moved();
    carried
}

/// Lets the client read to the end. A connection that is closed while something of the client's is unread is
/// reset, and a reset may overtake what was said last.
fn farewell(client: &TcpStream, stop: &Stop) {
    if client.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let deadline = Some(Instant::now() + FAREWELL);
    let mut unread = [0; 4096];
    while let Ok(1..) = stop.read(client, &mut unread, deadline) {}
}
