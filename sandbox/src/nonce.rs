//! Names that can't be guessed.

use rustix::rand::{GetRandomFlags, getrandom};

/// 128 random bits, as 32 digits.
pub fn nonce() -> String {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    // So few are never refused, and never given in part.
    assert_eq!(filled, Ok(bytes.len()), "the kernel has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a name is one of those.
pub(crate) fn is_nonce(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same_and_nothing_else_is_one() {
        let (one, other) = (nonce(), nonce());
        assert!(is_nonce(&one) && is_nonce(&other) && one != other);
        for name in ["", "x", "0123456789abcdef0123456789abcdeg", "../0123456789abcdef0123456789abc"] {
            assert!(!is_nonce(name), "{name}");
        }
    }
}
