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
//! Read in this order: [`policy`], [`scope`], `writable_directories`, `mount_plan`, `mounts`, [`init`], `agent`, [`attest`],
//! [`launch`]. Hosts that forbid namespaces have a level of their own, `landlock_level`; so have images, [`container`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod account;
mod agent;
mod agent_user;
pub mod attest;
mod backend;
pub mod boot;
mod cargo_config;
mod cgroup;
mod channel;
pub mod container;
pub mod control;
pub mod doctor;
pub mod durable;
pub mod egress;
pub mod erase;
pub mod error_chain;
pub mod file_writers;
mod flow;
pub mod fsmonitor;
pub mod git;
pub mod git_config_query;
pub mod harvest;
pub mod host;
pub mod init;
mod janitor;
mod landlock_level;
mod landlock_rules;
pub mod launch;
mod memory_watch;
pub mod monitor;
mod mount_plan;
mod mountinfo;
mod mounts;
pub mod namespace_prefetch;
pub mod nonce;
pub mod output;
pub mod path;
pub mod policy;
mod reap;
pub mod scope;
mod seccomp;
pub mod secret;
pub mod session;
pub mod supervise;
mod sys;
mod terminal;
mod toolchains;
mod tree_copy;
pub mod untrusted;
mod user_limits;
pub mod workspace;
mod writable_directories;
