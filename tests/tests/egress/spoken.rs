//! What passes through a plain request: one request, whole and nothing but it.

use agency_tests::world::{Manner, OTHER_PUBLIC, PUBLIC};

use crate::{client, lines, worlds};

const HOSTS: &[&str] = &["45.45.45.1 listed.example", "45.45.45.2 other.example"];
const LISTED: &[&str] = &["--net", "listed.example:80"];

#[test]
fn a_host_header_that_differs_is_refused() {
    worlds("a_host_header_that_differs_is_refused", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
for host in [b"other.example", b"listed.example:81", b"", b"listed.example\r\nHost: other.example", b"listed.example, other.example"]:
    print(get(b"http://listed.example/", host).split(b"\r\n")[0].decode())
print(status(b"GET http://listed.example/ HTTP/1.1\r\n\r\n"))
print(status(b"GET / HTTP/1.1\r\nHost: listed.example\r\n\r\n"))
"#;
        assert_eq!(lines(&client(world, repository, LISTED, script)), ["HTTP/1.1 400 Bad Request"; 7]);
        assert_eq!(listed.arrived(), 0);
    });
}

#[test]
fn a_second_request_on_a_connection_goes_nowhere() {
    worlds("a_second_request_on_a_connection_goes_nowhere", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let other = world.serve(&format!("{OTHER_PUBLIC}:80"), Manner::Web);
        let script = r#"
second = b"GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"
print(body(ask(b"GET http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\n\r\n" + second)))
print(body(ask(b"POST http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\nContent-Length: 4\r\n\r\nbody" + second)))
print(body(ask(b"POST http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n" + second)))
"#;
        assert_eq!(lines(&client(world, repository, LISTED, script)), ["hello"; 3]);
        assert_eq!(other.arrived(), 0);
        let mut heard = listed.heard();
        heard.sort();
        let head = "/ HTTP/1.1\r\nHost: listed.example\r\n";
        assert_eq!(
            heard,
            [
                format!("GET {head}Connection: close\r\n\r\n"),
                format!("POST {head}Content-Length: 4\r\nConnection: close\r\n\r\nbody"),
                format!(
                    "POST {head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
                ),
            ]
        );
    });
}

#[test]
fn a_redirect_is_a_new_request() {
    worlds(
        "a_redirect_is_a_new_request",
        &["45.45.45.1 listed.example", "45.45.45.2 elsewhere.example"],
        |world, repository| {
            let _listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
            let elsewhere = world.serve(&format!("{OTHER_PUBLIC}:80"), Manner::Web);
            let script = "curl --silent --show-error --location http://listed.example/away";
            let output = world.sandbox(repository, LISTED, script).output().expect("runs");
            assert_eq!(lines(&output), ["agency: elsewhere.example:80: not on the list"]);
            assert_eq!(elsewhere.arrived(), 0);
        },
    );
}

#[test]
fn nothing_is_smuggled_in_a_head_or_a_body() {
    worlds("nothing_is_smuggled_in_a_head_or_a_body", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
line = b"POST http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\n"
second = b"GET /smuggled HTTP/1.1\r\nHost: other.example\r\n\r\n"
for more in [
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
    b"Content-Length: 4, 4\r\n\r\nbody",
    b"Content-Length: +4\r\n\r\nbody",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n",
    b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"X: a\rContent-Length: 4\r\n\r\n",
    b"X: a\0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n4\nbody\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
]:
    print(status(line + more + second))
print(status(b"GET http://listed.example/ HTTP/1.1\nHost: listed.example\n\n\r\n\r\n"))
print(status(b"GET http://listed.example@other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"))
print(status(line + b"X: " + b"a" * 40000 + b"\r\n\r\n"))
print(status(line + b"X: a\r\n" * 200 + b"\r\n"))
print(status(b"A" * 100000))
"#;
        let mut expected = vec!["HTTP/1.1 400 Bad Request"; 15];
        expected.extend(["HTTP/1.1 431 Request Header Fields Too Large"; 3]);
        assert_eq!(lines(&client(world, repository, LISTED, script)), expected);
        assert!(listed.heard().iter().all(|heard| !heard.contains("smuggled")), "{:?}", listed.heard());
    });
}

#[test]
fn a_head_that_trickles_in_is_not_waited_for() {
    worlds("a_head_that_trickles_in_is_not_waited_for", HOSTS, |world, repository| {
        let script = r#"
import time
unanswered = open_(); unanswered.sendall(b"CONNECT silence.example:443 HTTP/1.1\r\n\r\n")
s, began = open_(), time.monotonic()
s.settimeout(0.5)
out = b""
# A byte now and then does not buy more time.
while time.monotonic() - began < 60 and not out:
    try:
        s.sendall(b"G")
        out = s.recv(100)
    except TimeoutError: pass
print(out.split(b"\r\n")[0].decode(), 9 < time.monotonic() - began < 30)
# Nor is a name that nobody answers for.
print(body(hear(unanswered)))
"#;
        let list = ["--net", "listed.example:80,silence.example:443"];
        let told = lines(&client(world, repository, &list, script));
        let unanswered = "agency: silence.example:443: it took too long";
        assert_eq!(told, ["HTTP/1.1 408 Request Timeout True", unanswered]);
    });
}

#[test]
fn a_client_that_waits_is_told_to_go_on_by_the_host() {
    worlds("a_client_that_waits_is_told_to_go_on_by_the_host", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
s = open_()
s.sendall(b"PUT http://listed.example/ HTTP/1.1\r\nHost: listed.example\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
print(s.recv(1000).split(b"\r\n")[0].decode())
s.sendall(b"body")
print(body(hear(s)))
"#;
        let told = lines(&client(world, repository, LISTED, script));
        assert_eq!(told, ["HTTP/1.1 100 Continue", "hello"]);
        assert!(listed.heard()[0].ends_with("\r\n\r\nbody"));
    });
}

#[test]
fn bodies_go_through_whole() {
    worlds("bodies_go_through_whole", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
head -c 3000000 /dev/zero | tr '\0' Z > /tmp/body
for how in "Content-Type: text/plain" "Transfer-Encoding: chunked"; do
    curl --silent --show-error --header "Expect:" --header "$how" --data-binary @/tmp/body http://listed.example/
done
"#;
        let output = world.sandbox(repository, LISTED, script).output().expect("runs");
        assert_eq!(lines(&output), ["hello", "hello"]);
        for heard in listed.heard() {
            assert_eq!(heard.matches('Z').count(), 3_000_000);
        }
    });
}
