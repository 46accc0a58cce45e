//! Text in columns: how much room it takes, and what of it fits.
//!
//! A line that is wider than was thought wraps, and what is drawn over it later leaves remains. Terminals disagree
//! about the width of many characters, so only those are shown as they are about which they agree.

use std::ops::RangeInclusive;

use unicode_width::UnicodeWidthChar;

use crate::app::error::without_control_chars;

/// Characters with the same width on every terminal.
const CERTAIN: &[RangeInclusive<char>] = &[
    ' '..='~',
    // Latin, Greek and Cyrillic; not what is put on top of others.
    '\u{a1}'..='\u{ac}',
    '\u{ae}'..='\u{2ff}',
    '\u{370}'..='\u{482}',
    '\u{48a}'..='\u{52f}',
    '\u{1e00}'..='\u{1fff}',
    // Signs.
    '\u{2010}'..='\u{2027}',
    '\u{2030}'..='\u{205e}',
    '\u{20a0}'..='\u{20bf}',
    '\u{2100}'..='\u{2426}',
    '\u{2500}'..='\u{25ff}',
    '\u{2701}'..='\u{27bf}',
    // Kana, Han and Hangul.
    '\u{3001}'..='\u{3029}',
    '\u{3041}'..='\u{3096}',
    '\u{30a0}'..='\u{30ff}',
    '\u{3400}'..='\u{4dbf}',
    '\u{4e00}'..='\u{9fff}',
    '\u{ac00}'..='\u{d7a3}',
    '\u{ff01}'..='\u{ff60}',
    // Pictures, without colours of skin.
    '\u{1f300}'..='\u{1f3fa}',
    '\u{1f400}'..='\u{1f64f}',
    '\u{1f680}'..='\u{1f6c5}',
];

/// Cuts a text to one line of at most `width` columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
    fitting(one_line(text), width)
}

/// The same for a line over which nothing is drawn: it may wrap, so it has every character that moves no cursor.
pub(crate) fn cut_loosely(text: &str, width: usize) -> String {
    fitting(without_control_chars(text).replace(['\n', '\t'], " "), width)
}

fn fitting(shown: String, width: usize) -> String {
    if columns(&shown) <= width {
        return shown;
    }
    let mut fits = String::new();
    let mut left = width.saturating_sub(1);
    for character in shown.chars() {
        match left.checked_sub(character.width().unwrap_or(0)) {
            Some(rest) => left = rest,
            None => break,
        }
        fits.push(character);
    }
    fits.extend((width > 0).then_some('…'));
    fits
}

/// The width of a text made by [`cut`] or [`one_line`].
pub(crate) fn columns(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// A text without characters that leave the line or have no known width.
pub(crate) fn one_line(text: &str) -> String {
    let shown = |character: char| match character {
        '\t' | '\n' => Some(' '),
        character if CERTAIN.iter().any(|range| range.contains(&character)) => Some(character),
        // What takes no room of its own is left out.
        character if character.width() == Some(0) => None,
        _ => Some('?'),
    };
    text.chars().filter_map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_however_wide_its_characters_are() {
        for text in
            ["plain", "世界世界世界", "🚀🚀🚀🚀", "a世b界c", "", "ﷺ﷽﷽", "👩‍👩‍👧‍👦👍🏽", "e\u{301}\u{301}\u{301}x"]
        {
            for width in 0..20 {
                let line = cut(text, width);
                assert!(columns(&line) <= width, "{line:?} in {width}");
            }
        }
        assert_eq!(cut("世界", 4), "世界");
        assert_eq!(cut("世界", 3), "世…");
        assert_eq!(cut("a long line", 6), "a lon…");
    }

    #[test]
    fn what_could_leave_its_line_does_not() {
        assert_eq!(one_line("a\nb\tc"), "a b c");
        assert_eq!(one_line("a\u{1b}[2Jb\rc\u{9b}1A"), "a?[2Jb?c?1A");
        assert_eq!(one_line("e\u{301}\u{200d}\u{fe0f}\u{202e}x"), "ex");
        assert_eq!(one_line("\u{1fae8}\u{1f1e9}"), "??");
    }
}
