//! Lines out of pieces of any size, in a bounded amount of memory.

/// The most of a line that is kept. The rest of a longer one is counted and forgotten.
const LONGEST_LINE: usize = 1 << 20;

/// One line, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLine<'a> {
    pub(crate) bytes: &'a [u8],
    /// How many bytes of it were not kept.
    pub(crate) dropped: u64,
}

/// Puts lines together.
#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    rest: Vec<u8>,
    dropped: u64,
    /// What comes first belongs to a line whose beginning was not read.
    in_the_middle: bool,
}

impl LineSplitter {
    /// For a text that is not read from its beginning: its first line is none.
    pub(crate) fn in_the_middle() -> Self {
        Self { in_the_middle: true, ..Self::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], line: &mut dyn FnMut(OutputLine<'_>)) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.keep(piece);
            self.end(line);
        }
        self.keep(last);
    }

    /// What has no end yet, when nothing more comes.
    pub(crate) fn finish(&mut self, line: &mut dyn FnMut(OutputLine<'_>)) {
        if !self.rest.is_empty() {
            self.end(line);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.rest.len());
        let kept = &piece[..piece.len().min(room)];
        self.rest.extend_from_slice(kept);
        self.dropped = self.dropped.saturating_add((piece.len() - kept.len()) as u64);
    }

    fn end(&mut self, line: &mut dyn FnMut(OutputLine<'_>)) {
        if !std::mem::take(&mut self.in_the_middle) {
            line(OutputLine { bytes: &self.rest, dropped: self.dropped });
        }
        self.rest.clear();
        self.dropped = 0;
        // A long line is rare: its memory is given back.
        self.rest.shrink_to(64 << 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(splitter: &mut LineSplitter, pieces: &[&[u8]]) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        for piece in pieces {
            splitter.push(piece, &mut |line| found.push((line.bytes.len(), line.dropped)));
        }
        splitter.finish(&mut |line| found.push((line.bytes.len(), line.dropped)));
        found
    }

    #[test]
    fn lines_come_whole_in_whatever_pieces() {
        assert_eq!(lines(&mut LineSplitter::default(), &[b"a", b"b\n\nc", b"d"]), [(2, 0), (0, 0), (2, 0)]);
        assert_eq!(lines(&mut LineSplitter::default(), &[]), []);
        assert_eq!(lines(&mut LineSplitter::in_the_middle(), &[b"rest\nwhole\n"]), [(5, 0)]);
    }

    #[test]
    fn a_line_without_an_end_takes_a_bounded_amount_of_memory() {
        let mut splitter = LineSplitter::default();
        let piece = vec![b'x'; 256 << 10];
        for _ in 0..64 {
            splitter.push(&piece, &mut |_| panic!("it has no end"));
        }
        assert!(splitter.rest.capacity() <= 2 * LONGEST_LINE);
        let whole = 64 * piece.len() as u64;
        assert_eq!(lines(&mut splitter, &[b"\n"]), [(LONGEST_LINE, whole - LONGEST_LINE as u64)]);
        assert!(splitter.rest.capacity() <= 64 << 10);
    }
}
