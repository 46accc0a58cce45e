//! A first process that calls us from a container, which an engine made.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use super::copy::replica;
use super::sandbox::{Sandbox, too_early};
use super::streams::{Pipes, watch_signals};
use super::{Begun, LaunchError, Place, Request, internal};
use crate::agent::{View, over_a_view};
use crate::bare::replica::{Replica, Seen};
use crate::channel;
use crate::container::Container;
use crate::container::caches::{self, Cache};
use crate::container::door::{self, Door};
use crate::container::engine::{Engine, EngineError, Image};
use crate::container::guest::Order;
use crate::container::leftovers::{self, Record};
use crate::container::recipe::{self, Recipe};
use crate::control::Control;
use crate::host;
use crate::identity::Identity;
use crate::opening::Opening;
use crate::policy::Network;

/// A container, and the copy that is worked on in it. It is gone when this is.
#[derive(Debug)]
pub(crate) struct Contained {
    pub(crate) replica: Replica,
    pub(crate) image: Image,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) caches: Vec<Cache>,
    /// Folders that were asked for in memory.
    pub(crate) in_memory: Vec<PathBuf>,
    pub(crate) id: String,
    pub(crate) engine: Engine,
    /// Its first process, once it called.
    first: Option<OwnedFd>,
    gone: bool,
    record: Record,
}

impl Contained {
    /// Whether its first process is dead. Where that had a namespace, everybody else in it is: a first process is not dead
    /// before the last of the others.
    pub(super) fn has_ended(&self) -> bool {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.first.as_ref().is_some_and(|first| {
            poll(&mut [PollFd::from_borrowed_fd(first.as_fd(), PollFlags::IN)], Some(&AT_ONCE)) == Ok(1)
        })
    }

    /// Returns when nothing of it is left. One that ended goes by itself; any other is ended. What an engine keeps of one
    /// that runs no more is in nobody's way, and is removed by whoever comes next.
    pub(super) fn take_away(&mut self) -> Result<(), LaunchError> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        let gone = match self.has_ended() {
            true => self.engine.let_go(&self.id),
            false => self.engine.remove(&self.id),
        };
        match gone {
            Ok(()) => {
                self.record.strike();
                Ok(())
            }
            Err(error) if self.engine.runs(&self.id) => Err(error.into()),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let _ = self.take_away();
    }
}

pub(super) fn begin(
    request: &Request<'_>,
    opening: &Opening,
    identity: &Identity,
) -> Result<Begun, LaunchError> {
    let policy = request.policy;
    let container =
        policy.container.as_ref().filter(|container| !container.image.is_empty()).ok_or_else(no_image)?;
    let engine = Engine::find(container.engine.as_deref())?;
    let image = engine.image(&container.image, container.pull, |what| request.attendant.told(what))?;
    let state = &request.workspace.state;
    leftovers::sweep(&engine, state)?;
    let replica = replica(request, opening, identity, Seen::InPlace)?;
    let program = std::env::current_exe().map_err(internal("can't find our own program"))?;
    let user = identity.outside();
    let door = Door::open(request.run.path().join("door"), user).map_err(internal("can't open a door"))?;
    let caches = take_caches(request, container, user)?;
    let mut record =
        Record::begin(state, &engine.socket).map_err(internal("can't write a container down"))?;
    let recipe = Recipe {
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
    let environment = recipe::environment(policy, &image, &caches);
    // Volumes are folders in memory, and caches are there to be written.
    let own = image.volumes.iter().map(PathBuf::from).chain(caches.iter().map(|cache| cache.target.clone()));
    let order = order(request, opening, user, &environment, own).map_err(internal("can't write an order"))?;
    let signals = watch_signals().map_err(internal("can't watch for signals"))?;
    let pipes = Pipes::make(request.terminal).map_err(internal("can't make pipes"))?;
    pipes.give(identity).map_err(internal("can't give the agent its pipes"))?;

    let tmpfs = body.host_config.as_ref().and_then(|held| held.tmpfs.as_ref());
    let in_memory = tmpfs.iter().flat_map(|folders| folders.keys()).map(PathBuf::from).collect();
    let name = leftovers::name(&record.nonce);
    let id = engine.start(&name, body, |id| record.made(id))?;
    let mut contained = Contained {
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
    channel::hand_order(&sandbox.channel, &order, pipes.theirs.as_ref())
        .map_err(internal("can't talk to the sandbox"))?;
    drop(pipes.theirs);
    let place = Place::Container(Box::new(contained));
    Ok(Begun {
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
    request: &Request<'_>,
    container: &Container,
    user: (u32, u32),
) -> Result<Vec<Cache>, LaunchError> {
    let taken = container.caches.iter().map(|name| caches::take(name, &request.workspace.state, user));
    let taken: std::io::Result<Vec<Option<Cache>>> = taken.collect();
    Ok(taken.map_err(internal("can't make the folder of a cache"))?.into_iter().flatten().collect())
}

fn no_image() -> LaunchError {
    LaunchError::Unavailable {
        what: "a container takes an image".into(),
        hint: "name one with --image, or with container.image in agency.toml".into(),
    }
}

/// Somebody calls: it must be the first process of this container, as the user it was to be.
fn answer(door: &Door, contained: &Contained, (uid, _): (u32, u32)) -> Result<Sandbox, LaunchError> {
    let called = door
        .wait(|| contained.engine.runs(&contained.id))
        .map_err(internal("can't wait for the container"))?;
    let Some((channel, caller)) = called else {
        return Err(too_early("the container ended before its first process called"));
    };
    let pid = caller.pid.as_raw_nonzero().get();
    if caller.uid.as_raw() != uid {
        return Err(EngineError::Remapped { asked: uid, found: caller.uid.as_raw() }.into());
    }
    let pidfd = pidfd_open(caller.pid, PidfdFlags::empty()).map_err(internal("can't hold the container"))?;
    // Whoever is held is looked at: a number may have passed to somebody else meanwhile.
    if !door::is_in(pid, &contained.id) {
        return Err(too_early("somebody else called in the container's place"));
    }
    channel::name_senders(&channel).map_err(internal("can't talk to the sandbox"))?;
    Ok(Sandbox { pidfd, pid, channel, killer: Signal::KILL })
}

/// What its first process is to do, in memory: there are secrets in it.
fn order(
    request: &Request<'_>,
    opening: &Opening,
    user: (u32, u32),
    environment: &[(OsString, OsString)],
    own: impl Iterator<Item = PathBuf>,
) -> std::io::Result<OwnedFd> {
    let (policy, workspace) = (request.policy, request.workspace);
    let mut rules = over_a_view(policy, View { host: request.host, workspace, opening });
    rules.write.extend(own);
    let profile = host::profile(environment).filter(|_| policy.wants(Control::PrivateHome));
    let order = Order {
        folder: workspace.path.join(request.start.as_path()),
        command: request.command.to_vec(),
        environment: environment.to_vec(),
        user,
        rules,
        folders: recipe::shows_folders(policy),
        limits: policy.limits.clone(),
        without: policy.without,
        hosts: match &policy.network {
            Network::Hosts(list) => {
                let each: Vec<String> = list.destinations().iter().map(ToString::to_string).collect();
                Some(each.join(","))
            }
            Network::None | Network::Full => None,
        },
        notes: profile.map(|text| (request.host.home.join(host::PROFILE), text)).into_iter().collect(),
    };
    let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&order)?)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}
