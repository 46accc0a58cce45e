//! What is left of a container when `agency` ends, however it ends: nothing.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use agency_tests::engine::{Engine, OWNER};
use agency_tests::processes::{Marker, VARIABLE, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{DEADLINE, Ground, for_each};

/// How long anything may be left.
const AFTERLIFE: Duration = Duration::from_secs(5);

/// What is mounted of a workspace. Others' containers come and go on the same engine.
fn mounts(ground: &Ground) -> Vec<String> {
    let root = ground.repository.path().display().to_string();
    let all = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    all.lines().filter(|line| line.contains(&root)).map(str::to_owned).collect()
}

/// A container with a daemon in it that does not listen to polite signals.
fn start(ground: &Ground, marker: &Marker) -> Child {
    let script = "trap '' TERM INT HUP; setsid sleep 600 & echo ready; while :; do sleep 600; done";
    let mut command = ground.script_in(&ground.image, &["--env", VARIABLE, "--write", "src/**"], script);
    command.env(VARIABLE, marker.as_str()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("agency starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    assert_eq!(ground.engine.containers_of(Some(child.id())).len(), 1);
    child
}

fn gone(engine: &Engine, pid: u32) -> bool {
    engine.containers_of(Some(pid)).is_empty()
}

#[test]
fn however_agency_is_ended_no_container_is_left() {
    for_each("however_agency_is_ended_no_container_is_left", |ground| {
        for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let (marker, before) = (Marker::new(), mounts(ground));
            let mut child = start(ground, &marker);
            let pid = child.id();
            kill(Pid::from_raw(pid as i32), signal).expect("sent");
            let sent = Instant::now();
            let status = child.wait().expect("ended");
            assert_eq!(status.code(), (signal != Signal::SIGKILL).then_some(130), "{signal}: {status}");
            // Nobody but the container's own first process is there to end it after a kill.
            assert!(wait_until(AFTERLIFE, || gone(&ground.engine, pid)), "{signal}: a container is left");
            marker.gone_within(AFTERLIFE).unwrap_or_else(|left| panic!("{signal}: {left:?} are left"));
            assert!(sent.elapsed() < Duration::from_secs(15), "{signal}: it took {:?}", sent.elapsed());
            assert_eq!(mounts(ground), before, "{signal}");
        }
        // The files of the one that was killed are swept by the next.
        ground.script(&[], "true").assert_prints("");
        assert_eq!(ground.repository.leftovers().expect("a folder"), Vec::<std::path::PathBuf>::new());
    });
}

/// It is waited for, however the command ended.
#[test]
fn when_agency_returns_its_container_is_gone() {
    for_each("when_agency_returns_its_container_is_gone", |ground| {
        for (script, code) in
            [("echo new >src/new", 0), ("setsid sleep 600 & exit 7", 7), ("kill -9 $$", 137)]
        {
            let flags = ["--write", "src/**", "--apply"];
            let mut child = ground.script_in(&ground.image, &flags, script).spawn().expect("agency starts");
            let status = child.wait().expect("ended");
            assert!(gone(&ground.engine, child.id()), "{script}: a container is left");
            assert_eq!(status.code(), Some(code), "{script}");
        }
        assert!(ground.repository.path().join("src/new").exists());
    });
}

/// Stands before an engine at a socket of its own. It passes everything on, notes what was asked, and hangs up on whoever
/// would wait for a container.
fn impatient(engine: &Engine, folder: &Path) -> (String, Arc<Mutex<Vec<String>>>) {
    let (socket, asked) = (folder.join("socket"), Arc::new(Mutex::new(Vec::new())));
    let listener = UnixListener::bind(&socket).expect("bound");
    for path in [folder, &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("opened");
    }
    let (behind, noted) = (engine.socket().to_owned(), asked.clone());
    thread::spawn(move || {
        for caller in listener.incoming() {
            let (caller, behind, noted) = (caller.expect("a caller"), behind.clone(), noted.clone());
            thread::spawn(move || {
                // The head of a question is written at once; so it is read at once.
                let mut head = [0; 64 * 1024];
                let length = (&caller).read(&mut head).expect("a question");
                let text = String::from_utf8_lossy(&head[..length]);
                let line = text.lines().next().unwrap_or_default().to_owned();
                let waits = line.contains("/wait");
                noted.lock().expect("alone").push(line);
                if waits {
                    return;
                }
                let mut engine = UnixStream::connect(behind).expect("an engine");
                engine.write_all(&head[..length]).expect("passed on");
                let (mut answers, mut back) = (&engine, &caller);
                thread::scope(|both| {
                    both.spawn(|| io::copy(&mut &caller, &mut &engine));
                    let _ = io::copy(&mut answers, &mut back);
                    let _ = caller.shutdown(Shutdown::Both);
                    let _ = engine.shutdown(Shutdown::Both);
                });
            });
        }
    });
    (format!("unix://{}", socket.display()), asked)
}

#[test]
fn an_engine_that_does_not_say_when_a_container_is_gone_is_asked_to_remove_it() {
    for_each("an_engine_that_does_not_say_when_a_container_is_gone_is_asked_to_remove_it", |ground| {
        let folder = tempfile::tempdir().expect("a folder");
        let (address, asked) = impatient(&ground.engine, folder.path());
        let mut command = ground.script_in(&ground.image, &[], "true");
        let mut child = command.env("DOCKER_HOST", address).spawn().expect("agency starts");
        let status = child.wait().expect("ended");
        assert!(gone(&ground.engine, child.id()), "a container is left");
        assert_eq!(status.code(), Some(0));
        let asked = asked.lock().expect("alone").clone();
        let after = asked.iter().skip_while(|line| !line.contains("/wait")).nth(1);
        assert!(after.is_some_and(|line| line.starts_with("DELETE ")), "{asked:#?}");
    });
}

/// At whatever moment it is killed: while its container is asked for, made, started, called from, or waits at the gate.
#[test]
fn a_kill_at_any_moment_leaves_nothing_that_the_next_run_does_not_remove() {
    for_each("a_kill_at_any_moment_leaves_nothing_that_the_next_run_does_not_remove", |ground| {
        let whole = Instant::now();
        ground.script(&[], "true").assert_prints("");
        let whole = whole.elapsed();
        let mut killed = Vec::new();
        for part in 0..12_u32 {
            let marker = Marker::new();
            let mut command = ground.script_in(&ground.image, &["--env", VARIABLE], "sleep 600");
            let mut child = command.env(VARIABLE, marker.as_str()).spawn().expect("agency starts");
            // The moment is what is chosen here, and any will do.
            thread::sleep(whole * part / 12);
            child.kill().expect("killed");
            child.wait().expect("ended");
            killed.push((child.id(), marker));
        }
        for (_, marker) in &killed {
            marker.gone_within(DEADLINE).unwrap_or_else(|left| panic!("{left:?} are left"));
        }
        // What the engine was still asked for may be made after its owner's death; then it is the next one's to remove.
        let removed = || {
            ground.script(&[], "true").assert_prints("");
            killed.iter().all(|(pid, _)| gone(&ground.engine, *pid))
        };
        assert!(wait_until(AFTERLIFE, removed), "a container is left");
        assert_eq!(ground.repository.leftovers().expect("a folder"), Vec::<std::path::PathBuf>::new());
    });
}

/// Killed between making a container and starting it: by whoever stands between it and its engine.
#[test]
fn what_the_dead_made_and_did_not_start_is_removed_and_what_is_of_the_living_is_not() {
    for_each("what_the_dead_made_and_did_not_start_is_removed_and_what_is_of_the_living_is_not", |ground| {
        let folder = tempfile::tempdir().expect("a folder");
        let address = deadly(&ground.engine, folder.path());
        let mut command = ground.script_in(&ground.image, &[], "true");
        let mut child = command.env("DOCKER_HOST", address).spawn().expect("agency starts");
        let killed = child.id();
        assert_eq!(child.wait().expect("ended").code(), None, "it was killed");
        assert_eq!(ground.engine.containers_of(Some(killed)).len(), 1, "made, and not started");
        // One that lives is at work meanwhile.
        let marker = Marker::new();
        let mut living = start(ground, &marker);
        // An engine is known by its socket, and this is another one.
        ground.script(&[], "true").assert_prints("");
        assert_eq!(ground.engine.containers_of(Some(killed)).len(), 1);
        let again = folder.path().join("socket");
        fs::remove_file(&again).expect("removed");
        std::os::unix::fs::symlink(ground.engine.socket(), &again).expect("linked");
        let next = ground
            .script_in(&ground.image, &[], "true")
            .env("DOCKER_HOST", format!("unix://{}", again.display()))
            .status();
        assert!(next.expect("agency starts").success());
        assert!(gone(&ground.engine, killed), "a container is left");
        assert_eq!(ground.engine.containers_of(Some(living.id())).len(), 1, "it is alive");
        living.kill().expect("killed");
        living.wait().expect("ended");
        marker.gone_within(DEADLINE).expect("nobody is left");
    });
}

/// Stands before an engine and kills whoever asks it to start a container.
fn deadly(engine: &Engine, folder: &Path) -> String {
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).expect("bound");
    for path in [folder, &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("opened");
    }
    let behind = engine.socket().to_owned();
    thread::spawn(move || {
        for caller in listener.incoming() {
            let (caller, behind) = (caller.expect("a caller"), behind.clone());
            thread::spawn(move || {
                let mut engine = UnixStream::connect(behind).expect("an engine");
                let mut back = caller.try_clone().expect("the same");
                let mut answers = engine.try_clone().expect("the same");
                thread::spawn(move || {
                    let _ = io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                let mut piece = [0; 64 * 1024];
                while let Ok(length @ 1..) = (&caller).read(&mut piece) {
                    let text = String::from_utf8_lossy(&piece[..length]);
                    if text.lines().next().is_some_and(|line| line.contains("/start")) {
                        let asker = rustix::net::sockopt::socket_peercred(&caller).expect("somebody").pid;
                        kill(Pid::from_raw(asker.as_raw_nonzero().get()), Signal::SIGKILL).expect("killed");
                        return;
                    }
                    engine.write_all(&piece[..length]).expect("passed on");
                }
            });
        }
    });
    format!("unix://{}", socket.display())
}

/// Whatever labels an image brings, whoever they name: containers and volumes of others are left alone.
#[test]
fn an_image_with_our_labels_does_not_make_a_strangers_container_ours() {
    for_each("an_image_with_our_labels_does_not_make_a_strangers_container_ours", |ground| {
        let dead = "0b6a0ee8-0000-0000-0000-000000000000/1/1/5";
        let nonce = "0123456789abcdef0123456789abcdef";
        let labels = format!("LABEL {OWNER}={dead} io.agency.nonce={nonce}");
        let image = ground.engine.import(&agency_tests::engine::toolbox(), &[&labels]);
        let volume = ground.engine.ask(&["volume", "create"]);
        let named = format!("agency-{nonce}");
        let make = |more: &[&str]| {
            let mounted = format!("{volume}:/data");
            let flags = ["create", "--network", "none", "--volume", &mounted];
            ground.engine.ask(&[&flags, more, &[&image, "true"]].concat())
        };
        let strangers = [make(&[]), make(&["--name", &named])];
        // Also where the agent itself works in such an image, and more than once.
        for image in [&ground.image, &image, &ground.image] {
            let mut command = ground.script_in(image, &[], "true");
            assert!(command.status().expect("agency starts").success());
        }
        let there = ground.engine.ask(&["ps", "--all", "--quiet", "--no-trunc"]);
        for id in &strangers {
            assert!(there.contains(id.as_str()), "{id} was somebody's");
            ground.engine.ask(&["rm", id]);
        }
        ground.engine.ask(&["volume", "rm", &volume]);
    });
}

/// Somebody else removes the container while the agent works: that is said, and nothing of it lands.
#[test]
fn a_container_that_is_ended_from_outside_lands_nothing() {
    for_each("a_container_that_is_ended_from_outside_lands_nothing", |ground| {
        let script = "echo new >src/new; echo ready >&2; sleep 600";
        let mut command = ground.script_in(&ground.image, &["--write", "src/**", "--apply"], script);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("agency starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n");
        let id = ground.engine.containers_of(Some(child.id())).remove(0);
        ground.engine.ask(&["rm", "--force", &id]);
        let rest: Vec<String> = stderr.lines().map_while(Result::ok).collect();
        assert_eq!(child.wait().expect("ended").code(), Some(125), "{rest:?}");
        assert!(rest.iter().any(|line| line.contains("the container was ended from outside")), "{rest:?}");
        assert!(!ground.repository.path().join("src/new").exists());
    });
}
