//! Programs people use find the proxy by themselves, and work through it.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agency_tests::processes::wait_until;
use agency_tests::repository::{Repository, said, skip};
use agency_tests::world::World;
use tempfile::TempDir;

use crate::{lines, worlds};

const HOSTS: &[&str] = &["45.45.45.1 files.example"];
const LISTED: &[&str] = &["--net", "files.example:8080"];

/// A folder served at `http://files.example:8080`, by Python's own server.
struct Files {
    folder: TempDir,
    server: Child,
}

impl Files {
    fn serve(world: &World, make: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("agency-files-").tempdir().expect("a folder");
        let made = Command::new("sh").args(["-euc", make]).current_dir(folder.path()).output().expect("runs");
        assert!(made.status.success(), "{made:?}");
        let mut command = world.elsewhere("/usr/bin/python3");
        command.args(["-m", "http.server", "--bind", "45.45.45.1", "8080", "--directory"]);
        command.arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().expect("a server");
        let up = || world.enter(|| std::net::TcpStream::connect("45.45.45.1:8080")).is_ok();
        assert!(wait_until(Duration::from_secs(20), up), "the server does not come up");
        Self { folder, server }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(self.folder.path());
    }
}

/// Runs a program in the sandbox, unless its owner has none.
fn run(world: &World, repository: &Repository, test: &str, probe: &str, script: &str) -> Option<Vec<String>> {
    let probed = repository.script(&[], probe).expect("runs");
    if !probed.status.success() {
        let who = if repository.owner().is_some() { "user" } else { "root" };
        skip(&format!("{test} ({who})"), &format!("`{probe}` fails in a sandbox"));
        return None;
    }
    let output = world.sandbox(repository, LISTED, script).output().expect("runs");
    assert!(output.status.success(), "{:?}", said(&output));
    Some(lines(&output))
}

#[test]
fn curl_goes_through_and_says_why_it_does_not() {
    worlds("curl_goes_through", HOSTS, |world, repository| {
        let _files = Files::serve(world, "echo content > file");
        let script = "curl -sS http://files.example:8080/file; curl -sS --proxytunnel http://files.example:8080/file; \
                      curl -sS http://other.example/; curl -sS https://other.example/ 2>&1 || :";
        let told = run(world, repository, "curl", "command -v curl", script);
        if let Some(told) = told {
            assert_eq!(told[..3], ["content", "content", "agency: other.example:80: not on the list"]);
            assert!(told[3].contains("403"), "{told:?}");
        }
    });
}

#[test]
fn git_clones() {
    worlds("git_clones", HOSTS, |world, repository| {
        let make = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q work; cd work; echo hello > file; git add file; \
                    git -c user.name=A -c user.email=a@example.org commit -qm First; \
                    git clone -q --bare . ../project.git; cd ../project.git; git update-server-info";
        let _files = Files::serve(world, make);
        let script = "cd /tmp && git clone -q http://files.example:8080/project.git && cat project/file; \
                      git clone -q http://other.example:8080/project.git 2>&1 || echo refused";
        if let Some(told) = run(world, repository, "git", "git --version", script) {
            assert_eq!(told.first().map(String::as_str), Some("hello"));
            assert_eq!(told.last().map(String::as_str), Some("refused"));
        }
    });
}

#[test]
fn npm_installs() {
    worlds("npm_installs", HOSTS, |world, repository| {
        let make = r#"
mkdir package tarballs
echo '{"name":"tiny","version":"1.0.0"}' > package/package.json
echo 'module.exports = "tiny works";' > package/index.js
tar czf tarballs/tiny-1.0.0.tgz package
sum=$(sha512sum tarballs/tiny-1.0.0.tgz | cut -d' ' -f1 | tr a-f A-F | basenc --base16 -d | base64 -w0)
cat > tiny <<END
{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0",
"dist":{"tarball":"http://files.example:8080/tarballs/tiny-1.0.0.tgz","integrity":"sha512-$sum"}}}}
END
"#;
        let _files = Files::serve(world, make);
        let script = "mkdir /tmp/app && cd /tmp/app && npm install --silent --no-audit --no-fund --no-update-notifier \
                      --registry http://files.example:8080/ tiny >&2 && node -p 'require(\"tiny\")'";
        if let Some(told) = run(world, repository, "npm", "npm --version", script) {
            assert_eq!(told, ["tiny works"]);
        }
    });
}

#[test]
fn pip_installs() {
    worlds("pip_installs", HOSTS, |world, repository| {
        let make = r#"
mkdir -p simple/tiny
/usr/bin/python3 - <<END
import zipfile
with zipfile.ZipFile("simple/tiny/tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tiny.py", "print('tiny works')")
    wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n")
END
"#;
        let _files = Files::serve(world, make);
        let script = "/usr/bin/python3 -m pip install -q --disable-pip-version-check --target /tmp/site --index-url \
                      http://files.example:8080/simple --trusted-host files.example tiny >&2 && \
                      PYTHONPATH=/tmp/site /usr/bin/python3 -c 'import tiny'";
        if let Some(told) = run(world, repository, "pip", "/usr/bin/python3 -m pip --version", script) {
            assert_eq!(told, ["tiny works"]);
        }
    });
}
