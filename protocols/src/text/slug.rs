//! Makes file names from titles.

use unicode_normalization::UnicodeNormalization;

/// The most characters of a name.
const LONGEST: usize = 40;

/// Lowercase ASCII letters and digits joined by single dashes. A title without any becomes `task`.
pub fn slug(title: &str) -> String {
    let mut out = String::new();
    for character in title.nfkd().filter(char::is_ascii) {
        if character.is_ascii_alphanumeric() {
            out.push(character.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    out.truncate(LONGEST);
    let out = out.trim_end_matches('-');
    if out.is_empty() { "task".to_owned() } else { out.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn titles_become_names() {
        for (title, name) in [
            ("Fix VAT rounding in invoice totals", "fix-vat-rounding-in-invoice-totals"),
            ("  Été à Zürich!  ", "ete-a-zurich"),
            ("../../etc/passwd", "etc-passwd"),
            ("日本語", "task"),
            ("", "task"),
            ("a very long title that goes on and on and on", "a-very-long-title-that-goes-on-and-on-an"),
        ] {
            assert_eq!(slug(title), name);
        }
    }

    proptest! {
        #[test]
        fn every_title_becomes_a_plain_name(title in any::<String>()) {
            let name = slug(&title);
            prop_assert!(!name.is_empty() && name.len() <= LONGEST);
            prop_assert!(!name.starts_with('-') && !name.ends_with('-') && !name.contains("--"));
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        }
    }
}
