//! The level `container`: a container of an image, made by an engine that speaks Docker's API.
//!
//! The engine makes the view: the image read-only, a private copy of the workspace (`bare::replica`) of
//! which only the scope's directories are mounted writable, folders in memory, no capability and no network. Its
//! first process is our own program ([`crate::init::container`]), which it finds beside the image's, so that any image will do. It
//! calls us through a door, is handed what it is to do, and from there on everything is as at the other levels: it
//! starts the agent, which puts Landlock and the system call filter on top and waits at the gate until what holds it
//! was read back.
//!
//! Nothing of the agent's goes through the engine: not its streams, not its environment, not its end. So nothing of it
//! is in the engine's logs, and an engine that answers slowly delays no run. The first process ends when we do, and
//! the container with it. A container that an engine keeps all the same is found by its record (`cleanup`).

pub mod caches;
pub(crate) mod cleanup;
pub mod engine;
pub(crate) mod rendezvous;
pub(crate) mod running;
pub(crate) mod spec;

use std::path::{Path, PathBuf};

/// The first argument of our program when it is a container's first process.
pub const INIT_ARGUMENT: &str = "first-process";

/// What people know from other tools and would undo what a container is for, with what to say instead.
pub const WIDENING: &[(&str, &str)] = &[
    ("privileged", "an agent's container has no privileges"),
    ("mounts", "paths of the host are shown read-only, with agents.NAME.read or --read"),
    ("volumes", "paths of the host are shown read-only, with agents.NAME.read or --read"),
    ("binds", "paths of the host are shown read-only, with agents.NAME.read or --read"),
    ("devices", "a container has no device of the host's"),
    ("cap_add", "an agent's container has no capabilities"),
    ("capabilities", "an agent's container has no capabilities"),
    ("security_opt", "the filters of a container are not for it to choose"),
    (
        "network_mode",
        "what can be reached is said by `network`; the host's own network is never a container's",
    ),
    ("pid", "a container has processes of its own"),
    ("ipc", "a container has its own shared memory"),
    ("userns_mode", "whose a container's processes are is not for it to choose"),
    ("user", "whose a container's processes are is not for it to choose"),
    ("options", "an engine is asked for what a policy says, and for nothing else"),
    ("args", "an engine is asked for what a policy says, and for nothing else"),
];

/// Where everything of ours is in a container.
pub(crate) const OURS: &str = "/.agency";

/// Our program in a container.
pub(crate) fn program() -> PathBuf {
    Path::new(OURS).join("agency")
}

/// The folder of the rendezvous socket in a container.
pub(crate) fn rendezvous_folder() -> PathBuf {
    Path::new(OURS).join("door")
}

/// Whether something can be the name of an image: it goes to an engine as it is, as part of an address.
pub fn image_name(name: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    match name.bytes().next() {
        None => Err("an image has a name"),
        Some(first) if !first.is_ascii_alphanumeric() => {
            Err("the name of an image begins with a letter or digit")
        }
        Some(_) if !name.bytes().all(allowed) => Err("the name of an image has letters, digits and ._-/:@"),
        Some(_) if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) => {
            Err("the name of an image has no empty part, and none that begins with a dot")
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::image_name;

    #[test]
    fn names_of_images_are_told_from_what_would_be_another_question() {
        for name in ["localhost/toolbox:1", "rust", "ghcr.io/a/b@sha256:0a", "a.b:5000/c_d-e"] {
            assert_eq!(image_name(name), Ok(()), "{name}");
        }
        for name in ["", "../x", "a/../b", "a//b", "-privileged", "a b", "a?force=1", "a\nb", "ä"] {
            assert!(image_name(name).is_err(), "{name}");
        }
    }
}
