//! Scratch: what the base's `.gitignore` files ignore.
//!
//! Scratch is always writable and never harvested: build output, caches, installed packages. The rules are
//! the base's; an agent that edits a `.gitignore` changes nothing about its own run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::harvest::BaseLayers;
use crate::path::RelPath;
use crate::untrusted;

/// Names that are folders of build output or packages in every ecosystem we know. A pattern without a
/// trailing slash may mean a file; for these it means a folder, and it is made if it is missing.
const FOLDERS: &[&str] = &[
    "target",
    "node_modules",
    "dist",
    "build",
    "out",
    ".venv",
    "venv",
    "__pycache__",
    ".next",
    ".nuxt",
    ".cache",
    ".gradle",
    ".tox",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "coverage",
    "bin",
    "obj",
    ".dart_tool",
    ".turbo",
    ".parcel-cache",
    "tmp",
    "log",
    "logs",
    ".svelte-kit",
    ".output",
];

/// Folders whose content comes from a registry or a compiler: no person keeps a secret there.
const STORES: &[&str] =
    &["node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".gradle", ".dart_tool", ".git"];

/// A `.gitignore` larger than this is not one a person wrote.
const LARGEST: u64 = 1 << 20;

/// The ignore rules of a base: one or several layers, topmost first.
#[derive(Debug)]
pub struct IgnoreRules {
    layers: Vec<PathBuf>,
    /// The repository's own `info/exclude`.
    exclude: Option<PathBuf>,
    /// What is known of directories; forgotten when it becomes much.
    known: RefCell<HashMap<RelPath, DirectoryRules>>,
}

/// How many directories are remembered: enough for those above and around the one that is looked at.
const MOST_KNOWN: usize = 4096;

/// What the rules say about a directory, and which of them hold for what is in it.
#[derive(Debug, Clone)]
struct DirectoryRules {
    scratch: bool,
    /// The nearest first; each with the length of the path of the directory it is for.
    rules: Rc<[(usize, Rc<Gitignore>)]>,
}

/// A repository's own rules. What is no plain file says nothing.
fn read_exclude(path: &Path) -> String {
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    untrusted::read_text(folder, name, LARGEST).ok().flatten().unwrap_or_default()
}

impl IgnoreRules {
    pub fn new(layers: Vec<PathBuf>, exclude: Option<PathBuf>) -> Self {
        Self { layers, exclude, known: RefCell::default() }
    }

    /// Whether the path is ignored, itself or through a directory above it. What is known of a directory is kept, so
    /// that a path costs its length, however deep it lies.
    pub fn is_scratch(&self, path: &RelPath, is_directory: bool) -> bool {
        let Some(parent) = path.parent() else { return false };
        let above = self.known(&parent);
        above.scratch || is_ignored(&above.rules, path, is_directory)
    }

    fn known(&self, directory: &RelPath) -> DirectoryRules {
        // The nearest directory above that is known, and those below it that are not.
        let mut unknown = Vec::new();
        let mut at = Some(directory.clone());
        let mut known = None;
        while let Some(path) = at {
            if let Some(found) = self.known.borrow().get(&path) {
                known = Some(found.clone());
                break;
            }
            at = path.parent();
            unknown.push(path);
        }
        let mut known = known.unwrap_or(DirectoryRules { scratch: false, rules: Rc::new([]) });
        for path in unknown.into_iter().rev() {
            let scratch = known.scratch || (!path.is_root() && is_ignored(&known.rules, &path, true));
            // In an ignored directory no rule brings anything back.
            if !scratch && let Some(own) = self.rules_of(&path) {
                let length = if path.is_root() { 0 } else { path.as_bytes().len() + 1 };
                known.rules = std::iter::once((length, own)).chain(known.rules.iter().cloned()).collect();
            }
            known.scratch = scratch;
            let mut all = self.known.borrow_mut();
            if all.len() >= MOST_KNOWN {
                all.clear();
            }
            all.insert(path, known.clone());
        }
        known
    }

    fn rules_of(&self, directory: &RelPath) -> Option<Rc<Gitignore>> {
        let mut text = String::new();
        if directory.is_root()
            && let Some(exclude) = &self.exclude
        {
            // Before the root's own rules: the last match in a file wins, so those win over it.
            text.push_str(&read_exclude(exclude));
            text.push('\n');
        }
        text.push_str(&self.read(&directory.join(b".gitignore")).unwrap_or_default());
        (!text.trim().is_empty()).then(|| Rc::new(compile(&text)))
    }

    /// Several layers as one. A single one is a live folder, which may have mounts in it that the stack of
    /// layers, made for trees of our own, would refuse to enter.
    fn stack(&self) -> Option<BaseLayers> {
        let several = self.layers.len() > 1;
        several.then(|| BaseLayers::new(self.layers.iter().filter_map(open_root).collect()))
    }

    /// A file of the base, never through a symbolic link.
    fn read(&self, path: &RelPath) -> Option<String> {
        if let Some(stack) = self.stack() {
            let mut bytes = Vec::new();
            stack.open(path).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        self.layers.iter().find_map(|layer| {
            let root = open_root(layer)?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let file = rustix::fs::openat2(&root, path.as_path(), flags, Mode::empty(), resolve).ok()?;
            let stat = rustix::fs::fstat(&file).ok()?;
            if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
                return None;
            }
            let mut bytes = Vec::new();
            fs::File::from(file).take(LARGEST).read_to_end(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        })
    }

    /// The directories that are opened for writing as scratch: those the root's rules name, made if they are
    /// missing, and those at the root that its wildcards match.
    pub fn directories(&self) -> Vec<RelPath> {
        let mut text = self.exclude.as_deref().map(read_exclude).unwrap_or_default();
        text.push('\n');
        text.push_str(&self.read(&RelPath::root().join(b".gitignore")).unwrap_or_default());

        let mut found: Vec<RelPath> = Vec::new();
        let (mut wildcards, mut exceptions) = (Vec::new(), false);
        for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            exceptions |= line.starts_with('!');
            if line.contains(['*', '?', '[', '\\', '!']) {
                wildcards.push(line);
                continue;
            }
            let slashed = line.ends_with('/');
            let name = line.trim_matches('/');
            let known = FOLDERS.contains(&name.rsplit('/').next().unwrap_or_default());
            if let Ok(path) = RelPath::parse(name.as_bytes())
                && !path.is_root()
                && (slashed || known || self.has_directory(&path))
                && !self.has_other(&path)
            {
                found.push(path);
            }
        }
        if !wildcards.is_empty() {
            let mut candidates = self.root_directories();
            // Compiling the rules costs more than everything else here, and most wildcards are for files: a
            // name that holds no pattern's longest literal part can't match.
            candidates.retain(|path| wildcards.iter().any(|pattern| may_match(pattern, path.name())));
            found.extend(candidates.into_iter().filter(|path| self.is_scratch(path, true)));
        }
        if exceptions {
            found.retain(|path| self.is_scratch(path, true));
        }
        found.sort();
        found.dedup();
        found
    }

    /// Ignored files whose names say that they hold secrets. They are hidden from the agent.
    pub fn secrets(&self) -> Vec<RelPath> {
        let mut found = Vec::new();
        for layer in &self.layers {
            let Some(root) = open_root(layer) else { continue };
            let mut waiting = vec![RelPath::root()];
            while let Some(directory) = waiting.pop() {
                let Some(entries) = list(&root, &directory) else { continue };
                for (name, kind) in entries {
                    if kind.is_dir() {
                        if !STORES.iter().any(|store| store.as_bytes() == name) {
                            waiting.push(directory.join(&name));
                        }
                    } else if is_secret_name(&name) {
                        let path = directory.join(&name);
                        if self.is_scratch(&path, false) {
                            found.push(path);
                        }
                    }
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    fn root_directories(&self) -> Vec<RelPath> {
        if let Some(stack) = self.stack() {
            let names = stack.directories_in(&RelPath::root()).into_iter().filter(|name| name != b".git");
            return names.map(|name| RelPath::root().join(&name)).collect();
        }
        let roots = self.layers.iter().filter_map(open_root);
        let entries = roots.filter_map(|root| list(&root, &RelPath::root())).flatten();
        entries
            .filter(|(name, kind)| kind.is_dir() && name != b".git")
            .map(|(name, _)| RelPath::root().join(&name))
            .collect()
    }

    fn has_directory(&self, path: &RelPath) -> bool {
        match self.stack() {
            Some(stack) => stack.directory_exists(path),
            None => self.kind(path).is_some_and(|kind| kind.is_dir()),
        }
    }

    fn has_other(&self, path: &RelPath) -> bool {
        match self.stack() {
            Some(stack) => stack.leaf_exists(path),
            None => self.kind(path).is_some_and(|kind| !kind.is_dir()),
        }
    }

    fn kind(&self, path: &RelPath) -> Option<rustix::fs::FileType> {
        self.layers.iter().find_map(|layer| {
            let root = open_root(layer)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat2(&root, path.as_path(), flags, Mode::empty(), ResolveFlags::BENEATH)
                .ok()?;
            Some(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&fd).ok()?.st_mode))
        })
    }
}

/// One path by itself: the rules nearest to it win.
fn is_ignored(rules: &[(usize, Rc<Gitignore>)], path: &RelPath, is_directory: bool) -> bool {
    for (skip, rules) in rules {
        match rules.matched(OsStr::from_bytes(&path.as_bytes()[*skip..]), is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
    }
    false
}

/// Whether a pattern could match a name at the root, looking only at its longest part without wildcards.
fn may_match(pattern: &str, name: &[u8]) -> bool {
    let first =
        pattern.trim_start_matches(['!', '/']).split('/').find(|part| *part != "**").unwrap_or_default();
    let literal = first.split(['*', '?', '[', ']', '\\']).max_by_key(|part| part.len()).unwrap_or_default();
    // A class between brackets is no literal; a pattern that has one costs the compilation.
    literal.is_empty()
        || first.contains(['[', '\\'])
        || name.windows(literal.len()).any(|window| window == literal.as_bytes())
}

fn compile(text: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in text.lines() {
        // A line that does not parse ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn open_root(layer: &PathBuf) -> Option<OwnedFd> {
    rustix::fs::open(layer, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn list(root: &OwnedFd, directory: &RelPath) -> Option<Vec<(Vec<u8>, rustix::fs::FileType)>> {
    let path = if directory.is_root() { OsStr::new(".") } else { OsStr::from_bytes(directory.as_bytes()) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let folder = rustix::fs::openat2(root.as_fd(), path, flags, Mode::empty(), resolve).ok()?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(folder).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push((name.to_vec(), entry.file_type()));
        }
    }
    Some(entries)
}

/// Whether people keep secrets in files of this name.
fn is_secret_name(name: &[u8]) -> bool {
    const EXACT: &[&[u8]] = &[
        b".env",
        b".envrc",
        b".netrc",
        b".npmrc",
        b".pypirc",
        b".htpasswd",
        b".pgpass",
        b"id_rsa",
        b"id_dsa",
        b"id_ecdsa",
        b"id_ed25519",
        b"credentials",
        b"credentials.json",
        b"secrets.json",
        b"secrets.yml",
        b"secrets.yaml",
        b"secrets.toml",
        b"terraform.tfstate",
        b"kubeconfig",
    ];
    const ENDINGS: &[&[u8]] =
        &[b".pem", b".key", b".p12", b".pfx", b".jks", b".keystore", b".kdbx", b".tfvars", b".gpg", b".ppk"];
    const SAMPLES: &[&[u8]] = &[b".example", b".sample", b".template", b".dist"];
    EXACT.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || (name.starts_with(b".env.") && !SAMPLES.iter().any(|sample| name.ends_with(sample)))
        || (name.starts_with(b"service-account") && name.ends_with(b".json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn base(files: &[(&str, &str)]) -> (tempfile::TempDir, IgnoreRules) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, contents) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("folders");
            fs::write(file, contents).expect("a file");
        }
        let ignored = IgnoreRules::new(vec![folder.path().to_owned()], None);
        (folder, ignored)
    }

    #[test]
    fn the_nearest_rules_win_and_an_ignored_directory_covers_all_below() {
        let (_folder, ignored) =
            base(&[(".gitignore", "*.log\n/target\n"), ("web/.gitignore", "!keep.log\nnode_modules\n")]);
        assert!(ignored.is_scratch(&path("a.log"), false));
        assert!(!ignored.is_scratch(&path("web/keep.log"), false));
        assert!(ignored.is_scratch(&path("target/debug/x"), false));
        assert!(ignored.is_scratch(&path("web/node_modules/x/y.js"), false));
        assert!(!ignored.is_scratch(&path("web/src/x.js"), false));
    }

    #[test]
    fn named_folders_are_opened_even_when_missing_and_files_are_not() {
        let (_folder, ignored) = base(&[
            (".gitignore", "/target\nout/\n.env\n*.egg-info\n!kept\nkept/\n"),
            ("x.egg-info/a", ""),
            ("src/a", ""),
        ]);
        let names: Vec<_> = ignored.directories().iter().map(RelPath::to_string).collect();
        assert_eq!(names, ["kept", "out", "target", "x.egg-info"]);
    }

    #[test]
    fn ignored_files_with_secret_names_are_found_wherever_they_are() {
        let (_folder, ignored) = base(&[
            (".gitignore", ".env*\n*.key\n"),
            (".env", "A=1"),
            ("web/.env.local", "A=1"),
            ("web/.env.example", "A="),
            ("a/b/server.key", "k"),
            ("a/b/tracked.pem", "not ignored"),
        ]);
        let names: Vec<_> = ignored.secrets().iter().map(RelPath::to_string).collect();
        assert_eq!(names, [".env", "a/b/server.key", "web/.env.local"]);
    }

    #[test]
    fn a_symbolic_link_as_gitignore_is_not_followed() {
        let (folder, ignored) = base(&[("rules", "*\n")]);
        std::os::unix::fs::symlink("rules", folder.path().join(".gitignore")).expect("a link");
        assert!(!ignored.is_scratch(&path("a"), false));
    }
}
