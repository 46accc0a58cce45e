//! What is said to people, on standard error: what went wrong, and what to do next.

use std::io::Write;

use agency_protocols::finding::Finding;

use crate::app::error::{CommandError, without_control_chars};
use crate::cli::exit::USAGE;

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

/// Prints several lines for a person.
pub(crate) fn print_block(lines: &str) {
    let _ = std::io::stderr().lock().write_all(without_control_chars(lines).as_bytes());
}

/// Indents every line but the first: a message may quote an agent, and no quoted line may look like one of ours.
fn below_the_first_line(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

/// Help and version go to standard output and are not errors; every other clap error becomes one line.
pub(crate) fn usage(error: clap::Error) -> Result<u8, CommandError> {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Ok(0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Ok(USAGE)
        }
        _ => {
            let text = error.to_string();
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let mut message = lines.next().unwrap_or("the arguments are not right").to_owned();
            // What is missing stands on lines of its own, up to the usage.
            for line in lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
            {
                message.push(' ');
                message.push_str(line);
            }
            let message = message.strip_prefix("error: ").unwrap_or(&message);
            Err(CommandError::usage(message)
                .with_hint("`agency --help` and `agency COMMAND --help` show what can be said"))
        }
    }
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
