//! Other people's words on one line: characters that are not seen, that steer a terminal or that reorder a line are left out.

/// One line of at most `most` characters; the last of them says if there was more.
pub(crate) fn line(raw: &str, most: usize) -> String {
    let shown: String = raw.chars().filter_map(shown).collect();
    let mut line = String::new();
    let mut length = 0;
    for word in shown.split_whitespace() {
        let space = usize::from(!line.is_empty());
        let left = most.saturating_sub(length + space);
        let characters = word.chars().count();
        if characters > left {
            // The ellipsis takes the place of a character, so one less of the word fits.
            if left > 1 {
                line.extend((space == 1).then_some(' '));
                line.extend(word.chars().take(left - 1));
            } else if length == most {
                line.pop();
            }
            line.push('…');
            return line;
        }
        line.extend((space == 1).then_some(' '));
        line.push_str(word);
        length += space + characters;
    }
    line
}

/// A character as it may stand in a text, or nothing.
pub(crate) fn shown(c: char) -> Option<char> {
    match c {
        '\n' | '\t' => Some(c),
        // Line ends of other worlds; a program that knows only one would see a longer line than people do.
        '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
        c if c.is_control() => None,
        // Marks of direction.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => None,
        // Without width. The joiners U+200C and U+200D stay: Persian and emoji are spelt with them.
        '\u{ad}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{2060}'..='\u{2064}'
        | '\u{206a}'..='\u{206f}'
        | '\u{feff}' => None,
        '\u{fff9}'..='\u{fffb}' => None,
        // Tags and variation selectors, with which a whole sentence can be spelt unseen.
        '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}' => None,
        c => Some(c),
    }
}
