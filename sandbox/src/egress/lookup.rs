//! From a name on the list to its addresses.
//!
//! The host's own `getent` looks names up, so that it asks all that the operator's machine is set up with (files,
//! DNS, a directory service), as any other program there would; this program is linked
//! statically and can't (decision 008). It always looks up the name on the list, never the agent's
//! spelling of it.

use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::destination::HostName;
use super::wait::{StopSignal, WaitError};

/// Where the program may be. The caller's PATH is not asked.
const PLACES: &[&str] = &["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];
const DEADLINE: Duration = Duration::from_secs(10);
/// How long an answer is good for, and how long it is not asked again where there was none.
const GOOD_FOR: Duration = Duration::from_secs(30);
const BAD_FOR: Duration = Duration::from_secs(2);
/// More than this is no answer for one name.
const LARGEST_ANSWER: u64 = 64 * 1024;

/// The program that looks up names, if it is there.
pub(crate) fn find_getent() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// What is known of the names of a list, by their place in it.
#[derive(Debug)]
pub(crate) struct NameLookups {
    program: PathBuf,
    /// Held while a name is looked up: another request for the same name waits for the same answer.
    known: Vec<Mutex<Option<CachedLookup>>>,
}

#[derive(Debug)]
struct CachedLookup {
    /// None of them: there is no such name.
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl NameLookups {
    pub(crate) fn new(program: PathBuf, names: usize) -> Self {
        Self { program, known: (0..names).map(|_| Mutex::new(None)).collect() }
    }

    /// All addresses of a name; none if it has none.
    pub(crate) fn addresses(
        &self,
        index: usize,
        name: &HostName,
        stop: &StopSignal,
    ) -> Result<Vec<IpAddr>, WaitError> {
        let mut known = self.known[index].lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(known) = known.as_ref().filter(|known| now < known.until) {
            return Ok(known.addresses.clone());
        }
        stop.check()?;
        let wait = |output: &ChildStdout| stop.wait_for(output, PollFlags::IN, Some(now + DEADLINE));
        let looked_up = ask(&self.program, name.as_str(), wait);
        let addresses = match looked_up {
            Ok(addresses) => addresses,
            // Not asked again at once, and not waited for again by those who wait already.
            Err(WaitError::TooLate) => {
                *known = Some(CachedLookup { addresses: Vec::new(), until: Instant::now() + BAD_FOR });
                return Err(WaitError::TooLate);
            }
            Err(cut) => return Err(cut),
        };
        let good_for = if addresses.is_empty() { BAD_FOR } else { GOOD_FOR };
        *known = Some(CachedLookup { addresses: addresses.clone(), until: Instant::now() + good_for });
        Ok(addresses)
    }
}

/// The addresses of a name, for a caller in no sandbox; none if it has none.
pub fn look_up(name: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    let program = find_getent()
        .ok_or_else(|| io::Error::other("names can't be looked up: there is no `getent` here"))?;
    ask(&program, name, |output| {
        let left = deadline.saturating_duration_since(Instant::now());
        let within = Timespec::try_from(left).map_err(io::Error::other)?;
        let ready = || poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&within));
        if left.is_zero() || retry_on_intr(ready)? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("looking up {name} took too long")));
        }
        Ok(())
    })
}

/// Runs the program, and reads what it says whenever `ready` comes back.
fn ask<E: From<io::Error>>(
    program: &Path,
    name: &str,
    ready: impl Fn(&ChildStdout) -> Result<(), E>,
) -> Result<Vec<IpAddr>, E> {
    let child = Command::new(program)
        .args(["ahosts", "--", name])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut running = LookupProcess(child);
    let Some(mut output) = running.0.stdout.take() else { return Ok(Vec::new()) };
    let mut answer = Vec::new();
    loop {
        ready(&output)?;
        let mut piece = [0; 4096];
        match output.read(&mut piece)? {
            0 => return Ok(parse(&answer)),
            length => answer.extend_from_slice(&piece[..length]),
        }
        if answer.len() as u64 > LARGEST_ANSWER {
            return Ok(Vec::new());
        }
    }
}

/// A program that does not outlive our interest in it.
#[derive(Debug)]
struct LookupProcess(Child);

impl Drop for LookupProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each address once, in the order of preference in which they come.
fn parse(answer: &[u8]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for line in String::from_utf8_lossy(answer).lines() {
        // An address that names an interface is of no use elsewhere, and is left out.
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
        let answer = b"2606:2800::1 STREAM example.org\n2606:2800::1 DGRAM\n93.184.215.14 STREAM\nfe80::1%2 STREAM\nnonsense\n";
        let expected: [IpAddr; 2] = ["2606:2800::1", "93.184.215.14"].map(|text| text.parse().expect("one"));
        assert_eq!(parse(answer), expected);
        assert!(parse(b"\xff\xfe").is_empty());
    }

    #[test]
    fn the_hosts_own_program_is_asked() {
        let addresses = look_up("localhost", Instant::now() + DEADLINE).expect("an answer");
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }

    #[test]
    fn a_deadline_that_is_over_ends_the_look_up() {
        let error = look_up("localhost", Instant::now()).expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
