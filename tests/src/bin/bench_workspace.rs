//! What a workspace costs on a large repository, beside what `git worktree` costs.
//!
//! Both ways take turns in one run, because a machine is never twice the same: a work tree is added, looked at
//! and removed; then the base moves by ten files, and an attempt gets its layers, has them mounted, changes
//! ten files and is harvested. The first snapshot is made beforehand and reported by itself.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agency_sandbox::harvest::{Base, Limits, Rules, harvest};
use agency_sandbox::scope::Scope;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::snapshot::{Layers, Made, Snapshots};
use agency_sandbox::workspace::state::State;
use agency_sandbox::workspace::{Added, Layer, Workspace};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CHANGES: usize = 10;
/// `git status` is run so often in one tree: the first one is the one that has to look at everything.
const LOOKS: usize = 4;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let files: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let temp = tempfile::tempdir()?;
    let root = temp.path().canonicalize()?.join("repo");
    make_repository(&root, files)?;
    let folder = Folder::around(&root)?;
    let state = folder.state(temp.path())?;
    let repository = folder.repository.as_ref().ok_or("no repository")?;
    let snapshots = Snapshots::open(&state, repository, Path::new("git"))?;

    let start = Instant::now();
    let first = snapshots.layers("main")?;
    println!("{files} files, {rounds} rounds; the first snapshot took {}", shown(start.elapsed()));
    assert_eq!(first.made, Made::Snapshot);
    drop(first);

    let (mut native, mut ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        native.push(native_attempt(&root, &temp.path().join("worktree"))?);
        move_base(&root, files, round)?;
        let whole = attempt(&snapshots, &state, &root, files, temp.path(), Made::Delta, false)?;
        let watched = attempt(&snapshots, &state, &root, files, temp.path(), Made::Nothing, true)?;
        ours.push(Attempt { looks: watched.looks, ..whole });
        println!("round {}: {}\n         {}", round + 1, native[round], ours[round]);
    }

    // The best of theirs beside the worst of ours: what else the machine does speaks for them.
    let best = |of: fn(&Attempt) -> Duration| native.iter().map(of).min().unwrap_or_default();
    let worst = |of: fn(&Attempt) -> Duration| ours.iter().map(of).max().unwrap_or_default();
    let middle = |list: &[Attempt], of: fn(&Attempt) -> Duration| {
        let mut times: Vec<_> = list.iter().map(of).collect();
        times.sort();
        times[times.len() / 2]
    };
    let compare = |what: &str, theirs: fn(&Attempt) -> Duration, of: fn(&Attempt) -> Duration| {
        let (one, other) = (middle(&native, theirs), middle(&ours, of));
        let ratio = one.as_secs_f64() / other.as_secs_f64();
        let least = best(theirs).as_secs_f64() / worst(of).as_secs_f64();
        let (one, other) = (shown(one), shown(other));
        println!("{what:<44} {one:>11} {other:>11} {ratio:>8.2} {least:>8.2}");
    };
    println!("\n{:<44} {:>11} {:>11} {:>8} {:>8}", "median", "worktree", "snapshot", "times", "at least");
    compare("the workspace is there", |one| one.there, |one| one.there);
    compare("first git status", |one| one.looks[0], |one| one.looks[0]);
    compare("later git status", Attempt::later, Attempt::later);
    compare("the workspace is gone (ours: harvested too)", |one| one.gone, |one| one.gone);
    compare(
        "add, status, remove / attempt and harvest",
        |one| one.there + one.looks[0] + one.gone,
        |one| one.there + one.gone,
    );
    compare(
        "the same with a status on both sides",
        |one| one.there + one.looks[0] + one.gone,
        |one| one.there + one.looks[0] + one.gone,
    );
    Ok(())
}

struct Attempt {
    there: Duration,
    looks: Vec<Duration>,
    gone: Duration,
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let looks: Vec<_> = self.looks.iter().map(|look| shown(*look)).collect();
        write!(f, "there {}, looks {}, gone {}", shown(self.there), looks.join(", "), shown(self.gone))
    }
}

impl Attempt {
    fn later(&self) -> Duration {
        self.looks[1..].iter().sum::<Duration>() / (self.looks.len() - 1) as u32
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = git_command(folder).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn git_command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn path(number: usize) -> String {
    format!("part{}/section{}/file{number}.txt", number / 1000, number / 100 % 10)
}

fn import(root: &Path, commit: &str, files: impl Iterator<Item = (usize, String)>) -> Result<()> {
    let mut child = git_command(root).args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    let mut out = BufWriter::new(child.stdin.take().ok_or("no input")?);
    out.write_all(commit.as_bytes())?;
    for (number, content) in files {
        write!(out, "M 644 inline {}\ndata {}\n{content}\n", path(number), content.len())?;
    }
    out.flush()?;
    drop(out);
    if child.wait()?.success() { Ok(()) } else { Err("fast-import failed".into()) }
}

fn commit(from: &str) -> String {
    format!("commit refs/heads/main\ncommitter A <a@b> 1700000000 +0000\ndata 1\nx\n{from}")
}

fn make_repository(root: &Path, files: usize) -> Result<()> {
    fs::create_dir(root)?;
    git(root, &["init", "-q", "-b", "main"])?;
    import(
        root,
        &commit(""),
        (0..files).map(|number| (number, format!("this is file {number}\n").repeat(20))),
    )
}

fn move_base(root: &Path, files: usize, round: usize) -> Result<()> {
    let changed = (0..CHANGES).map(|step| (step * files / CHANGES, format!("moved in round {round}\n")));
    import(root, &commit("from refs/heads/main^0\n"), changed)
}

fn look(folder: &Path) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..LOOKS {
        let start = Instant::now();
        let seen = git(folder, &["status", "--porcelain"])?;
        times.push(start.elapsed());
        if !seen.is_empty() {
            return Err(format!("not clean: {seen}").into());
        }
    }
    Ok(times)
}

fn native_attempt(root: &Path, at: &Path) -> Result<Attempt> {
    let name = at.to_str().ok_or("a path that is text")?;
    let start = Instant::now();
    git(root, &["worktree", "add", "-q", "--detach", name, "main"])?;
    let there = start.elapsed();
    let looks = look(at)?;
    let start = Instant::now();
    git(root, &["worktree", "remove", name])?;
    Ok(Attempt { there, looks, gone: start.elapsed() })
}

fn attempt(
    snapshots: &Snapshots,
    state: &State,
    root: &Path,
    files: usize,
    temp: &Path,
    expected: Made,
    watched: bool,
) -> Result<Attempt> {
    let (merged, top) = (temp.join("merged"), temp.join("top"));
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(&merged)?;
    fs::create_dir_all(&top)?;
    // A mount namespace belongs to a thread.
    std::thread::scope(|scope| {
        let done = scope.spawn(|| -> Result<Attempt> {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
            let start = Instant::now();
            let layers = snapshots.layers("main")?;
            let got = start.elapsed();
            let run = state.run();
            run.make()?;
            let workspace = snapshots.workspace(&layers, root, &run)?;
            mount_workspace(&workspace, &merged, &top)?;
            let there = start.elapsed();
            assert_eq!(layers.made, expected);
            let looks = if watched { look(&merged)? } else { Vec::new() };
            println!("         layers {}, workspace and mount {}", shown(got), shown(there - got));

            let start = Instant::now();
            for step in 0..CHANGES {
                fs::write(merged.join(path(step * files / CHANGES + 1)), "an agent was here\n")?;
            }
            umount2(&merged, MntFlags::MNT_DETACH)?;
            let changes = judge(&workspace, &layers)?;
            drop(run);
            let gone = start.elapsed();
            assert_eq!(changes, CHANGES);
            Ok(Attempt { there, looks, gone })
        });
        done.join().map_err(|_| "the attempt panicked")?
    })
}

fn judge(workspace: &Workspace, layers: &Layers) -> Result<usize> {
    let open = |path: &PathBuf| fs::File::open(path).map(OwnedFd::from);
    let base = Base::new(layers.lowers.iter().map(open).collect::<std::io::Result<_>>()?);
    let scope = Scope::parse(&["**"], &[])?;
    let scratch = |path: &agency_sandbox::path::RelPath, _: bool| path.as_bytes() == b".git";
    let rules = Rules {
        scope: &scope,
        scratch: &scratch,
        repository: true,
        hidden: &[],
        secrets: &[],
        limits: Limits::default(),
    };
    let Layer::Disk { upper, .. } = &workspace.overlays[0].layer else { return Err("it is on disk".into()) };
    let found = harvest(open(upper)?.as_fd(), &base, &rules);
    if !found.is_clean() {
        return Err(format!("{:?}", found.violations).into());
    }
    Ok(found.changes.len())
}

/// As a sandbox does it, with the added layer in a folder.
fn mount_workspace(workspace: &Workspace, merged: &Path, top: &Path) -> Result<()> {
    let overlay = &workspace.overlays[0];
    let Layer::Disk { upper, work } = &overlay.layer else { return Err("it is on disk".into()) };
    fs::create_dir(upper)?;
    fs::create_dir(work)?;
    for added in &overlay.added {
        match added {
            Added::Directory(path) => fs::create_dir_all(top.join(path.as_path()))?,
            Added::File(path, contents) => {
                let path = top.join(path.as_path());
                fs::create_dir_all(path.parent().ok_or("a parent")?)?;
                fs::write(path, contents)?;
            }
            Added::Absence(_) => return Err("nothing of a snapshot is hidden".into()),
        }
    }
    let mut lowers = vec![top.display().to_string()];
    lowers.extend(overlay.lowers.iter().map(|lower| lower.display().to_string()));
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off,volatile",
        lowers.join(":"),
        upper.display(),
        work.display()
    );
    mount(Some("overlay"), merged, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?;
    for objects in &workspace.objects {
        let at = merged.join(objects.at.strip_prefix(&workspace.path)?);
        mount(Some(&objects.source), &at, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, &at, None::<&str>, read_only, None::<&str>)?;
    }
    Ok(())
}
