//! Spare copies of objects: what they bring back, what they cost, and what can't be.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use agency_landing::lease::{self, GitLease, LeaseResult};
use agency_landing::names::{Oid, TaskName};
use agency_landing::repository::LandingRepository;
use agency_landing::{Error, candidate, pin, spare_objects};

use crate::candidates::Attempt;
use crate::costs::noting;
use crate::support::{Actor, World, ends};

fn take(repository: &LandingRepository, id: &str) -> GitLease {
    let task = TaskName::new("kodingx", id).expect("a task");
    let Ok(LeaseResult::Held(lease)) = lease::take(repository, &task, (1, 1), None) else { panic!("lost") };
    lease
}

fn spares(world: &World) -> BTreeSet<String> {
    let entries = fs::read_dir(world.place().join("spares")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
}

fn loose(world: &World, object: &str) -> PathBuf {
    world.root().join(".git/objects").join(&object[..2]).join(&object[2..])
}

/// What a garbage collection does to an object.
fn lose(world: &World, object: &str) {
    fs::remove_file(loose(world, object)).expect("removed");
}

/// A commit with a tree and a blob, of which there are copies, and a lease for it.
fn work(world: &World, repository: &LandingRepository) -> (GitLease, Oid, Vec<String>) {
    let (lease, before) = (take(repository, "T1"), spares(world));
    let attempt = Attempt::on(world);
    attempt.put("src/1.txt", b"agent\n");
    let base = Oid::parse(&world.at("main")).expect("a name");
    let harvest = attempt.harvest(&["**"]);
    let commit = attempt.write_on(repository, &base, &harvest, &lease.task).expect("made").expect("a commit");
    let new = spares(world).difference(&before).cloned().collect();
    (lease, commit, new)
}

fn kind(world: &World, object: &str) -> String {
    world.git(&["cat-file", "-t", object])
}

#[test]
fn everything_of_a_commit_is_written_again() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let repository = world.open();
    let (lease, commit, objects) = work(&world, &repository);
    let kinds: BTreeSet<String> = objects.iter().map(|object| kind(&world, object)).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["blob", "commit", "tree"]);
    objects.iter().for_each(|object| lose(&world, object));
    assert!(candidate::keep(&repository, &lease, &commit).expect("kept"));
    world.git(&["fsck", "--strict"]);
}

/// Git takes no tree or commit that was cut off, and says so with an error.
#[test]
fn an_object_whose_copy_is_cut_off_is_missing_and_nothing_worse() {
    for cut in ["blob", "tree", "commit"] {
        let world = World::new(ends().1, Actor::Same, &[]);
        let repository = world.open();
        let (lease, commit, objects) = work(&world, &repository);
        let torn: Vec<&String> = objects.iter().filter(|object| kind(&world, object) == cut).collect();
        for object in &torn {
            let file = fs::File::options().write(true).open(world.place().join("spares").join(object));
            let file = file.expect("opens");
            file.set_len(file.metadata().expect("looked at").len() - 1).expect("cut off");
            lose(&world, object);
        }
        let kept = candidate::keep(&repository, &lease, &commit);
        assert!(matches!(kept, Err(Error::Missing { .. })), "{cut}: {kept:?}");
        assert!(torn.iter().any(|object| !spares(&world).contains(*object)), "{cut}: it stays");
        spare_objects::restore_named(&repository).expect("looked");
    }
}

/// The trees of a merge have no copies. Whoever made it has to know, and makes it again.
#[test]
fn a_commit_that_lost_a_part_before_it_had_a_name_is_not_taken_for_whole() {
    for part in ["blob", "tree"] {
        let world = World::new(ends().1, Actor::Same, &[]);
        let repository = world.open();
        let (lease, commit, objects) = work(&world, &repository);
        assert!(pin::is_whole(&repository, &commit).expect("looked"));
        let parts: Vec<PathBuf> = objects
            .iter()
            .filter(|object| kind(&world, object) == part)
            .map(|object| {
                fs::remove_file(world.place().join("spares").join(object)).expect("removed");
                loose(&world, object)
            })
            .collect();
        for object in &parts {
            fs::rename(object, object.with_extension("away")).expect("away");
        }
        let pinned = pin::pin_new(&repository, &lease, &commit);
        assert!(matches!(pinned, Err(Error::Missing { .. })), "{part}: {pinned:?}");
        assert!(!pin::is_whole(&repository, &commit).expect("looked"), "{part}");
        for object in &parts {
            fs::rename(object.with_extension("away"), object).expect("back");
        }
        assert!(pin::pin_new(&repository, &lease, &commit).expect("pinned"), "{part}");
    }
}

/// A pipe among our references would stop git for ever. Whoever looks without git passes it by.
#[test]
fn what_is_odd_among_our_references_keeps_nothing_from_being_written_again() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let repository = world.open();
    let lease = take(&repository, "T1");
    let packed = take(&repository, "T2");
    world.git(&["pack-refs", "--all"]);
    let ours = world.root().join(".git/refs/agency");
    fs::create_dir_all(ours.join("lease/kodingx")).expect("made");
    fs::write(ours.join("lease/kodingx/T1"), format!("{}\n", lease.object)).expect("written");
    let pipe = ours.join("lease/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    std::os::unix::fs::symlink("/etc/passwd", ours.join("lease/link")).expect("made");
    fs::write(ours.join("lease/kodingx/T3"), "no object\n").expect("written");
    let records = [lease.object.as_str(), packed.object.as_str()];
    records.iter().for_each(|record| lose(&world, record));
    spare_objects::restore_named(&repository).expect("looked");
    for record in records {
        assert!(loose(&world, record).exists());
    }
}

/// How many gits are started to look at this many leases.
fn gits_for(leases: usize, missing: usize) -> usize {
    let world = World::new(ends().1, Actor::Same, &[]);
    let (program, notes) = noting(&world);
    let repository = world.open_with(&program);
    let leases: Vec<GitLease> = (0..leases).map(|number| take(&repository, &format!("T{number}"))).collect();
    leases.iter().take(missing).for_each(|lease| lose(&world, lease.object.as_str()));
    fs::write(&notes, "").expect("written");
    spare_objects::restore_named(&repository).expect("looked");
    for lease in leases {
        assert!(loose(&world, lease.object.as_str()).exists());
    }
    fs::read_to_string(&notes).expect("read").lines().count()
}

#[test]
fn one_git_looks_at_any_number_of_copies() {
    assert_eq!((gits_for(1, 0), gits_for(50, 0)), (1, 1));
    // Another one looks whether they are there then. Who writes them is there already.
    assert_eq!((gits_for(1, 1), gits_for(50, 50)), (2, 2));
}

#[test]
fn a_refused_transaction_looks_with_one_git() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let (program, notes) = noting(&world);
    let repository = world.open_with(&program);
    for number in 0..20 {
        take(&repository, &format!("T{number}"));
    }
    let lease = take(&repository, "T20");
    fs::write(&notes, "").expect("written");
    // Somebody else has it.
    let task = lease.task.clone();
    assert!(matches!(lease::take(&repository, &task, (2, 1), None), Ok(LeaseResult::Lost { .. })));
    let started = fs::read_to_string(&notes).expect("read");
    assert!(started.lines().count() <= 2, "{started}");
}

/// A process that looks like a garbage collection, and has `gc.pid`.
struct Collection {
    child: Child,
    pid_file: PathBuf,
}

impl Collection {
    fn begin(world: &World) -> Self {
        let child = Command::new("sleep").arg0("git gc --prune=now").arg("600").spawn().expect("starts");
        let pid_file = world.root().join(".git/gc.pid");
        fs::write(&pid_file, format!("{} here", child.id())).expect("written");
        Self { child, pid_file }
    }

    fn end(mut self) {
        let _ = fs::remove_file(&self.pid_file);
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

fn reference(world: &World, id: &str) -> PathBuf {
    world.root().join(".git/refs/agency/lease/kodingx").join(id)
}

/// The collection listed the references before the lease was taken, and removes its record afterwards.
#[test]
fn what_a_collection_takes_that_a_reference_has_just_come_to_name_is_written_again() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let repository = world.open();
    let collection = Collection::begin(&world);
    let lease = std::thread::scope(|scope| {
        let taker = scope.spawn(|| take(&repository, "T1"));
        let record = loop {
            match fs::read_to_string(reference(&world, "T1")) {
                Ok(record) if !record.is_empty() => break record,
                _ => std::thread::yield_now(),
            }
        };
        lose(&world, record.trim_end());
        collection.end();
        taker.join().expect("taken")
    });
    assert!(loose(&world, lease.object.as_str()).exists());
    world.git(&["fsck", "--strict"]);
}

/// One that goes on is waited for once. What was named meanwhile is looked at when it is gone, with the next transaction.
#[test]
fn what_a_long_collection_takes_is_written_again_when_it_has_ended() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let repository = world.open();
    let collection = Collection::begin(&world);
    let leases = ["T1", "T2"].map(|id| take(&repository, id));
    for lease in &leases {
        lose(&world, lease.object.as_str());
    }
    // Nothing old goes while it runs.
    let old = world.place().join("spares").join(leases[0].object.as_str());
    let file = fs::File::options().write(true).open(&old).expect("opens");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("made older");
    spare_objects::sweep(&repository).expect("tended");
    assert!(old.exists());
    collection.end();
    take(&repository, "T3");
    for lease in &leases {
        assert!(loose(&world, lease.object.as_str()).exists());
    }
}

/// What can't be written again does not take back a transaction that has moved references.
#[test]
fn a_transaction_that_succeeded_stays_one_whatever_is_found_afterwards() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let repository = world.open();
    let collection = Collection::begin(&world);
    let first = take(&repository, "T1");
    lose(&world, first.object.as_str());
    collection.end();
    // It can't be written now.
    let path = loose(&world, first.object.as_str());
    let (folder, away) = (path.parent().expect("a folder"), world.outside("away"));
    fs::rename(folder, &away).expect("moved");
    fs::write(folder, "").expect("written");
    take(&repository, "T2");
    assert!(spare_objects::restore_named(&repository).is_err(), "it could be written");
    fs::remove_file(folder).expect("removed");
    fs::rename(&away, folder).expect("moved");
    take(&repository, "T3");
    assert!(path.exists(), "it was forgotten");
}

/// The supervisor alone removes old copies, and only after a look.
#[test]
fn old_copies_go_when_the_supervisor_tends_them_and_nobody_else_removes_any() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let repository = world.open();
    let lease = take(&repository, "T1");
    let copy = world.place().join("spares").join(lease.object.as_str());
    let beside = copy.with_extension("1-2.new");
    fs::write(&beside, "left by a writer that was killed").expect("written");
    for path in [&copy, &beside] {
        let file = fs::File::options().write(true).open(path).expect("opens");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("made older");
    }
    drop(repository);
    // The first that another process writes.
    let repository = world.open();
    let next = take(&repository, "T2");
    assert!(copy.exists());
    spare_objects::sweep(&repository).expect("tended");
    assert_eq!(spares(&world).into_iter().collect::<Vec<_>>(), [next.object.to_string()]);
}
