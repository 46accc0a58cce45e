//! What an agent may leave to hang, exhaust, mislead or use the harvest.

mod harvest_support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use agency_sandbox::harvest::{HarvestLimits, Violation, ViolationReason};
use agency_sandbox::secret::NamedSecret;
use harvest_support::*;

fn reasons(harvest: &agency_sandbox::harvest::Harvest) -> Vec<(String, ViolationReason)> {
    let pair = |violation: &Violation| (violation.path.to_string(), violation.reason.clone());
    harvest.violations.iter().map(pair).collect()
}

#[test]
fn pipes_sockets_and_devices_are_refused_without_being_opened() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "was-a-file", "x");
    node(&t.upper.join("was-a-file"), rustix::fs::FileType::Fifo, 0, 0);
    node(&t.upper.join("null"), rustix::fs::FileType::CharacterDevice, 1, 3);
    node(&t.upper.join("disk"), rustix::fs::FileType::BlockDevice, 0, 0);
    let _listener = UnixListener::bind(t.upper.join("socket")).expect("bound");
    let start = Instant::now();
    let harvest = t.harvest();
    assert!(start.elapsed() < Duration::from_secs(1));
    let expected = [
        ("disk", ViolationReason::Device),
        ("null", ViolationReason::Device),
        ("socket", ViolationReason::Socket),
        ("was-a-file", ViolationReason::Fifo),
    ];
    assert_eq!(reasons(&harvest), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert_eq!(harvest.changes, []);
}

#[test]
fn bits_and_capabilities_that_give_rights_are_refused_unless_the_base_had_them() {
    let t = trees();
    chmod(put(&t.base, "had", "x"), 0o4755);
    put(&t.base, "same", "x");
    chmod(put(&t.upper, "had", "x"), 0o4755);
    chmod(put(&t.upper, "same", "x"), 0o4644);
    chmod(put(&t.upper, "new", "x"), 0o2755);
    let mut expected =
        vec![("new".to_owned(), ViolationReason::SetId), ("same".to_owned(), ViolationReason::SetId)];
    if is_root() {
        // cap_net_raw=ep, revision 2.
        let mut value = [0u8; 20];
        value[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
        mark(&put(&t.upper, "capable", "x"), "security.capability", &value);
        expected.insert(0, ("capable".to_owned(), ViolationReason::Capabilities));
    }
    assert_eq!(reasons(&t.harvest()), expected);
}

#[test]
fn links_that_leave_the_tree_are_refused_and_inner_ones_are_not() {
    let t = trees();
    link(&t.base, "was-there", "/usr");
    link(&t.upper, "was-there", "/usr");
    link(&t.upper, "absolute", "/etc/passwd");
    link(&t.upper, "up/up", "../../x");
    link(&t.upper, "dot", ".");
    link(&t.upper, "through", "dot/../x");
    link(&t.upper, "git", ".git/config");
    link(&t.upper, "a/b/inner", "../../x/y");
    let harvest = t.harvest();
    assert_eq!(lines(&harvest.changes), ["A a/b/inner", "A dot"]);
    let refused: Vec<_> = harvest.violations.iter().map(|violation| violation.path.to_string()).collect();
    assert_eq!(refused, ["absolute", "git", "through", "up/up"]);
}

#[test]
fn nothing_that_some_system_takes_for_dot_git_is_harvested() {
    let t = trees();
    put(&t.base, "base/.git/config", "x");
    for path in ["sub/.git/hooks/x", ".GIT/x", "b/.g\u{200c}it/x", "c/git~1", "d/.git", "base/.git/config"] {
        put(&t.upper, path, "y");
    }
    let harvest = t.harvest();
    assert_eq!(harvest.changes, []);
    assert_eq!(harvest.violations.len(), 6);
    assert!(harvest.violations.iter().all(|violation| violation.reason == ViolationReason::NestedGit));
}

#[test]
fn deleting_a_nested_repository_is_refused() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "vendor/lib/.git/config", "x");
    put(&t.base, "vendor/lib/code", "x");
    whiteout(&t.upper, "vendor");
    let harvest = t.harvest();
    assert_eq!(lines(&harvest.changes), ["D vendor/lib/code"]);
    assert_eq!(reasons(&harvest), [("vendor/lib/.git".to_owned(), ViolationReason::NestedGit)]);
}

#[test]
fn every_changed_path_is_judged_also_the_deleted_ones() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    for path in ["src/a", "other/a", "other/same", "src/secret/a", "src/hidden/a"] {
        put(&t.base, path, "x");
        whiteout(&t.upper, path);
    }
    fs::remove_file(t.upper.join("other/same")).expect("removed");
    put(&t.upper, "other/same", "x");
    put(&t.upper, "src/.envrc", "x");
    put(&t.upper, ".github/workflows/ci.yml", "x");
    let asked = Asked {
        write: &["src/**", ".github/workflows/ci.yml"],
        deny: &["src/secret"],
        hidden: vec![rel("src/hidden")],
        ..Asked::default()
    };
    let harvest = t.asked(&asked);
    assert_eq!(lines(&harvest.changes), ["A .github/workflows/ci.yml", "D src/a"]);
    let expected = [
        ("other/a", ViolationReason::OutOfScope),
        (
            "src/.envrc",
            ViolationReason::ControlFile {
                name: ".envrc".to_owned(),
                reader: "direnv".to_owned(),
                open: Some("src/.envrc".to_owned()),
                link: None,
            },
        ),
        ("src/hidden/a", ViolationReason::Hidden),
        ("src/secret/a", ViolationReason::Denied { glob: "src/secret".to_owned() }),
    ];
    assert_eq!(reasons(&harvest), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert!(!harvest.is_clean());
}

#[test]
fn a_passed_secret_is_found_in_contents_targets_and_names_and_not_repeated() {
    let value = "sk-abc/def-0123456789";
    let t = trees();
    put(&t.upper, "content", format!("{}{value}", "x".repeat(200_000)));
    link(&t.upper, "target", format!("a/{value}"));
    put(&t.upper, format!("dir/{value}/file"), "x");
    put(&t.upper, "short", "1234567");
    let asked = Asked {
        secrets: vec![
            NamedSecret { name: "API_KEY".into(), value: value.into() },
            NamedSecret { name: "PIN".into(), value: "1234567".into() },
        ],
        ..Asked::default()
    };
    let harvest = t.asked(&asked);
    assert_eq!(lines(&harvest.changes), ["A short"]);
    let secret = || ViolationReason::Secret { name: "API_KEY".into() };
    let expected = [
        ("content", secret()),
        ("dir/sk-abc", ViolationReason::SecretInName { name: "API_KEY".into() }),
        ("target", secret()),
    ];
    assert_eq!(reasons(&harvest), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert!(!serde_json::to_string(&harvest).expect("serializes").contains(value));
    // Out of scope too, the name is not repeated.
    let outside = t.asked(&Asked { write: &["other/**"], ..asked });
    assert!(!refusals(&outside).join("\n").contains(value));
}

#[test]
fn a_huge_file_is_refused_without_being_read() {
    let t = trees();
    let file = fs::File::create(t.upper.join("huge")).expect("made");
    file.set_len(1 << 40).expect("sparse");
    put(&t.base, "huge", "x");
    let start = Instant::now();
    let harvest = t.harvest();
    assert!(start.elapsed() < Duration::from_secs(1));
    let limit = HarvestLimits::default().file_size;
    assert_eq!(reasons(&harvest), [("huge".to_owned(), ViolationReason::TooLarge { size: 1 << 40, limit })]);
}

#[test]
fn hard_links_are_files_of_their_own_and_can_not_multiply_the_work() {
    let t = trees();
    let one = put(&t.upper, "one", vec![1; 1 << 20]);
    for index in 0..20 {
        fs::hard_link(&one, t.upper.join(format!("link-{index}"))).expect("linked");
    }
    assert_eq!(t.harvest().changes.len(), 21);
    let limits = HarvestLimits { total_size: 10 << 20, ..HarvestLimits::default() };
    let harvest = t.asked(&Asked { limits, ..Asked::default() });
    assert_eq!(harvest.changes.len(), 10);
    assert!(matches!(harvest.violations[0].reason, ViolationReason::TooMuch { .. }));
}

#[test]
fn more_changes_than_the_limit_end_the_walk() {
    let t = trees();
    for index in 0..300 {
        put(&t.upper, format!("d/{index}"), "x");
    }
    let limits = HarvestLimits { changes: 100, ..HarvestLimits::default() };
    let harvest = t.asked(&Asked { limits, ..Asked::default() });
    assert_eq!(reasons(&harvest), [(".".to_owned(), ViolationReason::TooMany { limit: 100 })]);
    assert!(harvest.changes.len() <= 101);
    let limits = HarvestLimits { names: 100, ..HarvestLimits::default() };
    let harvest = t.asked(&Asked { limits, ..Asked::default() });
    assert_eq!(reasons(&harvest), [(".".to_owned(), ViolationReason::TooMany { limit: 100 })]);
}

#[test]
fn deep_nesting_costs_neither_stack_nor_descriptors_and_ends_at_its_limit() {
    let t = trees();
    let deep = |levels: usize| {
        let mut here = directory(&t.upper);
        for _ in 0..levels {
            let _ = rustix::fs::mkdirat(&here, "d", 0o755.into());
            let flags = rustix::fs::OFlags::DIRECTORY;
            here = rustix::fs::openat(&here, "d", flags, rustix::fs::Mode::empty()).expect("opens");
        }
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        rustix::fs::openat(here, "f", flags, 0o644.into()).expect("made");
    };
    let limit = HarvestLimits::default().depth;
    deep(limit);
    let before = fs::read_dir("/proc/self/fd").expect("listed").count();
    // A small stack, and fewer descriptors than levels: either would be missed.
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit { current: Some(before as u64 + 50), maximum: limits.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).expect("set");
    let found = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(256 * 1024);
        builder.spawn_scoped(scope, || t.harvest()).expect("started").join().expect("ends")
    });
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).expect("set");
    assert_eq!(found.changes.len(), 1);
    assert_eq!(found.changes[0].path.components().count(), limit + 1);
    assert!(found.is_clean());

    deep(3000);
    let found = t.harvest();
    assert_eq!(found.changes.len(), 1);
    assert!(matches!(found.violations[..], [Violation { reason: ViolationReason::TooDeep { .. }, .. }]));
    // The standard library's removal keeps a descriptor per level; do it in pieces.
    let status = std::process::Command::new("rm").arg("-rf").arg(&t.upper).status().expect("rm runs");
    assert!(status.success());
}

#[test]
fn paths_that_are_long_together_end_the_walk_and_few_violations_are_listed() {
    let t = trees();
    for index in 0..200 {
        put(&t.upper, format!("{}/{index}", "long".repeat(50)), "x");
    }
    let limits = HarvestLimits { path_bytes: 10_000, ..HarvestLimits::default() };
    let harvest = t.asked(&Asked { limits, ..Asked::default() });
    assert_eq!(reasons(&harvest), [(".".to_owned(), ViolationReason::TooManyBytes { limit: 10_000 })]);
    assert!(harvest.changes.len() < 50);

    let limits = HarvestLimits { listed: 10, ..HarvestLimits::default() };
    let harvest = t.asked(&Asked { write: &["src/**"], limits, ..Asked::default() });
    assert_eq!((harvest.violations.len(), harvest.violations_left_out), (10, 190));
    assert!(!harvest.is_clean());
}

/// The shape counts, not the name, and the result, not what was added to it.
#[test]
fn a_folder_that_git_takes_for_a_repository_is_refused_however_it_came_about() {
    let whole = |root: &std::path::Path, folder: &str, parts: &[&str]| {
        parts.iter().for_each(|part| drop(put(root, format!("{folder}{part}"), "x")));
    };
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&[], &["src/f/HEAD", "src/f/config", "src/f/objects/x", "src/f/refs/x"], "src/f"),
        (&["src/f/objects/x", "src/f/refs/x"], &["src/f/HEAD"], "src/f"),
        (&["src/f/Head", "src/f/refs/x"], &["src/f/OBJECTS"], "src/f"),
        (&[], &["src/f/HEAD", "src/f/commondir"], "src/f"),
        (&["HEAD", "refs/x"], &["objects/x"], "."),
        // One that is there stays as it is, in whatever part of it.
        (&["a/HEAD", "a/objects/x", "a/refs/x"], &["a/config"], "a"),
        (&["a/HEAD", "a/objects/x", "a/refs/x"], &["a/hooks/deep/x"], "a"),
    ];
    for (base, upper, refused) in cases {
        let t = trees();
        whole(&t.base, "", base);
        whole(&t.upper, "", upper);
        put(&t.upper, "src/other", "x");
        let harvest = t.harvest();
        assert_eq!(
            reasons(&harvest),
            [(refused.to_string(), ViolationReason::Repository)],
            "{base:?} + {upper:?}"
        );
        assert!(harvest.changes.iter().all(|change| !change.path.is_within(&rel_or_root(refused))));
    }
    // Beside one that is there, work goes on.
    let t = trees();
    whole(&t.base, "fixtures/bare/", &["HEAD", "objects/x", "refs/x"]);
    put(&t.upper, "fixtures/other", "x");
    whole(&t.upper, "almost/", &["HEAD", "objects/x"]);
    let harvest = t.harvest();
    assert!(harvest.is_clean(), "{:?}", refusals(&harvest));
}

fn rel_or_root(text: &str) -> agency_sandbox::path::RelPath {
    if text == "." { agency_sandbox::path::RelPath::root() } else { rel(text) }
}

#[test]
fn deleting_a_part_of_a_repository_is_refused_too() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    for part in ["HEAD", "objects/x", "refs/x", "commondir"] {
        put(&t.base, format!("a/{part}"), "x");
        put(&t.base, format!("b/{part}"), "x");
    }
    whiteout(&t.upper, "a/commondir");
    whiteout(&t.upper, "b");
    let repositories = ["a", "b"].map(|path| (path.to_owned(), ViolationReason::Repository));
    assert_eq!(reasons(&t.harvest()), repositories);
}

#[test]
fn what_a_protected_name_leads_to_is_judged_as_that_name() {
    let t = trees();
    put(&t.base, "docs/guide.md", "x");
    link(&t.base, "AGENTS.md", "docs/guide.md");
    put(&t.upper, "docs/guide.md", "y");
    put(&t.upper, "docs/other.md", "y");
    let harvest = t.asked(&Asked { write: &["docs/**"], ..Asked::default() });
    let [(path, ViolationReason::ControlFile { link: Some(link), .. })] = &reasons(&harvest)[..] else {
        panic!("{:?}", refusals(&harvest));
    };
    assert_eq!((path.as_str(), link), ("docs/guide.md", &rel("AGENTS.md")));
    assert_eq!(lines(&harvest.changes), ["A docs/other.md"]);
    assert!(t.asked(&Asked { write: &["docs/**", "AGENTS.md"], ..Asked::default() }).is_clean());
    assert!(t.asked(&Asked { write: &["docs/other.md", "docs/guide.md"], ..Asked::default() }).is_clean());
}

#[test]
fn a_new_link_is_judged_as_what_it_leads_to_and_as_what_leads_to_it() {
    let t = trees();
    put(&t.base, ".envrc", "x");
    link(&t.base, ".claude", "tools/claude");
    link(&t.upper, "src/harmless", "../.envrc");
    link(&t.upper, "tools/claude", "../src");
    put(&t.upper, "src/settings.json", "y");
    let harvest = t.harvest();
    let refused: Vec<_> = harvest.violations.iter().map(|violation| violation.path.to_string()).collect();
    assert_eq!(refused, ["src/harmless", "src/settings.json", "tools/claude"]);
    assert_eq!(harvest.changes, []);
}

#[test]
fn new_caches_are_dropped_and_noted_and_old_ones_are_work() {
    let t = trees();
    put(&t.base, "old/__pycache__/a.pyc", "x");
    put(&t.upper, "old/__pycache__/a.pyc", "y");
    put(&t.upper, "src/__pycache__/a.pyc", "x");
    put(&t.upper, ".pytest_cache/v/x", "x");
    put(&t.upper, "src/.DS_Store", "x");
    put(&t.upper, ".cache/wanted", "x");
    link(&t.upper, ".tox", "src");
    let harvest = t.asked(&Asked { write: &["**", ".cache/wanted"], ..Asked::default() });
    assert_eq!(lines(&harvest.changes), ["A .cache/wanted", "M old/__pycache__/a.pyc"]);
    let mut noted: Vec<_> = harvest.warnings.iter().map(ToString::to_string).collect();
    noted.sort();
    assert_eq!(noted.len(), 3, "{noted:?}");
    assert!(noted[0].starts_with(".pytest_cache is the cache of a tool"), "{noted:?}");
    assert!(
        matches!(&reasons(&harvest)[..], [(path, ViolationReason::ControlFile { .. })] if path == ".tox")
    );
}

#[test]
fn names_of_any_bytes_are_harvested_as_they_are() {
    let t = trees();
    for name in [&b"\xff\xfe"[..], b"new\nline", b"\x1b[2J", b" ", b"-rf", b"a\"b\\c", b"*"] {
        put(&t.upper, OsStr::from_bytes(name), "x");
    }
    let harvest = t.harvest();
    assert_eq!(harvest.changes.len(), 7);
    assert!(harvest.changes.iter().any(|change| change.path.as_bytes() == b"\xff\xfe"));
}

/// As an ordinary user: the kernel checks permissions of a thread by its fsuid, and another than root's has
/// no capabilities over files.
fn as_owner<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::unistd::setfsgid(65534.into());
            nix::unistd::setfsuid(65534.into());
            work()
        });
        thread.join().expect("ends")
    })
}

#[test]
fn what_the_agent_locked_away_is_opened_and_judged_by_the_mode_it_chose() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.base, "same", "x");
    put(&t.upper, "same", "x");
    put(&t.upper, "a/b/new", "x");
    chmod(put(&t.upper, "a/exec", "x"), 0o100);
    chmod(t.upper.join("a/b/new"), 0);
    chmod(t.upper.join("same"), 0);
    chmod(t.temp.path(), 0o755);
    let chown = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(&t.upper).status();
    assert!(chown.expect("chown runs").success());
    chmod(t.upper.join("a/b"), 0);
    chmod(t.upper.join("a"), 0);
    chmod(&t.upper, 0o700);
    let harvest = as_owner(|| t.harvest());
    assert_eq!(lines(&harvest.changes), ["A a/b/new", "A a/exec"]);
    assert!(harvest.is_clean());
    assert_eq!(
        serde_json::to_value(&harvest.changes[1].after).expect("serializes")["executable"],
        serde_json::json!(true)
    );
}

#[test]
fn what_can_not_be_read_is_refused() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    chmod(put(&t.upper, "locked", "x"), 0);
    fs::create_dir(t.upper.join("locked-dir")).expect("made");
    chmod(t.upper.join("locked-dir"), 0);
    chmod(t.temp.path(), 0o755);
    // Owned by root: another user can't unlock it.
    let harvest = as_owner(|| t.harvest());
    assert_eq!(harvest.violations.len(), 2);
    assert!(
        harvest
            .violations
            .iter()
            .all(|violation| matches!(violation.reason, ViolationReason::Unreadable { .. }))
    );
    assert_eq!(fs::metadata(t.upper.join("locked")).expect("looked").mode() & 0o777, 0);
}

#[test]
fn a_link_in_the_place_of_a_base_directory_is_not_followed() {
    let t = trees();
    let outside = t.temp.path().join("outside");
    put(&outside, "a", "x");
    link(&t.base, "d", &outside);
    put(&t.upper, "d/a", "x");
    let harvest = t.harvest();
    assert_eq!(
        lines(&harvest.changes),
        ["D d", "A d/a"],
        "compared with the link, not with what is behind it"
    );
    assert_eq!(base(&[&t.base]).lookup(&rel("d/a")).expect("looked up"), None);
}

#[test]
fn a_mount_in_the_upper_layer_is_refused() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    put(&t.upper, "d/inner", "x");
    let harvest = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            use nix::mount::{MsFlags, mount};
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("a namespace");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private");
            mount(Some("tmpfs"), &t.upper.join("d"), Some("tmpfs"), MsFlags::empty(), None::<&str>)
                .expect("mounted");
            t.harvest()
        });
        thread.join().expect("ends")
    });
    assert!(matches!(&reasons(&harvest)[..], [(path, ViolationReason::Unreadable { .. })] if path == "d"));
}

#[test]
fn what_of_the_base_can_not_be_read_is_passed_over_when_nothing_in_it_changed() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    // Not readable for this user: a database's folder, somebody's keys.
    for index in 0..50 {
        let inside = put(&t.base, format!("d{index}/f"), "x");
        chmod(inside.parent().expect("a parent"), 0);
    }
    put(&t.base, "changed", "x");
    put(&t.upper, "changed", "y");
    for path in [t.temp.path(), &t.base, &t.upper] {
        chmod(path, 0o755);
    }
    let harvest = as_owner(|| t.harvest());
    assert_eq!(lines(&harvest.changes), ["M changed"]);
    assert!(harvest.is_clean());
}
