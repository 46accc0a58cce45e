//! Text of an agent, as it comes: a line that begins as ours do gets a bar before it.

/// How every line of ours begins.
const OURS: &[u8] = b"agency:";

/// Marks lines in a stream. Nothing else changes.
#[derive(Debug, Default)]
pub(crate) struct LineGuard {
    /// Where in its line the stream is.
    place: LinePlace,
}

/// How much of a line is known to begin as ours do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LinePlace {
    /// Nothing has come yet but spaces, colours and letters outside ASCII.
    #[default]
    Start,
    /// In a colour, which ends with an `m`.
    Colour,
    /// So many bytes have come that begin a line of ours. They are held back.
    Ours(usize),
    /// It begins otherwise.
    Rest,
}

impl LineGuard {
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            self.place = match self.place {
                LinePlace::Start if byte == OURS[0] => LinePlace::Ours(1),
                LinePlace::Ours(known) if byte == OURS[known] && known + 1 == OURS.len() => {
                    out.extend_from_slice(b"| ");
                    out.extend_from_slice(OURS);
                    LinePlace::Rest
                }
                LinePlace::Ours(known) if byte == OURS[known] => LinePlace::Ours(known + 1),
                // A colour in the middle of the word is not seen, nor is a joiner: with what comes after it, the line may
                // look like ours.
                LinePlace::Ours(_) if byte == 0x1b || !byte.is_ascii() => {
                    out.extend_from_slice(b"| ");
                    self.release(out);
                    out.push(byte);
                    LinePlace::Rest
                }
                place => {
                    self.release(out);
                    out.push(byte);
                    match (place, byte) {
                        (_, b'\n') => LinePlace::Start,
                        // Some letters outside ASCII are blank.
                        (LinePlace::Start, b' ' | b'\t' | 0x80..) | (LinePlace::Colour, b'm') => {
                            LinePlace::Start
                        }
                        (LinePlace::Start, 0x1b) => LinePlace::Colour,
                        (LinePlace::Colour, _) => LinePlace::Colour,
                        _ => LinePlace::Rest,
                    }
                }
            };
        }
    }

    /// What was held back, when nothing more comes.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.release(out);
        self.place = LinePlace::Rest;
    }

    fn release(&self, out: &mut Vec<u8>) {
        if let LinePlace::Ours(known) = self.place {
            out.extend_from_slice(&OURS[..known]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(text: &str, size: usize) -> String {
        let (mut guard, mut out) = (LineGuard::default(), Vec::new());
        text.as_bytes().chunks(size).for_each(|piece| guard.push(piece, &mut out));
        guard.finish(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn only_lines_that_begin_as_ours_do_are_marked() {
        for (text, expected) in [
            ("agency: done\nagency: x\n", "| agency: done\n| agency: x\n"),
            ("the agency: done\nagencies: x\nagen", "the agency: done\nagencies: x\nagen"),
            (" \u{1b}[1;32magency: done\n", " \u{1b}[1;32m| agency: done\n"),
            ("age\u{1b}[1mncy: done\n", "| age\u{1b}[1mncy: done\n"),
            ("a\u{1b}[0m\u{1b}[1mgency: done\nb\n", "| a\u{1b}[0m\u{1b}[1mgency: done\nb\n"),
            ("\u{a0}\u{3000}\u{200c}agency: done\n", "\u{a0}\u{3000}\u{200c}| agency: done\n"),
            ("agagency: x\n\nagency:", "agagency: x\n\n| agency:"),
            ("é agency: ✅\n", "é | agency: ✅\n"),
            ("ag\u{200c}ency: done\nétage: 1\n", "| ag\u{200c}ency: done\nétage: 1\n"),
        ] {
            for size in [1, 3, 1000] {
                assert_eq!(guarded(text, size), expected, "{size}");
            }
        }
    }
}
