//! An upstream that is away for a while, and histories that went two ways: git's own merge brings them together, or a
//! person does, and until then the clone leaves the board alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use agency_tests::ground::Said;
use agency_tests::processes::wait_until;

use crate::site::{Site, ready};

const LONG: Duration = Duration::from_secs(60);

/// An agent here sees nothing that a test could tell it by, so some of them just work longer than a test takes to act.
fn board(count: usize) -> (Vec<String>, String) {
    let ids: Vec<String> = (1..=count).map(|number| format!("FEAT-{number}")).collect();
    let tasks = ids.iter().map(|id| ready(id).replace("agent:shell", "unassigned")).collect();
    (ids, tasks)
}

/// The clone's branch, at this moment.
fn tip(site: &Site) -> String {
    site.ground.git(&["rev-parse", "main"])
}

fn tip_of(remote: &str) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "-C", remote, "rev-parse", "main"])
        .output()
        .expect("git starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Puts an upstream behind a link, which can be renamed at any moment. A push that is under way when the folder itself is
/// renamed does not find its lock again, and nobody can push any more once the folder is back.
fn behind_a_link(remote: String) -> String {
    let folder = format!("{remote}.folder");
    fs::rename(&remote, &folder).expect("renamed");
    std::os::unix::fs::symlink(&folder, &remote).expect("linked");
    remote
}

fn says(said: &Said, what: &str) -> usize {
    said.err.matches(what).count()
}

/// How often each subject is in the log.
fn subjects(site: &Site) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for subject in site.log() {
        *counted.entry(subject).or_default() += 1;
    }
    counted
}

/// Each task was claimed, reported, landed and done once, and verified at most so often.
#[track_caller]
fn assert_worked_off_once(last: &Site, ids: &[String], most: usize, told: &str) {
    let counted = subjects(last);
    for id in ids {
        assert_eq!(last.state(id), "done", "{told}");
        for subject in [
            format!("{id}: claimed by agent:shell"),
            format!("{id}: in_progress -> to_be_tested by agent:shell"),
            format!("Task {id}"),
            format!("{id}: to_be_tested -> done by agent:shell"),
        ] {
            assert_eq!(counted.get(&subject), Some(&1), "{subject}: {counted:#?}\n{told}");
        }
        let verified = counted.get(&format!("{id}: verified, pass")).copied().unwrap_or_default();
        assert!((1..=most).contains(&verified), "{id} was verified {verified} times: {counted:#?}\n{told}");
        assert_eq!(last.ground.read(&format!("src/{id}")), format!("by {id}\n"));
    }
    last.ground.assert_compliant();
    last.ground.git(&["fsck", "--strict"]);
}

#[test]
fn an_outage_in_the_middle_of_two_runs_leaves_nothing_to_a_person() {
    let (ids, tasks) = board(12);
    let first = Site::new(&tasks);
    first.configure(
        "sleep 0.4; echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID",
        "backoff = \"100ms\"\nparallel = 2\n",
    );
    let remote = behind_a_link(first.share());
    let away = format!("{remote}.away");
    let second = Site::clone_of(&remote);
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| first.ground.agency(&["run"]));
        let two = scope.spawn(|| second.ground.agency(&["run"]));
        let landed = || ids.iter().filter(|id| first.ground.exists(&format!("src/{id}"))).count();
        assert!(wait_until(LONG, || landed() >= 2), "nothing lands");
        fs::rename(&remote, &away).expect("renamed");
        let last = tip_of(&away);
        // Both go on by themselves for a while: what their agents did is reported on their own branches.
        let apart = wait_until(LONG, || [&first, &second].iter().all(|site| tip(site) != last));
        fs::rename(&away, &remote).expect("renamed back");
        assert!(apart, "both have met the outage");
        (one.join().expect("ended"), two.join().expect("ended"))
    });
    let told = format!("{one:?}\n{two:?}");
    assert_eq!((one.code, two.code), (0, 0), "{told}");
    let last = Site::clone_of(&remote);
    // Whoever lands between another's attestation and its landing has it verified once more; that is no more than that.
    assert_worked_off_once(&last, &ids, 6, &told);
    let verified = last.log().iter().filter(|subject| subject.ends_with(": verified, pass")).count();
    assert!(verified <= 2 * ids.len() + ids.len() / 2, "{verified} times: {told}");
    for (site, said) in [(&first, &one), (&second, &two)] {
        assert_eq!(site.ground.git(&["status", "--porcelain"]), "");
        // That nothing new is started meanwhile is said by itself.
        let no_answer =
            says(said, "not pushed") + says(said, "not known elsewhere: there is no answer from origin/main");
        // A push that the outage meets halfway is refused, and that is said, too.
        let refused = says(said, "not known elsewhere: can't push to origin/main");
        assert!(no_answer <= 1 && refused <= 1, "each is said once: {told}");
    }
}

/// Nothing lands while others can't be told: merged later with what they landed, it would be something nobody proved.
#[test]
fn work_waits_for_an_upstream_that_is_away_and_lands_when_it_is_back() {
    let (ids, tasks) = board(1);
    let site = Site::new(&tasks);
    site.agent("sleep 6; echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID");
    let remote = site.share();
    let away = format!("{remote}.away");
    let said = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.ground.agency(&["run"]));
        assert!(wait_until(LONG, || site.state("FEAT-1") == "in_progress"));
        fs::rename(&remote, &away).expect("renamed");
        let verified = || site.log()[0] == "FEAT-1: verified, pass";
        let waits = wait_until(LONG, verified);
        let landed = site.ground.exists("src/FEAT-1");
        fs::rename(&away, &remote).expect("renamed back");
        assert!(waits && !landed, "{:?}", site.log());
        run.join().expect("ended")
    });
    assert_eq!(said.code, 0, "{said:?}");
    assert_worked_off_once(&Site::clone_of(&remote), &ids, 1, &said.err);
    assert_eq!(tip(&site), tip_of(&remote), "what was only here is known elsewhere");
}

/// An upstream that never answered is no outage: a run does not wait for an address that may be wrong.
#[test]
fn an_upstream_that_was_never_there_is_not_waited_for() {
    let site = Site::new(&ready("A-1"));
    site.agent("echo x > src/x");
    let remote = site.share();
    fs::rename(&remote, format!("{remote}.away")).expect("renamed");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["can't fetch from origin/main"]);
    assert_eq!((site.state("A-1").as_str(), site.ground.exists("src/x")), ("todo", false));
}

/// Commits the same line of a file in another way, here and for everybody.
fn diverge(site: &Site, remote: &str) -> Site {
    let other = Site::clone_of(remote);
    for (here, text) in [(&other, "theirs\n"), (site, "mine\n")] {
        here.ground.write("src/a.txt", text);
        here.ground.git(&["add", "src/a.txt"]);
        here.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--message=By hand"]);
    }
    other.ground.git(&["push", "--quiet"]);
    other
}

/// What a person does who is told to merge by hand.
fn merge_by_hand(site: &Site) {
    let pull = ["-c", "user.name=Ada", "pull", "--quiet", "--no-rebase", "--no-edit"];
    let pulled = site.ground.program(Path::new("git")).args(pull).output().expect("git starts");
    assert!(!pulled.status.success(), "it conflicts");
    site.ground.write("src/a.txt", "both\n");
    site.ground.git(&["add", "src/a.txt"]);
    site.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--no-edit"]);
}

#[test]
fn a_clone_that_can_not_be_merged_claims_nothing_says_so_once_and_goes_on_after_the_merge() {
    let (ids, tasks) = board(6);
    let site = Site::new(&tasks);
    site.agent("echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID");
    let remote = site.share();
    let other = diverge(&site, &remote);
    let (mine, theirs) = (tip(&site), tip_of(&remote));
    for _ in 0..2 {
        let said = site.ground.agency(&["run"]);
        assert_eq!(said.code, 10, "{said:?}");
        said.assert_names(&[
            "origin/main has gone another way: both changed src/a.txt",
            "git pull --no-rebase",
        ]);
        assert_eq!(says(&said, "has gone another way"), 1, "{said:?}");
        assert!(said.err.lines().count() <= 5, "it is said once, not for each task: {said:?}");
        assert_eq!((tip(&site), tip_of(&remote)), (mine.clone(), theirs.clone()), "nothing was committed");
    }
    // Others are not stopped by it.
    other.ground.ok(&["run", "--task", "FEAT-1"]);
    merge_by_hand(&site);
    site.ground.ok(&["run"]);
    let last = Site::clone_of(&remote);
    assert_worked_off_once(&last, &ids, 1, "");
    assert_eq!(last.ground.read("src/a.txt"), "both\n");
}

#[test]
fn work_that_is_done_when_a_clone_has_diverged_lands_after_the_merge_and_is_proved_no_more_than_that() {
    let (ids, tasks) = board(3);
    let site = Site::new(&tasks);
    site.configure(
        "sleep 6; echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID",
        "backoff = \"100ms\"\nparallel = 2\n",
    );
    let remote = site.share();
    let said = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.ground.agency(&["run"]));
        let working = || ids.iter().filter(|id| site.state(id) == "in_progress").count() == 2;
        assert!(wait_until(LONG, working));
        diverge(&site, &remote);
        run.join().expect("ended")
    });
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(says(&said, "has gone another way"), 1, "{said:?}");
    assert!(ids.iter().all(|id| !site.ground.exists(&format!("src/{id}"))), "nothing landed: {said:?}");
    assert_eq!(ids.iter().filter(|id| site.state(id) == "todo").count(), 1, "nothing was claimed: {said:?}");
    let before = tip(&site);
    let again = site.ground.agency(&["run"]);
    assert_eq!((again.code, tip(&site)), (10, before), "asking again changes nothing: {again:?}");
    merge_by_hand(&site);
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_worked_off_once(&Site::clone_of(&remote), &ids, 2, &said.err);
}

/// Who may read and not push is refused again and again: a run says so and ends, instead of waiting for an outage to pass.
#[test]
fn an_upstream_that_refuses_every_push_ends_a_run() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new(&ready("A-1"));
    site.agent("echo x > src/x");
    let remote = site.share();
    let hook = Path::new(&remote).join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().expect("a folder")).expect("made");
    fs::write(&hook, "#!/bin/sh\necho 'you may not push here' >&2\nexit 1\n").expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("executable");
    let before = tip_of(&remote);
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["origin/main"]);
    assert_eq!(tip_of(&remote), before, "nothing was pushed");
    assert_eq!((site.state("A-1").as_str(), site.ground.exists("src/x")), ("todo", false), "{said:?}");
}

/// A git that was killed in the upstream leaves its lock. It is named, and when it is gone the work goes on.
#[test]
fn a_lock_that_stays_in_the_upstream_is_named_with_its_remedy() {
    let (ids, tasks) = board(1);
    let site = Site::new(&tasks);
    site.agent("echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID");
    let remote = site.share();
    let lock = Path::new(&remote).join("refs/heads/main.lock");
    fs::write(&lock, "").expect("written");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["refs/heads/main.lock", "remove that file"]);
    assert!(!said.err.contains("another clone was faster"), "{said:?}");
    fs::remove_file(&lock).expect("removed");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_worked_off_once(&Site::clone_of(&remote), &ids, 1, &format!("{said:?}"));
}
