//! Merges two versions of a text that have a common base.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use similar::{DiffOp, TextDiff};

/// Texts that take longer to compare are not merged.
const LONGEST: Duration = Duration::from_secs(1);

/// Texts of more lines are not merged.
const MOST: usize = 200_000;

/// Lines of the base that a version replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk<'t> {
    base: Range<usize>,
    lines: &'t [&'t str],
}

/// Both versions' changes in one text; `None` where they change the same lines, or lines that touch, and for texts with
/// too many lines. Where both append lines, ours come first, unless both append the same line: a file that was read while
/// it was being written looks as if its rest had been appended.
pub fn merge(base: &str, ours: &str, theirs: &str) -> Option<String> {
    if base == theirs {
        return Some(ours.to_owned());
    }
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    if [&base, &ours, &theirs].iter().any(|lines| lines.len() > MOST) {
        return None;
    }
    let mut left = hunks(&base, &ours).into_iter().peekable();
    let mut right = hunks(&base, &theirs).into_iter().peekable();
    let mut merged = String::new();
    let mut at = 0;
    loop {
        let hunk = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(one), Some(other)) if one == other => right.next().and(left.next()),
            // Lines that both append. Elsewhere, two new lines at one place may contradict each other.
            (Some(one), Some(other))
                if one.base == (base.len()..base.len())
                    && one.base == other.base
                    && one.lines.last().is_none_or(|line| line.ends_with('\n'))
                    && !have_a_line_in_common(one.lines, other.lines) =>
            {
                left.next()
            }
            (Some(one), Some(other)) if one.base.end < other.base.start => left.next(),
            (Some(one), Some(other)) if other.base.end < one.base.start => right.next(),
            (Some(_), Some(_)) => return None,
            (Some(_), None) => left.next(),
            (None, Some(_)) => right.next(),
        };
        let Some(hunk) = hunk else { break };
        merged.extend(base[at..hunk.base.start].iter().copied());
        merged.extend(hunk.lines.iter().copied());
        at = hunk.base.end;
    }
    merged.extend(base[at..].iter().copied());
    Some(merged)
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn have_a_line_in_common(ours: &[&str], theirs: &[&str]) -> bool {
    let ours: HashSet<&str> = ours.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    theirs.iter().any(|line| ours.contains(line.trim()))
}

fn hunks<'t>(base: &[&'t str], side: &'t [&'t str]) -> Vec<Hunk<'t>> {
    let diff = TextDiff::configure().timeout(LONGEST).diff_slices(base, side);
    let changed = diff.ops().iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let mut found: Vec<Hunk<'t>> = Vec::new();
    for op in changed {
        let (old, new) = (op.old_range(), op.new_range());
        match found.last_mut() {
            // Neighbours are one change.
            Some(last) if last.base.end == old.start => {
                let start = new.start - last.lines.len();
                *last = Hunk { base: last.base.start..old.end, lines: &side[start..new.end] };
            }
            _ => found.push(Hunk { base: old, lines: &side[new] }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn changes_that_lie_apart_are_both_made() {
        let base = "a\nb\nc\nd\n";
        assert_eq!(merge(base, "A\nb\nc\nd\n", "a\nb\nc\nd\ne").as_deref(), Some("A\nb\nc\nd\ne"));
        assert_eq!(merge(base, "b\nc\nd\n", "a\nb\nc\n").as_deref(), Some("b\nc\n"));
        assert_eq!(merge(base, base, "x\n").as_deref(), Some("x\n"));
        assert_eq!(merge(base, "x\n", base).as_deref(), Some("x\n"));
        assert_eq!(merge(base, "same\n", "same\n").as_deref(), Some("same\n"));
        assert_eq!(merge("", "", "x").as_deref(), Some("x"));
        assert_eq!(merge("a\n", "a\nours\n", "a\ntheirs\n").as_deref(), Some("a\nours\ntheirs\n"));
    }

    #[test]
    fn the_same_lines_and_neighbours_are_no_business_of_ours() {
        let base = "status: NEW\nnext\n";
        assert_eq!(merge(base, "status: DONE\nnext\n", "status: CANCELED\nnext\n"), None);
        assert_eq!(merge(base, "status: DONE\nnext\n", "status: NEW\nmine\nnext\n"), None);
        assert_eq!(merge(base, "status: NEW\na: 1\nnext\n", "status: NEW\na: 2\nnext\n"), None);
        assert_eq!(merge("a\n", "a\nours", "a\ntheirs"), None);
    }

    /// Git writes a file while it is read: what was read is the base of our change.
    #[test]
    fn lines_that_both_append_are_not_there_twice() {
        let whole = "# Board\n<!-- begin -->\nold\n<!-- end -->\n";
        for base in ["", "# Board\n"] {
            let ours = format!("{base}<!-- begin -->\nnew\n<!-- end -->\n");
            assert_eq!(merge(base, &ours, whole), None, "{base:?}");
        }
        assert_eq!(merge("", "ours\n\n", "theirs\n\n").as_deref(), Some("ours\n\ntheirs\n\n"));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0_u8..6, 0..12)
    }

    fn numbered(numbers: &[u8]) -> String {
        numbers.iter().map(|number| format!("{number}\n")).collect()
    }

    proptest! {
        /// After any merge, every line that one side added is there.
        #[test]
        fn no_line_that_was_added_is_lost(base in text(), ours in text(), theirs in text(), at in 0..12_usize) {
            let (base, ours) = (numbered(&base), numbered(&ours));
            let mut theirs: Vec<String> = theirs.iter().map(|number| format!("{number}\n")).collect();
            theirs.insert(at.min(theirs.len()), "a person's\n".to_owned());
            let theirs = theirs.concat();
            if let Some(merged) = merge(&base, &ours, &theirs) {
                prop_assert!(merged.contains("a person's"));
            }
            prop_assert_eq!(merge(&base, &base, &theirs), Some(theirs.clone()));
            prop_assert_eq!(merge(&base, &theirs, &base), Some(theirs));
        }
    }
}
