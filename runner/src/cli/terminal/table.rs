//! Lines of a table: in a pipe as they are, at a terminal cut to its width and with colours.

use super::colour::{self, Colour};
use super::columns::{columns, cut_loosely};

/// Where a table is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableStyle {
    /// The columns of the terminal, where there is one.
    width: Option<usize>,
    is_coloured: bool,
}

/// A piece of a line, with its colour.
pub(crate) type TablePiece = (String, Option<Colour>);

impl TableStyle {
    /// As programs read it.
    pub(crate) const PLAIN: Self = Self { width: None, is_coloured: false };

    /// For standard output.
    pub(crate) fn output() -> Self {
        Self { width: super::output_width(), is_coloured: colour::is_wanted_on_output() }
    }

    /// For standard error: `width` is that of its terminal, if it can be drawn on.
    pub(crate) fn errors(width: Option<usize>) -> Self {
        Self { width, is_coloured: colour::is_wanted_on_errors(width.is_some()) }
    }

    /// A cell with spaces up to a width.
    pub(crate) fn padded(self, cell: &str, width: usize) -> String {
        cell.to_owned() + &" ".repeat(width.saturating_sub(self.measured(cell)))
    }

    /// How wide a cell is.
    pub(crate) fn measured(self, cell: &str) -> usize {
        match self.width {
            Some(_) => columns(&cut_loosely(cell, usize::MAX)),
            None => cell.chars().count(),
        }
    }

    /// A line of these pieces, without its end.
    pub(crate) fn line(self, pieces: impl IntoIterator<Item = TablePiece>) -> String {
        let (mut line, mut left) = (String::new(), self.width.unwrap_or(usize::MAX));
        for (text, colour) in pieces {
            let (text, is_whole) = match self.width {
                None => (text, true),
                Some(_) => (cut_loosely(&text, left), self.measured(&text) <= left),
            };
            left = left.saturating_sub(self.measured(&text));
            // A colour covers the word, and not the spaces behind it.
            let word = text.trim_end();
            match colour.filter(|_| self.is_coloured && !word.is_empty()) {
                Some(colour) => line.push_str(&(colour.around(word) + &text[word.len()..])),
                None => line.push_str(&text),
            }
            if !is_whole {
                break;
            }
        }
        line
    }
}

/// The colour of a state, an outcome or a phase, in any protocol.
pub(crate) fn state_colour(state: &str) -> Option<Colour> {
    match state.to_ascii_lowercase().as_str() {
        "done" | "kept" | "landed" => Some(Colour::Green),
        "blocked" | "failed" | "lost" | "rejected" => Some(Colour::Red),
        "waits" | "parked" | "undecided" | "ready_for_review" | "to_be_tested" => Some(Colour::Yellow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLES: [TableStyle; 2] = [
        TableStyle { width: Some(12), is_coloured: false },
        TableStyle { width: Some(12), is_coloured: true },
    ];

    fn pieces() -> Vec<TablePiece> {
        vec![
            ("T1  ".to_owned(), Some(Colour::Bold)),
            ("DONE  ".to_owned(), Some(Colour::Green)),
            ("a title".to_owned(), None),
        ]
    }

    #[test]
    fn a_line_is_cut_to_the_terminal_and_its_colours_end_with_their_words() {
        assert_eq!(TableStyle::PLAIN.line(pieces()), "T1  DONE  a title");
        let [plain, coloured] = STYLES;
        assert_eq!(plain.line(pieces()), "T1  DONE  a…");
        assert_eq!(coloured.line(pieces()), "\u{1b}[1mT1\u{1b}[0m  \u{1b}[32mDONE\u{1b}[0m  a…");
        let narrow = TableStyle { width: Some(6), is_coloured: true };
        assert_eq!(narrow.line(pieces()), "\u{1b}[1mT1\u{1b}[0m  \u{1b}[32mD…\u{1b}[0m");
    }

    #[test]
    fn wide_characters_count_as_what_they_take_and_nothing_moves_the_cursor() {
        let [plain, _] = STYLES;
        assert_eq!(plain.line([("世界世界世界世界".to_owned(), None)]), "世界世界世…");
        assert_eq!(plain.line([("a\u{1b}[2Jb".to_owned(), None)]), "a\u{fffd}[2Jb");
        assert_eq!(plain.line([("नमस्ते".to_owned(), None)]), "नमस्ते");
        assert_eq!(
            (plain.padded("世", 4), TableStyle::PLAIN.padded("世", 4)),
            ("世  ".into(), "世   ".into())
        );
    }
}
