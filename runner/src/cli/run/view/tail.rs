//! The last thing an agent wrote.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use agency_sandbox::output::sanitize::TerminalSanitizer;

use crate::app::transcript::{LineSplitter, OutputFormat};
use crate::cli::terminal::columns;

/// More than fits on any line.
const ENOUGH: u64 = 4096;
/// The most of a log that is read at once for the events in it. What is before that is skipped.
const EVENTS: u64 = 1 << 20;

/// The end of a log that grows.
#[derive(Debug)]
pub(super) struct LogTail {
    path: PathBuf,
    /// How long it was when it was last read.
    length: u64,
    line: String,
    /// How its lines are to be read: known when there is something to read.
    reading: Option<TailReading>,
}

/// How the end of a log is read.
#[derive(Debug)]
enum TailReading {
    /// Whatever comes last is what people see.
    Text,
    /// Event by event: the last one may say nothing to people, and one before it does.
    Events { format: OutputFormat, lines: LineSplitter },
}

impl LogTail {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, length: 0, line: String::new(), reading: None }
    }

    /// Its last line that says something. A log that has not grown is not read.
    pub(super) fn line(&mut self) -> &str {
        // Empty lines say nothing new.
        if let Some(line) = self.grown().filter(|line| !line.is_empty()) {
            self.line = line;
        }
        &self.line
    }

    fn grown(&mut self) -> Option<String> {
        let file = File::open(&self.path).ok()?;
        let length = file.metadata().ok()?.len();
        if length == self.length {
            return None;
        }
        let path = &self.path;
        let reading = self.reading.get_or_insert_with(|| TailReading::of(path));
        let line = match reading {
            TailReading::Text => last_line(&read_at(&file, length.saturating_sub(ENOUGH), length)?),
            TailReading::Events { format, lines } => {
                let mut from = self.length;
                if length - from.min(length) > EVENTS || from > length {
                    from = length.saturating_sub(EVENTS);
                    *lines = if from == 0 { LineSplitter::default() } else { LineSplitter::in_the_middle() };
                }
                let mut last = None;
                let bytes = read_at(&file, from, length)?;
                lines.push(&bytes, &mut |line| {
                    if let Some(shown) = format.shown(line.bytes).filter(|_| line.dropped == 0) {
                        last = Some(shown);
                    }
                });
                columns::one_line(&last.unwrap_or_default())
            }
        };
        self.length = length;
        Some(line)
    }
}

impl TailReading {
    /// As the order of the job says, which stands beside its output.
    fn of(path: &Path) -> Self {
        match path.parent().map(OutputFormat::of_job).unwrap_or_default() {
            OutputFormat::Text => Self::Text,
            format => Self::Events { format, lines: LineSplitter::default() },
        }
    }
}

fn read_at(file: &File, from: u64, to: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).ok()?];
    file.read_exact_at(&mut bytes, from).ok()?;
    Some(bytes)
}

/// What a person would see last, and nothing that a terminal would obey.
fn last_line(bytes: &[u8]) -> String {
    // Whoever goes back to the start of a line writes a new one.
    let bytes: Vec<u8> = bytes.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
    let (mut shown, mut text) = (TerminalSanitizer::default(), Vec::new());
    shown.push(&bytes, &mut |bytes| text.extend_from_slice(bytes));
    shown.finish(&mut |bytes| text.extend_from_slice(bytes));
    let text = without_colours(&String::from_utf8_lossy(&text));
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    columns::one_line(last)
}

/// Escapes that are left begin a colour, and `m` ends it.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_shown() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"one\ntwo\n", "two"),
            (b"one\n\n  \n", "one"),
            (b"one\ntw", "tw"),
            (b"10 %\r20 %\r", "20 %"),
            (b"\x1b[1;32mgreen\x1b[0m and not\n", "green and not"),
            ("Grüße, 世界 ✅\n".as_bytes(), "Grüße, 世界 ✅"),
        ] {
            assert_eq!(last_line(bytes), expected);
        }
    }

    #[test]
    fn nothing_that_an_agent_writes_steers_the_terminal() {
        for bytes in [
            &b"\x1b[2J\x1b[H\x1b[5Aforged"[..],
            b"\x1b]0;title\x07forged",
            b"\x1bcforged\x1b[",
            b"forged\x08\x08\x7f\x0b\x0c\x00",
            "\u{9b}5Aforged\u{85}\u{2028}\u{2029}\u{202e}".as_bytes(),
            b"\xff\xfe forged \xe2\x82",
        ] {
            let line = last_line(bytes);
            assert!(line.contains("forged"), "{line:?}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }

    #[test]
    fn a_log_is_followed_from_its_end() {
        let folder = std::env::temp_dir().join(format!("agency-tail-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("output.log");
        let mut tail = LogTail::of(path.clone());
        assert_eq!(tail.line(), "", "it is not there yet");
        std::fs::write(&path, [&[b'x'; 10_000][..], b"\nlast\n"].concat()).expect("written");
        assert_eq!(tail.line(), "last");
        std::fs::write(&path, [&[b'x'; 10_000][..], b"\nlast\n\n"].concat()).expect("written");
        assert_eq!(tail.line(), "last");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    /// The last event that says something, in whatever pieces the log grows, and however much comes at once.
    #[test]
    fn events_are_followed_in_a_bounded_amount() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("output.log");
        let mut tail = LogTail::of(path.clone());
        let format = OutputFormat::Codex;
        tail.reading = Some(TailReading::Events { format, lines: LineSplitter::default() });
        let says = |text: &str| {
            format!(
                "{{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":\"{text}\"}}}}\n"
            )
        };
        let mut log = says("one") + "{\"type\":\"turn.started\"}\n" + &says("two")[..40];
        std::fs::write(&path, &log).expect("written");
        assert_eq!(tail.line(), "says: one");
        log.push_str(&says("two")[40..]);
        std::fs::write(&path, &log).expect("written");
        assert_eq!(tail.line(), "says: two");
        log.push_str(&"x".repeat(3 << 20));
        std::fs::write(&path, &log).expect("written");
        assert_eq!(tail.line(), "says: two", "what has no end is waited for");
        log.push_str(&("\n".to_owned() + &says("three")));
        std::fs::write(&path, &log).expect("written");
        assert_eq!(tail.line(), "says: three");
    }
}
