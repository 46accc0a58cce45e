//! Git's index, as far as layers need it.
//!
//! Git writes the index of a snapshot; we add what a file's size and time are, so that the first `git status`
//! believes it without reading a file. The index of a moved base is the snapshot's with a few entries
//! exchanged: every other entry is copied byte for byte and stays believable, where a new one made by git
//! would have to look at every file again. That copy is the only work of a moved base that grows with the
//! repository: some 100 bytes for each file.
//!
//! It is one flat file on purpose. A split index would make that copy go away, and libgit2, which cargo and
//! many tools read repositories with, refuses it.
//!
//! The format is version 2 of `gitformat-index(5)`. Of the extensions only `TREE`, which names the trees that
//! are known already, is carried over, with what changed taken out; those that say what need not be looked at are
//! made anew for each index ([`super::index_extensions`]).

use std::collections::{BTreeMap, HashSet};

use sha1::{Digest, Sha1};
use sha2::Sha256;

/// Which hash names the objects of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    /// How many bytes a name has.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    pub(super) fn is_name(self, text: &[u8]) -> bool {
        text.len() == 2 * self.bytes() && text.iter().all(u8::is_ascii_hexdigit)
    }

    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }
}

/// What is wrong with an index that git wrote, or that we did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("it is not an index of version 2")]
    Version,
    #[error("it ends too early or is damaged")]
    Damaged,
}

const HEADER: usize = 12;
/// Ten numbers: times, device, inode, mode, owner, group, size.
const STAT: usize = 40;
const MTIME: usize = 8;
const MODE: usize = 24;
const SIZE: usize = 36;

/// A whole index in memory.
#[derive(Debug)]
pub(super) struct GitIndex {
    format: ObjectFormat,
    bytes: Vec<u8>,
    count: usize,
    entries_end: usize,
}

/// One entry, and where in the index it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexEntry<'a> {
    pub(super) mode: u32,
    pub(super) object: &'a [u8],
    pub(super) path: &'a [u8],
    raw: &'a [u8],
    at: usize,
}

/// What replaces an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexReplacement {
    pub(super) mode: u32,
    pub(super) object: Vec<u8>,
    /// Bytes of the file, or of the link's target.
    pub(super) size: u64,
    /// When it was changed, in seconds.
    pub(super) time: u32,
}

impl GitIndex {
    pub(super) fn parse(format: ObjectFormat, bytes: Vec<u8>) -> Result<Self, IndexError> {
        if bytes.get(..8) != Some(b"DIRC\0\0\0\x02".as_slice()) {
            return Err(IndexError::Version);
        }
        let count = number(&bytes, 8).ok_or(IndexError::Damaged)? as usize;
        let mut index = Self { format, bytes, count, entries_end: HEADER };
        if index.bytes.len() < HEADER + format.bytes() {
            return Err(IndexError::Damaged);
        }
        let mut end = HEADER;
        for _ in 0..count {
            end += index.entry(end).ok_or(IndexError::Damaged)?.raw.len();
        }
        index.entries_end = end;
        Ok(index)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = IndexEntry<'_>> {
        let mut at = HEADER;
        (0..self.count).map_while(move |_| {
            let entry = self.entry(at)?;
            at += entry.raw.len();
            Some(entry)
        })
    }

    fn entry(&self, at: usize) -> Option<IndexEntry<'_>> {
        let fixed = STAT + self.format.bytes() + 2;
        let rest = self.bytes.get(at..self.bytes.len() - self.format.bytes())?;
        let object = rest.get(STAT..fixed - 2)?;
        let name = rest.get(fixed..)?;
        // Bits above the length say that a merge is going on, or that another version is in use.
        let flags = u16::from_be_bytes(rest.get(fixed - 2..fixed)?.try_into().ok()?);
        if flags & 0xf000 != 0 {
            return None;
        }
        let length = match usize::from(flags & 0x0fff) {
            0xfff => memchr::memchr(0, name)?,
            length => length,
        };
        let raw = rest.get(..padded(fixed + length))?;
        Some(IndexEntry { mode: number(rest, MODE)?, object, path: name.get(..length)?, raw, at })
    }

    /// Says of every entry which size and time its file has. A link or a submodule has them too.
    pub(super) fn set_stat(&mut self, sizes: &[u64], time: u32) {
        let places: Vec<usize> = self.entries().map(|entry| entry.at).collect();
        for (at, size) in places.into_iter().zip(sizes) {
            self.bytes[at + MTIME..at + MTIME + 4].copy_from_slice(&time.to_be_bytes());
            self.bytes[at + SIZE..at + SIZE + 4].copy_from_slice(&(*size as u32).to_be_bytes());
        }
    }

    /// The whole file, with these extensions besides its own.
    pub(super) fn with_extensions(mut self, extensions: &[u8]) -> Vec<u8> {
        self.bytes.truncate(self.bytes.len() - self.format.bytes());
        self.bytes.extend_from_slice(extensions);
        let digest = self.format.digest(&self.bytes);
        self.bytes.extend_from_slice(&digest);
        self.bytes
    }

    /// This index with some paths exchanged (`None` takes one out), and how many of the paths it had before.
    pub(super) fn with_replacements(
        &self,
        changes: &BTreeMap<Vec<u8>, Option<IndexReplacement>>,
    ) -> (Self, usize) {
        let mut out = Vec::with_capacity(self.bytes.len() + changes.len() * 160);
        out.extend_from_slice(&self.bytes[..HEADER]);
        let mut count: u32 = 0;
        let mut waiting = changes.iter().peekable();
        // Runs of entries that stay are copied as one piece.
        let mut run = HEADER..HEADER;
        let mut put = |out: &mut Vec<u8>, path: &[u8], new: &Option<IndexReplacement>| {
            if let Some(new) = new {
                count += 1;
                self.append(out, path, new);
            }
        };
        let mut kept: u32 = 0;
        for entry in self.entries() {
            let mut replaced = false;
            while let Some((path, new)) = waiting.next_if(|(path, _)| path.as_slice() <= entry.path) {
                out.extend_from_slice(&self.bytes[run.clone()]);
                run = entry.at..entry.at;
                put(&mut out, path, new);
                replaced |= path == entry.path;
            }
            if replaced {
                run = entry.at + entry.raw.len()..entry.at + entry.raw.len();
            } else {
                run.end = entry.at + entry.raw.len();
                kept += 1;
            }
        }
        out.extend_from_slice(&self.bytes[run]);
        for (path, new) in waiting {
            put(&mut out, path, new);
        }
        let count = kept + count;
        out[8..HEADER].copy_from_slice(&count.to_be_bytes());
        let entries_end = out.len();
        if let Some(tree) = self.extension(b"TREE").and_then(|data| self.known_trees(data, changes)) {
            out.extend_from_slice(b"TREE");
            out.extend_from_slice(&(tree.len() as u32).to_be_bytes());
            out.extend_from_slice(&tree);
        }
        // The place of the digest, which is made last.
        out.resize(out.len() + self.format.bytes(), 0);
        let index = Self { format: self.format, bytes: out, count: count as usize, entries_end };
        (index, self.count - kept as usize)
    }

    fn append(&self, out: &mut Vec<u8>, path: &[u8], new: &IndexReplacement) {
        let start = out.len();
        let mut stat = [0u8; STAT];
        stat[MTIME..MTIME + 4].copy_from_slice(&new.time.to_be_bytes());
        stat[MODE..MODE + 4].copy_from_slice(&new.mode.to_be_bytes());
        stat[SIZE..SIZE + 4].copy_from_slice(&(new.size as u32).to_be_bytes());
        out.extend_from_slice(&stat);
        out.extend_from_slice(&new.object);
        let length = u16::try_from(path.len()).unwrap_or(u16::MAX).min(0xfff);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(path);
        out.resize(start + padded(out.len() - start), 0);
    }

    fn extension(&self, wanted: &[u8; 4]) -> Option<&[u8]> {
        let mut rest = self.bytes.get(self.entries_end..self.bytes.len() - self.format.bytes())?;
        while rest.len() >= 8 {
            let length = number(rest, 4)? as usize;
            let data = rest.get(8..8 + length)?;
            if &rest[..4] == wanted {
                return Some(data);
            }
            rest = &rest[8 + length..];
        }
        None
    }

    /// The trees that are known, without those that changed.
    fn known_trees(
        &self,
        data: &[u8],
        changes: &BTreeMap<Vec<u8>, Option<IndexReplacement>>,
    ) -> Option<Vec<u8>> {
        let mut changed: HashSet<&[u8]> = HashSet::from([b"".as_slice()]);
        for path in changes.keys() {
            for (slash, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                changed.insert(&path[..slash]);
            }
        }
        // Where a file took the place of a directory, nothing is known by that name any more.
        let gone = |path: &[u8]| changes.get(path).is_some_and(Option::is_some);
        let mut out = Vec::with_capacity(data.len());
        let mut rest = data;
        self.known_tree(&mut rest, &mut out, &mut Vec::new(), &changed, &gone)?;
        Some(out)
    }

    /// One tree and those below it; whether it is still there.
    fn known_tree(
        &self,
        rest: &mut &[u8],
        out: &mut Vec<u8>,
        path: &mut Vec<u8>,
        changed: &HashSet<&[u8]>,
        gone: &dyn Fn(&[u8]) -> bool,
    ) -> Option<bool> {
        let name = take_until(rest, 0)?;
        let entries: i64 = std::str::from_utf8(take_until(rest, b' ')?).ok()?.parse().ok()?;
        let below: usize = std::str::from_utf8(take_until(rest, b'\n')?).ok()?.parse().ok()?;
        let mut object: &[u8] = b"";
        if entries >= 0 {
            (object, *rest) = rest.split_at_checked(self.format.bytes())?;
        }
        let outer = path.len();
        if !name.is_empty() {
            if outer > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        let mut inner = Vec::new();
        let mut left = 0;
        for _ in 0..below {
            left += usize::from(self.known_tree(rest, &mut inner, path, changed, gone)?);
        }
        let stays = outer == path.len() || !gone(path);
        if stays {
            out.extend_from_slice(name);
            out.push(0);
            if changed.contains(path.as_slice()) || entries < 0 {
                out.extend_from_slice(format!("-1 {left}\n").as_bytes());
            } else {
                out.extend_from_slice(format!("{entries} {left}\n").as_bytes());
                out.extend_from_slice(object);
            }
            out.extend_from_slice(&inner);
        }
        path.truncate(outer);
        Some(stays)
    }
}

fn take_until<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let at = memchr::memchr(end, rest)?;
    let (taken, after) = (&rest[..at], &rest[at + 1..]);
    *rest = after;
    Some(taken)
}

/// Entries end with one to eight zeros, at a multiple of eight.
fn padded(length: usize) -> usize {
    (length + 8) & !7
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> GitIndex {
        let mut bytes = b"DIRC\0\0\0\x02\0\0\0\0".to_vec();
        bytes.extend(Sha1::digest(&bytes));
        GitIndex::parse(ObjectFormat::Sha1, bytes).expect("an index")
    }

    fn paths(index: &GitIndex) -> Vec<String> {
        index.entries().map(|entry| String::from_utf8_lossy(entry.path).into_owned()).collect()
    }

    fn new(size: u64) -> Option<IndexReplacement> {
        Some(IndexReplacement { mode: 0o100644, object: vec![7; 20], size, time: 5 })
    }

    fn changed(index: &GitIndex, changes: &[(&str, Option<IndexReplacement>)]) -> GitIndex {
        let changes = changes.iter().map(|(path, new)| (path.as_bytes().to_vec(), new.clone())).collect();
        GitIndex::parse(ObjectFormat::Sha1, index.with_replacements(&changes).0.with_extensions(b""))
            .expect("an index")
    }

    #[test]
    fn entries_are_added_replaced_and_taken_out_in_order() {
        let long = "x".repeat(5000);
        let one = changed(&empty(), &[("b", new(1)), ("d/e", new(2)), (&long, new(3))]);
        assert_eq!(paths(&one), ["b", "d/e", long.as_str()]);
        let two = changed(&one, &[("a", new(4)), ("b", new(9)), ("c", None), ("d/e", None), ("z", new(6))]);
        assert_eq!(paths(&two), ["a", "b", long.as_str(), "z"]);
        let sizes: Vec<_> = two.entries().map(|entry| number(entry.raw, SIZE)).collect();
        assert_eq!(sizes, [Some(4), Some(9), Some(3), Some(6)]);
        assert_eq!(changed(&two, &[]).bytes, two.bytes);
    }

    #[test]
    fn what_is_cut_or_of_another_version_is_refused() {
        let whole = changed(&empty(), &[("b", new(1)), ("d/e", new(2))]);
        for length in 0..whole.bytes.len() - 20 {
            assert!(GitIndex::parse(ObjectFormat::Sha1, whole.bytes[..length].to_vec()).is_err(), "{length}");
        }
        let mut other = whole.bytes.clone();
        other[7] = 4;
        assert_eq!(GitIndex::parse(ObjectFormat::Sha1, other).err(), Some(IndexError::Version));
    }
}
