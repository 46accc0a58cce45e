//! A repository of our own for one checkout, in which its files and its index are made ready.
//!
//! Which bytes a path has in a person's checkout is git's decision: line endings, encodings, links on file
//! systems without links, and whether it is there at all. So git makes the files, in a folder of ours that is
//! empty, from an index that holds only the changed paths and the attributes above them. Where no attribute
//! and no setting says anything, a file is its blob, and is written without asking. The person's files and
//! index are not touched by this; both sides of a change are made, one to compare with what is there, one to
//! put in its place.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_sandbox::git::OwnGit;
use agency_sandbox::path::RelPath;
use agency_sandbox::untrusted;

use super::difference::{Entry, Kind};
use super::error::{Error, files, odd};
use super::names::{Format, Oid};
use super::objects::Objects;
use super::repository::{Repository, erase, read_file};
use super::settings::Settings;
use super::worktree::Worktree;

/// Made for one checkout, and thrown away.
#[derive(Debug)]
pub(super) struct Bench {
    git: OwnGit,
    folder: PathBuf,
    format: Format,
    /// The person's.
    pub(super) settings: Settings,
    /// Nothing but an attribute in the tree could make a file differ from its blob.
    raw: bool,
}

/// Paths of a tree.
pub(super) type Entries<'a> = Vec<(&'a RelPath, &'a Entry)>;

/// The most of a file of patterns that is read.
const PATTERNS: u64 = 4 << 20;
/// Where a machine's own attributes may be, below where git is installed, and where distributions have them.
const OF_THE_MACHINE: [&str; 2] = ["../etc/gitattributes", "/etc/gitattributes"];

impl Bench {
    /// The caller has the landing lock: there is one at a time.
    pub(super) fn new(repository: &Repository, worktree: &Worktree) -> Result<Self, Error> {
        let folder = repository.place.join("work");
        erase(&folder)?;
        let settings = repository.settings_in(&worktree.git)?;
        let own = folder.join("git");
        for name in ["", "old", "new", "sparse", "git", "git/objects", "git/refs", "git/info"] {
            repository.folder(&folder.join(name))?;
        }
        let put = |name: &str, contents: &[u8]| {
            let path = own.join(name);
            fs::write(&path, contents).map_err(files("write", &path))
        };
        put("HEAD", b"ref: refs/own/none\n")?;
        put("config", settings.repeated(repository.format).as_bytes())?;
        let copied = [
            ("info/attributes", repository.real.common.join("info/attributes")),
            ("info/sparse-checkout", worktree.git.join("info/sparse-checkout")),
        ];
        let installed = repository.program.parent().unwrap_or(Path::new("/"));
        let machine = OF_THE_MACHINE.iter().any(|path| installed.join(path).exists());
        let mut raw = settings.are_files_raw() && !machine;
        for (name, from) in copied {
            if let Some(contents) = read_file(&from, PATTERNS).map_err(files("read", &from))? {
                put(name, &contents)?;
                raw &= name != "info/attributes";
            }
        }
        // The other half of an index that is split.
        for entry in fs::read_dir(&worktree.git).map_err(files("list", &worktree.git))?.flatten() {
            if entry.file_name().as_bytes().starts_with(b"sharedindex.") {
                let path = own.join(entry.file_name());
                let checked = untrusted::check_real(&worktree.git, Path::new(&entry.file_name()));
                checked.map_err(odd(&worktree.git))?;
                std::os::unix::fs::symlink(entry.path(), &path).map_err(files("link", &path))?;
            }
        }
        let git = repository.own_git(&own);
        Ok(Self { git, folder, format: repository.format, settings, raw })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Git with this index, and one of the folders as its work tree.
    pub(super) fn command<S: AsRef<OsStr>>(
        &self,
        index: &str,
        side: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.git.command(arguments);
        command.env("GIT_INDEX_FILE", self.path(index)).env("GIT_WORK_TREE", self.path(side));
        command.current_dir(self.path(side));
        // The machine's attributes are a person's, as its settings are.
        command.env_remove("GIT_ATTR_NOSYSTEM");
        command
    }

    /// Runs it with a list of records on its input.
    pub(super) fn run_with<T>(
        command: Command,
        name: &'static str,
        records: impl IntoIterator<Item = T>,
        write: impl Fn(&mut dyn Write, T) -> io::Result<()>,
    ) -> Result<Vec<u8>, Error> {
        OwnGit::run_with(command, name, |input| {
            records.into_iter().try_for_each(|record| write(input, record)).map_err(Error::Pipe)
        })
    }

    pub(super) fn run<S: AsRef<OsStr>>(
        &self,
        index: &str,
        side: &str,
        name: &'static str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Vec<u8>, Error> {
        Self::run_with(self.command(index, side, arguments), name, [(); 0], |_, ()| Ok(()))
    }

    /// Puts paths into an index, or takes them out; those that go first, to make room.
    pub(super) fn set<'a>(
        &self,
        index: &str,
        entries: impl Iterator<Item = (&'a RelPath, Option<&'a Entry>)> + Clone,
    ) -> Result<(), Error> {
        let command = self.command(index, "new", ["update-index", "-z", "--index-info"]);
        let gone = entries.clone().filter(|(_, entry)| entry.is_none());
        let put = entries.filter(|(_, entry)| entry.is_some());
        let nothing = self.format.nothing();
        Self::run_with(command, "update-index", gone.chain(put), |input, (path, entry)| {
            match entry {
                Some(entry) => write!(input, "{} {}\t", entry.kind.mode(), entry.object)?,
                None => write!(input, "0 {nothing}\t")?,
            }
            name(input, path)
        })?;
        Ok(())
    }

    /// Makes the files of one side, and says on which of them the person's git would run a filter.
    pub(super) fn make(
        &self,
        objects: &mut Objects,
        side: &str,
        tree: &Oid,
        entries: &Entries<'_>,
    ) -> Result<Vec<(RelPath, String)>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let attributes = attributes(objects, tree, entries)?;
        if self.raw && attributes.is_empty() {
            self.make_raw(objects, side, entries)?;
            return Ok(Vec::new());
        }
        let index = format!("{side}.index");
        let above = attributes.iter().map(|(path, entry)| (path, Some(entry)));
        let wanted = entries.iter().map(|(path, entry)| (*path, Some(*entry)));
        // A file of attributes that changes is there twice, and the second is the better known.
        self.set(&index, above.chain(wanted))?;
        let command = self.command(&index, side, ["checkout-index", "--quiet", "-z", "--stdin"]);
        Self::run_with(command, "checkout-index", entries, |input, (path, _)| name(input, path))?;
        self.filters(side, entries)
    }

    fn make_raw(&self, objects: &mut Objects, side: &str, entries: &Entries<'_>) -> Result<(), Error> {
        for (path, entry) in entries {
            let path = self.path(side).join(path.as_path());
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(files("make", folder))?;
            }
            let failed = files("write", &path);
            if entry.kind == Kind::Link {
                let target = objects.contents(&entry.object, "blob")?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), &path).map_err(&failed)?;
                continue;
            }
            let mode = if entry.kind == Kind::Program { 0o755 } else { 0o644 };
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode).open(&path).map_err(&failed)?;
            let mut out = io::BufWriter::new(file);
            objects.copy(&entry.object, "blob", &mut out)?;
            out.flush().map_err(&failed)?;
        }
        Ok(())
    }

    /// Those of these paths that a sparse checkout leaves out. Only `read-tree` knows the patterns; it is let
    /// check out the paths into another empty folder.
    pub(super) fn left_out(&self, entries: &Entries<'_>) -> Result<HashSet<RelPath>, Error> {
        if entries.is_empty() || !self.settings.is_on("core.sparsecheckout") {
            return Ok(HashSet::new());
        }
        let (index, side) = ("sparse.index", "sparse");
        self.set(index, entries.iter().map(|(path, entry)| (*path, Some(*entry))))?;
        let tree = Oid::of_line(&self.run(index, side, "write-tree", ["write-tree"])?)?;
        fs::remove_file(self.path(index)).map_err(files("remove", &self.path(index)))?;
        let nothing = Oid::of_line(&self.run(index, side, "mktree", ["mktree"])?)?;
        let arguments = ["read-tree", "-m", "-u", nothing.as_str(), tree.as_str()];
        self.run(index, side, "read-tree", arguments)?;
        let listed = self.run(index, side, "ls-files", ["ls-files", "-v", "-z"])?;
        let left_out = listed.split(|byte| *byte == 0).filter_map(|line| line.strip_prefix(b"S "));
        left_out
            .map(|path| RelPath::parse(path).map_err(|_| Error::Answer { doing: "list an index" }))
            .collect()
    }

    /// The filters that the person's git would run on these paths of one side.
    pub(super) fn filters(&self, side: &str, paths: &Entries<'_>) -> Result<Vec<(RelPath, String)>, Error> {
        const DOING: &str = "read attributes";
        let known = self.settings.filters();
        if known.is_empty() || paths.is_empty() {
            return Ok(Vec::new());
        }
        let index = format!("{side}.index");
        let command = self.command(&index, side, ["check-attr", "--cached", "-z", "--stdin", "filter"]);
        let output = Self::run_with(command, "check-attr", paths, |input, (path, _)| name(input, path))?;
        let parts: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
        let mut found = Vec::new();
        for answer in parts.chunks_exact(3) {
            let path = RelPath::parse(answer[0]).map_err(|_| Error::Answer { doing: DOING })?;
            let filter = String::from_utf8_lossy(answer[2]).into_owned();
            if known.contains(filter.as_str()) {
                found.push((path, filter));
            }
        }
        Ok(found)
    }
}

/// A path, as git reads lists of them.
pub(super) fn name(input: &mut dyn Write, path: &RelPath) -> io::Result<()> {
    input.write_all(path.as_bytes())?;
    input.write_all(&[0])
}

/// The files of attributes above these paths in a tree.
fn attributes(
    objects: &mut Objects,
    tree: &Oid,
    paths: &Entries<'_>,
) -> Result<Vec<(RelPath, Entry)>, Error> {
    let folders: BTreeSet<RelPath> = paths.iter().flat_map(|(path, _)| path.ancestors()).collect();
    let mut found = Vec::new();
    for folder in folders {
        let path = folder.join(b".gitattributes");
        if let Some(object) = objects.file(tree, &path)? {
            found.push((path, Entry { kind: Kind::File, object }));
        }
    }
    Ok(found)
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The next one removes what is left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
