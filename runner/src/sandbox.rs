//! `agency sandbox`: one command, held to a scope.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agency_sandbox::control::Control;
use agency_sandbox::host::{self, Host};
use agency_sandbox::launch::{self, LaunchError, Outcome, Request};
use agency_sandbox::policy::{Deadlines, Limits, Network, Policy};
use agency_sandbox::scope::{Glob, Scope};
use agency_sandbox::supervise::{End, Stopped};
use agency_sandbox::workspace::folder::Folder;

use crate::arguments::{Isolation, Sandbox};
use crate::message::{Failure, UNAVAILABLE, USAGE};

pub(crate) fn run(command: Sandbox) -> Result<u8, Failure> {
    refuse_other_levels(command.isolation)?;
    let current = std::env::current_dir().map_err(|error| Failure::new(USAGE, &error))?;
    let folder = Folder::around(&current).map_err(|error| Failure::new(USAGE, &error))?;
    let host = Host::observe(&|name| std::env::var_os(name));
    let policy = policy(&command, &folder, &host, &current)?;

    let state = folder.state(&user_state(&host)).map_err(|error| Failure::new(125, &error))?;
    let run = state.start_run().map_err(|error| Failure::new(125, &error))?;
    let ignored = folder.ignored();
    let workspace = folder.workspace(&run, &ignored, &state).map_err(|error| Failure::new(125, &error))?;
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let shown = if command.json { error.as_fd() } else { output.as_fd() };
    let request = Request {
        policy: &policy,
        host: &host,
        workspace: &workspace,
        run: &run,
        command: &command.command,
        start: &folder.start,
        terminal: command.tty,
        streams: [input.as_fd(), shown, error.as_fd()],
    };
    let outcome = launch::run(&request).map_err(refused)?;
    if command.json {
        let report = serde_json::json!({ "version": 1, "attestation": outcome.attestation });
        println_json(&report)?;
    }
    Ok(code(&outcome))
}
fn println_json(report: &serde_json::Value) -> Result<(), Failure> {
    use std::io::Write;
    writeln!(std::io::stdout().lock(), "{report:#}").map_err(|error| Failure::new(125, &error))
}

fn refuse_other_levels(isolation: Isolation) -> Result<(), Failure> {
    let name = match isolation {
        Isolation::Process => return Ok(()),
        Isolation::Landlock => "landlock",
        Isolation::Container => "container",
    };
    Err(Failure {
        code: UNAVAILABLE,
        message: format!("isolation `{name}` is not available yet"),
        hint: Some("use --isolation process".into()),
    })
}

fn policy(command: &Sandbox, folder: &Folder, host: &Host, current: &Path) -> Result<Policy, Failure> {
    for name in &command.env {
        if std::env::var_os(name).is_none() {
            let name = name.to_string_lossy();
            return Err(Failure::usage(format!("--env {name}: the variable {name} is not set")));
        }
    }
    Ok(Policy {
        scope: scope(command, folder)?,
        read: existing("--read", &command.read, current)?,
        hide: existing("--hide", &command.hide, current)?,
        folders: Vec::new(),
        network: network(&command.net)?,
        limits: Limits {
            memory: command.memory,
            processes: Some(command.processes),
            file_size: Some(command.file_size),
            tmp_size: command.tmp_size,
        },
        deadlines: Deadlines { wall: command.timeout, stall: command.stall, ..Deadlines::default() },
        environment: if command.without.contains(&Control::Environment) {
            std::env::vars_os().collect()
        } else {
            host::environment(host, std::env::vars_os(), &command.env)
        },
        without: command.without.iter().copied().collect(),
    })
}

/// Globs are relative to where the person is; the scope is relative to the workspace.
fn scope(command: &Sandbox, folder: &Folder) -> Result<Scope, Failure> {
    let parse = |globs: &[String]| -> Result<Vec<Glob>, Failure> {
        let parsed = globs.iter().map(|glob| {
            // The name of a folder means what is in it.
            let literal = folder.root.join(folder.start.as_path()).join(glob);
            let is_folder = literal.symlink_metadata().is_ok_and(|meta| meta.is_dir());
            let glob = if is_folder && !glob.ends_with('/') { format!("{glob}/**") } else { glob.clone() };
            Glob::parse(&glob)?.below(&folder.start)
        });
        parsed.collect::<Result<_, _>>().map_err(|error| Failure::new(USAGE, &error))
    };
    Ok(Scope { write: parse(&command.write)?, deny: parse(&command.deny)? })
}

fn existing(flag: &str, paths: &[PathBuf], current: &Path) -> Result<Vec<PathBuf>, Failure> {
    let one = |path: &PathBuf| {
        current
            .join(path)
            .canonicalize()
            .map_err(|error| Failure::usage(format!("{flag} {}: {}", path.display(), io_reason(&error))))
    };
    paths.iter().map(one).collect()
}

fn io_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such path".into(),
        _ => error.to_string(),
    }
}

fn network(text: &str) -> Result<Network, Failure> {
    match text {
        "none" => Ok(Network::None),
        "full" => Ok(Network::Full),
        list => Ok(Network::Hosts(list.split(',').map(str::to_owned).collect())),
    }
}

fn user_state(host: &Host) -> PathBuf {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.unwrap_or_else(|| host.home.join(".local/state"))
}

fn refused(error: LaunchError) -> Failure {
    match &error {
        LaunchError::Unavailable { hint, .. } => Failure::new(UNAVAILABLE, &error).with_hint(hint.clone()),
        LaunchError::NotHeld { .. } => Failure::new(UNAVAILABLE, &error)
            .with_hint("nothing was started; `agency doctor` tells what this host offers"),
        LaunchError::Internal { .. } => Failure::new(125, &error),
    }
}

fn code(outcome: &Outcome) -> u8 {
    match outcome.end {
        End::Exited(code) => code as u8,
        End::Signaled(signal) => 128u8.wrapping_add(signal as u8),
        End::Stopped(Stopped::Interrupted(_)) => 130,
        End::Stopped(Stopped::Wall | Stopped::Stall | Stopped::Memory) => 124,
        End::NotStarted(libc_errno) => {
            if libc_errno == 2 {
                127
            } else {
                126
            }
        }
    }
}

#[allow(dead_code)]
fn unused(_: OsString) {}
