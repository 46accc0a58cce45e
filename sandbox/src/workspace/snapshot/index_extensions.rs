//! What git need not look at: two extensions of the index that say so of a whole snapshot.
//!
//! Git looks at every file and every folder to find what changed, unless a program tells it
//! ([`crate::fsmonitor`]). It then believes that program from a moment on, which it remembers in the index, together
//! with what it knew at that moment: of which files it knew that they are as the index says (`FSMN`), and of which
//! folders that nothing else is in them (`UNTR`). For a snapshot all of that is known before the first look, and
//! its moment is the beginning.
//!
//! Both formats are those of `gitformat-index(5)`. Git takes no harm from either where it is not told to use them:
//! without such a program it looks at files as ever, and no folder has the time that is written here for it.

#![allow(clippy::disallowed_methods, reason = "opens our own layers")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::index::{IndexEntry, ObjectFormat};
use super::objects::{LINK, SUBMODULE};
use crate::untrusted;
use crate::workspace::FSMONITOR_TOKEN;
use crate::workspace::folder::RepositoryPaths;

/// From so many files on it is worth a program for each look.
const WORTH: usize = 5000;

/// Whether an index is long enough to be looked at differently.
pub(super) fn is_large_enough(files: usize) -> bool {
    files >= WORTH
}

/// Of a time and a size that no folder has.
const NO_STAT: [u8; 36] = [0; 36];
/// As `git status` looks: untracked folders by name, and only those that are not empty.
const FLAGS: u32 = 6;
const RULES: &[u8] = b".gitignore";

/// The most that is read of a file with one path, and of one with patterns.
const PATH: u64 = 64 << 10;
const EXCLUDE: u64 = 1 << 20;

/// What both extensions say depends on where the work tree is, and on the ignore rules that are no part of it.
#[derive(Debug)]
pub(super) struct IndexContext {
    pub(super) root: PathBuf,
    exclude: Option<Vec<u8>>,
}

impl IndexContext {
    /// The work tree of a repository, where it has one.
    pub(super) fn of(repository: &RepositoryPaths) -> Option<Self> {
        let entry = match repository.git == repository.common {
            true => repository.git.clone(),
            false => {
                let text = untrusted::read(&repository.git, "gitdir", PATH).ok()??;
                PathBuf::from(OsStr::from_bytes(text.trim_ascii_end()))
            }
        };
        let root = entry.parent().filter(|_| entry.file_name() == Some(OsStr::new(".git")))?;
        let exclude = repository.read("info/exclude", EXCLUDE).ok()?;
        Some(Self { root: root.canonicalize().ok()?, exclude })
    }

    /// Both extensions for an index with these entries.
    pub(super) fn extensions<'a>(
        &self,
        format: ObjectFormat,
        entries: impl Iterator<Item = IndexEntry<'a>>,
    ) -> Vec<u8> {
        let mut root = TreeFolder::default();
        let mut unsure = EwahBitmap::default();
        for (number, entry) in entries.enumerate() {
            let mut parts: Vec<&[u8]> = entry.path.split(|byte| *byte == b'/').collect();
            let name = parts.pop().unwrap_or_default();
            let folder =
                parts.into_iter().fold(&mut root, |folder, part| folder.below.entry(part).or_default());
            if entry.mode == SUBMODULE {
                // What a submodule holds is another repository's, and always looked at.
                unsure.set(number);
            } else if name == RULES && entry.mode != LINK {
                folder.rules = Some(entry.object);
            }
        }
        let mut out = Vec::new();
        extend(&mut out, b"FSMN", &files(&unsure));
        extend(&mut out, b"UNTR", &self.folders(format, &root));
        out
    }

    fn folders(&self, format: ObjectFormat, root: &TreeFolder<'_>) -> Vec<u8> {
        let none = vec![0; format.bytes()];
        let exclude = self.exclude.as_ref().map(|text| digest_of_rules(format, text));
        let mut out = Vec::new();
        let identity = [b"Location ", self.root.as_os_str().as_bytes(), b", system Linux\0"].concat();
        out.extend(length(identity.len()));
        out.extend(identity);
        out.extend(NO_STAT);
        out.extend(NO_STAT);
        out.extend(FLAGS.to_be_bytes());
        out.extend(exclude.as_ref().unwrap_or(&none));
        // The agent's home is empty, and so are its own rules.
        out.extend(&none);
        out.extend(RULES);
        out.push(0);
        let mut list = Vec::new();
        let (mut tree, mut with_rules) = (Vec::new(), EwahBitmap::default());
        root.list(b"", &mut tree, &mut list);
        out.extend(length(list.len()));
        out.extend(tree);
        let mut valid = EwahBitmap::default();
        (0..list.len()).for_each(|number| valid.set(number));
        for (number, _) in list.iter().enumerate().filter(|(_, rules)| rules.is_some()) {
            with_rules.set(number);
        }
        for bits in [&valid, &EwahBitmap::default(), &with_rules] {
            out.extend(bits.packed());
        }
        list.iter().for_each(|_| out.extend(NO_STAT));
        list.iter().flatten().for_each(|rules| out.extend(*rules));
        out.push(0);
        out
    }
}

/// The work tree that the index of a layer speaks of is written beside it.
pub(super) const PLACE: &str = "place";

pub(super) fn place_of(layer: &Path) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(&std::fs::read(layer.join(PLACE)).ok()?)))
}

fn files(unsure: &EwahBitmap) -> Vec<u8> {
    let bits = unsure.packed();
    let mut out = 2u32.to_be_bytes().to_vec();
    out.extend(FSMONITOR_TOKEN.as_bytes());
    out.push(0);
    out.extend((bits.len() as u32).to_be_bytes());
    out.extend(bits);
    out
}

fn extend(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend(name);
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Git names the rules of a file that is not tracked by their text and one line's end more.
fn digest_of_rules(format: ObjectFormat, text: &[u8]) -> Vec<u8> {
    let end: &[u8] = if text.is_empty() { b"" } else { b"\n" };
    let header = format!("blob {}\0", text.len() + end.len());
    format.digest(&[header.as_bytes(), text, end].concat())
}

/// A folder of the tree, with the object of its ignore rules.
#[derive(Debug, Default)]
struct TreeFolder<'a> {
    rules: Option<&'a [u8]>,
    below: BTreeMap<&'a [u8], TreeFolder<'a>>,
}

impl<'a> TreeFolder<'a> {
    /// Itself and all below, each before what is in it: no name that is untracked, and how many folders.
    fn list(&self, name: &[u8], out: &mut Vec<u8>, rules: &mut Vec<Option<&'a [u8]>>) {
        rules.push(self.rules);
        out.extend(length(0));
        out.extend(length(self.below.len()));
        out.extend(name);
        out.push(0);
        for (name, folder) in &self.below {
            folder.list(name, out, rules);
        }
    }
}

/// A number as git writes it in a few bytes, the highest first.
fn length(mut value: usize) -> Vec<u8> {
    let mut bytes = vec![(value & 127) as u8];
    value >>= 7;
    while value > 0 {
        value -= 1;
        bytes.push(128 | (value & 127) as u8);
        value >>= 7;
    }
    bytes.reverse();
    bytes
}

/// A set of numbers, as git packs one ("EWAH").
#[derive(Debug, Default)]
struct EwahBitmap {
    words: Vec<u64>,
    size: u32,
}

impl EwahBitmap {
    fn set(&mut self, number: usize) {
        if self.words.len() <= number / 64 {
            self.words.resize(number / 64 + 1, 0);
        }
        self.words[number / 64] |= 1 << (number % 64);
        self.size = self.size.max(number as u32 + 1);
    }

    /// Pieces of a run of equal words, counted, and of others, copied; a word before each tells how many of both.
    fn packed(&self) -> Vec<u8> {
        let is_plain = |word: u64| word == 0 || word == u64::MAX;
        let (mut out, mut rest) = (Vec::new(), self.words.as_slice());
        let last = loop {
            let value = rest.first().copied().filter(|word| is_plain(*word)).unwrap_or(0);
            let run = rest.iter().take_while(|word| **word == value).count();
            let others = rest[run..].iter().take_while(|word| !is_plain(**word)).count();
            let here = out.len();
            out.push(u64::from(value == u64::MAX) | (run as u64) << 1 | (others as u64) << 33);
            out.extend(&rest[run..run + others]);
            rest = &rest[run + others..];
            if rest.is_empty() {
                break here;
            }
        };
        let mut bytes = self.size.to_be_bytes().to_vec();
        bytes.extend((out.len() as u32).to_be_bytes());
        out.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend((last as u32).to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bytes_git_gives_them() {
        for (value, bytes) in
            [(0, &[0][..]), (127, &[127]), (128, &[128, 0]), (16511, &[255, 127]), (16512, &[128, 128, 0])]
        {
            assert_eq!(length(value), bytes, "{value}");
        }
    }

    #[test]
    fn bits_are_packed_as_git_packs_them() {
        assert_eq!(
            EwahBitmap::default().packed(),
            [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        let mut four = EwahBitmap::default();
        (0..4).for_each(|number| four.set(number));
        let expected: &[u8] = b"\0\0\0\x04\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x0f\0\0\0\0";
        assert_eq!(four.packed(), expected);
        // Two whole words, one that is not, two empty ones, one that is not.
        let mut many = EwahBitmap::default();
        (0..130).chain([320]).for_each(|number| many.set(number));
        let words: Vec<u8> = [1 | 2 << 1 | 1 << 33, 3, 2 << 1 | 1 << 33, 1u64]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
        assert_eq!(many.packed(), [&321u32.to_be_bytes()[..], &[0, 0, 0, 4], &words, &[0, 0, 0, 2]].concat());
    }
}
