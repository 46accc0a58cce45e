//! How agents and checks are held, from what was typed and what is configured.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use agency_sandbox::container::engine::{self, ContainerEngine};
use agency_sandbox::container::image_name;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::policy::{ContainerConfig, PullPolicy};

use crate::app::configuration::Configuration;
use crate::app::error::{CommandError, ErrorKind};

/// The level of those that have none of their own: what was typed, what is configured, or `process`.
pub(crate) fn default_level(
    typed: Option<IsolationLevel>,
    configuration: &Configuration,
) -> Result<IsolationLevel, CommandError> {
    match (typed, configuration.text("run.isolation")) {
        (Some(level), _) => Ok(level),
        (None, Some(name)) => parse_level("run.isolation", name),
        (None, None) => Ok(IsolationLevel::Process),
    }
}

/// A level by its name, as a key says it.
pub(crate) fn parse_level(key: &str, name: &str) -> Result<IsolationLevel, CommandError> {
    match name.to_ascii_lowercase().as_str() {
        "process" => Ok(IsolationLevel::Process),
        "landlock" => Ok(IsolationLevel::Landlock),
        "container" => Ok(IsolationLevel::Container),
        _ => Err(CommandError::usage(format!("{key}: there is no isolation `{name}`"))),
    }
}

/// What containers are made of, if anything is said of them.
pub(crate) fn container(configuration: &Configuration) -> Result<Option<ContainerConfig>, CommandError> {
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
            false => {
                Err(CommandError::usage(format!("container.engine: `{named}` is no socket of this host"))
                    .with_hint("write unix:///PATH"))
            }
        }
    });
    let pull = match pull {
        None | Some("missing") => PullPolicy::Missing,
        Some("never") => PullPolicy::Never,
        Some(other) => {
            return Err(CommandError::usage(format!("container.pull: `{other}` is none of missing, never")));
        }
    };
    let cpus = cpus.and_then(|cpus| cpus.as_float().or(cpus.as_integer().map(|cpus| cpus as f64)));
    Ok(Some(ContainerConfig {
        image: image.unwrap_or_default().to_owned(),
        engine: engine.transpose()?,
        pull,
        milli_cpus: cpus.map(|cpus| (cpus * 1000.0).round().max(1.0) as u64),
        caches: Vec::new(),
        labels: Vec::new(),
    }))
}

/// Whether a key names an image.
pub(crate) fn check_image(key: &str, image: &str) -> Result<(), CommandError> {
    image_name(image).map_err(|reason| CommandError::usage(format!("{key}: `{image}`: {reason}")))
}

/// What a container would lack is said before anything starts.
pub(crate) fn check_container(who: &str, container: Option<&ContainerConfig>) -> Result<(), CommandError> {
    let Some(container) = container.filter(|container| !container.image.is_empty()) else {
        return Err(CommandError::usage(format!("isolation `container` takes an image, and {who} has none"))
            .with_hint("name one with container.image in agency.toml"));
    };
    match ContainerEngine::find(container.engine.as_deref()) {
        Ok(_) => Ok(()),
        Err(error) => Err(CommandError::new(ErrorKind::Unavailable, &error).with_hint(error.hint())),
    }
}

/// Whether a path of the host may be shown in a container. An engine's socket is the whole host, and so is every folder
/// that holds it.
pub(crate) fn check_shown(key: &str, path: &Path, engine: Option<&Path>) -> Result<(), CommandError> {
    let shown = path.display();
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let refused =
        |why: &str| Err(CommandError::usage(format!("{key} {shown} is refused in a container: {why}")));
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
