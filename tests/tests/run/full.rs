//! A disk that is full at every write there is: a clear error each time, and nothing lost.
//!
//! The repository and our state lie on a small file system of their own, beside a balloon that leaves no room. The balloon is let
//! out a little each round, until everything is done.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agency_tests::dice::Dice;
use agency_tests::ground::Said;
use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};
use agency_tests::repository::skip;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// What one block of the file system has, and so the least that a write can lack.
const BLOCK: u64 = 4096;
/// Much more than a run of two tasks needs.
const SIZE: u64 = 24 << 20;

/// An agent that waits for room, as those who run it do. One that fails instead has failed, as any other.
const PATIENT: &str =
    "mkdir -p src; until echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID; do sleep 0.05; done 2>/dev/null";

/// A queue on a file system of its own, which only this test and what it starts see.
struct Small {
    queue: Queue,
    balloon: PathBuf,
    _image: tempfile::NamedTempFile,
}

/// Why there can be none here.
fn small() -> Result<Small, String> {
    if !nix::unistd::Uid::current().is_root() {
        return Err("it takes root to mount a file system".to_owned());
    }
    let mut queue = Queue::with_agent(PATIENT);
    queue.settings("attempts = 1");
    queue.ground.commit_all();
    let image = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    image.as_file().set_len(SIZE).map_err(|error| error.to_string())?;
    let done = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{command:?}: {error}")),
    };
    let flags = "-q -F -m 0 -b 4096 -N 4096 -O ^has_journal,^resize_inode -d";
    done(Command::new("mkfs.ext4").args(flags.split(' ')).args([queue.path(), image.path()]))?;
    let private = || -> nix::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&Path>, "/", None::<&Path>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&Path>)
    };
    private().map_err(|error| format!("there can be no mounts of its own: {error}"))?;
    done(Command::new("mount").args(["-o", "loop"]).args([image.path(), queue.path()]))?;
    // What `agency` keeps lies on it, too.
    let (state, kept) = (queue.ground.state_home(), queue.path().join(".git/kept"));
    fs::create_dir(&kept).map_err(|error| error.to_string())?;
    done(Command::new("mount").arg("--bind").args([&kept, state]))?;
    // It is another folder, which is not trusted yet.
    queue.ground.ok(&["trust", "--yes"]);
    let balloon = queue.path().join(".git/balloon");
    Ok(Small { queue, balloon, _image: image })
}

/// The folder below can be removed then.
impl Drop for Small {
    fn drop(&mut self) {
        let _ = umount2(self.queue.ground.state_home(), MntFlags::MNT_DETACH);
        let _ = umount2(self.queue.path(), MntFlags::MNT_DETACH);
    }
}

impl Small {
    /// Leaves this much room.
    fn fill(&self, room: u64) {
        let mut file = File::create(&self.balloon).expect("made");
        // What does not fit as a whole may not be written at all.
        for size in [1 << 20, BLOCK] {
            let piece = vec![0; usize::try_from(size).expect("a size")];
            while file.write_all(&piece).is_ok() {}
        }
        let size = file.metadata().expect("asked").len() / BLOCK * BLOCK;
        file.set_len(size - room).and_then(|()| file.sync_all()).expect("let out");
    }

    /// Lets the balloon out; `false` when it is empty.
    fn let_out(&self, bytes: u64) -> bool {
        let file = OpenOptions::new().write(true).open(&self.balloon).expect("opened");
        let size = file.metadata().expect("asked").len();
        file.set_len(size.saturating_sub(bytes)).and_then(|()| file.sync_all()).expect("let out");
        size > bytes
    }

    /// A run to its end. Whoever waits for room gets some, little by little.
    fn run(&self, step: u64) -> Said {
        let mut run = self.queue.start(&["--parallel", "2"]);
        let mut since = Instant::now();
        let over = wait_until(LONG, || {
            if since.elapsed() > PATIENCE {
                since = Instant::now();
                self.let_out(step);
            }
            !run.is_alive()
        });
        assert!(over, "it does not end: {}", run.said_so_far());
        run.end()
    }
}

/// One that goes on as if a write that was refused had been done.
const CARELESS: &str =
    "mkdir -p src; head -c 4000000 /dev/zero > src/$AGENCY_TASK_ID 2>/dev/null; sleep 0.3; true";

/// A file that was cut short by a full disk never lands; when there is room, the whole one does.
#[test]
fn work_that_saw_a_full_disk_does_not_land() {
    let mut small = match small() {
        Ok(small) => small,
        Err(reason) => return skip("work_that_saw_a_full_disk_does_not_land", &reason),
    };
    small.queue.agent("shell", CARELESS, "");
    small.queue.ground.commit_all();
    let id = small.queue.tasks(1).remove(0);
    small.fill(2 << 20);
    let run = small.queue.start(&[]);
    run.says("was full while it worked");
    small.let_out(u64::MAX);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    small.queue.assert_landed(std::slice::from_ref(&id));
    let size = fs::metadata(small.queue.path().join("src").join(&id)).expect("landed").len();
    assert_eq!(size, 4_000_000, "{said:?}");
}

/// A run that takes longer waits for something, or the machine is busy, and a little room does no harm.
const PATIENCE: Duration = Duration::from_secs(1);

/// The words for it: of the kernel, of the store, and ours.
const FULL: [&str; 4] =
    ["No space left on device", "disk is full", "disk I/O error", "there may be no room on the disk"];

/// A run that did not come to its end says what it could not write, and left everything readable.
#[track_caller]
fn assert_clear(queue: &Queue, said: &Said, tasks: &[String]) {
    assert!([1, 10].contains(&said.code), "{said:?}");
    assert!(FULL.iter().any(|word| said.err.contains(word)), "it does not say what for: {said:?}");
    let places = [queue.path(), queue.ground.state_home()].map(|path| path.display().to_string());
    let named = said.err.lines().any(|line| places.iter().any(|place| line.contains(place)));
    assert!(named && !said.err.contains("panicked"), "{said:?}");
    queue.ground.git(&["fsck", "--no-dangling", "--no-progress"]);
    for id in tasks {
        let status = queue.ground.status(id);
        assert!(
            ["NEW", "ASSIGNED", "IN_PROGRESS", "READY_FOR_REVIEW", "DONE"].contains(&status.as_str()),
            "{id}: {}",
            queue.ground.read(&queue.ground.file(id))
        );
        assert!(queue.landed().get(id).is_none_or(|times| *times == 1), "{:?}", queue.landed());
        assert_begun_again_only_for_want_of_room(queue, id);
    }
}

/// An agent that may have been refused a write is not believed: its attempt is lost, and there is another one. No other
/// attempt is begun twice.
#[track_caller]
fn assert_begun_again_only_for_want_of_room(queue: &Queue, id: &str) {
    for attempt in (1..).take_while(|attempt| queue.records(id, attempt + 1).exists()) {
        let outcome = queue.records(id, attempt).join("agent/outcome.json");
        let text = fs::read_to_string(&outcome).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert!(text.contains("was full while it worked"), "{id}, attempt {attempt}: {text}");
    }
}

/// Files that were to be put in the place of others.
fn litter(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if ["next.", "new-", "uncommitted."].iter().any(|start| name.starts_with(start))
            || name.ends_with(".new")
        {
            found.push(entry.path());
        }
        if entry.file_type().expect("a kind").is_dir() {
            found.extend(litter(&entry.path()));
        }
    }
    found
}

/// Lets the balloon out step by step, until all is done.
fn climb(name: &str, tasks: usize, mut step: impl FnMut() -> u64) {
    let small = match small() {
        Ok(small) => small,
        Err(reason) => return skip(name, &reason),
    };
    let queue = &small.queue;
    let tasks = queue.tasks(tasks);
    small.fill(0);
    let mut starved = false;
    loop {
        let said = small.run(step());
        starved |= FULL.iter().any(|word| said.err.contains(word));
        if said.code == 0 {
            break;
        }
        assert_clear(queue, &said, &tasks);
        assert!(small.let_out(step()), "there is room, and it is not enough: {said:?}");
    }
    assert!(starved, "there was room enough from the beginning");
    queue.assert_landed(&tasks);
    tasks.iter().for_each(|id| assert_begun_again_only_for_want_of_room(queue, id));
    queue.assert_nothing_left();
    assert_eq!(litter(&queue.state()), Vec::<PathBuf>::new());
    assert_eq!(litter(&queue.path().join(".kodingx")), Vec::<PathBuf>::new());
}

#[test]
fn however_little_room_there_is_nothing_is_lost() {
    let mut dice = Dice::new(3);
    climb("however_little_room_there_is_nothing_is_lost", 2, || BLOCK * (1 + dice.below(24)));
}

#[test]
#[ignore = "takes minutes"]
fn one_block_more_each_time_nothing_is_lost() {
    climb("one_block_more_each_time_nothing_is_lost", 1, || BLOCK);
}
