//! The mounts that a process sees, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One line of mountinfo.
#[derive(Debug)]
pub(crate) struct MountEntry {
    pub(crate) point: PathBuf,
    pub(crate) read_only: bool,
    pub(crate) kind: String,
    /// What is mounted, as the `mount` call named it.
    pub(crate) source: String,
    pub(crate) options: String,
}

impl MountEntry {
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.kind, if self.read_only { "read-only" } else { "writable" })
    }
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw,errors=continue`
pub(crate) fn parse(line: &str) -> Option<MountEntry> {
    let (first, second) = line.split_once(" - ")?;
    let fields: Vec<&str> = first.split(' ').collect();
    let (point, flags) = (fields.get(4)?, fields.get(5)?);
    let mut rest = second.split(' ');
    let kind = rest.next()?.to_owned();
    let source = rest.next().unwrap_or_default().to_owned();
    let options = rest.next().unwrap_or_default().to_owned();
    Some(MountEntry {
        point: PathBuf::from(unescape(point)),
        read_only: flags.split(',').any(|flag| flag == "ro"),
        kind,
        source,
        options,
    })
}

/// Where something is mounted, of a whole line.
pub(crate) fn point(line: &str) -> Option<PathBuf> {
    line.split(' ').nth(4).map(|point| PathBuf::from(unescape(point)))
}

/// Blanks and backslashes in mountinfo are written in octal.
fn unescape(text: &str) -> OsString {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_its_escapes() {
        let line = "36 35 98:0 /r /a\\040b rw,nosuid,ro shared:1 master:2 - tmpfs none rw,size=4k";
        let mount = parse(line).expect("parses");
        assert_eq!(mount.point, Path::new("/a b"));
        assert!(mount.read_only);
        assert_eq!((mount.kind.as_str(), mount.options.as_str()), ("tmpfs", "rw,size=4k"));
    }
}
