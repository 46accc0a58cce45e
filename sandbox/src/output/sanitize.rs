//! Output as a person's terminal may show it. What would move the cursor, change the title, answer for the
//! person, or reorder what is read becomes visible text; letters, lines and colours stay.

use std::ops::RangeInclusive;

/// The longest sequence that is taken for a colour.
const LONGEST_COLOUR: usize = 48;

/// Signs that are not seen but change how others are: they reorder text, or hide in it.
const UNSEEN: &[RangeInclusive<char>] = &[
    '\u{80}'..='\u{9f}',
    '\u{61c}'..='\u{61c}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200b}',
    '\u{200e}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff9}'..='\u{fffb}',
    '\u{e0000}'..='\u{e007f}',
];

/// Makes one stream harmless to look at.
#[derive(Debug, Default)]
pub struct TerminalSanitizer {
    /// The beginning of a character, a colour or the end of a line.
    held: Vec<u8>,
    coloured: bool,
    in_line: bool,
}

impl TerminalSanitizer {
    /// Whether the cursor is not at the start of a line.
    pub(crate) fn in_line(&self) -> bool {
        self.in_line
    }

    pub fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(&[u8])) {
        self.show(bytes, false, emit);
    }

    pub fn finish(&mut self, emit: &mut dyn FnMut(&[u8])) {
        self.show(b"", true, emit);
        if self.coloured {
            emit(b"\x1b[0m");
        }
    }

    fn show(&mut self, bytes: &[u8], ended: bool, emit: &mut dyn FnMut(&[u8])) {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        let mut out = String::with_capacity(rest.len());
        while !rest.is_empty() {
            match next(rest, ended) {
                Some((length, sign)) => {
                    self.write(sign, &mut out);
                    rest = &rest[length..];
                }
                None => break,
            }
        }
        self.held = rest.to_vec();
        if let Some(last) = out.bytes().last() {
            self.in_line = last != b'\n';
            emit(out.as_bytes());
        }
    }

    fn write(&mut self, sign: TerminalToken<'_>, out: &mut String) {
        match sign {
            TerminalToken::Text(text) => out.push_str(text),
            TerminalToken::Colour(sequence) => {
                self.coloured = !matches!(sequence, "\x1b[m" | "\x1b[0m");
                out.push_str(sequence);
            }
            TerminalToken::Control(control @ 0..0x20) => {
                out.push(char::from_u32(0x2400 + u32::from(control)).unwrap_or('␦'));
            }
            TerminalToken::Control(_) => out.push('␡'),
            TerminalToken::Unseen(character) => out.extend(character.escape_unicode()),
            TerminalToken::Invalid => out.push('\u{fffd}'),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum TerminalToken<'a> {
    /// Characters that are as they look.
    Text(&'a str),
    Colour(&'a str),
    Control(u8),
    Unseen(char),
    Invalid,
}

/// The first sign of some bytes and its length; nothing if more bytes are needed to tell.
fn next(bytes: &[u8], ended: bool) -> Option<(usize, TerminalToken<'_>)> {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let length = bytes.iter().take_while(|byte| plain(byte)).count();
    if length > 0 {
        return Some((length, TerminalToken::Text(text(&bytes[..length]))));
    }
    match bytes {
        [b'\r', b'\n', ..] => Some((2, TerminalToken::Text("\n"))),
        [b'\r'] if !ended => None,
        [0x1b, ..] => match colour(bytes) {
            ColorSequence::Whole(length) => Some((length, TerminalToken::Colour(text(&bytes[..length])))),
            ColorSequence::Unfinished if !ended => None,
            ColorSequence::Unfinished | ColorSequence::None => Some((1, TerminalToken::Control(0x1b))),
        },
        [control @ (0..0x20 | 0x7f), ..] => Some((1, TerminalToken::Control(*control))),
        _ => character(&bytes[..bytes.len().min(4)], ended),
    }
}

/// Only called with what was checked to be ASCII.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("\u{fffd}")
}

/// The first character of some bytes that begin with none of ASCII.
fn character(bytes: &[u8], ended: bool) -> Option<(usize, TerminalToken<'_>)> {
    let (valid, error) = match std::str::from_utf8(bytes) {
        Ok(valid) => (valid, None),
        Err(error) => (std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(), Some(error)),
    };
    if let Some(character) = valid.chars().next() {
        let length = character.len_utf8();
        let unseen = UNSEEN.iter().any(|range| range.contains(&character));
        return Some((
            length,
            if unseen { TerminalToken::Unseen(character) } else { TerminalToken::Text(&valid[..length]) },
        ));
    }
    match error.and_then(|error| error.error_len()) {
        Some(length) => Some((length, TerminalToken::Invalid)),
        None if ended => Some((bytes.len(), TerminalToken::Invalid)),
        None => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ColorSequence {
    None,
    Unfinished,
    Whole(usize),
}

/// Whether bytes that begin with an escape begin with a colour: numbers between `[` and `m`. The one that hides
/// text is none.
fn colour(bytes: &[u8]) -> ColorSequence {
    match bytes.get(1) {
        None => return ColorSequence::Unfinished,
        Some(b'[') => {}
        Some(_) => return ColorSequence::None,
    }
    let is_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b';' | b':');
    let numbers = bytes[2..].iter().take(LONGEST_COLOUR).take_while(is_number).count();
    match bytes.get(2 + numbers) {
        Some(b'm') if !conceals(&bytes[2..2 + numbers]) => ColorSequence::Whole(3 + numbers),
        None if numbers < LONGEST_COLOUR => ColorSequence::Unfinished,
        _ => ColorSequence::None,
    }
}

/// Whether a number says 8, and is not an argument of a colour.
fn conceals(numbers: &[u8]) -> bool {
    let mut numbers = numbers.split(|byte| *byte == b';');
    while let Some(number) = numbers.next() {
        let number = number.trim_ascii_start();
        let significant = number.iter().position(|digit| *digit != b'0').map_or(&b""[..], |at| &number[at..]);
        match significant {
            b"8" => return true,
            b"38" | b"48" | b"58" => {
                let arguments = match numbers.next() {
                    Some(b"5") => 1,
                    Some(b"2") => 3,
                    _ => 0,
                };
                let _ = numbers.by_ref().take(arguments).count();
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let (mut shown, mut out) = (TerminalSanitizer::default(), Vec::new());
        for piece in pieces {
            shown.push(piece, &mut |bytes| out.extend_from_slice(bytes));
        }
        shown.finish(&mut |bytes| out.extend_from_slice(bytes));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn letters_lines_and_colours_stay() {
        for text in ["", "plain\ttext\n", "Grüße, 世界 👩‍💻\n", "\x1b[1;38;5;8;4:3mred\x1b[0m\n"] {
            assert_eq!(shown(&[text.as_bytes()]), text);
        }
        assert_eq!(shown(&[b"one\r\ntwo\r\n"]), "one\ntwo\n");
        assert_eq!(shown(&[b"\x1b[31mred"]), "\x1b[31mred\x1b[0m");
    }

    #[test]
    fn what_steers_a_terminal_or_a_reader_is_seen() {
        for (bytes, expected) in [
            (&b"\x1b[2J\x1b[H"[..], "␛[2J␛[H"),
            (b"\x1b]0;title\x07", "␛]0;title␇"),
            (b"\x1b]52;c;aGk=\x1b\\", "␛]52;c;aGk=␛\\"),
            (b"\x1b[8mhidden", "␛[8mhidden"),
            (b"\x1b[0;08mhidden", "␛[0;08mhidden"),
            (b"\x1b[38;5;1;8mhidden", "␛[38;5;1;8mhidden"),
            (b"\x1b[6n\x1bc", "␛[6n␛c"),
            (b"done\rall tests passed", "done␍all tests passed"),
            (b"a\x08b\x7fc\x00d\x0be", "a␈b␡c␀d␋e"),
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
            (b"\x9b2J", "\u{fffd}2J"),
            (
                "a\u{202e}b\u{2066}\u{200f}\u{feff}\u{61c}\u{e0041}".as_bytes(),
                "a\\u{202e}b\\u{2066}\\u{200f}\\u{feff}\\u{61c}\\u{e0041}",
            ),
            (b"\xff\xfe\xe2\x82", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\x1b", "␛"),
            (b"\x1b[31", "␛[31"),
            (b"\r", "␍"),
        ] {
            assert_eq!(shown(&[bytes]), expected);
        }
    }

    #[test]
    fn an_endless_colour_is_none() {
        let sequence = [&b"\x1b["[..], &[b'1'; 10_000], b"m"].concat();
        assert!(shown(&[&sequence]).starts_with("␛[111"));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter_and_nothing_steers(
            bytes in prop::collection::vec(
                prop_oneof![
                    Just(0x1b), Just(b'['), Just(b'm'), Just(b'3'), Just(b';'), Just(b'\r'), Just(b'\n'),
                    Just(0xe2), Just(0x80), Just(0xae), Just(0xc2), any::<u8>()
                ],
                0..100,
            ),
            size in 1usize..9,
        ) {
            let whole = shown(&[&bytes]);
            prop_assert_eq!(&whole, &shown(&bytes.chunks(size).collect::<Vec<_>>()));
            let mut rest = &whole[..];
            while let Some(at) = rest.find('\x1b') {
                let ColorSequence::Whole(length) = colour(&rest.as_bytes()[at..]) else { panic!("{whole:?}") };
                rest = &rest[at + length..];
            }
            let harmless = |c: char| c == '\n' || c == '\t' || c == '\x1b' || !c.is_control();
            prop_assert!(whole.chars().all(harmless), "{:?}", whole);
        }
    }
}
