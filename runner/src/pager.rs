//! The user's pager and `man`, for pages that are longer than a terminal.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// Shows a text through the user's pager, as git does; `false` where there is none, or nobody who reads.
///
/// The pager comes from the environment of the user, and never from a repository.
pub(crate) fn show(text: &str) -> bool {
    let named = ["AGENCY_PAGER", "PAGER"].into_iter().find_map(|name| std::env::var(name).ok());
    let pager = named.unwrap_or_else(|| "less".to_owned());
    if pager.trim().is_empty() || pager == "cat" || !std::io::stdout().is_terminal() {
        return false;
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("exec {pager}")]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Colours as they are, no screen of its own, and no wait where one page is enough.
        command.env("LESS", "FRX");
    }
    // What is shown may be an agent's text: no key starts a program or writes a file.
    command.env("LESSSECURE", "1");
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // Who leaves the pager early has seen enough.
        let _ = input.write_all(text.as_bytes());
    }
    // 127: there is no such program.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// Shows a manual page as `man` does; `false` where there is no `man`, or nobody who reads.
pub(crate) fn show_manual(page: &str) -> bool {
    if !std::io::stdout().is_terminal() {
        return false;
    }
    let Ok(mut child) = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn() else {
        return false;
    };
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(page.as_bytes());
    }
    child.wait().is_ok_and(|status| status.success())
}
