//! What a program said, as a part of a sentence.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// A text on one line, with nothing in it that steers a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    let printable: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    printable.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The end of a log on one line: at most so many bytes, and nothing from before a place.
pub(crate) fn tail_on_one_line(log: &mut File, from: u64, most: u64) -> io::Result<String> {
    let end = log.metadata()?.len();
    log.seek(SeekFrom::Start(end.saturating_sub(most).max(from)))?;
    let mut text = Vec::new();
    log.take(most).read_to_end(&mut text)?;
    Ok(on_one_line(&String::from_utf8_lossy(&text)))
}
