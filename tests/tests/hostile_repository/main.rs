//! A repository that means harm: what it plants where state once lay, what its `.git` says of itself, what its files are,
//! and whose it is. Whoever packed a tarball, filled a CI cache or shares the machine wrote all of it.
//!
//! What an agent leaves behind is tried in `escapes` (`git`, `handover`, `harvest`) and in `run::control_plane`; what it
//! shares with the host beside files in `escapes` (`bare`, `others`, `processes`), `container::leftovers` and `egress`.

mod contained;
mod moved;
mod owners;
mod planted;
mod pointers;
mod random;
mod special;
mod words;
mod world;
