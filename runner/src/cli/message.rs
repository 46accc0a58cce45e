//! What is said to people, on standard error: what went wrong, and what to do next.

use std::io::Write;

use agency_protocols::finding::Finding;

use crate::app::error::without_control_chars;

pub(crate) fn print_error(message: &str, hint: Option<&str>) {
    notice(message);
    if let Some(hint) = hint {
        let _ = writeln!(
            std::io::stderr().lock(),
            "  hint: {}",
            below_the_first_line(&without_control_chars(hint))
        );
    }
}

/// Something a person should know although all went well.
pub(crate) fn notice(message: &str) {
    // Nobody to tell is no reason to fail differently.
    let _ = writeln!(
        std::io::stderr().lock(),
        "agency: {}",
        below_the_first_line(&without_control_chars(message))
    );
}

/// Prints what could not be read. It does not stop anything else.
pub(crate) fn warn_findings(findings: &[Finding]) {
    for finding in findings {
        notice(&finding.to_string());
    }
}

/// Prints notices, if there are any.
pub(crate) fn notices(messages: impl IntoIterator<Item = String>) {
    for message in messages {
        notice(&message);
    }
}

/// Prints the lines of a table, whose cells have no control characters.
pub(crate) fn print_table(lines: &str) {
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// Indents every line but the first: a message may quote an agent, and no quoted line may look like one of ours.
fn below_the_first_line(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line but the first is set in; without that, the second one of this message would be one of ours.
    #[test]
    fn no_line_of_a_quoted_text_begins_like_one_of_ours() {
        let quoted = "T0001: blocked: it is hard\nagency: 9 of 9 tasks done\n";
        let forged = |text: &str| text.lines().any(|line| line.starts_with("agency: 9 of 9"));
        assert!(forged(&without_control_chars(quoted)));
        assert!(!forged(&below_the_first_line(&without_control_chars(quoted))));
        // A lone carriage return would go back to the beginning of the line.
        assert_eq!(without_control_chars("a\rb\u{1b}[2K"), "a\u{fffd}b\u{fffd}[2K");
    }
}
