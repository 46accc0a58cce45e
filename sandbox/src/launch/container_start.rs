//! A first process that calls us from a container, which an engine made.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use super::private_copy::replica;
use super::sandbox::{SandboxProcess, ended_before_ready};
use super::streams::{StandardPipes, watch_signals};
use super::{LaunchError, LaunchRequest, StartedSandbox, internal};
use crate::agent::{ViewInputs, view_rules};
use crate::agent_user::AgentUser;
use crate::backend::SandboxBackend;
use crate::channel;
use crate::container::caches::{self, CacheVolume};
use crate::container::cleanup::{self, ContainerRecord};
use crate::container::engine::{ContainerEngine, EngineError};
use crate::container::rendezvous::{self, Rendezvous};
use crate::container::running::RunningContainer;
use crate::container::spec::{self, ContainerSpec};
use crate::control::Control;
use crate::host;
use crate::init::container::ContainerOrder;
use crate::landlock_level::replica::ReplicaLocation;
use crate::policy::{ContainerConfig, NetworkPolicy};
use crate::writable_directories::WritableDirectories;

pub(super) fn begin(
    request: &LaunchRequest<'_>,
    opening: &WritableDirectories,
    identity: &AgentUser,
) -> Result<StartedSandbox, LaunchError> {
    let policy = request.policy;
    let container =
        policy.container.as_ref().filter(|container| !container.image.is_empty()).ok_or_else(no_image)?;
    let engine = ContainerEngine::find(container.engine.as_deref())?;
    let image = engine.image(&container.image, container.pull, |what| request.attendant.progress(what))?;
    let state = &request.workspace.state;
    cleanup::sweep(&engine, state)?;
    let replica = replica(request, opening, identity, ReplicaLocation::InPlace { objects: spec::OBJECTS })?;
    let program = std::env::current_exe().map_err(internal("can't find our own program"))?;
    let user = identity.host_ids();
    let door =
        Rendezvous::open(request.run.path().join("door"), user).map_err(internal("can't open a door"))?;
    let caches = take_caches(request, container, user)?;
    let mut record =
        ContainerRecord::begin(state, &engine.socket).map_err(internal("can't write a container down"))?;
    let recipe = ContainerSpec {
        policy,
        container,
        image: &image,
        host: request.host,
        workspace: request.workspace,
        opening,
        replica: &replica,
        user,
        program: &program,
        door: &door.folder,
        caches: &caches,
        dialect: engine.dialect,
        nonce: &record.nonce,
    };
    let body = recipe.body().map_err(|path| LaunchError::Unavailable {
        what: format!("{} can't be said to a container engine: it is not text", path.display()),
        hint: "rename it, or use --isolation process".into(),
    })?;
    let environment = spec::environment(policy, &image, &caches);
    // Volumes are folders in memory, and caches are there to be written.
    let own = image.volumes.iter().map(PathBuf::from).chain(caches.iter().map(|cache| cache.target.clone()));
    let order = order(request, opening, user, &environment, own).map_err(internal("can't write an order"))?;
    let signals = watch_signals().map_err(internal("can't watch for signals"))?;
    let pipes = StandardPipes::make(request.terminal).map_err(internal("can't make pipes"))?;
    pipes.set_owner(identity).map_err(internal("can't give the agent its pipes"))?;

    let tmpfs = body.host_config.as_ref().and_then(|held| held.tmpfs.as_ref());
    let in_memory = tmpfs.iter().flat_map(|folders| folders.keys()).map(PathBuf::from).collect();
    let name = cleanup::name(&record.nonce);
    let id = engine.start(&name, body, |id| record.set_container_id(id))?;
    let mut contained = RunningContainer {
        replica,
        image,
        environment,
        caches,
        in_memory,
        id,
        engine,
        first: None,
        gone: false,
        record,
    };
    let started = Instant::now();
    let sandbox = answer(&door, &contained, user)?;
    contained.first = Some(sandbox.pidfd.try_clone().map_err(internal("can't hold the container"))?);
    door.close().map_err(internal("can't close the door"))?;
    channel::send_order(&sandbox.channel, &order, pipes.theirs.as_ref())
        .map_err(internal("can't talk to the sandbox"))?;
    drop(pipes.theirs);
    let place = SandboxBackend::Container(Box::new(contained));
    Ok(StartedSandbox {
        sandbox,
        place,
        pipes: pipes.ours,
        signals,
        cgroup: None,
        janitor: None,
        started,
        aside: None,
    })
}

/// The caches that a container is given.
fn take_caches(
    request: &LaunchRequest<'_>,
    container: &ContainerConfig,
    user: (u32, u32),
) -> Result<Vec<CacheVolume>, LaunchError> {
    let taken = container.caches.iter().map(|name| caches::take(name, &request.workspace.state, user));
    let taken: std::io::Result<Vec<Option<CacheVolume>>> = taken.collect();
    Ok(taken.map_err(internal("can't make the folder of a cache"))?.into_iter().flatten().collect())
}

fn no_image() -> LaunchError {
    LaunchError::Unavailable {
        what: "a container takes an image".into(),
        hint: "name one with --image, or with container.image in agency.toml".into(),
    }
}

/// Answers a caller: it must be the first process of this container, as the user it was to be.
fn answer(
    door: &Rendezvous,
    contained: &RunningContainer,
    (uid, _): (u32, u32),
) -> Result<SandboxProcess, LaunchError> {
    let called = door
        .wait(|| contained.engine.is_running(&contained.id))
        .map_err(internal("can't wait for the container"))?;
    let Some((channel, caller)) = called else {
        return Err(ended_before_ready("the container ended before its first process called"));
    };
    let pid = caller.pid.as_raw_nonzero().get();
    if caller.uid.as_raw() != uid {
        return Err(EngineError::Remapped { asked: uid, found: caller.uid.as_raw() }.into());
    }
    let pidfd = pidfd_open(caller.pid, PidfdFlags::empty()).map_err(internal("can't hold the container"))?;
    // Check the process that we hold: its number may have passed to another process meanwhile.
    if !rendezvous::is_in_container(pid, &contained.id) {
        return Err(ended_before_ready("somebody else called in the container's place"));
    }
    channel::name_senders(&channel).map_err(internal("can't talk to the sandbox"))?;
    Ok(SandboxProcess { pidfd, pid, channel, killer: Signal::KILL })
}

/// What its first process is to do, in memory: there are secrets in it.
fn order(
    request: &LaunchRequest<'_>,
    opening: &WritableDirectories,
    user: (u32, u32),
    environment: &[(OsString, OsString)],
    own: impl Iterator<Item = PathBuf>,
) -> std::io::Result<OwnedFd> {
    let (policy, workspace) = (request.policy, request.workspace);
    let mut rules = view_rules(policy, ViewInputs { host: request.host, workspace, opening });
    rules.write.extend(own);
    let profile = host::profile(environment).filter(|_| policy.requires(Control::PrivateHome));
    let order = ContainerOrder {
        folder: workspace.path.join(request.start.as_path()),
        command: request.command.to_vec(),
        environment: environment.to_vec(),
        user,
        rules,
        folders: spec::shows_folders(policy),
        limits: policy.limits.clone(),
        without: policy.without,
        hosts: match &policy.network {
            NetworkPolicy::Hosts(list) => {
                let each: Vec<String> = list.destinations().iter().map(ToString::to_string).collect();
                Some(each.join(","))
            }
            NetworkPolicy::None | NetworkPolicy::Full => None,
        },
        notes: profile.map(|text| (request.host.home.join(host::PROFILE), text)).into_iter().collect(),
    };
    let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&order)?)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}
