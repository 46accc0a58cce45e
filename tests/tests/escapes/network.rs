//! Talking to anybody, with a network of none.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use agency_tests::listeners::Listener;

use crate::as_both;
use crate::ground::{Actor, DEADLINE, Ground};
use crate::kernels;
use crate::run::Ended;

/// Starts a listener.
type Bind = fn() -> std::io::Result<Listener>;

/// Shows the attack to arrive, then that nothing arrives, by the namespace alone either.
fn unreached(actor: Actor, attack: &str, listener: Bind, arguments: fn(&Listener) -> Vec<OsString>) {
    let ground = Ground::new(actor);
    let reached = listener().expect("bound");
    ground.sandbox().without(&["network"]).attack(attack, arguments(&reached)).assert_succeeded();
    assert!(actor.is_bare() || reached.reached_within(DEADLINE));

    let unreached = listener().expect("bound");
    ground.sandbox().attack(attack, arguments(&unreached)).assert_denied();
    let weak = ["landlock", "seccomp", "capabilities", "no-new-privileges"];
    ground.sandbox().without(&weak).attack(attack, arguments(&unreached)).assert_denied();
    assert_eq!(unreached.close(), 0);
}

fn port(host: &str, listener: &Listener, more: &[&str]) -> Vec<OsString> {
    let mut arguments = vec![host.into(), listener.port().to_string().into()];
    arguments.extend(more.iter().map(OsString::from));
    arguments
}

fn tcp_reaches_nobody(actor: Actor) {
    unreached(actor, "tcp", Listener::tcp, |at| port("127.0.0.1", at, &[]));
    unreached(actor, "tcp6", Listener::tcp6, |at| port("::1", at, &[]));
}

fn udp_reaches_nobody(actor: Actor) {
    unreached(actor, "udp", Listener::udp, |at| port("127.0.0.1", at, &["expect-echo"]));
    unreached(actor, "udp6", Listener::udp6, |at| port("::1", at, &["expect-echo"]));
}

fn dns_reaches_nobody(actor: Actor) {
    unreached(actor, "dns", Listener::udp, |at| port("127.0.0.1", at, &["forbidden.example"]));
    // Through the system's resolver there is no name but those in files.
    let ground = Ground::new(actor);
    ground.sandbox().attack("resolve", ["localhost"]).assert_succeeded();
    ground.sandbox().attack("resolve", ["example.com"]).assert_denied();
}

/// Addresses that are anybody's: the machine's own, the cloud's, and the world's.
fn no_address_has_a_route(actor: Actor) {
    let ground = Ground::new(actor);
    for address in ["169.254.169.254", "10.0.0.1", "192.168.1.1", "172.17.0.1", "1.1.1.1"] {
        ground.sandbox().deny_all(&[
            ("tcp", vec![address.into(), "80".into()]),
            ("udp", vec![address.into(), "53".into(), "expect-echo".into()]),
        ]);
    }
    if actor.is_bare() {
        return;
    }
    let ended =
        ground.sandbox().shell("cat /proc/net/dev | tail -n +3 | cut -d: -f1; wc -l </proc/net/route");
    assert_eq!(
        String::from_utf8_lossy(&ended.output.stdout).split_whitespace().collect::<Vec<_>>(),
        ["lo", "1"]
    );
}

fn icmp_reaches_nobody(actor: Actor) {
    let ground = Ground::new(actor);
    if actor.is_root() {
        let open = actor.off(&["network", "seccomp", "capabilities", "landlock"]);
        ground.sandbox().without(&open).attack("icmp", ["127.0.0.1"]).assert_succeeded();
    }
    let own = ground.sandbox().attack("icmp", ["127.0.0.1"]);
    match actor.is_contained() {
        false => drop(own.assert_denied()),
        // An engine lets everybody in a network namespace send echo requests: here to nobody but itself.
        true => drop(own.assert_succeeded()),
    }
    ground.sandbox().attack("icmp", ["1.1.1.1"]).assert_denied();
}

/// The namespace and Landlock each hold these alone.
fn abstract_sockets_of_the_host_cannot_be_reached(actor: Actor) {
    let cases: [(&str, Bind); 2] = [
        ("unix-abstract", Listener::unix_abstract),
        ("unix-abstract-datagram", Listener::unix_abstract_datagram),
    ];
    for (attack, listener) in cases {
        let ground = Ground::new(actor);
        let reached = listener().expect("bound");
        let open = ["network", "landlock"];
        ground.sandbox().without(&open).attack(attack, [reached.name()]).assert_succeeded();
        assert!(actor.is_bare() || reached.reached_within(DEADLINE));
        let unreached = listener().expect("bound");
        for without in [&[][..], &["landlock"], &["landlock", "seccomp"]] {
            ground.sandbox().without(without).attack(attack, [unreached.name()]).assert_denied();
        }
        if kernels::landlock_has_scopes("abstract_sockets_of_the_host_cannot_be_reached") {
            ground.sandbox().without(&["network"]).attack(attack, [unreached.name()]).assert_denied();
        }
        assert_eq!(unreached.close(), 0);
    }
}

fn on_a_path(ground: &Ground, attack: &str, path: &Path) -> Listener {
    let listener = if attack == "unix-path" { Listener::unix(path) } else { Listener::unix_datagram(path) };
    let listener = listener.expect("bound");
    ground.give(path);
    listener
}

const ON_PATHS: [&str; 2] = ["unix-path", "unix-path-datagram"];

/// As Docker's, the message bus's and the key agent's: out of sight.
fn sockets_on_paths_outside_cannot_be_reached(actor: Actor) {
    for attack in ON_PATHS {
        let ground = Ground::new(actor);
        let path = ground.outside_folder().join("socket");
        let reached = on_a_path(&ground, attack, &path);
        let open = actor.off(&["private-home"]);
        let shown = ground.sandbox().without(&open).attack(attack, [&path]);
        shown.assert_succeeded();
        assert!(shown.is_elsewhere() || reached.reached_within(DEADLINE));
        drop(reached);
        std::fs::remove_file(&path).expect("removed");

        let unreached = on_a_path(&ground, attack, &path);
        let agent = |ended: Ended| ended.assert_denied();
        agent(ground.sandbox().attack(attack, [&path]));
        agent(ground.sandbox().without(&["landlock", "seccomp"]).attack(attack, [&path]));
        // Not even where a variable leads to it.
        let run = ground.sandbox().pass("SSH_AUTH_SOCK", &path);
        run.shell("test ! -e \"$SSH_AUTH_SOCK\"");
        agent(run.attack("secrets-scan", [""; 0]));
        assert_eq!(unreached.close(), 0);
    }
    let ground = Ground::new(actor);
    let well_known =
        ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"];
    ground.sandbox().deny_all(&well_known.map(|path| ("unix-path", vec![path.into()])));
}

/// A server that listens in the repository, as development servers do, is on the host all the same.
fn a_socket_in_the_workspace_cannot_be_reached(actor: Actor) {
    for attack in ON_PATHS {
        let ground = Ground::new(actor);
        let path = ground.repo().join("socket");
        let listener = on_a_path(&ground, attack, &path);
        ground.native(attack, [path.clone().into()]).assert_succeeded();
        assert!(listener.reached_within(DEADLINE));
        drop(listener);
        std::fs::remove_file(&path).expect("removed");

        let unreached = on_a_path(&ground, attack, &path);
        for run in [ground.sandbox(), ground.sandbox().write("**")] {
            run.attack(attack, [&path]).assert_denied();
        }
        assert_eq!(unreached.close(), 0);
    }
}

/// To be shown a folder is to read it, not to talk to who listens in it.
fn a_socket_in_a_folder_that_may_be_read_cannot_be_reached(actor: Actor) {
    for attack in ON_PATHS {
        let ground = Ground::new(actor);
        let path = ground.outside_folder().join("socket");
        let unreached = on_a_path(&ground, attack, &path);
        ground.sandbox().read(ground.outside_folder()).attack(attack, [&path]).assert_denied();
        assert_eq!(unreached.close(), 0);
    }
}

fn who_listens_inside_is_heard_by_nobody(actor: Actor) {
    let ground = Ground::new(actor);
    for (without, reachable) in [(&["network"][..], true), (&[], false)] {
        let mut command = ground.sandbox().without(without).direct(ground.bin().join("adversary"));
        // Who comes in, comes in at once; who doesn't is waited for a little.
        command.args(["listen-visible", "0", if reachable { "30000" } else { "1000" }]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("agency starts");
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
        stderr.read_line(&mut line).expect("a line");
        let port: u16 =
            line.trim().strip_prefix("ready ").and_then(|port| port.parse().ok()).expect("a port");
        assert_eq!(TcpStream::connect(("127.0.0.1", port)).is_ok(), reachable);
        let ended = Ended::new("listen-visible", child.wait_with_output().expect("ended"));
        if reachable {
            ended.assert_succeeded();
        } else {
            ended.assert_denied();
        }
    }
}

/// What an agent's own processes need among themselves is there.
fn its_own_processes_can_talk_to_each_other(actor: Actor) {
    let ground = Ground::new(actor);
    ground.sandbox().attack("loopback-inside", [""; 0]).assert_succeeded();
    ground.sandbox().attack("socketpair-inside", [""; 0]).assert_succeeded();
}

as_both! {
    tcp_reaches_nobody,
    udp_reaches_nobody,
    dns_reaches_nobody,
    no_address_has_a_route,
    icmp_reaches_nobody,
    abstract_sockets_of_the_host_cannot_be_reached,
    sockets_on_paths_outside_cannot_be_reached,
    a_socket_in_the_workspace_cannot_be_reached,
    a_socket_in_a_folder_that_may_be_read_cannot_be_reached,
    who_listens_inside_is_heard_by_nobody,
    its_own_processes_can_talk_to_each_other,
}
