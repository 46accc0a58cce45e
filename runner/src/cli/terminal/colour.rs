//! Colour, where a person reads it and wants it.
//!
//! `NO_COLOR` with any value and `CLICOLOR=0` switch it off; `CLICOLOR_FORCE` switches it on in a pipe, too.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Bold,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Cyan => "36",
        }
    }

    /// A text in this colour. The text has no control characters.
    pub(crate) fn around(self, text: &str) -> String {
        format!("\u{1b}[{}m{text}\u{1b}[0m", self.code())
    }
}

/// Whether standard output is a terminal, where control characters must not be printed.
pub(crate) fn is_for_a_person() -> bool {
    std::io::stdout().is_terminal()
}

/// The text in a colour, where colours are wanted on standard output. The text has no control characters.
pub(crate) fn paint(colour: Colour, text: &str) -> String {
    if is_wanted_on_output() { colour.around(text) } else { text.to_owned() }
}

/// Whether colours are wanted on standard output.
pub(crate) fn is_wanted_on_output() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| is_wanted(is_for_a_person(), |name| std::env::var_os(name)))
}

/// Whether colours are wanted on standard error, which may be drawn on.
pub(crate) fn is_wanted_on_errors(is_drawable: bool) -> bool {
    is_wanted(is_drawable, |name| std::env::var_os(name))
}

/// <https://no-color.org> and <https://bixense.com/clicolors>.
fn is_wanted(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is_zero = |name: &str| set(name).is_some_and(|value| value == "0");
    if set("NO_COLOR").is_some() || is_zero("CLICOLOR") {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some() && !is_zero("CLICOLOR_FORCE") {
        return true;
    }
    is_terminal && set("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_say_by_variables_whether_they_want_colour() {
        let wanted = |is_terminal: bool, set: &[(&str, &str)]| {
            is_wanted(is_terminal, |name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert!(wanted(true, &[]) && !wanted(false, &[]));
        assert!(!wanted(true, &[("NO_COLOR", "1")]) && wanted(true, &[("NO_COLOR", "")]));
        assert!(!wanted(true, &[("CLICOLOR", "0")]) && !wanted(true, &[("TERM", "dumb")]));
        assert!(wanted(false, &[("CLICOLOR_FORCE", "1")]) && !wanted(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!wanted(false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }
}
