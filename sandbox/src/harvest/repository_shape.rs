//! Repositories, known by their shape.
//!
//! Git takes any folder for a repository that has a `HEAD` beside `objects` and `refs`, or beside a `commondir` that
//! says where those are; it obeys the `config` in it, which names programs to run. The folder's own name does not
//! matter, and it need not be made at once: two tasks can each add a part, and a merge can put them together. So the
//! result is judged, folder by folder, and by names alone: what the entries hold may change later.
//!
//! A file that says `gitdir: …` is followed only under the name `.git`, which [`super::name_folding::is_dot_git`] knows in
//! every spelling; under another name it is text.

use super::name_folding::fold;

/// Which parts of a repository a folder has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepositoryShape {
    parts: u8,
}

const HEAD: u8 = 1;
const OBJECTS: u8 = 2;
const REFS: u8 = 4;
const COMMON: u8 = 8;

impl RepositoryShape {
    /// The shape of a folder with these names in it.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut shape = Self::default();
        names.into_iter().for_each(|name| shape.add(name));
        shape
    }

    /// Whether a name is that of a part.
    pub(crate) fn has_part(name: &[u8]) -> bool {
        part(name) != 0
    }

    pub(crate) fn add(&mut self, name: &[u8]) {
        self.parts |= part(name);
    }

    /// Whether git would take the folder for a repository.
    pub fn is_repository(self) -> bool {
        let has = |wanted: u8| self.parts & wanted == wanted;
        has(HEAD | OBJECTS | REFS) || has(HEAD | COMMON)
    }
}

fn part(name: &[u8]) -> u8 {
    // Nearly every name is decided here, without an allocation.
    if name.is_ascii() && !matches!(name.first(), Some(b'h' | b'H' | b'o' | b'O' | b'r' | b'R' | b'c' | b'C'))
    {
        return 0;
    }
    match fold(name).as_str() {
        "head" => HEAD,
        "objects" => OBJECTS,
        "refs" => REFS,
        "commondir" => COMMON,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_repository(names: &[&str]) -> bool {
        RepositoryShape::of(names.iter().map(|name| name.as_bytes())).is_repository()
    }

    #[test]
    fn a_repository_is_known_by_its_parts_in_any_spelling() {
        assert!(is_repository(&["HEAD", "objects", "refs", "config"]));
        assert!(is_repository(&["head", "Objects", "REFS "]));
        assert!(is_repository(&["HEAD", "object\u{17f}", "\u{200d}refs"]));
        assert!(is_repository(&["HEAD", "commondir", "gitdir"]));
    }

    #[test]
    fn a_folder_without_one_of_them_is_none() {
        for names in [&["HEAD", "objects"][..], &["objects", "refs", "commondir"], &["HEAD", "refs"], &[]] {
            assert!(!is_repository(names), "{names:?}");
        }
        assert!(!is_repository(&["HEADS", "objects", "refs", "overhead"]));
    }
}
