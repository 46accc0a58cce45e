//! The plainest lines that ask for a sandbox, read by hand.
//!
//! Describing all that can be typed takes longer than reading what was: a thirtieth of a sandbox's start. A line that says
//! nothing but the scope and what becomes of the changes, and has `--` before its command, is read here. Any other, and
//! whatever is not right, is left to the description, which knows it all and what to say.

use std::ffi::OsString;

use super::{FILE_SIZE, Isolation, NETWORK, OUTPUT, PROCESSES, Sandbox, TMP_SIZE};
use crate::units;

/// What the words after `sandbox` ask for; `None` where somebody else has to read them.
pub(super) fn sandbox(words: &[OsString]) -> Option<Sandbox> {
    let mut asked = usual()?;
    let mut words = words.iter();
    loop {
        match words.next()?.to_str()? {
            "--write" => asked.write.push(value(words.next())?),
            "--deny" => asked.deny.push(value(words.next())?),
            "--apply" if !asked.apply && !asked.discard => asked.apply = true,
            "--discard" if !asked.apply && !asked.discard => asked.discard = true,
            "--json" if !asked.json => asked.json = true,
            "--" => break,
            _ => return None,
        }
    }
    asked.command = words.cloned().collect();
    (!asked.command.is_empty()).then_some(asked)
}

/// A value that can't be taken for an option.
fn value(word: Option<&OsString>) -> Option<String> {
    word?.to_str().filter(|text| !text.is_empty() && !text.starts_with('-')).map(str::to_owned)
}

/// A sandbox that nothing was said about.
fn usual() -> Option<Sandbox> {
    Some(Sandbox {
        write: Vec::new(),
        deny: Vec::new(),
        read: Vec::new(),
        hide: Vec::new(),
        net: NETWORK.to_owned(),
        isolation: Isolation::Process,
        image: None,
        env: Vec::new(),
        tty: false,
        without: Vec::new(),
        timeout: None,
        stall: None,
        memory: None,
        processes: units::count(PROCESSES).ok()?,
        file_size: units::size(FILE_SIZE).ok()?,
        tmp_size: units::size(TMP_SIZE).ok()?,
        output: units::size(OUTPUT).ok()?,
        layer: None,
        base: None,
        apply: false,
        patch: None,
        discard: false,
        json: false,
        command: Vec::new(),
    })
}
