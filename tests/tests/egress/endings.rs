//! The end of a run is the end of its connections.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use agency_tests::processes::{Marker, VARIABLE, wait_until};
use agency_tests::world::{Manner, PUBLIC, Server};

use crate::{CLIENT, worlds};

const HOSTS: &[&str] = &["45.45.45.1 listed.example"];
const LONG: Duration = Duration::from_secs(20);

fn all_closed(server: &Server) -> bool {
    wait_until(LONG, || server.open() == 0)
}

/// Idle tunnels, held by a process that left its session, do not hold up the end.
#[test]
fn the_end_of_a_run_closes_its_tunnels_at_once() {
    worlds("the_end_of_a_run_closes_its_tunnels_at_once", HOSTS, |world, repository| {
        let silent = world.serve(&format!("{PUBLIC}:443"), Manner::Silent);
        let flood = world.serve(&format!("{PUBLIC}:80"), Manner::Flood);
        let script = format!(
            r#"{CLIENT}
import os
for port in [b"443", b"443", b"80", b"80"]:
    s = open_(); s.sendall(b"CONNECT listed.example:" + port + b" HTTP/1.1\r\n\r\n"); s.recv(12); os.dup(s.fileno())
half = open_(); half.sendall(b"GET")
if os.fork() == 0:
    os.setsid()
    import time; time.sleep(600)
print("open", flush=True)
"#
        );
        let mut command = world.command(repository, repository.agency());
        command.args([
            "sandbox",
            "--net",
            "listed.example:443,listed.example:80",
            "--",
            "/usr/bin/python3",
            "-c",
        ]);
        let mut child = command.arg(script).stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("reads");
        assert_eq!(line, "open\n");
        let began = Instant::now();
        assert!(child.wait().expect("ends").success());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(all_closed(&silent) && all_closed(&flood));
        assert_eq!((silent.arrived(), flood.arrived()), (2, 2));
    });
}

#[test]
fn whoever_is_killed_in_the_middle_of_a_transfer_leaves_nothing_behind() {
    worlds("whoever_is_killed_leaves_nothing_behind", HOSTS, |world, repository| {
        let flood = world.serve(&format!("{PUBLIC}:80"), Manner::Flood);
        // First the agent kills itself, then somebody kills the supervisor.
        for from_outside in [false, true] {
            let marker = Marker::new();
            let script = format!(
                r#"{CLIENT}
import os, signal
s = open_(); s.sendall(b"CONNECT listed.example:80 HTTP/1.1\r\n\r\n"); s.recv(1 << 20)
print("flows", flush=True)
while {}: s.recv(1 << 20)
os.kill(os.getpid(), signal.SIGKILL)
"#,
                if from_outside { "True" } else { "False" }
            );
            let mut command = world.command(repository, repository.agency());
            command
                .args(["sandbox", "--net", "listed.example:80", "--", "/usr/bin/python3", "-c"])
                .arg(script);
            command.env(VARIABLE, marker.as_str()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("starts");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("reads");
            assert_eq!(line, "flows\n");
            if from_outside {
                child.kill().expect("killed");
                child.wait().expect("ends");
            } else {
                assert_eq!(child.wait().expect("ends").code(), Some(137));
            }
            assert_eq!(marker.gone_within(LONG), Ok(()));
            assert!(all_closed(&flood));
        }
    });
}

/// A look-up that hangs neither hangs the run nor outlives it.
#[test]
fn a_look_up_that_hangs_ends_with_the_run() {
    worlds("a_look_up_that_hangs_ends_with_the_run", HOSTS, |world, repository| {
        let marker = Marker::new();
        let script = format!(
            r#"{CLIENT}
s = open_(); s.sendall(b"CONNECT silence.example:443 HTTP/1.1\r\n\r\n")
print("asked", flush=True)
sys.stdin.read()
"#
        );
        let mut command = world.command(repository, repository.agency());
        command.args(["sandbox", "--net", "silence.example:443", "--", "/usr/bin/python3", "-c"]).arg(script);
        command.env(VARIABLE, marker.as_str()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("reads");
        assert!(wait_until(LONG, || world.asked_names().iter().any(|name| name == "silence.example")));
        let began = Instant::now();
        drop(child.stdin.take());
        assert!(child.wait().expect("ends").success());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(marker.gone_within(LONG), Ok(()));
    });
}
