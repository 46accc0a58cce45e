//! §3.2: finds the tasks in a state file.
//!
//! A state file is Markdown with its tasks in fenced blocks of YAML, or YAML alone. Descriptions hold fences of their
//! own, of YAML even, so a fence is closed by one that is indented no deeper than it was opened: everything that a task
//! says is indented deeper than its list. A list is cut into its items by indentation alone, without reading any
//! of them; so a task that is no YAML is one that can't be read, and hides none of its neighbours.

use std::ops::Range;

use crate::finding::Finding;

/// The place of a task: from its dash to the end of its last line that is not blank and no comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpan {
    pub range: Range<usize>,
    /// The line its dash is on.
    pub line: usize,
}

/// A list of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskList {
    pub spans: Vec<TaskSpan>,
    /// Where one more task would begin.
    pub end: usize,
    pub indent: usize,
}

/// One line, without its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateLine<'t> {
    pub(super) content: &'t str,
    pub(super) start: usize,
    /// After its end.
    pub(super) next: usize,
    pub(super) number: usize,
}

impl StateLine<'_> {
    pub(super) fn indent(&self) -> usize {
        self.content.len() - self.content.trim_start_matches(' ').len()
    }

    /// Blank, or a comment.
    pub(super) fn is_silent(&self) -> bool {
        let said = self.content.trim_start();
        said.is_empty() || said.starts_with('#')
    }

    pub(super) fn is_blank(&self) -> bool {
        self.content.trim().is_empty()
    }

    pub(super) fn is_item(&self) -> bool {
        let said = self.content.trim_start_matches(' ');
        said == "-" || said.starts_with("- ") || said.starts_with("-\t")
    }
}

/// The lines of a part of a text, counted from `number`.
pub(super) fn lines(text: &str, range: Range<usize>, number: usize) -> impl Iterator<Item = StateLine<'_>> {
    let mut at = range.start;
    text[range].split_inclusive('\n').enumerate().map(move |(count, whole)| {
        let start = at;
        at += whole.len();
        let content = whole.strip_suffix('\n').unwrap_or(whole);
        let content = content.strip_suffix('\r').unwrap_or(content);
        StateLine { content, start, next: at, number: number + count }
    })
}

/// Every list of tasks of a state file, and findings about the file.
pub fn lists(path: &str, text: &str) -> (Vec<TaskList>, Vec<Finding>) {
    let mut findings = Vec::new();
    let regions = match path.ends_with(".yml") || path.ends_with(".yaml") {
        true => vec![YamlRegion { range: start_of(text)..text.len(), line: 1 }],
        false => fenced(path, text, &mut findings),
    };
    let mut lists: Vec<TaskList> = Vec::new();
    for region in &regions {
        lists.extend(lists_in(text, region).into_iter().filter(|list| holds_tasks(text, list)));
    }
    // An empty block is where the first task goes.
    if lists.is_empty()
        && let Some(region) = regions.iter().find(|region| is_silent(text, region))
    {
        lists.push(TaskList { spans: Vec::new(), end: region.range.start, indent: 0 });
    }
    (lists, findings)
}

/// A part of the file that is YAML.
struct YamlRegion {
    range: Range<usize>,
    /// Of its first line.
    line: usize,
}

fn start_of(text: &str) -> usize {
    if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

fn is_silent(text: &str, region: &YamlRegion) -> bool {
    lines(text, region.range.clone(), 1).all(|line| line.is_silent() || line.content.trim() == "[]")
}

/// An opening fence: its indentation, character, length and language.
struct FenceOpening<'t> {
    indent: usize,
    mark: char,
    count: usize,
    language: &'t str,
}

impl<'t> FenceOpening<'t> {
    fn opens(line: &StateLine<'t>) -> Option<Self> {
        let said = line.content.trim_start_matches(' ');
        let mark = said.chars().next().filter(|mark| "`~".contains(*mark))?;
        let count = said.chars().take_while(|character| *character == mark).count();
        let info = said[count..].trim();
        let is_fence = line.indent() <= 3 && count >= 3 && !(mark == '`' && info.contains('`'));
        let language = info.split([' ', '{', ',']).next().unwrap_or_default();
        is_fence.then_some(Self { indent: line.indent(), mark, count, language })
    }

    fn is_yaml(&self) -> bool {
        self.language.eq_ignore_ascii_case("yaml") || self.language.eq_ignore_ascii_case("yml")
    }

    /// A block of YAML ends at a fence that is no deeper than its own; any other as Markdown has it.
    fn is_closed_by(&self, line: &StateLine<'_>) -> bool {
        let said = line.content.trim();
        let deepest = if self.is_yaml() { self.indent } else { 3 };
        line.indent() <= deepest
            && said.chars().count() >= self.count
            && said.chars().all(|character| character == self.mark)
    }
}

/// The blocks of YAML in Markdown. Without any, a file that is a list of tasks is YAML, under any name.
fn fenced(path: &str, text: &str, findings: &mut Vec<Finding>) -> Vec<YamlRegion> {
    let mut regions = Vec::new();
    let mut open: Option<(FenceOpening<'_>, StateLine<'_>)> = None;
    let mut in_comment = false;
    let mut bare = false;
    for line in lines(text, start_of(text)..text.len(), 1) {
        if let Some((fence, opening)) = &open {
            if fence.is_closed_by(&line) {
                if fence.is_yaml() {
                    regions.push(YamlRegion { range: opening.next..line.start, line: opening.number + 1 });
                }
                open = None;
            }
            continue;
        }
        if in_comment || line.content.trim_start().starts_with("<!--") {
            in_comment = !line.content.contains("-->");
        } else if let Some(fence) = FenceOpening::opens(&line) {
            open = Some((fence, line));
        } else {
            bare |= line.indent() == 0 && line.is_item() && line.content[1..].trim_start().starts_with("id:");
        }
    }
    if let Some((fence, opening)) = open
        && fence.is_yaml()
    {
        let message = "this block of YAML is never closed";
        findings.push(Finding::warning(path, Some(opening.number), "3.2", message));
        regions.push(YamlRegion { range: opening.next..text.len(), line: opening.number + 1 });
    }
    if regions.is_empty() && bare {
        regions.push(YamlRegion { range: start_of(text)..text.len(), line: 1 });
    }
    regions
}

/// The lists of a region. Several may stand below keys of their own.
fn lists_in(text: &str, region: &YamlRegion) -> Vec<TaskList> {
    let mut lists: Vec<TaskList> = Vec::new();
    let mut open: Option<TaskList> = None;
    for line in lines(text, region.range.clone(), region.line) {
        let indent = line.indent();
        match &mut open {
            None if line.is_item() => {
                let span = TaskSpan { range: line.start..line.next, line: line.number };
                open = Some(TaskList { spans: vec![span], end: line.next, indent });
            }
            None => {}
            Some(_) if line.is_blank() => {}
            Some(list) if indent == list.indent && line.is_item() => {
                list.spans.push(TaskSpan { range: line.start..line.next, line: line.number });
                list.end = line.next;
            }
            // A comment as deep as the dashes is between tasks, and belongs to none.
            Some(list) if indent <= list.indent && line.is_silent() => {}
            Some(list) if indent <= list.indent && is_key_alone(line.content) => lists.extend(open.take()),
            Some(list) => {
                if let Some(span) = list.spans.last_mut() {
                    span.range.end = line.next;
                }
                list.end = line.next;
            }
        }
    }
    lists.extend(open);
    lists
}

/// `done:`, below which another list begins.
fn is_key_alone(content: &str) -> bool {
    let said = content.trim();
    said.strip_suffix(':').is_some_and(|key| {
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    })
}

/// Whether a list has tasks, and is not an example of another list.
fn holds_tasks(text: &str, list: &TaskList) -> bool {
    let has_id = |span: &TaskSpan| {
        let text = &text[span.range.clone()];
        text.lines().any(|line| {
            let said = line.trim_start().trim_start_matches(['-', '{', ' ', '"', '\'']);
            said.strip_prefix("id").is_some_and(|rest| rest.trim_start_matches(['"', '\'']).starts_with(':'))
        })
    };
    list.spans.iter().any(has_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'t>(path: &str, text: &'t str) -> Vec<(&'t str, usize)> {
        let (lists, _) = lists(path, text);
        lists.iter().flat_map(|list| &list.spans).map(|span| (&text[span.range.clone()], span.line)).collect()
    }

    const NESTED: &str = "<!-- tasks:\n```yaml\n- id: NOT-1\n```\n-->\n# Work\n\n## Active\n\n```yaml\n# mine\n- id: A-1\n  description: |\n    Like this:\n    ```yaml\n    - id: NOT-2\n    ```\n    and\n    ```html\n    <p>\n    ```\n  state: todo\n\n# between\n- id: A-2\n  state: todo\n```\n\nWords.\n\n```html\n<p>\n```\n\n## Done\n\n```yml\n- id: A-3\n```\n";

    #[test]
    fn fences_in_descriptions_close_nothing() {
        let found = found("work.md", NESTED);
        let starts: Vec<&str> =
            found.iter().map(|(text, _)| text.lines().next().unwrap_or_default()).collect();
        assert_eq!(starts, ["- id: A-1", "- id: A-2", "- id: A-3"]);
        assert!(found[0].0.ends_with("  state: todo\n"), "{:?}", found[0].0);
        assert_eq!(found.iter().map(|(_, line)| *line).collect::<Vec<_>>(), [12, 25, 38]);
    }

    #[test]
    fn line_endings_and_a_byte_order_mark_change_nothing() {
        let windows = format!("\u{feff}{}", NESTED.replace('\n', "\r\n"));
        let plain: Vec<String> =
            found("work.md", NESTED).iter().map(|(text, _)| text.replace('\n', "\r\n")).collect();
        assert_eq!(found("work.md", &windows).iter().map(|(text, _)| *text).collect::<Vec<_>>(), plain);
    }

    #[test]
    fn yaml_alone_is_read_whatever_it_is_called() {
        let text = "- id: A\n  state: todo\n-\n  id: B\n";
        for path in ["work.yml", "work.yaml", "work.md"] {
            assert_eq!(found(path, text).len(), 2, "{path}");
        }
        let keyed = "active:\n  - id: A\n    state: todo\ndone:\n  - id: B\n";
        assert_eq!(found("work.yml", keyed), [("  - id: A\n    state: todo\n", 2), ("  - id: B\n", 5)]);
    }

    #[test]
    fn what_is_no_list_of_tasks_is_left_alone() {
        for text in
            ["# Work\n\n- a point\n- another\n", "```yaml\nkey: value\n```\n", "```yaml\n- a\n- b\n```\n", ""]
        {
            assert!(found("work.md", text).is_empty(), "{text:?}");
        }
        let (empty, _) = lists("work.md", "# Work\n\n```yaml\n```\n");
        assert_eq!((empty.len(), empty[0].end), (1, 16));
    }

    #[test]
    fn a_block_that_is_never_closed_is_read_and_told() {
        let (lists, findings) = lists("work.md", "```yaml\n- id: A\n");
        assert_eq!((lists.len(), findings.len(), findings[0].line), (1, 1, Some(1)));
    }

    #[test]
    fn a_line_that_fell_out_of_its_task_breaks_that_task_alone() {
        let text = "```yaml\n- id: A\n  title: x\nfell out\n- id: B\n```\n";
        assert_eq!(found("work.md", text), [("- id: A\n  title: x\nfell out\n", 2), ("- id: B\n", 5)]);
    }
}
