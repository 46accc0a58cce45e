//! A file that the tools write, and in which people may write too (§15.2).
//!
//! The generated text is a region of ours; a header before it is generated once, and then a person's. Files of older
//! versions have no region: what is there may be a person's in part, so it is never dropped.

use crate::text::frontmatter::Frontmatter;
use crate::text::region::{self, CommentStyle, RegionError};

/// The name of the region.
const REGION: &str = "generated";

/// A generated text, and where it belongs in its file.
#[derive(Debug)]
pub(super) struct GeneratedFile<'a> {
    whole: &'a str,
    head: &'a str,
    body: &'a str,
    comment: CommentStyle,
}

/// What becomes of a file that exists.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GeneratedUpdate {
    /// It has the generated text.
    Same,
    /// Its new text, with all that people wrote.
    Region(String),
    /// Its new text, without what was there: an older version wrote it, and nothing says which part is a person's.
    Whole(String),
}

impl<'a> GeneratedFile<'a> {
    pub(super) fn new(path: &str, whole: &'a str) -> Self {
        let comment = match path.ends_with(".yml") || path.ends_with(".yaml") {
            true => CommentStyle::Hash,
            false => CommentStyle::Html,
        };
        let (head, body) = split(whole);
        Self { whole, head, body, comment }
    }

    /// The text of a new file.
    pub(super) fn fenced(&self) -> Result<String, RegionError> {
        Ok(format!("{}{}", self.head, region::upsert("", REGION, self.body, self.comment)?))
    }

    /// What becomes of a file with this text.
    pub(super) fn over(&self, old: &str) -> Result<GeneratedUpdate, RegionError> {
        if region::find(old, REGION, self.comment)?.is_some() {
            let (head, rest) = split(old);
            let new = format!("{head}{}", region::upsert(rest, REGION, self.body, self.comment)?);
            return Ok(if new == old { GeneratedUpdate::Same } else { GeneratedUpdate::Region(new) });
        }
        if old == self.whole {
            return Ok(GeneratedUpdate::Same);
        }
        Ok(match old.strip_prefix(self.whole) {
            Some(theirs) => GeneratedUpdate::Region(format!("{}{theirs}", self.fenced()?)),
            None => GeneratedUpdate::Whole(self.fenced()?),
        })
    }
}

/// The header of a text with its marks, and the rest.
fn split(text: &str) -> (&str, &str) {
    let body = Frontmatter::parse(text).map_or(text, |matter| matter.body());
    (text.strip_suffix(body).unwrap_or_default(), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "---\na: b\n---\n> Generated\n\nRules.\n";

    fn over(path: &str, new: &str, old: &str) -> GeneratedUpdate {
        GeneratedFile::new(path, new).over(old).expect("pairs")
    }

    #[test]
    fn text_around_the_region_survives_byte_for_byte_and_twice_is_once() {
        let made = GeneratedFile::new("x.md", NEW).fenced().expect("made");
        assert!(made.starts_with("---\na: b\n---\n<!-- agency:begin generated -->\n> Generated\n"), "{made}");
        assert_eq!(over("x.md", NEW, &made), GeneratedUpdate::Same);
        let theirs = format!("{}\n  Mine, \tno newline", made.replace("---\n<!--", "---\nBefore.\n<!--"));
        assert_eq!(over("x.md", NEW, &theirs), GeneratedUpdate::Same);
        let newer = NEW.replace("Rules.", "Other rules.");
        let GeneratedUpdate::Region(updated) = over("x.md", &newer, &theirs) else { panic!("a region") };
        assert_eq!(updated, theirs.replace("Rules.", "Other rules."));
    }

    #[test]
    fn a_file_of_an_older_version_keeps_what_was_appended_or_is_kept_whole() {
        assert_eq!(over("x.md", NEW, NEW), GeneratedUpdate::Same);
        let GeneratedUpdate::Region(grown) = over("x.md", NEW, &format!("{NEW}Mine.")) else {
            panic!("a region")
        };
        assert!(grown.ends_with("<!-- agency:end generated -->\nMine."), "{grown}");
        let other = over("x.yml", "a: 1\n", "a: 0\n# mine\n");
        let fenced = "# agency:begin generated\na: 1\n# agency:end generated\n";
        assert_eq!(other, GeneratedUpdate::Whole(fenced.to_owned()));
    }
}
