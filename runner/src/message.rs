//! What is said to people, on standard error: what went wrong, and what to do next.

use std::io::Write;

use agency_supervisor::causes;

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Exit codes that several commands share.
pub(crate) const INTERNAL: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const UNAVAILABLE: u8 = 3;
/// No such task, report or board.
pub(crate) const NO_SUCH: u8 = 4;
/// It ended, and something is not done.
pub(crate) const UNDONE: u8 = 10;
pub(crate) const INTERRUPTED: u8 = 130;
/// `agency sandbox` itself failed, which must not look like the command's own code.
pub(crate) const OWN_FAILURE: u8 = 125;

impl Failure {
    pub(crate) fn new(code: u8, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { code, message: causes::on_one_line(error), hint: None }
    }

    pub(crate) fn new_message(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new_message(USAGE, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A hint, where there is none yet.
    pub(crate) fn or_hint(mut self, hint: &str) -> Self {
        self.hint.get_or_insert_with(|| hint.to_owned());
        self
    }
}

pub(crate) fn complain(message: &str, hint: Option<&str>) {
    notice(message);
    if let Some(hint) = hint {
        let _ = writeln!(std::io::stderr().lock(), "  hint: {}", below_the_first_line(&harmless(hint)));
    }
}

/// Something a person should know although all went well.
pub(crate) fn notice(message: &str) {
    // Nobody to tell is no reason to fail differently.
    let _ = writeln!(std::io::stderr().lock(), "agency: {}", below_the_first_line(&harmless(message)));
}

/// Several lines for a person, that are more than a sentence.
pub(crate) fn text(lines: &str) {
    let _ = std::io::stderr().lock().write_all(harmless(lines).as_bytes());
}

/// A message may quote an agent: what comes after its first line is set in, so that none of it can be taken for ours.
fn below_the_first_line(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

/// Text that may quote a repository, so that it can be shown: nothing in it moves a cursor or hides a line.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Help and version go to standard output and are no failure; anything else is one clear line.
pub(crate) fn usage(error: clap::Error) -> Result<u8, Failure> {
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
            Err(Failure::usage(message)
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
        assert!(forged(&harmless(quoted)));
        assert!(!forged(&below_the_first_line(&harmless(quoted))));
        // A lone carriage return would go back to the beginning of the line.
        assert_eq!(harmless("a\rb\u{1b}[2K"), "a\u{fffd}b\u{fffd}[2K");
    }
}
