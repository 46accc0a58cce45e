//! From what was typed to a policy. Whatever is wrong with it is said before anything is touched.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agency_sandbox::container::image_name;
use agency_sandbox::control::Control;
use agency_sandbox::doctor;
use agency_sandbox::egress::HostAllowlist;
use agency_sandbox::host::{self, HostUser};
use agency_sandbox::policy::ContainerConfig;
use agency_sandbox::policy::{Deadlines, IsolationLevel, MemoryLimit, NetworkPolicy, Policy, ResourceLimits};
use agency_sandbox::scope::{Glob, Scope};
use agency_sandbox::secret::NamedSecret;
use agency_sandbox::workspace::folder::WorkspaceFolder;

use crate::app::error::{CommandError, ErrorKind};
use crate::app::isolation;
use crate::cli::sandbox::arguments::{LayerArg, SandboxArgs};

pub(super) fn policy(
    command: &SandboxArgs,
    level: IsolationLevel,
    network: NetworkPolicy,
    folder: &WorkspaceFolder,
    host: &HostUser,
    current: &Path,
) -> Result<Policy, CommandError> {
    for name in &command.env {
        let shown = name.to_string_lossy();
        if name.is_empty() || shown.contains('=') {
            return Err(CommandError::usage(format!("--env {shown}: name a variable, without a value")));
        }
        if std::env::var_os(name).is_none() {
            return Err(CommandError::usage(format!("--env {shown}: the variable {shown} is not set")));
        }
    }
    check_level(command, level, &network)?;
    let container = container(command, level)?;
    if command.without.contains(&Control::MountNamespace) {
        return Err(CommandError::usage("--without mount-namespace: the workspace itself is made of mounts"));
    }
    let mut environment = if command.without.contains(&Control::Environment) {
        std::env::vars_os().collect()
    } else {
        host::environment(host, level, std::env::vars_os(), &command.env)
    };
    if let NetworkPolicy::Hosts(list) = &network {
        environment = list.environment(environment);
    }
    Ok(Policy {
        level,
        scope: scope(command, folder)?,
        read: by_both_names(existing("--read", &command.read, current)?, &command.read, current),
        hide: existing("--hide", &command.hide, current)?,
        folders: Vec::new(),
        network,
        limits: ResourceLimits {
            memory: command.memory.unwrap_or(MemoryLimit::Share),
            processes: Some(command.processes),
            file_size: Some(command.file_size),
            tmp_size: command.tmp_size,
            output: command.output,
        },
        deadlines: Deadlines { wall: command.timeout, stall: command.stall, ..Deadlines::default() },
        environment,
        secrets: secrets(command),
        without: command.without.iter().copied().collect(),
        container,
    })
}

/// Refuses what the level can't enforce, before anything is copied.
fn check_level(
    command: &SandboxArgs,
    level: IsolationLevel,
    network: &NetworkPolicy,
) -> Result<(), CommandError> {
    let name = level.name();
    let unavailable = |what: &str, hint: &str| {
        Err(CommandError::new_message(
            ErrorKind::Unavailable,
            format!("isolation `{name}` can't hold {what}"),
        )
        .with_hint(hint))
    };
    if matches!(network, NetworkPolicy::Hosts(_)) && !level.holds_host_lists() {
        return unavailable(
            "a list of hosts: without a network namespace there is no way to tell them apart",
            "use --net none or --net full, or --isolation process",
        );
    }
    if command.layer == Some(LayerArg::Memory) && level.copies_workspace() {
        return unavailable("changes in memory", "leave --layer out");
    }
    if let Some(control) = command.without.iter().find(|control| !level.can_drop(**control)) {
        let what = format!("--without {control}: isolation `{name}` has no such control");
        return Err(CommandError::usage(what));
    }
    if level.needs_image() {
        for path in &command.read {
            isolation::check_shown("--read", path, None)?;
        }
    }
    Ok(())
}

fn container(command: &SandboxArgs, level: IsolationLevel) -> Result<Option<ContainerConfig>, CommandError> {
    match (level.needs_image(), &command.image) {
        (true, Some(image)) => {
            image_name(image).map_err(|reason| CommandError::usage(format!("--image {image}: {reason}")))?;
            Ok(Some(ContainerConfig { image: image.clone(), ..ContainerConfig::default() }))
        }
        (true, None) => Err(CommandError::usage("--isolation container: name an image with --image")),
        (false, Some(_)) => Err(CommandError::usage("--image is for --isolation container")),
        (false, None) => Ok(None),
    }
}

/// Every variable that is passed by name may hold a secret.
fn secrets(command: &SandboxArgs) -> Vec<NamedSecret> {
    let named = command.env.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    named
        .map(|(name, value)| NamedSecret {
            name: name.to_string_lossy().into_owned(),
            value: value.as_bytes().to_vec(),
        })
        .collect()
}

/// Globs are relative to the current folder; the scope is relative to the workspace.
fn scope(command: &SandboxArgs, folder: &WorkspaceFolder) -> Result<Scope, CommandError> {
    let here = folder.root.join(folder.start.as_path());
    let parse = |globs: &[String]| -> Result<Vec<Glob>, CommandError> {
        let parsed = globs.iter().map(|text| {
            let glob = Glob::parse(text)?.prefixed(&folder.start)?;
            // The name of a folder means what is in it.
            let is_folder = here.join(text).symlink_metadata().is_ok_and(|meta| meta.is_dir());
            if is_folder {
                Glob::parse(&format!("{}/**", glob.as_str().trim_end_matches("/**")))
            } else {
                Ok(glob)
            }
        });
        parsed.collect::<Result<_, _>>().map_err(|error| CommandError::new(ErrorKind::Usage, &error))
    };
    let scope = Scope::new(parse(&command.write)?, parse(&command.deny)?);
    Ok(scope.with_protected(agency_supervisor::scope::protected_names()))
}

fn existing(flag: &str, paths: &[PathBuf], current: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let one = |path: &PathBuf| {
        current.join(path).canonicalize().map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "there is no such path".to_owned(),
                _ => error.to_string(),
            };
            CommandError::usage(format!("{flag} {}: {reason}", path.display()))
        })
    };
    paths.iter().map(one).collect()
}

/// A path that leads through links is shown by the name it was given, and where it ends: a program knows it by either.
fn by_both_names(found: Vec<PathBuf>, given: &[PathBuf], current: &Path) -> Vec<PathBuf> {
    let is_plain = |path: &Path| !path.components().any(|part| part == Component::ParentDir);
    let named = given.iter().map(|path| current.join(path)).filter(|path| is_plain(path));
    let mut all = found;
    for path in named.map(|path| path.components().collect()) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

pub(super) fn network(command: &SandboxArgs) -> Result<NetworkPolicy, CommandError> {
    let list = match command.net.as_str() {
        "none" => return Ok(NetworkPolicy::None),
        "full" => return Ok(NetworkPolicy::Full),
        "" => return Err(CommandError::usage("--net: say none, full, or a list of HOST:PORT")),
        list => HostAllowlist::parse(list).map_err(|error| CommandError::usage(format!("--net {error}")))?,
    };
    if command.without.contains(&Control::Network) {
        return Err(CommandError::usage("--without network: a list of hosts can't be held without it"));
    }
    Ok(NetworkPolicy::Hosts(list))
}

/// Checks that a patch can be written before the command runs.
pub(super) fn result(command: &SandboxArgs, current: &Path) -> Result<(), CommandError> {
    let Some(file) = &command.patch else { return Ok(()) };
    let path = current.join(file);
    let parent = path.parent().unwrap_or(current);
    if path.is_dir() {
        return Err(CommandError::usage(format!("--patch {}: it is a folder", file.display())));
    }
    if !parent.is_dir() {
        return Err(CommandError::usage(format!(
            "--patch {}: there is no folder to write it in",
            file.display()
        )));
    }
    Ok(())
}

/// Whether changes are caught in memory. An overlay of an ordinary user keeps its marks in `user.*`
/// attributes, which files in memory have since Linux 6.6.
pub(super) fn in_memory(level: IsolationLevel, layer: Option<LayerArg>) -> Result<bool, CommandError> {
    if level.copies_workspace() {
        return Ok(false);
    }
    let able = doctor::memory_layers();
    match layer {
        None => Ok(able),
        Some(LayerArg::Disk) => Ok(false),
        Some(LayerArg::Memory) if able => Ok(true),
        Some(LayerArg::Memory) => Err(CommandError::new_message(
            ErrorKind::Unavailable,
            "changes can't be caught in memory by an ordinary user on this kernel",
        )
        .with_hint("Linux 6.6 or newer is needed; leave --layer out, or run as root")),
    }
}
