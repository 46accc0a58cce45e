//! What can't be had is said in a line, and nothing starts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixListener;

use agency_tests::repository::{Actor, Repository, actors};

use crate::{Ended, for_each};

#[test]
fn an_image_that_is_nowhere_is_said_to_be() {
    for_each("an_image_that_is_nowhere_is_said_to_be", |ground| {
        // A registry on this machine, where none is: nobody else is asked.
        let ended = Ended::of(ground.script_in("localhost:9/agency-tests/none:1", &[], "echo started"));
        let text = ended.stderr();
        assert_eq!((ended.code(), ended.stdout().as_str()), (Some(3), ""), "{text}");
        assert!(text.contains("localhost:9/agency-tests/none:1"), "{text}");
        // Who waits is told that it is looked for; then what is wrong, and what to do.
        assert!(text.contains("can't be fetched") && text.lines().count() <= 3, "{text}");
    });
}

#[test]
fn an_engine_that_cannot_be_used_is_named() {
    for_each("an_engine_that_cannot_be_used_is_named", |ground| {
        let asked = |host: &str| {
            let mut command = ground.script_in(&ground.image, &[], "echo started");
            command.env("DOCKER_HOST", host);
            Ended::of(command)
        };
        asked("unix:///nonexistent/socket")
            .assert_refused(3, "no container engine answers at /nonexistent/socket");
        asked("tcp://127.0.0.1:2375").assert_refused(3, "DOCKER_HOST is tcp://127.0.0.1:2375");
        asked("ssh://me@host").assert_refused(3, "DOCKER_HOST is ssh://me@host");
        // Somebody listens, and is no engine.
        let folder = tempfile::tempdir().expect("a folder");
        use std::os::unix::fs::PermissionsExt;
        let open = |path: &std::path::Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("opened");
        };
        let (socket, file) = (folder.path().join("socket"), folder.path().join("file"));
        std::fs::write(&file, "").expect("written");
        open(&file);
        let listener = UnixListener::bind(&socket).expect("bound");
        open(folder.path());
        open(&socket);
        asked(&format!("unix://{}", file.display())).assert_refused(3, "no container engine answers at");
        let hangs_up = std::thread::spawn(move || {
            drop(listener.accept());
        });
        let ended = asked(&format!("unix://{}", socket.display()));
        assert_eq!((ended.code(), ended.stdout().as_str()), (Some(3), ""), "{}", ended.stderr());
        hangs_up.join().expect("it hung up");
    });
}

/// As an ordinary user who is not in the group.
#[test]
fn an_engine_that_is_not_for_this_user_is_not_used() {
    for_each("an_engine_that_is_not_for_this_user_is_not_used", |ground| {
        if ground.repository.owner().is_none() {
            return;
        }
        let stranger = Repository::new(Actor::User, &[("file", "x\n")]).expect("a repository");
        let mut command = stranger.sandbox(&["--isolation", "container", "--image", &ground.image]);
        command.args(["--", "echo", "started"]).env("DOCKER_HOST", ground.engine.address());
        Ended::of(command).assert_refused(3, "may not be used by this user");
    });
}

/// No engine is asked for these.
#[test]
fn mistakes_in_the_arguments_are_told_from_what_cannot_be_had() {
    for actor in actors() {
        let repository = Repository::new(actor, &[("file", "x\n")]).expect("a repository");
        let run = |arguments: &[&str]| {
            let mut command = repository.sandbox(arguments);
            command.args(["--", "echo", "started"]).env("DOCKER_HOST", "unix:///nonexistent");
            Ended::of(command)
        };
        run(&["--isolation", "container"]).assert_refused(2, "--image");
        run(&["--image", "busybox"]).assert_refused(2, "--image is for --isolation container");
        run(&["--isolation", "landlock", "--image", "busybox"]).assert_refused(2, "--image is for");
        for name in [
            "",
            "../x",
            "a/../b",
            "a//b",
            "-privileged",
            "a b",
            "a?force=1",
            "a\nb",
            "ä",
            "a/",
            "a#b",
            "a%2fb",
        ] {
            let ended = run(&["--isolation", "container", &format!("--image={name}")]);
            assert_eq!(
                (ended.code(), ended.stdout().as_str()),
                (Some(2), ""),
                "{name:?}: {}",
                ended.stderr()
            );
        }
        let layer = run(&["--isolation", "container", "--image", "busybox", "--layer", "memory"]);
        layer.assert_refused(3, "can't hold changes in memory");
    }
}

/// An engine is spoken to in JSON, which has no word for a name that is no text.
#[test]
fn a_path_that_is_no_text_is_refused() {
    for_each("a_path_that_is_no_text_is_refused", |ground| {
        let folder = tempfile::Builder::new().prefix("agency-odd-").tempdir().expect("a folder");
        let odd = folder.path().join(OsString::from_vec(b"no\xfftext".to_vec()));
        std::fs::write(&odd, "x").expect("written");
        let mut command = ground.agency(&["sandbox", "--isolation", "container", "--image", &ground.image]);
        command.arg("--read").arg(&odd).args(["--", "echo", "started"]);
        Ended::of(command).assert_refused(3, "it is not text");
    });
}

/// Something that was asked for and is not held: the run is refused, and the attestation is what says so.
#[test]
fn what_was_asked_for_and_is_not_held_is_refused() {
    for_each("what_was_asked_for_and_is_not_held_is_refused", |ground| {
        ground.script(&["--without", "pid-namespace"], "echo started").assert_refused(3, "private-proc");
        let engine = ground.engine.socket().to_str().expect("text");
        ground.script(&["--read", engine], "echo started").assert_refused(2, "it is a socket");
        let hidden = ground.repository.path().join("docs/guide.md");
        let (shown, hidden) = (hidden.parent().expect("a folder"), hidden.to_str().expect("text"));
        // What is hidden of the workspace is not copied; shown again, it is in sight.
        let flags = ["--hide", hidden, "--read", shown.to_str().expect("text")];
        ground.script(&flags, "echo started").assert_refused(3, "hidden-paths");
        ground.script(&["--hide", hidden], "ls docs").assert_prints("");
    });
}
