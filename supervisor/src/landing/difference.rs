//! Where two trees differ, path by path and byte by byte: no rename is guessed.

use agency_sandbox::path::RelPath;

use super::error::{Error, git};
use super::names::Oid;
use super::objects::Objects;
use super::repository::Repository;

/// What a tree has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub object: Oid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Program,
    Link,
    /// A commit of another repository.
    Submodule,
}

impl Kind {
    pub(super) fn parse(mode: &str) -> Option<Self> {
        match mode {
            "100644" | "100664" => Some(Self::File),
            "100755" => Some(Self::Program),
            "120000" => Some(Self::Link),
            "160000" => Some(Self::Submodule),
            _ => None,
        }
    }

    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Program => "100755",
            Self::Link => "120000",
            Self::Submodule => "160000",
        }
    }
}

/// One path in which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub path: RelPath,
    pub old: Option<Entry>,
    pub new: Option<Entry>,
    /// Where the new entry leads, if it is a link.
    pub target: Option<Vec<u8>>,
}

/// The paths in which two commits or trees differ, sorted.
pub fn between(repository: &Repository, old: &Oid, new: &Oid) -> Result<Vec<Changed>, Error> {
    const DOING: &str = "compare two trees";
    if old == new {
        return Ok(Vec::new());
    }
    let output = repository
        .objects
        .run([
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            "--no-ext-diff",
            old.as_str(),
            new.as_str(),
        ])
        .map_err(git(DOING))?;
    let mut changed = parse(&output).ok_or(Error::Answer { doing: DOING })?;
    let mut objects = None;
    for one in &mut changed {
        if let Some(Entry { kind: Kind::Link, object }) = &one.new {
            let objects = match &mut objects {
                Some(objects) => objects,
                None => objects.insert(Objects::open(repository)?),
            };
            one.target = Some(objects.contents(object, "blob")?);
        }
    }
    Ok(changed)
}

/// `:100644 100644 old new M NUL path NUL …`
fn parse(output: &[u8]) -> Option<Vec<Changed>> {
    let mut parts = output.split(|byte| *byte == 0);
    let mut changed = Vec::new();
    while let Some(header) = parts.next().filter(|header| !header.is_empty()) {
        let header = std::str::from_utf8(header).ok()?.strip_prefix(':')?;
        let fields: Vec<&str> = header.split(' ').collect();
        let [old_mode, new_mode, old, new, _] = fields[..] else { return None };
        let path = RelPath::parse(parts.next()?).ok().filter(|path| !path.is_root())?;
        changed.push(Changed { path, old: entry(old_mode, old)?, new: entry(new_mode, new)?, target: None });
    }
    changed.sort_by(|one, other| one.path.cmp(&other.path));
    Some(changed)
}

fn entry(mode: &str, object: &str) -> Option<Option<Entry>> {
    match mode {
        "000000" => Some(None),
        _ => Some(Some(Entry { kind: Kind::parse(mode)?, object: Oid::parse(object).ok()? })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bytes_and_what_is_not_known_is_no_answer() {
        let (one, two, none) = ("a".repeat(40), "b".repeat(40), "0".repeat(40));
        let text = format!(
            ":100644 100755 {one} {two} M\0z\n\u{fc}\0:000000 120000 {none} {two} A\0a b\0:160000 000000 {one} {none} D\0m\0"
        );
        let changed = parse(text.as_bytes()).expect("parses");
        let paths: Vec<_> = changed.iter().map(|one| one.path.as_bytes()).collect();
        assert_eq!(paths, [&b"a b"[..], b"m", "z\n\u{fc}".as_bytes()]);
        assert_eq!(changed[0].old, None);
        assert_eq!(changed[1].old.as_ref().map(|entry| entry.kind), Some(Kind::Submodule));
        for wrong in ["x", ":1 2", ":100644 100644 a b M\0p\0", ":040000 100644 a b M\0p\0"] {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
        let escaping = format!(":000000 100644 {none} {two} A\0../x\0");
        assert!(parse(escaping.as_bytes()).is_none());
    }
}
