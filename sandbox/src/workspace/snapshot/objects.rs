//! What a snapshot is made of, read from the repository.
//!
//! Git is asked for names, differences and contents, in a bare repository of our own that borrows the real
//! objects (see [`crate::git`]). Nothing of the real repository but its objects and references is read: no
//! configuration, no hooks, no attributes. Git hands out raw blobs and never writes a file of the tree, so
//! there is no filter, line ending or encoding that could change a byte on its way.

#![allow(clippy::disallowed_methods, reason = "opens our own helper repository")]

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::error::{SnapshotError, SnapshotResult, at};
use super::index::{GitIndex, ObjectFormat};
use super::run_layer;
use super::store::LayerFolderLock;
use crate::git::{GitError, GitProcess, IsolatedGit};
use crate::path::RelPath;
use crate::workspace::folder::RepositoryPaths;
use crate::workspace::git_config;

/// The real repository, to be read.
#[derive(Debug)]
pub(super) struct SnapshotObjects {
    git: IsolatedGit,
    pub(super) repository: RepositoryPaths,
    pub(super) format: ObjectFormat,
    /// Objects may be missing on purpose.
    partial: bool,
}

/// One path in which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeDiffEntry {
    pub(super) path: Vec<u8>,
    /// 0 for nothing.
    pub(super) old_mode: u32,
    pub(super) new_mode: u32,
    /// Hexadecimal.
    pub(super) object: String,
}

pub(super) const TREE: u32 = 0o040000;
pub(super) const SUBMODULE: u32 = 0o160000;
pub(super) const LINK: u32 = 0o120000;

/// Git refuses names that mean `.git` on any file system, wherever it runs, and does not read what another program
/// computed of commits and packs.
const PROTECT: [&str; 8] = [
    "-c",
    "core.protectHFS=true",
    "-c",
    "core.protectNTFS=true",
    "-c",
    "core.commitGraph=false",
    "-c",
    "core.multiPackIndex=false",
];

/// Commits and their trees, each on a line.
const KNOWN: &str = "known-commits";
const MUCH: u64 = 1 << 20;

/// So many questions of the longest paths and their answers wait in two pipes of the usual size.
const PIECE: usize = 8;

const SHA1_CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
const SHA256_CONFIG: &str =
    "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n";

impl SnapshotObjects {
    /// `folder` is where our own repository is, or will be.
    pub(super) fn open(program: &Path, folder: &Path, repository: &RepositoryPaths) -> SnapshotResult<Self> {
        let config = repository.read("config", git_config::LARGEST)?.unwrap_or_default();
        let config = git_config::settings(&String::from_utf8_lossy(&config));
        let unsupported =
            |reason: String| SnapshotError::Unsupported { path: repository.common.clone(), reason };
        let format = match config.get("extensions.objectformat").map(String::as_str) {
            None | Some("sha1") => ObjectFormat::Sha1,
            Some("sha256") => ObjectFormat::Sha256,
            Some(other) => return Err(unsupported(format!("its object format `{other}` is not known"))),
        };
        match config.get("extensions.refstorage").map(String::as_str) {
            None | Some("files") => {}
            Some(other) => {
                let reason = format!("its references are kept as `{other}`, and only `files` can be read");
                return Err(unsupported(reason));
            }
        }
        let partial = config.contains_key("extensions.partialclone")
            || config.iter().any(|(key, value)| key.ends_with(".promisor") && value == "true");
        let git = IsolatedGit::open(program, folder).with_objects(&repository.common.join("objects"));
        Ok(Self { git, repository: repository.clone(), format, partial })
    }

    /// Whether our own repository is there and whole. A file system that lost power may bring its files back empty.
    pub(super) fn is_created(&self) -> bool {
        let folder = self.git.directory();
        let says = |name: &str, words: &str| {
            fs::read_to_string(folder.join(name)).is_ok_and(|text| text.contains(words))
        };
        let format = match self.format {
            ObjectFormat::Sha1 => "repositoryformatversion = 0",
            ObjectFormat::Sha256 => "objectformat = sha256",
        };
        says("HEAD", "ref: refs/")
            && says("config", format)
            && ["objects", "refs"].iter().all(|name| folder.join(name).is_dir())
    }

    /// Makes our own repository, on the disk before it has its name. `site` keeps others from doing the same.
    pub(super) fn create(&self, program: &Path, site: &LayerFolderLock<'_>) -> SnapshotResult<()> {
        if self.is_created() {
            return Ok(());
        }
        let (temporary, folder) = (site.new_path("git"), self.git.directory());
        IsolatedGit::create(program, &temporary).map_err(|error| self.git_error(error))?;
        // Our configuration, independent of what a new repository of this git has.
        let config = match self.format {
            ObjectFormat::Sha1 => SHA1_CONFIG,
            ObjectFormat::Sha256 => SHA256_CONFIG,
        };
        let path = temporary.join("config");
        fs::write(&path, config).map_err(at("can't write", &path))?;
        site.replace(&temporary, folder)
    }

    fn git_error(&self, source: GitError) -> SnapshotError {
        SnapshotError::Git { path: self.repository.common.clone(), source }
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.git.command(PROTECT);
        command.args(arguments);
        command
    }

    /// The commit a person means, and its tree.
    pub(super) fn resolve(&self, rev: &str) -> SnapshotResult<(String, String)> {
        let asked = rev;
        let nothing = |source| SnapshotError::NoCommit { rev: asked.to_owned(), source };
        if rev.is_empty() || rev.starts_with('-') || rev.contains(['\0', '\n']) {
            return Err(nothing(None));
        }
        // Git is asked with the reference's object: our repository has no references, so that no process has
        // to keep them up to date for another.
        let end = rev.find(['^', '~', '@', ':', '{']).filter(|end| *end > 0).unwrap_or(rev.len());
        let (name, tail) = if rev == "@" { ("HEAD", "") } else { rev.split_at(end) };
        let rev = if self.format.is_name(name.as_bytes()) {
            rev.to_owned()
        } else {
            let refs = run_layer::SnapshotReferences::read(&self.repository, self.format)?;
            format!("{}{tail}", refs.find(name).unwrap_or(name))
        };
        if let Some(tree) = self.remembered(&rev) {
            return Ok((rev, tree));
        }
        let mut out = Vec::new();
        let command = self.command(["rev-parse", &format!("{rev}^{{commit}}"), &format!("{rev}^{{tree}}")]);
        GitProcess::start(command, "rev-parse")
            .and_then(|running| running.read_into(&mut out)?.finish())
            .map_err(|error| nothing(Some(error)))?;
        let text = String::from_utf8_lossy(&out);
        match text.lines().collect::<Vec<_>>()[..] {
            [commit, tree] if [commit, tree].iter().all(|name| self.format.is_name(name.as_bytes())) => {
                self.remember(commit, tree);
                Ok((commit.to_owned(), tree.to_owned()))
            }
            // A range, say, which is more than a commit.
            _ => Err(nothing(None)),
        }
    }

    /// Where commits are remembered.
    fn known(&self) -> PathBuf {
        self.git.directory().join(KNOWN)
    }

    /// The tree of a commit that was asked for before: that never changes.
    fn remembered(&self, commit: &str) -> Option<String> {
        let known = fs::read_to_string(self.known()).ok()?;
        let tree = known.lines().rev().find_map(|line| line.strip_prefix(commit)?.strip_prefix(' '))?;
        let whole = [commit, tree].iter().all(|name| self.format.is_name(name.as_bytes()));
        whole.then(|| tree.to_owned())
    }

    /// What can't be remembered is asked for again.
    fn remember(&self, commit: &str, tree: &str) {
        let path = self.known();
        if fs::metadata(&path).is_ok_and(|stat| stat.len() > MUCH) {
            let _ = fs::remove_file(&path);
        }
        let file = fs::OpenOptions::new().append(true).create(true).open(&path);
        let _ = file.and_then(|mut file| file.write_all(format!("{commit} {tree}\n").as_bytes()));
    }

    /// What a tree has at some paths, by object; `None` where it has nothing.
    pub(super) fn objects_at(&self, tree: &str, paths: &[&RelPath]) -> SnapshotResult<Vec<Option<String>>> {
        if let Some(path) = paths.iter().find(|path| path.as_bytes().contains(&b'\n')) {
            let path = path.as_bytes().to_vec();
            return Err(SnapshotError::Hostile { path, reason: "is no path that git can be asked about" });
        }
        // A list of realistic length fits into a pipe; git is asked for a longer one in pieces.
        let mut found = Vec::new();
        for piece in paths.chunks(PIECE) {
            let mut command = self.command(["cat-file", "--batch-check=%(objectname)"]);
            command.stdin(Stdio::piped());
            let mut out = Vec::new();
            let (running, fed) = GitProcess::start(command, "cat-file")
                .map_err(|error| self.git_error(error))?
                .feed(|input| {
                    piece.iter().try_for_each(|path| {
                        input.write_all(format!("{tree}:").as_bytes())?;
                        input.write_all(path.as_bytes())?;
                        input.write_all(b"\n")
                    })
                });
            let ended = running.read_into(&mut out).and_then(GitProcess::finish);
            ended.map_err(|error| self.git_error(error))?;
            fed.map_err(|source: io::Error| {
                self.git_error(GitError::Pipe { command: "cat-file".into(), source })
            })?;
            let lines = out.split(|byte| *byte == b'\n').take(piece.len());
            found.extend(
                lines.map(|line| {
                    self.format.is_name(line).then(|| String::from_utf8_lossy(line).into_owned())
                }),
            );
        }
        match found.len() == paths.len() {
            true => Ok(found),
            false => {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                Err(self.git_error(GitError::Pipe { command: "cat-file".into(), source }))
            }
        }
    }

    /// The index git makes of a tree. A tree with names that are none (`..`, `.git`) is refused by it.
    pub(super) fn index_of(&self, tree: &str, scratch: &Path) -> SnapshotResult<GitIndex> {
        let mut command = self.command(["read-tree", tree]);
        command.env("GIT_INDEX_FILE", scratch);
        GitProcess::start(command, "read-tree")
            .and_then(|running| running.read_into(&mut io::sink())?.finish())
            .map_err(|error| self.git_error(error))?;
        let bytes = fs::read(scratch).map_err(at("can't read", scratch))?;
        fs::remove_file(scratch).map_err(at("can't remove", scratch))?;
        let index = GitIndex::parse(self.format, bytes)
            .map_err(|reason| SnapshotError::Index { path: scratch.to_owned(), reason })?;
        // Of a path that is there twice, the index keeps one without a word.
        let mut listed = NulCounter::default();
        GitProcess::start(self.command(["ls-tree", "-r", "-z", tree]), "ls-tree")
            .and_then(|running| running.read_into(&mut listed)?.finish())
            .map_err(|error| self.git_error(error))?;
        if listed.0 != index.len() {
            return Err(SnapshotError::Hostile {
                path: b".".to_vec(),
                reason: "has a path that is there twice",
            });
        }
        Ok(index)
    }

    /// Where two trees differ, directories named too; `None` when in more than `limit` paths.
    pub(super) fn differences(
        &self,
        old: &str,
        new: &str,
        limit: usize,
    ) -> SnapshotResult<Option<Vec<TreeDiffEntry>>> {
        let command =
            self.command(["diff-tree", "-r", "-t", "--raw", "-z", "--no-renames", "--no-abbrev", old, new]);
        let mut child = StreamingGit::start(command).map_err(|error| self.git_error(error))?;
        let mut found = Vec::new();
        let mut leaves = 0;
        let mut header = Vec::new();
        loop {
            let broken = |source| self.git_error(GitError::Pipe { command: "diff-tree".into(), source });
            header.clear();
            child.out.read_until(0, &mut header).map_err(broken)?;
            if header.is_empty() {
                child.finish("diff-tree").map_err(|error| self.git_error(error))?;
                return Ok(Some(found));
            }
            let mut path = Vec::new();
            child.out.read_until(0, &mut path).map_err(broken)?;
            path.pop();
            let difference = parse_difference(&header, path)
                .ok_or_else(|| broken(io::Error::from(io::ErrorKind::InvalidData)))?;
            leaves += usize::from(!(difference.old_mode == TREE || difference.new_mode == TREE));
            if leaves > limit {
                return Ok(None);
            }
            found.push(difference);
        }
    }

    /// Hands the contents of many blobs, in the order asked for, to `take`. `path` is named when one fails.
    pub(super) fn blobs<'a, T: Sync>(
        &self,
        wanted: &'a [T],
        name: impl Fn(&'a T) -> (String, &'a [u8]) + Sync,
        mut take: impl FnMut(&'a T, u64, &mut dyn Read) -> SnapshotResult<()>,
    ) -> SnapshotResult<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let broken = |source| self.git_error(GitError::Pipe { command: "cat-file".into(), source });
        let mut child = StreamingGit::start(self.command(["cat-file", "--batch", "--buffer"]))
            .map_err(|error| self.git_error(error))?;
        let input = child.child.stdin.take();
        std::thread::scope(|scope| {
            // Git answers while it is still being asked: with one thread, both sides would wait for ever.
            scope.spawn(|| {
                let Some(input) = input else { return };
                let mut input = io::BufWriter::new(input);
                for one in wanted {
                    if writeln!(input, "{}", name(one).0).is_err() {
                        // The reading side learns it as well, and says why.
                        return;
                    }
                }
            });
            let answered = (|| {
                let mut line = Vec::new();
                for one in wanted {
                    line.clear();
                    child.out.read_until(b'\n', &mut line).map_err(broken)?;
                    let text = String::from_utf8_lossy(&line);
                    let mut parts = text.split_ascii_whitespace().skip(1);
                    let size = match (parts.next(), parts.next().map(str::parse::<u64>)) {
                        (Some("blob"), Some(Ok(size))) => size,
                        (Some("missing"), _) => {
                            let (object, path) = name(one);
                            return Err(SnapshotError::Missing {
                                path: path.to_vec(),
                                object,
                                partial: self.partial,
                            });
                        }
                        (Some(_), Some(_)) => {
                            let path = name(one).1.to_vec();
                            return Err(SnapshotError::Hostile {
                                path,
                                reason: "is not a file in git's eyes",
                            });
                        }
                        _ => return Err(self.ended(&mut child)),
                    };
                    let mut content = (&mut child.out).take(size);
                    take(one, size, &mut content)?;
                    let left = content.limit();
                    if left > 0 {
                        return Err(self.ended(&mut child));
                    }
                    let mut newline = [0];
                    child.out.read_exact(&mut newline).map_err(broken)?;
                }
                Ok(())
            })();
            if answered.is_err() {
                // A caller that is still asking must not wait for a git that waits for us.
                let _ = child.child.kill();
            }
            answered
        })?;
        child.finish("cat-file").map_err(|error| self.git_error(error))
    }

    fn ended(&self, child: &mut StreamingGit) -> SnapshotError {
        let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
        match child.finish("cat-file") {
            Err(error) => self.git_error(error),
            Ok(()) => self.git_error(GitError::Pipe { command: "cat-file".into(), source: ended }),
        }
    }
}

/// How many names, each ended by a zero, went by.
#[derive(Debug, Default)]
struct NulCounter(usize);

impl Write for NulCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += memchr::memchr_iter(0, bytes).count();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parse_difference(header: &[u8], path: Vec<u8>) -> Option<TreeDiffEntry> {
    let text = std::str::from_utf8(header.strip_prefix(b":")?.strip_suffix(b"\0")?).ok()?;
    let mut parts = text.split(' ');
    let mut mode = || u32::from_str_radix(parts.next()?, 8).ok();
    let (old_mode, new_mode) = (mode()?, mode()?);
    let object = parts.nth(1)?.to_owned();
    Some(TreeDiffEntry { path, old_mode, new_mode, object })
}

/// A git whose output is read bit by bit. It is ended when its output is no longer read.
struct StreamingGit {
    child: Child,
    out: BufReader<ChildStdout>,
    done: bool,
}

impl StreamingGit {
    fn start(mut command: Command) -> Result<Self, GitError> {
        let program = PathBuf::from(command.get_program());
        command.stdin(Stdio::piped());
        let started = command.spawn().and_then(|mut child| {
            let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(Self { child, out: BufReader::with_capacity(256 * 1024, out), done: false })
        });
        started.map_err(|source| GitError::Start { program, source })
    }

    fn finish(&mut self, name: &str) -> Result<(), GitError> {
        drop(self.child.stdin.take());
        let mut message = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(64 * 1024).read_to_end(&mut message);
        }
        let command = name.to_owned();
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(source) => return Err(GitError::Pipe { command, source }),
        };
        self.done = true;
        if status.success() {
            return Ok(());
        }
        Err(GitError::Failed { command, status, message: crate::path::escape(message.trim_ascii()) })
    }
}

impl Drop for StreamingGit {
    fn drop(&mut self) {
        if !self.done {
            // It would otherwise wait for a reader of its output.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
