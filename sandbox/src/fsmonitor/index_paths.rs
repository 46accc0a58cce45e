//! The paths of an index that the agent's git wrote, in any of its versions.

/// The paths of an index, in order; `None` of one that does not hold them all itself, or is damaged.
pub(super) fn paths(bytes: &[u8], names: usize) -> Option<Vec<Vec<u8>>> {
    let version =
        number(bytes, 4).filter(|version| bytes.starts_with(b"DIRC") && (2..=4).contains(version))?;
    let count = number(bytes, 8)?;
    let mut paths: Vec<Vec<u8>> = Vec::new();
    let mut rest = bytes.get(12..bytes.len().checked_sub(names)?)?;
    for _ in 0..count {
        // Times, device, inode, mode, owner, group, size; then the object and the flags.
        let flags = rest.get(40 + names..42 + names)?;
        let extended = version >= 3 && flags[0] & 0x40 != 0;
        let start = 42 + names + if extended { 2 } else { 0 };
        let name = rest.get(start..)?;
        let (path, used) = match version {
            4 => {
                // What is left of the path before it, and what comes after that.
                let (cut, used) = length(name)?;
                let suffix = &name[used..];
                let end = memchr::memchr(0, suffix)?;
                let before = paths.last().map_or(&b""[..], Vec::as_slice);
                let kept = before.get(..before.len().checked_sub(cut)?)?;
                ([kept, &suffix[..end]].concat(), start + used + end + 1)
            }
            _ => {
                let end = memchr::memchr(0, name)?;
                (name[..end].to_vec(), (start + end + 8) & !7)
            }
        };
        rest = rest.get(used..)?;
        paths.push(path);
    }
    // An extension git could not do without says that this is not all: another file holds the rest, or an entry
    // stands for a whole folder.
    while rest.len() >= 8 {
        if !rest[0].is_ascii_uppercase() {
            return None;
        }
        rest = rest.get(8 + number(rest, 4)? as usize..)?;
    }
    Some(paths)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number in a few bytes, the highest first, and how many.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0usize;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        value = value << 7 | usize::from(byte & 127);
        if byte & 128 == 0 {
            return Some((value, at + 1));
        }
        value += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn git(folder: &Path, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.args(arguments).status().expect("git runs").success(), "{arguments:?}");
    }

    #[test]
    fn every_version_that_git_writes_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        git(root, &["init", "-q"]);
        let mut names = vec!["a/b c".to_owned(), "a/b/d".into(), "a\nb".into(), "ä".into(), "z".repeat(200)];
        for name in &names {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, name).expect("written");
        }
        git(root, &["add", "-A"]);
        names.sort();
        let read = || {
            let bytes = std::fs::read(root.join(".git/index")).expect("read");
            let paths = paths(&bytes, 20);
            for cut in 12..bytes.len() - 20 {
                assert_ne!(super::paths(&bytes[..cut], 20).map(|paths| paths.len()), Some(6), "{cut}");
            }
            paths.map(|paths| paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect())
        };
        for version in ["2", "4", "3"] {
            git(root, &["update-index", "--index-version", version]);
            assert_eq!(read(), Some(names.clone()), "{version}");
        }
        // Only such a mark needs the third version.
        git(root, &["update-index", "--index-version", "2"]);
        git(root, &["update-index", "--skip-worktree", "a/b/d"]);
        assert_eq!(read(), Some(names.clone()));
        git(root, &["update-index", "--split-index"]);
        assert_eq!(read(), None::<Vec<String>>);
    }
}
