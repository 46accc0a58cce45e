//! Certificates, shown by a real server: OpenSSL's, where it is installed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{server, shown};
use crate::app::import::{ImportError, IssueQuery, fetch};

/// A server for 127.0.0.1 with a certificate that it signed itself, and an empty list of issues.
struct Secure {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Secure {
    /// Nothing where there is no OpenSSL.
    fn start(name: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("agency-import-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("repos/octo/hello")).expect("a folder");
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
            .current_dir(&folder)
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {name}: there is no openssl here");
            let _ = fs::remove_dir_all(&folder);
            return None;
        }
        let page = "issues?state=open&sort=created&direction=asc&per_page=100";
        fs::write(
            folder.join("repos/octo/hello").join(page),
            "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
        )
        .expect("a page");
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-key", "key.pem", "-cert", "cert.pem", "-HTTP"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let address = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
            .expect("an address");
        Some(Self { child, folder, url: format!("https://{address}") })
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn source() -> IssueQuery {
    IssueQuery::github("octo/hello", None).expect("a source")
}

#[test]
fn a_certificate_nobody_vouches_for_is_refused() {
    let Some(secure) = Secure::start("refused") else { return };
    let error =
        fetch(&source(), &server(&secure.url, &[("GITHUB_TOKEN", "hunter2")])).expect_err("untrusted");
    assert!(matches!(error, ImportError::Untrusted { .. }), "{}", shown(&error));
    assert!(error.hint().contains("SSL_CERT_FILE"), "{}", error.hint());
}

#[test]
fn a_companys_own_certificate_is_believed_where_it_is_named() {
    let Some(secure) = Secure::start("believed") else { return };
    let trusting = server(&secure.url, &[("SSL_CERT_FILE", &secure.file("cert.pem"))]);
    assert_eq!(fetch(&source(), &trusting).map_err(|error| shown(&error)), Ok(Vec::new()));
    // It is good for the address it names, and not for the name that address has.
    let other =
        server(&secure.url.replace("127.0.0.1", "localhost"), &[("SSL_CERT_FILE", &secure.file("cert.pem"))]);
    let error = fetch(&source(), &other).expect_err("another name");
    assert!(matches!(error, ImportError::Untrusted { .. }), "{}", shown(&error));
}

#[test]
fn a_file_without_certificates_is_said_so() {
    let folder = std::env::temp_dir().join(format!("agency-import-none-{}", std::process::id()));
    fs::write(&folder, "no certificate\n").expect("a file");
    for path in [folder.as_path(), Path::new("/nonexistent/ca.pem"), Path::new("/dev/zero")] {
        let variables = [("SSL_CERT_FILE", &*path.display().to_string())];
        let error =
            fetch(&source(), &server("https://127.0.0.1:9", &variables)).expect_err("no certificates");
        assert!(matches!(error, ImportError::Certificates { .. }), "{}", shown(&error));
    }
    fs::remove_file(&folder).expect("removed");
}

#[test]
fn what_speaks_no_tls_is_not_reached() {
    let plain = super::serving::Serving::start(|_, _| Some(super::serving::Response::new(200)));
    let proxy = super::serving::Serving::start(|_, _| Some(super::serving::Response::new(502)));
    let address = proxy.url();
    let variables = [("HTTPS_PROXY", address.as_str()), ("NO_PROXY", "example.org,127.0.0.1")];
    let error =
        fetch(&source(), &server(&plain.url().replace("http:", "https:"), &variables)).expect_err("no TLS");
    assert!(matches!(error, ImportError::Unreachable { .. }), "{}", shown(&error));
    assert!(proxy.asked().is_empty());
}
