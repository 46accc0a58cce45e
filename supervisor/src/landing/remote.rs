//! Where a branch is shared: its upstream, asked and told.
//!
//! Git runs in a repository of our own here as everywhere ([`super::repository`]): no hook, and no setting of the
//! repository's. But it is a person who is known elsewhere, by their own configuration, agent and helpers; so the
//! person's and the machine's configuration are read, and the few variables that lead to credentials are passed on.
//! Of the repository only two things are believed: which branch is the upstream, and at which address.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use agency_sandbox::git::output_within;
use agency_sandbox::path::escape;

use super::error::Error;
use super::names::{Oid, RefName};
use super::refs::{self, Line};
use super::repository::Repository;

/// Nobody who shares a branch takes longer to answer. Others wait for our locks meanwhile.
const LONGEST: Duration = Duration::from_secs(60);

/// Ways to a remote that can't be used to run something here.
const PROTOCOLS: &str = "file:git:http:https:ssh";

/// What leads to a person's credentials, and to the network.
const PASSED_ON: [&str; 17] = [
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "GIT_ASKPASS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_SSL_NO_VERIFY",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
];

/// Where a branch is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// `origin`
    pub remote: String,
    /// The branch there.
    pub branch: RefName,
    url: String,
    push_url: String,
    /// What the person's git remembers of it.
    tracking: Option<RefName>,
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.branch.as_str();
        write!(f, "{}/{}", self.remote, name.strip_prefix("refs/heads/").unwrap_or(name))
    }
}

/// What came of telling it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    Taken,
    /// Somebody else was faster: it is somewhere we do not know.
    Behind,
}

/// The upstream of a branch, if it has one.
pub fn upstream(repository: &Repository, branch: &RefName) -> Option<Upstream> {
    let name = branch.as_str().strip_prefix("refs/heads/")?;
    let says = |key: String| repository.settings.text(&key).map(str::to_owned);
    let remote = says(format!("branch.{name}.remote")).filter(|remote| remote != ".")?;
    let there = RefName::parse(&says(format!("branch.{name}.merge"))?).ok()?;
    let url = address(repository, &says(format!("remote.{remote}.url"))?);
    let push_url = says(format!("remote.{remote}.pushurl")).map(|url| address(repository, &url));
    let short = there.as_str().strip_prefix("refs/heads/")?;
    let tracking = RefName::parse(&format!("refs/remotes/{remote}/{short}")).ok();
    Some(Upstream { push_url: push_url.unwrap_or_else(|| url.clone()), remote, branch: there, url, tracking })
}

/// A path is seen from the work tree.
fn address(repository: &Repository, url: &str) -> String {
    let is_elsewhere = url.contains("://") || url.split('/').next().is_some_and(|first| first.contains(':'));
    let root: PathBuf = repository.root.clone().unwrap_or_else(|| repository.real.common.clone());
    match is_elsewhere || Path::new(url).is_absolute() {
        true => url.to_owned(),
        false => root.join(url).to_string_lossy().into_owned(),
    }
}

/// Whether an address leads back into the repository. Git would run the hooks it finds there, and those are the
/// repository's own.
fn is_inside(repository: &Repository, url: &str) -> bool {
    let path = Path::new(url.strip_prefix("file://").unwrap_or(url));
    let Ok(real) = path.canonicalize() else { return false };
    let places = repository.root.iter().chain([&repository.real.common]);
    places.filter_map(|place| place.canonicalize().ok()).any(|place| real.starts_with(place))
}

impl Upstream {
    /// Where we remember it.
    fn remembered(&self) -> Result<RefName, Error> {
        let name = self.branch.as_str();
        RefName::parse(&format!("refs/agency/upstream/{}", name.strip_prefix("refs/heads/").unwrap_or(name)))
    }
}

/// Where the upstream is now; `None` if there is no such branch yet.
pub fn fetch(repository: &Repository, upstream: &Upstream) -> Result<Option<Oid>, Error> {
    const DOING: &str = "fetch from";
    const TRIES: usize = 5;
    let remembered = upstream.remembered()?;
    let mut tries = 0;
    let output = loop {
        let output = fetch_once(repository, upstream, &remembered, DOING)?;
        tries += 1;
        // Another process of ours remembers it at the same time.
        let raced = String::from_utf8_lossy(&output.stderr).contains("cannot lock ref");
        if !raced || tries == TRIES {
            break output;
        }
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return match said.contains("couldn't find remote ref") {
            true => Ok(None),
            false => Err(failed(DOING, upstream, &said)),
        };
    }
    let at = refs::at(repository, &remembered)?;
    if let Some(at) = &at {
        remember(repository, upstream, at);
    }
    Ok(at)
}

fn fetch_once(
    repository: &Repository,
    upstream: &Upstream,
    remembered: &RefName,
    doing: &'static str,
) -> Result<Output, Error> {
    let mut command =
        known_elsewhere(repository, &["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"]);
    command.args(["--no-recurse-submodules", "--no-auto-maintenance", "--"]).arg(&upstream.url);
    command.arg(format!("+{}:{}", upstream.branch.as_str(), remembered.as_str()));
    run(repository, command, doing, upstream)
}

/// Takes a commit there, if the branch goes on with it.
pub fn push(repository: &Repository, upstream: &Upstream, commit: &Oid) -> Result<Pushed, Error> {
    const DOING: &str = "push to";
    let mut command = known_elsewhere(repository, &["push", "--porcelain", "--no-verify", "--no-signed"]);
    command.args(["--no-follow-tags", "--recurse-submodules=no", "--"]).arg(&upstream.push_url);
    command.arg(format!("{commit}:{}", upstream.branch.as_str()));
    let output = run(repository, command, DOING, upstream)?;
    if output.status.success() {
        return Ok(Pushed::Taken);
    }
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    let refusal = answer.lines().find(|line| line.starts_with('!')).unwrap_or_default();
    // A server that was asked by two at once lets one of them lock the branch.
    let raced =
        ["cannot lock ref", "failed to update ref", "incorrect old value", "fetch first", "non-fast-forward"];
    match refusal.contains("[rejected]") || raced.iter().any(|word| refusal.contains(word)) {
        true => Ok(Pushed::Behind),
        false if !refusal.is_empty() => Err(failed(DOING, upstream, refusal)),
        false => Err(failed(DOING, upstream, &String::from_utf8_lossy(&output.stderr))),
    }
}

/// What a person's `git status` compares with. If it can't be moved, theirs is old, as it often is. Not while
/// references are locked: it would wait for itself.
pub fn remember(repository: &Repository, upstream: &Upstream, at: &Oid) {
    let Some(name) = &upstream.tracking else { return };
    if let Ok(Some(from)) = refs::at(repository, name)
        && from != *at
    {
        let _ = refs::transact(
            repository,
            &[Line::Update { name: name.clone(), from: Some(from), to: at.clone() }],
        );
    }
}

/// Git with the real references, the real objects, and a person's own configuration.
fn known_elsewhere(repository: &Repository, arguments: &[&str]) -> Command {
    // What it finds to clear away it may not: it does not see everything that is in use.
    let quiet = ["-c", "maintenance.auto=false", "-c", "gc.auto=0", "-c", "fetch.writeCommitGraph=false"];
    let mut command = repository.refs.command(quiet.iter().chain(arguments));
    for name in ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", repository.home().unwrap_or(Path::new("/nonexistent")));
    command.env("GIT_ALLOW_PROTOCOL", PROTOCOLS);
    command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Runs it to its end, or to the end of our patience.
fn run(
    repository: &Repository,
    mut command: Command,
    doing: &'static str,
    upstream: &Upstream,
) -> Result<Output, Error> {
    if [&upstream.url, &upstream.push_url].into_iter().any(|url| is_inside(repository, url)) {
        let why = "it lies in this very repository, whose hooks would be run";
        return Err(failed(doing, upstream, why));
    }
    let odd = |error: std::io::Error| failed(doing, upstream, &error.to_string());
    let output = output_within(&mut command, LONGEST).map_err(odd)?;
    output.ok_or_else(|| failed(doing, upstream, &format!("there was no answer for {} s", LONGEST.as_secs())))
}

fn failed(doing: &'static str, upstream: &Upstream, said: &str) -> Error {
    let said: Vec<String> = said.lines().map(|line| escape(line.trim().as_bytes())).collect();
    let said = said.into_iter().filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join("; ");
    Error::Remote { doing, remote: upstream.to_string(), message: said }
}
