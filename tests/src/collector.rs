//! A collector of spans on this machine, as OTLP over HTTP has them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// How it behaves.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    Takes,
    /// Listens to everything, and says nothing.
    Silent,
    /// Answers with this status.
    Refuses(u16),
}

/// One request that came.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Collector {
    pub fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let list = Arc::clone(&list);
                std::thread::spawn(move || serve(stream, manner, &list));
            }
        });
        Self { address, requests }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn forget(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Everything that came, decoded.
    pub fn exported(&self) -> Vec<ExportTraceServiceRequest> {
        let decoded = |request: Request| ExportTraceServiceRequest::decode(&request.body[..]);
        self.requests().into_iter().map(|request| decoded(request).expect("protobuf")).collect()
    }

    pub fn spans(&self) -> Vec<Span> {
        let resources = self.exported().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// What the spans are said to be of.
    pub fn resource(&self) -> BTreeMap<String, String> {
        let first = self.exported().into_iter().flat_map(|request| request.resource_spans).next();
        attributes(&first.and_then(|first| first.resource).expect("a resource").attributes)
    }
}

/// Where nobody listens.
pub fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

pub fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    list.iter().map(|one| (one.key.clone(), shown(one.value.as_ref()))).collect()
}

fn shown(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn serve(mut stream: TcpStream, manner: Manner, requests: &Mutex<Vec<Request>>) {
    let mut read = Vec::new();
    while let Ok(Some(request)) = next(&mut stream, &mut read) {
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let status = match manner {
            Manner::Takes => 200,
            Manner::Refuses(status) => status,
            Manner::Silent => continue,
        };
        let answer = format!(
            "HTTP/1.1 {status} So\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The next request of a connection; `None` at its end.
fn next(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Option<Request>> {
    loop {
        if let Some((mut request, start, length)) = head(read)
            && read.len() >= start + length
        {
            request.body = read[start..start + length].to_vec();
            read.drain(..start + length);
            return Ok(Some(request));
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            length => read.extend_from_slice(&piece[..length]),
        }
    }
}

/// What stands before a body, where that begins, and how long it is.
fn head(read: &[u8]) -> Option<(Request, usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(start) = parsed.parse(read).expect("HTTP") else { return None };
    let path = parsed.path.expect("a path").to_owned();
    let headers: BTreeMap<String, String> = parsed
        .headers
        .iter()
        .map(|one| (one.name.to_lowercase(), String::from_utf8_lossy(one.value).into_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).expect("a length");
    Some((Request { path, headers, body: Vec::new() }, start, length))
}
