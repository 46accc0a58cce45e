//! Every attack works where nothing holds it.
//!
//! An escape test asserts that an attack fails. One that could never have worked would pass it, so each is
//! carried out here without a sandbox, against files, processes and listeners that the test made, and has to
//! succeed: as root, and as an ordinary user unless the attack says that it takes root. What would touch the
//! machine runs in a namespace of its own; what cannot run here at all is listed by the adversary with its
//! reason, and has no case below.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use agency_tests::adversary::{self, Listed, Outcome, Report};
use agency_tests::listeners::Listener;
use agency_tests::processes::wait_until;
use agency_tests::system_v::{Object, SystemV};
use agency_tests::user::TestUser;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid};

/// Far more than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Attacks with a test of their own, because they do not simply end.
const APART: &[&str] = &["ignore-term", "stop-self", "daemon", "hold-stdout", "late-write", "listen-visible"];

macro_rules! groups {
    ($($group:ident: $as_root:ident, $as_user:ident;)*) => {$(
        #[test]
        fn $as_root() {
            if has_every_capability() {
                every_attack_works(stringify!($group), false);
            }
        }

        #[test]
        fn $as_user() {
            every_attack_works(stringify!($group), true);
        }
    )*};
}

groups! {
    files: attacks_on_files_work_as_root, attacks_on_files_work_as_a_user;
    git: attacks_on_git_work_as_root, attacks_on_git_work_as_a_user;
    processes: attacks_on_processes_work_as_root, attacks_on_processes_work_as_a_user;
    kernel: attacks_on_the_kernel_work_as_root, attacks_on_the_kernel_work_as_a_user;
    network: attacks_on_the_network_work_as_root, attacks_on_the_network_work_as_a_user;
    environment: attacks_on_the_environment_work_as_root, attacks_on_the_environment_work_as_a_user;
}

/// Root in a container is not the root that the attacks mean.
fn has_every_capability() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    u64::from_str_radix(line.trim(), 16).expect("a mask") & CAP_SYS_ADMIN != 0
}

fn every_attack_works(group: &str, as_user: bool) {
    let mut failures = Vec::new();
    for listed in adversary::list() {
        let concerned = listed.group == group && listed.native && !(as_user && listed.root);
        if concerned && !APART.contains(&listed.attack.as_str()) {
            failures.extend(Ground::prepare(&listed, as_user).attempt(&listed).err());
        }
    }
    assert!(failures.is_empty(), "these attacks do not work here:\n{}", failures.join("\n"));
}

/// What an attack is let loose on: a folder, a process, listeners.
struct Ground {
    user: Option<TestUser>,
    folder: PathBuf,
    victim: Option<Child>,
    listeners: Vec<Listener>,
    objects: Vec<SystemV>,
    /// What this holds goes when the attack is over.
    _temporary: Option<tempfile::TempDir>,
    cgroup: Option<PathBuf>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(victim) = &mut self.victim {
            let _ = victim.kill();
            let _ = victim.wait();
        }
        if let Some(cgroup) = &self.cgroup {
            let _ = fs::remove_dir(cgroup);
        }
        // One of the attacks locks the folder against whoever is not root.
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(&self.folder).stderr(Stdio::null()).status();
    }
}

/// How an attack is started.
#[derive(Default)]
struct Case {
    arguments: Vec<OsString>,
    /// Namespaces of its own, as `unshare` calls them.
    namespaces: &'static [&'static str],
    /// Shell commands that come before; `"$@"` is the attack, `"$3"` its first argument.
    script: &'static str,
    terminal: bool,
}

impl Case {
    fn with<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self { arguments: arguments.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    fn within(mut self, namespaces: &'static [&'static str]) -> Self {
        self.namespaces = namespaces;
        self
    }

    fn after(mut self, script: &'static str) -> Self {
        self.script = script;
        self
    }
}

impl Ground {
    fn prepare(listed: &Listed, as_user: bool) -> Self {
        // Who is not root is already an ordinary user.
        let user = as_user.then(|| TestUser::new().expect("a user"));
        let temporary = user.is_none().then(|| tempfile::tempdir().expect("a temporary folder"));
        let home = user.as_ref().map(TestUser::home).or(temporary.as_ref().map(tempfile::TempDir::path));
        let folder = home.expect("one of them").join("ground");
        for directory in
            ["", "dir", "dir/deeper", "target", "empty", "git/objects/ab", "git/refs/heads", ".ssh"]
        {
            fs::create_dir(folder.join(directory))
                .or_else(|_| fs::create_dir_all(folder.join(directory)))
                .expect("made");
        }
        for file in [
            "file",
            "other",
            "dir/deeper/protected",
            "git/objects/ab/cdef",
            "git/refs/heads/main",
            ".ssh/id_rsa",
        ] {
            fs::write(folder.join(file), "content that is longer than what an attack writes\n")
                .expect("written");
        }
        fs::write(folder.join("git/packed-refs"), "0123 refs/heads/main\n4567 refs/heads/kept\n")
            .expect("written");
        fs::write(folder.join("git/config"), "[core]\n\tbare = false\n").expect("written");
        if let Some(user) = &user {
            user.give_all(&folder).expect("given");
        }
        let mut ground = Self {
            user,
            folder,
            victim: None,
            listeners: Vec::new(),
            objects: Vec::new(),
            _temporary: temporary,
            cgroup: None,
        };
        if listed.arguments.iter().any(|name| name == "pid") || listed.attack == "proc-list" {
            ground.start_victim();
        }
        ground
    }

    /// A process of the same user that waits until it is ended.
    fn start_victim(&mut self) {
        let program = Path::new("/bin/sleep");
        let mut command = match &self.user {
            Some(user) => user.command(program),
            None => Command::new(program),
        };
        let stdin = File::open(self.folder.join("file")).expect("opened");
        let victim = command.arg("600").stdin(stdin).stdout(Stdio::null()).spawn().expect("sleep starts");
        // Between fork and exec it is still this test.
        let comm = format!("/proc/{}/comm", victim.id());
        assert!(wait_until(DEADLINE, || fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")));
        self.victim = Some(victim);
    }

    fn path(&self, name: &str) -> OsString {
        self.folder.join(name).into_os_string()
    }

    fn listen(&mut self, listener: std::io::Result<Listener>) -> String {
        let listener = listener.expect("a listener");
        let name = listener.name();
        if let (Some(user), true) = (&self.user, Path::new(&name).is_absolute()) {
            user.give(Path::new(&name)).expect("given");
        }
        self.listeners.push(listener);
        name
    }

    /// A listener on a port, as the two arguments that attacks take.
    fn listen_on_port(&mut self, host: &str, listener: std::io::Result<Listener>) -> Vec<String> {
        self.listen(listener);
        vec![host.to_owned(), self.listeners[0].port().to_string()]
    }

    fn case(&mut self, listed: &Listed) -> Case {
        let pid = self.victim.as_ref().map_or(0, Child::id).to_string();
        let (file, other, new) = (self.path("file"), self.path("other"), self.path("new"));
        let (dir, target, empty, git) =
            (self.path("dir"), self.path("target"), self.path("empty"), self.path("git"));
        const MOUNTS: &[&str] = &["--mount", "--propagation=private"];
        const PIDS: &[&str] = &["--pid", "--fork", "--mount-proc"];
        const READ_ONLY: &str = r#"mount --bind "$3" "$3" && mount -o remount,ro,bind "$3" && ! touch "$3/x" 2>/dev/null && exec "$@""#;
        match listed.attack.as_str() {
            "create" | "mkdir" | "mknod-device" | "mknod-whiteout" | "mkfifo" | "unix-socket-file" => {
                Case::with([new])
            }
            "read-dir" => Case::with([dir]),
            "append-through-hardlink" | "hardlink-in" | "rename" => Case::with([file, new]),
            "exchange" | "copy-file-range-into" => Case::with([file, other]),
            "rename-parent-and-rebuild" => Case::with([dir, "deeper/protected".into()]),
            "symlink-swap" => Case::with([dir, target]),
            "race-symlink" => Case::with([dir, target, "50".into()]),
            "hold-lock" => Case::with([file, "0".into()]),
            "reopen-dirfd" | "tmpfile-linkat" => Case::with([dir, "new".into()]),
            "write-via-proc-self-cwd" | "openat2-dotdot" => Case::with([dir, "../file".into()]),
            "proc-root-read" | "proc-root-write" => Case::with([pid.into(), file]),
            "open-root-by-handle" => Case::with(["/"]),
            "sparse" => Case::with([new, (1_u64 << 40).to_string().into()]),
            "fill" => Case::with([dir, (3 << 20).to_string().into()]),
            "tiny-files" => Case::with([dir, "2500".into()]),
            "deep-nest" => Case::with([dir, "200".into()]),
            "narrow-nest" => Case::with([dir, "3000".into()]),
            "long-paths" => Case::with([dir, "100".into()]),
            "odd-names" | "case-names" => Case::with([empty]),
            "lock-away" | "nested-repository" | "submodule-plant" | "git-init" | "attributes-plant"
            | "core-dump" => Case::with([dir]),
            "hook-plant" | "config-plant" | "info-attributes-plant" | "object-damage" => Case::with([git]),
            "alternates-plant" => Case::with([git, target]),
            "ref-delete" | "head-move" => Case::with([git, "refs/heads/main".into()]),
            "ref-move" => Case::with([git, "refs/heads/main".into(), "4567".into()]),
            "gitfile-elsewhere" => Case::with([dir, target]),
            "fork-bomb" | "thread-bomb" => Case::with(["32"]),
            "memory-bomb" => Case::with([(32 << 20).to_string()]),
            "flood" => Case::with(["3000000", "newlines"]),
            "signal-all" => Case::default().within(PIDS).after(r#"sleep 1000 & "$@""#),
            "dumpable-pid1" => Case::default().within(PIDS).after(r#""$@"; exit $?"#),
            "inherited-fds" => Case::default().after(r#"exec "$@" 7</dev/null"#),
            "proc-list" => Case::with(["sleep"]),
            "sysv-memory" | "sysv-remove" => Case::with([self.system_v(Object::Memory)]),
            "sysv-message" => Case::with([self.system_v(Object::Messages)]),
            "sysv-semaphore" => Case::with([self.system_v(Object::Semaphores)]),
            "inotify" => Case::with(["8"]),
            "tiocsti" | "tiocsti-highbits" | "terminal-resize" => Case { terminal: true, ..Case::default() },
            "userns-mount" => Case::with([dir]),
            "mount" | "mount-proc" | "fsmount" | "pivot" => Case::with([dir]).within(MOUNTS),
            "bind-mount-over" => Case::with([file, other]).within(MOUNTS),
            "remount-rw" | "mount-setattr-rw" => Case::with([dir]).within(MOUNTS).after(READ_ONLY),
            "umount" => Case::with([dir]).within(MOUNTS).after(r#"mount -t tmpfs none "$3" && exec "$@""#),
            "move-mount" => Case::with([dir, target]).within(MOUNTS),
            "chroot" | "open-tree" => Case::with([dir]),
            "setns" => Case::with(["/proc/self/ns/uts"]),
            "i386-syscall" => Case::with(["unshare"]),
            "socket-family" => Case::with([libc::AF_INET.to_string()]),
            "netlink" => Case::with([libc::NETLINK_ROUTE.to_string()]),
            "sysctl-write" => Case::with(["/proc/sys/kernel/hostname"]).within(&["--uts"]),
            "hostname-set" => Case::default().within(&["--uts"]),
            "device-open" => Case::with(["/dev/zero"]),
            "cgroup-escape" => Case::with([self.new_cgroup()]),
            "acct" => Case::with([new]).within(PIDS),
            "tcp" | "tcp6" | "udp" | "udp6" | "dns" => self.remote_case(&listed.attack),
            "resolve" => Case::with(["localhost"]),
            "icmp" => Case::with(["127.0.0.1"]),
            "unix-path" => Case::with([self.listen(Listener::unix(Path::new(&new)))]),
            "unix-path-datagram" => Case::with([self.listen(Listener::unix_datagram(Path::new(&new)))]),
            "unix-abstract" => Case::with([self.listen(Listener::unix_abstract())]),
            "unix-abstract-datagram" => Case::with([self.listen(Listener::unix_abstract_datagram())]),
            "proxy-connect" => Case::with([self.listen(Listener::tcp()), "forbidden.example:443".to_owned()]),
            "proxy-get" => {
                let proxy = self.listen(Listener::tcp());
                Case::with([proxy, "http://allowed.example/".to_owned(), "forbidden.example".to_owned()])
            }
            "environment" => Case::with(["HOME"]),
            _ => match &listed.arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [] => Case::default(),
                ["pid"] => Case::with([pid]),
                ["path" | "marker"] | ["path", "[uid]"] => Case::with([file]),
                other => panic!("{} takes {other:?}, and this test has no case for it", listed.attack),
            },
        }
    }

    fn remote_case(&mut self, attack: &str) -> Case {
        let mut arguments = match attack {
            "tcp" => self.listen_on_port("127.0.0.1", Listener::tcp()),
            "tcp6" => self.listen_on_port("::1", Listener::tcp6()),
            "udp6" => self.listen_on_port("::1", Listener::udp6()),
            _ => self.listen_on_port("127.0.0.1", Listener::udp()),
        };
        match attack {
            "udp" | "udp6" => arguments.push("expect-echo".to_owned()),
            "dns" => arguments.push("forbidden.example".to_owned()),
            _ => {}
        }
        Case::with(arguments)
    }

    /// A System V object of the actor's: its number. It goes when the attack is over.
    fn system_v(&mut self, object: Object) -> String {
        let mut ipcmk = match &self.user {
            Some(user) => user.command(Path::new("/usr/bin/ipcmk")),
            None => Command::new("ipcmk"),
        };
        let object = SystemV::new(&mut ipcmk, object);
        let id = object.id.clone();
        self.objects.push(object);
        id
    }

    /// A group of the machine's version 2 hierarchy, empty and without limits.
    fn new_cgroup(&mut self) -> PathBuf {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let root = mounts
            .lines()
            .find(|line| line.split(' ').nth(2) == Some("cgroup2"))
            .expect("cgroup v2 is mounted");
        let path = Path::new(root.split(' ').nth(1).expect("a path"))
            .join(format!("agency-adversary-works-{}", std::process::id()));
        fs::create_dir(&path).expect("made");
        self.cgroup = Some(path.clone());
        path
    }

    fn command(&self, listed: &Listed, case: &Case) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if !case.namespaces.is_empty() {
            words.push("unshare".into());
            if self.user.is_some() {
                words.extend(["--user", "--map-root-user"].map(OsString::from));
            }
            words.extend(case.namespaces.iter().map(OsString::from));
        }
        if !case.script.is_empty() {
            words.extend(["sh", "-c", case.script, "sh"].map(OsString::from));
        }
        words.push(match &self.user {
            Some(user) => user.install(&adversary::binary()).expect("installed").into(),
            None => adversary::binary().into(),
        });
        words.push(OsString::from(&listed.attack));
        words.extend(case.arguments.iter().cloned());
        let mut command = match &self.user {
            Some(user) => user.command(&words[0]),
            None => Command::new(&words[0]),
        };
        command.args(&words[1..]).env("HOME", &self.folder).env_remove("SSH_AUTH_SOCK");
        command
    }

    fn attempt(mut self, listed: &Listed) -> Result<(), String> {
        let case = self.case(listed);
        let mut command = self.command(listed, &case);
        let controller = case.terminal.then(terminal);
        command.stdin(match &controller {
            Some((_, terminal)) => Stdio::from(terminal.try_clone().expect("a terminal")),
            None => Stdio::null(),
        });
        let output = command.output().expect("it starts");
        let report = succeeded(&output).map_err(|wrong| format!("{}: {wrong}", listed.attack))?;
        if report.attack != listed.attack {
            return Err(format!("{}: reported as {}", listed.attack, report.attack));
        }
        match self.listeners.iter().find(|listener| !listener.reached_within(DEADLINE)) {
            Some(listener) => Err(format!("{}: nothing reached {}", listed.attack, listener.name())),
            None => Ok(()),
        }
    }
}

/// Both ends of a new pseudo-terminal.
fn terminal() -> (std::os::fd::OwnedFd, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&controller).expect("granted");
    unlockpt(&controller).expect("unlocked");
    let name = ptsname(&controller, Vec::new()).expect("a name").into_string().expect("text");
    let terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(name)
        .expect("its other end");
    (controller, terminal)
}

/// The report of an attack that worked and said so in every way.
fn succeeded(output: &Output) -> Result<Report, String> {
    let report = Report::from_output(output).map_err(|unreported| format!("{unreported:?}"))?;
    match (report.outcome, output.status.code()) {
        (Outcome::Succeeded, Some(0)) => Ok(report),
        (_, code) => Err(format!("exit {code:?}, {report:?}")),
    }
}

fn lines(stream: impl std::io::Read) -> impl Iterator<Item = String> {
    BufReader::new(stream).lines().map(|line| line.expect("a line"))
}

fn report_in(line: &str) -> Report {
    serde_json::from_str(line).expect("a report")
}

#[test]
fn signals_that_ask_do_not_end_it() {
    let mut child =
        adversary::native("ignore-term", ["120"]).stderr(Stdio::piped()).spawn().expect("it starts");
    let ready = lines(child.stderr.take().expect("stderr")).next();
    assert_eq!(ready.as_deref(), Some("ready"));
    let pid = Pid::from_raw(child.id() as i32);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        kill(pid, signal).expect("sent");
    }
    // A signal that is ignored is gone when `kill` returns; one that is not would be pending or have ended it.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
    let pending = status.lines().filter(|line| line.starts_with("SigPnd") || line.starts_with("ShdPnd"));
    assert!(
        pending.clone().count() == 2 && pending.clone().all(|line| line.ends_with("0000000000000000")),
        "{status}"
    );
    assert!(child.try_wait().expect("a state").is_none());
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn it_stops_itself_and_goes_on_when_told() {
    let child = adversary::native("stop-self", [""; 0]).stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = Pid::from_raw(child.id() as i32);
    let state = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("a state");
    assert_eq!(state, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    kill(pid, Signal::SIGCONT).expect("continued");
    succeeded(&child.wait_with_output().expect("ended")).expect("it says that it was stopped");
}

#[test]
fn a_daemon_outlives_who_started_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let heartbeat = folder.path().join("heartbeat");
    // That `output` returns shows that the daemon holds no pipe.
    let output = adversary::native("daemon", [heartbeat.as_os_str()]).output().expect("it starts");
    let pid = Pid::from_raw(succeeded(&output).expect("a daemon").detail.parse().expect("its process id"));
    let beats = || fs::metadata(&heartbeat).map_or(0, |metadata| metadata.len());
    let before = beats();
    let beating = wait_until(DEADLINE, || beats() > before + 2);
    let session = nix::unistd::getsid(Some(pid));
    kill(pid, Signal::SIGKILL).expect("the daemon was there to be killed");
    assert!(beating);
    assert_ne!(session, nix::unistd::getsid(None));
}

#[test]
fn a_grandchild_holds_stdout_after_the_end() {
    let mut child =
        adversary::native("hold-stdout", [""; 0]).stdout(Stdio::piped()).spawn().expect("it starts");
    let stdout = child.stdout.take().expect("stdout");
    let ours =
        fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stdout))).expect("a pipe");
    let report = report_in(&lines(stdout).next().expect("a line"));
    assert!(child.wait().expect("ended").success());
    let held = fs::read_link(format!("/proc/{}/fd/1", report.detail));
    kill(Pid::from_raw(report.detail.parse().expect("a process id")), Signal::SIGKILL).expect("it was there");
    assert_eq!(held.expect("its stdout"), ours);
}

#[test]
fn a_write_comes_after_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("late");
    let output =
        adversary::native("late-write", [path.as_os_str(), "10".as_ref()]).output().expect("it starts");
    succeeded(&output).expect("a child was left");
    assert!(wait_until(DEADLINE, || path.is_file()));
}

#[test]
fn a_listener_is_reached_from_outside() {
    let mut child = adversary::native("listen-visible", ["0", "60000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let ready = lines(child.stderr.take().expect("stderr")).next().expect("a line");
    let port: u16 = ready.strip_prefix("ready ").and_then(|port| port.parse().ok()).expect("a port");
    TcpStream::connect(("127.0.0.1", port)).expect("connected");
    succeeded(&child.wait_with_output().expect("ended")).expect("somebody came in");
}

#[test]
fn a_denial_and_a_mistake_are_told_apart() {
    let user = TestUser::new().expect("a user");
    let attack = user.install(&adversary::binary()).expect("installed");
    let run = |arguments: &[&str]| {
        let output = user.command(&attack).args(arguments).output().expect("it starts");
        (Report::from_output(&output).expect("a report"), output.status.code())
    };
    let (report, code) = run(&["write", "/etc/passwd"]);
    if !Uid::from_raw(user.uid()).is_root() {
        assert!(report.is_denied_with(&[Errno::EACCES, Errno::EROFS]), "{report:?}");
        assert_eq!(code, Some(1));
    }
    assert_eq!(run(&["read", "/nowhere"]).0.errno, Some(Errno::ENOENT as i32));
    for wrong in [&["write"][..], &["no-such-attack"], &["tcp", "a-name", "1"], &["signal", "-1"]] {
        let (report, code) = run(wrong);
        assert_eq!((report.outcome, code), (Outcome::Error, Some(2)), "{report:?}");
    }
}

#[test]
fn an_attack_that_is_killed_for_it_counts_as_denied() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    // A signal for the first byte written to a file stands in for the one that a filter would send.
    let output = Command::new("sh")
        .args(["-c", "ulimit -c 0; ulimit -f 0; exec \"$@\"", "sh"])
        .arg(adversary::binary())
        .arg("landlock-noop")
        .arg(file)
        .output()
        .expect("it starts");
    let report = Report::from_output(&output).expect("a report");
    assert_eq!((report.outcome, output.status.code()), (Outcome::Denied, Some(1)), "{report:?}");
    assert_eq!(report.detail, "killed by SIGXFSZ");
}

/// The kernel protects an init from its own namespace; the attack has to see that, not to take it for success.
#[test]
fn an_init_that_survives_is_a_denial() {
    let mut command = Command::new("unshare");
    if !has_every_capability() {
        command.args(["--user", "--map-root-user"]);
    }
    let script = r#""$@"; exit $?"#;
    let output = command
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"])
        .arg(adversary::binary())
        .arg("kill-init")
        .output()
        .expect("it starts");
    let report = Report::from_output(&output).expect("a report");
    assert_eq!((report.outcome, report.errno), (Outcome::Denied, None), "{report:?}");
}

#[test]
fn what_is_not_tried_here_says_why_and_names_are_unique() {
    let all = adversary::list();
    let mut names: Vec<_> = all.iter().map(|one| one.attack.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    for one in &all {
        assert_eq!(one.native, one.reason.is_none(), "{}", one.attack);
        assert!(!one.escape.is_empty(), "{}", one.attack);
    }
    for name in APART {
        assert!(names.contains(name), "{name}");
    }
}
