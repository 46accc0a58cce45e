//! What an agent finds in a container, and what it can't do with it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use agency_tests::listeners::Listener;

use crate::{DEADLINE, SECOND_FENCE, for_each, tried};

/// Not by its socket, of any name; not by the variable that leads to it, should that be passed on; not by TCP. With it, an
/// agent could have whatever it likes executed in any container, and the host with it.
#[test]
fn the_engine_is_out_of_reach() {
    for_each("the_engine_is_out_of_reach", |ground| {
        // Whoever runs it can reach the engine.
        let mut outside = ground.repository.command("curl");
        outside.args(["--silent", "--fail", "--unix-socket"]).arg(ground.engine.socket());
        assert_eq!(outside.arg("http://engine/_ping").output().expect("curl starts").stdout, b"OK");

        let script = tried(&[
            "test -e /run/docker.sock || test -e /var/run/docker.sock || test -e /run/podman/podman.sock",
            "test -e /run/containerd/containerd.sock",
            "test -n \"$DOCKER_HOST\" && test -e \"${DOCKER_HOST#unix://}\"",
            "nc -w 1 127.0.0.1 2375 </dev/null",
            "nc -w 1 172.17.0.1 2375 </dev/null",
            "nsenter -t 1 -m -- true",
            "ls /proc/1/root/ | grep -q .",
        ]) + "find / -type s 2>/dev/null\ntrue";
        for flags in [&[][..], &["--env", "DOCKER_HOST"], &["--without", SECOND_FENCE]] {
            // With the second fence off, the first process can be looked into no further than at its own container.
            ground.script(flags, &script).assert_prints("");
        }
    });
}

/// What its first process called through, and the program it is: both are of no use to who comes after it.
#[test]
fn the_door_is_closed_and_the_program_cannot_be_changed() {
    for_each("the_door_is_closed_and_the_program_cannot_be_changed", |ground| {
        let program = ground.repository.agency();
        let look = || {
            let meta = fs::metadata(program).expect("there");
            (meta.ino(), meta.len(), meta.mode(), meta.mtime(), meta.mtime_nsec())
        };
        let before = look();
        let script = tried(&[
            "ls -A /.agency/door | grep -q .",
            "test -e /.agency/door/socket",
            "echo x >/.agency/door/socket",
            "mkdir /.agency/door/socket",
            "ln -s /tmp /.agency/door/socket",
            "mv /.agency/door /.agency/other",
            "rmdir /.agency/door",
            "chmod 777 /.agency/door",
            "touch /.agency/door",
            "echo x >/.agency/agency",
            "echo x >>/.agency/agency",
            "rm -f /.agency/agency",
            "mv /.agency/agency /tmp/",
            "chmod 777 /.agency/agency",
            "touch /.agency/agency",
            "touch /.agency/new",
            "mv /.agency /.other",
            // To be one more first process takes somebody to call.
            "/.agency/agency first-process",
        ]);
        for flags in [&[][..], &["--without", SECOND_FENCE]] {
            ground.script(flags, &script).assert_prints("");
        }
        assert_eq!(look(), before);
        // They are there to be attacked.
        ground.script(&[], "test -d /.agency/door && test -x /.agency/agency").assert_prints("");
    });
}

/// Whoever calls from elsewhere is told apart by the kernel: here somebody of the caller's own, who is not in the container.
#[test]
fn nobody_else_can_call_in_its_place() {
    for_each("nobody_else_can_call_in_its_place", |ground| {
        // The door is in the run's folder as soon as that is there; this one calls before any container can.
        let runs = ground.repository.state_home().join("repositories/*/sandboxes");
        let call = "import glob, os, socket, sys, time\n\
             end = time.time() + 60\n\
             print('ready', flush=True)\n\
             while time.time() < end:\n\
             \x20   for path in glob.glob(sys.argv[1] + '/*/door/socket'):\n\
             \x20       try:\n\
             \x20           caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
             \x20           os.chdir(os.path.dirname(path)); caller.connect('socket')\n\
             \x20           sys.exit(0 if caller.recv(64) == b'' else 1)\n\
             \x20       except OSError: pass\n\
             sys.exit(2)";
        let mut caller = ground.repository.command("python3");
        let mut caller =
            caller.args(["-c", call]).arg(&runs).stdout(Stdio::piped()).spawn().expect("python starts");
        let mut line = String::new();
        BufReader::new(caller.stdout.take().expect("stdout")).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n");
        let mut command = ground.script_in(&ground.image, &[], "echo started");
        let agency = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("agency starts");
        let pid = agency.id();
        let output = agency.wait_with_output().expect("ended");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        // Root's agent is another user, which is seen first.
        let (code, said) = match ground.repository.owner() {
            Some(_) => (125, "somebody else called in the container's place"),
            None => (3, "as user 0 of this host"),
        };
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{text}");
        assert!(text.contains(said), "{text}");
        // It was hung up on, and handed nothing.
        assert_eq!(caller.wait().expect("ended").code(), Some(0));
        assert_eq!(ground.engine.containers_of(Some(pid)), Vec::<String>::new());
        ground.script(&[], "echo started").assert_prints("started\n");
    });
}

/// Objects of the real repository are borrowed, where a copy would take long.
#[test]
fn borrowed_objects_can_be_read_and_nothing_else() {
    for_each("borrowed_objects_can_be_read_and_nothing_else", |ground| {
        let script = "set -e; test \"$(git log --format=%s)\" = First; \
                      object=$(find /.agency/objects -type f | head -n 1); test -r \"$object\"; set +e; "
            .to_owned()
            + &tried(&[
                "chmod 666 \"$object\"",
                "echo x >\"$object\"",
                "rm -f \"$object\"",
                "touch \"$object\"",
                "mv \"$object\" /tmp",
                "mkdir /.agency/objects/0/new",
                "ln \"$object\" src/linked",
            ]);
        for flags in [&["--write", "**"][..], &["--write", "**", "--without", SECOND_FENCE]] {
            ground.script(flags, &script).assert_prints("");
        }
        let fsck = ground.repository.command("git").args(["fsck", "--strict"]).output().expect("git starts");
        assert!(fsck.status.success(), "{fsck:?}");
    });
}

/// Settings of the kernel, its devices and its groups of processes.
#[test]
fn nothing_of_the_kernel_can_be_set() {
    for_each("nothing_of_the_kernel_can_be_set", |ground| {
        // Each is opened for writing, by a command that does nothing else.
        let script = "find /proc/sys /sys -type f 2>/dev/null | while read -r file; do \
                      if true 2>/dev/null 3>>\"$file\"; then echo \"$file\"; fi; done 2>/dev/null; "
            .to_owned()
            + &tried(&[
                "echo x >/proc/sys/kernel/hostname",
                "echo core >/proc/sys/kernel/core_pattern",
                "echo h >/proc/sysrq-trigger",
                "echo 1 >/proc/sys/vm/drop_caches",
                "mkdir /sys/fs/cgroup/new",
                "mkdir /sys/fs/cgroup/memory/new",
                "mount -t tmpfs none /tmp",
                "hostname other",
                "cat /proc/kcore",
                "cat /proc/timer_list | grep -q .",
            ]);
        for flags in [&[][..], &["--without", SECOND_FENCE]] {
            ground.script(flags, &script).assert_prints("");
        }
    });
}

/// A folder of the copy becomes a link that leads out: what is collected is the link, and it is judged.
#[test]
fn a_link_in_place_of_a_folder_of_the_copy_is_judged() {
    for_each("a_link_in_place_of_a_folder_of_the_copy_is_judged", |ground| {
        let outside = tempfile::Builder::new().prefix("agency-outside-").tempdir_in("/srv");
        let outside = outside.or_else(|_| tempfile::tempdir()).expect("a folder");
        fs::write(outside.path().join("file"), "outside\n").expect("written");
        let target = outside.path().display().to_string();
        let cases = [
            ("src/**", format!("rm -r src/inner && ln -s {target} src/inner"), "src/inner"),
            ("**", format!("rm -r src && ln -s {target} src"), "src"),
            ("**", "rm -r docs && ln -s / docs && mkdir -p src/x && echo x >src/x/y".to_owned(), "docs"),
            ("**", "rm -r docs && ln -s ../../../../etc docs".to_owned(), "docs"),
        ];
        for (scope, script, path) in cases {
            let ended = ground.script(&["--write", scope, "--apply", "--json"], &script);
            assert_eq!(ended.code(), Some(20), "{}", ended.stderr());
            let violations = ended.json()["harvest"]["violations"].as_array().cloned().unwrap_or_default();
            let judged = |one: &serde_json::Value| one["path"] == path && one["reason"] == "link_leaves_tree";
            assert!(violations.iter().any(judged), "{violations:#?}");
        }
        assert_eq!(ground.repository.status().expect("a status"), "");
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 1);
    });
}

/// The sockets that lead out are opened by the first process, in the container's own network.
#[test]
fn with_a_list_what_is_on_it_is_reached_and_nothing_else() {
    for_each("with_a_list_what_is_on_it_is_reached_and_nothing_else", |ground| {
        let (listed, other) = (Listener::tcp().expect("bound"), Listener::tcp().expect("bound"));
        let list = format!("127.0.0.1:{}", listed.port());
        let script = format!(
            "echo hello | nc -w 5 127.0.0.1 {} | head -n 1; echo hello | nc -w 1 127.0.0.1 {}; \
             tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '",
            listed.port(),
            other.port()
        );
        let ended = ground.script(&["--net", &list], &script);
        let text = ended.stdout();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("\nlo\n"), "{text}{}", ended.stderr());
        assert!(listed.reached_within(DEADLINE));
        assert_eq!(other.close(), 0);
        // It is the list that leads there.
        let alone = Listener::tcp().expect("bound");
        let script = format!("echo hello | nc -w 1 127.0.0.1 {} || echo nobody", alone.port());
        ground.script(&[], &script).assert_prints("nobody\n");
        assert_eq!(alone.close(), 0);
    });
}
