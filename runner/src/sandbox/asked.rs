//! From what was typed to a policy. Whatever is wrong with it is said before anything is touched.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agency_sandbox::container::{Container, image_name};
use agency_sandbox::control::Control;
use agency_sandbox::doctor;
use agency_sandbox::egress::List;
use agency_sandbox::host::{self, Host};
use agency_sandbox::policy::{Deadlines, Level, Limits, Memory, Network, Policy};
use agency_sandbox::scope::{Glob, Scope};
use agency_sandbox::secret::Secret;
use agency_sandbox::workspace::folder::Folder;

use crate::arguments::{Layer, Sandbox};
use crate::isolation;
use crate::message::{Failure, UNAVAILABLE, USAGE};

pub(super) fn policy(
    command: &Sandbox,
    level: Level,
    network: Network,
    folder: &Folder,
    host: &Host,
    current: &Path,
) -> Result<Policy, Failure> {
    for name in &command.env {
        let shown = name.to_string_lossy();
        if name.is_empty() || shown.contains('=') {
            return Err(Failure::usage(format!("--env {shown}: name a variable, without a value")));
        }
        if std::env::var_os(name).is_none() {
            return Err(Failure::usage(format!("--env {shown}: the variable {shown} is not set")));
        }
    }
    match level {
        Level::Process => {}
        Level::Landlock => landlock(command, &network)?,
        Level::Container => contained(command)?,
    }
    let container = container(command, level)?;
    if command.without.contains(&Control::MountNamespace) {
        return Err(Failure::usage("--without mount-namespace: the workspace itself is made of mounts"));
    }
    let mut environment = if command.without.contains(&Control::Environment) {
        std::env::vars_os().collect()
    } else {
        host::environment(host, level, std::env::vars_os(), &command.env)
    };
    if let Network::Hosts(list) = &network {
        environment = list.environment(environment);
    }
    Ok(Policy {
        level,
        scope: scope(command, folder)?,
        read: existing("--read", &command.read, current)?,
        hide: existing("--hide", &command.hide, current)?,
        folders: Vec::new(),
        network,
        limits: Limits {
            memory: command.memory.unwrap_or(Memory::Share),
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

/// What this level can't do is said before anything is copied.
fn landlock(command: &Sandbox, network: &Network) -> Result<(), Failure> {
    let unavailable = |what: &str, hint: &str| {
        Err(Failure::new_message(UNAVAILABLE, format!("isolation `landlock` can't hold {what}"))
            .with_hint(hint))
    };
    if let Network::Hosts(_) = network {
        return unavailable(
            "a list of hosts: without a network namespace there is no way to tell them apart",
            "use --net none or --net full, or --isolation process",
        );
    }
    if command.layer == Some(Layer::Memory) {
        return unavailable("changes in memory", "leave --layer out");
    }
    claimed(command, Level::Landlock, "landlock", &[])
}

/// Controls that an engine has no switch for.
const FIXED: &[Control] = &[Control::MinimalDev, Control::Attributes];

/// The same for containers.
fn contained(command: &Sandbox) -> Result<(), Failure> {
    if command.layer == Some(Layer::Memory) {
        let what = "isolation `container` can't hold changes in memory";
        return Err(Failure::new_message(UNAVAILABLE, what).with_hint("leave --layer out"));
    }
    claimed(command, Level::Container, "container", FIXED)?;
    for path in &command.read {
        isolation::check_shown("--read", path, None)?;
    }
    Ok(())
}

fn container(command: &Sandbox, level: Level) -> Result<Option<Container>, Failure> {
    match (level, &command.image) {
        (Level::Container, Some(image)) => {
            image_name(image).map_err(|reason| Failure::usage(format!("--image {image}: {reason}")))?;
            Ok(Some(Container { image: image.clone(), ..Container::default() }))
        }
        (Level::Container, None) => Err(Failure::usage("--isolation container: name an image with --image")),
        (_, Some(_)) => Err(Failure::usage("--image is for --isolation container")),
        (_, None) => Ok(None),
    }
}

/// What can be switched off at a level.
fn claimed(command: &Sandbox, level: Level, name: &str, fixed: &[Control]) -> Result<(), Failure> {
    let has = |control: &Control| level.claims(*control) && !fixed.contains(control);
    match command.without.iter().find(|control| !has(control)) {
        Some(control) => {
            Err(Failure::usage(format!("--without {control}: isolation `{name}` has no such control")))
        }
        None => Ok(()),
    }
}

/// Whatever is passed by name may be one.
fn secrets(command: &Sandbox) -> Vec<Secret> {
    let named = command.env.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    named
        .map(|(name, value)| Secret {
            name: name.to_string_lossy().into_owned(),
            value: value.as_bytes().to_vec(),
        })
        .collect()
}

/// Globs are relative to where the person is; the scope is relative to the workspace.
fn scope(command: &Sandbox, folder: &Folder) -> Result<Scope, Failure> {
    let here = folder.root.join(folder.start.as_path());
    let parse = |globs: &[String]| -> Result<Vec<Glob>, Failure> {
        let parsed = globs.iter().map(|text| {
            let glob = Glob::parse(text)?.below(&folder.start)?;
            // The name of a folder means what is in it.
            let is_folder = here.join(text).symlink_metadata().is_ok_and(|meta| meta.is_dir());
            if is_folder {
                Glob::parse(&format!("{}/**", glob.as_str().trim_end_matches("/**")))
            } else {
                Ok(glob)
            }
        });
        parsed.collect::<Result<_, _>>().map_err(|error| Failure::new(USAGE, &error))
    };
    let scope = Scope::new(parse(&command.write)?, parse(&command.deny)?);
    Ok(scope.protecting(agency_supervisor::scope::protected()))
}

fn existing(flag: &str, paths: &[PathBuf], current: &Path) -> Result<Vec<PathBuf>, Failure> {
    let one = |path: &PathBuf| {
        current.join(path).canonicalize().map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "there is no such path".to_owned(),
                _ => error.to_string(),
            };
            Failure::usage(format!("{flag} {}: {reason}", path.display()))
        })
    };
    paths.iter().map(one).collect()
}

pub(super) fn network(command: &Sandbox) -> Result<Network, Failure> {
    let list = match command.net.as_str() {
        "none" => return Ok(Network::None),
        "full" => return Ok(Network::Full),
        "" => return Err(Failure::usage("--net: say none, full, or a list of HOST:PORT")),
        list => List::parse(list).map_err(|error| Failure::usage(format!("--net {error}")))?,
    };
    if command.without.contains(&Control::Network) {
        return Err(Failure::usage("--without network: a list of hosts can't be held without it"));
    }
    Ok(Network::Hosts(list))
}

/// A patch that can't be written is noticed before the work is done, not after.
pub(super) fn result(command: &Sandbox, current: &Path) -> Result<(), Failure> {
    let Some(file) = &command.patch else { return Ok(()) };
    let path = current.join(file);
    let parent = path.parent().unwrap_or(current);
    if path.is_dir() {
        return Err(Failure::usage(format!("--patch {}: it is a folder", file.display())));
    }
    if !parent.is_dir() {
        return Err(Failure::usage(format!("--patch {}: there is no folder to write it in", file.display())));
    }
    Ok(())
}

/// Whether changes are caught in memory. An overlay of an ordinary user keeps its marks in `user.*`
/// attributes, which files in memory have since Linux 6.6.
pub(super) fn in_memory(level: Level, layer: Option<Layer>) -> Result<bool, Failure> {
    if level != Level::Process {
        return Ok(false);
    }
    let able = doctor::memory_layers();
    match layer {
        None => Ok(able),
        Some(Layer::Disk) => Ok(false),
        Some(Layer::Memory) if able => Ok(true),
        Some(Layer::Memory) => Err(Failure::new_message(
            UNAVAILABLE,
            "changes can't be caught in memory by an ordinary user on this kernel",
        )
        .with_hint("Linux 6.6 or newer is needed; leave --layer out, or run as root")),
    }
}
