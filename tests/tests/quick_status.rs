//! Git in a workspace with many files asks what changed instead of looking. Whatever was done there, it must then say
//! what it says in an ordinary checkout after the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_tests::repository::{Actor, Repository, actors, said};

/// More than it takes for git to ask.
const FILES: usize = 5200;

/// Every git there is.
fn gits() -> Vec<&'static str> {
    let all = ["/usr/local/bin/git", "/usr/bin/git"];
    let found: Vec<_> = all.into_iter().filter(|path| Path::new(path).exists()).collect();
    if found.is_empty() { vec!["git"] } else { found }
}

/// Shows the status, as a person asks for it and with every single file. Inside, a git that looks at everything must
/// agree; it has an index of its own, so that it teaches the other one nothing.
const LOOK: &str = r#"
set -u
git() { command "$GIT" -c user.name=A -c user.email=a@b -c protocol.file.allow=always "$@"; }
look() {
  for how in normal all; do
    git status --porcelain -z --untracked-files=$how > $T/seen || echo "status failed"
    if [ -n "${INSIDE:-}" ] && [ -z "${GIT_INDEX_FILE:-}" ]; then
      cp .git/index $T/index
      GIT_INDEX_FILE=$T/index git -c core.fsmonitor=false -c core.untrackedCache=false \
        status --porcelain -z --untracked-files=$how > $T/plain
      cmp -s $T/seen $T/plain || { echo "after $1, looking at everything:"; tr '\0' '\n' < $T/plain; }
    fi
    echo "== $1 ($how)"; tr '\0' '\n' < $T/seen
  done
}
"#;

/// Some disks take it badly when many files are made and removed.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

struct Large {
    repository: Repository,
    copy: tempfile::TempDir,
}

impl Large {
    fn new(actor: Actor) -> Self {
        let names: Vec<String> =
            (0..FILES).map(|number| format!("p{}/s{}/f{number}", number % 7, number % 53)).collect();
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "a line\n")).collect();
        files.extend([
            (".gitignore", "/target\n*.log\n"),
            ("p1/.gitignore", "*.tmp\n"),
            ("top", "top\n"),
            ("d/one", "1\n"),
            ("d/two/three", "3\n"),
            ("odd/a b", "x"),
            ("odd/new\nline", "x"),
            ("odd/-dash", "x"),
            ("odd/ä", "x"),
        ]);
        let repository = Repository::new(actor, &files).expect("a repository");
        let large = Self { repository, copy: in_memory() };
        // Another branch, and a commit that only names a submodule.
        large.git(
            "git checkout -q -b other && echo other > top && mkdir -p new/deep && echo n > new/deep/file && rm -r d/two \
             && git add -A && git commit -q -m other && git checkout -q main \
             && git update-index --add --cacheinfo 160000,1234567890123456789012345678901234567890,sub \
             && git commit -q -m submodule && mkdir -p sub",
        );
        large
    }

    fn git(&self, script: &str) {
        let output = self.repository.command("sh").args(["-ec", script]).output().expect("runs");
        assert!(output.status.success(), "{script}: {output:?}");
    }

    fn inside(&self, git: &str, script: &str) -> String {
        let script = format!("GIT={git} T=/tmp INSIDE=1\n{LOOK}\n{script}");
        let output = self.repository.script(&["--base", "main", "--write", "**"], &script).expect("runs");
        let (printed, aside) = said(&output);
        assert!(!aside.contains("untracked cache") && !aside.contains("fsmonitor"), "{aside}");
        assert!(!printed.is_empty(), "{aside}");
        printed
    }

    /// The same in an ordinary checkout.
    fn outside(&self, git: &str, script: &str) -> String {
        let copy = self.copy.path().join("copy");
        let _ = fs::remove_dir_all(&copy);
        let copied =
            Command::new("cp").arg("-a").arg(self.repository.path()).arg(&copy).status().expect("runs");
        assert!(copied.success());
        let temporary = tempfile::tempdir().expect("a folder");
        let script = format!("GIT={git} T={}\n{LOOK}\n{script}", temporary.path().display());
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(&copy)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", temporary.path())
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "safe.directory")
            .env("GIT_CONFIG_VALUE_0", "*")
            .output()
            .expect("runs");
        let checkout: PathBuf = copy;
        let _ = fs::remove_dir_all(checkout);
        said(&output).0
    }

    #[track_caller]
    fn compare(&self, git: &str, script: &str) {
        let (inside, outside) = (self.inside(git, script), self.outside(git, script));
        if inside != outside {
            let parts = |text: &str| text.split("== ").map(str::to_owned).collect::<Vec<_>>();
            let (inside, outside) = (parts(&inside), parts(&outside));
            let differ = inside.iter().zip(&outside).find(|(one, other)| one != other);
            panic!("{git}: inside and outside differ, first here: {differ:#?}");
        }
    }
}

/// Things that are done to work trees, each by a name and as a script. They build on each other.
const DEEDS: &[(&str, &str)] = &[
    ("writing before any look", "echo changed > p0/s0/f0; echo new > p3/fresh; rm p2/s2/f2"),
    ("an edit", "echo more >> top"),
    ("an edit of the same length", "printf 'A line\\n' > p4/s4/f4"),
    ("a mode", "chmod +x p5/s5/f5"),
    ("a link", "ln -sf f6 p6/link; rm p6/s6/f6; ln -s nowhere p6/s6/f6"),
    ("a folder removed", "rm -r d/two"),
    ("a folder removed and made again", "rm -r p1/s1; mkdir p1/s1; echo x > p1/s1/only"),
    ("a folder that was made again emptied", "rm p1/s1/only"),
    ("a folder moved", "mv p2/s3 p2/moved 2>/dev/null || { cp -a p2/s3 p2/moved; rm -r p2/s3; }"),
    ("a file for a folder", "rm -r p3/s3; echo file > p3/s3"),
    ("a folder for a file", "rm p0/s0/f371; mkdir -p p0/s0/f371/in; echo x > p0/s0/f371/in/side"),
    (
        "odd names",
        "echo y > 'odd/a b'; rm -- odd/-dash; echo z > \"odd/two
lines\"; echo b > \"odd/$(printf 'b\\377d')\"; rm \"odd/new
line\"",
    ),
    ("something untracked", "mkdir -p u/v/w; echo x > u/v/w/x; echo y > p5/untracked"),
    ("less untracked", "rm p5/untracked"),
    ("nothing untracked", "rm -r u"),
    ("empty folders", "mkdir -p e/f/g"),
    ("ignored files", "echo l > p0/a.log; echo t > p1/s4/x.tmp; mkdir -p target/x; echo o > target/x/o"),
    ("more ignored files", "mkdir -p target/y; echo o > target/y/o; rm -r target/x"),
    ("rules that ignore less", "echo '*.log' > .gitignore"),
    ("what they ignored changing", "echo more > target/y/more; rm target/y/o"),
    ("rules that ignore nothing", "rm .gitignore"),
    ("more of that", "mkdir target/z; echo z > target/z/z; rm target/y/more"),
    ("the rules back", "git checkout -q -- .gitignore"),
    ("an ignored file added", "git add -f target/z/z; echo again > target/z/z"),
    ("an ignored file gone", "rm -r target/z"),
    ("other rules", "echo '*.odd' >> .git/info/exclude; echo x > p4/some.odd"),
    ("an add", "git add p0 p3"),
    ("a new file added", "echo n > p0/s0/new; git add p0/s0/new"),
    ("a new file gone", "rm p0/s0/new"),
    ("new folders added", "mkdir -p n/o/p; echo 1 > n/o/p/1; echo 2 > n/2; git add n"),
    ("new folders gone", "rm -r n"),
    ("a commit", "git commit -q -m some"),
    ("a commit of everything", "git add -A && git commit -q -m all"),
    ("an edit after it", "echo after >> top; echo after > p3/fresh"),
    ("a stash", "git stash -q -u"),
    ("the stash again", "git stash pop -q"),
    ("a mixed reset", "git reset -q HEAD~1"),
    ("a hard reset", "git reset -q --hard HEAD~1 && git clean -qfd"),
    ("another branch", "git switch -q --detach other"),
    ("a file of that branch gone", "rm new/deep/file"),
    ("a folder of that branch gone", "git checkout -q -- . && rm -r new"),
    ("back again", "git checkout -q -- . && git switch -q --detach main"),
    ("a move by git", "git mv p6/s6/f59 p6/s6/moved59; git mv top d/top"),
    ("removed by git", "git rm -q -r p5/s5"),
    ("forgotten by git", "git rm -q --cached -r p4/s4"),
    (
        "a merge that conflicts",
        "git add -A; git commit -q -m before; echo ours > top; git commit -q -a -m ours; git merge -q other >/dev/null 2>&1",
    ),
    ("a merge given up", "git merge --abort"),
    (
        "a repository inside",
        "git init -q inner && (cd inner && echo x > x && git add x && git commit -q -m x)",
    ),
    ("a change in it", "echo y > inner/y"),
    ("it is a repository no more", "rm -rf inner/.git"),
    (
        "in the place of a submodule",
        "git init -q sub && (cd sub && echo x > x && git add x && git commit -q -m x)",
    ),
    ("more in that", "echo more > sub/x"),
    ("no submodule", "rm -rf sub"),
    ("the submodule's folder", "mkdir sub"),
    (
        "another version of the index",
        "git update-index --index-version 4; echo v4 > p0/s1/v4; git add p0/s1/v4",
    ),
    ("gone from that", "rm p0/s1/v4"),
    ("an index in two files", "git update-index --split-index; echo sp > p0/s1/sp; git add p0/s1/sp"),
    ("gone from those", "rm p0/s1/sp; rm p0/s2/f107"),
    ("an index in one", "git update-index --no-split-index --index-version 2"),
    (
        "an index elsewhere",
        "cp .git/index $T/else; echo el > p0/s1/el; GIT_INDEX_FILE=$T/else git add p0/s1/el; rm p0/s1/el; GIT_INDEX_FILE=$T/else; export GIT_INDEX_FILE",
    ),
    ("the index at home", "unset GIT_INDEX_FILE"),
    (
        "another work tree",
        "mkdir -p $T/tree/p0/s0; echo foreign > $T/tree/p0/s0/f7; echo foreign > $T/tree/top; git --git-dir=$PWD/.git --work-tree=$T/tree add p0/s0/f7 top 2>/dev/null",
    ),
    ("after another work tree", "git --git-dir=$PWD/.git --work-tree=$T/tree status >/dev/null 2>&1"),
    (
        "a second work tree",
        "git worktree add -q --detach $T/second main && (cd $T/second && echo x > top && rm p0/s0/f0 && git status --porcelain)",
    ),
    (
        "the folder of the second one",
        "(cd $T/second && git add -A && git commit -q -m second && git status --porcelain)",
    ),
    (
        "a git that looks itself",
        "git -c core.fsmonitor=false add -A; git -c core.fsmonitor=false commit -q -m looked",
    ),
    ("after that", "echo after > top; rm p1/s2/f303"),
    (
        "marked unchanged",
        "git update-index --assume-unchanged top; git update-index --skip-worktree p1/s2/f303",
    ),
    (
        "marked no more",
        "git update-index --no-assume-unchanged top; git update-index --no-skip-worktree p1/s2/f303",
    ),
    ("no index", "rm .git/index"),
    ("an index from a commit", "git reset -q"),
    ("everything back", "git checkout -q -f main~0 -- . && git clean -qfdx"),
];

fn script(deeds: &[(impl AsRef<str>, impl AsRef<str>)]) -> String {
    let lines = deeds.iter().map(|(name, deed)| {
        let (name, deed) = (name.as_ref(), deed.as_ref());
        format!("{{ {deed}\n}} || echo 'failed: {name}'\nlook '{name}'\nlook '{name} once more'\n")
    });
    lines.collect()
}

#[test]
fn git_says_what_it_says_in_an_ordinary_checkout() {
    for actor in actors() {
        let large = Large::new(actor);
        for git in gits() {
            large.compare(git, &script(DEEDS));
        }
    }
}

/// The same, looked at only in the end, where nothing was learnt on the way.
#[test]
fn the_first_look_may_come_late() {
    let large = Large::new(Actor::Root);
    for (number, _) in DEEDS.iter().enumerate().skip(3).step_by(13) {
        let deeds: String = DEEDS[..=number].iter().map(|(_, deed)| format!("{{ {deed}\n}}\n")).collect();
        large.compare(gits()[0], &format!("{deeds}\nunset GIT_INDEX_FILE\nlook late; look later"));
    }
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn path(&mut self) -> String {
        let parts = ["p0", "p1", "d", "s0", "s1", "two", "x", "y"];
        let mut path = String::new();
        for _ in 0..=self.roll(3) {
            path = format!("{path}{}/", parts[self.roll(parts.len())]);
        }
        match self.roll(3) {
            0 => format!("{path}f{}", self.roll(400)),
            1 => format!("{path}n{}", self.roll(4)),
            _ => path.trim_end_matches('/').to_owned(),
        }
    }

    fn deed(&mut self) -> String {
        let (one, other) = (self.path(), self.path());
        let number = self.roll(1000);
        match self.roll(16) {
            0..=3 => {
                format!("mkdir -p \"$(dirname {one})\" 2>/dev/null && echo {number} 2>/dev/null > {one}")
            }
            4 | 5 => format!("rm -rf {one}"),
            6 => format!("rm -rf {one}; mkdir -p {one} 2>/dev/null"),
            7 => format!("mv {one} {other} 2>/dev/null"),
            8 => format!("git add {one} 2>/dev/null"),
            9 => "git add -A 2>/dev/null".to_owned(),
            10 => format!("git commit -q -m {number} >/dev/null 2>&1"),
            11 => format!("git checkout -q HEAD -- {one} 2>/dev/null"),
            12 => "git stash -q -u 2>/dev/null; git stash pop -q >/dev/null 2>&1".to_owned(),
            13 => "git reset -q 2>/dev/null".to_owned(),
            14 => format!("rm -rf {one}; ln -s {other} {one} 2>/dev/null"),
            _ => format!("git rm -r -q --cached {one} 2>/dev/null"),
        }
    }
}

#[test]
fn whatever_is_done_in_whatever_order() {
    let large = Large::new(*actors().last().expect("an actor"));
    for seed in 0..4 {
        let mut dice = Dice(seed);
        let deeds: Vec<(String, String)> = (0..40)
            .map(|number| {
                // Now and then nobody looks for a while.
                let deeds: Vec<_> = (0..=dice.roll(3)).map(|_| dice.deed()).collect();
                (format!("{number} of {seed}"), format!("{}\ntrue", deeds.join("\n")))
            })
            .collect();
        let gits = gits();
        large.compare(gits[seed as usize % gits.len()], &script(&deeds));
    }
}

/// Of a snapshot git knows beforehand that nothing changed, and of the layers of a base that moved, too.
#[test]
fn nothing_has_to_be_looked_at() {
    for actor in actors() {
        let large = Large::new(actor);
        // A letter in lower case is for a file that git believes to be unchanged; the submodule is not one.
        let unsure =
            "git config core.fsmonitor; git ls-files -f | grep '^[A-Z]'; git status --porcelain; true";
        let expected = "/run/agency-git/changed\nH sub\n";
        for git in gits() {
            assert_eq!(large.inside(git, unsure), expected, "{git}");
        }
        large.git(
            "echo moved > top; rm -r d; mkdir -p p0/more; echo '*.x' > p0/more/.gitignore; echo y > p0/more/y; \
             git add -A; git commit -q -m moved",
        );
        for git in gits() {
            assert_eq!(large.inside(git, unsure), expected, "{git}");
            // And git looks into no folder: the untracked cache says what is in each.
            let trace = "GIT_TRACE2_PERF=/tmp/trace git status >/dev/null; grep -o 'opendir:.*' /tmp/trace";
            assert_eq!(large.inside(git, trace), "opendir:1\n", "{git}");
        }
    }
}

/// What is mounted over the tree is looked at, and what answers can be read and nothing else.
#[test]
fn what_is_hidden_is_seen_to_be_gone_and_what_answers_can_not_be_written() {
    for actor in actors() {
        let large = Large::new(actor);
        let flags = ["--base", "main", "--write", "**", "--hide", "p3/s3", "--hide", "top"];
        let script = "git status --porcelain 2>&1; echo; git -c core.fsmonitor=false status --porcelain 2>&1";
        let printed = said(&large.repository.script(&flags, script).expect("runs")).0;
        let (asked, looked) = printed.split_once("\n\n").expect("two looks");
        assert_eq!(asked, looked.trim_end());
        assert!(asked.contains(" M top") && asked.contains("p3/s3"), "{asked}");

        let output = large
            .repository
            .script(
                &["--base", "main", "--write", "**"],
                "echo x > top; cd /run/agency-git/layer && cat top; echo y > top; rm top; chmod 777 top; mkdir x; \
                 touch -d 2001-01-01 top; setfattr -n user.x -v y top; echo x > ../changed; rm ../changed; cat top",
            )
            .expect("runs");
        assert_eq!(said(&output).0, "x\nx\n", "{output:?}");
    }
}

/// Where there are no layers to tell from, git looks for itself, and says nothing of it.
#[test]
fn small_repositories_and_copies_are_as_they_were() {
    for actor in actors() {
        let small = Repository::new(actor, &[("a", "1\n")]).expect("a repository");
        let script = "git config core.fsmonitor; ls /run; echo 2 > a; git status --porcelain";
        let output = small.script(&["--base", "main", "--write", "**"], script).expect("runs");
        assert_eq!(said(&output).0, "false\n M a\n", "{output:?}");

        let large = Large::new(actor);
        let script =
            "git config core.fsmonitor; echo 2 > top; git status --porcelain; rm top; git status --porcelain";
        let flags = ["--isolation", "landlock", "--base", "main", "--write", "**"];
        let output = large.repository.script(&flags, script).expect("runs");
        let (printed, aside) = said(&output);
        assert_eq!(printed, "false\n M top\n D top\n", "{output:?}");
        assert!(!aside.contains("untracked cache"), "{aside}");
    }
}
