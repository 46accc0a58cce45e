//! The private copy an agent works on where nothing can be mounted.
//!
//! Everything the workspace's layers show is copied, block by block where the file system shares blocks; what
//! is out of sight is left out, and so are git's objects, which are borrowed from where they are. What the
//! copy looked like is kept ([`super::distil`] compares with it when the agent is done).

#![allow(clippy::disallowed_methods, reason = "opens our own copy")]

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::distil::Manifest;
use crate::container::recipe;
use crate::harvest::tree::{self, Kind};
use crate::harvest::{Base, Lower};
use crate::opening::Opening;
use crate::path::RelPath;
use crate::workspace::state::Run;
use crate::workspace::{Added, Overlay, Workspace};

/// The workspace's name in the folder of its run.
pub(crate) const TREE: &str = "tree";

/// The folders of one run. They go with the run's own.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The workspace.
    pub(crate) tree: PathBuf,
    /// The repository of a linked worktree, which lies elsewhere.
    pub(crate) repository: Option<PathBuf>,
    /// Folders of git objects that are read where they are.
    pub(crate) objects: Vec<PathBuf>,
    pub(crate) home: PathBuf,
    pub(crate) tmp: PathBuf,
    /// What the tree looked like when the agent got it.
    pub(crate) manifest: Manifest,
    /// Where what it changed is collected.
    pub(crate) upper: PathBuf,
}

impl Replica {
    /// Copies a workspace. `agent` is whose the copy will be, where that is not the caller.
    pub(crate) fn make(
        workspace: &Workspace,
        opening: &Opening,
        hidden: &HashSet<RelPath>,
        run: &Run,
        agent: Option<(u32, u32)>,
        seen: Seen,
    ) -> io::Result<Self> {
        run.make()?;
        let place = |name: &str| run.path().join(name);
        let mut replica = Self {
            tree: place(TREE),
            repository: (workspace.overlays.len() > 1).then(|| place("repository")),
            objects: Vec::new(),
            home: place("home"),
            tmp: place("tmp"),
            manifest: Manifest::default(),
            upper: place("upper"),
        };
        let folders = [Some(&replica.tree), replica.repository.as_ref()];
        for (overlay, folder) in workspace.overlays.iter().zip(folders.into_iter().flatten()) {
            let sources = workspace.lent.clone();
            let left_out = hidden.iter().chain(&workspace.live).cloned().collect();
            let lent = Lent { sources, before: replica.objects.len(), seen };
            let borrowed = copy_overlay(overlay, folder, &left_out, lent, agent)?;
            replica.objects.extend(borrowed);
        }
        for path in &workspace.live {
            copy_live(&workspace.path, path, &replica.tree, agent)?;
        }
        if let Some(outbox) = &workspace.outbox {
            folder(&outbox.source, 0o700, agent)?;
        }
        if let (Some(repository), Some(overlay), Seen::AsItIs) =
            (&replica.repository, workspace.overlays.get(1), seen)
        {
            link_worktree(&replica.tree, repository, &overlay.at, agent)?;
        }
        for path in &opening.make {
            let path = replica.tree.join(path.as_path());
            if !path.is_dir() {
                folder(&path, 0o755, agent)?;
            }
        }
        folder(&replica.home, 0o700, agent)?;
        folder(&replica.tmp, 0o700, agent)?;
        folder(&replica.upper, 0o700, None)?;
        replica.manifest = Manifest::record(open(&replica.tree)?.as_fd())?;
        Ok(replica)
    }

    /// Whether there is a directory, with no link on the way: whoever mounts it follows links, to anywhere.
    pub(crate) fn has_directory(&self, inside: &Path) -> bool {
        let Ok(path) = RelPath::parse(inside.as_os_str().as_encoded_bytes()) else { return false };
        open(&self.tree).is_ok_and(|tree| tree::open_directory(tree.as_fd(), &path).is_ok())
    }

    /// Puts a small file into the agent's home.
    pub(crate) fn note(&self, name: &str, contents: &str) -> io::Result<()> {
        let path = self.home.join(name);
        fs::write(&path, contents)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))
    }

    /// The workspace as the agent sees it.
    pub(crate) fn seen(&self, workspace: &Workspace) -> Workspace {
        let mut seen = workspace.clone();
        seen.path.clone_from(&self.tree);
        let places = [Some(&self.tree), self.repository.as_ref()];
        for (overlay, place) in seen.overlays.iter_mut().zip(places.into_iter().flatten()) {
            overlay.at.clone_from(place);
        }
        seen
    }
}

fn folder(path: &Path, mode: u32, agent: Option<(u32, u32)>) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    match agent {
        Some((uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Where the agent sees the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Where it is.
    AsItIs,
    /// Mounted where the workspace is, and what it borrows at places of its own.
    InPlace,
}

/// Folders of git objects that a copy may borrow from.
struct Lent {
    sources: Vec<PathBuf>,
    /// How many others were lent before.
    before: usize,
    seen: Seen,
}

/// One overlay's layers as a plain folder. Returns the folders of git objects it borrows.
fn copy_overlay(
    overlay: &Overlay,
    into: &Path,
    hidden: &HashSet<RelPath>,
    lent: Lent,
    agent: Option<(u32, u32)>,
) -> io::Result<Vec<PathBuf>> {
    let lowers: Vec<OwnedFd> = overlay.lowers.iter().map(|lower| open(lower)).collect::<Result<_, _>>()?;
    let base = Base::new(lowers);
    folder(into, 0o700, agent)?;
    let target = open(into)?;
    let mut left_out = hidden.clone();
    left_out.extend(overlay.added.iter().filter_map(|added| match added {
        Added::Absence(path) => Some(path.clone()),
        Added::Directory(_) | Added::File(..) => None,
    }));
    // A repository: the workspace's own, or the folder as a whole.
    let git = [RelPath::root().join(b".git"), RelPath::root()]
        .into_iter()
        .find(|git| base.directory_exists(&git.join(b"objects")) && base.leaf_exists(&git.join(b"HEAD")));
    let objects = git.map(|git| git.join(b"objects"));
    let mut sources = lent.sources;
    // Borrowing takes the agent to be able to read there; root's is nobody, and may not.
    let readable = agent.is_none() || sources.iter().all(|source| is_readable_by_others(source));
    let borrows = objects.is_some() && !sources.is_empty() && readable;
    if let (true, Some(objects)) = (borrows, &objects) {
        left_out.insert(objects.clone());
    } else {
        sources.clear();
    }
    let copy = Copy { base: &base, target: target.as_fd(), left_out, agent };
    copy.everything()?;
    if let (true, Some(objects)) = (borrows, &objects) {
        for name in ["", "info", "pack"] {
            folder(&into.join(objects.as_path()).join(name), 0o755, agent)?;
        }
        let list: Vec<u8> = sources.iter().enumerate().fold(Vec::new(), |mut list, (index, source)| {
            let elsewhere = recipe::borrowed(lent.before + index);
            let source = if lent.seen == Seen::InPlace { &elsewhere } else { source };
            list.extend_from_slice(source.as_os_str().as_encoded_bytes());
            list.push(b'\n');
            list
        });
        copy.write(&objects.join(b"info").join(b"alternates"), &list)?;
    }
    for added in &overlay.added {
        match added {
            Added::Directory(path) => copy.directories_to(path)?,
            Added::File(path, contents) => {
                if let Some(parent) = path.parent() {
                    copy.directories_to(&parent)?;
                }
                // What lends the private repository its objects was decided above.
                if !path.as_bytes().ends_with(b"objects/info/alternates") {
                    copy.write(path, contents)?;
                }
            }
            Added::Absence(_) => {}
        }
    }
    Ok(sources)
}

/// A folder of the real work tree, as it is now. There may be a link on the way, to anywhere on the host;
/// that is an error.
fn copy_live(root: &Path, path: &RelPath, tree: &Path, agent: Option<(u32, u32)>) -> io::Result<()> {
    let real = tree::open_directory(open(root)?.as_fd(), path)?;
    let (base, target) = (Base::new(vec![real]), open(&tree.join(path.as_path()))?);
    Copy { base: &base, target: target.as_fd(), left_out: HashSet::new(), agent }.everything()
}

/// Copies a folder's contents into one that is there: files, links and folders, and nothing else; their owner is
/// `agent`, where that is not the caller. Bits that lend somebody's rights are not among what is copied.
pub(crate) fn copy_folder(
    from: OwnedFd,
    into: &Path,
    left_out: HashSet<RelPath>,
    agent: Option<(u32, u32)>,
) -> io::Result<()> {
    let (base, target) = (Base::new(vec![from]), open(into)?);
    Copy { base: &base, target: target.as_fd(), left_out, agent }.everything()
}

/// Whether somebody without any rights can read a folder: every one above it must let them pass.
fn is_readable_by_others(path: &Path) -> bool {
    let mode = |path: &Path| path.metadata().map_or(0, |meta| meta.permissions().mode());
    mode(path) & 0o005 == 0o005 && path.ancestors().skip(1).all(|above| mode(above) & 0o001 != 0)
}

/// A linked worktree and its repository name each other by path: here by the paths of the copies.
fn link_worktree(tree: &Path, repository: &Path, real: &Path, agent: Option<(u32, u32)>) -> io::Result<()> {
    let file = tree.join(".git");
    let text = fs::read_to_string(&file)?;
    let named = PathBuf::from(text.trim().strip_prefix("gitdir:").unwrap_or_default().trim());
    let named = named.canonicalize().unwrap_or(named);
    let Ok(inside) = named.strip_prefix(real) else { return Ok(()) };
    let own = repository.join(inside);
    for (path, contents) in [
        (file.clone(), format!("gitdir: {}\n", own.display())),
        (own.join("gitdir"), format!("{}\n", file.display())),
        (own.join("commondir"), format!("{}\n", repository.display())),
    ] {
        // What was copied there may be a link.
        fs::remove_file(&path)?;
        let mut file = fs::File::options().write(true).create_new(true).mode(0o644).open(&path)?;
        file.write_all(contents.as_bytes())?;
        if let Some((uid, gid)) = agent {
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Nothing of the copy is reached through a link.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

struct Copy<'a> {
    base: &'a Base,
    target: BorrowedFd<'a>,
    left_out: HashSet<RelPath>,
    agent: Option<(u32, u32)>,
}

impl Copy<'_> {
    fn everything(&self) -> io::Result<()> {
        let mut waiting = vec![(RelPath::root(), self.base.all())];
        // A directory that may not be written gets its mode when it is full.
        let mut finished = vec![RelPath::root()];
        while let Some((path, layers)) = waiting.pop() {
            let (here, names) = match self.base.at(&path, &layers).and_then(|here| Ok((here.names()?, here)))
            {
                Ok((names, here)) => (here, names),
                // What the caller can't read the agent can't either.
                Err(Errno::ACCESS) => continue,
                Err(error) => return Err(error.into()),
            };
            for name in names {
                let child = path.join(&name);
                if self.left_out.contains(&child) {
                    continue;
                }
                match here.child(&name)? {
                    Lower::Nothing => {}
                    Lower::Directory(layers) => {
                        rustix::fs::mkdirat(self.target, child.as_path(), Mode::RWXU)?;
                        finished.push(child.clone());
                        waiting.push((child, layers));
                    }
                    Lower::Leaf { layer, stat } => match tree::kind(&stat) {
                        Kind::File => match here.open(&name, layer) {
                            Ok((file, stat)) => self.file(&child, &file, &stat)?,
                            Err(Errno::ACCESS) => {}
                            Err(error) => return Err(error.into()),
                        },
                        Kind::Symlink => self.symlink(&child, &here.link(&name, layer)?, &stat)?,
                        // Pipes, sockets and devices are nothing to work on.
                        _ => {}
                    },
                }
            }
        }
        for path in finished.iter().rev() {
            let mode = self.base.directory_mode(path).unwrap_or(0o755) & 0o777;
            let shown: &Path = if path.is_root() { Path::new(".") } else { path.as_path() };
            self.give(shown)?;
            rustix::fs::chmodat(self.target, shown, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        Ok(())
    }

    fn file(&self, path: &RelPath, from: &fs::File, stat: &Stat) -> io::Result<()> {
        let mut to = self.create(path)?;
        if rustix::fs::ioctl_ficlone(&to, from).is_err() {
            copy_data(from, &mut to, tree::size(stat))?;
        }
        self.give(path.as_path())?;
        rustix::fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        // Git believes a file unchanged by its size and time.
        Ok(rustix::fs::futimens(&to, &times(stat))?)
    }

    fn symlink(&self, path: &RelPath, to: &[u8], stat: &Stat) -> io::Result<()> {
        rustix::fs::symlinkat(to, self.target, path.as_path())?;
        self.give(path.as_path())?;
        Ok(rustix::fs::utimensat(self.target, path.as_path(), &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// A file of our own, in the place of whatever was copied there.
    fn write(&self, path: &RelPath, contents: &[u8]) -> io::Result<()> {
        match rustix::fs::unlinkat(self.parent_of(path)?, path.name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let mut file = self.create(path)?;
        file.write_all(contents)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        self.give(path.as_path())
    }

    fn create(&self, path: &RelPath) -> io::Result<fs::File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat2(self.target, path.as_path(), flags, mode, BENEATH)?.into())
    }

    /// The folder of the copy that holds a path, reached through no link: one that was copied leads anywhere.
    fn parent_of(&self, path: &RelPath) -> io::Result<OwnedFd> {
        Ok(tree::open_directory(self.target, &path.parent().ok_or(Errno::INVAL)?)?)
    }

    fn directories_to(&self, path: &RelPath) -> io::Result<()> {
        let mut above: Vec<RelPath> = path.ancestors().filter(|above| !above.is_root()).collect();
        above.reverse();
        above.push(path.clone());
        for directory in above.iter().filter(|directory| !directory.is_root()) {
            let parent = self.parent_of(directory)?;
            match rustix::fs::mkdirat(parent, directory.name(), Mode::from_raw_mode(0o755)) {
                Ok(()) => self.give(directory.as_path())?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        let Some((uid, gid)) = self.agent else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::chownat(self.target, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Copies what a file holds and leaves its holes: eight gigabytes of nothing are copied as nothing. As much as there was: a
/// file that grows while it is copied must not be copied for ever.
fn copy_data(mut from: &fs::File, to: &mut fs::File, size: u64) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is a hole up to the end.
            Err(Errno::NXIO) => break,
            // Not every file system knows holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(data)).unwrap_or(size).min(size);
        rustix::fs::seek(from, rustix::fs::SeekFrom::Start(data))?;
        rustix::fs::seek(&*to, rustix::fs::SeekFrom::Start(data))?;
        io::copy(&mut (&mut from).take(hole.saturating_sub(data)), to)?;
        at = hole.max(data + 1);
    }
    to.set_len(size)
}

fn times(stat: &Stat) -> Timestamps {
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    Timestamps { last_access: modified, last_modification: modified }
}
