//! The boot a machine is in: what was not synced before it may be lost or torn after it.

#![allow(clippy::disallowed_methods, reason = "opens the kernel's")]

use std::fs;

/// Which boot this is; `None` where the kernel does not say so.
pub fn id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Whether the boot that was noted is this one. One that was not known is none.
pub fn is(noted: &str) -> bool {
    id().is_some_and(|id| id == noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_that_nobody_knows_is_not_this_one() {
        assert!(is(&id().expect("a boot")));
        assert!(!is("") && !is("another"));
    }
}
