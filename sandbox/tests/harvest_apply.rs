//! Applying to a live folder: all or nothing, whenever it is interrupted, and never over a person's work.

mod harvest_support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agency_sandbox::harvest::Harvest;
use agency_sandbox::harvest::apply::{
    ApplyError, ApplyRecovery, ApplyRequest, ApplyStep, ConflictReason, FileClockTime, apply, apply_observed,
    recover, recover_observed,
};
use harvest_support::*;

/// A live folder, what an agent did over it, and the moment it started.
struct Folder {
    _temp: tempfile::TempDir,
    live: PathBuf,
    upper: PathBuf,
    journal: PathBuf,
    started: FileClockTime,
}

fn folder(live: impl FnOnce(&Path), upper: impl FnOnce(&Path)) -> Folder {
    // In memory where there is such a place: each apply syncs many times.
    let memory = Path::new("/dev/shm");
    let temp = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let temp = temp.expect("a directory");
    let [l, u, j] = ["live", "upper", "journal"].map(|name| temp.path().join(name));
    for path in [&l, &u, &j] {
        fs::create_dir(path).expect("made");
    }
    live(&l);
    upper(&u);
    let started = start(&l);
    Folder { _temp: temp, live: l, upper: u, journal: j, started }
}

/// Change times have the grain of a timer tick.
fn start(live: &Path) -> FileClockTime {
    std::thread::sleep(Duration::from_millis(10));
    FileClockTime::now(directory(live).as_fd()).expect("a mark")
}

impl Folder {
    fn harvest(&self) -> Harvest {
        let harvest = Asked::default().of(&self.upper, &[&self.live]);
        assert!(harvest.is_clean(), "{:?}", refusals(&harvest));
        harvest
    }

    fn apply(&self, harvest: &Harvest) -> Result<(), ApplyError> {
        self.observed(harvest, &mut |_| ControlFlow::Continue(()))
    }

    fn observed(
        &self,
        harvest: &Harvest,
        observer: &mut dyn FnMut(ApplyStep) -> ControlFlow<()>,
    ) -> Result<(), ApplyError> {
        let (upper, live, journal) =
            (directory(&self.upper), directory(&self.live), directory(&self.journal));
        let work = ApplyRequest {
            changes: &harvest.changes,
            upper: upper.as_fd(),
            live: live.as_fd(),
            started: self.started,
            journal: journal.as_fd(),
        };
        apply_observed(&work, observer)
    }

    fn recover(&self) -> Result<ApplyRecovery, ApplyError> {
        recover(directory(&self.journal).as_fd(), directory(&self.live).as_fd())
    }

    fn conflicts(&self, harvest: &Harvest) -> Vec<(String, ConflictReason)> {
        match self.apply(harvest) {
            Err(ApplyError::Conflicts(conflicts)) => {
                conflicts.into_iter().map(|conflict| (conflict.path.to_string(), conflict.reason)).collect()
            }
            other => panic!("expected conflicts: {other:?}"),
        }
    }
}

/// Everything, directories and modes and inodes' owners included.
fn exact(root: &Path) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).expect("listed") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("looked at");
            let content = match &metadata {
                m if m.is_symlink() => {
                    fs::read_link(&path).expect("read").into_os_string().as_bytes().to_vec()
                }
                m if m.is_file() => fs::read(&path).expect("read"),
                _ => Vec::new(),
            };
            if metadata.is_dir() {
                waiting.push(path.clone());
            }
            let key = path.strip_prefix(root).expect("inside").to_owned();
            all.insert(key, (metadata.mode(), metadata.uid(), content));
        }
    }
    all
}

fn sample_live(live: &Path) {
    chmod(put(live, "edit", "before"), 0o664);
    put(live, "untouched", "x");
    put(live, "gone", "x");
    put(live, "empties/deep/only", "x");
    put(live, "half/one", "1");
    put(live, "half/two", "2");
    put(live, "dir-to-file/a", "a");
    put(live, "dir-to-file/b/c", "c");
    fs::create_dir(live.join("dir-to-file/empty")).expect("made");
    put(live, "file-to-dir", "x");
    link(live, "link-to-dir", "half");
    link(live, "retarget", "edit");
    put(live, "to-link", "x");
}

fn sample_upper(upper: &Path) {
    put(upper, "edit", "after");
    for path in ["gone", "empties", "half/one"] {
        whiteout(upper, path);
    }
    put(upper, "new/deep/file", "new");
    chmod(put(upper, "tool", "#!"), 0o777);
    put(upper, "dir-to-file", "now a file");
    put(upper, "file-to-dir/inside", "x");
    put(upper, "link-to-dir/inside", "x");
    link(upper, "retarget", "tool");
    link(upper, "to-link", "edit");
    put(upper, OsStr::from_bytes(b"odd\xff\n\"name"), "odd");
}

fn sample() -> Folder {
    folder(sample_live, sample_upper)
}

#[test]
fn all_changes_arrive_and_nothing_is_left_over() {
    if skipped_without_root() {
        return;
    }
    let f = sample();
    let harvest = f.harvest();
    f.apply(&harvest).expect("applies");
    let after = picture(&f.live);
    assert_eq!(after[&b"edit"[..]], Seen::File { executable: false, content: b"after".to_vec() });
    assert_eq!(after[&b"dir-to-file"[..]], Seen::File { executable: false, content: b"now a file".to_vec() });
    assert_eq!(after[&b"to-link"[..]], Seen::Link(b"edit".to_vec()));
    assert!(after.contains_key(&b"odd\xff\n\"name"[..]));
    assert!(!f.live.join("empties").exists(), "emptied directories go, as git does it");
    assert!(f.live.join("half/two").exists());
    assert_eq!(after.len(), 11, "{after:?}");
    assert_eq!(f.harvest().changes, [], "the folder is what the agent made");
    assert_eq!(fs::read_dir(&f.journal).expect("listed").count(), 0);
    assert_eq!(f.recover().expect("recovers"), ApplyRecovery::Nothing);
}

#[test]
fn only_the_executable_bit_is_taken_from_the_agent() {
    if skipped_without_root() {
        return;
    }
    let f = folder(
        |live| {
            chmod(put(live, "mine", "x"), 0o640);
            chmod(put(live, "becomes-tool", "x"), 0o640);
            chmod(put(live, "tool", "x"), 0o4755);
            chmod(put(live, "no-tool", "x"), 0o711);
            fs::create_dir(live.join("theirs")).expect("made");
            for (path, id) in [("mine", 1234), ("theirs", 4321)] {
                std::os::unix::fs::chown(live.join(path), Some(id), Some(id)).expect("chown");
            }
        },
        |upper| {
            chmod(put(upper, "mine", "y"), 0o666);
            chmod(put(upper, "becomes-tool", "x"), 0o777);
            chmod(put(upper, "tool", "y"), 0o777);
            chmod(put(upper, "no-tool", "x"), 0o600);
            chmod(put(upper, "theirs/new", "x"), 0o666);
            chmod(put(upper, "theirs/sub/new-tool", "x"), 0o777);
            link(upper, "theirs/link", "new");
        },
    );
    f.apply(&f.harvest()).expect("applies");
    let look = |path: &str| {
        let metadata = fs::symlink_metadata(f.live.join(path)).expect("there");
        (metadata.mode() & 0o7777, metadata.uid())
    };
    assert_eq!(look("mine"), (0o640, 1234));
    assert_eq!(look("becomes-tool"), (0o750, 0));
    assert_eq!(look("tool"), (0o755, 0), "new content never inherits setuid");
    assert_eq!(look("no-tool"), (0o600, 0));
    assert_eq!(look("theirs/new"), (0o644, 4321));
    assert_eq!(look("theirs/sub/new-tool"), (0o755, 4321));
    assert_eq!(look("theirs/sub").1, 4321);
    assert_eq!(look("theirs/link").1, 4321);
}

#[test]
fn a_crash_after_any_step_leaves_all_or_nothing_also_when_recovery_crashes() {
    if skipped_without_root() {
        return;
    }
    let finished = sample();
    let before = exact(&finished.live);
    finished.apply(&finished.harvest()).expect("applies");
    let after = exact(&finished.live);

    let mut seen = Vec::new();
    for crash in 0.. {
        let mut recovery_ended = false;
        for second in 0.. {
            let f = sample();
            let harvest = f.harvest();
            let mut step = 0;
            let mut last = None;
            let outcome = f.observed(&harvest, &mut |at| {
                step += 1;
                last = Some(at);
                if step > crash { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if outcome.is_ok() {
                assert!(seen.contains(&ApplyStep::Forgotten) && seen.contains(&ApplyStep::Prepared));
                assert!(crash > 30, "{crash} steps");
                return;
            }
            assert!(matches!(outcome, Err(ApplyError::Stopped)), "{outcome:?}");
            let last = last.expect("a step");
            let mut step = 0;
            let (journal, live) = (directory(&f.journal), directory(&f.live));
            let recovery = recover_observed(journal.as_fd(), live.as_fd(), &mut |_| {
                step += 1;
                if step > second { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            match recovery {
                Err(ApplyError::Stopped) => drop(f.recover().expect("recovers at last")),
                other => {
                    let recovered = other.expect("recovers");
                    assert!(!matches!(&recovered, ApplyRecovery::RolledBack { kept } if !kept.is_empty()));
                    recovery_ended = true;
                }
            }
            let now = exact(&f.live);
            let committed = matches!(
                last,
                ApplyStep::Committed | ApplyStep::Tidied | ApplyStep::StageRemoved | ApplyStep::Forgotten
            );
            assert_eq!(
                now,
                if committed { after.clone() } else { before.clone() },
                "after {last:?}, {second}"
            );
            assert_eq!(f.recover().expect("nothing left"), ApplyRecovery::Nothing);
            if !committed && recovery_ended {
                // And it can be done again. Undoing it moved files, which their change time shows.
                let f = Folder { started: start(&f.live), ..f };
                f.apply(&harvest).expect("applies");
                assert_eq!(exact(&f.live), after);
            }
            seen.push(last);
            if recovery_ended {
                break;
            }
        }
    }
}

#[test]
fn an_unfinished_apply_must_be_recovered_before_the_next() {
    if skipped_without_root() {
        return;
    }
    let f = sample();
    let harvest = f.harvest();
    let _ = f.observed(&harvest, &mut |step| match step {
        ApplyStep::Operated => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(f.apply(&harvest), Err(ApplyError::Pending)));
    let elsewhere = tempfile::tempdir().expect("made");
    let wrong = recover(directory(&f.journal).as_fd(), directory(elsewhere.path()).as_fd());
    assert!(matches!(wrong, Err(ApplyError::NoStage { .. })), "{wrong:?}");
    assert_eq!(f.recover().expect("recovers"), ApplyRecovery::RolledBack { kept: vec![] });
}

#[test]
fn what_a_person_changed_meanwhile_refuses_the_whole() {
    if skipped_without_root() {
        return;
    }
    let f = sample();
    let harvest = f.harvest();
    let edit = |path: &str| put(&f.live, path, "a person's");
    // The same size and a forged time: only the change time tells.
    let time = fs::metadata(f.live.join("edit")).and_then(|metadata| metadata.modified()).expect("a time");
    fs::write(f.live.join("edit"), "BEFORE").expect("edited");
    fs::File::options()
        .write(true)
        .open(f.live.join("edit"))
        .expect("opens")
        .set_modified(time)
        .expect("set");
    fs::remove_file(f.live.join("gone")).expect("removed");
    edit("new/deep/file");
    edit("dir-to-file/b/mine");
    let before = exact(&f.live);
    let expected = [
        ("dir-to-file", ConflictReason::DirectoryInUse),
        ("edit", ConflictReason::Changed),
        ("gone", ConflictReason::Gone),
        ("new/deep/file", ConflictReason::Appeared),
    ];
    assert_eq!(f.conflicts(&harvest), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert_eq!(exact(&f.live), before, "nothing was touched");
    assert_eq!(fs::read_dir(&f.journal).expect("listed").count(), 0);
}

#[test]
fn a_parent_that_became_a_link_refuses_the_whole() {
    let f = folder(|live| drop(put(live, "d/a", "x")), |upper| drop(put(upper, "d/a", "y")));
    let harvest = f.harvest();
    fs::rename(f.live.join("d"), f.live.join("real")).expect("moved");
    link(&f.live, "d", "real");
    assert_eq!(f.conflicts(&harvest), [("d/a".to_owned(), ConflictReason::ParentReplaced)]);
    assert_eq!(fs::read(f.live.join("real/a")).expect("read"), b"x");
}

#[test]
fn a_person_who_saves_while_it_runs_loses_nothing() {
    if skipped_without_root() {
        return;
    }
    type Deed = fn(&Path);
    let deeds: [(&str, Deed); 5] = [
        ("edit", |live| fs::write(live.join("edit"), "a person's edit").expect("saved")),
        ("edit", |live| {
            put(live, ".edit.swp", "a person's edit");
            fs::rename(live.join(".edit.swp"), live.join("edit")).expect("saved");
        }),
        ("tool", |live| drop(put(live, "tool", "a person's edit"))),
        ("half/one", |live| fs::write(live.join("half/one"), "a person's edit").expect("saved")),
        ("dir-to-file/b/c", |live| drop(put(live, "dir-to-file/b/c", "a person's edit"))),
    ];
    for (path, deed) in deeds {
        let f = sample();
        let harvest = f.harvest();
        let mut expected = None;
        let outcome = f.observed(&harvest, &mut |step| {
            if step == ApplyStep::Prepared {
                deed(&f.live);
                let mut now = exact(&f.live);
                now.retain(|path, _| !path.as_os_str().as_bytes().starts_with(b".agency"));
                expected = Some(now);
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(outcome, Err(ApplyError::Conflicts(_))), "{path}: {outcome:?}");
        assert_eq!(Some(exact(&f.live)), expected, "{path}");
        assert_eq!(fs::read(f.live.join(path)).expect("read"), b"a person's edit");
    }
}

#[test]
fn what_a_person_does_after_a_crash_is_kept() {
    if skipped_without_root() {
        return;
    }
    let f = sample();
    let harvest = f.harvest();
    let _ = f.observed(&harvest, &mut |step| match step {
        ApplyStep::Synced => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    // Everything is in place and not committed. One file is edited, one path taken.
    fs::write(f.live.join("edit"), "edited after the crash").expect("edited");
    put(&f.live, "gone", "made after the crash");
    let ApplyRecovery::RolledBack { kept } = f.recover().expect("recovers") else { panic!("rolled back") };
    assert_eq!(kept, [rel("gone"), rel("edit")]);
    assert_eq!(fs::read(f.live.join("edit")).expect("read"), b"edited after the crash");
    assert_eq!(fs::read(f.live.join("gone")).expect("read"), b"made after the crash");
    assert_eq!(fs::read(f.live.join("half/one")).expect("read"), b"1");
    let stage = fs::read_dir(&f.live)
        .expect("listed")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.display().to_string().contains(".agency-apply"))
        .expect("the originals are kept");
    let originals: Vec<_> = fs::read_dir(stage)
        .expect("listed")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .map(|path| fs::read(path).expect("read"))
        .collect();
    assert!(originals.contains(&b"before".to_vec()) && originals.contains(&b"x".to_vec()));
}

#[test]
fn an_error_midway_puts_everything_back() {
    if skipped_without_root() {
        return;
    }
    let f = sample();
    let harvest = f.harvest();
    let before = exact(&f.live);
    let mut operated = 0;
    // Another directory takes the place of one that is about to be made.
    let outcome = f.observed(&harvest, &mut |step| {
        operated += usize::from(step == ApplyStep::Operated);
        if operated == 1 {
            fs::create_dir_all(f.live.join("new/deep/file")).expect("made");
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(outcome, Err(ApplyError::Conflicts(_))), "{outcome:?}");
    fs::remove_dir_all(f.live.join("new")).expect("removed");
    assert_eq!(exact(&f.live), before);
    assert_eq!(f.recover().expect("nothing left"), ApplyRecovery::Nothing);
}

#[test]
fn a_source_that_vanished_is_an_error_before_anything_moves() {
    let f = folder(|live| drop(put(live, "a", "x")), |upper| drop(put(upper, "a", "longer")));
    let harvest = f.harvest();
    put(&f.upper, "a", "short");
    let before = exact(&f.live);
    let outcome = f.apply(&harvest);
    assert!(matches!(outcome, Err(ApplyError::Path { .. })), "{outcome:?}");
    assert_eq!(exact(&f.live), before);
}

#[test]
fn two_at_once_are_refused() {
    let f = folder(|live| drop(put(live, "a", "x")), |upper| drop(put(upper, "a", "y")));
    let harvest = f.harvest();
    let mut inner = None;
    f.observed(&harvest, &mut |step| {
        if step == ApplyStep::Checked {
            inner = Some(f.apply(&harvest));
        }
        ControlFlow::Continue(())
    })
    .expect("applies");
    assert!(matches!(inner, Some(Err(ApplyError::Busy))));
}

#[test]
fn nothing_to_do_touches_nothing() {
    let f = folder(|live| drop(put(live, "a", "x")), |upper| drop(put(upper, "a", "x")));
    let before = fs::metadata(&f.live).expect("looked").ctime_nsec();
    f.apply(&f.harvest()).expect("applies");
    assert_eq!(fs::metadata(&f.live).expect("looked").ctime_nsec(), before);
}

#[test]
fn a_live_folder_under_a_real_overlay_takes_what_the_agent_did() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "edit", "before");
    put(&t.base, "d/a", "a");
    put(&t.base, "d/b", "b");
    put(&t.base, "deleted-meanwhile", "x");
    let started = start(&t.base);
    let merged = in_overlay(t.temp.path(), &[&t.base], &t.upper, |m| {
        fs::write(m.join("edit"), "after").expect("edited");
        fs::rename(m.join("d/a"), m.join("d/renamed")).expect("renamed");
        fs::remove_file(m.join("d/b")).expect("removed");
    });
    let journal = tempfile::tempdir().expect("made");
    let run = |harvest: &Harvest| {
        let (upper, live, journal) = (directory(&t.upper), directory(&t.base), directory(journal.path()));
        apply(&ApplyRequest {
            changes: &harvest.changes,
            upper: upper.as_fd(),
            live: live.as_fd(),
            started,
            journal: journal.as_fd(),
        })
    };
    run(&t.harvest()).expect("applies");
    assert_eq!(picture(&t.base), merged);
}

#[test]
fn an_edit_of_a_file_the_person_deleted_meanwhile_is_a_conflict() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "edit", "before");
    let started = start(&t.base);
    in_overlay(t.temp.path(), &[&t.base], &t.upper, |m| {
        fs::File::options()
            .append(true)
            .open(m.join("edit"))
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"more"))
            .expect("edited");
    });
    fs::remove_file(t.base.join("edit")).expect("removed");
    let (harvest, journal) = (t.harvest(), tempfile::tempdir().expect("made"));
    assert_eq!(lines(&harvest.changes), ["A edit"]);
    let outcome = apply(&ApplyRequest {
        changes: &harvest.changes,
        upper: directory(&t.upper).as_fd(),
        live: directory(&t.base).as_fd(),
        started,
        journal: directory(journal.path()).as_fd(),
    });
    let text = outcome.expect_err("refused").to_string();
    assert_eq!(text, "nothing was applied: edit was deleted from the folder since the agent started");
}

/// What a person made meanwhile counts: together with the work it would be a repository.
#[test]
fn a_folder_that_would_become_a_repository_is_not_applied() {
    let f = folder(|live| drop(put(live, "src/f/readme", "x")), |upper| drop(put(upper, "src/f/HEAD", "x")));
    let harvest = f.harvest();
    put(&f.live, "src/f/objects/x", "x");
    fs::create_dir_all(f.live.join("src/f/Refs")).expect("made");
    let before = exact(&f.live);
    assert!(f.conflicts(&harvest).contains(&("src/f".to_owned(), ConflictReason::Repository)));
    assert_eq!(exact(&f.live), before);
    fs::remove_dir(f.live.join("src/f/Refs")).expect("removed");
    f.apply(&harvest).expect("applied");
}
