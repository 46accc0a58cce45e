//! What the host looks like to a sandbox that is about to be built: observed, and then only passed on.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::policy::IsolationLevel;
use crate::toolchains::{self, Toolchains};

/// The folders of an operating system that programs need in order to run. Anything else at the top of the
/// file system (data, mounts, other people's homes) stays out of sight until a policy names it.
const SYSTEM: &[&str] =
    &["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu"];

/// Files of the system that hold secrets. They are unreadable to an agent by their own permissions; a
/// caller's groups may say otherwise, and then they are hidden.
const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/ssl/private",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/docker/key.json",
];

/// Variables that are passed without being named: they say how to talk and where tools are, never a secret.
const PASSED: &[&str] = &["USER", "LOGNAME", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "TZ"];

/// Variables that name a bundle of certificates, or a folder of them: behind a company's proxy, no package manager works
/// without. They are passed on where they name a path of the system, which a sandbox sees.
const CERTIFICATES: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
];
const OF_THE_SYSTEM: [&str; 2] = ["/etc/", "/usr/"];

/// Where programs are.
const PATH: &str = "PATH";

/// Whose sandbox it is.
#[derive(Debug, Clone)]
pub struct HostUser {
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

/// What there is to show, and to hide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostPaths {
    pub(crate) system: Vec<SystemFolder>,
    pub(crate) toolchains: Vec<PathBuf>,
    pub(crate) secrets: Vec<PathBuf>,
    /// Files of toolchains that are shown otherwise than they are.
    pub(crate) replaced: Vec<(PathBuf, String)>,
}

/// One folder of [`SYSTEM`] as it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SystemFolder {
    Folder(PathBuf),
    Link(PathBuf, PathBuf),
}

impl HostUser {
    /// Who we are.
    pub fn observe() -> Self {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute() && *home != Path::new("/"))
            .and_then(|home| home.canonicalize().ok())
            .unwrap_or_else(|| PathBuf::from("/home/agent"));
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), home }
    }

    /// Whether a path is seen in a sandbox although no policy names it.
    pub fn is_visible_by_default(&self, path: &Path) -> bool {
        let around = HostPaths::observe(self);
        let is_in = |system: &SystemFolder| match system {
            SystemFolder::Folder(folder) | SystemFolder::Link(folder, _) => path.starts_with(folder),
        };
        around.system.iter().any(is_in) || around.toolchains.iter().any(|folder| path.starts_with(folder))
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

impl HostPaths {
    /// Looks around.
    pub(crate) fn observe(host: &HostUser) -> Self {
        let system = SYSTEM
            .iter()
            .filter_map(|path| {
                let path = PathBuf::from(path);
                let kind = path.symlink_metadata().ok()?.file_type();
                if kind.is_symlink() {
                    path.read_link().ok().map(|target| SystemFolder::Link(path, target))
                } else {
                    kind.is_dir().then_some(SystemFolder::Folder(path))
                }
            })
            .collect();
        let Toolchains { folders: toolchains, mut secrets, replaced } = Toolchains::find(&host.home, SYSTEM);
        secrets.extend(SYSTEM_SECRETS.iter().map(PathBuf::from).filter(|path| readable(path, host.uid)));
        Self { system, toolchains, secrets, replaced }
    }

    /// For a process elsewhere: a letter for what it is, and a path, which has no zero in it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |what: u8, path: &Path| {
            bytes.push(what);
            bytes.extend_from_slice(path.as_os_str().as_bytes());
            bytes.push(0);
        };
        for system in &self.system {
            match system {
                SystemFolder::Folder(path) => put(b'f', path),
                SystemFolder::Link(path, target) => {
                    put(b'l', path);
                    put(b'>', target);
                }
            }
        }
        self.toolchains.iter().for_each(|path| put(b't', path));
        self.secrets.iter().for_each(|path| put(b's', path));
        for (path, text) in &self.replaced {
            put(b'r', path);
            put(b'=', Path::new(text));
        }
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) wrote; `None` for anything else.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut around = Self::default();
        while let [what, rest @ ..] = bytes {
            let (path, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == 0)?)?;
            let path = PathBuf::from(OsStr::from_bytes(path));
            match what {
                b'f' => around.system.push(SystemFolder::Folder(path)),
                b'l' => around.system.push(SystemFolder::Link(path, PathBuf::new())),
                b'>' => match around.system.last_mut()? {
                    SystemFolder::Link(_, target) => *target = path,
                    SystemFolder::Folder(_) => return None,
                },
                b't' => around.toolchains.push(path),
                b's' => around.secrets.push(path),
                b'r' => around.replaced.push((path, String::new())),
                b'=' => around.replaced.last_mut()?.1 = path.into_os_string().into_string().ok()?,
                _ => return None,
            }
            bytes = rest.get(1..)?;
        }
        Some(around)
    }
}

/// Whether an agent could read the path by its permissions: as root it is nobody on the host, as a user it
/// is that user.
fn readable(path: &Path, uid: u32) -> bool {
    if uid == 0 {
        path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0 || meta.uid() != 0)
    } else {
        rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
    }
}

/// The environment of a command: the few harmless variables, the toolchains' places, the private folders,
/// and what the caller names.
pub fn environment(
    host: &HostUser,
    level: IsolationLevel,
    caller: impl IntoIterator<Item = (OsString, OsString)>,
    named: &[OsString],
) -> Vec<(OsString, OsString)> {
    // An image has its own toolchains, and says itself where they are.
    let places = || {
        std::iter::once(PATH).chain(toolchains::variables()).filter(|_| level != IsolationLevel::Container)
    };
    let passes = |name: &OsStr| {
        PASSED.iter().copied().chain(places()).any(|passed| name == passed)
            || name.to_str().is_some_and(|name| name.starts_with("LC_"))
            || named.iter().any(|wanted| wanted == name)
    };
    // An image has its own certificates, and may have none at the host's path.
    let certifies = |name: &OsStr, value: &OsStr| {
        level != IsolationLevel::Container
            && CERTIFICATES.iter().any(|known| name == *known)
            && value.to_str().is_some_and(|path| {
                OF_THE_SYSTEM.iter().any(|folder| path.starts_with(folder)) && !path.contains("..")
            })
    };
    let mut own = vec![
        ("HOME", host.home.as_os_str()),
        ("SHELL", OsStr::new("/bin/sh")),
        ("TMPDIR", OsStr::new("/tmp")),
    ];
    if host.is_root() {
        own.extend([("USER", OsStr::new("agent")), ("LOGNAME", OsStr::new("agent"))]);
    }
    let named_own = |name: &OsStr| own.iter().any(|(own, _)| name == *own);
    let mut environment: Vec<(OsString, OsString)> = caller
        .into_iter()
        .filter(|(name, value)| (passes(name) || certifies(name, value)) && !named_own(name))
        .collect();
    environment.extend(own.into_iter().map(|(name, value)| (name.into(), value.to_owned())));
    if level != IsolationLevel::Container && !environment.iter().any(|(name, _)| name == PATH) {
        environment.push((PATH.into(), "/usr/local/bin:/usr/bin:/bin".into()));
    }
    environment.sort();
    environment
}

/// What a login shell reads in its HOME. The system's own profile sets PATH anew, and the toolchains that were on it
/// would be lost to every program that starts such a shell.
pub(crate) fn profile(environment: &[(OsString, OsString)]) -> Option<String> {
    let path = environment.iter().find(|(name, _)| name == "PATH")?.1.to_str()?;
    Some(format!("export PATH='{}'\n", path.replace('\'', "'\\''")))
}

/// Its name.
pub(crate) const PROFILE: &str = ".profile";

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostUser {
        HostUser { uid: 1000, gid: 1000, home: "/home/me".into() }
    }

    #[test]
    fn certificates_of_the_system_are_named_and_others_are_not() {
        let environment = |level, path: &str| {
            let caller = [("SSL_CERT_FILE", path), ("SSL_CERT_DIRECTORY", path)];
            let caller = caller.map(|(name, value)| (OsString::from(name), OsString::from(value)));
            environment(&host(), level, caller, &[])
                .into_iter()
                .filter(|(name, _)| name.to_string_lossy().starts_with("SSL_"))
                .count()
        };
        for (path, passed) in [
            ("/etc/ssl/certs/ca-certificates.crt", 1),
            ("/usr/local/share/ca.pem", 1),
            ("/home/me/secret.pem", 0),
            ("/etc/../home/me/secret.pem", 0),
            ("etc/ca.pem", 0),
        ] {
            assert_eq!(environment(IsolationLevel::Process, path), passed, "{path}");
            assert_eq!(environment(IsolationLevel::Landlock, path), passed, "{path}");
            assert_eq!(environment(IsolationLevel::Container, path), 0, "{path}");
        }
    }

    #[test]
    fn what_is_around_is_told_as_it_is() {
        let odd = PathBuf::from(OsStr::from_bytes(b"/home/\xff\n"));
        let around = HostPaths {
            system: vec![
                SystemFolder::Folder("/usr".into()),
                SystemFolder::Link("/bin".into(), "usr/bin".into()),
            ],
            toolchains: vec![odd.join(".cargo"), odd.join("go")],
            secrets: vec![odd.join(".cargo/credentials")],
            replaced: vec![(odd.join(".cargo/config.toml"), "[build]\njobs = 2\n".to_owned())],
        };
        let bytes = around.to_bytes();
        assert_eq!(HostPaths::from_bytes(&bytes), Some(around));
        // Each cut is noticed, unless it is between two paths.
        for end in 1..bytes.len() {
            let whole = HostPaths::from_bytes(&bytes[..end]).is_some();
            assert_eq!(whole, bytes[end - 1] == 0, "cut at {end}");
        }
        assert_eq!(HostPaths::from_bytes(b"f/usr\0>bin\0"), None);
        assert_eq!(HostPaths::from_bytes(b"x/usr\0"), None);
    }

    #[test]
    fn a_login_shell_keeps_the_path() {
        let environment = [(OsString::from("PATH"), OsString::from("/it's/bin:/bin"))];
        assert_eq!(profile(&environment).as_deref(), Some("export PATH='/it'\\''s/bin:/bin'\n"));
        assert_eq!(profile(&[]), None);
    }

    #[test]
    fn only_harmless_and_named_variables_are_passed() {
        let caller = [
            ("PATH", "/bin"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("KEY", "k"),
            ("HOME", "/root"),
            ("LC_ALL", "C"),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let passed = |level| environment(&host(), level, caller.clone(), &["KEY".into()]);
        let names = |level| {
            let names = passed(level).into_iter().map(|(name, _)| name.to_string_lossy().into_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(IsolationLevel::Process), ["HOME", "KEY", "LC_ALL", "PATH", "SHELL", "TMPDIR"]);
        assert!(passed(IsolationLevel::Process).contains(&("HOME".into(), "/home/me".into())));
        assert_eq!(names(IsolationLevel::Container), ["HOME", "KEY", "LC_ALL", "SHELL", "TMPDIR"]);
    }
}
