//! Reads the project files of a repository that may be hostile.
//!
//! A few small files in the root of a stranger's tree decide which checks apply. They are opened by descriptor, below
//! the root and never through a link; only regular files are read, up to a size. No program is run, and git is not
//! asked.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use agency_sandbox::harvest::{BaseLayers, HarvestEntry};
use agency_sandbox::path::RelPath;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// The largest manifest that is read. People write smaller ones.
const LARGEST: u64 = 4 << 20;
/// How many names of one folder are compared with a pattern.
const NAMES: usize = 100_000;

/// The files of a tree: a folder, or the layers in which a commit is checked out.
#[derive(Debug)]
pub struct ProjectFiles {
    /// Topmost first.
    layers: Vec<OwnedFd>,
    /// The combined view of several layers.
    stack: Option<BaseLayers>,
    /// What a setup left beside the tree.
    setup: Option<OwnedFd>,
}

/// The only folders of a setup that decide anything: where Python's environment is. No commit has them.
const OF_A_SETUP: [&str; 2] = [".venv", "venv"];

/// A path exists, and it is not a file that can be read; this is why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnreadableFile(pub(crate) &'static str);

impl ProjectFiles {
    /// Opens a folder as it is.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { layers: vec![open_folder(folder)?], stack: None, setup: None })
    }

    /// Opens the tree of a commit, by its layers, topmost first.
    pub fn open_layers(lowers: &[PathBuf]) -> io::Result<Self> {
        let open = || lowers.iter().map(|lower| open_folder(lower)).collect::<io::Result<Vec<_>>>();
        // One layer is a plain folder. A stack marks hidden entries, so every question goes to the combined view.
        let stack = if lowers.len() > 1 { Some(BaseLayers::new(open()?)) } else { None };
        Ok(Self { layers: open()?, stack, setup: None })
    }

    /// The same tree with what a setup left beside it, by its layer.
    pub fn with_setup(self, layer: &Path) -> io::Result<Self> {
        Ok(Self { setup: Some(open_folder(layer)?), ..self })
    }

    /// The text of a file; `None` where there is no entry.
    pub(crate) fn read(&self, path: &str) -> Result<Option<String>, UnreadableFile> {
        let kind = match self.kind(path) {
            None => return Ok(None),
            Some(kind) => kind,
        };
        match kind {
            FileType::RegularFile => {}
            FileType::Symlink => return Err(UnreadableFile("is a link, and links are not followed")),
            _ => return Err(UnreadableFile("is not a file")),
        }
        let closed = UnreadableFile("can't be opened");
        let file = match &self.stack {
            Some(stack) => {
                let path = RelPath::parse(path.as_bytes()).map_err(|_| closed)?;
                stack.open(&path).map_err(|_| closed)?
            }
            None => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                File::from(beneath(&self.layers[0], path, flags).map_err(|_| closed)?)
            }
        };
        if !file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST) {
            return Err(UnreadableFile("is larger than 4 MiB"));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).map_err(|_| UnreadableFile("can't be read"))?;
        let text = String::from_utf8_lossy(&bytes);
        // Editors on Windows write a byte order mark first, which no format allows.
        Ok(Some(text.trim_start_matches('\u{feff}').to_owned()))
    }

    /// The first path that matches a pattern: a file or folder, with `*` in the last part of its name.
    pub(crate) fn find(&self, pattern: &str) -> Option<String> {
        if !pattern.contains('*') {
            return self.has(pattern).then(|| pattern.to_owned());
        }
        let (folder, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        let mut found: Vec<String> =
            self.names(folder).into_iter().filter(|one| matches_glob(one, name)).collect();
        found.sort();
        let full = |name: String| if folder == "." { name } else { format!("{folder}/{name}") };
        found.into_iter().map(full).find(|path| self.has(path))
    }

    /// Whether there is an entry of exactly this name. A link counts, and is not followed: a check must not disappear
    /// because its evidence was replaced with a link.
    fn has(&self, path: &str) -> bool {
        self.kind(path).is_some()
    }

    fn kind(&self, path: &str) -> Option<FileType> {
        let parsed = RelPath::parse(path.as_bytes()).ok()?;
        if let Some(stack) = &self.stack
            && let Some(entry) = stack.lookup(&parsed).ok()?
        {
            return Some(match entry {
                HarvestEntry::File { .. } => FileType::RegularFile,
                HarvestEntry::Symlink { .. } => FileType::Symlink,
            });
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let kind = self.layers.iter().find_map(|layer| {
            let held = beneath(layer, path, flags).ok()?;
            Some(FileType::from_raw_mode(rustix::fs::fstat(held).ok()?.st_mode))
        });
        // Of a stack only folders are left here; other entries mark what one layer hides of another.
        kind.filter(|kind| self.stack.is_none() || *kind == FileType::Directory).or_else(|| {
            let setup = self.setup.as_ref().filter(|_| OF_A_SETUP.contains(&path))?;
            beneath(setup, path, flags | OFlags::DIRECTORY).is_ok().then_some(FileType::Directory)
        })
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for layer in &self.layers {
            let Ok(held) = beneath(layer, folder, flags) else { continue };
            let Ok(entries) = rustix::fs::Dir::new(held) else { continue };
            let text = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
            names.extend(entries.flatten().take(NAMES).filter_map(text));
        }
        names
    }
}

fn beneath(root: &OwnedFd, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// `*` matches any characters. A name that starts with a dot matches only a pattern that does, as in a shell.
fn matches_glob(name: &str, pattern: &str) -> bool {
    if name.starts_with('.') != pattern.starts_with('.') {
        return false;
    }
    let Some((first, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_star_stands_for_anything_but_a_leading_dot() {
        for (name, pattern, like) in [
            ("a.sln", "*.sln", true),
            ("test_a.py", "test*.py", true),
            ("test.py", "test*.py", true),
            ("testa.pyc", "test*.py", false),
            ("a.b.c", "a*b*c", true),
            ("abc", "a*c*c", false),
            (".sln", "*.sln", false),
            (".golangci.yml", ".golangci*", true),
        ] {
            assert_eq!(matches_glob(name, pattern), like, "{name} {pattern}");
        }
    }

    #[test]
    fn of_a_setup_only_pythons_environment_is_seen() {
        let (tree, layer) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        for folder in [".venv", "node_modules"] {
            fs::create_dir(layer.path().join(folder)).expect("a folder");
        }
        fs::write(layer.path().join("package.json"), "{}").expect("a file");
        let files = ProjectFiles::open(tree.path()).and_then(|files| files.with_setup(layer.path()));
        let files = files.expect("opened");
        assert_eq!(files.find(".venv").as_deref(), Some(".venv"));
        assert_eq!(files.find("node_modules"), None);
        assert_eq!(files.read("package.json"), Ok(None), "what a setup left is no manifest");
    }

    #[test]
    fn links_devices_and_giants_are_there_and_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("another");
        fs::write(outside.path().join("package.json"), "{}").expect("a file");
        let root = folder.path();
        symlink(outside.path().join("package.json"), root.join("package.json")).expect("a link");
        symlink(outside.path(), root.join("tests")).expect("a link");
        fs::create_dir(root.join("Cargo.toml")).expect("a folder");
        let pipe = root.join("go.mod");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, FileType::Fifo, Mode::from(0o644), 0).expect("a pipe");
        File::create(root.join("pom.xml")).and_then(|file| file.set_len(LARGEST + 1)).expect("a giant");
        fs::write(root.join("mix.exs"), "\u{feff}x").expect("a file");
        let sight = ProjectFiles::open(root).expect("sight");
        for name in ["package.json", "Cargo.toml", "go.mod", "pom.xml"] {
            assert!(sight.read(name).is_err(), "{name}");
            assert_eq!(sight.find(name).as_deref(), Some(name));
        }
        assert_eq!(sight.read("mix.exs"), Ok(Some("x".into())));
        assert_eq!(sight.find("mix*").as_deref(), Some("mix.exs"));
        for name in ["tests/package.json", "../x", "/etc/passwd", "tests/*.json", "none"] {
            assert_eq!(sight.read(name), Ok(None), "{name}");
            assert_eq!(sight.find(name), None, "{name}");
        }
    }
}
