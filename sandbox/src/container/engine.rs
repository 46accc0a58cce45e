//! The engine: the service that makes containers on this host, asked through its socket.
//!
//! What it is asked is little, and each question is asked and answered before anything else is done, so a runtime of
//! one thread is enough, and lives no longer than a question. What goes wrong is said in a sentence a person can act
//! on.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, RemoveContainerOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::policy::PullPolicy;

/// Why a container could not be had.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no container engine answers{}", .tried.iter().map(|path| format!(" at {}", path.display())).collect::<Vec<_>>().join(","))]
    None { tried: Vec<PathBuf> },
    #[error("DOCKER_HOST is {host}: an engine elsewhere can't show this host's files")]
    Elsewhere { host: String },
    #[error("the container engine at {} may not be used by this user", .socket.display())]
    Forbidden { socket: PathBuf },
    #[error("the container engine runs user {asked} as user {found} of this host")]
    Remapped { asked: u32, found: u32 },
    #[error("there is no image {image}")]
    NoImage { image: String },
    #[error("the image {image} can't be fetched: {reason}")]
    NotFetched { image: String, reason: String },
    #[error("the container engine could not {what}: {reason}")]
    Refused { what: &'static str, reason: String },
    #[error("the container engine does not answer any more")]
    Gone,
}

impl EngineError {
    /// What a person can do.
    pub fn hint(&self) -> String {
        match self {
            Self::None { .. } => {
                "start Docker or Podman's service, or name its socket with container.engine or DOCKER_HOST"
            }
            Self::Elsewhere { .. } => {
                "use an engine on this host: DOCKER_HOST=unix:///PATH, or container.engine"
            }
            Self::Forbidden { .. } => {
                "become a member of the group that owns the socket (`docker`), or use --isolation process"
            }
            Self::Remapped { .. } => "use an engine without userns-remap, or --isolation process",
            Self::NoImage { .. } => {
                "build it or pull it first, or let it be fetched with container.pull = \"missing\""
            }
            Self::NotFetched { .. } => "check its name, the registry and the network; or load it by hand",
            Self::Refused { .. } => "`agency doctor` tells what the engine offers",
            Self::Gone => "see whether the engine is running; the work can be begun again",
        }
        .to_owned()
    }
}

/// An engine that answered.
#[derive(Debug)]
pub struct ContainerEngine {
    runtime: Runtime,
    docker: Docker,
    pub socket: PathBuf,
    /// What it calls itself, for people.
    pub version: String,
    pub(crate) dialect: EngineDialect,
}

/// The kind of engine: the questions are the same, not everything in them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineDialect {
    Docker,
    Podman,
}

/// An image, as the engine has it.
#[derive(Debug, Clone)]
pub(crate) struct ContainerImage {
    /// The digest of its configuration: what was asked for by name is this.
    pub(crate) id: String,
    pub(crate) environment: Vec<(String, String)>,
    /// Folders it wants a volume for.
    pub(crate) volumes: Vec<String>,
}

/// How long an answer is waited for. Making a container of a large image takes a while on a busy disk.
const PATIENCE: u64 = 120;

/// How long a container may be going by itself, before it is sent.
const BY_ITSELF: Duration = Duration::from_secs(10);

/// How long one may be going that was sent.
const GOING: Duration = Duration::from_secs(20);

const USUAL: &[&str] = &["/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"];
const USUAL_OF_A_USER: &[&str] = &["docker.sock", "podman/podman.sock"];

/// Where an engine may be, the likeliest first.
pub fn sockets(named: Option<&Path>) -> Result<Vec<PathBuf>, EngineError> {
    if let Some(socket) = named {
        return Ok(vec![socket.to_owned()]);
    }
    if let Some(host) = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()) {
        return match host.strip_prefix("unix://") {
            Some(socket) => Ok(vec![socket.into()]),
            None => Err(EngineError::Elsewhere { host }),
        };
    }
    let of_a_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_a_user =
        of_a_user.iter().flat_map(|folder| USUAL_OF_A_USER.iter().map(|socket| folder.join(socket)));
    Ok(USUAL.iter().map(PathBuf::from).chain(of_a_user).collect())
}

impl ContainerEngine {
    /// The engine at the named socket, or the first that is there.
    pub fn find(named: Option<&Path>) -> Result<Self, EngineError> {
        let tried = sockets(named)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| EngineError::Refused { what: "be asked", reason: error.to_string() })?;
        let mut forbidden = None;
        for socket in &tried {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    let (dialect, version) = greet(stream)?;
                    let (docker, socket) = (connect(socket)?, socket.clone());
                    return Ok(Self { runtime, docker, socket, version, dialect });
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    forbidden.get_or_insert_with(|| socket.clone());
                }
                Err(_) => {}
            }
        }
        Err(match forbidden {
            Some(socket) => EngineError::Forbidden { socket },
            None => EngineError::None { tried },
        })
    }

    /// An image by its name; it is fetched if it is not there and may be.
    pub(crate) fn image(
        &self,
        name: &str,
        pull: PullPolicy,
        told: impl FnMut(&str),
    ) -> Result<ContainerImage, EngineError> {
        match self.inspect_image(name) {
            Err(EngineError::NoImage { .. }) if pull == PullPolicy::Missing => {
                self.fetch(name, told)?;
                self.inspect_image(name)
            }
            found => found,
        }
    }

    fn inspect_image(&self, name: &str) -> Result<ContainerImage, EngineError> {
        let found = match self.runtime.block_on(self.docker.inspect_image(name)) {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                return Err(EngineError::NoImage { image: name.to_owned() });
            }
            other => other.map_err(refused("show an image"))?,
        };
        let config = found.config.unwrap_or_default();
        let environment = config.env.unwrap_or_default();
        let pairs = environment.iter().filter_map(|entry| entry.split_once('='));
        Ok(ContainerImage {
            id: found.id.unwrap_or_default(),
            environment: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            volumes: config.volumes.unwrap_or_default(),
        })
    }

    fn fetch(&self, name: &str, mut told: impl FnMut(&str)) -> Result<(), EngineError> {
        told(&format!("fetching the image {name}"));
        let not_fetched = |reason: String| EngineError::NotFetched { image: name.to_owned(), reason };
        let options = CreateImageOptionsBuilder::new().from_image(name).build();
        self.runtime.block_on(async {
            let mut progress = self.docker.create_image(Some(options), None, None);
            while let Some(step) = progress.next().await {
                let step = step.map_err(|error| match error {
                    Error::DockerResponseServerError { message, .. } => not_fetched(message),
                    Error::DockerStreamError { error } => not_fetched(error),
                    other => refused("fetch an image")(other),
                })?;
                // Of each part once, and not every time a bar would move.
                if let (Some(part), Some(status)) = (step.id, step.status)
                    && ["Pull complete", "Already exists"].contains(&status.as_str())
                {
                    told(&format!("{part}: {}", status.to_lowercase()));
                }
            }
            Ok(())
        })
    }

    /// Makes a container of this name, tells its id, and starts it. Its id.
    pub(crate) fn start(
        &self,
        name: &str,
        body: ContainerCreateBody,
        told: impl FnOnce(&str) -> io::Result<()>,
    ) -> Result<String, EngineError> {
        let named = CreateContainerOptionsBuilder::new().name(name).build();
        let made = self.docker.create_container(Some(named), body);
        let id = self.runtime.block_on(made).map_err(refused("make a container"))?.id;
        // A process that does not know its id finds it by its name.
        let _ = told(&id);
        let started = self.runtime.block_on(self.docker.start_container(&id, None));
        match started.map_err(refused("start a container")) {
            Ok(()) => Ok(id),
            Err(error) => {
                let _ = self.remove(&id);
                Err(error)
            }
        }
    }

    /// Whether a container runs.
    pub(crate) fn is_running(&self, id: &str) -> bool {
        let found = self.runtime.block_on(self.docker.inspect_container(id, None));
        found.is_ok_and(|found| found.state.is_some_and(|state| state.running == Some(true)))
    }

    /// Waits for a container that ended to be gone, which the engine sees to by itself. One that it does not see to is
    /// taken away.
    pub(crate) fn wait_removed(&self, id: &str) -> Result<(), EngineError> {
        let options = WaitContainerOptionsBuilder::new().condition("removed").build();
        let going = self.docker.wait_container(id, Some(options));
        let gone = self.runtime.block_on(async { timeout(BY_ITSELF, std::pin::pin!(going).next()).await });
        match gone {
            Ok(Some(Ok(_) | Err(Error::DockerResponseServerError { status_code: 404, .. }))) => Ok(()),
            // That is its exit code, which is not used here.
            Ok(Some(Err(Error::DockerContainerWaitError { error, .. }))) if error.is_empty() => Ok(()),
            _ => self.remove(id),
        }
    }

    /// Ends a container and takes it away; returns when it is gone.
    pub(crate) fn remove(&self, id: &str) -> Result<(), EngineError> {
        let options = || RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let until = Instant::now() + GOING;
        loop {
            match self.runtime.block_on(self.docker.remove_container(id, Some(options()))) {
                Ok(()) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(()),
                // It is going by itself, or has just ended when it was to be: it takes a moment to be gone.
                Err(Error::DockerResponseServerError { .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(refused("remove a container")(error)),
            }
        }
    }

    /// The id of the container of this name, running or not, if its label has this value.
    pub(crate) fn find_own(
        &self,
        name: &str,
        label: &str,
        value: &str,
    ) -> Result<Option<String>, EngineError> {
        let found = match self.runtime.block_on(self.docker.inspect_container(name, None)) {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(None),
            other => other.map_err(refused("show a container"))?,
        };
        // An engine takes the beginning of an id for a name.
        let named = found.name.is_some_and(|found| found.trim_start_matches('/') == name);
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        let labelled = labels.get(label).is_some_and(|found| found == value);
        Ok(found.id.filter(|_| named && labelled))
    }

    /// Whether it is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.runtime.block_on(self.docker.ping()).is_ok()
    }
}

/// Asks the listener which engine it is: its dialect, and its name. Every engine says so in the head of any answer;
/// asked for its version, an engine runs other programs to know theirs, and takes fifteen times as long.
fn greet(mut stream: UnixStream) -> Result<(EngineDialect, String), EngineError> {
    const LONGEST: usize = 64 * 1024;
    let gone = |_| EngineError::Gone;
    stream.set_read_timeout(Some(Duration::from_secs(PATIENCE))).map_err(gone)?;
    stream.write_all(b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n").map_err(gone)?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).map_err(gone)?;
        answer.extend_from_slice(&piece[..read]);
        match introduced(&answer)? {
            Some(known) => return Ok(known),
            None if read == 0 || answer.len() > LONGEST => return Err(EngineError::Gone),
            None => {}
        }
    }
}

/// What the head of an answer says; `None` while it is not complete.
fn introduced(answer: &[u8]) -> Result<Option<(EngineDialect, String)>, EngineError> {
    let unasked = |reason: &str| EngineError::Refused { what: "be asked", reason: reason.to_owned() };
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    match head.parse(answer) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(unasked("what listens there is no engine")),
    }
    if head.code != Some(200) {
        return Err(unasked(head.reason.unwrap_or_default()));
    }
    let server = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("server"));
    let server = server.map(|header| String::from_utf8_lossy(header.value)).unwrap_or_default();
    let (name, number) = server.split_once('/').unwrap_or_default();
    let number = number.split(' ').next().unwrap_or_default();
    let (dialect, name) = match name {
        "Libpod" => (EngineDialect::Podman, "Podman"),
        _ => (EngineDialect::Docker, "Docker"),
    };
    Ok(Some((dialect, format!("{name} {number}").trim_end().to_owned())))
}

fn connect(socket: &Path) -> Result<Docker, EngineError> {
    Docker::connect_with_unix(&socket.to_string_lossy(), PATIENCE, API_DEFAULT_VERSION)
        .map_err(refused("be connected to"))
}

/// What the engine says is for people; how the connection ended is not.
fn refused(what: &'static str) -> impl Fn(Error) -> EngineError {
    move |error| match error {
        Error::DockerResponseServerError { message, .. } => {
            EngineError::Refused { what, reason: message.trim().to_owned() }
        }
        Error::HyperLegacyError { .. } | Error::HyperResponseError { .. } | Error::RequestTimeoutError => {
            EngineError::Gone
        }
        other => EngineError::Refused { what, reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_how_it_answers() {
        let says = |head: &str| introduced(format!("HTTP/1.1 {head}\r\n\r\nOK").as_bytes());
        let known = |head: &str| says(head).expect("an engine").expect("the whole head");
        let docker = known("200 OK\r\nApi-Version: 1.41\r\nServer: Docker/20.10.24+dfsg1 (linux)");
        assert_eq!(docker, (EngineDialect::Docker, "Docker 20.10.24+dfsg1".to_owned()));
        let podman = known("200 OK\r\nserver: Libpod/4.3.1 (linux)");
        assert_eq!(podman, (EngineDialect::Podman, "Podman 4.3.1".to_owned()));
        // Behind something that says nothing of itself.
        assert_eq!(known("200 OK"), (EngineDialect::Docker, "Docker".to_owned()));
        let refused = says("403 Forbidden").expect_err("refused").to_string();
        assert_eq!(refused, "the container engine could not be asked: Forbidden");
        assert!(matches!(introduced(b"SSH-2.0-OpenSSH\r\n"), Err(EngineError::Refused { .. })));
        assert!(matches!(introduced(b"HTTP/1.1 200 OK\r\nServ"), Ok(None)));
    }

    /// Something between us and an engine may keep the connection, at any request.
    #[test]
    fn who_has_said_who_it_is_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"HTTP/1.1 200 OK\r\nServer: Docker/1 (linux)\r\n\r\nOK").expect("said");
        assert_eq!(greet(ours).expect("an engine").1, "Docker 1");
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert!(matches!(greet(ours), Err(EngineError::Gone)));
    }
}
