//! What of the host is mounted in a container, and how.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_tests::engine::Engine;
use agency_tests::repository::skip;

use crate::{SECOND_FENCE, for_each};

/// Points of a mountinfo that can be written, with the kind of what is mounted there.
fn writable(mountinfo: &str) -> Vec<(PathBuf, String)> {
    let one = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let (point, flags) = (fields.get(4)?, fields.get(5)?);
        let writable = flags.split(',').any(|flag| flag == "rw");
        writable.then(|| (PathBuf::from(point), kind.split(' ').next().unwrap_or_default().to_owned()))
    };
    mountinfo.lines().filter_map(one).collect()
}

#[test]
fn of_the_host_only_the_scope_of_the_copy_can_be_written() {
    for_each("of_the_host_only_the_scope_of_the_copy_can_be_written", |ground| {
        let outside = ground.repository.path().join("docs");
        let outside = outside.to_str().expect("text");
        let flags = ["--write", "src/**", "--read", outside];
        let ended = ground.script(&flags, "cat /proc/self/mountinfo");
        let text = ended.stdout();
        assert!(text.contains("/.agency/agency") && text.contains(outside), "{text}{}", ended.stderr());
        let root = ground.repository.path();
        for (point, kind) in writable(&text) {
            let made_up = ["tmpfs", "proc", "devpts", "mqueue"].contains(&kind.as_str());
            let open = [root.join("src"), root.join(".git")].contains(&point);
            assert!(made_up || open, "{} ({kind}) can be written:\n{text}", point.display());
        }
        // And without the mounts' say, there would be something to see.
        let loose = [&flags[..], &["--without", "read-only-host"]].concat();
        let ended = ground.script(&loose, "cat /proc/self/mountinfo");
        let root_is_writable = writable(&ended.stdout()).iter().any(|(point, _)| point == Path::new("/"));
        assert!(root_is_writable, "{}", ended.stderr());
    });
}

/// An image's own files are nobody's work, and not for an agent to change while it runs.
#[test]
fn the_image_can_be_written_only_without_its_control() {
    for_each("the_image_can_be_written_only_without_its_control", |ground| {
        let write =
            "echo changed >/open/file 2>/dev/null; cat /open/file; touch /open/new 2>/dev/null; ls /open";
        for without in ["read-only-host", "read-only-host,landlock"] {
            ground.script(&["--without", without], write).assert_prints("changed\nfile\nnew\n");
        }
        for flags in [&[][..], &["--without", SECOND_FENCE]] {
            ground.script(flags, write).assert_prints("of the image\nfile\n");
        }
    });
}

/// Folders in which somebody mounted something, where the engine sees it.
struct Mounted {
    namespace: String,
    points: Vec<PathBuf>,
}

impl Mounted {
    /// In the mount namespace of the engine: the host's own is left as it is.
    fn new(engine: &Engine) -> Result<Self, String> {
        let pid = engine.socket().with_file_name("pid");
        let pid =
            fs::read_to_string(pid).map_err(|_| "the engine is not one of scripts/engine".to_owned())?;
        match nix::unistd::Uid::current().is_root() {
            true => {
                Ok(Self { namespace: format!("--mount=/proc/{}/ns/mnt", pid.trim()), points: Vec::new() })
            }
            false => Err("it takes root to mount something".to_owned()),
        }
    }

    fn mount(&mut self, arguments: &[&str], point: &Path) {
        let mut command = Command::new("nsenter");
        command.args([&self.namespace, "--", "mount"]).args(arguments).arg(point);
        assert!(command.status().expect("nsenter starts").success(), "mount {arguments:?}");
        self.points.push(point.to_owned());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for point in self.points.iter().rev() {
            let unmount =
                Command::new("nsenter").args([&self.namespace, "--", "umount", "--lazy"]).arg(point).status();
            assert!(std::thread::panicking() || unmount.is_ok_and(|status| status.success()));
        }
    }
}

/// An engine makes a mount read-only, and not what is mounted below it: that would be the host's, and writable, whatever
/// kind of file system it is.
#[test]
fn a_folder_with_something_writable_mounted_in_it_is_refused() {
    let test = "a_folder_with_something_writable_mounted_in_it_is_refused";
    for_each(test, |ground| {
        let mut mounted = match Mounted::new(&ground.engine) {
            Ok(mounted) => mounted,
            Err(reason) => return skip(test, &reason),
        };
        let folder = tempfile::Builder::new().prefix("agency-mounted-").tempdir_in("/srv").expect("a folder");
        let shown = folder.path().to_str().expect("text").to_owned();
        let bound = tempfile::Builder::new().prefix("agency-bound-").tempdir_in("/srv").expect("a folder");
        let source = bound.path().to_str().expect("text");
        for (arguments, name) in [
            (&["--bind", source][..], "disk"),
            (&["-t", "tmpfs", "-o", "mode=1777", "none"][..], "memory"),
            (&["-t", "proc", "none"][..], "processes"),
        ] {
            let point = folder.path().join(name);
            fs::create_dir(&point).expect("made");
            // Nothing is mounted there yet.
            ground.script(&["--read", &shown], "echo started").assert_prints("started\n");
            mounted.mount(arguments, &point);
            let ended = ground.script(&["--read", &shown], "echo started");
            ended.assert_refused(3, "read-only-host");
            assert!(
                ended.stderr().contains(&format!("{} can be written", point.display())),
                "{}",
                ended.stderr()
            );
            // Shown for itself it is what is made read-only.
            if name != "processes" {
                let alone = point.to_str().expect("text");
                let script = format!("ls {alone} && ! touch {alone}/new 2>/dev/null && echo held");
                ground.script(&["--read", alone], &script).assert_prints("held\n");
            }
            drop(std::mem::replace(&mut mounted, Mounted::new(&ground.engine).expect("as before")));
        }
    });
}
