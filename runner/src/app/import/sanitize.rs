//! A stranger's words, made fit to be read.
//!
//! A person who may open an issue writes what an agent will be told to do. That can't be helped here, but a person who
//! looks at the task must see all that the agent sees: what has no shape of its own (control characters, the
//! direction marks that reorder a line, characters that spell words without showing them) is left out.

pub(super) use crate::app::plain_line::line;
use crate::app::plain_line::shown;

/// A body is at most this long, the note that it was cut included.
const LARGEST_BODY: usize = 64 * 1024;
const LONGEST_TITLE: usize = 200;
const LONGEST_LABEL: usize = 100;
const MOST_LABELS: usize = 100;
/// Rather than in the middle of one, a body is cut between lines, if they are no longer than this.
const USUAL_LINE: usize = 1024;

/// One line that is never empty.
pub(super) fn title(raw: &str) -> String {
    let title = line(raw, LONGEST_TITLE);
    if title.is_empty() { "(no title)".into() } else { title }
}

pub(super) fn labels<'a>(raw: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let labels = raw.into_iter().map(|label| line(label, LONGEST_LABEL)).filter(|label| !label.is_empty());
    labels.take(MOST_LABELS).collect()
}

/// Many lines, at most 64 KiB of them, without empty ones at either end.
pub(super) fn body(raw: &str, url: &str) -> String {
    let mut body: String = raw.replace("\r\n", "\n").chars().filter_map(shown).collect();
    body.truncate(body.trim_end().len());
    let start = body.find(|c| c != '\n').unwrap_or(0);
    body.drain(..start);
    if body.len() <= LARGEST_BODY {
        return body;
    }
    let note = format!("\n\n[Cut at 64 KiB when it was imported. All of it is at {url}]");
    let end = body.floor_char_boundary(LARGEST_BODY.saturating_sub(note.len()));
    let end = body[..end].rfind('\n').filter(|line| end - line <= USUAL_LINE).unwrap_or(end);
    body.truncate(end);
    body + &note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_without_anything_unseen() {
        let raw = "  Fix\r\n\tthe \u{1b}[31mlog\u{202e}in\u{e0041}\u{200b}\u{7}  ";
        assert_eq!(title(raw), "Fix the [31mlogin");
        assert_eq!(title("\u{feff} \n"), "(no title)");
    }

    #[test]
    fn a_title_ends_where_it_must() {
        for raw in ["ä".repeat(201), "ab ".repeat(100), "x".repeat(199) + " y", "x".repeat(200) + " y"] {
            let title = title(&raw);
            assert!(title.chars().count() <= 200 && title.ends_with('…'), "{title}");
        }
        for exact in ["ä".repeat(200), "x".repeat(198) + " y"] {
            assert_eq!(title(&exact), exact);
        }
    }

    #[test]
    fn a_body_keeps_its_lines_and_its_tabs() {
        let raw = "\r\n\r\n# Hi\r\n\r\n\tcode\u{0}\rmore\u{2028}end  \n\n";
        assert_eq!(body(raw, ""), "# Hi\n\n\tcode\nmore\nend");
        assert_eq!(body("👩\u{200d}🚀 می\u{200c}خواهم", ""), "👩\u{200d}🚀 می\u{200c}خواهم");
    }

    #[test]
    fn a_long_body_is_cut_between_lines_and_says_so() {
        let cut = body(&"ä line\n".repeat(20_000), "https://example.org/1");
        assert!(cut.len() <= 64 * 1024 && cut.len() > 63 * 1024, "{}", cut.len());
        assert!(cut.ends_with(
            "ä line\n\n[Cut at 64 KiB when it was imported. All of it is at https://example.org/1]"
        ));
        let unbroken = body(&"ä".repeat(40_000), "https://example.org/1");
        assert!(unbroken.len() <= 64 * 1024 && unbroken.len() > 65_400, "{}", unbroken.len());
        let fits = "x".repeat(64 * 1024);
        assert_eq!(body(&fits, ""), fits);
    }

    #[test]
    fn labels_without_a_name_are_no_labels() {
        assert_eq!(labels(["bug", "\u{200b}", "good first\nissue"]), ["bug", "good first issue"]);
    }
}
