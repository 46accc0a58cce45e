//! A repository of our own in which the files and the index of one checkout are prepared.
//!
//! Git decides which bytes a path has in a person's checkout: line endings, encodings, links on file systems without
//! links, and whether the path is there at all. So git makes the files, in an empty folder of ours, from an index that
//! holds only the changed paths and the attributes above them. Where no attribute and no setting applies, a file is its
//! blob, and we write it without git. The staging touches neither the person's files nor their index. It makes both
//! sides of a change: one to compare with the checkout, one to put in its place.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_sandbox::git::IsolatedGit;
use agency_sandbox::path::RelPath;
use agency_sandbox::untrusted;

use super::error::{Error, files, untrusted};
use super::file_access::{read_file, remove_tree};
use super::git_settings::GitSettings;
use super::names::{Oid, OidFormat};
use super::objects::ObjectReader;
use super::repository::LandingRepository;
use super::tree_diff::{GitTreeEntry, GitTreeEntryKind};
use super::worktree::Worktree;

/// The staging of one checkout. Its folder is removed when it is dropped.
#[derive(Debug)]
pub(super) struct CheckoutStaging {
    git: IsolatedGit,
    folder: PathBuf,
    format: OidFormat,
    /// The person's settings.
    pub(super) settings: GitSettings,
    /// Nothing but an attribute in the tree could make a file differ from its blob.
    raw: bool,
}

/// Paths of a tree.
pub(super) type StagedPaths<'a> = Vec<(&'a RelPath, &'a GitTreeEntry)>;

/// The largest file of patterns that is read.
const PATTERNS: u64 = 4 << 20;
/// The machine's own attributes: relative to the folder where git is installed, and where distributions have them.
const OF_THE_MACHINE: [&str; 2] = ["../etc/gitattributes", "/etc/gitattributes"];

impl CheckoutStaging {
    /// Makes an empty staging. The caller holds the landing lock, so there is one staging at a time.
    pub(super) fn new(repository: &LandingRepository, worktree: &Worktree) -> Result<Self, Error> {
        let folder = repository.place.join("work");
        remove_tree(&folder)?;
        let settings = repository.settings_in(&worktree.git)?;
        let own = folder.join("git");
        for name in ["", "old", "new", "sparse", "git", "git/objects", "git/refs", "git/info"] {
            repository.create_folder(&folder.join(name))?;
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
                checked.map_err(untrusted(&worktree.git))?;
                std::os::unix::fs::symlink(entry.path(), &path).map_err(files("link", &path))?;
            }
        }
        let git = repository.own_git(&own);
        Ok(Self { git, folder, format: repository.format, settings, raw })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A git command with this index and one of the folders as its work tree.
    pub(super) fn command<S: AsRef<OsStr>>(
        &self,
        index: &str,
        side: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.git.command(arguments);
        command.env("GIT_INDEX_FILE", self.path(index)).env("GIT_WORK_TREE", self.path(side));
        command.current_dir(self.path(side));
        // The machine's attributes apply to a person's checkout, as the machine's settings do.
        command.env_remove("GIT_ATTR_NOSYSTEM");
        command
    }

    /// Runs git with a list of records on its input.
    pub(super) fn run_with<T>(
        command: Command,
        name: &'static str,
        records: impl IntoIterator<Item = T>,
        write: impl Fn(&mut dyn Write, T) -> io::Result<()>,
    ) -> Result<Vec<u8>, Error> {
        IsolatedGit::run_with(command, name, |input| {
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

    /// Puts paths into an index, or removes them. Removals come first, to make room.
    pub(super) fn set_paths<'a>(
        &self,
        index: &str,
        entries: impl Iterator<Item = (&'a RelPath, Option<&'a GitTreeEntry>)> + Clone,
    ) -> Result<(), Error> {
        let command = self.command(index, "new", ["update-index", "-z", "--index-info"]);
        let gone = entries.clone().filter(|(_, entry)| entry.is_none());
        let put = entries.filter(|(_, entry)| entry.is_some());
        let nothing = self.format.null_id();
        Self::run_with(command, "update-index", gone.chain(put), |input, (path, entry)| {
            match entry {
                Some(entry) => write!(input, "{} {}\t", entry.kind.mode(), entry.object)?,
                None => write!(input, "0 {nothing}\t")?,
            }
            write_path(input, path)
        })?;
        Ok(())
    }

    /// Makes the files of one side, and returns those on which the person's git would run a filter.
    pub(super) fn make(
        &self,
        objects: &mut ObjectReader,
        side: &str,
        tree: &Oid,
        entries: &StagedPaths<'_>,
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
        // A file of attributes that changes is in both lists; the second entry counts.
        self.set_paths(&index, above.chain(wanted))?;
        let command = self.command(&index, side, ["checkout-index", "--quiet", "-z", "--stdin"]);
        Self::run_with(command, "checkout-index", entries, |input, (path, _)| write_path(input, path))?;
        self.filters(side, entries)
    }

    fn make_raw(
        &self,
        objects: &mut ObjectReader,
        side: &str,
        entries: &StagedPaths<'_>,
    ) -> Result<(), Error> {
        for (path, entry) in entries {
            let path = self.path(side).join(path.as_path());
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(files("make", folder))?;
            }
            let failed = files("write", &path);
            if entry.kind == GitTreeEntryKind::Link {
                let target = objects.contents(&entry.object, "blob")?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), &path).map_err(&failed)?;
                continue;
            }
            let mode = if entry.kind == GitTreeEntryKind::Program { 0o755 } else { 0o644 };
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode).open(&path).map_err(&failed)?;
            let mut out = io::BufWriter::new(file);
            objects.copy(&entry.object, "blob", &mut out)?;
            out.flush().map_err(&failed)?;
        }
        Ok(())
    }

    /// The paths that a sparse checkout leaves out. Only `read-tree` knows the patterns, so it checks the paths out
    /// into another empty folder.
    pub(super) fn left_out(&self, entries: &StagedPaths<'_>) -> Result<HashSet<RelPath>, Error> {
        if entries.is_empty() || !self.settings.is_on("core.sparsecheckout") {
            return Ok(HashSet::new());
        }
        let (index, side) = ("sparse.index", "sparse");
        self.set_paths(index, entries.iter().map(|(path, entry)| (*path, Some(*entry))))?;
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
    pub(super) fn filters(
        &self,
        side: &str,
        paths: &StagedPaths<'_>,
    ) -> Result<Vec<(RelPath, String)>, Error> {
        const DOING: &str = "read attributes";
        let known = self.settings.filters();
        if known.is_empty() || paths.is_empty() {
            return Ok(Vec::new());
        }
        let index = format!("{side}.index");
        let command = self.command(&index, side, ["check-attr", "--cached", "-z", "--stdin", "filter"]);
        let output =
            Self::run_with(command, "check-attr", paths, |input, (path, _)| write_path(input, path))?;
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
pub(super) fn write_path(input: &mut dyn Write, path: &RelPath) -> io::Result<()> {
    input.write_all(path.as_bytes())?;
    input.write_all(&[0])
}

/// The files of attributes above these paths in a tree.
fn attributes(
    objects: &mut ObjectReader,
    tree: &Oid,
    paths: &StagedPaths<'_>,
) -> Result<Vec<(RelPath, GitTreeEntry)>, Error> {
    let folders: BTreeSet<RelPath> = paths.iter().flat_map(|(path, _)| path.ancestors()).collect();
    let mut found = Vec::new();
    for folder in folders {
        let path = folder.join(b".gitattributes");
        if let Some(object) = objects.file(tree, &path)? {
            found.push((path, GitTreeEntry { kind: GitTreeEntryKind::File, object }));
        }
    }
    Ok(found)
}

impl Drop for CheckoutStaging {
    fn drop(&mut self) {
        // The next staging removes the rest.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
