//! What a client asks of the proxy, read from the head of its request.
//!
//! Two things can be asked: a tunnel (`CONNECT host:port`) and one plain request (`GET http://host/path`). A
//! head that could be read in two ways is not read at all: line breaks are CR LF, lines are not folded, there
//! is one way to say where the body ends, and one host. What goes on to the host is written anew from what
//! was understood.

use std::io::Write;

use super::body::RequestBody;
use super::destination::{DestinationHost, parse_port, split};
use crate::path::escape;

/// The largest head that is read.
pub(crate) const LARGEST_HEAD: usize = 32 * 1024;
const MOST_HEADERS: usize = 128;
/// Longer than any name; what an agent made up is cut there when it is told.
const SHOWN: usize = 255;

/// What is asked.
#[derive(Debug)]
pub(crate) enum ProxyRequest {
    Tunnel(RequestTarget),
    Plain { target: RequestTarget, head: Vec<u8>, body: RequestBody },
}

/// The host and port that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    /// Fit to be shown.
    pub(crate) shown: String,
    /// Nothing that isn't a host can be on a list.
    pub(crate) host: Option<DestinationHost>,
    pub(crate) port: u16,
}

/// A head that is not understood, and the status that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestRefusal {
    pub(crate) status: ResponseStatus,
    pub(crate) why: &'static str,
    /// Who was asked for, where that much was understood.
    pub(crate) target: Option<RequestTarget>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStatus {
    BadRequest,
    Forbidden,
    TooSlow,
    TooLarge,
    BadGateway,
    GatewayTimeout,
}

impl ResponseStatus {
    const fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::TooSlow => "408 Request Timeout",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::BadGateway => "502 Bad Gateway",
            Self::GatewayTimeout => "504 Gateway Timeout",
        }
    }
}

/// What a tunnel is opened with.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// An answer of the proxy's own. `text` is shown to people, in a line of its own.
pub(crate) fn answer(status: ResponseStatus, text: &str) -> Vec<u8> {
    let line = status.line();
    let text = format!("agency: {text}\n");
    format!(
        "HTTP/1.1 {line}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

/// Where the head ends, if it is there as a whole.
pub(crate) fn head_length(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a whole head.
pub(crate) fn parse(head: &[u8]) -> Result<ProxyRequest, RequestRefusal> {
    let bad = |why| RequestRefusal { status: ResponseStatus::BadRequest, why, target: None };
    if !is_cleanly_broken(head) || head.starts_with(b"\r\n") {
        return Err(bad("the lines of the request are not cleanly broken"));
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => {
            let why = "the request has too many headers";
            return Err(RequestRefusal { status: ResponseStatus::TooLarge, why, target: None });
        }
        _ => return Err(bad("the request is not HTTP/1.1")),
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(bad("the request is not HTTP/1.1"));
    };
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("the request's target has odd characters"));
    }
    if method == "CONNECT" {
        let target = RequestTarget::of(target, None).ok_or_else(|| bad("CONNECT takes HOST:PORT"))?;
        return Ok(ProxyRequest::Tunnel(target));
    }
    let (authority, path) = absolute(target).ok_or_else(|| bad("a proxy is asked for http://HOST/PATH"))?;
    let target =
        RequestTarget::of(authority, Some(80)).ok_or_else(|| bad("the request's host is malformed"))?;
    let about =
        |why| RequestRefusal { status: ResponseStatus::BadRequest, why, target: Some(target.clone()) };
    let headers = RequestHeaders(parsed.headers);
    match headers.only("host").map_err(|()| about("the request has several Host headers"))? {
        Some(host) if RequestTarget::of(host, Some(80)).is_none_or(|host| !host.is_same(&target)) => {
            return Err(about("the Host header names another host"));
        }
        None if version == 1 => return Err(about("the request has no Host header")),
        _ => {}
    }
    let body = headers.body(version).map_err(about)?;
    // The form of "the server as a whole", which has no path.
    let path = match path {
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    let mut head =
        format!("{method} {path} HTTP/1.{version}\r\nHost: {}\r\n", target.authority()).into_bytes();
    headers.pass(&mut head);
    match &body {
        RequestBody::Chunked(_) => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        RequestBody::Length(length) if headers.has("content-length") => {
            head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        _ => {}
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(ProxyRequest::Plain { target, head, body })
}

/// Every CR is followed by LF, every LF comes after CR, and there is no NUL.
fn is_cleanly_broken(head: &[u8]) -> bool {
    head.iter().enumerate().all(|(at, byte)| match byte {
        b'\r' => head.get(at + 1) == Some(&b'\n'),
        b'\n' => at > 0 && head[at - 1] == b'\r',
        byte => *byte != 0,
    })
}

/// Authority and path of a plain http address. Who logs in by an address, or asks for a fragment, is no
/// proxy's client.
fn absolute(target: &str) -> Option<(&str, &str)> {
    const SCHEME: &str = "http://";
    let (scheme, rest) = target.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) || rest.contains('#') {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    (!authority.is_empty() && !authority.contains('@')).then_some((authority, path))
}

impl RequestTarget {
    /// Reads `HOST:PORT`, or `HOST` where a port is implied.
    fn of(authority: &str, implied: Option<u16>) -> Option<Self> {
        let (host, port) = match (split(authority), implied) {
            (Some((host, port)), _) => (host, parse_port(port).filter(|port| *port > 0)?),
            (None, Some(port)) => (authority, port),
            (None, None) => return None,
        };
        let shown: String = escape(host.as_bytes()).chars().take(SHOWN).collect();
        (!host.is_empty()).then(|| Self { shown, host: DestinationHost::parse(host), port })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.port == other.port && self.host.is_some() && self.host == other.host
    }

    /// As the Host header says it.
    fn authority(&self) -> String {
        let host = self.host.as_ref().map_or_else(|| self.shown.clone(), ToString::to_string);
        if self.port == 80 { host } else { format!("{host}:{}", self.port) }
    }
}

/// Between a client and the proxy alone, or said anew by the proxy.
const NOT_PASSED: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

struct RequestHeaders<'a>(&'a [httparse::Header<'a>]);

impl<'a> RequestHeaders<'a> {
    fn all(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|header| header.name.eq_ignore_ascii_case(name))
    }

    /// The value of a header that may be there once.
    fn only(&self, name: &'a str) -> Result<Option<&'a str>, ()> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => std::str::from_utf8(value).map(Some).map_err(|_| ()),
            (Some(_), Some(_)) => Err(()),
        }
    }

    /// Where the body ends. Said twice, or in any unusual way, it is not said at all.
    fn body(&self, version: u8) -> Result<RequestBody, &'static str> {
        let length = self.only("content-length").map_err(|()| "the request has several lengths")?;
        let coding = self.only("transfer-encoding").map_err(|()| "the request has several codings")?;
        match (length, coding) {
            (None, None) => Ok(RequestBody::Length(0)),
            (Some(_), Some(_)) => Err("the request has a length and a coding"),
            (None, Some(coding)) if version == 1 && coding.eq_ignore_ascii_case("chunked") => {
                Ok(RequestBody::chunked())
            }
            (None, Some(_)) => Err("the request's coding is not chunked"),
            (Some(length), None) => {
                let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                let length = if digits { length.parse().ok() } else { None };
                length.map(RequestBody::Length).ok_or("the request's length is not a number")
            }
        }
    }

    /// Writes what the host is to see, but not the headers a client means for the proxy.
    fn pass(&self, head: &mut Vec<u8>) {
        let named: Vec<&[u8]> = self
            .all("connection")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .collect();
        for httparse::Header { name, value } in self.0 {
            let hop = NOT_PASSED.iter().any(|known| name.eq_ignore_ascii_case(known))
                || named.iter().any(|known| name.as_bytes().eq_ignore_ascii_case(known));
            if !hop {
                // Writing to memory does not fail.
                let _ = write!(head, "{name}: ");
                head.extend_from_slice(value);
                head.extend_from_slice(b"\r\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(head: &str) -> (String, String, RequestBody) {
        match parse(head.as_bytes()).expect("understood") {
            ProxyRequest::Plain { target, head, body } => {
                let shown = format!("{}:{}", target.shown, target.port);
                (shown, String::from_utf8(head).expect("text"), body)
            }
            ProxyRequest::Tunnel(target) => panic!("a tunnel to {target:?}"),
        }
    }

    fn why(head: &str) -> &'static str {
        parse(head.as_bytes()).expect_err(head).why
    }

    #[test]
    fn a_tunnel_is_asked_for_by_host_and_port() {
        let Ok(ProxyRequest::Tunnel(target)) = parse(b"CONNECT Example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        else {
            panic!("not a tunnel");
        };
        assert_eq!((target.port, target.host), (443, DestinationHost::parse("example.org")));
        for target in
            ["example.org", "example.org:", "example.org:0", "example.org:99999", ":443", "a:+1", "/"]
        {
            let head = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
            assert_eq!(why(&head), "CONNECT takes HOST:PORT", "{target}");
        }
    }

    #[test]
    fn a_plain_request_goes_on_in_our_own_words() {
        let (target, head, body) = plain(
            "POST HTTP://Example.org:8080?q=1 HTTP/1.1\r\nHost: example.ORG.:8080\r\nAccept: */*\r\n\
             Connection: keep-alive, X-Private\r\nX-Private: 1\r\nProxy-Authorization: secret\r\nTE: trailers\r\n\
             Keep-Alive: 5\r\nUpgrade: h2c\r\ncontent-length: 3\r\n\r\n",
        );
        assert_eq!(target, "Example.org:8080");
        assert_eq!(
            head,
            "POST /?q=1 HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\nContent-Length: 3\r\n\
             Connection: close\r\n\r\n"
        );
        assert!(matches!(body, RequestBody::Length(3)));
        let (_, head, _) = plain("GET http://a.example HTTP/1.0\r\n\r\n");
        assert_eq!(head, "GET / HTTP/1.0\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        let (_, head, _) = plain("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n"));
        let (_, head, body) =
            plain("PUT http://a.example/x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n");
        assert!(
            head.contains("\r\nTransfer-Encoding: chunked\r\n") && matches!(body, RequestBody::Chunked(_))
        );
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let get =
            |headers: &str| format!("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n");
        assert!(parse(get("").as_bytes()).is_ok());
        for headers in [
            "Host: a.example\r\n",
            "Host: b.example\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length: -1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: chunked, gzip\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "A: b\r\n folded\r\n",
            "A: b\n",
            "A: b\rC: d\r\n",
            "A: b\0\r\n",
            " A: b\r\n",
            "A\r\n",
        ] {
            assert!(parse(get(headers).as_bytes()).is_err(), "{headers:?}");
        }
        for head in [
            "GET http://a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example:81\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: \r\n\r\n",
            "GET http://a.example@b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET http://a.example#b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET  http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/2.0\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/\u{e9} HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "\r\nGET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "PUT http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\x16\x03\x01\x02\r\n\r\n",
            "",
        ] {
            assert!(parse(head.as_bytes()).is_err(), "{head:?}");
        }
    }

    #[test]
    fn headers_that_connection_names_cannot_unframe_a_request() {
        let (_, head, body) = plain(
            "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: Content-Length, Host\r\n\
             Content-Length: 5\r\n\r\n",
        );
        assert!(head.contains("\r\nHost: a.example\r\n") && head.contains("\r\nContent-Length: 5\r\n"));
        assert!(matches!(body, RequestBody::Length(5)));
    }

    proptest! {
        #[test]
        fn nothing_makes_the_reader_stumble(head in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&head);
        }

        /// Each request that goes on is one head: one end, our framing, our host.
        #[test]
        fn what_goes_on_is_one_request(
            headers in proptest::collection::vec(("[!-~]{1,12}", "[ -~\\r\\n\\t]{0,20}"), 0..6),
            path in "[!-~]{0,20}",
        ) {
            let mut head = format!("GET http://a.example/{path} HTTP/1.1\r\nHost: a.example\r\n");
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            if let Ok(ProxyRequest::Plain { head, .. }) = parse(head.as_bytes()) {
                prop_assert_eq!(head_length(&head), Some(head.len()));
                let text = String::from_utf8(head).expect("text").to_ascii_lowercase();
                prop_assert_eq!(text.matches("\r\nhost:").count(), 1);
                prop_assert_eq!(text.matches("\r\nconnection:").count(), 1);
                prop_assert!(text.matches("\r\ncontent-length:").count() + text.matches("\r\ntransfer-encoding:").count() <= 1);
            }
        }
    }
}
