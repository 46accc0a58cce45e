//! The person: one act after the other, chosen by dice, and a memory of everything they wrote or took away.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agency_tests::dice::Dice;
use agency_tests::queue::Queue;

/// Where a run writes, too.
const BOARD: [&str; 2] = [".kodingx/STATE.md", ".kodingx/TASK_BOARD.md"];

/// How long a person tries what only a lock of git's keeps from working.
const PATIENCE: Duration = Duration::from_secs(60);

/// A person at work in a queue's repository.
pub(super) struct Person<'q> {
    queue: &'q Queue,
    tasks: &'q [String],
    /// Held while another branch than `main` is checked out: people begin a run on the branch it is to land on.
    on_main: &'q Mutex<()>,
    dice: Dice,
    began: Instant,
    /// The files they committed.
    files: Vec<String>,
    /// Every word they wrote, and in which file.
    pub(super) written: Vec<(String, String)>,
    /// The tasks they took away, with the moment after which none may land.
    pub(super) taken: BTreeMap<String, Taken>,
    /// What they did, for a test that fails.
    diary: String,
    branches: usize,
}

/// How a task was taken away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// Seconds since 1970, when it was done.
    pub(super) at: u64,
    pub(super) deleted: bool,
}

impl<'q> Person<'q> {
    pub(super) fn new(queue: &'q Queue, tasks: &'q [String], on_main: &'q Mutex<()>, seed: u64) -> Self {
        let person = Self {
            queue,
            tasks,
            on_main,
            dice: Dice::new(seed),
            began: Instant::now(),
            files: Vec::new(),
            written: Vec::new(),
            taken: BTreeMap::new(),
            diary: String::new(),
            branches: 0,
        };
        for (key, value) in [("user.name", "Ada"), ("gc.auto", "0"), ("advice.detachedHead", "false")] {
            queue.ground.git(&["config", key, value]);
        }
        person
    }

    /// One act after the other until told to stop; then everything that was begun is ended.
    pub(super) fn work(mut self, stop: &AtomicBool) -> Self {
        while !stop.load(Ordering::Relaxed) {
            self.act();
            self.pause();
        }
        self.clean_up();
        self
    }

    fn act(&mut self) {
        match self.dice.below(24) {
            0..=3 => self.append(),
            4..=7 => self.save_by_rename(),
            8..=9 => self.edit_task(),
            10..=12 => self.commit(),
            13..=14 => self.amend(),
            15..=17 => self.rebase(),
            18..=19 => self.stash(),
            20 => self.switch_and_back(),
            21 => self.collect_garbage(),
            22 => self.use_worktree(),
            _ => self.take_away(),
        }
    }

    /// People think between two acts.
    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(20 + self.dice.below(280)));
    }

    fn note(&mut self, line: &str) {
        let _ = writeln!(self.diary, "{:9.3} {line}", self.began.elapsed().as_secs_f64());
    }

    /// A word that is nowhere else.
    fn token(&mut self, file: &str) -> String {
        let word = format!("token-{}-of-ada", self.written.len());
        self.written.push((word.clone(), file.to_owned()));
        word
    }

    /// Runs a git command that may fail: whether it worked.
    fn git(&mut self, arguments: &[&str]) -> bool {
        let root = self.queue.path().to_owned();
        self.git_in(&root, arguments)
    }

    fn git_in(&mut self, folder: &Path, arguments: &[&str]) -> bool {
        let mut command = self.queue.ground.program(Path::new("git"));
        // Nobody is there to edit a message or a list of steps.
        command.env("GIT_EDITOR", "true").env("GIT_SEQUENCE_EDITOR", "true");
        let output = command.current_dir(folder).args(arguments).output().expect("git starts");
        let said =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().replace('\n', " | ");
        let line = match output.status.success() {
            true => format!("git {}", arguments.join(" ")),
            false => format!("git {}: {}: {said}", arguments.join(" "), output.status),
        };
        self.note(&line);
        output.status.success()
    }

    /// Tries until it works.
    fn insist(&mut self, arguments: &[&str]) {
        let end = Instant::now() + PATIENCE;
        while !self.git(arguments) {
            assert!(Instant::now() < end, "git {arguments:?} does not work in {PATIENCE:?}");
            // A rebase that could not be aborted leaves files that git knows nothing of. These are agents' work, and on
            // the branch.
            self.git(&["clean", "--quiet", "--force", "src"]);
            self.remove_left_lock();
            self.pause();
        }
    }

    /// What git advises where no other git is at work: a run that was killed leaves its lock until the next one.
    fn remove_left_lock(&mut self) {
        let is_running = self.queue.marker().alive().iter().any(|one| one.command.contains(" run "));
        if !is_running && fs::remove_file(self.path(".git/index.lock")).is_ok() {
            self.note("rm .git/index.lock");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.queue.path().join(name)
    }

    fn board_file(&mut self) -> &'static str {
        BOARD[usize::try_from(self.dice.below(2)).unwrap_or_default()]
    }

    /// `echo >> FILE`
    fn append(&mut self) {
        let name = self.board_file();
        let word = self.token(name);
        self.append_to(name, &word);
    }

    fn append_to(&mut self, name: &str, word: &str) {
        let opened = File::options().append(true).open(self.path(name));
        let mut file = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        writeln!(file, "{word}").expect("written");
        self.note(&format!("append {word} to {name}"));
    }

    fn save_by_rename(&mut self) {
        let name = self.board_file();
        let word = self.token(name);
        self.save(name, |text| Some(format!("{text}{word}\n")));
        self.note(&format!("save {word} in {name}"));
    }

    /// What editors do: the whole file, beside it, renamed over it. An editor that sees that the file changed meanwhile
    /// asks what to do; this person reads it again. Whether there was something to save.
    fn save(&self, name: &str, edit: impl Fn(&str) -> Option<String>) -> bool {
        let path = self.path(name);
        let beside = path.with_extension("swp");
        loop {
            let Ok(text) = fs::read_to_string(&path) else { return false };
            let Some(new) = edit(&text) else { return false };
            fs::write(&beside, new).expect("written");
            self.give(&beside);
            if fs::read_to_string(&path).is_ok_and(|now| now == text) {
                fs::rename(&beside, &path).expect("saved");
                return true;
            }
            fs::remove_file(&beside).expect("removed");
        }
    }

    /// Files belong to whoever works here.
    fn give(&self, path: &Path) {
        if let Some((uid, gid)) = self.queue.ground.owner() {
            std::os::unix::fs::lchown(path, Some(uid), Some(gid)).expect("given");
        }
    }

    fn some_task(&mut self) -> Option<(String, String)> {
        let there: Vec<&String> = self.tasks.iter().filter(|id| !self.taken.contains_key(*id)).collect();
        let id = there.get(usize::try_from(self.dice.below(there.len().max(1) as u64)).ok()?)?;
        Some(((*id).clone(), self.queue.ground.file(id)))
    }

    /// A sentence below a heading of the task's body.
    fn edit_task(&mut self) {
        let Some((id, name)) = self.some_task() else { return };
        let word = self.token(&name);
        let saved = self.save(&name, |text| {
            text.contains("## Problem\n")
                .then(|| text.replacen("## Problem\n", &format!("## Problem\n\n{word}\n"), 1))
        });
        assert!(saved, "{name} has no heading to write below");
        self.note(&format!("write {word} into {id}"));
    }

    /// A file of their own.
    fn write_own(&mut self, folder: &Path) -> String {
        let name = format!("person/{}.txt", self.written.len());
        let word = self.token(&name);
        let path = folder.join(&name);
        fs::create_dir_all(path.parent().unwrap_or(folder)).expect("made");
        fs::write(&path, format!("{word}\n")).expect("written");
        self.give(path.parent().unwrap_or(folder));
        self.give(&path);
        name
    }

    fn commit(&mut self) {
        let root = self.queue.path().to_owned();
        let name = self.write_own(&root);
        if self.git(&["add", &name]) && self.git(&["commit", "--quiet", &format!("--message=Add {name}")]) {
            self.files.push(name);
        }
    }

    /// One line more in the last commit, if that is one of theirs.
    fn amend(&mut self) {
        let Some(name) = self.files.last().cloned() else { return };
        let last = self.queue.ground.git(&["log", "-1", "--format=%s"]);
        // It may be in a stash, or the commit may have been undone.
        if last.trim() != format!("Add {name}") || !self.path(&name).exists() {
            return;
        }
        let word = self.token(&name);
        self.append_to(&name, &word);
        if self.git(&["add", &name]) {
            self.git(&["commit", "--quiet", "--amend", "--no-edit"]);
        }
    }

    /// Their last commits are made anew; sometimes it stops in the middle, and is given up or ended.
    fn rebase(&mut self) {
        let count = 1 + self.dice.below(3);
        let onto = format!("HEAD~{count}");
        let mut arguments = vec!["rebase", "--quiet", "--force-rebase"];
        if self.dice.below(3) > 0 {
            arguments.push("--autostash");
        }
        let stops = self.dice.below(2) == 0;
        if stops {
            arguments.extend(["--exec", "false"]);
        }
        arguments.push(&onto);
        if !self.git(&arguments) && self.is_rebasing() {
            self.pause();
            let aborts = self.dice.below(2) == 0;
            self.end_rebase(aborts);
        }
    }

    fn is_rebasing(&self) -> bool {
        ["rebase-merge", "rebase-apply"].iter().any(|name| self.path(".git").join(name).exists())
    }

    /// With `--exec`, it stops after each commit; with files of the board that a run has written meanwhile, it does not
    /// go on, and is given up. A rebase that failed before it had begun can't be aborted, only quit: git keeps what it had
    /// stashed.
    fn end_rebase(&mut self, aborts: bool) {
        let answers: &[&str] = match aborts {
            true => &["--abort", "--abort", "--abort", "--quit"],
            false => &["--continue", "--continue", "--continue", "--abort", "--abort", "--quit"],
        };
        let end = Instant::now() + PATIENCE;
        for answer in answers.iter().cycle() {
            if !self.is_rebasing() {
                return;
            }
            assert!(Instant::now() < end, "a rebase can't be ended in {PATIENCE:?}");
            if !self.git(&["rebase", answer]) {
                self.pause();
            }
        }
    }

    fn stash(&mut self) {
        if self.git(&["stash", "push", "--quiet"]) {
            self.pause();
            self.git(&["stash", "pop", "--quiet"]);
        }
    }

    fn switch_and_back(&mut self) {
        let on_main = self.on_main;
        let _away = on_main.lock().unwrap_or_else(PoisonError::into_inner);
        self.branches += 1;
        let branch = format!("side-{}", self.branches);
        if !self.git(&["switch", "--quiet", "--create", &branch]) {
            return;
        }
        if self.dice.below(2) == 0 {
            self.commit();
        }
        self.pause();
        self.insist(&["switch", "--quiet", "main"]);
    }

    fn collect_garbage(&mut self) {
        self.git(&["gc", "--quiet", "--prune=now"]);
    }

    /// Another work tree, with a commit of its own.
    fn use_worktree(&mut self) {
        self.branches += 1;
        let (branch, folder) = (format!("tree-{}", self.branches), self.queue.ground.user().join("tree"));
        let place = folder.to_string_lossy().into_owned();
        if !self.git(&["worktree", "add", "--quiet", "-b", &branch, &place]) {
            return;
        }
        let name = self.write_own(&folder);
        self.pause();
        let committed = self.git_in(&folder, &["add", &name])
            && self.git_in(&folder, &["commit", "--quiet", &format!("--message=Add {name}")]);
        assert!(committed, "nobody else is at work in {place}");
        self.insist(&["worktree", "remove", &place]);
    }

    /// A task is canceled in its file, or the file is deleted; of four tasks, three stay.
    fn take_away(&mut self) {
        if self.taken.len() * 4 >= self.tasks.len() {
            return;
        }
        let Some((id, name)) = self.some_task() else { return };
        let deleted = self.dice.below(3) == 0;
        let is_open = |text: &str| !text.contains("\nstatus: DONE\n");
        let gone = match deleted {
            true => {
                fs::read_to_string(self.path(&name)).is_ok_and(|text| is_open(&text))
                    && fs::remove_file(self.path(&name)).is_ok()
            }
            false => self.save(&name, |text| {
                let line = text.lines().find(|line| line.starts_with("status: "))?;
                is_open(text).then(|| text.replacen(line, "status: CANCELED", 1))
            }),
        };
        if gone {
            let at = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
            self.note(&format!("{} {id}", if deleted { "delete" } else { "cancel" }));
            self.taken.insert(id, Taken { at, deleted });
        }
    }

    /// Nothing of theirs is left in the way: no rebase, no stash that can be had back.
    fn clean_up(&mut self) {
        self.note("clean up");
        self.end_rebase(true);
        while self.git(&["stash", "pop", "--quiet"]) {}
    }
}

/// A test that fails shows what the person did.
impl Drop for Person<'_> {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the person did:\n{}", self.diary);
        }
    }
}
