//! Regions of ours in files that belong to others.
//!
//! A region stands between two marks, each on a line of its own. Writing it again replaces what is between
//! them; every byte outside survives.

use std::ops::Range;

/// How a mark is written in a kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentStyle {
    /// `<!-- agency:begin NAME -->`
    Html,
    /// `# agency:begin NAME`
    Hash,
}

/// Why a region's marks are ambiguous.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    #[error(
        "line {line}: the region `{name}` begins and never ends; add the line `{wanted}`, or remove its beginning"
    )]
    Open { name: String, line: usize, wanted: String },
    #[error("line {line}: the region `{name}` is there a second time; remove one of them")]
    Twice { name: String, line: usize },
    #[error("line {line}: the region `{name}` ends and never begins; remove that line")]
    Unopened { name: String, line: usize },
}

impl CommentStyle {
    fn mark(self, what: &str, name: &str) -> String {
        match self {
            CommentStyle::Html => format!("<!-- agency:{what} {name} -->"),
            CommentStyle::Hash => format!("# agency:{what} {name}"),
        }
    }
}

/// Where the inside of a region is: the whole lines between its marks.
pub fn find(text: &str, name: &str, comment: CommentStyle) -> Result<Option<Range<usize>>, RegionError> {
    let (begin, end) = (comment.mark("begin", name), comment.mark("end", name));
    let (mut opened, mut found): (Option<(usize, usize)>, Option<Range<usize>>) = (None, None);
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (number, content) = (index + 1, line.trim());
        let named = || name.to_owned();
        if content == begin {
            if opened.is_some() || found.is_some() {
                return Err(RegionError::Twice { name: named(), line: number });
            }
            opened = Some((number, at + line.len()));
        } else if content == end {
            match opened.take() {
                Some((_, start)) => found = Some(start..at),
                None => return Err(RegionError::Unopened { name: named(), line: number }),
            }
        }
        at += line.len();
    }
    match opened {
        Some((line, _)) => Err(RegionError::Open { name: name.to_owned(), line, wanted: end }),
        None => Ok(found),
    }
}

/// The text with the region holding `inside`: in its place, or appended where there is none yet.
pub fn upsert(text: &str, name: &str, inside: &str, comment: CommentStyle) -> Result<String, RegionError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let inside: String = inside.lines().flat_map(|line| [line, newline]).collect();
    if let Some(range) = find(text, name, comment)? {
        return Ok([&text[..range.start], &inside, &text[range.end..]].concat());
    }
    let mut out = text.to_owned();
    if !out.is_empty() {
        if !out.ends_with('\n') {
            out.push_str(newline);
        }
        out.push_str(newline);
    }
    for part in [&comment.mark("begin", name), newline, &inside, &comment.mark("end", name), newline] {
        out.push_str(part);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_outside_survives_and_twice_is_once(
            before in "[a-z#<>\r\n -]{0,40}", after in "[a-z#<>\r\n -]{0,40}", first in "[a-z\n]{0,20}", second in "[a-z\n]{0,20}"
        ) {
            let once = upsert(&before, "x", &first, CommentStyle::Html).expect("put");
            prop_assert!(once.starts_with(&before));
            let grown = format!("{once}{after}");
            let again = upsert(&grown, "x", &second, CommentStyle::Html).expect("put");
            prop_assert!(again.starts_with(&before) && again.ends_with(&after));
            prop_assert_eq!(upsert(&again, "x", &second, CommentStyle::Html).expect("put"), again);
        }
    }

    #[test]
    fn marks_that_do_not_pair_are_told_with_their_line() {
        let begin = "<!-- agency:begin x -->\n";
        let end = "<!-- agency:end x -->\n";
        let line = |text: &str| match find(text, "x", CommentStyle::Html).expect_err("does not pair") {
            RegionError::Open { line, .. }
            | RegionError::Twice { line, .. }
            | RegionError::Unopened { line, .. } => line,
        };
        assert_eq!(line(&format!("a\n{begin}")), 2);
        assert_eq!(line(end), 1);
        assert_eq!(line(&format!("{begin}{end}{begin}{end}")), 3);
        assert_eq!(line(&format!("{begin}{begin}{end}")), 2);
        assert_eq!(
            find("a\n# agency:begin x\nb\n# agency:end x\n", "x", CommentStyle::Hash),
            Ok(Some(19..21))
        );
    }
}
