//! Where one can go.

use agency_tests::repository::{Repository, actors, said};
use agency_tests::world::{Manner, OTHER_OWN_PUBLIC, OTHER_PUBLIC, OWN_PUBLIC, OWN_PUBLIC_V6, PUBLIC};

use crate::{client, events, lines, worlds};

const HOSTS: &[&str] = &["45.45.45.1 listed.example", "45.45.45.2 other.example"];

#[test]
fn a_listed_host_is_reached_and_no_other() {
    worlds("a_listed_host_is_reached_and_no_other", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let other = world.serve(&format!("{OTHER_PUBLIC}:80"), Manner::Web);
        let output = client(
            world,
            repository,
            &["--net", "listed.example:80,known.dns.example:80"],
            r#"
print(body(get(b"http://listed.example/", b"listed.example")))
print(body(get(b"http://LISTED.example./", b"listed.EXAMPLE:80")))
print(connect(b"listed.example:80", b"GET / HTTP/1.1\r\nHost: listed.example\r\n\r\n").split(b"\r\n\r\n")[-1].decode().strip())
for name in [b"known.dns.example", b"KNOWN.Dns.example", b"known.dns.example."]:
    print(body(get(b"http://" + name + b"/", name)))
print(body(get(b"http://other.example/", b"other.example")))
print(body(get(b"http://unlisted.dns.example/", b"unlisted.dns.example")))
print(body(connect(b"other.example:80")))
print(body(connect(b"sub.listed.example:80")))
print(body(connect(b"listed.example.evil.example:80")))
"#,
        );
        assert_eq!(
            lines(&output),
            [
                "hello",
                "hello",
                "hello",
                "hello",
                "hello",
                "hello",
                "agency: other.example:80: not on the list",
                "agency: unlisted.dns.example:80: not on the list",
                "agency: other.example:80: not on the list",
                "agency: sub.listed.example:80: not on the list",
                "agency: listed.example.evil.example:80: not on the list",
            ]
        );
        assert_eq!((listed.arrived(), other.arrived()), (6, 0));
        // Nobody was asked about a name that is not on the list.
        // The one that is was looked up once, for both kinds of addresses, and as the list spells it.
        assert_eq!(world.asked_names(), ["known.dns.example"; 2]);
        let told = said(&output).1;
        assert!(told.contains("agency: not reached:\n"), "{told}");
        assert!(told.contains("\n  other.example:80: not on the list (2 times)\n"), "{told}");
    });
}

#[test]
fn every_decision_is_an_event() {
    worlds("every_decision_is_an_event", HOSTS, |world, repository| {
        let _listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let script = r#"
get(b"http://listed.example/", b"listed.example"); connect(b"other.example:443")
ask(b"nonsense\r\n\r\n"); connect(b"missing.example:80"); connect(b"closed.example:81")
"#;
        let list = "listed.example:80,missing.example:80,closed.example:81";
        let output = client(world, repository, &["--json", "--net", list], script);
        let events = events(&output);
        let told: Vec<_> = events
            .iter()
            .map(|event| {
                let text = |key: &str| event[key].as_str().unwrap_or("-").to_owned();
                (text("how"), text("host"), event["allowed"] == true, text("reason"), text("address"))
            })
            .collect();
        let expected = [
            ("http", "listed.example", true, "listed", PUBLIC),
            ("connect", "other.example", false, "not-listed", "-"),
            ("unknown", "", false, "malformed", "-"),
            ("connect", "missing.example", true, "unknown-name", "-"),
            ("connect", "closed.example", true, "unknown-name", "-"),
        ]
        .map(|(how, host, allowed, reason, address)| {
            (how.to_owned(), host.to_owned(), allowed, reason.to_owned(), address.to_owned())
        });
        assert_eq!(told, expected);
        assert!(events[0]["sent"].as_u64() > Some(20) && events[0]["received"].as_u64() > Some(6));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["network"]["left_out"], 0);
    });
}

#[test]
fn an_address_must_be_listed_itself() {
    worlds("an_address_must_be_listed_itself", HOSTS, |world, repository| {
        let listed = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let private = world.serve("10.0.0.1:80", Manner::Web);
        let script = r#"
for host in [b"45.45.45.1", b"[::ffff:45.45.45.1]", b"45.45.11521", b"0x2d2d2d01", b"757935361", b"10.0.0.1", b"[2a01:4f8::1]"]:
    print(status(b"CONNECT " + host + b":80 HTTP/1.1\r\n\r\n"))
"#;
        let output = client(world, repository, &["--net", "listed.example:80"], script);
        assert_eq!(lines(&output), ["HTTP/1.1 403 Forbidden"; 7]);
        assert_eq!((listed.arrived(), private.arrived()), (0, 0));
        // An operator who writes an address means it, private or not.
        let script = r#"print(body(get(b"http://10.0.0.1/", b"10.0.0.1")), status(b"CONNECT 10.0.0.1:81 HTTP/1.1\r\n\r\n"))"#;
        let output = client(world, repository, &["--net", "10.0.0.1:80"], script);
        assert_eq!(lines(&output), ["hello HTTP/1.1 403 Forbidden"]);
        assert_eq!(private.arrived(), 1);
    });
}

#[test]
fn a_listed_name_that_leads_home_is_refused() {
    let hosts = &[
        "127.0.0.1 rebound.example",
        "::1 rebound6.example",
        "169.254.169.254 metadata.example",
        "::ffff:10.0.0.1 mapped.example",
        "10.0.0.1 private.example mixed.example",
        "169.254.169.254 mixed.example",
        "45.45.45.1 mixed.example",
    ];
    worlds("a_listed_name_that_leads_home_is_refused", hosts, |world, repository| {
        let near = ["127.0.0.1:80", "[::1]:80", "169.254.169.254:80", "10.0.0.1:80"]
            .map(|address| world.serve(address, Manner::Web));
        let public = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let names = ["rebound", "rebound6", "metadata", "mapped", "private", "mixed"];
        let list = names.map(|name| format!("{name}.example:80")).join(",");
        let script = r#"
for name in [b"rebound", b"rebound6", b"metadata", b"mapped", b"private"]:
    host = name + b".example"
    print(status(b"CONNECT " + host + b":80 HTTP/1.1\r\n\r\n"), get(b"http://" + host + b"/", host).split(b" ")[1].decode())
for attempt in range(3):
    print(body(get(b"http://mixed.example/", b"mixed.example")))
"#;
        let output = client(world, repository, &["--net", &list], script);
        let refused = "HTTP/1.1 403 Forbidden 403";
        assert_eq!(lines(&output), [refused, refused, refused, refused, refused, "hello", "hello", "hello"]);
        assert_eq!(near.iter().map(|server| server.arrived()).sum::<usize>(), 0);
        assert_eq!(public.arrived(), 3);
        // A private address that is listed too is one that a listed name may lead to.
        let script = r#"print(body(get(b"http://private.example/", b"private.example")))"#;
        let output = client(world, repository, &["--net", "private.example:80,10.0.0.1:80"], script);
        assert_eq!(lines(&output), ["hello"]);
    });
}

/// An address in public that this machine has itself leads to services of its own, like a private one.
#[test]
fn a_listed_name_that_leads_to_this_machine_is_refused_whatever_its_address() {
    let hosts = &[
        "46.46.46.1 own.example mixed.example",
        "46.46.46.2 beside.example",
        "2a01:4f8:1::1 own6.example",
        "64:ff9b::2e2e:2e01 translated.example",
        "2002:2e2e:2e01::1 relayed.example",
        "46.46.46.255 everybody.example",
        "45.45.45.1 mixed.example",
    ];
    let test = "a_listed_name_that_leads_to_this_machine_is_refused_whatever_its_address";
    worlds(test, hosts, |world, repository| {
        let own =
            [format!("{OWN_PUBLIC}:80"), format!("{OTHER_OWN_PUBLIC}:80"), format!("[{OWN_PUBLIC_V6}]:80")]
                .map(|address| world.serve(&address, Manner::Web));
        let public = world.serve(&format!("{PUBLIC}:80"), Manner::Web);
        let names = ["own", "beside", "own6", "translated", "relayed", "everybody"];
        let list = names.map(|name| format!("{name}.example:80")).join(",") + ",mixed.example:80";
        let script = r#"
for name in [b"own", b"beside", b"own6", b"translated", b"relayed", b"everybody"]:
    host = name + b".example"
    print(status(b"CONNECT " + host + b":80 HTTP/1.1\r\n\r\n"), get(b"http://" + host + b"/", host).split(b" ")[1].decode())
print(body(get(b"http://mixed.example/", b"mixed.example")))
"#;
        let output = client(world, repository, &["--net", &list], script);
        let refused = "HTTP/1.1 403 Forbidden 403";
        assert_eq!(lines(&output), [refused, refused, refused, refused, refused, refused, "hello"]);
        assert_eq!((own.iter().map(|server| server.arrived()).sum::<usize>(), public.arrived()), (0, 1));
        // Whoever writes the address means it, also for a name that leads there.
        let script = r#"
print(body(get(b"http://own.example/", b"own.example")), body(get(b"http://46.46.46.2/", b"46.46.46.2")))
"#;
        let output =
            client(world, repository, &["--net", "own.example:80,46.46.46.1:80,46.46.46.2:80"], script);
        assert_eq!(lines(&output), ["hello hello"]);
    });
}

#[test]
fn a_forwarded_port_works_and_its_neighbour_does_not() {
    worlds("a_forwarded_port_works_and_its_neighbour_does_not", &[], |world, repository| {
        let forwarded = world.serve("127.0.0.1:8723", Manner::Web);
        let sixth = world.serve("[::1]:8723", Manner::Echo);
        let low = world.serve("127.0.0.2:80", Manner::Web);
        let neighbour = world.serve("127.0.0.1:8724", Manner::Web);
        let script = r#"
web = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
print(body(ask(web, ("127.0.0.1", 8723))))
print(body(ask(web, ("127.0.0.2", 80))))
s = open_(("::1", 8723)); s.sendall(b"echo"); s.shutdown(socket.SHUT_WR); print(hear(s).decode())
for address in [("127.0.0.1", 8724), ("127.0.0.2", 8723)]:
    try: open_(address); print("open")
    except ConnectionRefusedError: print("refused")
print(body(get(b"http://127.0.0.1:8723/", b"127.0.0.1:8723")))
print(status(b"CONNECT 127.0.0.1:8724 HTTP/1.1\r\n\r\n"))
"#;
        let list = "127.0.0.1:8723,[::1]:8723,127.0.0.2:80";
        let output = client(world, repository, &["--net", list], script);
        let expected = ["hello", "hello", "echo", "refused", "refused", "hello", "HTTP/1.1 403 Forbidden"];
        assert_eq!(lines(&output), expected);
        assert_eq!((forwarded.arrived(), sixth.arrived(), low.arrived(), neighbour.arrived()), (2, 1, 1, 0));
        // Nobody there is an error that passes through as one.
        let script = r#"print(ask(b"x", ("127.0.0.1", 9999)).decode())"#;
        let output = client(world, repository, &["--net", "127.0.0.1:9999"], script);
        assert!(["<ConnectionResetError>", ""].contains(&lines(&output)[0].as_str()));
    });
}

#[test]
fn the_attestation_says_what_goes_out_and_how() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("a", "")]).expect("a repository");
        let flags = ["--json", "--net", "Listed.example:443,127.0.0.1:8723"];
        let output = repository.script(&flags, "true").expect("runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        let controls = report["attestation"]["controls"].as_array().expect("controls");
        let network = controls.iter().find(|one| one["control"] == "network").expect("a line");
        assert_eq!(network["enforced"], "enforced");
        let how = network["how"].as_str().expect("text");
        assert!(how.starts_with("net:["), "{how}");
        let ways = ", out through 127.0.0.1:8723 and 127.0.0.1:28128: listed.example:443, 127.0.0.1:8723";
        assert!(how.ends_with(ways), "{how}");
        // Without a list there is nothing to tell.
        let output = repository.script(&["--json"], "true").expect("runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert!(report["network"].is_null());
    }
}

#[test]
fn a_mistake_in_a_list_is_one_line_and_nothing_is_started() {
    let repository = Repository::new(actors()[0], &[("a", "")]).expect("a repository");
    for (list, word) in [
        ("example.org", "port is missing"),
        ("example.org:0", "port 0"),
        ("example.org:443,", "empty"),
        ("localhost:8723", "127.0.0.1"),
        ("*", "wildcards"),
        ("*.example.org:443", "wildcards"),
        ("exa mple.org:443", "neither"),
        ("https://example.org/", "HOST:PORT"),
    ] {
        let output = repository.script(&["--net", list], "echo started").expect("runs");
        let (stdout, stderr) = said(&output);
        assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""), "{list}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("agency: --net `") && stderr.contains(word), "{stderr}");
    }
    let flags = ["--net", "example.org:443", "--without", "network"];
    let output = repository.script(&flags, "echo started").expect("runs");
    assert_eq!((output.status.code(), said(&output).0.as_str()), (Some(2), ""), "{output:?}");
    assert_eq!(said(&output).1.lines().count(), 1);
}

#[test]
fn the_callers_proxy_is_overruled_only_by_a_list() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("a", "")]).expect("a repository");
        let proxy = |net: &str| {
            // What is passed by name is redacted where it is printed, so it is compared inside.
            let script = "if test \"$https_proxy\" = http://callers:1; then echo the caller\\'s; \
                          else echo $https_proxy $HTTPS_PROXY; fi";
            let flags = ["--net", net, "--env", "https_proxy", "--", "sh", "-c", script];
            let output = repository.sandbox(&flags).env("https_proxy", "http://callers:1").output();
            said(&output.expect("runs")).0
        };
        assert_eq!(proxy("none"), "the caller's\n");
        assert_eq!(proxy("full"), "the caller's\n");
        assert_eq!(proxy("a.example:443"), "http://127.0.0.1:28128 http://127.0.0.1:28128\n");
        assert_eq!(proxy("127.0.0.1:28128"), "http://127.0.0.1:28129 http://127.0.0.1:28129\n");
    }
}
