//! Typing into the terminal of whoever started the sandbox.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Output, Stdio};

use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};

use crate::NOT_SHOWN;
use crate::as_both;
use crate::ground::{Actor, Ground};
use crate::run::{Ended, Sandbox};

/// Both ends of a terminal of the caller's.
fn terminal() -> (OwnedFd, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&controller).expect("granted");
    unlockpt(&controller).expect("unlocked");
    let name = ptsname(&controller, Vec::new()).expect("a name").into_string().expect("text");
    let terminal = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name);
    (controller, terminal.expect("its other end"))
}

const SIZE: Winsize = Winsize { ws_row: 33, ws_col: 99, ws_xpixel: 0, ws_ypixel: 0 };

/// Runs an attack as somebody at a terminal would, and makes sure that nothing was typed into that terminal and
/// that it is as large as before.
fn at_a_terminal(ground: &Ground, sandbox: &Sandbox<'_>, attack: &str) -> Ended {
    let (controller, terminal) = terminal();
    tcsetwinsize(&terminal, SIZE).expect("sized");
    // A session of its own, with this terminal to control it.
    let mut command = sandbox.through(&["setsid", "--ctty", "--wait"], ground.bin().join("adversary"));
    command.arg(attack);
    let end = || Stdio::from(terminal.try_clone().expect("a terminal"));
    command.stdin(end()).stdout(end()).stderr(end());
    if !nix::unistd::Uid::current().is_root() || ground.actor.is_root() {
        // The terminal is the test's own.
    } else {
        std::os::unix::fs::fchown(&terminal, Some(ground.uid()), None).expect("given");
    }
    let mut child = command.spawn().expect("agency starts");
    drop(command);
    let reader = std::thread::spawn(move || {
        let (mut text, mut controller) = (Vec::new(), File::from(controller));
        let mut buffer = [0; 4096];
        // The other end is gone when reading fails.
        while let Ok(length @ 1..) = controller.read(&mut buffer) {
            text.extend_from_slice(&buffer[..length]);
        }
        text
    });
    let status = child.wait().expect("ended");
    assert_eq!(rustix::io::ioctl_fionread(&terminal).expect("a terminal"), 0, "something was typed");
    let size = tcgetwinsize(&terminal).expect("a size");
    assert_eq!((size.ws_row, size.ws_col), (SIZE.ws_row, SIZE.ws_col));
    drop(terminal);
    Ended::new(attack, Output { status, stdout: reader.join().expect("read"), stderr: Vec::new() })
}

/// The agent's terminal is one of its own; typing into it is refused all the same, for it is the supervisor who
/// reads the other end.
fn nothing_can_be_typed_into_a_terminal(actor: Actor) {
    let ground = Ground::new(actor);
    for attack in ["tiocsti", "tiocsti-highbits"] {
        let run = || ground.sandbox().flag("--tty");
        at_a_terminal(&ground, &run(), attack).assert_denied();
        // Without a terminal there is none to be found, though the caller has one.
        at_a_terminal(&ground, &ground.sandbox(), attack).assert_denied();
        if actor.is_bare() {
            continue;
        }
        at_a_terminal(&ground, &run().without(&["seccomp"]), attack).assert_succeeded();
        at_a_terminal(&ground, &run().without(&["landlock", "capabilities"]), attack).assert_denied();
        at_a_terminal(&ground, &ground.sandbox().without(&["seccomp", "landlock"]), attack).assert_denied();
    }
}

fn nothing_can_be_pasted_into_a_console(actor: Actor) {
    assert!(NOT_SHOWN.iter().any(|(name, _)| *name == "tioclinux"));
    let ground = Ground::new(actor);
    at_a_terminal(&ground, &ground.sandbox().flag("--tty"), "tioclinux").assert_denied();
    at_a_terminal(&ground, &ground.sandbox(), "tioclinux").assert_denied();
}

/// It may change its own; the caller's is another.
fn the_terminal_of_the_caller_keeps_its_size(actor: Actor) {
    let ground = Ground::new(actor);
    at_a_terminal(&ground, &ground.sandbox().flag("--tty"), "terminal-resize").assert_succeeded();
    at_a_terminal(&ground, &ground.sandbox(), "terminal-resize").assert_denied();
}

as_both! {
    nothing_can_be_typed_into_a_terminal,
    nothing_can_be_pasted_into_a_console,
    the_terminal_of_the_caller_keeps_its_size,
}
