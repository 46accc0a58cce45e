//! Tags of file contents, which show whether a file is still the one that a decision was based on.

use std::fmt;

use sha2::{Digest, Sha256};

/// The sha256 of a file's raw bytes. A file that does not exist has the tag of nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ETag([u8; 32]);

impl ETag {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The tag in hexadecimal, as it is written into files.
    pub fn parse(hex: &str) -> Option<Self> {
        let mut tag = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        for (byte, digits) in tag.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(tag))
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ETag({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_nothing_is_the_known_one() {
        let nothing = ETag::of(b"");
        assert_eq!(nothing.to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(ETag::parse(&nothing.to_string()), Some(nothing));
        assert_eq!(ETag::parse("e3b0"), None);
        assert_eq!(ETag::parse(&"é".repeat(32)), None);
    }
}
