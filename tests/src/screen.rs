//! What a person sees: a terminal that somebody else has written, with `agency` in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::processes::{VARIABLE, wait_until};
use crate::queue::{LONG, Queue};

/// A screen of tmux, which knows what every escape does to it. It goes with the value.
#[derive(Debug)]
pub struct Screen<'a> {
    queue: &'a Queue,
    socket: PathBuf,
}

impl<'a> Screen<'a> {
    /// `agency` with these arguments, in so many columns and rows. When it has ended, its code is the last line.
    pub fn show(queue: &'a Queue, size: (u16, u16), arguments: &[&str]) -> Self {
        Self::show_below(queue, 0, size, arguments)
    }

    /// The same, below so many lines that were there before: `above 1`, and so on.
    pub fn show_below(queue: &'a Queue, lines: u16, size: (u16, u16), arguments: &[&str]) -> Self {
        let screen = Self { queue, socket: queue.ground.user().join("screen") };
        let mut command = screen.tmux(&["new-session", "-d"]);
        command.args(["-x", &size.0.to_string(), "-y", &size.1.to_string()]);
        // Ctrl-C is for `agency` alone, and what it leaves stays to be looked at.
        let script =
            format!("trap : INT; seq {lines} | sed 's/^/above /'; \"$0\" \"$@\"; echo \"code $?\"; exec cat");
        command.args(["sh", "-c", &script]);
        let status = command.arg(queue.ground.program_path()).args(arguments).status().expect("tmux starts");
        assert!(status.success(), "no screen: {status}");
        screen
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = self.queue.ground.program(Path::new("tmux"));
        command.env(VARIABLE, self.queue.marker().as_str()).env("SHELL", "/bin/sh");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(&self.socket).args(arguments);
        command
    }

    /// Its lines, without those at the end that are empty.
    pub fn lines(&self) -> Vec<String> {
        let output = self.tmux(&["capture-pane", "-p"]).output().expect("tmux starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Everything that was shown, from the first line on; a line that the screen has broken is one.
    pub fn history(&self) -> Vec<String> {
        let output = self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]).output().expect("tmux starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Gives it another number of columns and rows.
    pub fn resize(&self, (columns, rows): (u16, u16)) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let resized = self.tmux(&["resize-window", "-x", &columns, "-y", &rows]).status();
        assert!(resized.expect("tmux starts").success());
    }

    /// Waits until its lines are so; what they are then.
    #[track_caller]
    pub fn until(&self, what: &str, so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        let there = wait_until(LONG, || {
            lines = self.lines();
            so(&lines)
        });
        assert!(there, "the screen does not come to show {what}: {lines:#?}");
        lines
    }

    /// Waits for the end of what it shows.
    #[track_caller]
    pub fn until_code(&self, code: i32) -> Vec<String> {
        let last = format!("code {code}");
        self.until(&last, |lines| lines.last() == Some(&last))
    }

    pub fn press(&self, key: &str) {
        assert!(self.tmux(&["send-keys", key]).status().expect("tmux starts").success());
    }

    /// Whether the cursor is to be seen.
    pub fn has_cursor(&self) -> bool {
        let output = self.tmux(&["display-message", "-p", "#{cursor_flag}"]).output().expect("tmux starts");
        output.stdout.trim_ascii() == b"1"
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).output();
    }
}
