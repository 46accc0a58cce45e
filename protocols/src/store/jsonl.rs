//! Logs that only grow: one JSON object a line.
//!
//! A line is appended with a single write and synced. A crash can tear at most the last line; the next
//! writer starts a new one after it, and readers count what is no line.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Appends one line. The caller holds the lock that guards the log.
pub fn append(path: &Path, line: &impl Serialize) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let mut bytes = Vec::new();
    if torn(&mut file)? {
        bytes.push(b'\n');
    }
    serde_json::to_writer(&mut bytes, line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    file.sync_data()
}

fn torn(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last[0] != b'\n')
}

/// The contents of a log.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLines<T> {
    pub lines: Vec<T>,
    /// The numbers of lines that could not be read, counted from one.
    pub odd: Vec<usize>,
}

/// Reads a log; one that does not exist is empty.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<LogLines<T>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut found = LogLines { lines: Vec::new(), odd: Vec::new() };
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(line) => found.lines.push(line),
            Err(_) if line.is_empty() => {}
            Err(_) => found.odd.push(index + 1),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_harms_nothing_that_follows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.jsonl");
        append(&path, &1).expect("appended");
        OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"{\"torn"))
            .expect("torn");
        append(&path, &2).expect("appended");
        let read: LogLines<u32> = read(&path).expect("read");
        assert_eq!(read, LogLines { lines: vec![1, 2], odd: vec![2] });
    }
}
