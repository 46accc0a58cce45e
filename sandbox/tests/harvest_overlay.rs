//! The harvest against real overlays, compared with a plain look at the merged tree.

mod harvest_support;

use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use agency_sandbox::harvest::apply::{ApplyRequest, FileClockTime, apply_observed};
use harvest_support::*;
use proptest::prelude::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};

fn sample(base: &Path) {
    put(base, "keep", "keep");
    put(base, "edit", "before");
    put(base, "touch", "same");
    put(base, "remove", "removed");
    put(base, "d/one", "1");
    put(base, "d/two", "2");
    put(base, "d/sub/three", "3");
    put(base, "gone/a", "a");
    put(base, "gone/b/c", "c");
    put(base, "swap/x", "x");
    put(base, "swap2/y", "y");
    put(base, "moved/file", "content that moves");
    chmod(put(base, "tool", "#!"), 0o755);
    link(base, "link", "keep");
}

#[test]
fn every_kind_of_edit_in_an_overlay_is_seen_as_a_plain_comparison_sees_it() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    sample(&t.base);
    let before = picture(&t.base);
    let merged = in_overlay(t.temp.path(), &[&t.base], &t.upper, |m| {
        fs::write(m.join("edit"), "after").expect("edited");
        fs::write(m.join("touch"), "same").expect("rewritten");
        fs::remove_file(m.join("remove")).expect("removed");
        fs::remove_dir_all(m.join("d")).expect("removed");
        put(m, "d/two", "2");
        put(m, "d/sub/four", "4");
        fs::remove_dir_all(m.join("gone")).expect("removed");
        put(m, "gone", "now a file");
        // Without redirect_dir a directory of the lower layer is copied by `mv`, as any program must.
        assert!(
            Command::new("mv").arg(m.join("moved")).arg(m.join("elsewhere")).status().expect("mv").success()
        );
        renameat_with(CWD, m.join("edit"), CWD, m.join("tool"), RenameFlags::EXCHANGE).expect("exchanged");
        fs::hard_link(m.join("keep"), m.join("keep-too")).expect("linked");
        fs::remove_file(m.join("link")).expect("removed");
        put(m, "link/inside", "x");
        chmod(m.join("swap"), 0);
        chmod(put(m, "swap2/locked", "x"), 0);
        fs::create_dir(m.join("empty")).expect("made");
        put(m, "\u{fc}/\n", "x");
    });
    let harvest = t.harvest();
    assert_eq!(lines(&harvest.changes), difference(&before, &merged));
    assert!(harvest.is_clean(), "{:?}", refusals(&harvest));
    assert_eq!(harvest.renames, [(rel("moved/file"), rel("elsewhere/file"))]);
}

#[test]
fn an_overlay_of_an_ordinary_user_is_read_the_same_way() {
    let t = trees();
    sample(&t.base);
    let before = picture(&t.base);
    let script = r#"
        cd "$1" && mkdir work merged truth || exit 9
        mount -t overlay overlay -o lowerdir=base,upperdir=upper,workdir=work,userxattr merged || exit 77
        cd merged && rm -r d && mkdir d && echo new > d/two && rm -r gone remove && echo after > edit &&
        mv keep kept && chmod 700 touch && rm link && mkdir link && echo x > link/y && cp -a . ../truth/
    "#;
    let status = Command::new("unshare").args(["-rm", "sh", "-c", script, "sh"]).arg(t.temp.path()).status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => {}
        code => return eprintln_skip(&format!("no overlay in a user namespace here ({code:?})")),
    }
    let merged = picture(&t.temp.path().join("truth"));
    let harvest = t.harvest();
    assert_eq!(lines(&harvest.changes), difference(&before, &merged));
    assert!(lines(&harvest.changes).contains(&"D d/one".to_owned()));
}

#[allow(clippy::print_stderr)]
fn eprintln_skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

#[test]
fn a_delta_between_snapshot_and_attempt_is_part_of_the_base() {
    if skipped_without_root() {
        return;
    }
    let t = trees();
    sample(&t.base);
    let delta = t.temp.path().join("delta");
    fs::create_dir(&delta).expect("made");
    let before = in_overlay(t.temp.path(), &[&t.base], &delta, |m| {
        fs::remove_dir_all(m.join("d")).expect("removed");
        put(m, "d/two", "two");
        fs::remove_file(m.join("remove")).expect("removed");
        fs::write(m.join("edit"), "moved base").expect("edited");
    });
    fs::remove_dir_all(t.temp.path().join("work")).expect("removed");
    let merged = in_overlay(t.temp.path(), &[&delta, &t.base], &t.upper, |m| {
        put(m, "d/one", "1");
        put(m, "remove", "removed");
        fs::write(m.join("edit"), "before").expect("edited");
        fs::remove_dir_all(m.join("gone")).expect("removed");
        put(m, "swap/new", "x");
    });
    let harvest = Asked::default().of(&t.upper, &[&delta, &t.base]);
    assert_eq!(lines(&harvest.changes), difference(&before, &merged));
}

/// One thing an agent does to a tree of few names, so that they meet often.
#[derive(Debug, Clone)]
enum Deed {
    Write(String, u8),
    Append(String),
    Remove(String),
    MakeDirectory(String),
    Rename(String, String),
    Exchange(String, String),
    Link(String, String),
    HardLink(String, String),
    Chmod(String, u32),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|parts| parts.join("/"))
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (path(), 0u8..3).prop_map(|(path, content)| Deed::Write(path, content)),
        1 => path().prop_map(Deed::Append),
        3 => path().prop_map(Deed::Remove),
        2 => path().prop_map(Deed::MakeDirectory),
        3 => (path(), path()).prop_map(|(from, to)| Deed::Rename(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Deed::Exchange(from, to)),
        1 => (path(), path()).prop_map(|(at, to)| Deed::Link(at, to)),
        1 => (path(), path()).prop_map(|(from, to)| Deed::HardLink(from, to)),
        1 => (path(), prop::sample::select(vec![0o644, 0o755, 0o000, 0o500])).prop_map(|(path, mode)| Deed::Chmod(path, mode)),
    ]
}

/// Whatever fails, fails: an agent's mistakes are part of the sequence.
fn perform(root: &Path, deed: &Deed) {
    let at = |path: &String| -> PathBuf { root.join(path) };
    let _ = match deed {
        Deed::Write(path, content) => fs::create_dir_all(at(path).parent().expect("a parent"))
            .and_then(|()| fs::write(at(path), [*content])),
        Deed::Append(path) => fs::File::options()
            .append(true)
            .open(at(path))
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"+")),
        Deed::Remove(path) => match fs::symlink_metadata(at(path)) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(at(path)),
            _ => fs::remove_file(at(path)),
        },
        Deed::MakeDirectory(path) => fs::create_dir_all(at(path)),
        Deed::Rename(from, to) => match Command::new("mv").arg("-T").arg(at(from)).arg(at(to)).output() {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
        Deed::Exchange(from, to) => {
            renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE).map_err(Into::into)
        }
        // A link to a plain name in its own directory certainly stays in the tree.
        Deed::Link(path, to) => std::os::unix::fs::symlink(to.rsplit('/').next().expect("a name"), at(path)),
        Deed::HardLink(from, to) => fs::hard_link(at(from), at(to)),
        Deed::Chmod(path, mode) => match fs::symlink_metadata(at(path)) {
            Ok(metadata) if !metadata.is_symlink() => {
                chmod(at(path), *mode);
                Ok(())
            }
            _ => Ok(()),
        },
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any base and any deeds: the changes are those a plain comparison finds, and applied to the base
    /// they give what the agent saw.
    #[test]
    fn any_sequence_of_deeds_is_harvested_exactly_and_applies_exactly(
        start in prop::collection::vec(deed(), 0..12),
        deeds in prop::collection::vec(deed(), 1..16),
    ) {
        if skipped_without_root() {
            return Ok(());
        }
        let t = trees();
        start.iter().for_each(|deed| perform(&t.base, deed));
        let before = picture(&t.base);
        let merged = in_overlay(t.temp.path(), &[&t.base], &t.upper, |m| {
            deeds.iter().for_each(|deed| perform(m, deed));
        });
        let harvest = t.harvest();
        prop_assert!(harvest.is_clean(), "{:?}", refusals(&harvest));
        prop_assert_eq!(lines(&harvest.changes), difference(&before, &merged));

        let live = t.temp.path().join("live");
        copy_tree(&t.base, &live);
        let (upper, held, journal) = (directory(&t.upper), directory(&live), tempfile::tempdir().expect("made"));
        let journal_held = directory(journal.path());
        // A tick, so that nothing of the copy was changed at the very moment.
        std::thread::sleep(std::time::Duration::from_millis(10));
        let work = ApplyRequest {
            changes: &harvest.changes,
            upper: upper.as_fd(),
            live: held.as_fd(),
            started: FileClockTime::now(held.as_fd()).expect("a mark"),
            journal: journal_held.as_fd(),
        };
        apply_observed(&work, &mut |_| ControlFlow::Continue(())).expect("applies");
        prop_assert_eq!(picture(&live), merged);
    }
}
