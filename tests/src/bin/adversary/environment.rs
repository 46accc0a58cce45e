//! What is lying around: variables, the home directory, other people's files, and what the process is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};

const GROUP: &str = "environment";
const SECRETS: &str = "find secrets in its environment that no configuration passed";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "environment", &["name"], SECRETS, environment),
    attack(GROUP, "env-dump", &[], SECRETS, env_dump),
    attack(GROUP, "home-empty", &[], "HOME is private and empty", home_empty),
    attack(GROUP, "tmp-private", &["marker"], "TMPDIR is private", tmp_private),
    attack(GROUP, "secrets-scan", &[], SECRETS, secrets_scan),
    attack(GROUP, "whoami", &[], "what the process is and may do", whoami),
];

fn environment(args: &Args) -> Attempt {
    let name = args.text(0)?;
    if std::env::var_os(name).is_none() {
        return Err(Failure::Held(format!("{name} is not set")));
    }
    Ok(format!("{name} is set"))
}

/// The names alone: a value may be the secret that a test looks for in logs.
fn env_dump(_: &Args) -> Attempt {
    let mut names: Vec<_> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names.join(" "))
}

fn home() -> Result<PathBuf, Failure> {
    std::env::home_dir().ok_or_else(|| Failure::Held("there is no home directory".to_owned()))
}

/// Succeeds if there is something in the home directory to take.
fn home_empty(_: &Args) -> Attempt {
    let home = home()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&home).step("list the home directory")? {
        names.push(entry.step("list the home directory")?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if names.is_empty() {
        return Err(Failure::Held(format!("{} is empty", home.display())));
    }
    Ok(format!("{}: {}", home.display(), names.join(" ")))
}

fn tmp_private(args: &Args) -> Attempt {
    fs::symlink_metadata(args.path(0)).step("stat the marker")?;
    Ok("a file of the host's is visible".to_owned())
}

/// Where tools keep what lets them log in, below the home directory.
const AT_HOME: &[&str] = &[
    ".ssh",
    ".ssh/id_ed25519",
    ".ssh/id_rsa",
    ".aws/credentials",
    ".azure",
    ".config/gcloud",
    ".config/gh/hosts.yml",
    ".config/git/credentials",
    ".docker/config.json",
    ".kube/config",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".bash_history",
    ".mozilla",
    ".config/google-chrome",
];
const ANYWHERE: &[&str] = &[
    "/etc/shadow",
    "/etc/sudoers",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/kubernetes/admin.conf",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/root/.ssh",
];
const SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
];
const SOCKETS_OF_THE_USER: &[&str] =
    &["bus", "podman/podman.sock", "docker.sock", "gnupg/S.gpg-agent", "keyring/ssh"];

/// Succeeds if one of the well-known places can be read, or one of the well-known sockets reached.
fn secrets_scan(_: &Args) -> Attempt {
    let mut found: Vec<String> = Vec::new();
    let at_home = home().map(|home| AT_HOME.iter().map(|name| home.join(name)).collect::<Vec<_>>());
    for path in at_home.unwrap_or_default().into_iter().chain(ANYWHERE.iter().map(PathBuf::from)) {
        if readable(&path) {
            found.push(path.display().to_string());
        }
    }
    let uid = nix::unistd::Uid::current();
    let of_the_user = SOCKETS_OF_THE_USER.iter().map(|name| PathBuf::from(format!("/run/user/{uid}/{name}")));
    let agent = std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from);
    for path in SOCKETS.iter().map(PathBuf::from).chain(of_the_user).chain(agent) {
        if UnixStream::connect(&path).is_ok() {
            found.push(path.display().to_string());
        }
    }
    if found.is_empty() { Err(Failure::Held("none is there".to_owned())) } else { Ok(found.join(" ")) }
}

fn readable(path: &std::path::Path) -> bool {
    if path.is_dir() {
        return fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    }
    let mut byte = [0];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut byte).is_ok())
}

/// Facts as `Name=value`, from the kernel's own account of this process.
fn whoami(_: &Args) -> Attempt {
    let status = fs::read_to_string("/proc/self/status").step("read the status")?;
    let wanted =
        ["Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let mut facts: Vec<String> = status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, value)| format!("{name}={}", value.split_whitespace().collect::<Vec<_>>().join(",")))
        .collect();
    for (name, path) in [
        ("user", "/proc/self/ns/user"),
        ("mnt", "/proc/self/ns/mnt"),
        ("net", "/proc/self/ns/net"),
        ("pid", "/proc/self/ns/pid"),
    ] {
        if let Ok(target) = fs::read_link(path) {
            let text: &OsStr = target.as_os_str();
            facts.push(format!("ns_{name}={}", text.to_string_lossy()));
        }
    }
    Ok(facts.join(" "))
}
