//! What an agent left becomes a commit, to the byte.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use agency_landing::Error;
use agency_landing::candidate::{self, HarvestedWork};
use agency_landing::commit::{CommitMetadata, Signature};
use agency_landing::names::{Oid, TaskName};
use agency_landing::repository::LandingRepository;
use agency_sandbox::harvest::{BaseLayers, Harvest, HarvestLimits, HarvestRules, harvest};
use agency_sandbox::scope::Scope;

use crate::support::{Put, World, worlds_by_git};

fn folder(path: &Path) -> OwnedFd {
    OwnedFd::from(File::open(path).expect("opens"))
}

/// An attempt on the last commit of `main`: what its layer holds is made by hand.
pub(crate) struct Attempt {
    lower: PathBuf,
    upper: PathBuf,
}

impl Attempt {
    pub(crate) fn on(world: &World) -> Self {
        let (lower, upper) = (world.outside("lower"), world.outside("upper"));
        fs::create_dir(&lower).expect("made");
        fs::create_dir(&upper).expect("made");
        let prefix = format!("--prefix={}/", lower.display());
        world.git(&["checkout-index", "--all", &prefix]);
        Self { lower, upper }
    }

    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        let path = self.upper.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }

    /// A deletion, as overlayfs marks it.
    fn delete(&self, name: &str) {
        let path = self.upper.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0).expect("made");
    }

    pub(crate) fn harvest(&self, scope: &[&str]) -> Harvest {
        let scope = Scope::parse(scope, &[]).expect("globs");
        let rules = HarvestRules {
            scope: &scope,
            scratch: &|_, _| false,
            repository: true,
            hidden: &[],
            secrets: &[],
            limits: HarvestLimits::default(),
        };
        harvest(folder(&self.upper).as_fd(), &BaseLayers::new(vec![folder(&self.lower)]), &rules)
    }

    fn write(&self, world: &World, harvest: &Harvest) -> Result<Option<Oid>, Error> {
        let base = Oid::parse(&world.at("main")).expect("a commit");
        self.write_on(&world.open(), &base, harvest, &TaskName::new("kodingx", "T1").expect("a task"))
    }

    pub(crate) fn write_on(
        &self,
        repository: &LandingRepository,
        base: &Oid,
        harvest: &Harvest,
        task: &TaskName,
    ) -> Result<Option<Oid>, Error> {
        let who = Signature::new("Agent <of> ours", "agent@localhost", 1_700_000_000, 60);
        let statement = CommitMetadata {
            author: &who,
            committer: &who,
            subject: "Does the work",
            body: "Because it was asked to.",
            task,
            epoch: 2,
            verify: Some("V7"),
        };
        let upper = folder(&self.upper);
        candidate::write(repository, &HarvestedWork { harvest, upper: upper.as_fd(), base }, &statement)
    }
}

#[test]
fn a_harvest_becomes_a_commit_of_exactly_that() {
    for world in worlds_by_git() {
        world.write(".gitattributes", b"* text=auto eol=crlf\n*.bin filter=lfs\n");
        world.write("old/folder/file", b"x\n");
        world.write("becomes", b"a folder\n");
        world.commit("More");
        let attempt = Attempt::on(&world);
        attempt.put("src/1.txt", b"raw\r\nbytes\n\xff\x00");
        attempt.put("large.bin", b"not a pointer");
        attempt.put("a\nb\"c", b"odd name\n");
        attempt.put("README", b"read me\n");
        fs::set_permissions(attempt.upper.join("README"), fs::Permissions::from_mode(0o755)).expect("chmod");
        symlink("src/2.txt", attempt.upper.join("link")).expect("linked");
        attempt.delete("old/folder/file");
        attempt.put("becomes/one", b"inside\n");
        let harvest = attempt.harvest(&["**"]);
        assert!(harvest.is_clean(), "{:?}", harvest.violations);
        let commit = attempt.write(&world, &harvest).expect("made").expect("a commit");
        let commit = commit.as_str();
        let changed = world.git(&["diff-tree", "-r", "--no-renames", "--name-status", "main", commit]);
        assert_eq!(
            changed,
            "M\tREADME\nA\t\"a\\nb\\\"c\"\nD\tbecomes\nA\tbecomes/one\nA\tlarge.bin\nA\tlink\nD\told/folder/file\nM\tsrc/1.txt"
        );
        let raw = world.command(&world.root(), &["cat-file", "blob", &format!("{commit}:src/1.txt")]);
        let raw = { raw }.output().expect("git runs").stdout;
        assert_eq!(raw, b"raw\r\nbytes\n\xff\x00", "no filter and no line ending touched it");
        assert!(world.git(&["ls-tree", commit, "README", "link"]).contains("100755 blob"));
        let said = world.git(&["log", "-1", "--format=%an <%ae>%n%ad%n%B", "--date=iso", commit]);
        assert_eq!(
            said,
            "Agent of ours <agent@localhost>\n2023-11-14 23:13:20 +0100\nDoes the work\n\nBecause it was asked to.\n\n\
             Agency-Task: T1\nAgency-Attempt: 2\nAgency-Verify: V7"
        );
        assert_eq!(attempt.write(&world, &harvest).expect("made again").expect("a commit").as_str(), commit);
        assert!(!world.git(&["for-each-ref"]).contains("made"), "nothing refers to it yet");
        world.git(&["fsck", "--strict"]);
    }
}

#[test]
fn a_harvest_of_many_or_large_files_is_what_git_would_make_of_it() {
    for world in worlds_by_git() {
        world.write("swap", b"a file\n");
        world.commit("More");
        let (attempt, base) = (Attempt::on(&world), world.at("main"));
        let large = vec![b'x'; 5 << 20];
        let names: Vec<String> = (0..80).map(|number| format!("d{}/e{number}/f", number % 9)).collect();
        let mut changes: Vec<(&str, Put<'_>)> = vec![("large", Put::File(&large)), ("swap", Put::Gone)];
        changes.push(("swap/inside", Put::File(b"inside\n")));
        changes.extend(names.iter().map(|name| (name.as_str(), Put::File(b"one of many\n"))));
        // First a large file alone, then many.
        for count in [1, changes.len()] {
            for (name, put) in &changes[..count] {
                match put {
                    Put::File(content) => attempt.put(name, content),
                    _ => assert_eq!(*name, "swap", "a folder hides it"),
                }
            }
            let made = attempt.write(&world, &attempt.harvest(&["**"])).expect("made").expect("a commit");
            let tree = |commit: &str| world.at(&format!("{commit}^{{tree}}"));
            assert_eq!(tree(made.as_str()), tree(&world.candidate(&base, &changes[..count])));
        }
        let own = world.place().join("objects.git");
        let left = world.git_at(&own, &["for-each-ref"]);
        assert_eq!(left, "", "git's own reference is gone");
    }
}

#[test]
fn nothing_changed_is_no_commit_and_a_violation_is_an_error() {
    for world in worlds_by_git() {
        let attempt = Attempt::on(&world);
        attempt.put("README", b"read me\n");
        assert_eq!(attempt.write(&world, &attempt.harvest(&["**"])).expect("answered"), None);
        attempt.put("README", b"changed\n");
        let refused = attempt.write(&world, &attempt.harvest(&["src/**"])).expect_err("refused");
        assert!(
            refused.to_string().starts_with("the work has 1 violations, the first is README"),
            "{refused}"
        );
    }
}

#[test]
fn a_file_in_a_submodules_folder_is_refused_by_name() {
    for world in worlds_by_git() {
        let other = world.at("main");
        world.git(&["update-index", "--add", "--cacheinfo", "160000", &other, "lib"]);
        world.git(&["commit", "--quiet", "-m", "A submodule"]);
        let attempt = Attempt::on(&world);
        fs::create_dir_all(attempt.lower.join("lib")).expect("made");
        attempt.put("lib/file", b"inside\n");
        let refused = attempt.write(&world, &attempt.harvest(&["**"])).expect_err("refused");
        assert!(matches!(&refused, Error::Submodule { path } if path.as_bytes() == b"lib"), "{refused}");
    }
}

#[test]
fn what_changed_after_the_harvest_is_not_committed() {
    for world in worlds_by_git() {
        let attempt = Attempt::on(&world);
        attempt.put("src/1.txt", b"harvested\n");
        let harvest = attempt.harvest(&["**"]);
        for other in [&b"longer than before\n"[..], b"short\n"] {
            attempt.put("src/1.txt", other);
            let refused = attempt.write(&world, &harvest).expect_err("refused");
            assert!(matches!(refused, Error::Changed { .. }), "{refused}");
        }
        fs::remove_file(attempt.upper.join("src/1.txt")).expect("removed");
        symlink("/etc/passwd", attempt.upper.join("src/1.txt")).expect("linked");
        let refused = attempt.write(&world, &harvest).expect_err("refused");
        assert!(matches!(refused, Error::Upper { .. }), "{refused}");
    }
}
