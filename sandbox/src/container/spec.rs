//! What an engine is asked to make, from what a policy says.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, MountVolumeOptions,
    MountVolumeOptionsDriverConfig, ResourcesUlimits,
};

use super::caches::CacheVolume;
use super::engine::{ContainerImage, EngineDialect};
use super::{INIT_ARGUMENT, cleanup, program, rendezvous_folder};
use crate::control::Control;
use crate::host::HostUser;
use crate::landlock_level::replica::Replica;
use crate::mount_plan;
use crate::path::RelPath;
use crate::policy::{ContainerConfig, NetworkPolicy, Policy};
use crate::workspace::Workspace;
use crate::writable_directories::WritableDirectories;

/// Everything a container is made from.
#[derive(Debug)]
pub(crate) struct ContainerSpec<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) container: &'a ContainerConfig,
    pub(crate) image: &'a ContainerImage,
    pub(crate) host: &'a HostUser,
    pub(crate) workspace: &'a Workspace,
    pub(crate) opening: &'a WritableDirectories,
    pub(crate) replica: &'a Replica,
    /// The agent's user and group, on the host as inside.
    pub(crate) user: (u32, u32),
    /// Our own program.
    pub(crate) program: &'a Path,
    /// The folder with the socket at which its first process calls.
    pub(crate) door: &'a Path,
    pub(crate) caches: &'a [CacheVolume],
    pub(crate) dialect: EngineDialect,
    /// The number it is written down by.
    pub(crate) nonce: &'a str,
}

/// The folders of git objects that the copy borrows from, in a container, by number. They can't be where they are on the
/// host: the copy may lie over that.
pub(crate) const OBJECTS: &str = "/.agency/objects";

/// Where the folder of git objects with this number is in a container.
fn objects_path(index: usize) -> PathBuf {
    Path::new(OBJECTS).join(index.to_string())
}

/// What a command finds in its environment: what its image says, and over that what the policy does.
pub(crate) fn environment(
    policy: &Policy,
    image: &ContainerImage,
    caches: &[CacheVolume],
) -> Vec<(OsString, OsString)> {
    const USUAL: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut all: Vec<(OsString, OsString)> = policy.environment.clone();
    for cache in
        caches.iter().filter(|cache| !policy.environment.iter().any(|(name, _)| name == cache.variable))
    {
        all.push((cache.variable.into(), cache.target.clone().into_os_string()));
    }
    let images = image.environment.iter().map(|(name, value)| (name.into(), value.into()));
    for (name, value) in images.chain([("PATH".into(), USUAL.into())]) {
        if !all.iter().any(|(known, _)| *known == name) {
            all.push((name, value));
        }
    }
    all.sort();
    all
}

/// Whether folders of the host are mounted as they are. A socket in one can be talked to however read-only the mount is,
/// and Landlock has no word on it; files alone have none in them.
pub(crate) fn shows_folders(policy: &Policy) -> bool {
    !policy.folders.is_empty() || policy.read.iter().any(|path| path.is_dir())
}

impl ContainerSpec<'_> {
    /// The whole of it; or a path that an engine can't be told, because it is spoken to in JSON.
    pub(crate) fn body(&self) -> Result<ContainerCreateBody, PathBuf> {
        let (uid, gid) = self.user;
        let mut labels: HashMap<String, String> = self.container.labels.iter().cloned().collect();
        labels.insert(cleanup::OWNER.to_owned(), cleanup::owner_label());
        labels.insert(cleanup::NONCE.to_owned(), self.nonce.to_owned());
        Ok(ContainerCreateBody {
            image: Some(self.image.id.clone()),
            entrypoint: Some(vec![text(&program())?, INIT_ARGUMENT.to_owned()]),
            cmd: Some(Vec::new()),
            user: Some(format!("{uid}:{gid}")),
            hostname: self.policy.requires(Control::UtsNamespace).then(|| "agency".to_owned()),
            working_dir: Some("/".to_owned()),
            // A program that an image runs beside us would run without our filter.
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            labels: Some(labels),
            host_config: Some(self.held()?),
            ..ContainerCreateBody::default()
        })
    }

    fn held(&self) -> Result<HostConfig, PathBuf> {
        let policy = self.policy;
        let shared = |control| (!policy.requires(control)).then(|| "host".to_owned());
        let limit = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        let memory = policy.limits.memory.bytes().filter(|_| policy.requires(Control::Memory)).map(limit);
        let mut security = Vec::new();
        if policy.requires(Control::NoNewPrivileges) {
            security.push("no-new-privileges:true".to_owned());
        }
        if !policy.requires(Control::Seccomp) {
            security.push("seccomp=unconfined".to_owned());
        }
        Ok(HostConfig {
            auto_remove: Some(true),
            mounts: Some(
                self.mounts()
                    .iter()
                    .map(BindMount::spoken)
                    .chain(self.caches.iter().map(volume))
                    .collect::<Result<_, _>>()?,
            ),
            tmpfs: Some(self.in_memory()?),
            readonly_rootfs: Some(policy.requires(Control::ReadOnlyHost)),
            cap_drop: policy.requires(Control::Capabilities).then(|| vec!["ALL".to_owned()]),
            security_opt: Some(security),
            network_mode: Some(self.network().to_owned()),
            ipc_mode: shared(Control::IpcNamespace).or(Some("private".to_owned())),
            pid_mode: shared(Control::PidNamespace),
            uts_mode: shared(Control::UtsNamespace),
            cgroupns_mode: Some(match policy.requires(Control::CgroupNamespace) {
                true => HostConfigCgroupnsModeEnum::PRIVATE,
                false => HostConfigCgroupnsModeEnum::HOST,
            }),
            memory,
            // Swap would only move the problem.
            memory_swap: memory,
            pids_limit: policy.limits.processes.filter(|_| policy.requires(Control::Processes)).map(limit),
            nano_cpus: self.container.milli_cpus.map(|milli| limit(milli.saturating_mul(1_000_000))),
            // One, and not none: see where the agent sets its own.
            ulimits: policy.requires(Control::CoreDumps).then(|| {
                vec![ResourcesUlimits { name: Some("core".to_owned()), soft: Some(1), hard: Some(1) }]
            }),
            shm_size: Some(limit(policy.limits.tmp_size)),
            // What it writes goes past the engine.
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            privileged: Some(false),
            init: Some(false),
            ..HostConfig::default()
        })
    }

    /// A list of hosts is reached from a network with nothing in it, through sockets that are handed out.
    fn network(&self) -> &'static str {
        match &self.policy.network {
            _ if !self.policy.requires(Control::Network) => "host",
            NetworkPolicy::None | NetworkPolicy::Hosts(_) => "none",
            NetworkPolicy::Full => "bridge",
        }
    }

    fn mounts(&self) -> Vec<BindMount> {
        let (policy, workspace, replica) = (self.policy, self.workspace, self.replica);
        let mut mounts =
            vec![bind(self.program, &program(), true), bind(self.door, &rendezvous_folder(), true)];
        mounts.extend(
            replica
                .objects
                .iter()
                .enumerate()
                .map(|(index, objects)| bind(objects, &objects_path(index), true)),
        );
        mounts.extend(policy.read.iter().map(|path| bind(path, path, true)));
        for folder in &policy.folders {
            mounts.push(bind(&folder.source, &folder.target, false));
            let seen =
                |path: &RelPath| (folder.source.join(path.as_path()), folder.target.join(path.as_path()));
            for pinned in pinned(&folder.protect) {
                let (source, target) = seen(&pinned);
                mounts.push(bind(&source, &target, false));
            }
            mounts
                .extend(folder.protect.iter().map(seen).map(|(source, target)| bind(&source, &target, true)));
        }
        // The copy as a whole, and over it what is open and, in that, what is not.
        let opened = workspace.writable(self.opening, &policy.scope);
        let is_open = |path: &Path| opened.iter().any(|open| open == path);
        mounts.push(bind(&replica.tree, &workspace.path, !is_open(&workspace.path)));
        let inside_of = |open: &PathBuf| open.strip_prefix(&workspace.path).ok().map(Path::to_owned);
        let open = opened.iter().filter_map(inside_of).filter(|inside| !inside.as_os_str().is_empty());
        let pinned = pinned(&self.opening.close).into_iter().map(|path| path.as_path().to_owned());
        let pinned = pinned.filter(|inside| {
            let target = workspace.path.join(inside);
            opened.iter().any(|open| target.starts_with(open)) && !is_open(&target)
        });
        let closed = self.opening.close.iter().map(|path| (path.as_path().to_owned(), true));
        let ways = open.chain(pinned).map(|inside| (inside, false)).chain(closed);
        for (inside, read_only) in ways.filter(|(inside, _)| replica.has_directory(inside)) {
            mounts.push(bind(&replica.tree.join(&inside), &workspace.path.join(&inside), read_only));
        }
        if let (Some(repository), Some(overlay)) = (&replica.repository, workspace.overlays.get(1)) {
            mounts.push(bind(repository, &overlay.at, false));
        }
        if let Some(outbox) = &workspace.outbox {
            mounts.push(bind(&outbox.source, &outbox.at, false));
        }
        mounts
    }

    /// Folders in memory: the agent's own, and each folder that an image would keep in a volume.
    fn in_memory(&self) -> Result<HashMap<String, String>, PathBuf> {
        let (policy, (uid, gid)) = (self.policy, self.user);
        let sized = policy.requires(Control::TmpSize);
        let size = if sized { format!("size={},", policy.limits.tmp_size) } else { String::new() };
        let folder = |mode: &str, whose: &str| format!("rw,exec,nosuid,nodev,{size}mode={mode}{whose}");
        let (own, everybodys) = match self.dialect {
            // A folder that an image has keeps the image's mode, so it must be the agent's to be of use to it.
            EngineDialect::Docker => {
                let agents = format!(",uid={uid},gid={gid}");
                (folder("0700", &agents), folder("1777", &agents))
            }
            // It changes no folder's owner, and lets folders have their modes.
            EngineDialect::Podman => (folder("1777", ""), folder("1777", "")),
        };
        let mut folders: HashMap<String, String> =
            self.image.volumes.iter().map(|volume| (volume.clone(), own.clone())).collect();
        if policy.requires(Control::PrivateTmp) {
            folders.extend(["/tmp", "/var/tmp"].map(|path| (path.to_owned(), everybodys.clone())));
        }
        if !sized {
            // The engine's own would have a size of its choosing.
            folders.insert("/dev/shm".to_owned(), everybodys);
        }
        if policy.requires(Control::PrivateHome) {
            // A program keeps its own files beside what it may read there.
            let leading = mount_plan::leading_to_read(policy, self.host, &[]);
            for path in leading.iter().map(PathBuf::as_path).chain([self.host.home.as_path()]) {
                folders.insert(text(path)?, own.clone());
            }
        }
        Ok(folders)
    }
}

/// The directories that lead to protected ones. Renaming one would carry the mounts in it along and leave the name free to
/// be rebuilt; one that is a mount itself can't be renamed.
fn pinned(protected: &[RelPath]) -> BTreeSet<RelPath> {
    let is_protected = |path: &RelPath| protected.iter().any(|one| path.as_path().starts_with(one.as_path()));
    let above = protected.iter().flat_map(RelPath::ancestors);
    above.filter(|path| !path.is_root() && !is_protected(path)).collect()
}

/// Something of the host, and where it is seen.
struct BindMount {
    source: PathBuf,
    target: PathBuf,
    read_only: bool,
}

fn bind(source: &Path, target: &Path, read_only: bool) -> BindMount {
    BindMount { source: source.to_owned(), target: target.to_owned(), read_only }
}

impl BindMount {
    fn spoken(&self) -> Result<Mount, PathBuf> {
        Ok(Mount {
            target: Some(text(&self.target)?),
            source: Some(text(&self.source)?),
            typ: Some(MountType::BIND),
            read_only: Some(self.read_only),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        })
    }
}

/// A volume with a name, whose files are ours to keep.
fn volume(cache: &CacheVolume) -> Result<Mount, PathBuf> {
    let options = [("type", "none".to_owned()), ("o", "bind".to_owned()), ("device", text(&cache.folder)?)];
    let driver = MountVolumeOptionsDriverConfig {
        name: Some("local".to_owned()),
        options: Some(options.map(|(name, value)| (name.to_owned(), value)).into()),
    };
    Ok(Mount {
        target: Some(text(&cache.target)?),
        source: Some(cache.volume.clone()),
        typ: Some(MountType::VOLUME),
        read_only: Some(false),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            driver_config: Some(driver),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    })
}

fn text(path: &Path) -> Result<String, PathBuf> {
    path.to_str().map(str::to_owned).ok_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_leads_to_something_protected_is_pinned_once_and_nothing_in_it() {
        let paths = |texts: &[&str]| -> Vec<RelPath> {
            texts.iter().map(|text| RelPath::parse(text.as_bytes()).expect("a path")).collect()
        };
        let found: Vec<RelPath> = pinned(&paths(&["a/b/c", "a/b/d", "e", "e/f/g"])).into_iter().collect();
        assert_eq!(found, paths(&["a", "a/b"]));
    }
}
