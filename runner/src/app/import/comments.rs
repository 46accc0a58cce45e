//! What a Markdown page does not show.
//!
//! A comment (`<!-- … -->`) is in the source of an issue and not on its page: the person who labelled the issue for
//! work never saw it, and it is where templates put their instructions and attackers theirs. It is not imported. Within
//! a fence or backticks it is on the page, and stays. What is merely indented may be code or belong to a list,
//! which only a whole parser could tell: there it goes.

/// More than any tracker takes; what is beyond it would be cut anyway.
const LARGEST: usize = 256 * 1024;

/// The text without its comments.
pub(super) fn without(text: &str) -> String {
    let text = text[..text.floor_char_boundary(LARGEST)].replace("\r\n", "\n");
    let mut reading =
        CommentScanner { text: &text, at: 0, kept: String::new(), closing: Some(0), paragraph: 0 };
    let mut fence: Option<CodeFence> = None;
    while reading.at < text.len() {
        let line = line_at(&text, reading.at);
        match (&fence, CodeFence::of(line)) {
            (Some(open), Some(found)) if found.closes(open) => fence = None,
            (None, Some(found)) => fence = Some(found),
            (None, None) => {
                reading.line();
                continue;
            }
            (Some(_), _) => {}
        }
        reading.keep(line.len());
    }
    reading.kept
}

/// Up to and with its end.
fn line_at(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    &rest[..rest.find('\n').map_or(rest.len(), |end| end + 1)]
}

/// A place in a text that only moves on, so that nothing ahead of it is looked for twice.
struct CommentScanner<'a> {
    text: &'a str,
    at: usize,
    kept: String,
    /// The next `-->`, if it was looked for; none if there are no more.
    closing: Option<usize>,
    /// Where the paragraph ends that was looked at last.
    paragraph: usize,
}

impl CommentScanner<'_> {
    fn keep(&mut self, length: usize) {
        self.kept.push_str(&self.text[self.at..self.at + length]);
        self.at += length;
    }

    /// One line without its comments. A comment that goes on below takes the ends of its lines with it.
    fn line(&mut self) {
        let start = self.at;
        let mut end = start + line_at(self.text, start).len();
        while self.at < end {
            let here = &self.text[self.at..end];
            let before = &self.text[start..self.at];
            let begins_line = before.len() <= 3 && before.bytes().all(|byte| byte == b' ');
            if let Some(length) = code_span(here) {
                self.keep(length);
            } else if let Some(after) = self.comment(begins_line) {
                self.at = after;
                if after > end {
                    end = after + line_at(self.text, after).len();
                }
            } else {
                let mark = here.chars().next().map_or(0, char::len_utf8);
                self.keep(mark + here[mark..].find(['`', '<']).unwrap_or(here.len() - mark));
            }
        }
    }

    /// The end of the comment that begins here. At the beginning of a line it may go on over empty lines, and to
    /// the end of the page if nothing ends it; within a line it is a part of its paragraph, or no comment.
    fn comment(&mut self, begins_line: bool) -> Option<usize> {
        let inside = self.text[self.at..].strip_prefix("<!--")?;
        let from = self.at + 4;
        let end = match inside {
            // These two are whole.
            _ if inside.starts_with('>') => Some(from + 1),
            _ if inside.starts_with("->") => Some(from + 2),
            _ => self.closing_from(from).map(|at| at + 3),
        };
        match end {
            Some(end) if begins_line || end <= self.paragraph_end() => Some(end),
            None if begins_line => Some(self.text.len()),
            _ => None,
        }
    }

    fn closing_from(&mut self, from: usize) -> Option<usize> {
        if self.closing.is_some_and(|known| known < from) {
            self.closing = self.text[from..].find("-->").map(|at| from + at);
        }
        self.closing
    }

    fn paragraph_end(&mut self) -> usize {
        if self.paragraph <= self.at {
            self.paragraph = self.at + line_at(self.text, self.at).len();
            while !line_at(self.text, self.paragraph).trim().is_empty() {
                self.paragraph += line_at(self.text, self.paragraph).len();
            }
        }
        self.paragraph
    }
}

/// How long the code is that `line` begins with: as many backticks, and as many again to end it.
fn code_span(line: &str) -> Option<usize> {
    let ticks = line.bytes().take_while(|byte| *byte == b'`').count();
    if ticks == 0 {
        return None;
    }
    let mut at = ticks;
    while let Some(next) = line[at..].find('`') {
        let run = line[at + next..].bytes().take_while(|byte| *byte == b'`').count();
        at += next + run;
        if run == ticks {
            return Some(at);
        }
    }
    // Nothing ends it here: the backticks are just that.
    Some(ticks)
}

struct CodeFence {
    mark: u8,
    length: usize,
    /// Something is written after it, so it can't be the end of one.
    named: bool,
}

impl CodeFence {
    fn of(line: &str) -> Option<Self> {
        let inner = line.trim_start_matches(' ');
        let mark = inner.bytes().next().filter(|mark| matches!(mark, b'`' | b'~'))?;
        let after = inner.trim_start_matches(char::from(mark));
        let length = inner.len() - after.len();
        let after = after.trim();
        let right = length >= 3 && line.len() - inner.len() <= 3 && !(mark == b'`' && after.contains('`'));
        right.then_some(Self { mark, length, named: !after.is_empty() })
    }

    fn closes(&self, open: &Self) -> bool {
        self.mark == open.mark && self.length >= open.length && !self.named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_not_imported() {
        for (raw, expected) in [
            ("a <!-- b --> c", "a  c"),
            ("<!-- Thanks!\n\nPlease fill this in -->\n## What\n", "\n## What\n"),
            ("one\n<!-- never\nended", "one\n"),
            ("<!-- a --><!-- b -->c", "c"),
            ("x <!-- a\nb --> y\nz", "x  y\nz"),
            ("<!--> a", " a"),
            ("   <!-- a -->b", "   b"),
            ("- a\n\n      <!-- b -->", "- a\n\n      "),
        ] {
            assert_eq!(without(raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn what_the_page_shows_stays() {
        for raw in [
            "```html\n<!-- a -->\n```\n",
            "~~~~\n```\n<!-- a -->\n~~~\n<!-- b -->\n~~~~\n",
            "use `<!-- a -->` here",
            "use ``a ` <!-- b -->`` here",
            "in a line <!-- that an\n\nempty one ends --> so it is text",
            "in a line <!-- and no end",
            "a < b, `c, <d>, é",
            "✅ done",
            "登录\nпочта\n👩‍💻 works\n",
            "```\n✅ <!-- a -->\n```\n✅",
            "",
        ] {
            assert_eq!(without(raw), raw);
        }
    }

    #[test]
    fn after_code_comments_are_comments_again() {
        assert_eq!(without("```\n<!-- a -->\n```\n<!-- b -->c"), "```\n<!-- a -->\n```\nc");
        assert_eq!(without("a ` b <!-- c -->"), "a ` b ");
    }

    #[test]
    fn what_begins_again_and_again_is_read_once() {
        for raw in
            ["x <!-- ".repeat(1 << 20), "x <!-- \n".repeat(1 << 20) + "\n\n-->", "`` ` ".repeat(1 << 20)]
        {
            assert!(raw.starts_with(&without(&raw)));
        }
    }
}
