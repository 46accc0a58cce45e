//! Ways around the proxy, and ways to wear it out.

use std::path::Path;

use agency_tests::repository::said;
use agency_tests::world::{Manner, PUBLIC, PUBLIC_V6};

use crate::{CLIENT, client, events, lines, worlds};

const HOSTS: &[&str] = &["45.45.45.1 listed.example"];

#[test]
fn there_is_no_way_around_the_proxy() {
    worlds("there_is_no_way_around_the_proxy", HOSTS, |world, repository| {
        let web = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let sixth = world.serve(&format!("[{PUBLIC_V6}]:80"), Manner::Web);
        let near = world.serve("127.0.0.1:80", Manner::Web);
        let datagrams = world.datagrams(&format!("{PUBLIC}:53"));
        let script = r#"
def attempt(act):
    try: act(); print("done")
    except OSError: print("held")
for address in [("45.45.45.1", 80), ("2a01:4f8::1", 80), ("127.0.0.1", 80), ("10.0.0.1", 80), ("169.254.169.254", 80)]:
    attempt(lambda: open_(address))
def datagram(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b"x", address); s.recv(10)
attempt(lambda: datagram(("45.45.45.1", 53)))
attempt(lambda: datagram(("127.0.0.1", 53)))
attempt(lambda: socket.getaddrinfo("name.dns.example", 80))
"#;
        let output = client(world, repository, &["--net", "listed.example:80"], script);
        assert_eq!(lines(&output), ["held"; 8]);
        assert_eq!((web.arrived(), sixth.arrived(), near.arrived()), (0, 0, 0));
        assert!(datagrams.recv(&mut [0; 16]).is_err());
        assert_eq!(world.asked_names(), [""; 0]);
        // All of it is there to be reached by who has no fence around them.
        let output = client(world, repository, &["--net", "full"], script);
        assert_eq!(lines(&output), ["done", "done", "done", "held", "held", "held", "done", "done"]);
        assert_eq!((web.arrived(), sixth.arrived(), near.arrived()), (1, 1, 1));
        assert!(datagrams.recv(&mut [0; 16]).is_ok());
    });
}

#[test]
fn a_tunnel_goes_to_the_listed_port_alone() {
    worlds("a_tunnel_goes_to_the_listed_port_alone", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:443"), Manner::Echo);
        let other = world.serve(&format!("{PUBLIC}:22"), Manner::Echo);
        let script = r#"
s = open_(); s.sendall(b"CONNECT listed.example:443 HTTP/1.1\r\n\r\nearly"); s.sendall(b" late"); s.shutdown(socket.SHUT_WR)
print(hear(s).split(b"\r\n\r\n")[-1].decode())
for target in [b"listed.example:22", b"listed.example:80", b"listed.example:65535"]:
    print(status(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n"))
for target in [b"listed.example", b"listed.example:0443x", b"listed.example:", b"listed.example:443/", b"listed.example:443:443"]:
    print(connect(target).split(b" ")[1].decode())
"#;
        let output = client(world, repository, &["--net", "listed.example:443"], script);
        let told = lines(&output);
        assert_eq!(
            told[..4],
            ["early late", "HTTP/1.1 403 Forbidden", "HTTP/1.1 403 Forbidden", "HTTP/1.1 403 Forbidden"]
        );
        assert!(told[4..].iter().all(|status| ["400", "403"].contains(&status.as_str())), "{told:?}");
        assert_eq!((listed.arrived(), other.arrived()), (1, 0));
    });
}

#[test]
fn what_an_agent_calls_a_host_is_never_shown_raw() {
    worlds("what_an_agent_calls_a_host_is_never_shown_raw", HOSTS, |world, repository| {
        let script = r#"
for host in [b"\x1b[31mred", b"a\rb", b"evil\xe2\x80\xae.example", b"x" * 10000, b"back\\slash", b"%1b%00"]:
    answer = connect(host + b":443")
    print(answer.split(b" ")[1].decode(), all(32 <= byte < 127 or byte in b"\r\n" for byte in answer))
"#;
        let list = ["--net", "listed.example:443"];
        let output = client(world, repository, &list, script);
        assert!(lines(&output).iter().all(|line| line == "400 True" || line == "403 True"), "{output:?}");
        let told = said(&output).1;
        assert!(told.chars().all(|c| c == '\n' || !c.is_control()) && !told.contains('\u{202e}'), "{told:?}");
        assert!(told.lines().all(|line| line.len() < 400), "{told}");
        let output = client(world, repository, &["--json", list[0], list[1]], script);
        for event in events(&output) {
            let host = event["host"].as_str().expect("text");
            assert!(host.len() <= 1024 && !host.chars().any(char::is_control), "{host:?}");
        }
    });
}

#[test]
fn three_hundred_connections_at_once_are_all_served() {
    worlds("three_hundred_connections_at_once_are_all_served", HOSTS, |world, repository| {
        let echo = world.serve(&format!("{PUBLIC}:80"), Manner::Echo);
        let script = r#"
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
all_ = [open_() for _ in range(300)]
for s in all_: s.sendall(b"CONNECT listed.example:80 HTTP/1.1\r\n\r\nhello"); s.shutdown(socket.SHUT_WR)
print(sum(hear(s).endswith(b"\r\n\r\nhello") for s in all_))
"#;
        let output = client(world, repository, &["--json", "--net", "listed.example:80"], script);
        assert_eq!(said(&output).1, "300\n");
        assert_eq!(events(&output).len(), 300);
        assert_eq!(echo.arrived(), 300);
    });
}

#[test]
fn a_flood_is_counted_and_what_got_through_is_still_told() {
    worlds("a_flood_is_counted_and_what_got_through_is_still_told", HOSTS, |world, repository| {
        let _web = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
for n in range(1200): connect(b"host%d.example:443" % n)
print(body(get(b"http://listed.example/", b"listed.example")))
"#;
        let output = client(world, repository, &["--json", "--net", "listed.example:80"], script);
        let events = events(&output);
        assert_eq!(events.len(), 1001);
        assert_eq!(events.iter().filter(|event| event["allowed"] == true).count(), 1);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["network"]["left_out"], 200);
    });
}

/// Where little can be open, fewer are served at once, and all of them in the end.
#[test]
fn few_descriptors_make_connections_wait_and_nothing_worse() {
    worlds("few_descriptors_make_connections_wait_and_nothing_worse", HOSTS, |world, repository| {
        let echo = world.serve(&format!("{PUBLIC}:80"), Manner::Echo);
        let script = format!(
            r#"{CLIENT}
all_ = [open_() for _ in range(100)]
for s in all_: s.sendall(b"CONNECT listed.example:80 HTTP/1.1\r\n\r\nhello"); s.shutdown(socket.SHUT_WR)
print(sum(hear(s).endswith(b"\r\n\r\nhello") for s in all_))
"#
        );
        let mut command = world.command(repository, Path::new("sh"));
        command.args(["-c", "ulimit -n 180; exec \"$@\"", "sh"]).arg(repository.agency());
        command.args(["sandbox", "--net", "listed.example:80", "--", "/usr/bin/python3", "-c"]).arg(script);
        assert_eq!(lines(&command.output().expect("runs")), ["100"]);
        assert_eq!(echo.arrived(), 100);
    });
}

#[test]
fn garbage_neither_gets_through_nor_stops_the_proxy() {
    worlds("garbage_neither_gets_through_nor_stops_the_proxy", HOSTS, |world, repository| {
        let web = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
import random
random.seed(7)
words = [b"CONNECT", b"GET", b" ", b"http://", b"listed.example", b":80", b":", b"/", b"HTTP/1.1", b"\r\n", b"\n", b"\r\n\r\n",
         b"Host", b"Content-Length", b"Transfer-Encoding", b"chunked", b"\0", b"\xff", b"[::1]", b"0", b"@", b"\x23", b"?", b"\t"]
answers = set()
for n in range(400):
    s = open_()
    garbage = b"".join(random.choice(words) for _ in range(random.randrange(40))) if n % 2 else random.randbytes(random.randrange(400))
    try:
        s.sendall(garbage); s.shutdown(socket.SHUT_WR)
        answers.add(hear(s).split(b"\r\n")[0].decode())
    except OSError: pass
print(all(answer in ("", "HTTP/1.1 400 Bad Request", "HTTP/1.1 403 Forbidden") for answer in answers), answers)
print(body(get(b"http://listed.example/", b"listed.example")))
"#;
        let told = lines(&client(world, repository, &["--net", "listed.example:80"], script));
        assert!(told[0].starts_with("True"), "{told:?}");
        assert_eq!((told[1].as_str(), web.arrived()), ("hello", 1));
    });
}
