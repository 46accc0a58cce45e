//! A limit to how much of a stream is passed on: its beginning as it comes, and, if there was more than the
//! limit, its end when that is reached, with a line between them that says how much is missing.

/// How much of the end is kept, at most and for small limits.
const TAIL: u64 = 64 * 1024;
const SMALLEST_PART: u64 = 4;

/// Bytes of a character that is not whole, at most.
const PARTIAL: usize = 3;

/// Passes on so much of one stream.
#[derive(Debug)]
pub(crate) struct OutputCap {
    limit: u64,
    /// Where the beginning ends. A character that goes on there belongs to it.
    beginning: u64,
    /// How many bytes of that character may still come.
    partial: usize,
    passed: u64,
    /// What came after the beginning, as much of it as matters.
    tail: Vec<u8>,
    /// How much of it was left out already.
    dropped: u64,
    at_line_start: bool,
}

impl OutputCap {
    pub(crate) fn new(limit: u64) -> Self {
        let beginning = limit - TAIL.min(limit / SMALLEST_PART);
        Self {
            limit,
            beginning,
            partial: PARTIAL,
            passed: 0,
            tail: Vec::new(),
            dropped: 0,
            at_line_start: true,
        }
    }

    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(&[u8])) {
        let left = self.beginning.saturating_sub(self.passed).min(bytes.len() as u64) as usize;
        let (now, later) = bytes.split_at(left);
        self.pass(now, emit);
        if later.is_empty() {
            return;
        }
        let most = self.partial.min(self.room());
        let (partial, later) = later.split_at(partial(later, most));
        self.partial = if later.is_empty() { self.partial - partial.len() } else { 0 };
        self.pass(partial, emit);
        self.tail.extend_from_slice(later);
        // Not each time, because that moves what stays.
        if self.tail.len() > 2 * self.room() {
            self.drop_all_but(self.room());
        }
    }

    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(&[u8])) {
        self.drop_all_but(self.room());
        if self.dropped > 0 {
            self.drop_all_but(self.tail.len() - partial(&self.tail, PARTIAL));
            let line_end = if self.at_line_start { "" } else { "\n" };
            let left_out = self.dropped;
            let notice = format!("{line_end}[agency: {left_out} bytes left out here]\n");
            emit(notice.as_bytes());
        }
        let tail = std::mem::take(&mut self.tail);
        self.pass(&tail, emit);
    }

    /// How much of the end may be passed on.
    fn room(&self) -> usize {
        (self.limit - self.passed) as usize
    }

    fn pass(&mut self, bytes: &[u8], emit: &mut dyn FnMut(&[u8])) {
        if let Some(last) = bytes.last() {
            self.passed += bytes.len() as u64;
            self.at_line_start = *last == b'\n';
            emit(bytes);
        }
    }

    fn drop_all_but(&mut self, kept: usize) {
        let gone = self.tail.len().saturating_sub(kept);
        self.tail.drain(..gone);
        self.dropped += gone as u64;
    }
}

/// How many of the first bytes, at most `most`, go on with a character of UTF-8 that began before them.
fn partial(bytes: &[u8], most: usize) -> usize {
    bytes.iter().take(most).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capped(limit: u64, pieces: &[&[u8]]) -> (String, u64, u64) {
        let (mut cap, mut out) = (OutputCap::new(limit), Vec::new());
        for piece in pieces {
            cap.push(piece, &mut |bytes| out.extend_from_slice(bytes));
        }
        cap.finish(&mut |bytes| out.extend_from_slice(bytes));
        (String::from_utf8_lossy(&out).into_owned(), cap.passed(), cap.left_out())
    }

    #[test]
    fn what_fits_passes_unchanged() {
        assert_eq!(capped(8, &[b"12345678"]), ("12345678".into(), 8, 0));
        assert_eq!(capped(1, &[b"1"]), ("1".into(), 1, 0));
        assert_eq!(capped(8, &[]), (String::new(), 0, 0));
    }

    #[test]
    fn of_what_does_not_the_beginning_and_the_end_are_kept() {
        let notice = "[agency: 1 bytes left out here]";
        assert_eq!(capped(8, &[b"123456789"]), (format!("123456\n{notice}\n89"), 8, 1));
        assert_eq!(capped(8, &[b"12345\n", b"789"]), (format!("12345\n{notice}\n89"), 8, 1));
        assert_eq!(capped(1, &[b"12"]).0, format!("1\n{notice}\n"));
    }

    #[test]
    fn characters_are_not_cut() {
        let (text, passed, left_out) = capped(20, &["äöüäöüäöüäöüäöü".as_bytes()]);
        assert!(!text.contains('\u{fffd}'), "{text}");
        assert_eq!(passed + left_out, 30);
        let (text, ..) = capped(7, &["€€€€€".as_bytes()]);
        assert!(!text.contains('\u{fffd}'), "{text}");
    }

    #[test]
    fn a_flood_takes_no_memory() {
        let mut cap = OutputCap::new(1 << 20);
        for _ in 0..1000 {
            cap.push(&[b'x'; 100_000], &mut |_| {});
            assert!(cap.tail.capacity() <= 512 * 1024);
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(0xe2), Just(0x82), any::<u8>()], 0..80),
            limit in 1u64..90,
            size in 1usize..20,
        ) {
            let whole = capped(limit, &[&bytes]);
            prop_assert_eq!(&whole, &capped(limit, &bytes.chunks(size).collect::<Vec<_>>()));
            prop_assert!(whole.1 <= limit);
            prop_assert_eq!(whole.1 + whole.2, bytes.len() as u64);
        }
    }
}
