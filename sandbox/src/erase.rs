//! Removes a tree an agent had its hands on.
//!
//! By descriptor, never following a link; directories it locked (mode 000) are unlocked; and however deep it
//! nested them, at most two are open at a time: a directory that is not empty is moved up to the top first.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// Removes `path` and everything below it.
pub fn tree(path: &Path) -> io::Result<()> {
    let top = match unlock(rustix::fs::CWD, &CString::new(path.as_os_str().as_encoded_bytes())?) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut moved: u64 = 0;
    let mut waiting: Vec<CString> = Vec::new();
    empty(&top, &top, &mut waiting, &mut moved)?;
    while let Some(name) = waiting.pop() {
        let folder = unlock(&top, &name)?;
        empty(&folder, &top, &mut waiting, &mut moved)?;
        rustix::fs::unlinkat(&top, name.as_c_str(), AtFlags::REMOVEDIR)?;
    }
    rustix::fs::rmdir(path)?;
    Ok(())
}

/// Empties one directory; its non-empty subdirectories move to `top` and wait there.
fn empty(folder: &OwnedFd, top: &OwnedFd, waiting: &mut Vec<CString>, moved: &mut u64) -> io::Result<()> {
    let at_top = folder.as_raw_fd() == top.as_raw_fd();
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
    }
    for name in names {
        match rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) if at_top => waiting.push(name),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                // Moving a directory writes its `..`, which takes write permission on it.
                unlock(folder, &name)?;
                let parked = loop {
                    *moved += 1;
                    let parked = CString::new(format!(".erase-{moved}")).unwrap_or_default();
                    let flags = rustix::fs::RenameFlags::NOREPLACE;
                    match rustix::fs::renameat_with(folder, name.as_c_str(), top, parked.as_c_str(), flags) {
                        Ok(()) => break parked,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                };
                waiting.push(parked);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Opens a directory for reading and writing its entries, even if its mode forbids that.
fn unlock<Fd: std::os::fd::AsFd>(parent: Fd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(&parent, name, path_flags, Mode::empty())?;
    if rustix::fs::fstat(&handle)?.st_mode & 0o700 != 0o700 {
        // A descriptor opened with O_PATH can't be chmod-ed directly; its link in /proc can.
        let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
        rustix::fs::chmod(link.as_str(), Mode::RWXU)?;
    }
    rustix::fs::openat(&parent, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn locked_deep_and_linked_trees_go_and_what_links_point_at_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join("keep"), "kept").expect("a file");
        let tree_path = folder.path().join("tree");
        fs::create_dir_all(tree_path.join("a/b/c")).expect("folders");
        std::os::unix::fs::symlink(&outside, tree_path.join("a/link")).expect("a link");
        fs::write(tree_path.join("a/b/c/file"), "x").expect("a file");
        let mut deep =
            rustix::fs::open(&tree_path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("opens");
        for _ in 0..3000 {
            rustix::fs::mkdirat(&deep, "d", Mode::RWXU).expect("a folder");
            deep = rustix::fs::openat(&deep, "d", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
                .expect("opens");
        }
        fs::set_permissions(tree_path.join("a/b"), fs::Permissions::from_mode(0o000)).expect("locks");
        tree(&tree_path).expect("is removed");
        assert!(!tree_path.exists());
        assert_eq!(fs::read_to_string(outside.join("keep")).expect("reads"), "kept");
        tree(&tree_path).expect("removing nothing is fine");
    }
}
