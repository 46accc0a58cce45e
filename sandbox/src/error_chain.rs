//! Errors and their causes. A message never repeats its cause; the code that shows an error joins the two.

use std::error::Error;

/// An error, and its causes one after the other.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

/// All of them on one line.
pub fn on_one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for line in chain(error).map(ToString::to_string) {
        // An error that is another one by a different name says the same.
        if !text.contains(&line) {
            let before = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{before}{line}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_cause_is_said_once() {
        let inner = io::Error::other("the disk is full");
        let outer = io::Error::other(io::Error::other(inner));
        assert_eq!(on_one_line(&outer), "the disk is full");
        let error = crate::git::GitError::Pipe { command: "log".into(), source: io::Error::other("closed") };
        assert_eq!(on_one_line(&error), "talking to git log failed: closed");
    }
}
