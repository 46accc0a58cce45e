//! As much of HTTP/1.1 as a model's clients speak.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use serde_json::Value as Json;

/// Names in lower case.
pub(super) type Headers = BTreeMap<String, String>;

/// One request, all of it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
    /// Nothing comes after it on its connection.
    pub(super) last: bool,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Json(Json),
    Html(&'static str),
    Events(Vec<Event>),
}

/// One server-sent event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: Option<String>,
    pub(super) data: String,
}

impl Event {
    /// Named by its type, as most are.
    pub(super) fn typed(data: &Json) -> Self {
        Self { name: data["type"].as_str().map(str::to_owned), data: data.to_string() }
    }

    pub(super) fn unnamed(data: impl ToString) -> Self {
        Self { name: None, data: data.to_string() }
    }

    fn line(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.data)
    }
}

impl Answer {
    pub(super) fn json(status: u16, body: Json) -> Self {
        Self { status, headers: Vec::new(), body: Body::Json(body) }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let (kind, body) = match &self.body {
            Body::Json(body) => ("application/json", body.to_string()),
            Body::Html(page) => ("text/html; charset=utf-8", (*page).to_owned()),
            Body::Events(events) => {
                let chunk = |line: String| format!("{:x}\r\n{line}\r\n", line.len());
                let chunks: String = events.iter().map(|event| chunk(event.line())).collect();
                head.push_str("content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
                return format!("{head}{chunks}0\r\n\r\n").into_bytes();
            }
        };
        head.push_str(&format!("content-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len()));
        if with_body {
            head.push_str(&body);
        }
        head.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        429 => "Too Many Requests",
        _ => "Internal Server Error",
    }
}

/// A connection, and what was read from it and belongs to what comes next.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// The next request; `None` at the end of the connection.
    pub(super) fn request(&mut self) -> io::Result<Option<Request>> {
        let mut request = loop {
            if let Some((request, length)) = request_head(&self.read)? {
                self.read.drain(..length);
                break request;
            }
            if !self.fill()? {
                return Ok(None);
            }
        };
        if request.headers.get("expect").is_some_and(|what| what.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = self.body(&request.headers)?;
        Ok(Some(request))
    }

    pub(super) fn answer(&mut self, request: &Request, answer: &Answer) -> io::Result<()> {
        self.stream.write_all(&answer.bytes(request.method != "HEAD"))
    }

    /// Waits until the other side has gone, or the connection is shut down.
    pub(super) fn ignore(&mut self) -> io::Result<()> {
        while self.fill()? {
            self.read.clear();
        }
        Ok(())
    }

    /// What these headers announce.
    fn body(&mut self, headers: &Headers) -> io::Result<Vec<u8>> {
        if headers.get("transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked")) {
            return self.chunks();
        }
        let length = headers.get("content-length").map_or(Ok(0), |length| length.parse());
        self.take(length.map_err(io::Error::other)?)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = httparse::parse_chunk_size(&self.read).map_err(|_| io::Error::other("not a chunk"))?;
            let httparse::Status::Complete((start, size)) = size else {
                self.need()?;
                continue;
            };
            self.read.drain(..start);
            let size = usize::try_from(size).map_err(io::Error::other)?;
            body.extend_from_slice(&self.take(size)?);
            self.take(2)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            self.need()?;
        }
        Ok(self.read.drain(..length).collect())
    }

    fn need(&mut self) -> io::Result<()> {
        if self.fill()? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads some more; whether there was any.
    fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 * 1024];
        let length = self.stream.read(&mut piece)?;
        self.read.extend_from_slice(&piece[..length]);
        Ok(length > 0)
    }
}

/// What stands before a body, and how long that is, once it is all there.
fn request_head(read: &[u8]) -> io::Result<Option<(Request, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = parsed.parse(read).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let path = parsed.path.unwrap_or_default();
    let headers = named(parsed.headers);
    let close = headers.get("connection").is_some_and(|what| what.eq_ignore_ascii_case("close"));
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.split_once('?').map_or(path, |(path, _)| path).to_owned(),
        body: Vec::new(),
        last: close || parsed.version == Some(0),
        headers,
    };
    Ok(Some((request, length)))
}

fn named(headers: &[httparse::Header<'_>]) -> Headers {
    let one = |header: &httparse::Header<'_>| {
        (header.name.to_lowercase(), String::from_utf8_lossy(header.value).into_owned())
    };
    headers.iter().map(one).collect()
}

/// The other side, for the tests of the model.
#[cfg(test)]
impl Connection {
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Status, headers and body; the end of the connection is an error.
    pub(super) fn response(&mut self) -> io::Result<(u16, Headers, Vec<u8>)> {
        let (status, headers) = self.response_head()?;
        let body = self.body(&headers)?;
        Ok((status, headers, body))
    }

    pub(super) fn response_head(&mut self) -> io::Result<(u16, Headers)> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut parsed = httparse::Response::new(&mut headers);
            if let httparse::Status::Complete(length) = parsed.parse(&self.read).map_err(io::Error::other)? {
                let head = (parsed.code.unwrap_or_default(), named(parsed.headers));
                self.read.drain(..length);
                return Ok(head);
            }
            self.need()?;
        }
    }
}
