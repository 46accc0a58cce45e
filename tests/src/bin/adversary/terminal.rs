//! Typing into the terminal of whoever started the sandbox.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::sys::call;

const GROUP: &str = "processes";
const TIOCSTI: &str = "TIOCSTI";

pub(crate) const ATTACKS: &[Attack] = &[
    // EIO is how a kernel answers that has the call switched off.
    attack(GROUP, "tiocsti", &[], TIOCSTI, tiocsti).needs_root().denied_by(&[Errno::EIO]),
    attack(GROUP, "tiocsti-highbits", &[], TIOCSTI, tiocsti_highbits).needs_root().denied_by(&[Errno::EIO]),
    attack(GROUP, "tioclinux", &[], TIOCSTI, tioclinux)
        .never_natively("it needs a virtual console; pseudo-terminals do not know the call"),
    attack(GROUP, "terminal-resize", &[], TIOCSTI, terminal_resize),
];

/// Standard input if it is a terminal, else the one that controls this session.
fn terminal() -> Result<File, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(File::from(stdin.as_fd().try_clone_to_owned().step("duplicate stdin")?));
    }
    OpenOptions::new().read(true).write(true).open("/dev/tty").step("open /dev/tty")
}

fn tiocsti(_: &Args) -> Attempt {
    let character = b"!".as_slice();
    call!(libc::SYS_ioctl, &terminal()?, libc::TIOCSTI as i64, character).step("TIOCSTI")?;
    Ok("typed a character".to_owned())
}

/// The kernel looks at 32 bits of the command; a filter that compares all 64 misses this one.
fn tiocsti_highbits(_: &Args) -> Attempt {
    let character = b"!".as_slice();
    let command = libc::TIOCSTI as i64 | 1 << 32;
    call!(libc::SYS_ioctl, &terminal()?, command, character).step("TIOCSTI")?;
    Ok("typed a character".to_owned())
}

/// Pastes the selection of a console: the same as typing.
fn tioclinux(_: &Args) -> Attempt {
    const TIOCLINUX: i64 = 0x541c;
    const PASTE_SELECTION: u8 = 3;
    call!(libc::SYS_ioctl, &terminal()?, TIOCLINUX, [PASTE_SELECTION].as_slice()).step("TIOCLINUX")?;
    Ok("pasted".to_owned())
}

/// Harmless, but shows that the terminal itself was handed in.
fn terminal_resize(_: &Args) -> Attempt {
    // struct winsize: rows, columns, and two unused
    let size: Vec<u8> = [7_u16, 77, 0, 0].iter().flat_map(|field| field.to_ne_bytes()).collect();
    call!(libc::SYS_ioctl, &terminal()?, libc::TIOCSWINSZ as i64, size.as_slice()).step("TIOCSWINSZ")?;
    Ok("resized".to_owned())
}
