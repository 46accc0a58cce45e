//! Values that were passed to the agent and must not come back: not in its work, which the harvest refuses, and
//! not in its output, which is redacted. Both look for the same spellings of the same values.

use std::borrow::Cow;
use std::fmt;

/// Shorter values are not looked for: they would be found everywhere.
pub const SHORTEST_SECRET: usize = 8;

/// A value the agent was given, under the name a person knows it by.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedSecret {
    pub name: String,
    pub value: Vec<u8>,
}

impl fmt::Debug for NamedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NamedSecret {
    /// How the value may be written; nothing for one that is too short to be looked for. White space around it
    /// is not part of it, because programs trim what they read, and a terminal ends its lines with `\r\n`.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let core = self.value.trim_ascii();
        let counts = core.len() >= SHORTEST_SECRET;
        let mut spellings = vec![Cow::Borrowed(core)];
        if counts && core.contains(&b'\n') {
            let unix = without_returns(core);
            let terminal = unix.iter().flat_map(|byte| match byte {
                b'\n' => &b"\r\n"[..],
                other => std::slice::from_ref(other),
            });
            let terminal = terminal.copied().collect::<Vec<u8>>();
            spellings.extend([unix, terminal].into_iter().filter(|other| other != core).map(Cow::Owned));
        }
        spellings.into_iter().filter(move |spelling| counts && spelling.len() >= SHORTEST_SECRET)
    }
}

fn without_returns(text: &[u8]) -> Vec<u8> {
    let ends_line = |at: usize| text[at] == b'\r' && text.get(at + 1) == Some(&b'\n');
    (0..text.len()).filter(|at| !ends_line(*at)).map(|at| text[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spellings(value: &str) -> Vec<String> {
        let secret = NamedSecret { name: "KEY".into(), value: value.into() };
        secret.spellings().map(|one| String::from_utf8_lossy(&one).into_owned()).collect()
    }

    #[test]
    fn a_value_counts_from_eight_bytes_on_without_the_space_around_it() {
        assert_eq!(spellings("12345678"), ["12345678"]);
        assert_eq!(spellings(" 12345678\n"), ["12345678"]);
        for short in ["", "1", "1234567", "1234567\n", "      \n\n\n  "] {
            assert!(spellings(short).is_empty(), "{short:?}");
        }
    }

    #[test]
    fn lines_end_as_they_do_in_a_file_and_on_a_terminal() {
        assert_eq!(spellings("one line\ntwo\n"), ["one line\ntwo", "one line\r\ntwo"]);
        assert_eq!(spellings("one line\r\ntwo"), ["one line\r\ntwo", "one line\ntwo"]);
    }

    #[test]
    fn a_secret_is_not_shown_when_its_holder_is() {
        let secret = NamedSecret { name: "KEY".into(), value: b"sk-0123456789".to_vec() };
        assert!(!format!("{secret:?}").contains("0123"));
    }
}
