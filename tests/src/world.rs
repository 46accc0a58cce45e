//! A little world of its own: a machine with private addresses, one of its own in public, and a name server; and behind a
//! wire everybody else, with "public" addresses. Servers count what reaches them.
//!
//! The machine is a network and a mount namespace kept open by one process, everybody else a network namespace of another.
//! `agency` is started in the first, so that its proxy lives there, and servers are bound in either by threads of the
//! test that entered it for a moment.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::CloneFlags;
use tempfile::TempDir;

use crate::processes::wait_until;
use crate::repository::Repository;

/// Addresses that would be somebody's out in the world.
pub const PUBLIC: &str = "45.45.45.1";
pub const OTHER_PUBLIC: &str = "45.45.45.2";
pub const PUBLIC_V6: &str = "2a01:4f8::1";
/// A public address, and another beside it, that are the machine's own.
pub const OWN_PUBLIC: &str = "46.46.46.1";
pub const OTHER_OWN_PUBLIC: &str = "46.46.46.2";
pub const OWN_PUBLIC_V6: &str = "2a01:4f8:1::1";
/// What the name server answers for every name below `dns.example`.
const BY_DNS: Ipv4Addr = Ipv4Addr::new(45, 45, 45, 1);

const SET_UP: &str = r#"
set -e
ip link set lo up
for address in 10.0.0.1 169.254.169.254; do ip address add $address/32 dev lo; done
ip link add name wire type veth peer name wire netns "$2"
ip link set wire up
ip address add 10.99.0.1/24 dev wire
ip address add 46.46.46.1/24 dev wire
ip address add 46.46.46.2/24 dev wire
ip route add default via 10.99.0.2 src 10.99.0.1
ip -6 address add fd99::1/64 dev wire nodad && ip -6 address add 2a01:4f8:1::1/64 dev wire nodad &&
    ip -6 route add default via fd99::2 || :
outside() { nsenter --net="$out" -- ip "$@"; }
out="/proc/$2/ns/net"
outside link set lo up
outside link set wire up
outside address add 10.99.0.2/24 dev wire
for address in 45.45.45.1 45.45.45.2; do outside address add $address/32 dev lo; done
outside -6 address add fd99::2/64 dev wire nodad && outside -6 address add 2a01:4f8::1/128 dev lo nodad &&
    outside -6 route add default via fd99::1 || :
for file in hosts resolv.conf nsswitch.conf; do
    if [ -e /etc/$file ]; then mount --bind "$1/$file" /etc/$file; fi
done
echo ready
exec cat
"#;

/// The namespaces, and who answers for names in them.
#[derive(Debug)]
pub struct World {
    keeper: Child,
    network: File,
    /// Where everybody else is, and who keeps that.
    outside: File,
    everybody: Child,
    names: NameServer,
    _files: TempDir,
}

impl World {
    /// With these lines in its file of hosts.
    pub fn new(hosts: &[&str]) -> io::Result<Self> {
        let files = tempfile::Builder::new().prefix("agency-world-").tempdir()?;
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755))?;
        let hosts = format!("127.0.0.1 localhost\n{}\n", hosts.join("\n"));
        fs::write(files.path().join("hosts"), hosts)?;
        fs::write(files.path().join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")?;
        fs::write(files.path().join("nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
        let everybody =
            ready(Command::new("unshare").args(["--net", "--", "sh", "-c", "echo ready; exec cat"]))?;
        let outside = File::open(format!("/proc/{}/ns/net", everybody.id()))?;
        let keeper = ready(
            Command::new("unshare")
                .args(["--net", "--mount", "--", "sh", "-c", SET_UP, "sh"])
                .arg(files.path())
                .arg(everybody.id().to_string()),
        )?;
        let network = File::open(format!("/proc/{}/ns/net", keeper.id()))?;
        let names = NameServer::start(entered(&network, || UdpSocket::bind("127.0.0.1:53"))?)?;
        Ok(Self { keeper, network, outside, everybody, names, _files: files })
    }

    /// Does something with a socket in this world.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        entered(&self.network, act)
    }

    /// Where an address with a port is.
    fn network_of(&self, address: &str) -> &File {
        let elsewhere = [PUBLIC, OTHER_PUBLIC, PUBLIC_V6].iter().any(|public| {
            address.starts_with(&format!("{public}:")) || address.starts_with(&format!("[{public}]"))
        });
        if elsewhere { &self.outside } else { &self.network }
    }

    /// A program that runs where everybody else is.
    pub fn elsewhere(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.everybody.id())).args(["--", program]);
        command
    }

    /// A server at this address.
    pub fn serve(&self, address: &str, manner: Manner) -> Server {
        let listener = entered(self.network_of(address), || TcpListener::bind(address)).expect("a server");
        Server::start(listener, manner).expect("a server")
    }

    /// A socket that takes datagrams at this address.
    pub fn datagrams(&self, address: &str) -> UdpSocket {
        let socket = entered(self.network_of(address), || UdpSocket::bind(address)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        socket
    }

    /// Every name that was asked for so far.
    pub fn asked_names(&self) -> Vec<String> {
        self.names.asked.lock().expect("a list").clone()
    }

    /// A command, run here by whoever owns the repository, and in it.
    pub fn command(&self, repository: &Repository, program: &Path) -> Command {
        let inner = repository.command(program);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper.id()));
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id()));
        command.arg("--");
        if let Some((uid, gid)) = repository.owner() {
            command.args([
                "setpriv",
                "--clear-groups",
                &format!("--reuid={uid}"),
                &format!("--regid={gid}"),
                "--",
            ]);
        }
        // The namespace's root is not where we stand.
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(repository.path()).arg(program);
        command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null());
        command
    }

    /// `agency sandbox` with these flags, and a shell script.
    pub fn sandbox(&self, repository: &Repository, flags: &[&str], script: &str) -> Command {
        let mut command = self.command(repository, repository.agency());
        command.arg("sandbox").args(flags).args(["--", "sh", "-c", script]);
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in [&mut self.keeper, &mut self.everybody] {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// A process that says when it is ready, and ends with its input.
fn ready(command: &mut Command) -> io::Result<Child> {
    let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(output) = keeper.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    match line.as_str() {
        "ready\n" => Ok(keeper),
        _ => Err(io::Error::other("the world could not be made")),
    }
}

/// A namespace is a thread's own: one that enters it does not bring the others.
fn entered<T: Send>(network: &File, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::setns(network, CloneFlags::CLONE_NEWNET)?;
            act()
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic in another network")))
    })
}

/// How a server treats its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Answers one request: `/away` is moved to `http://elsewhere.example/`, everything else is `hello`.
    Web,
    /// Sends everything back.
    Echo,
    /// Sends without end.
    Flood,
    /// Says nothing and listens.
    Silent,
}

/// A server that remembers what it heard.
#[derive(Debug)]
pub struct Server {
    arrived: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(listener: TcpListener, manner: Manner) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (arrived, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (heard, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let server = (Arc::clone(&arrived), Arc::clone(&open), Arc::clone(&heard), Arc::clone(&stop));
        let thread = std::thread::Builder::new().spawn(move || {
            let (arrived, open, heard, stop) = server;
            while !stop.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::park_timeout(Duration::from_millis(5));
                    continue;
                };
                arrived.fetch_add(1, Ordering::SeqCst);
                open.fetch_add(1, Ordering::SeqCst);
                let (open, heard) = (Arc::clone(&open), Arc::clone(&heard));
                std::thread::spawn(move || {
                    let all = treat(stream, manner);
                    heard.lock().expect("a list").push(all);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        })?;
        Ok(Self { arrived, open, heard, stop, thread: Some(thread) })
    }

    /// Connections so far.
    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Waits until every connection is closed; what was heard on each.
    pub fn heard(&self) -> Vec<String> {
        assert!(wait_until(Duration::from_secs(20), || self.open() == 0), "a connection stays open");
        let heard = self.heard.lock().expect("a list");
        heard.iter().map(|all| String::from_utf8_lossy(all).into_owned()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Everything the client said, until it closed.
fn treat(mut stream: TcpStream, manner: Manner) -> Vec<u8> {
    let _ = stream.set_nonblocking(false);
    let mut all = Vec::new();
    let mut answered = false;
    let mut piece = [0; 16 * 1024];
    if manner == Manner::Flood {
        while stream.write_all(&piece).is_ok() {}
        return all;
    }
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        if manner == Manner::Echo && stream.write_all(&piece[..length]).is_err() {
            break;
        }
        all.extend_from_slice(&piece[..length]);
        if manner == Manner::Web && all.ends_with(b"\r\n\r\n") && is_hesitant(&all) {
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if manner == Manner::Web && !answered && is_whole(&all) {
            answered = true;
            let _ = stream.write_all(page(&all));
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    all
}

/// Whether this is a whole request, as far as this server understands one.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// Whether the client waits to be told to go on.
fn is_hesitant(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).to_ascii_lowercase().contains("expect: 100-continue")
}

fn page(request: &[u8]) -> &'static [u8] {
    if request.starts_with(b"GET /away ") {
        b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    } else {
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n"
    }
}

/// Remembers every name it is asked for, and knows those below `dns.example`. About `silence.example` it says
/// nothing at all, and a single byte, which is no question, it sends back.
#[derive(Debug)]
struct NameServer {
    asked: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    fn start(socket: UdpSocket) -> io::Result<Self> {
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let (asked, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (list, end) = (Arc::clone(&asked), Arc::clone(&stop));
        let thread = std::thread::Builder::new().spawn(move || {
            let mut query = [0; 1500];
            while !end.load(Ordering::SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut query) else { continue };
                if length == 1 {
                    let _ = socket.send_to(b"x", from);
                } else if let Some((name, answer)) = reply(&query[..length]) {
                    let hesitates = name == "silence.example";
                    list.lock().expect("a list").push(name);
                    if !hesitates {
                        let _ = socket.send_to(&answer, from);
                    }
                }
            }
        })?;
        Ok(Self { asked, stop, thread: Some(thread) })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The name in a query, and the answer to it: a header of twelve bytes, the question, and perhaps an address.
fn reply(query: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*query.get(at)?);
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).into_owned());
        at += 1 + length;
    }
    let question = query.get(12..at + 5)?;
    let name = labels.join(".");
    let known = name.ends_with("dns.example");
    let is_address = question.get(question.len() - 4..)? == [0, 1, 0, 1];
    let answers = known && is_address;
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(answers), 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    if answers {
        // The name is the question's; an IPv4 address, good for no time at all.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(BY_DNS.octets());
    }
    Some((name, answer))
}
