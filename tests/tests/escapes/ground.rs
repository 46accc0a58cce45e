//! Where attacks are let loose: a home with a repository in it, and beside it what nobody may touch.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agency_tests::adversary::{self, copy_program};
use agency_tests::engine::Engine;
use agency_tests::processes::wait_until;
use agency_tests::tree::Tree;
use agency_tests::user::TestUser;
use nix::unistd::Uid;

use crate::run::{Ended, Sandbox};
use crate::{bare, contained};

/// Far more than anything here takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Who runs `agency`, and at which level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    Root,
    User,
    BareRoot,
    BareUser,
    ContainedRoot,
    ContainedUser,
}

impl Actor {
    /// Runs one part of a test. Who is not root can't be root.
    pub(crate) fn carry_out(self, name: &str, test: fn(Actor)) {
        if self.is_root() && !Uid::current().is_root() {
            return;
        }
        if self.is_bare() && bare::is_another_matter(name, self) {
            return;
        }
        if self.is_contained() && contained::is_another_matter(name) {
            return;
        }
        test(self);
    }

    pub(crate) fn is_root(self) -> bool {
        matches!(self, Actor::Root | Actor::BareRoot | Actor::ContainedRoot)
    }

    /// At the level `landlock`, without namespaces.
    pub(crate) fn is_bare(self) -> bool {
        matches!(self, Actor::BareRoot | Actor::BareUser)
    }

    /// At the level `container`.
    pub(crate) fn is_contained(self) -> bool {
        matches!(self, Actor::ContainedRoot | Actor::ContainedUser)
    }

    /// Controls to switch off so that the host's processes are in sight. An engine mounts a /proc that fits whatever
    /// namespace there is; where we mount it ourselves, the host's comes along, which can be written.
    pub(crate) fn seeing_processes(self) -> &'static [&'static str] {
        let all = &["pid-namespace", "private-proc", "read-only-host"];
        if self.is_contained() { &all[..2] } else { all }
    }

    /// Controls to switch off so that an agent is as strong as its caller. A user can't do without a user
    /// namespace; root's is what makes the agent nobody, and limits on processes are counted in it.
    pub(crate) fn off(self, controls: &[&'static str]) -> Vec<&'static str> {
        let mut controls = controls.to_vec();
        if self.is_root() {
            controls.extend(["user-namespace", "processes"]);
        }
        controls
    }
}

/// What a test may destroy:
///
/// ```text
/// bin/                 agency, adversary
/// state/               what runs keep
/// home/repo/           the workspace: src/ (usually the scope), docs/, README.md, .git/
/// home/outside/        what no attack may reach
/// home/.ssh/id_rsa
/// ```
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) actor: Actor,
    user: Option<TestUser>,
    _temporary: Option<tempfile::TempDir>,
    base: PathBuf,
    /// Where containers come from, and what of.
    engine: Option<(Engine, String)>,
}

/// Longer than what an attack writes, so that a change in the middle shows.
pub(crate) const CONTENT: &str = "content that is longer than what an attack writes\n";

const DIRECTORIES: &[&str] = &[
    "bin",
    "state",
    "home/.ssh",
    "home/repo/src/inner/secrets",
    "home/repo/docs",
    "home/outside/dir/deeper",
    "home/outside/target",
    "home/outside/empty",
    "home/outside/git/objects/ab",
    "home/outside/git/refs/heads",
];

const FILES: &[&str] = &[
    "home/.ssh/id_rsa",
    "home/repo/README.md",
    "home/repo/src/main.rs",
    "home/repo/src/inner/mod.rs",
    "home/repo/src/inner/secrets/key",
    "home/repo/docs/guide.md",
    "home/outside/file",
    "home/outside/other",
    "home/outside/dir/deeper/protected",
    "home/outside/git/objects/ab/cdef",
    "home/outside/git/refs/heads/main",
    "home/outside/git/HEAD",
];

impl Ground {
    pub(crate) fn new(actor: Actor) -> Self {
        let ground = Self::without_repository(actor);
        ground.git(&["init", "--quiet", "--initial-branch=main"]);
        ground.git(&["add", "--all"]);
        ground.git(&["commit", "--quiet", "--message=base"]);
        // The first run makes its folder of state; what is compared later has it already. For containers it is the same
        // one, and made by the quicker level.
        let first = match actor.is_contained() {
            true => ground.command(ground.bin().join("agency")).args(["sandbox", "--", "true"]).output(),
            false => ground.sandbox().command("true").output(),
        }
        .expect("agency starts");
        assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
        ground
    }

    /// The same, with a plain folder for a workspace.
    pub(crate) fn without_repository(actor: Actor) -> Self {
        let (user, temporary) = match actor {
            Actor::User | Actor::BareUser | Actor::ContainedUser => {
                (Some(TestUser::new().expect("a user")), None)
            }
            Actor::Root | Actor::BareRoot | Actor::ContainedRoot => {
                (None, Some(tempfile::Builder::new().prefix("agency-root-").tempdir().expect("a folder")))
            }
        };
        let base = user.as_ref().map(TestUser::home).or(temporary.as_ref().map(tempfile::TempDir::path));
        let base = base.expect("one of them").to_owned();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).expect("opened");
        for directory in DIRECTORIES {
            fs::create_dir_all(base.join(directory)).expect("made");
        }
        for file in FILES {
            fs::write(base.join(file), CONTENT).expect("written");
        }
        fs::write(base.join("home/outside/git/config"), "[core]\n\tbare = false\n").expect("written");
        for program in [adversary::agency(), adversary::binary()] {
            let installed = base.join("bin").join(program.file_name().expect("a name"));
            // One file for all tests where the filesystem allows it.
            if fs::hard_link(&program, &installed).is_err() {
                copy_program(&program, &installed).expect("installed");
            }
        }
        let engine = actor.is_contained().then(|| Engine::find().expect("an engine"));
        let engine = engine.map(|engine| (engine.clone(), engine.image()));
        let ground = Self { actor, user, _temporary: temporary, base, engine };
        ground.give(&ground.home());
        ground.give(&ground.base.join("state"));
        ground
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.base.join("bin")
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.base.join("home/repo")
    }

    /// A path in the workspace, as the agent names it: where it is a copy, by where it stands.
    pub(crate) fn inside(&self, name: &str) -> OsString {
        if self.actor.is_bare() { name.into() } else { self.real(name) }
    }

    /// The same path as the caller names it.
    pub(crate) fn real(&self, name: &str) -> OsString {
        self.repo().join(name).into_os_string()
    }

    /// A path beside the workspace.
    pub(crate) fn outside(&self, name: &str) -> OsString {
        self.outside_folder().join(name).into_os_string()
    }

    pub(crate) fn outside_folder(&self) -> PathBuf {
        self.base.join("home/outside")
    }

    /// Adds a file to the workspace or its surroundings, by its path from the home.
    pub(crate) fn put(&self, name: &str, content: &str) -> PathBuf {
        let path = self.home().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, content).expect("written");
        self.give(&self.home());
        path
    }

    /// Makes a tree the actor's.
    pub(crate) fn give(&self, path: &Path) {
        if let Some(user) = &self.user {
            user.give_all(path).expect("given");
        }
    }

    /// Where containers come from.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref().map(|(engine, _)| engine)
    }

    pub(crate) fn image(&self) -> Option<&str> {
        self.engine.as_ref().map(|(_, image)| image.as_str())
    }

    pub(crate) fn uid(&self) -> u32 {
        self.user.as_ref().map_or(0, TestUser::uid)
    }

    /// A program that the actor runs in the workspace, with nothing of the tests' environment.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = match &self.user {
            Some(user) => match self.engine() {
                Some(engine) => user.command_in_group(engine.group(), program),
                None => user.command(program),
            },
            None => {
                let mut command = Command::new(program.as_ref());
                command
                    .env_clear()
                    .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
                command
            }
        };
        command.env("HOME", self.home()).env("XDG_STATE_HOME", self.base.join("state"));
        command.envs(self.engine().map(|engine| ("DOCKER_HOST", engine.address())));
        command.current_dir(self.repo()).stdin(Stdio::null());
        command
    }

    pub(crate) fn sandbox(&self) -> Sandbox<'_> {
        Sandbox::new(self)
    }

    /// An attack by the actor without a sandbox: how one is shown that no control, but the overlay itself, stops.
    pub(crate) fn native(&self, attack: &str, arguments: impl IntoIterator<Item = OsString>) -> Ended {
        let mut command = self.command(self.bin().join("adversary"));
        let output = command.arg(attack).args(arguments).output().expect("the adversary starts");
        Ended::new(attack, output)
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = self
            .command("git")
            .args(["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "gc.auto=0"])
            .args(arguments)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .expect("git starts");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Where runs keep their files.
    pub(crate) fn state(&self) -> PathBuf {
        let kinds = ["repositories", "folders"].map(|kind| self.base.join("state/agency").join(kind));
        let mut all = kinds.iter().flat_map(|kind| fs::read_dir(kind).into_iter().flatten().flatten());
        all.next().map_or_else(|| self.base.join("state/none"), |entry| entry.path())
    }

    /// Everything of the actor's but what runs keep for themselves.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint { root: self.home(), tree: everything(&self.home()), bare: self.actor.is_bare() }
    }

    /// No run has left anything in the folder of state.
    #[track_caller]
    pub(crate) fn assert_no_run_is_left(&self) {
        // Made by the first run that needs it. Root's copies are in one place with those of other tests.
        let places = [self.state().join("sandboxes"), self.base.join("state/agency/sandboxes")];
        let runs = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten());
        let left: Vec<_> = runs.map(|run| run.expect("a run").path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// A process of the actor's outside of any sandbox, which goes when the returned value does.
    pub(crate) fn victim(&self) -> Victim {
        let stdin = File::open(self.outside_folder().join("file")).expect("opened");
        let mut command = self.command("/bin/sleep");
        command.arg("600").env("SECRET", "of-the-victim").stdin(stdin).stdout(Stdio::null());
        let child = command.spawn().expect("sleep starts");
        // Between fork and exec it is still this test.
        let comm = format!("/proc/{}/comm", child.id());
        assert!(wait_until(DEADLINE, || fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")));
        Victim(child)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // One of the attacks locks folders against whoever is not root.
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(self.home()).stderr(Stdio::null()).status();
    }
}

fn everything(home: &Path) -> Tree {
    Tree::of_all_but(home, &[]).expect("the tree can be read")
}

/// How everything of the actor's looked at a moment.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    root: PathBuf,
    tree: Tree,
    bare: bool,
}

impl Fingerprint {
    pub(crate) fn changes(&self) -> Vec<String> {
        self.tree.diff(&everything(&self.root))
    }

    #[track_caller]
    pub(crate) fn assert_unchanged(&self) {
        let changes = self.changes();
        assert!(changes.is_empty(), "{} changed:\n{}", self.root.display(), changes.join("\n"));
    }

    /// For attacks that are shown to work, which is done at one level only.
    #[track_caller]
    pub(crate) fn assert_changed(&self) {
        if self.bare {
            return;
        }
        assert!(!self.changes().is_empty(), "the attack says that it worked, and nothing changed");
    }
}

/// A process that attacks are aimed at.
#[derive(Debug)]
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn pid(&self) -> OsString {
        self.0.id().to_string().into()
    }

    /// State, niceness, scheduling and limit on open files: all that attacks on it would change.
    pub(crate) fn condition(&self) -> String {
        let of = |name: &str| {
            fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_else(|_| "gone".to_owned())
        };
        let stat = of("stat");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let limits = of("limits");
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        let state = match fields.first() {
            Some(&("R" | "S" | "D")) => "well",
            other => other.unwrap_or(&"gone"),
        };
        let status = of("status");
        let processors = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap_or_default();
        format!("{state}, nice {:?}, policy {:?}, {processors}, {files}", fields.get(16), fields.get(38))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
