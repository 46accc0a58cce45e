//! How agents and checks are held, from what was typed and what is configured.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use agency_sandbox::container::engine::{self, Engine};
use agency_sandbox::container::{Container, Pull, image_name};
use agency_sandbox::policy::Level;
use clap::ValueEnum;

use crate::arguments::Isolation;
use crate::configuration::Configuration;
use crate::message::{Failure, UNAVAILABLE};

pub(crate) fn level(isolation: Isolation) -> Level {
    match isolation {
        Isolation::Process => Level::Process,
        Isolation::Landlock => Level::Landlock,
        Isolation::Container => Level::Container,
    }
}

/// The level of whoever has none of their own.
pub(crate) fn usual(typed: Option<Isolation>, configuration: &Configuration) -> Result<Level, Failure> {
    match (typed, configuration.text("run.isolation")) {
        (Some(isolation), _) => Ok(level(isolation)),
        (None, Some(name)) => named("run.isolation", name),
        (None, None) => Ok(Level::Process),
    }
}

/// A level by its name, as a key says it.
pub(crate) fn named(key: &str, name: &str) -> Result<Level, Failure> {
    let isolation = Isolation::from_str(name, true);
    isolation.map(level).map_err(|_| Failure::usage(format!("{key}: there is no isolation `{name}`")))
}

/// What containers are made of, if anything is said of them.
pub(crate) fn container(configuration: &Configuration) -> Result<Option<Container>, Failure> {
    let image = configuration.text("container.image");
    let engine = configuration.text("container.engine");
    let pull = configuration.text("container.pull");
    let cpus = configuration.value(&["container", "cpus"]);
    if [image, engine, pull].iter().all(Option::is_none) && cpus.is_none() {
        return Ok(None);
    }
    if let Some(image) = image {
        check_image("container.image", image)?;
    }
    let engine = engine.map(|named| {
        let path = named.strip_prefix("unix://").unwrap_or(named);
        match path.starts_with('/') {
            true => Ok(path.into()),
            false => Err(Failure::usage(format!("container.engine: `{named}` is no socket of this host"))
                .with_hint("write unix:///PATH")),
        }
    });
    let pull = match pull {
        None | Some("missing") => Pull::Missing,
        Some("never") => Pull::Never,
        Some(other) => {
            return Err(Failure::usage(format!("container.pull: `{other}` is none of missing, never")));
        }
    };
    let cpus = cpus.and_then(|cpus| cpus.as_float().or(cpus.as_integer().map(|cpus| cpus as f64)));
    Ok(Some(Container {
        image: image.unwrap_or_default().to_owned(),
        engine: engine.transpose()?,
        pull,
        milli_cpus: cpus.map(|cpus| (cpus * 1000.0).round().max(1.0) as u64),
        caches: Vec::new(),
        labels: Vec::new(),
    }))
}

/// Whether a key names an image.
pub(crate) fn check_image(key: &str, image: &str) -> Result<(), Failure> {
    image_name(image).map_err(|reason| Failure::usage(format!("{key}: `{image}`: {reason}")))
}

/// What a container would lack is said before anything starts.
pub(crate) fn check_container(who: &str, container: Option<&Container>) -> Result<(), Failure> {
    let Some(container) = container.filter(|container| !container.image.is_empty()) else {
        return Err(Failure::usage(format!("isolation `container` takes an image, and {who} has none"))
            .with_hint("name one with container.image in agency.toml"));
    };
    match Engine::find(container.engine.as_deref()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(UNAVAILABLE, &error).with_hint(error.hint())),
    }
}

/// Whether a path of the host may be shown in a container. An engine's socket is the whole host, and so is whatever
/// it lies in.
pub(crate) fn check_shown(key: &str, path: &Path, engine: Option<&Path>) -> Result<(), Failure> {
    let shown = path.display();
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let refused = |why: &str| Err(Failure::usage(format!("{key} {shown} is refused in a container: {why}")));
    if real == Path::new("/") {
        return refused("it is the whole host");
    }
    if real.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        return refused("it is a socket, and leads out of it");
    }
    let engine = engine::sockets(engine).unwrap_or_default().into_iter().find(|socket| {
        let socket = socket.canonicalize().unwrap_or_else(|_| socket.clone());
        socket.starts_with(&real)
    });
    match engine {
        Some(socket) => refused(&format!("the container engine's socket {} is in it", socket.display())),
        None => Ok(()),
    }
}

/// The name of a level, as it is typed.
pub(crate) fn name(level: Level) -> &'static str {
    match level {
        Level::Process => "process",
        Level::Landlock => "landlock",
        Level::Container => "container",
    }
}
