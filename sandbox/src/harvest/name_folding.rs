//! Names that mean the same to some file system or tool as another name.
//!
//! A tree made here is checked out on macOS and Windows too, where `.GIT`, `.g\u{200c}it` or `git~1` opens
//! `.git`. Git itself refuses such names (`is_hfs_dotgit`, `is_ntfs_dotgit`); so do we, before git sees them.

use unicode_normalization::UnicodeNormalization;

/// Whether a component is `.git` to git, HFS+ or NTFS.
pub(crate) fn is_dot_git(name: &[u8]) -> bool {
    // Nearly every name is decided here, without an allocation.
    if name.is_ascii() && !matches!(name.first(), Some(b'.' | b'g' | b'G')) && !name.contains(&b'\\') {
        return false;
    }
    // A backslash separates components on Windows.
    name.split(|byte| *byte == b'\\').any(|part| {
        let folded = fold(part);
        folded == ".git"
            || folded
                .strip_prefix("git~")
                .is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
    })
}

/// A component as the most forgiving file system reads it: HFS+ ignores some invisible characters, NTFS a
/// stream suffix and trailing dots and spaces, all ignore case, APFS also the form of Unicode (`\u{17f}` is an
/// `s`). Bytes that are not UTF-8 become U+FFFD, so the result may be compared with plain names, and with nothing
/// else.
pub(crate) fn fold(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let folded: String = match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => text
            .nfd()
            .filter(|c| !is_ignored_by_hfs(*c))
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .collect(),
    };
    let stem = folded.split(':').next().unwrap_or_default();
    stem.trim_end_matches([' ', '.']).to_owned()
}

fn is_ignored_by_hfs(character: char) -> bool {
    matches!(character,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Equal for two paths exactly when a file system that ignores case and Unicode form takes one for the
/// other. A path that is not UTF-8 is equal to itself only.
pub(crate) fn collision_key(path: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(path) {
        Ok(text) if text.is_ascii() => text.to_ascii_lowercase().into_bytes(),
        Ok(text) => text
            .nfd()
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .nfd()
            .collect::<String>()
            .into_bytes(),
        Err(_) => path.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_dot_git_is_known() {
        for name in [
            ".git",
            ".GIT",
            ".gIt",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".git\u{200d}",
            "git~1",
            "GIT~1",
            ".git ",
            ".git...",
            ".git . ",
            ".git::$INDEX_ALLOCATION",
            "a\\.git",
            ".git\\config",
        ] {
            assert!(is_dot_git(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn names_that_only_look_similar_are_not() {
        for name in [".gitignore", "git", "gi", ".github", "a.git", "git~10", "git~", "..git", "digit", ""] {
            assert!(!is_dot_git(name.as_bytes()), "{name:?}");
        }
        assert!(!is_dot_git(b".g\xffit"));
    }

    #[test]
    fn letters_that_fold_to_plain_ones_are_plain_ones() {
        assert_eq!(fold("object\u{17f}".as_bytes()), "objects");
        assert_eq!(fold("HEAD::$DATA".as_bytes()), "head");
        assert_eq!(fold("\u{feff}Refs. ".as_bytes()), "refs");
    }

    #[test]
    fn case_and_unicode_form_collide_and_other_names_do_not() {
        assert_eq!(collision_key("Ä.txt".as_bytes()), collision_key("a\u{308}.TXT".as_bytes()));
        assert_ne!(collision_key(b"a\xff"), collision_key(b"a\xfe"));
        assert_ne!(collision_key(b"a"), collision_key(b"b"));
    }
}
