//! A repository with a board, and beside it what no command may touch.

use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agency_tests::ground::{Ground, Said};
use agency_tests::processes::emulated;
use agency_tests::repository::Actor;
use agency_tests::tree::Tree;
use tempfile::TempDir;

/// What a secret says. It may turn up nowhere.
pub(crate) const SECRET: &str = "the-secret-of-somebody";

/// Prints what can be read from inside of a repository and of what lies outside ([`World::outside`]), links included.
pub(crate) const SHOW: &str = "find . /srv/agency-outside-* /var/tmp/agency-outside-* 2>/dev/null | \
    while read -r f; do [ -f \"$f\" ] && head -c 200 \"$f\"; done 2>&1; true";

/// Nothing a repository holds keeps a command longer, or takes more.
const LONGEST: Duration = Duration::from_secs(10);
const LARGEST_MIB: i64 = 300;

/// Every command that looks at a repository, but for those that need an agent's program.
pub(crate) const COMMANDS: &[&[&str]] = &[
    &["sandbox", "--", "sh", "-c", SHOW],
    &["sandbox", "--base", "HEAD", "--", "sh", "-c", SHOW],
    &["sandbox", "--isolation", "landlock", "--", "sh", "-c", SHOW],
    &["sandbox", "--write", "**", "--apply", "--", "sh", "-c", "echo x > src/made"],
    &["status"],
    &["lint"],
    &["task", "list"],
    &["task", "new", "--title", "One more", "--must-touch", "src/**"],
    &["trust", "--yes"],
    &["ps"],
    &["run", "--dry-run"],
    &["run"],
    &["verify", "--task", "T0001"],
    &["adopt", "--yes"],
];

pub(crate) struct World {
    pub(crate) ground: Ground,
    outside: TempDir,
}

impl World {
    /// A board with one task, committed; outside lie a secret, a folder with folders in it, and a file.
    pub(crate) fn new(actor: Actor) -> Self {
        Self::around(Ground::of(actor, &[("src/a.txt", "one\n")]))
    }

    /// The same, for a person in a group besides, an engine's for example.
    pub(crate) fn in_group(actor: Actor, group: u32) -> Self {
        Self::around(Ground::of(actor, &[("src/a.txt", "one\n")]).in_group(group))
    }

    fn around(ground: Ground) -> Self {
        // What the person configured for themselves: an agent that does nothing, once.
        let own = ground.user().join("agency");
        fs::create_dir(&own).expect("made");
        fs::write(own.join("agency.toml"), "[run]\nattempts = 1\n[agents.shell]\ncommand = [\"true\"]\n")
            .expect("written");
        ground.ok(&["init", "--orchestrator", "other", "--builders", "shell"]);
        ground.task("A task", &[]);
        ground.commit_all();
        let base = if nix::unistd::Uid::current().is_root() { "/srv" } else { "/var/tmp" };
        let outside = tempfile::Builder::new().prefix("agency-outside-").tempdir_in(base).expect("a folder");
        let world = Self { ground, outside };
        for folder in ["ssh", "home/one/deep", "home/two"] {
            fs::create_dir_all(world.outside(folder)).expect("made");
        }
        for file in ["ssh/id_rsa", "home/one/deep/file", "home/two/config", "file"] {
            fs::write(world.outside(file), SECRET).expect("written");
            fs::set_permissions(world.outside(file), fs::Permissions::from_mode(0o600)).expect("chmod");
        }
        world.give(world.outside.path());
        world.give(world.ground.user());
        world
    }

    /// Something of the same person's that is no part of the repository.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    /// A path in the repository's `.git`, with the folders on the way to it.
    pub(crate) fn git(&self, name: &str) -> PathBuf {
        let path = self.ground.path().join(".git").join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        path
    }

    /// Makes everything below a path the person's who works here.
    pub(crate) fn give(&self, path: &Path) {
        let Some((uid, gid)) = self.ground.owner() else { return };
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).expect("given");
        if path.symlink_metadata().expect("it is there").is_dir() {
            for entry in fs::read_dir(path).expect("listed").flatten() {
                self.give(&entry.path());
            }
        }
    }

    pub(crate) fn everything_outside(&self) -> Tree {
        Tree::of(self.outside.path()).expect("it can be read")
    }

    /// Runs a command, which ends soon and says nothing of the secret.
    #[track_caller]
    pub(crate) fn agency(&self, arguments: &[&str]) -> Said {
        self.bounded(arguments, || self.ground.agency(arguments))
    }

    /// The same for a command that was made otherwise.
    #[track_caller]
    pub(crate) fn bounded(&self, about: impl Debug, run: impl FnOnce() -> Said) -> Said {
        let began = Instant::now();
        let said = run();
        let took = began.elapsed();
        assert!(took < emulated(LONGEST), "{about:?} took {took:?}: {said:?}");
        assert!(!said.err.contains("panicked"), "{about:?}: {said:?}");
        assert!(!said.out.contains(SECRET) && !said.err.contains(SECRET), "{about:?}: {said:?}");
        said
    }

    /// No command so far took more memory than it may, nor anything it started.
    #[track_caller]
    pub(crate) fn assert_small(&self) {
        let children = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
        let largest = children.expect("asked").max_rss() / 1024;
        assert!(largest < LARGEST_MIB, "{largest} MiB");
    }

    /// Runs every command, whatever comes of it; nothing outside changes.
    #[track_caller]
    pub(crate) fn try_everything(&self, about: &str) {
        let before = self.everything_outside();
        for arguments in COMMANDS {
            self.agency(arguments);
            let changes = before.diff(&self.everything_outside());
            assert!(changes.is_empty(), "{about}: {arguments:?} changed: {}", changes.join("\n"));
        }
    }

    /// Every one of these commands is refused by name, and nothing changes anywhere.
    #[track_caller]
    pub(crate) fn assert_refused(&self, commands: &[&[&str]], words: &[&str]) {
        let (before, outside) = (self.ground.fingerprint(), self.everything_outside());
        for arguments in commands {
            let said = self.agency(arguments);
            assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
            said.assert_names(words);
        }
        self.ground.assert_unchanged(&before);
        assert_eq!(outside.diff(&self.everything_outside()), Vec::<String>::new());
    }
}

/// Where a link leads that is made in this place.
pub(crate) fn link(target: &Path, place: &Path) {
    let _ = fs::remove_file(place);
    std::os::unix::fs::symlink(target, place).expect("linked");
}

/// A pipe that nobody ever writes to, or another special file.
pub(crate) fn special(place: &Path, kind: rustix::fs::FileType) {
    let _ = fs::remove_file(place);
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    // A character device 0:0 is a mark of overlays, and made by anybody; 1:5 is /dev/zero.
    let device = if kind == rustix::fs::FileType::CharacterDevice { rustix::fs::makedev(1, 5) } else { 0 };
    rustix::fs::mknodat(rustix::fs::CWD, place, kind, mode, device).expect("made");
}
