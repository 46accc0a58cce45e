//! Reads and writes objects of the repository, with gits that keep running.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use agency_sandbox::git::IsolatedGit;
use agency_sandbox::path::RelPath;

use super::error::{Error, files};
use super::file_access::unique_name;
use super::git_pool::{HasPooledGit, PooledGit};
use super::names::{Oid, OidFormat};

const DOING: &str = "read objects";

/// The links below a folder, relative to it.
pub(super) type TreeLinks = Arc<[(RelPath, Vec<u8>)]>;

/// How many folders' links are kept in memory, and how many links in all.
const FOLDERS_KNOWN: usize = 100_000;
const LINKS_KNOWN: usize = 200_000;

/// A git that answers for objects.
#[derive(Debug)]
pub(super) struct ObjectReader {
    talk: PooledGit,
    format: OidFormat,
    /// The links below each folder. A tree never changes, so they stay right.
    folders: HashMap<Oid, TreeLinks>,
    links: usize,
}

impl HasPooledGit for ObjectReader {
    fn pooled_git(&mut self) -> &mut PooledGit {
        &mut self.talk
    }
}

impl ObjectReader {
    pub(super) fn start(git: &IsolatedGit, format: OidFormat) -> Result<Self, Error> {
        let mut command = git.command(["cat-file", "-z", "--batch-command"]);
        // Git reports errors in its answers.
        command.stderr(Stdio::null());
        let (talk, folders) = (PooledGit::start(command)?, HashMap::new());
        Ok(Self { talk, format, folders, links: 0 })
    }

    pub(super) fn format(&self) -> OidFormat {
        self.format
    }

    /// The links below a tree, if they are known.
    pub(super) fn known_links(&self, tree: &Oid) -> Option<TreeLinks> {
        self.folders.get(tree).cloned()
    }

    pub(super) fn keep_links(&mut self, tree: &Oid, found: &TreeLinks) {
        if self.folders.len() >= FOLDERS_KNOWN || self.links + found.len() > LINKS_KNOWN {
            self.folders.clear();
            self.links = 0;
        }
        self.links += found.len();
        self.folders.insert(tree.clone(), Arc::clone(found));
    }

    /// Asks for the object of a name: its id, kind and size, and with `contents` its bytes.
    fn ask<T>(
        &mut self,
        what: &str,
        name: &[u8],
        read: impl FnOnce(Oid, &str, u64, &mut dyn BufRead) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let digits = self.format.digits();
        self.talk.request(&[what.as_bytes(), b" ", name, b"\0"].concat(), |output| {
            // `<object> <kind> <size>`, or the name and `missing`; a name is longer than an object's, or has no
            // space where that ends.
            let mut start = vec![0; digits + 1];
            output.read_exact(&mut start)?;
            if start[digits] != b' ' || !start[..digits].iter().all(u8::is_ascii_hexdigit) {
                let left = (name.len() + b" missing\n".len()).checked_sub(start.len());
                let mut rest = vec![0; left.ok_or(Error::Answer { doing: DOING })?];
                output.read_exact(&mut rest)?;
                return Ok(None);
            }
            let mut line = String::new();
            output.read_line(&mut line)?;
            // A single word is the reason why there is no object.
            let Some((kind, size)) = line.trim_end().split_once(' ') else { return Ok(None) };
            let size = size.parse().map_err(|_| Error::Answer { doing: DOING })?;
            read(Oid::of_line(&start[..digits])?, kind, size, output).map(Some)
        })
    }

    /// The bytes of an object of this kind.
    pub(super) fn contents(&mut self, object: &Oid, kind: &str) -> Result<Vec<u8>, Error> {
        let mut contents = Vec::new();
        self.copy(object, kind, &mut contents)?;
        Ok(contents)
    }

    /// The target of a link. It is cut to a length that no file system exceeds.
    pub(super) fn target(&mut self, object: &Oid) -> Result<Vec<u8>, Error> {
        let mut target = LinkTargetBuffer(Vec::new());
        self.copy(object, "blob", &mut target)?;
        Ok(target.0)
    }

    /// Copies the bytes of an object to `out`.
    pub(super) fn copy(&mut self, object: &Oid, kind: &str, out: &mut dyn Write) -> Result<(), Error> {
        let copied = self.ask("contents", object.as_str().as_bytes(), |_, found, size, output| {
            let copied = io::copy(&mut (&mut *output).take(size), out)?;
            output.read_exact(&mut [0])?;
            Ok(found == kind && copied == size)
        })?;
        match copied {
            Some(true) => Ok(()),
            _ => Err(Error::Missing { kind: kind.to_owned(), object: object.to_string() }),
        }
    }

    /// How many bytes an object has; `None` where there is no such object.
    pub(super) fn size_of(&mut self, object: &Oid) -> Result<Option<u64>, Error> {
        self.ask("info", object.as_str().as_bytes(), |_, _, size, _| Ok(size))
    }

    /// What kind of object this is.
    pub(super) fn kind_of(&mut self, object: &Oid) -> Result<String, Error> {
        let missing = || Error::Missing { kind: "object".to_owned(), object: object.to_string() };
        self.ask("info", object.as_str().as_bytes(), |_, kind, _, _| Ok(kind.to_owned()))?.ok_or_else(missing)
    }

    /// The tree that a commit names, even if the tree is missing.
    pub(super) fn tree_named_by(&mut self, commit: &Oid) -> Result<Oid, Error> {
        let text = self.contents(commit, "commit")?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Oid::of_line(line.strip_prefix(b"tree ").ok_or(Error::Answer { doing: DOING })?)
    }

    /// The tree of a commit; a tree is its own.
    pub(super) fn tree_of(&mut self, commit: &Oid) -> Result<Oid, Error> {
        let name = format!("{commit}^{{tree}}");
        let missing = || Error::Missing { kind: "tree".to_owned(), object: commit.to_string() };
        self.ask("info", name.as_bytes(), |object, _, _, _| Ok(object))?.ok_or_else(missing)
    }

    /// The commits a commit was made on.
    pub(super) fn parents(&mut self, commit: &Oid) -> Result<Vec<Oid>, Error> {
        let text = self.contents(commit, "commit")?;
        let header = text.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
        header.filter_map(|line| line.strip_prefix(b"parent ")).map(Oid::of_line).collect()
    }

    /// The blob of a file in a tree. Whether it can be executed, or is a link, is not reported.
    pub(super) fn file(&mut self, tree: &Oid, path: &RelPath) -> Result<Option<Oid>, Error> {
        let name = [tree.as_str().as_bytes(), b":", path.as_bytes()].concat();
        let found = self.ask("info", &name, |object, kind, _, _| Ok((kind == "blob").then_some(object)))?;
        Ok(found.flatten())
    }
}

/// A buffer that keeps the first bytes written to it.
struct LinkTargetBuffer(Vec<u8>);

impl Write for LinkTargetBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const MOST: usize = 4096;
        let room = MOST.saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend_from_slice(&bytes[..room]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Blob,
    Tree,
    Commit,
}

impl ObjectKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
        }
    }
}

/// A git that writes objects of one kind, each from a file that we put before it.
#[derive(Debug)]
pub(super) struct ObjectWriter {
    talk: PooledGit,
    /// The name of the file with the next object, relative to git's folder.
    name: String,
    path: PathBuf,
}

impl HasPooledGit for ObjectWriter {
    fn pooled_git(&mut self) -> &mut PooledGit {
        &mut self.talk
    }
}

impl ObjectWriter {
    pub(super) fn start(git: &IsolatedGit, kind: ObjectKind) -> Result<Self, Error> {
        let arguments = ["hash-object", "-w", "-t", kind.name(), "--no-filters", "--stdin-paths"];
        let mut command = git.command(arguments);
        command.stderr(Stdio::null());
        let name = format!("next.{}", unique_name());
        let path = git.directory().join(&name);
        Ok(Self { talk: PooledGit::start(command)?, name, path })
    }

    /// Writes an object. It is on the disk when this returns.
    pub(super) fn write(&mut self, contents: &[u8]) -> Result<Oid, Error> {
        if let Err(error) = fs::write(&self.path, contents) {
            let _ = fs::remove_file(&self.path);
            return Err(files("write", &self.path)(error));
        }
        let mut line = String::new();
        let read = self.talk.request(format!("{}\n", self.name).as_bytes(), |output| {
            output.read_line(&mut line)?;
            Oid::parse(line.trim_end()).map_err(|_| Error::Answer { doing: "write an object" })
        });
        let _ = fs::remove_file(&self.path);
        read
    }
}
