//! The power goes while a queue runs: whatever was not synced is gone, and the next run brings everything to its end.
//!
//! The repository and the state folder lie on ext4 in files. A loss is a shutdown of these file systems at a moment of a
//! run: they write nothing any more, what the kernel still had in memory never gets to the disk, and every process is
//! killed. Then they are mounted again, which replays their journals as after a crash of the machine.
//!
//! What is known by its boot is not enough here, because the machine goes on: nothing but what was synced counts.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agency_tests::dice::{Dice, SeedOnFailure};
use agency_tests::ground::Said;
use agency_tests::processes::{Alive, wait_until};
use agency_tests::queue::{HONEST, LONG, Queue, Supervisor};
use agency_tests::repository::skip;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::audit;
use crate::chaos::steps;

/// Much more than some runs of a few tasks need.
const SIZE: u64 = 96 << 20;
const TASKS: usize = 6;
/// Where the long test gets what it does from.
const SEED: &str = "AGENCY_POWER_SEED";
const ROUNDS: &str = "AGENCY_POWER_ROUNDS";

/// How much of a file system's journal is still written when the power goes.
#[derive(Debug, Clone, Copy)]
enum Journal {
    /// What was committed before.
    AsItIs,
    /// Names and sizes of everything, though not what was in the files.
    Flushed,
}

/// A file system in a file.
struct Disk {
    device: PathBuf,
    at: PathBuf,
    _image: tempfile::NamedTempFile,
}

fn done(command: &mut Command) -> Result<String, String> {
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

impl Disk {
    /// With the contents of a folder, which it hides from then on.
    fn in_place_of(folder: &Path) -> Result<Self, String> {
        let image = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        image.as_file().set_len(SIZE).map_err(|error| error.to_string())?;
        let make = "-q -F -m 0 -b 4096 -d";
        done(Command::new("mkfs.ext4").args(make.split(' ')).args([folder, image.path()]))?;
        let device = done(Command::new("losetup").args(["--find", "--show"]).arg(image.path()))?;
        let disk = Self { device: device.into(), at: folder.to_owned(), _image: image };
        disk.mount()?;
        Ok(disk)
    }

    /// Without the habits by which ext4 writes files out early: no other file system has them.
    fn mount(&self) -> Result<(), String> {
        done(Command::new("mount").args(["-o", "noauto_da_alloc"]).args([&self.device, &self.at])).map(drop)
    }

    fn shut_down(&self, journal: Journal) -> Result<(), String> {
        let how = match journal {
            Journal::AsItIs => "shutdown",
            Journal::Flushed => "shutdown -f",
        };
        done(Command::new("xfs_io").args(["-x", "-c", how]).arg(&self.at)).map(drop)
    }

    /// Waits until the kernel has taken it apart: sandboxes that were killed keep mounts of it for a moment, and a git
    /// whose supervisor was killed ends a moment later.
    fn unmount(&self) {
        let gone = || umount2(&self.at, MntFlags::empty()).is_ok();
        assert!(wait_until(LONG, gone), "{} stays in use", self.at.display());
        let free = || {
            let alone = libc::O_EXCL;
            OpenOptions::new().read(true).write(true).custom_flags(alone).open(&self.device).is_ok()
        };
        assert!(wait_until(LONG, free), "{} stays mounted somewhere", self.device.display());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
        let _ = done(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

/// It may have ended meanwhile.
fn signal(process: &Alive, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(process.pid).expect("a process")), signal);
}

/// A clone on disks that can lose power.
struct Clone {
    queue: Queue,
    /// Of the repository and of the state folder.
    disks: [Disk; 2],
    tasks: Vec<String>,
}

impl Clone {
    /// Why there can be none here.
    fn of(queue: Queue) -> Result<Self, String> {
        if !nix::unistd::Uid::current().is_root() {
            return Err("it takes root to mount a file system".to_owned());
        }
        done(Command::new("xfs_io").arg("-V"))?;
        let private = || -> nix::Result<()> {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(None::<&Path>, "/", None::<&Path>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&Path>)
        };
        private().map_err(|error| format!("there can be no mounts of its own: {error}"))?;
        let disks = [Disk::in_place_of(queue.path())?, Disk::in_place_of(queue.ground.state_home())?];
        // It is another folder, which is not trusted yet.
        queue.ground.ok(&["trust", "--yes"]);
        let tasks = queue.tasks(TASKS);
        Ok(Self { queue, disks, tasks })
    }

    /// Everybody stops in the same moment: nobody sees one disk gone and writes that down on the other.
    fn freeze(&self) {
        // One that waits in the kernel, for a disk or for a child that shares its memory, stops as soon as it is back.
        let stopped = |process: &Alive| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['T', 'D', 'Z']))
        };
        // Seen twice: a process that was not stopped the first time may have started another.
        let mut seen = 0;
        let all_stopped = || {
            let alive = self.queue.marker().alive();
            seen = if alive.iter().all(stopped) { seen + 1 } else { 0 };
            alive.iter().for_each(|process| signal(process, Signal::SIGSTOP));
            seen == 2
        };
        assert!(wait_until(LONG, all_stopped), "not stopped: {:?}", self.queue.marker().alive());
    }

    fn kill_all(&self) -> bool {
        wait_until(LONG, || {
            let alive = self.queue.marker().alive();
            alive.iter().for_each(|process| signal(process, Signal::SIGKILL));
            alive.is_empty()
        })
    }

    /// The power goes, now.
    fn lose(&self, run: Supervisor, journal: Journal) {
        self.freeze();
        for disk in &self.disks {
            disk.shut_down(journal).unwrap_or_else(|reason| panic!("{reason}"));
        }
        run.kill();
        assert!(self.kill_all(), "still alive: {:?}", self.queue.marker().alive());
        self.disks.iter().for_each(Disk::unmount);
        for disk in &self.disks {
            disk.mount().unwrap_or_else(|reason| panic!("{reason}"));
        }
    }

    /// A run that loses power after a while; `false` if it came to its end before that.
    fn run_until_lost(&self, after: Duration, journal: Journal) -> bool {
        let mut run = self.queue.start(&["--parallel", "3"]);
        let end = Instant::now() + after;
        // A moment of the clock is what this test is about.
        while Instant::now() < end && run.is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !run.is_alive() {
            let said = run.end();
            assert_eq!(said.code, 0, "{said:?}");
            return false;
        }
        self.lose(run, journal);
        true
    }

    /// The queue ends, and from outside everything is as if the power had never gone.
    fn assert_ends(&self) {
        let said = self.queue.run(&["--parallel", "3"]);
        assert_eq!(said.code, 0, "{}", self.told(&said));
        self.queue.ground.git(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
        self.queue.assert_landed(&self.tasks);
        for id in &self.tasks {
            assert_eq!(
                self.queue.ground.git(&["show", &format!("main:src/{id}")]).trim(),
                format!("by {id}")
            );
            assert_eq!(self.queue.ground.read(&format!("src/{id}")).trim(), format!("by {id}"));
        }
        // It must not write the index anew: a person's git does not sync that.
        assert_eq!(self.queue.ground.git(&["--no-optional-locks", "status", "--porcelain", "--", "src"]), "");
        self.queue.assert_nothing_at_work();
    }

    fn told(&self, said: &Said) -> String {
        format!("{said:?}\n{:#?}", self.queue.ground.agency(&["status"]))
    }
}

/// A test that fails leaves nobody behind who was stopped, and holds its disks.
impl Drop for Clone {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// So many losses, in first runs and in later ones.
fn lose_power(name: &str, seed: u64, losses: usize) {
    let mut dice = Dice::new(seed);
    let mut lost = 0;
    while lost < losses {
        let mut clone = match Clone::of(Queue::new()) {
            Ok(clone) => clone,
            Err(reason) => return skip(name, &reason),
        };
        // Of one clone: some in its first run and in those that mend it, and as many with more to do.
        for _ in 0..2 {
            for _ in 0..1 + dice.below(3) {
                let journal = if dice.below(3) == 0 { Journal::Flushed } else { Journal::AsItIs };
                let after = Duration::from_millis(10 + dice.below(1500));
                if lost < losses && clone.run_until_lost(after, journal) {
                    lost += 1;
                }
            }
            clone.assert_ends();
            clone.tasks.extend(clone.queue.tasks(TASKS));
        }
        clone.assert_ends();
    }
}

/// One loss each, exactly before or after a step of an attempt.
fn lose_power_at_every_step(name: &str) {
    for (step, side) in steps().iter().flat_map(|step| [(step, "before"), (step, "after")]) {
        let mut queue = Queue::new();
        queue.auditor(audit::PASS);
        let clone = match Clone::of(queue) {
            Ok(clone) => clone,
            Err(reason) => return skip(name, &reason),
        };
        let (script, judge) = (format!("script={HONEST}"), format!("auditor={}", audit::PASS));
        let moment = format!("stop={step}:{side}");
        let mut run = clone.queue.supervise_here(&[&script, &judge, "parallel=2", &moment]);
        run.stopped();
        let journal = if side == "before" { Journal::AsItIs } else { Journal::Flushed };
        clone.lose(run, journal);
        clone.assert_ends();
    }
}

/// What is in a file when its name got to the disk and it did not.
fn empty(path: &Path) {
    fs::write(path, "").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[test]
fn a_helper_repository_that_came_back_empty_is_made_again() {
    let queue = Queue::new();
    let mut tasks = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    for name in ["landing/objects.git", "landing/refs.git", "snapshots/git"] {
        for file in ["HEAD", "config"] {
            empty(&queue.state().join(name).join(file));
            tasks.extend(queue.tasks(1));
            let said = queue.run(&[]);
            assert_eq!(said.code, 0, "{name}/{file}: {said:?}");
        }
    }
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

/// Fails unless it sees the file as it was committed.
const READER: &str =
    "grep -q two src/a.txt && mkdir -p src && echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID";

#[test]
fn a_snapshot_that_was_never_synced_is_not_used_by_a_later_run() {
    let queue = Queue::with_agent(READER);
    let mut tasks = queue.tasks(1);
    // One that is killed has synced nothing.
    let mut first = queue.supervise_here(&[&format!("script={READER}"), "kill=collect:after"]);
    first.gone();
    queue.assert_nothing_at_work();
    let snapshots = || {
        let entries = fs::read_dir(queue.state().join("snapshots")).expect("snapshots").flatten();
        let named = |name: &str| name.bytes().all(|byte| byte.is_ascii_hexdigit());
        entries
            .map(|entry| entry.path())
            .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(named))
            .collect::<Vec<_>>()
    };
    let facts = |path: &Path| fs::read_to_string(path.join("facts.json")).expect("facts");
    assert!(!snapshots().is_empty());
    for path in snapshots() {
        assert!(!facts(&path).contains("\"boot\":null"), "synced: {}", facts(&path));
        empty(&path.join("layer/src/a.txt"));
    }
    tasks.extend(queue.tasks(1));
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    // A run that came to its end leaves what the next one can use, whatever happens to the machine.
    let left = snapshots();
    assert!(!left.is_empty() && left.iter().all(|path| facts(path).contains("\"boot\":null")), "{left:?}");
}

#[test]
fn what_a_loss_of_power_leaves_is_brought_to_its_end() {
    let seed = 1;
    let _told = SeedOnFailure { suite: "power", seed };
    lose_power("what_a_loss_of_power_leaves_is_brought_to_its_end", seed, 4);
}

#[test]
#[ignore = "takes minutes"]
fn a_loss_of_power_at_every_step() {
    lose_power_at_every_step("a_loss_of_power_at_every_step");
}

#[test]
#[ignore = "takes minutes"]
fn fifty_losses_of_power() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number(SEED).unwrap_or(50);
    let rounds = usize::try_from(number(ROUNDS).unwrap_or(50)).expect("a number");
    let _told = SeedOnFailure { suite: "power", seed };
    lose_power("fifty_losses_of_power", seed, rounds);
}
