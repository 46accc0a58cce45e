//! Lists of hosts: what is on one is reached, and nothing else is, whatever a client says to the proxy.
//!
//! Each test makes a world of its own (`agency_tests::world`) with servers that remember what they heard, and
//! runs clients in a sandbox in it. A refusal is asserted on both sides: the client hears it, and nobody else
//! heard anything.

mod endings;
mod going;
mod hostile;
mod programs;
mod spoken;

use std::process::Output;

use agency_tests::repository::{Actor, Repository, actors, said, skip};
use agency_tests::world::World;

/// A world and a repository in it, for each actor. Without root there is no world to be made.
fn worlds(test: &str, hosts: &[&str], with: impl Fn(&World, &Repository)) {
    if actors() == [Actor::User] {
        return skip(test, "a network with addresses of its own takes root");
    }
    for actor in actors() {
        let world = World::new(hosts).expect("a world");
        let repository = Repository::new(actor, &[("README", "hello\n")]).expect("a repository");
        with(&world, &repository);
    }
}

/// A client that says exactly what it is told to. `ask` returns all that is answered; `status` its first line.
const CLIENT: &str = r#"
import socket, sys
PROXY = ("127.0.0.1", 28128)
def open_(address=PROXY):
    s = socket.create_connection(address)
    s.settimeout(30)
    return s
def hear(s):
    out = b""
    try:
        while True:
            piece = s.recv(65536)
            if not piece: return out
            out += piece
    except OSError as error:
        return out + b"<" + type(error).__name__.encode() + b">"
def ask(data, address=PROXY):
    s = open_(address)
    try: s.sendall(data)
    except OSError: pass
    return hear(s)
def status(data):
    return ask(data).split(b"\r\n")[0].decode()
def connect(target, data=b""):
    return ask(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n" + data)
def get(url, host, more=b""):
    return ask(b"GET " + url + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + more + b"\r\n")
def body(answer):
    return answer.split(b"\r\n\r\n", 1)[-1].decode().strip()
"#;

/// Runs a Python client in a sandbox.
fn client(world: &World, repository: &Repository, flags: &[&str], script: &str) -> Output {
    let mut command = world.command(repository, repository.agency());
    command.arg("sandbox").args(flags).args(["--", "/usr/bin/python3", "-c"]);
    command.arg(format!("{CLIENT}\n{script}"));
    command.output().expect("agency starts")
}

/// What a client printed, line by line.
fn lines(output: &Output) -> Vec<String> {
    let (stdout, stderr) = said(output);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    stdout.lines().map(str::to_owned).collect()
}

/// The connections in a report.
fn events(output: &Output) -> Vec<serde_json::Value> {
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    report["network"]["events"].as_array().expect("events").clone()
}
