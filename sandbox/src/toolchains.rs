//! Toolchains in a home: where they are, and which of their files hold credentials.

#![allow(clippy::disallowed_methods, reason = "opens the user's own")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};

use crate::cargo_config::{self, SanitizedConfig};
use crate::mountinfo;

/// Folders in a home that hold toolchains, with the files in them that hold credentials. A star is any name.
const KNOWN: &[(&str, &[&str])] = &[
    (CARGO, &["credentials", "credentials.toml"]),
    (".rustup", &[]),
    (".pyenv", &[".git/config", "versions/*/pip.conf"]),
    (".rbenv", &[".git/config"]),
    (".nvm", &[".git/config", "versions/node/*/etc/npmrc"]),
    (".volta", &["tools/image/node/*/etc/npmrc"]),
    (".bun", &[]),
    (".deno", &[]),
    (".asdf", &[".git/config", "installs/nodejs/*/etc/npmrc", "installs/python/*/pip.conf"]),
    (".sdkman", &[]),
    (".dotnet", &["corefx"]),
    (".local/bin", &[]),
    (".local/lib", &[]),
    (".local/share/mise", &["installs/node/*/etc/npmrc", "installs/python/*/pip.conf"]),
    (".local/share/pnpm", &["nodejs/*/etc/npmrc"]),
    (".local/share/uv", &["credentials", "python/*/pip.conf"]),
    (".npm-global", &["etc/npmrc"]),
    ("go", &[]),
];

const CARGO: &str = ".cargo";
/// Cargo's configuration, by either of its names.
const CONFIGURATIONS: &[&str] = &["config.toml", "config"];

/// Variables that say where a toolchain lives when it is not in its usual place, and which one.
const VARIABLES: &[(&str, &str)] = &[
    ("CARGO_HOME", CARGO),
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    ("NVM_DIR", ".nvm"),
    ("VOLTA_HOME", ".volta"),
    ("GOROOT", "go"),
    ("GOPATH", "go"),
    ("JAVA_HOME", ""),
];

/// The names of those variables.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|(name, _)| *name)
}

/// The toolchains of a home.
#[derive(Debug, Default)]
pub(crate) struct Toolchains {
    /// Their folders, and what is mounted below one after it.
    pub(crate) folders: Vec<PathBuf>,
    /// Files in them that are not to be read.
    pub(crate) secrets: Vec<PathBuf>,
    /// Files in them that are to be read otherwise.
    pub(crate) replaced: Vec<(PathBuf, String)>,
}

impl Toolchains {
    /// Looks for them. What lies in one of the `covered` folders is seen anyway.
    pub(crate) fn find(home: &Path, covered: &[&str]) -> Self {
        let mut found = Self::default();
        for (name, credentials) in KNOWN {
            found.add(home, home.join(name), credentials, *name == CARGO, covered);
        }
        for (variable, name) in VARIABLES {
            let place = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
            let credentials =
                KNOWN.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, files)| files);
            if let Some(place) = place {
                found.add(home, place, credentials, *name == CARGO, covered);
            }
        }
        found.add_mounts();
        found
    }

    fn add(&mut self, home: &Path, path: PathBuf, credentials: &[&str], is_cargo: bool, covered: &[&str]) {
        // Most are not there: one call tells, where resolving takes one for each component.
        if rustix::fs::access(&path, Access::EXISTS).is_err() {
            return;
        }
        let Ok(path) = path.canonicalize() else { return };
        for pattern in credentials {
            matching(&path, pattern, &mut self.secrets);
        }
        if is_cargo {
            CONFIGURATIONS.iter().for_each(|name| self.add_configuration(path.join(name)));
        }
        let seen = self.folders.iter().any(|known| path.starts_with(known))
            || covered.iter().any(|system| path.starts_with(system));
        if !seen && path.is_dir() && path != home && !home.starts_with(&path) {
            self.folders.push(path);
        }
    }

    fn add_configuration(&mut self, path: PathBuf) {
        if self.secrets.contains(&path) || self.replaced.iter().any(|(known, _)| *known == path) {
            return;
        }
        match read(&path).as_deref().map(cargo_config::without_credentials) {
            None | Some(SanitizedConfig::AsItIs) => {}
            Some(SanitizedConfig::Instead(text)) => self.replaced.push((path, text)),
            Some(SanitizedConfig::Nothing) => self.secrets.push(path),
        }
    }

    /// A toolchain's folder is not seen with what is mounted in it, so that is seen by itself.
    fn add_mounts(&mut self) {
        if self.folders.is_empty() {
            return;
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for point in mounts.lines().filter_map(mountinfo::point) {
            let below = |folder: &PathBuf| point.starts_with(folder) && point != *folder;
            if self.folders.iter().any(below) && !self.folders.contains(&point) {
                self.folders.push(point);
            }
        }
    }
}

/// The text of a small regular file, or `None`.
fn read(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(cargo_config::LARGEST as u64 + 1).read_to_end(&mut bytes).ok()?;
    // Signs of credentials are ASCII: they are found in a file that is not UTF-8, too.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Paths below a folder that match a pattern and are there.
fn matching(folder: &Path, pattern: &str, found: &mut Vec<PathBuf>) {
    match pattern.split_once("*/") {
        None => {
            let path = folder.join(pattern);
            if rustix::fs::access(&path, Access::EXISTS).is_ok() && !found.contains(&path) {
                found.push(path);
            }
        }
        Some((above, below)) => {
            for entry in fs::read_dir(folder.join(above)).into_iter().flatten().flatten() {
                matching(&entry.path(), below, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_in_every_version_and_configurations_are_replaced() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().canonicalize().expect("a path");
        let put = |name: &str, text: &str| {
            let path = home.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, text).expect("written");
            path
        };
        let first = put(".nvm/versions/node/v20/etc/npmrc", "//x:_authToken=s3cret");
        let second = put(".nvm/versions/node/v22/etc/npmrc", "");
        put(".nvm/versions/node/v23/bin/node", "");
        let pip = put(".pyenv/versions/3.12/pip.conf", "");
        let cargo = put(".cargo/config.toml", "[registry]\ntoken = \"s3cret\"\n");
        let odd = put(".cargo/config", "token = [");
        let found = Toolchains::find(&home, &[]);
        let folders: Vec<PathBuf> = [".cargo", ".pyenv", ".nvm"].map(|name| home.join(name)).into();
        assert_eq!(
            found.folders.iter().filter(|path| path.starts_with(&home)).cloned().collect::<Vec<_>>(),
            folders
        );
        for path in [&first, &second, &pip, &odd] {
            assert!(found.secrets.contains(path), "{}", path.display());
        }
        let replaced: Vec<_> = found.replaced.iter().filter(|(path, _)| *path == cargo).collect();
        assert!(replaced.len() == 1 && !replaced[0].1.contains("s3cret"), "{replaced:?}");
    }
}
