//! The container engine of the tests, and images made for it without any registry.
//!
//! Which engine says `AGENCY_TEST_ENGINE`, as `scripts/test` sets it; without that the tests that take one are skipped.
//! One that is named and does not answer is a failure.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names it.
pub const VARIABLE: &str = "AGENCY_TEST_ENGINE";

/// The label that says whose a container of `agency` is.
pub const OWNER: &str = "io.agency.owner";

#[derive(Debug, Clone)]
pub struct Engine {
    socket: PathBuf,
}

impl Engine {
    /// The engine, or why there is none.
    pub fn find() -> Result<Self, String> {
        let Some(address) = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty()) else {
            return Err(format!("it takes a container engine: {VARIABLE}=$(scripts/engine up), as root"));
        };
        let socket = PathBuf::from(address.strip_prefix("unix://").expect("the address of a socket"));
        let there = fs::metadata(&socket).is_ok_and(|meta| meta.file_type().is_socket());
        assert!(there, "{VARIABLE} is {address}, and there is no socket");
        Ok(Self { socket })
    }

    /// Another one, by its address.
    pub fn at(address: &str) -> Self {
        Self { socket: address.strip_prefix("unix://").expect("the address of a socket").into() }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its address, as `DOCKER_HOST` takes it.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The group whose members may use it.
    pub fn group(&self) -> u32 {
        fs::metadata(&self.socket).expect("a socket").gid()
    }

    /// Its own command line, to look at it from the side.
    pub fn docker(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent");
        command.arg("--host").arg(self.address()).args(arguments).stdin(Stdio::null());
        command
    }

    /// What it prints; it must succeed.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> String {
        let output = self.docker(arguments).output().expect("docker starts");
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Containers of `agency`, of one process of it or of all, running or not.
    pub fn containers_of(&self, pid: Option<u32>) -> Vec<String> {
        let format = format!("{{{{.ID}}}} {{{{.Label \"{OWNER}\"}}}}");
        let list = self.ask(&[
            "ps",
            "--all",
            "--no-trunc",
            "--filter",
            &format!("label={OWNER}"),
            "--format",
            &format,
        ]);
        let of_pid = |line: &&str| {
            pid.is_none_or(|pid| line.split('/').nth(2).is_some_and(|number| number == pid.to_string()))
        };
        list.lines()
            .filter(of_pid)
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    }

    /// The image the suites work in.
    pub fn image(&self) -> String {
        self.import(&toolbox(), &[])
    }

    /// An image with these contents and these settings, as a Dockerfile would say them. It is made once.
    pub fn import(&self, archive: &Archive, settings: &[&str]) -> String {
        let name = format!("localhost/agency-tests:{:016x}", archive.fingerprint(settings));
        let exists = || {
            let mut inspect = self.docker(&["image", "inspect", &name]);
            inspect.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        if exists() {
            return name;
        }
        // Tests are processes of their own: the first makes it, the others wait.
        let user = nix::unistd::Uid::current();
        let lock = std::env::temp_dir().join(format!("agency-tests-images-{user}"));
        let lock = File::options().write(true).create(true).truncate(false).open(lock).expect("a lock");
        lock.lock().expect("locked");
        if exists() {
            return name;
        }
        let mut arguments = vec!["import"];
        for setting in settings {
            arguments.extend(["--change", setting]);
        }
        arguments.extend(["-", &name]);
        let mut command = self.docker(&arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("docker starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(&archive.finished()).expect("the engine reads");
        drop(input);
        assert!(child.wait().expect("docker ends").success(), "{name} can't be made");
        name
    }
}

/// Files of an image, as an archive whose members are root's and of no time, so that the same contents are the same
/// bytes. It is written here because no other program would put a device into one without being root.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    bytes: Vec<u8>,
}

const BLOCK: usize = 512;

impl Archive {
    pub fn folder(&mut self, path: &str, mode: u32) {
        self.head(path, b'5', mode, 0, "", (0, 0));
    }

    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.head(path, b'0', mode, contents.len(), "", (0, 0));
        self.bytes.extend_from_slice(contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    pub fn link(&mut self, path: &str, to: &str) {
        self.head(path, b'2', 0o777, 0, to, (0, 0));
    }

    /// A node of a block device.
    pub fn device(&mut self, path: &str, mode: u32, number: (u32, u32)) {
        self.head(path, b'4', mode, 0, "", number);
    }

    /// Everything of another one, after what is here.
    pub fn append(&mut self, other: &Archive) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    fn head(&mut self, path: &str, kind: u8, mode: u32, size: usize, to: &str, number: (u32, u32)) {
        let mut head = [0; BLOCK];
        let mut put = |at: usize, longest: usize, text: &str| {
            assert!(text.len() <= longest, "{text} is too long for an archive");
            head[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, 100, path.trim_start_matches('/'));
        put(100, 7, &format!("{mode:07o}"));
        put(108, 7, "0000000");
        put(116, 7, "0000000");
        put(124, 11, &format!("{size:011o}"));
        put(136, 11, "00000000000");
        put(148, 8, "        ");
        put(157, 100, to);
        put(257, 8, "ustar\x0000");
        put(329, 7, &format!("{:07o}", number.0));
        put(337, 7, &format!("{:07o}", number.1));
        head[156] = kind;
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&head);
    }

    fn finished(&self) -> Vec<u8> {
        [&self.bytes[..], &[0; 2 * BLOCK]].concat()
    }

    /// A number for the contents. Nobody attacks it: it tells one image of the tests from another, for which looking at
    /// eight bytes at a time is enough, and quick in a program that is not optimised.
    fn fingerprint(&self, settings: &[&str]) -> u64 {
        let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let of = |hash: u64, bytes: &[u8]| {
            let (words, rest) = bytes.as_chunks::<8>();
            let hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
            rest.iter().fold(mix(hash, bytes.len() as u64), |hash, byte| mix(hash, u64::from(*byte)))
        };
        settings.iter().fold(of(1, &self.bytes), |hash, setting| of(hash, setting.as_bytes()))
    }
}

/// A small system: busybox with all its applets, and git as Debian has it.
pub fn toolbox() -> Archive {
    let mut archive = Archive::default();
    for folder in ["bin", "etc", "root", "usr", "usr/bin", "usr/lib", "usr/lib/git-core"] {
        archive.folder(folder, 0o755);
    }
    archive.folder("var", 0o755);
    for folder in ["tmp", "var/tmp"] {
        archive.folder(folder, 0o1777);
    }
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    archive.file("etc/group", 0o644, b"root:x:0:\n");
    archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n");
    archive.file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n");
    // Everybody may write these, if the image as such can be written.
    archive.folder("open", 0o777);
    archive.file("open/file", 0o666, b"of the image\n");
    let busybox = fs::read("/bin/busybox").expect("busybox-static is installed: scripts/install-test-tools");
    archive.file("bin/busybox", 0o755, &busybox);
    let applets = Command::new("/bin/busybox").arg("--list").output().expect("busybox starts").stdout;
    for applet in String::from_utf8(applets).expect("names").lines().filter(|name| *name != "busybox") {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    git(&mut archive).expect("Debian's git can be read");
    archive
}

/// Its programs that are only links and scripts come along, those that talk to the network do not.
fn git(archive: &mut Archive) -> io::Result<()> {
    const GIT: &str = "/usr/bin/git";
    const LARGEST_SCRIPT: u64 = 100_000;
    archive.file("usr/bin/git", 0o755, &fs::read(GIT)?);
    let mut helpers: Vec<PathBuf> =
        fs::read_dir("/usr/lib/git-core")?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    helpers.sort();
    for helper in helpers {
        let (meta, path) = (fs::symlink_metadata(&helper)?, helper.display().to_string());
        if meta.is_symlink() {
            archive.link(&path, &fs::read_link(&helper)?.to_string_lossy());
        } else if helper.ends_with("git") {
            archive.link(&path, "../../bin/git");
        } else if meta.is_file() && meta.len() < LARGEST_SCRIPT {
            archive.file(&path, 0o755, &fs::read(&helper)?);
        }
    }
    let linked = Command::new("ldd").arg(GIT).output()?.stdout;
    let linked = String::from_utf8_lossy(&linked).into_owned();
    let libraries = linked.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let mut folders = BTreeSet::new();
    for library in libraries {
        for above in library.ancestors().skip(1).filter(|above| above.parent().is_some()) {
            folders.insert(above.to_owned());
        }
        folders.insert(library);
    }
    for path in folders {
        match path.is_dir() {
            true => archive.folder(&path.display().to_string(), 0o755),
            false => archive.file(&path.display().to_string(), 0o755, &fs::read(&path)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_one_that_tar_reads() {
        let mut archive = Archive::default();
        archive.folder("a", 0o1777);
        archive.file("a/b", 0o4755, &[b'x'; 700]);
        archive.link("a/c", "b");
        archive.device("a/d", 0o666, (254, 1));
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), archive.finished()).expect("written");
        let output = Command::new("tar").arg("-tvf").arg(file.path()).output().expect("tar starts");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let kinds: Vec<(&str, &str)> = words.iter().map(|line| (line[0], line[2])).collect();
        assert_eq!(
            kinds,
            [("drwxrwxrwt", "0"), ("-rwsr-xr-x", "700"), ("lrwxrwxrwx", "0"), ("brw-rw-rw-", "254,1")]
        );
        assert_ne!(archive.fingerprint(&[]), archive.fingerprint(&["USER x"]));
    }
}
