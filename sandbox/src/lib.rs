//! Runs any command so that only its scope can change.
//!
//! A [`policy::Policy`] says what may be written, read, reached and used. [`launch::run`] holds a command to
//! it with everything the kernel has: namespaces and mounts make a view in which nothing else is there,
//! an overlay catches every write, Landlock and a system call filter say it all a second time, and limits
//! and deadlines bound what is left. What holds is read back from the kernel before the command starts
//! ([`attest`]); if anything that was asked for is missing, it does not start.
//!
//! When every process is dead, what the command changed is judged, path by path and byte by byte, against
//! the exact scope ([`harvest`]). The operating system's directories make an agent fail early; the harvest
//! decides.
//!
//! Read in this order: [`policy`], [`scope`], `opening`, `view`, `mounts`, `init`, `agent`, [`attest`],
//! [`launch`]. Hosts that forbid namespaces have a level of their own, `bare`; so have images, [`container`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
pub mod account;
mod agent;
pub mod ahead;
pub mod attest;
mod bare;
pub mod boot;
mod cargo_config;
mod cgroup;
pub mod changed;
mod channel;
pub mod configured;
pub mod container;
pub mod control;
pub mod doctor;
pub mod egress;
pub mod erase;
mod flow;
pub mod git;
pub mod harvest;
pub mod host;
mod identity;
mod init;
mod janitor;
pub mod launch;
mod mountinfo;
mod mounts;
pub mod nonce;
mod opening;
pub mod output;
pub mod path;
pub mod policy;
pub mod scope;
pub mod secret;
pub mod supervise;
mod sys;
mod syscalls;
mod terminal;
mod toolchains;
pub mod untrusted;
mod user_limits;
mod view;
mod watch;
pub mod workspace;
pub mod writers;
