//! Everything a tree can hold, and everything a person's git can be told to do to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use agency_landing::names::Oid;
use agency_landing::tree_diff::{self, ChangedPath, GitTreeEntry, GitTreeEntryKind};

use crate::many::land_here;
use crate::support::{Actor, Put, Said, World, gits, worlds, worlds_by_git};

#[test]
fn links_modes_and_folders_that_change_places_with_files() {
    for world in worlds() {
        world.write("program", b"#!/bin/sh\n");
        world.chmod("program", 0o755);
        std::os::unix::fs::symlink("README", world.root().join("link")).expect("linked");
        world.write("folder/a", b"a\n");
        world.write("folder/deep/b", b"b\n");
        world.write("file", b"file\n");
        world.write("becomes-link", b"file\n");
        std::os::unix::fs::symlink("README", world.root().join("becomes-file")).expect("linked");
        let base = world.commit("Shapes");
        let work = world.candidate(
            &base,
            &[
                ("README", Put::Program(b"read me\n")),
                ("program", Put::File(b"#!/bin/sh\n")),
                ("link", Put::Link("src/1.txt")),
                ("folder/a", Put::Gone),
                ("folder/deep/b", Put::Gone),
                ("folder", Put::File(b"a file now\n")),
                ("file", Put::Gone),
                ("file/inside", Put::File(b"a folder now\n")),
                ("becomes-link", Put::Link("folder")),
                ("becomes-file", Put::File(b"a file now\n")),
                ("empty", Put::File(b"")),
                ("new-link", Put::Link("docs/guide")),
            ],
        );
        world.land("T1", &work).is("landed");
        assert_eq!(world.status(), "");
        assert_eq!(world.at("main"), work);
        let mode =
            |name: &str| fs::metadata(world.root().join(name)).expect("there").permissions().mode() & 0o111;
        assert_ne!(mode("README"), 0);
        assert_eq!(mode("program"), 0);
        let link = |name: &str| fs::read_link(world.root().join(name)).expect("a link");
        assert_eq!(link("link").to_str(), Some("src/1.txt"));
        assert_eq!(link("new-link").to_str(), Some("docs/guide"));
        assert_eq!(link("becomes-link").to_str(), Some("folder"));
        assert_eq!(world.read("folder"), "a file now\n");
        assert_eq!(world.read("file/inside"), "a folder now\n");
        world.assert_tidy();
    }
}

#[test]
fn two_trees_differ_where_git_says_that_they_differ() {
    for world in worlds_by_git() {
        for number in 0..40 {
            world.write(&format!("many/{}/{number}", number % 7), format!("{number}\n").as_bytes());
        }
        world.write("swap", b"a file\n");
        world.write("folder/inside", b"x\n");
        let base = world.commit("Many");
        let mut changes = vec![
            ("swap", Put::Gone),
            ("swap/inside/deep", Put::File(b"y\n")),
            ("folder/inside", Put::Gone),
            ("folder", Put::Link("docs")),
            ("README", Put::Program(b"read me\n")),
            ("a\nb/\"c\"", Put::File(b"odd\n")),
        ];
        changes.extend([
            ("many/3/3", Put::Gone),
            ("many/3/10", Put::Gone),
            ("many/5/5", Put::File(b"new\n")),
        ]);
        let work = world.candidate(&base, &changes);
        for (old, new) in [(&base, &work), (&work, &base), (&base, &base)] {
            let raw = ["diff-tree", "-r", "--raw", "--no-renames", "--no-abbrev", "-z", old, new];
            let raw = world.git(&raw).replace('\0', "\n");
            let oid = |text: &str| Oid::parse(text).expect("a commit");
            let found = tree_diff::between(&world.open(), &oid(old), &oid(new)).expect("compared");
            let mut shown: Vec<String> = found.iter().map(in_raw).collect();
            shown.sort();
            let mut expected: Vec<String> = raw
                .split(':')
                .filter(|one| !one.is_empty())
                .map(|one| format!(":{}", one.trim_end()))
                .collect();
            expected.sort();
            assert_eq!(shown, expected);
        }
    }
}

/// As git shows one path.
fn in_raw(one: &ChangedPath) -> String {
    let mode = |entry: &Option<GitTreeEntry>| match entry.as_ref().map(|entry| entry.kind) {
        None => "000000",
        Some(GitTreeEntryKind::File) => "100644",
        Some(GitTreeEntryKind::Program) => "100755",
        Some(GitTreeEntryKind::Link) => "120000",
        Some(GitTreeEntryKind::Submodule) => "160000",
    };
    let object = |entry: &Option<GitTreeEntry>| {
        entry.as_ref().map_or("0".repeat(40), |entry| entry.object.as_str().to_owned())
    };
    let letter = match (&one.old, &one.new) {
        (None, _) => 'A',
        (_, None) => 'D',
        (Some(old), Some(new))
            if (old.kind == GitTreeEntryKind::Link) != (new.kind == GitTreeEntryKind::Link) =>
        {
            'T'
        }
        _ => 'M',
    };
    let path = String::from_utf8_lossy(one.path.as_bytes()).into_owned();
    format!(
        ":{} {} {} {} {letter}\n{path}",
        mode(&one.old),
        mode(&one.new),
        object(&one.old),
        object(&one.new)
    )
}

#[test]
fn names_are_bytes() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let names =
            ["a\nb", "tab\there", "\"quoted\"", "back\\slash", "-dash", ":(glob)*", "space d", "über/ß"];
        let changes: Vec<_> = names.iter().map(|name| (*name, Put::File(b"x\n"))).collect();
        let work = world.candidate(&base, &changes);
        world.land("T1", &work).is("landed");
        for name in names {
            assert_eq!(world.read(name), "x\n", "{name:?}");
        }
        assert_eq!(world.status(), "");
        let more: Vec<_> = names.iter().map(|name| (*name, Put::File(b"y\n"))).collect();
        let more = world.candidate(&work, &more);
        world.write("a\nb", b"mine\n");
        world.land("T2", &more).waits_for(&[("edited", "a\\nb")]);
    }
}

#[test]
fn line_endings_are_those_of_the_persons_checkout() {
    for world in worlds() {
        world.write(".gitattributes", b"*.bat text eol=crlf\n*.raw -text\n");
        world.write("sub/.gitattributes", b"*.bat eol=lf\n");
        world.write("run.bat", b"one\r\ntwo\r\n");
        world.write("sub/run.bat", b"one\ntwo\n");
        world.write("as.raw", b"one\r\ntwo\n");
        let base = world.commit("Line endings");
        let work = world.candidate(
            &base,
            &[
                ("run.bat", Put::File(b"one\nthree\n")),
                ("sub/run.bat", Put::File(b"one\nthree\n")),
                ("as.raw", Put::File(b"one\r\nthree\n")),
                ("new.bat", Put::File(b"new\n")),
            ],
        );
        world.land("T1", &work).is("landed");
        assert_eq!(world.read("run.bat"), "one\r\nthree\r\n");
        assert_eq!(world.read("sub/run.bat"), "one\nthree\n");
        assert_eq!(world.read("as.raw"), "one\r\nthree\n");
        assert_eq!(world.read("new.bat"), "new\r\n");
        assert_eq!(world.status(), "");
        // The commit itself has the bytes it was made of.
        assert_eq!(world.at("main"), work);
    }
}

#[test]
fn autocrlf_of_the_repository_and_of_the_person_are_followed() {
    for world in worlds_by_git() {
        for file in ["--local", "--global"] {
            world.git(&["config", file, "core.autocrlf", "true"]);
            world.git(&["rm", "--quiet", "--cached", "-r", "."]);
            world.git(&["reset", "--quiet", "--hard"]);
            assert!(world.read("src/1.txt").contains("\r\n"));
            let base = world.at("main");
            let content = format!("one\ntwo {file}\n");
            let work = world.candidate(&base, &[("src/1.txt", Put::File(content.as_bytes()))]);
            world.land(file, &work).is("landed");
            assert_eq!(world.read("src/1.txt"), content.replace('\n', "\r\n"));
            assert_eq!(world.status(), "");
            world.git(&["config", file, "--unset", "core.autocrlf"]);
        }
    }
}

#[test]
fn a_setting_that_changes_between_two_landings_is_followed() {
    for world in worlds_by_git() {
        let repository = world.open();
        let included = world.outside("included");
        fs::write(&included, "").expect("written");
        world.git(&["config", "--global", "core.autocrlf", "false"]);
        let set = |value: &str| drop(world.git(&["config", "--global", "core.autocrlf", value]));
        let include = |text: &str| fs::write(&included, text).expect("written");
        let settings: [(&str, &dyn Fn(), &str); 5] = [
            ("plain", &|| {}, "\n"),
            ("set", &|| set("true"), "\r\n"),
            ("unset", &|| set("false"), "\n"),
            (
                "including",
                &|| drop(world.git(&["config", "include.path", included.to_str().expect("a path")])),
                "\n",
            ),
            ("included", &|| include("[core]\n\tautocrlf = true\n"), "\r\n"),
        ];
        for (task, change, end) in settings {
            change();
            world.git(&["rm", "--quiet", "--cached", "-r", "."]);
            world.git(&["reset", "--quiet", "--hard"]);
            let content = format!("one\ntwo {task}\n");
            let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(content.as_bytes()))]);
            land_here(&repository, task, &work);
            assert_eq!(world.read("src/1.txt"), content.replace('\n', end), "{task}");
            assert_eq!(world.status(), "", "{task}");
        }
    }
}

#[test]
fn a_file_with_other_line_endings_than_it_should_have_is_a_persons_edit() {
    for world in worlds_by_git() {
        world.write(".gitattributes", b"* text=auto\n");
        let base = world.commit("Attributes");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        let crlf = world.read("src/1.txt").replace('\n', "\r\n");
        world.write("src/1.txt", crlf.as_bytes());
        assert_eq!(world.git(&["diff", "--stat"]), "", "git takes it for the same");
        world.land("T1", &work).waits_for(&[("edited", "src/1.txt")]);
        assert_eq!(world.read("src/1.txt"), crlf);
    }
}

#[test]
fn files_that_a_filter_makes_are_waited_for_by_name_and_the_filter_never_runs() {
    for world in worlds() {
        world.write(".gitattributes", b"*.bin filter=lfs\n");
        world.write("large.bin", b"pointer\n");
        let base = world.commit("Large");
        let marker = world.outside("filter-ran");
        let filter = format!("touch {} && cat", marker.display());
        let work = world
            .candidate(&base, &[("large.bin", Put::File(b"other pointer\n")), ("README", Put::File(b"x\n"))]);
        for key in ["filter.lfs.clean", "filter.lfs.smudge", "filter.lfs.process"] {
            world.git(&["config", "--global", key, &filter]);
        }
        let _ = fs::remove_file(&marker);
        let picture = world.picture();
        let said = world.land("T1", &work);
        said.waits_for(&[("filtered", "large.bin")]);
        assert!(said.text().contains("filter `lfs`"), "{}", said.text());
        assert_eq!((world.at("main"), world.picture()), (base, picture));
        assert!(!marker.exists(), "the filter ran");
        // On a branch that is not checked out, blobs are blobs.
        world.land_with("T1", &work, &["act=branch"]).is("landed");
        assert!(!marker.exists(), "the filter ran");
        // Without git-lfs, a checkout has the pointers.
        for key in ["filter.lfs.clean", "filter.lfs.smudge", "filter.lfs.process"] {
            world.git(&["config", "--global", "--unset", key]);
        }
        world.land_with("T2", &work, &[]).is("landed");
        assert_eq!(world.read("large.bin"), "other pointer\n");
        assert_eq!(world.status(), "");
    }
}

#[test]
fn a_sparse_checkout_stays_as_sparse_as_it_is() {
    for world in worlds() {
        for how in [&["--cone"][..], &["--cone", "--sparse-index"], &["--no-cone"]] {
            let base = world.at("main");
            let patterns: &[&str] = if how[0] == "--cone" { &["src"] } else { &["/src/"] };
            world.git(&[&["sparse-checkout", "set"], how, patterns].concat());
            assert!(!world.exists("docs"));
            let content = how.join(" ");
            let put = Put::File(content.as_bytes());
            let (new_inside, new_outside) = (format!("src/{content}"), format!("docs/{content}"));
            let work = world.candidate(
                &base,
                &[("src/1.txt", put), ("docs/guide", put), (&new_inside, put), (&new_outside, put)],
            );
            world.land(&content, &work).is("landed");
            assert_eq!(world.at("main"), work);
            assert_eq!(world.read("src/1.txt"), content);
            assert_eq!(world.read(&new_inside), content);
            assert!(!world.exists("docs"), "left out");
            assert_eq!(world.status(), "");
            let hidden = world.git(&["ls-files", "-v", "docs"]);
            assert!(hidden.lines().all(|line| line.starts_with("S ")), "{hidden}");
            // What is left out and there all the same is a person's.
            let more = world.candidate(&work, &[("docs/guide", Put::File(b"more\n"))]);
            world.write("docs/guide", b"mine\n");
            world.land(&format!("{content} more"), &more).is("waits");
            assert_eq!(world.read("docs/guide"), "mine\n");
            fs::remove_dir_all(world.root().join("docs")).expect("removed");
            world.git(&["sparse-checkout", "disable"]);
            assert_eq!((world.read("docs/guide"), world.status().as_str()), (content, ""));
        }
        world.assert_tidy();
    }
}

#[test]
fn a_file_that_git_was_told_not_to_look_at_is_a_persons() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world
            .candidate(&base, &[("src/1.txt", Put::File(b"agent\n")), ("src/2.txt", Put::File(b"agent\n"))]);
        world.git(&["update-index", "--skip-worktree", "src/1.txt"]);
        world.git(&["update-index", "--assume-unchanged", "src/2.txt"]);
        world.write("src/1.txt", b"my local settings\n");
        world.write("src/2.txt", b"my local settings\n");
        assert_eq!(world.status(), "", "git sees nothing");
        world.land("T1", &work).waits_for(&[("hidden", "src/1.txt"), ("edited", "src/2.txt")]);
        assert_eq!(world.read("src/1.txt"), "my local settings\n");
        assert_eq!(world.read("src/2.txt"), "my local settings\n");
    }
}

#[test]
fn an_index_that_is_split_or_of_another_version_is_followed() {
    for world in worlds_by_git() {
        let mut base = world.at("main");
        for arguments in [&["update-index", "--split-index"][..], &["update-index", "--index-version", "4"]] {
            world.git(arguments);
            world.write("src/3.txt", b"staged\n");
            world.git(&["add", "src/3.txt"]);
            let content = arguments[1];
            let work = world.candidate(&base, &[("src/1.txt", Put::File(content.as_bytes()))]);
            world.land(content, &work).is("landed");
            assert_eq!(
                (world.read("src/1.txt").as_str(), world.status().as_str()),
                (content, "M  src/3.txt")
            );
            world.git(&["reset", "--quiet", "--hard"]);
            base = work;
        }
    }
}

#[test]
fn a_submodule_is_left_alone_and_may_not_change() {
    for world in worlds_by_git() {
        let library = world.outside("library");
        world.git(&["clone", "--quiet", ".", library.to_str().expect("a path")]);
        let other = world.git_at(&library, &["rev-parse", "HEAD"]);
        world.git(&["update-index", "--add", "--cacheinfo", "160000", &other, "lib"]);
        world.git(&["commit", "--quiet", "-m", "A submodule"]);
        fs::create_dir_all(world.root().join("lib")).expect("made");
        let base = world.at("main");
        let beside = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        world.land("T1", &beside).is("landed");
        assert_eq!(world.status(), "");
        for (task, put) in [("T2", Put::Gone), ("T3", Put::File(b"a file now\n"))] {
            let work = world.candidate(&beside, &[("lib", put)]);
            let said = world.land(task, &work);
            assert_eq!(said.is("refused").text(), "lib is a submodule, and would change on the branch");
        }
        assert_eq!(world.at("main"), beside);
    }
}

#[test]
fn a_repository_of_sha256_is_no_different() {
    for git in gits() {
        let world = World::new(git, Actor::Same, &["--object-format=sha256"]);
        let base = world.at("main");
        assert_eq!(base.len(), 64);
        let work =
            world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n")), ("new", Put::File(b"new\n"))]);
        world.write("src/2.txt", b"person\n");
        world.commit("The person's");
        world.write("new", b"untracked\n");
        world.land("T1", &work).waits_for(&[("untracked", "new")]);
        fs::remove_file(world.root().join("new")).expect("removed");
        world.land("T1", &work).is("landed");
        world.land("T1", &work).is("already_landed");
        assert_eq!((world.status().as_str(), world.landings("main", "T1")), ("", 1));
        world.assert_tidy();
    }
}

#[test]
fn references_in_another_store_are_refused_by_name() {
    for git in gits() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = std::process::Command::new(&git)
            .args(["init", "--quiet", "--ref-format=reftable", "r"])
            .current_dir(folder.path())
            .status()
            .expect("git runs");
        if !made.success() {
            // A git that does not know the format can't have made a repository of it.
            continue;
        }
        let world = World::new(git, Actor::Same, &[]);
        let root = folder.path().join("r");
        let arguments = ["act=claim", "epoch=1"];
        let said = Said::of(world.program_at(&root, "T1", &arguments).spawn().expect("starts"));
        let error = said.is("error").value["error"].as_str().expect("a reason");
        assert!(error.contains("its references are kept as `reftable`"), "{error}");
    }
}

#[test]
fn what_is_made_belongs_to_who_owns_the_repository() {
    use std::os::unix::fs::MetadataExt;
    for world in worlds() {
        let owner = fs::metadata(world.root().join("README")).expect("there").uid();
        let base = world.at("main");
        let work =
            world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n")), ("a/b/c", Put::File(b"new\n"))]);
        world.write("README", b"mine\n");
        world.commit("The person's");
        world.land("T1", &work).is("landed");
        let mut waiting = vec![world.root()];
        while let Some(path) = waiting.pop() {
            let stat = path.symlink_metadata().expect("looked");
            assert_eq!(stat.uid(), owner, "{}", path.display());
            if stat.is_dir() {
                waiting.extend(
                    fs::read_dir(&path).expect("listed").map(|entry| entry.expect("an entry").path()),
                );
            }
        }
    }
}
