//! The level `landlock`: for hosts that forbid namespaces.
//!
//! Nothing is mounted and nothing is made invisible. The agent works on a private copy of the workspace
//! ([`replica`]), so the real one can't be written in any case; Landlock lets it read the operating
//! system, the toolchains and its own folders, and write only the latter; the system call filter closes what
//! Landlock does not look at: sockets by path, the network, System V objects, how others are scheduled. As root the
//! agent is a host user of its own. Its processes are kept together by descent or by that user ([`process_set`], [`crate::init::subreaper`]).
//!
//! What this level can't hold it does not claim: other processes are seen, files that can be read can be locked, and as
//! an ordinary user the modes and times of that user's files outside can be changed, because Landlock does not look at
//! those. Copies of other agents are among them, for an agent that finds out their names.

pub(crate) mod copy_to_upper;
pub(crate) mod probes;
pub(crate) mod process_set;
pub(crate) mod replica;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::control::Control;
use crate::erase;
use crate::host::{HostPaths, HostUser, SystemFolder};
use crate::landlock_rules::{self, LandlockRules};
use crate::policy::Policy;
use crate::seccomp::AttackSurface;
use crate::workspace::Workspace;
use crate::writable_directories::WritableDirectories;
use replica::Replica;

/// What the agent is started with at this level.
#[derive(Debug)]
pub(crate) struct LandlockSetup {
    pub(crate) replica: Replica,
    pub(crate) rules: LandlockRules,
    pub(crate) surface: AttackSurface,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Host paths the agent must not be able to read.
    pub(crate) secrets: Vec<PathBuf>,
    /// A host folder the caller can write and the agent must not.
    pub(crate) outside: PathBuf,
    /// Processes the agent's user has anyway, which a limit per user counts too.
    pub(crate) others: u64,
}

const SHARED_MEMORY: &str = "/dev/shm";

/// Devices that hold nothing and do nothing, and terminals.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

impl LandlockSetup {
    pub(crate) fn new(
        policy: &Policy,
        host: &HostUser,
        workspace: &Workspace,
        opening: &WritableDirectories,
        replica: Replica,
    ) -> io::Result<Self> {
        let around = HostPaths::observe(host);
        let surface = AttackSurface::Host {
            network: !policy.closes_network(),
            truncation_checked: landlock_rules::abi().is_some_and(|(abi, _)| abi >= 3),
            shared_user: !host.is_root(),
        };
        let mut secrets = around.secrets.clone();
        secrets.extend(around.replaced.iter().map(|(path, _)| path.clone()));
        secrets.extend([host.home.clone(), workspace.state_home.clone()]);
        secrets.extend(policy.hide.iter().filter(|path| !path.starts_with(&workspace.path)).cloned());
        let mut environment = environment(policy, host, &around, &replica);
        if policy.requires(Control::PrivateHome) && policy.requires(Control::HiddenPaths) {
            replace_cargo_home(&mut environment, host, &around, &replica)?;
        }
        Ok(Self {
            rules: rules(policy, host, &around, workspace, opening, &replica),
            surface,
            environment,
            secrets,
            outside: workspace.path.clone(),
            others: if host.is_root() { 0 } else { process_set::count_of(host.uid) },
            replica,
        })
    }
}

fn rules(
    policy: &Policy,
    host: &HostUser,
    around: &HostPaths,
    workspace: &Workspace,
    opening: &WritableDirectories,
    replica: &Replica,
) -> LandlockRules {
    let mut rules = LandlockRules { no_network: policy.closes_network(), ..LandlockRules::default() };
    if policy.requires(Control::HiddenPaths) {
        let system = around.system.iter().map(|system| match system {
            SystemFolder::Folder(path) | SystemFolder::Link(path, _) => path.clone(),
        });
        let shown = system.chain(around.toolchains.iter().cloned());
        let mut hidden = around.secrets.clone();
        hidden.extend(around.replaced.iter().map(|(path, _)| path.clone()));
        hidden.extend(policy.hide.iter().cloned());
        hidden.push(workspace.state_home.clone());
        // The agent has a copy, without what is out of sight in it.
        hidden.push(workspace.path.clone());
        for path in shown.chain(policy.read.iter().cloned()).chain(["/proc".into()]) {
            show(path, &hidden, &mut rules);
        }
    } else {
        rules.read.push("/".into());
    }
    rules.read.extend(replica.objects.iter().cloned());
    rules.read.extend([Some(&replica.tree), replica.repository.as_ref()].into_iter().flatten().cloned());
    rules.write.extend([replica.home.clone(), replica.tmp.clone()]);
    rules.write.extend(replica.repository.clone());
    rules.write.extend(replica.seen(workspace).writable(opening, &policy.scope));
    rules.write.extend(policy.folders.iter().map(|folder| folder.target.clone()));
    if !policy.requires(Control::ReadOnlyHost) {
        rules.write.push("/".into());
    }
    // As root the agent owns none of what others share there; an ordinary user's would own all of the user's.
    if host.is_root() {
        rules.write.push(SHARED_MEMORY.into());
    }
    let devices: &[&str] = if policy.requires(Control::MinimalDev) { DEVICES } else { &["/dev"] };
    rules.devices.extend(devices.iter().map(PathBuf::from));
    for paths in [&mut rules.read, &mut rules.list, &mut rules.write, &mut rules.devices] {
        paths.retain(|path| path.exists());
    }
    rules
}

/// Makes a path readable, less what is hidden below it. There is no rule that takes away: every entry on the
/// way to something hidden is named by itself.
fn show(path: PathBuf, hidden: &[PathBuf], rules: &mut LandlockRules) {
    if hidden.contains(&path) {
        return;
    }
    let holds_hidden = hidden.iter().any(|hidden| hidden.starts_with(&path));
    match std::fs::read_dir(&path) {
        Ok(entries) if holds_hidden => {
            for entry in entries.flatten() {
                show(entry.path(), hidden, rules);
            }
            // To list it is to list every folder below it, a hidden one too.
            if !hidden.iter().any(|hidden| hidden.starts_with(&path) && hidden.is_dir()) {
                rules.list.push(path);
            }
        }
        _ => rules.read.push(path),
    }
}

/// Shared memory that a user left behind: the next agent may have the same number.
pub(crate) fn clear_shared_memory(user: u32) -> io::Result<()> {
    for entry in std::fs::read_dir(SHARED_MEMORY)? {
        let path = entry?.path();
        match path.symlink_metadata() {
            Ok(found) if found.uid() == user && found.is_dir() => erase::tree(&path)?,
            Ok(found) if found.uid() == user => std::fs::remove_file(&path)?,
            _ => {}
        }
    }
    Ok(())
}

/// Variables that lead a toolchain to its folder when HOME is another one.
const HOMES: &[(&str, &str)] = &[
    ("CARGO_HOME", ".cargo"),
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("NVM_DIR", ".nvm"),
    ("VOLTA_HOME", ".volta"),
    ("BUN_INSTALL", ".bun"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("GOPATH", "go"),
];

/// Nothing can be put over a file here, and Cargo does not start with a configuration that it can't read. Where that is
/// shown otherwise than it is, Cargo has a home of its own: links to what is in the real one, and another configuration.
fn replace_cargo_home(
    environment: &mut Vec<(OsString, OsString)>,
    host: &HostUser,
    around: &HostPaths,
    replica: &Replica,
) -> io::Result<()> {
    const CARGO_HOME: &str = "CARGO_HOME";
    let named =
        environment.iter().find(|(name, _)| name == CARGO_HOME).map(|(_, value)| PathBuf::from(value));
    let real = named.unwrap_or_else(|| host.home.join(".cargo"));
    let Ok(real) = real.canonicalize() else { return Ok(()) };
    if !around.replaced.iter().any(|(path, _)| path.parent() == Some(&real)) {
        return Ok(());
    }
    let own = replica.home.join(".cargo");
    std::fs::create_dir(&own)?;
    for entry in std::fs::read_dir(&real)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        match around.replaced.iter().find(|(replaced, _)| *replaced == path) {
            Some((_, text)) => std::fs::write(own.join(name), text)?,
            None if around.secrets.contains(&path) => {}
            None => std::os::unix::fs::symlink(path, own.join(name))?,
        }
    }
    environment.retain(|(name, _)| name != CARGO_HOME);
    environment.push((CARGO_HOME.into(), own.into_os_string()));
    environment.sort();
    Ok(())
}

/// The policy's environment, with the private folders in it.
fn environment(
    policy: &Policy,
    host: &HostUser,
    around: &HostPaths,
    replica: &Replica,
) -> Vec<(OsString, OsString)> {
    let mut environment = policy.environment.clone();
    let mut set = |name: &str, value: &OsStr| {
        environment.retain(|(known, _)| known != name);
        environment.push((name.into(), value.to_owned()));
    };
    if policy.requires(Control::PrivateHome) {
        set("HOME", replica.home.as_os_str());
    }
    if policy.requires(Control::PrivateTmp) {
        for name in ["TMPDIR", "TMP", "TEMP"] {
            set(name, replica.tmp.as_os_str());
        }
    }
    for (name, folder) in HOMES {
        let place = host.home.join(folder);
        let known = policy.environment.iter().any(|(known, _)| known == name);
        if !known && around.toolchains.contains(&place) {
            environment.push((name.into(), place.into_os_string()));
        }
    }
    environment.sort();
    environment
}
