//! A server on this machine: real sockets, one answer to a connection, and a memory of what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

#[derive(Debug, Clone)]
pub(super) struct TestRequest {
    /// `GET /x?y HTTP/1.1`.
    pub(super) line: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl TestRequest {
    pub(super) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

#[derive(Debug, Clone)]
pub(super) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    pub(super) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    pub(super) fn json(value: &Value) -> Self {
        Self::new(200).body(value.to_string())
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

pub(super) struct Serving {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<TestRequest>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// `answer` is given the request and the address of the server itself; nothing is said to a request for which
    /// it has no answer, until the client gives up.
    pub(super) fn start(answer: impl Fn(&TestRequest, &str) -> Option<Response> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (log, end) = (Arc::clone(&asked), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                // A client may go away at any time; that is its affair.
                let _ = stream.and_then(|stream| serve(stream, &format!("http://{address}"), &log, &answer));
            }
        });
        Self { address, asked, over, thread: Some(thread) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn asked(&self) -> Vec<TestRequest> {
        self.asked.lock().expect("a lock").clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    stream: TcpStream,
    url: &str,
    log: &Mutex<Vec<TestRequest>>,
    answer: &impl Fn(&TestRequest, &str) -> Option<Response>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 {
            break;
        }
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut request = TestRequest { line: line.trim_end().to_owned(), headers, body: Vec::new() };
    let length = request.header("content-length").and_then(|value| value.parse().ok());
    match length {
        Some(length) => {
            request.body = vec![0; length];
            reader.read_exact(&mut request.body)?;
        }
        None if request.header("transfer-encoding") == Some("chunked") => request.body = chunks(&mut reader)?,
        None => {}
    }
    log.lock().expect("a lock").push(request.clone());
    let Some(response) = answer(&request, url) else {
        reader.read_to_end(&mut Vec::new())?;
        return Ok(());
    };
    let mut head = format!(
        "HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n",
        response.status,
        response.body.len()
    );
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(&response.body)
}

fn chunks(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk[..size]);
        if size == 0 {
            return Ok(body);
        }
    }
}
