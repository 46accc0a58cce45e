//! What was decided, for the reader of the report.
//!
//! An agent can ask for as many hosts as it likes, so only so many decisions are kept, and connections that were
//! made are counted apart from those that were not: a flood of refusals can't hide one that got through.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// How many events of each kind are kept.
const KEPT: usize = 1000;

/// One connection of the agent's, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionEvent {
    /// Milliseconds from the start of the run.
    pub at_ms: u64,
    pub how: ConnectionKind,
    /// As the agent named it, made fit to be shown; empty where it was not understood.
    pub host: String,
    pub port: u16,
    /// Whether the list lets it through; it may still lead to no host.
    pub allowed: bool,
    pub reason: ConnectionReason,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// Bytes from the agent, and to it.
    pub sent: u64,
    pub received: u64,
    /// The place among all of a run.
    #[serde(skip)]
    order: u64,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionKind {
    /// A tunnel.
    Connect,
    /// One plain request.
    Http,
    /// An address that is the same inside and outside.
    Forward,
    /// Nothing that was understood.
    Unknown,
}

/// Why it was allowed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionReason {
    Listed,
    NotListed,
    /// It is listed, and leads to addresses of this machine or the network it stands in.
    PrivateAddress,
    /// It is listed, and has no address.
    UnknownName,
    /// It is listed, and does not answer.
    Unreachable,
    TooSlow,
    Malformed,
    /// The client or the run ended before it was decided.
    Ended,
}

impl ConnectionReason {
    /// In a few words.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::NotListed => "not on the list",
            Self::PrivateAddress => {
                "its name leads to private addresses or this machine's own, which must be listed as such"
            }
            Self::UnknownName => "its name has no address",
            Self::Unreachable => "it can't be reached",
            Self::TooSlow => "it took too long",
            Self::Malformed => "the request was malformed",
            Self::Ended => "it ended before it was decided",
        }
    }
}

/// Everything that is known of a run's connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NetworkTraffic {
    pub events: Vec<ConnectionEvent>,
    /// How many events there was no room for.
    pub left_out: u64,
}

/// Events as they come in, from many threads.
#[derive(Debug)]
pub(crate) struct ConnectionLog {
    started: Instant,
    begun: AtomicU64,
    kept: Mutex<RecordedTraffic>,
}

#[derive(Debug, Default)]
struct RecordedTraffic {
    traffic: NetworkTraffic,
    /// How many of them were connected.
    made: usize,
}

impl ConnectionLog {
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, begun: AtomicU64::new(0), kept: Mutex::default() }
    }

    /// A connection that was just accepted, and about which nothing is known.
    pub(crate) fn begin(&self) -> ConnectionEvent {
        ConnectionEvent {
            at_ms: self.started.elapsed().as_millis() as u64,
            how: ConnectionKind::Unknown,
            host: String::new(),
            port: 0,
            allowed: false,
            reason: ConnectionReason::Ended,
            address: None,
            sent: 0,
            received: 0,
            order: self.begun.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn record(&self, event: ConnectionEvent) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let made = event.address.is_some();
        let of_its_kind = if made { kept.made } else { kept.traffic.events.len() - kept.made };
        if of_its_kind < KEPT {
            kept.made += usize::from(made);
            kept.traffic.events.push(event);
        } else {
            kept.traffic.left_out += 1;
        }
    }

    /// All of it, in the order in which it began.
    pub(crate) fn take(&self) -> NetworkTraffic {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut traffic = std::mem::take(&mut *kept).traffic;
        traffic.events.sort_by_key(|event| event.order);
        traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_hides_nothing_that_got_through() {
        let log = ConnectionLog::new(Instant::now());
        for _ in 0..KEPT + 7 {
            log.record(log.begin());
        }
        let address = Some(IpAddr::from([1, 1, 1, 1]));
        log.record(ConnectionEvent {
            allowed: true,
            reason: ConnectionReason::Listed,
            address,
            ..log.begin()
        });
        let traffic = log.take();
        assert_eq!((traffic.events.len(), traffic.left_out), (KEPT + 1, 7));
        assert!(traffic.events.iter().any(|event| event.allowed));
    }
}
