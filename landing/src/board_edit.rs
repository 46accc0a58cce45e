//! Edits of a board's files, as text: a piece of a file that becomes another piece.

use std::path::Path;

use super::error::Error;

/// A piece of a file that becomes another. Where `before` is empty, there was no such file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEdit {
    pub path: String,
    pub before: String,
    pub after: String,
}

impl CommitEdit {
    /// Takes the edit out of a text that has it: `Some(None)` where the edit made the file, `None` where the text has
    /// the edit not at all or more than once.
    pub fn revert_in(&self, text: &str) -> Option<Option<String>> {
        if self.before.is_empty() {
            return (text == self.after).then_some(None);
        }
        replaced(text, &self.after, &self.before).map(Some)
    }
}

/// Takes edits out of the files of a work tree, the last one first. Only the board's own store writes these files, so
/// the caller passes this function.
pub type RevertEdits = fn(root: &Path, edits: &[CommitEdit]) -> Result<(), Error>;

/// Applies every edit to a text; `None` if the text has not exactly one place for an edit.
pub(super) fn spliced(text: Option<&str>, edits: &[&CommitEdit]) -> Option<String> {
    let mut text = text.map(str::to_owned);
    for edit in edits {
        text = match (&text, edit.before.is_empty()) {
            (None, true) => Some(edit.after.clone()),
            (Some(text), false) => Some(replaced(text, &edit.before, &edit.after)?),
            (Some(text), true) if *text == edit.after => Some(text.clone()),
            _ => return None,
        };
    }
    text
}

/// Replaces whole lines that the text has exactly once. A work tree may end its lines otherwise than a commit does.
fn replaced(text: &str, before: &str, after: &str) -> Option<String> {
    let windows = |part: &str| part.replace("\r\n", "\n").replace('\n', "\r\n");
    let unix = |part: &str| part.replace("\r\n", "\n");
    let pairs = [
        (before.to_owned(), after.to_owned()),
        (unix(before), unix(after)),
        (windows(before), windows(after)),
    ];
    pairs.iter().find_map(|(before, after)| {
        let mut found = text.match_indices(before.as_str()).map(|(at, _)| at);
        let starts =
            |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n' || before.starts_with('\u{feff}');
        let at = found.by_ref().find(starts)?;
        match found.any(|at| starts(&at)) {
            true => None,
            false => Some([&text[..at], after, &text[at + before.len()..]].concat()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_replaced_where_they_are_there_once() {
        assert_eq!(replaced("a\nb\nc\n", "b\n", "x\ny\n").as_deref(), Some("a\nx\ny\nc\n"));
        assert_eq!(replaced("a\nb\nb\n", "b\n", "x\n"), None, "twice");
        assert_eq!(replaced("a\nab\n", "b\n", "x\n"), None, "no whole line");
        assert_eq!(replaced("a\r\nb\r\n", "b\n", "x\ny\n").as_deref(), Some("a\r\nx\r\ny\r\n"));
        assert_eq!(replaced("a\nb\n", "b\r\n", "x\r\n").as_deref(), Some("a\nx\n"));
    }

    #[test]
    fn a_file_that_was_not_there_is_made_and_one_that_was_is_not() {
        let edit = CommitEdit { path: "p".into(), before: String::new(), after: "new".into() };
        assert_eq!(spliced(None, &[&edit]).as_deref(), Some("new"));
        assert_eq!(spliced(Some("other"), &[&edit]), None);
        assert_eq!(spliced(Some("new"), &[&edit]).as_deref(), Some("new"));
    }
}
