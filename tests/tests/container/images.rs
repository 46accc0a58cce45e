//! Images that want more than to be looked at.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use agency_tests::adversary;
use agency_tests::engine::{Archive, OWNER, toolbox};
use agency_tests::processes::wait_until;
use nix::sys::stat::{major, minor};

use crate::{DEADLINE, Ended, for_each, tried};

/// Whoever it says it is, whatever it wants to run beside the agent or before it, wherever it wants to keep something.
#[test]
fn what_an_image_declares_gives_nothing() {
    for_each("what_an_image_declares_gives_nothing", |ground| {
        let mut archive = toolbox();
        archive.folder("data", 0o777);
        archive.folder("elsewhere", 0o777);
        archive.file("elsewhere/evil.so", 0o755, b"no library at all");
        let image = ground.engine.import(
            &archive,
            &[
                "USER root",
                "ENTRYPOINT [\"/bin/touch\", \"/elsewhere/entered\"]",
                "CMD [\"/bin/touch\", \"/data/commanded\"]",
                "ENV LD_PRELOAD=/elsewhere/evil.so",
                "ENV HOME=/elsewhere",
                "ENV OF_THE_IMAGE=yes",
                "HEALTHCHECK --interval=1s CMD touch /data/healthy",
                "VOLUME /data",
                "WORKDIR /elsewhere",
                "ONBUILD RUN touch /elsewhere/built",
                &format!("LABEL {OWNER}=of-a-time-before/1/1/1"),
            ],
        );
        let uid = ground.repository.owner().map_or(0, |(uid, _)| uid);
        let volumes = || ground.engine.ask(&["volume", "ls", "--quiet"]);
        let volumes_before = volumes();
        // Everything that the image would have done with more than the agent's rights shows in here.
        let script = "id -u; id -g; pwd; echo $HOME $OF_THE_IMAGE; ls /elsewhere /data; echo x >/data/file; \
                      grep -c ' /data .* - tmpfs ' /proc/self/mountinfo; read -r line; ls /data; ls -A \"$HOME\"";
        let mut command = ground.script_in(&image, &[], script);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("agency starts");
        let pid = child.id();
        assert!(
            wait_until(DEADLINE, || ground.engine.containers_of(Some(pid)).len() == 1),
            "its label is our own"
        );
        let id = ground.engine.containers_of(Some(pid)).remove(0);
        let inspected = ground.engine.docker(&["inspect", &id]).output().expect("docker starts");
        if !inspected.status.success() {
            drop(child.stdin.take());
            let ended = Ended { output: child.wait_with_output().expect("ended") };
            panic!("its container is gone, and it ended with {:?}: {}", ended.code(), ended.stderr());
        }
        let told: serde_json::Value = serde_json::from_slice(&inspected.stdout).expect("JSON");
        assert_eq!(told[0]["State"]["Health"], serde_json::Value::Null);
        assert!(told[0]["Config"]["User"].as_str().is_some_and(|user| !user.starts_with("0:")));
        let kinds = told[0]["Mounts"].as_array().expect("a list").iter().map(|one| one["Type"].clone());
        assert!(
            kinds.clone().all(|kind| kind == "bind" || kind == "tmpfs"),
            "{:?}",
            kinds.collect::<Vec<_>>()
        );
        // Whoever comes meanwhile does not take it for one of the dead's, whatever the image says.
        ground.script(&[], "echo another").assert_prints("another\n");
        assert_eq!(ground.engine.containers_of(Some(pid)), [id]);
        drop(child.stdin.take());
        let ended = Ended { output: child.wait_with_output().expect("ended") };
        let text = ended.stdout();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr());
        match uid {
            0 => assert!(lines[0].starts_with("19") && lines[1].starts_with("19"), "{text}"),
            _ => assert_eq!(lines[0], uid.to_string()),
        }
        assert_eq!(lines[2], ground.repository.path().to_str().expect("text"));
        assert!(lines[3].ends_with(" yes") && !lines[3].starts_with("/elsewhere"), "{text}");
        let rest = ["/data:", "", "/elsewhere:", "evil.so", "1", "file", ".profile"];
        assert_eq!(lines[4..], rest, "{}", ended.stderr());
        assert_eq!(volumes(), volumes_before);
        // What is written to a volume goes nowhere: not to the next of the same image.
        let ended = Ended::of(ground.script_in(&image, &[], "ls /data"));
        ended.assert_prints("");
    });
}

/// Volumes over what is ours, or over what an agent works on.
#[test]
fn an_image_cannot_lay_a_volume_over_what_is_ours() {
    for_each("an_image_cannot_lay_a_volume_over_what_is_ours", |ground| {
        let repository = ground.repository.path().display().to_string();
        for volume in ["/.agency", "/.agency/door", "/.agency/agency", "/proc", &repository] {
            let image = ground.engine.import(&toolbox(), &[&format!("VOLUME {volume}")]);
            let ended = Ended::of(ground.script_in(
                &image,
                &["--write", "src/**", "--apply", "--json"],
                "cat docs/guide.md >&2; echo new >src/new",
            ));
            // Either it is refused, or it is as if it had not been asked for.
            match ended.code() {
                Some(3 | 125) => {
                    assert!(ended.output.stdout.is_empty() && !ended.stderr().contains("guide"), "{volume}");
                }
                Some(0) => {
                    assert!(ended.stderr().starts_with("guide\n"), "{volume}: {}", ended.stderr());
                    let new = ground.repository.read("src/new").expect("it landed");
                    assert_eq!(new, "new\n", "{volume}");
                    fs::remove_file(ground.repository.path().join("src/new")).expect("removed");
                }
                other => panic!("{volume}: {other:?}: {}", ended.stderr()),
            }
        }
    });
}

/// Set-user-id programs of root, as most images have some.
#[test]
fn a_setuid_program_of_an_image_gives_nothing() {
    for_each("a_setuid_program_of_an_image_gives_nothing", |ground| {
        let mut archive = toolbox();
        archive.file("bin/risen", 0o6755, &fs::read(adversary::binary()).expect("read"));
        archive.file("bin/busybox-risen", 0o6755, &fs::read("/bin/busybox").expect("read"));
        let image = ground.engine.import(&archive, &[]);
        let whoami =
            |flags: &[&str]| Ended::of(ground.script_in(&image, flags, "/bin/risen whoami")).stdout();
        let open = whoami(&["--without", "no-new-privileges,landlock,seccomp,capabilities"]);
        assert!(open.contains(",0,0,0 "), "without anything in its way it is root: {open}");
        for flags in [&[][..], &["--without", "landlock,seccomp"]] {
            let held = whoami(flags);
            assert!(held.contains("CapEff=0000000000000000") && held.contains("NoNewPrivs=1"), "{held}");
            assert!(!held.contains(",0,0,0 "), "{held}");
        }
    });
}

/// A node of the host's disk, for everybody to read, in the image.
#[test]
fn a_device_of_an_image_cannot_be_opened() {
    for_each("a_device_of_an_image_cannot_be_opened", |ground| {
        let root = fs::metadata("/").expect("a root").dev();
        let mut archive = toolbox();
        archive.device("open/disk", 0o666, (major(root) as u32, minor(root) as u32));
        let image = ground.engine.import(&archive, &[]);
        let script = "test -b /open/disk && ".to_owned()
            + &tried(&["head -c 1 /open/disk", "head -c 1 /dev/zero >/open/disk", "exec 3<>/open/disk"]);
        let all = "landlock,seccomp,capabilities,no-new-privileges,read-only-host";
        for flags in [&[][..], &["--without", all]] {
            Ended::of(ground.script_in(&image, flags, &script)).assert_prints("");
        }
    });
}

/// Folders of an image that are links: what is to be mounted there would be somewhere else.
#[test]
fn an_image_whose_folders_lead_elsewhere_is_refused_or_held() {
    for_each("an_image_whose_folders_lead_elsewhere_is_refused_or_held", |ground| {
        let top = ground.repository.path().components().nth(1).expect("a folder");
        let top = top.as_os_str().to_str().expect("text").to_owned();
        let linked = |path: &str, to: &str| {
            let mut archive = Archive::default();
            archive.link(path, to);
            let mut all = toolbox();
            all.append(&archive);
            ground.engine.import(&all, &[])
        };
        for (path, to) in [(top.as_str(), "/elsewhere"), (".agency", "/tmp"), ("run", "/tmp")] {
            let image = linked(path, to);
            let flags = ["--write", "src/**", "--apply", "--json"];
            let script = "echo new >src/new; echo x >docs/guide.md";
            let ended = Ended::of(ground.script_in(&image, &flags, script));
            match ended.code() {
                Some(3) => assert!(ended.output.stdout.is_empty(), "{path}: {}", ended.stderr()),
                // The script's last word is that it can't write there.
                Some(1 | 2) => assert_eq!(ended.json()["result"], "applied", "{path}"),
                other => panic!("{path}: {other:?}: {}", ended.stderr()),
            }
            assert_eq!(ground.repository.read("docs/guide.md").expect("read"), "guide\n");
        }
    });
}
