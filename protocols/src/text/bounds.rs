//! Bounds on texts and lists that agents write.

/// The most entries of one list, and the most bytes of all of them.
pub(crate) const MOST_ENTRIES: usize = 1_000;
pub(crate) const LONGEST_LIST: usize = 64 << 10;

/// Keeps the first entries of a list, each cut by `bound`, which returns its length. Returns how many are left out.
pub(crate) fn shorten<T>(list: &mut Vec<T>, mut bound: impl FnMut(&mut T) -> usize) -> u64 {
    let (mut room, mut kept) = (LONGEST_LIST, 0);
    for entry in list.iter_mut().take(MOST_ENTRIES) {
        let Some(left) = room.checked_sub(bound(entry)) else { break };
        (room, kept) = (left, kept + 1);
    }
    let left_out = list.len() - kept;
    list.truncate(kept);
    left_out as u64
}

/// The text, or its beginning with a sign that there was more.
pub(crate) fn truncate(text: String, longest: usize) -> String {
    const MORE: &str = " …";
    match text.len() > longest {
        true => format!("{}{MORE}", start_of(&text, longest.saturating_sub(MORE.len()))),
        false => text,
    }
}

/// The first bytes of a text, up to the end of a character.
fn start_of(text: &str, longest: usize) -> &str {
    match text.len() > longest {
        true => &text[..text.floor_char_boundary(longest)],
        false => text,
    }
}
