//! The upstream of a branch: fetches from it and pushes to it.
//!
//! Git runs in a repository of our own here, too ([`super::repository`]): without hooks, and without the repository's
//! settings. But the server knows a person, by their own configuration, agent and credential helpers. So git reads the
//! person's and the machine's configuration, and gets the few variables that lead to credentials. We read only two
//! things from the repository: which branch is the upstream, and its address. Git connects only to an address that a
//! person trusts ([`TrustedUpstreams`]): a repository could otherwise name any address, and for a repository on this
//! machine git runs that repository's hooks as the person who pushes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use agency_sandbox::git::{BoundedOutput, CommandBounds, output_within};
use agency_sandbox::path::escape;
use sha2::{Digest, Sha256};

use super::error::Error;
use super::names::{Oid, RefName};
use super::refs::{self, RefCommand};
use super::repository::LandingRepository;

/// Bounds on time and output of an upstream. Other processes wait for our locks meanwhile.
const BOUNDS: CommandBounds = CommandBounds { time: Duration::from_secs(60), output: 8 << 20, memory: None };

/// Protocols by which a repository can't make git run a program here.
const PROTOCOLS: &str = "file:git:http:https:ssh";

/// Variables that lead to a person's credentials, and to the network.
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

/// The upstream of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// `origin`
    pub remote: String,
    /// The branch there.
    pub branch: RefName,
    url: String,
    push_url: String,
    /// The person's remote-tracking branch.
    tracking: Option<RefName>,
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.branch.as_str();
        write!(f, "{}/{}", self.remote, name.strip_prefix("refs/heads/").unwrap_or(name))
    }
}

/// The addresses that a person trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedUpstreams {
    /// Hashes of trusted addresses, see [`Upstream::hashes`].
    pub named: BTreeSet<String>,
    /// Whether every address in the network is trusted. Paths of this machine are only ever trusted by name.
    pub network: bool,
}

impl Upstream {
    /// The addresses for fetching and pushing.
    fn addresses(&self) -> BTreeSet<&str> {
        [self.url.as_str(), self.push_url.as_str()].into()
    }

    /// Hashes of the addresses, which show no token that an address may contain.
    pub fn hashes(&self) -> BTreeSet<String> {
        self.addresses().into_iter().map(hash).collect()
    }

    /// Its addresses, for a person to read: what stands before an `@` may be a token.
    pub fn display_addresses(&self) -> String {
        self.addresses().into_iter().map(without_credentials).collect::<Vec<_>>().join(" and ")
    }

    /// Whether one of its addresses is a path of this machine.
    pub fn is_local(&self) -> bool {
        self.addresses().into_iter().any(is_local)
    }

    /// Whether a person named every address of it.
    pub fn is_named(&self, address: &str) -> bool {
        self.addresses().into_iter().all(|known| known == address)
    }

    /// Why it may not be used.
    pub fn check(&self, trusted: &TrustedUpstreams) -> Result<(), String> {
        let is_trusted =
            |address: &str| trusted.named.contains(&hash(address)) || (trusted.network && !is_local(address));
        match self.addresses().into_iter().find(|address| !is_trusted(address)) {
            None => Ok(()),
            Some(address) => {
                let shown = without_credentials(address);
                let how = match is_local(address) {
                    true => format!("`agency trust --upstream {shown}`"),
                    false => "`agency trust` shows it to you".to_owned(),
                };
                Err(format!("{self} is at {shown}, which is not trusted; {how}"))
            }
        }
    }
}

fn hash(address: &str) -> String {
    Sha256::digest(address).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an address is a path: git takes an address without a scheme, and without a colon before the first slash, for
/// one.
fn is_local(address: &str) -> bool {
    let has_host = address.split('/').next().is_some_and(|first| first.contains(':'));
    address.starts_with("file:") || !(address.contains("://") || has_host)
}

fn without_credentials(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
            let host = host.rsplit('@').next().unwrap_or_default();
            escape(format!("{scheme}://{host}/{path}").as_bytes())
        }
        None => escape(address.as_bytes()),
    }
}

/// The outcome of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushResult {
    Taken,
    /// The upstream has commits that we do not have.
    Behind,
    /// Another client has locked the branch there: it pushes, or was killed and left this file.
    Locked {
        file: String,
    },
}

/// The upstream of a branch, if it has one.
pub fn upstream(repository: &LandingRepository, branch: &RefName) -> Option<Upstream> {
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

/// Makes a relative path absolute, from the work tree.
fn address(repository: &LandingRepository, url: &str) -> String {
    let root: PathBuf = repository.root.clone().unwrap_or_else(|| repository.real.common.clone());
    match !is_local(url) || url.starts_with("file:") || Path::new(url).is_absolute() {
        true => url.to_owned(),
        false => root.join(url).to_string_lossy().into_owned(),
    }
}

/// Whether an address leads back into the repository. Git would run the hooks it finds there, and those are the
/// repository's own.
fn is_inside(repository: &LandingRepository, url: &str) -> bool {
    if !is_local(url) {
        return false;
    }
    let url = url.strip_prefix("file://").unwrap_or(url);
    let places = repository.root.iter().chain([&repository.real.common]);
    let places: Vec<PathBuf> = places.filter_map(|place| place.canonicalize().ok()).collect();
    // Git tries these in turn.
    ["", ".git", "/.git", ".git/.git"].iter().any(|end| {
        let real = Path::new(&format!("{url}{end}")).canonicalize();
        real.is_ok_and(|real| places.iter().any(|place| real.starts_with(place)))
    })
}

impl Upstream {
    /// The reference in which we keep its last known value.
    fn remembered(&self) -> Result<RefName, Error> {
        let name = self.branch.as_str();
        RefName::parse(&format!("refs/agency/upstream/{}", name.strip_prefix("refs/heads/").unwrap_or(name)))
    }
}

/// Fetches the upstream, and returns its commit; `None` if the branch does not exist yet.
pub fn fetch(repository: &LandingRepository, upstream: &Upstream) -> Result<Option<Oid>, Error> {
    const DOING: &str = "fetch from";
    const TRIES: usize = 5;
    let remembered = upstream.remembered()?;
    let mut tries = 0;
    let output = loop {
        let output = fetch_once(repository, upstream, &remembered, DOING)?;
        tries += 1;
        // Another process of ours updates the same reference at the same time.
        let raced = String::from_utf8_lossy(&output.stderr).contains("cannot lock ref");
        if !raced || tries == TRIES {
            break output;
        }
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return match said.contains("couldn't find remote ref") {
            true => Ok(None),
            false => Err(unreachable(DOING, upstream, &said)),
        };
    }
    let at = refs::at(repository, &remembered)?;
    if let Some(at) = &at {
        remember(repository, upstream, at);
    }
    Ok(at)
}

/// The commit of the upstream at the last fetch or push.
pub fn last_seen(repository: &LandingRepository, upstream: &Upstream) -> Result<Option<Oid>, Error> {
    refs::at(repository, &upstream.remembered()?)
}

fn fetch_once(
    repository: &LandingRepository,
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

/// Pushes a commit, if it is a fast-forward for the upstream.
pub fn push(repository: &LandingRepository, upstream: &Upstream, commit: &Oid) -> Result<PushResult, Error> {
    const DOING: &str = "push to";
    let mut command = known_elsewhere(repository, &["push", "--porcelain", "--no-verify", "--no-signed"]);
    command.args(["--no-follow-tags", "--recurse-submodules=no", "--"]).arg(&upstream.push_url);
    command.arg(format!("{commit}:{}", upstream.branch.as_str()));
    let output = run(repository, command, DOING, upstream)?;
    if output.status.success() {
        return Ok(PushResult::Taken);
    }
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    let refusal = answer.lines().find(|line| line.starts_with('!')).unwrap_or_default();
    // When two clients push at the same time, the server lets one of them lock the branch.
    let raced =
        ["cannot lock ref", "failed to update ref", "incorrect old value", "fetch first", "non-fast-forward"];
    if let Some(file) = lock_file(&String::from_utf8_lossy(&output.stderr)) {
        return Ok(PushResult::Locked { file });
    }
    match refusal.contains("[rejected]") || raced.iter().any(|word| refusal.contains(word)) {
        true => Ok(PushResult::Behind),
        false if !refusal.is_empty() => Err(failed(DOING, upstream, refusal)),
        false => Err(unreachable(DOING, upstream, &String::from_utf8_lossy(&output.stderr))),
    }
}

/// The lock that kept the upstream from moving its branch, as its git names it.
fn lock_file(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.contains("cannot lock ref") && line.contains("File exists"))?;
    let (_, rest) = line.split_once("Unable to create '")?;
    rest.split_once("': File exists").map(|(file, _)| file.to_owned())
}

/// Updates the remote-tracking branch, with which a person's `git status` compares. If that fails, the branch is out of
/// date, as it often is. Not to be called while references are locked: it would wait for itself.
pub fn remember(repository: &LandingRepository, upstream: &Upstream, at: &Oid) {
    let Some(name) = &upstream.tracking else { return };
    if let Ok(Some(from)) = refs::at(repository, name)
        && from != *at
    {
        let _ = refs::transact(
            repository,
            &[RefCommand::Update { name: name.clone(), from: Some(from), to: at.clone() }],
        );
    }
}

/// Git with the real references, the real objects, and a person's own configuration.
fn known_elsewhere(repository: &LandingRepository, arguments: &[&str]) -> Command {
    // Git must not run maintenance here: it does not see every object that is in use.
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

/// Runs git until it ends, or until the time is over.
fn run(
    repository: &LandingRepository,
    mut command: Command,
    doing: &'static str,
    upstream: &Upstream,
) -> Result<Output, Error> {
    if [&upstream.url, &upstream.push_url].into_iter().any(|url| is_inside(repository, url)) {
        let why = "it lies in this very repository, whose hooks would be run";
        return Err(failed(doing, upstream, why));
    }
    let odd = |error: std::io::Error| failed(doing, upstream, &error.to_string());
    match output_within(&mut command, BOUNDS).map_err(odd)? {
        BoundedOutput::Ended(output) => Ok(output),
        BoundedOutput::TooLong => {
            Err(unreachable(doing, upstream, &format!("it was asked for {} s", BOUNDS.time.as_secs())))
        }
        BoundedOutput::TooMuch => Err(failed(doing, upstream, "its answer does not end")),
    }
}

/// The error of an upstream that answered and refused, or that is not asked at all.
fn failed(doing: &'static str, upstream: &Upstream, said: &str) -> Error {
    Error::Remote { doing, remote: upstream.to_string(), message: in_short(said) }
}

/// The error of an upstream that did not answer. Git reports the same for an address that never existed.
fn unreachable(doing: &'static str, upstream: &Upstream, said: &str) -> Error {
    Error::Unreachable { doing, remote: upstream.to_string(), message: in_short(said) }
}

fn in_short(said: &str) -> String {
    let said: Vec<String> = said.lines().map(|line| escape(line.trim().as_bytes())).collect();
    said.into_iter().filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(url: &str, push_url: &str) -> Upstream {
        let branch = RefName::branch("main").expect("a branch");
        let (remote, url, push_url) = ("origin".to_owned(), url.to_owned(), push_url.to_owned());
        Upstream { remote, branch, url, push_url, tracking: None }
    }

    #[test]
    fn an_address_in_the_network_is_told_from_a_path() {
        for local in ["/srv/x.git", "../x", "x", "file:///srv/x", "./a:b", "file:x"] {
            assert!(is_local(local), "{local}");
        }
        for remote in ["https://host/x", "ssh://me@host/x", "me@host:x", "host:x/y", "git://host/x"] {
            assert!(!is_local(remote), "{remote}");
        }
    }

    #[test]
    fn only_what_a_person_trusts_is_used_and_a_path_only_by_its_name() {
        let (web, path) = (upstream("https://h/x", "https://h/x"), upstream("/srv/x", "/srv/x"));
        let mixed = upstream("https://h/x", "/srv/x");
        let (none, network) =
            (TrustedUpstreams::default(), TrustedUpstreams { network: true, ..TrustedUpstreams::default() });
        let named = TrustedUpstreams { named: path.hashes(), network: true };
        assert!(web.check(&none).is_err() && web.check(&network).is_ok());
        assert!(path.check(&network).is_err() && path.check(&named).is_ok());
        assert!(mixed.check(&network).is_err() && mixed.check(&named).is_ok());
    }

    #[test]
    fn a_token_is_not_shown() {
        let told = upstream("https://me:t0ken@host/x", "https://me:t0ken@host/x");
        let refused = told.check(&TrustedUpstreams::default()).expect_err("refused");
        assert!(!refused.contains("t0ken") && refused.contains("https://host/x"), "{refused}");
        assert_eq!(told.display_addresses(), "https://host/x");
        assert!(!told.hashes().iter().any(|hash| hash.contains("t0ken")));
    }
}
