//! A person's checkout comes along, or the branch does not move.

use std::fs;

use crate::support::{Put, edited, worlds, worlds_by_git};

#[test]
fn a_checked_out_branch_moves_together_with_its_files() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(
            &base,
            &[
                ("src/1.txt", Put::File(b"changed\n")),
                ("new/deep/file", Put::File(b"new\n")),
                ("docs/guide", Put::Gone),
            ],
        );
        world.land("T1", &work).is("landed");
        assert_eq!(world.at("main"), work);
        assert_eq!(world.read("src/1.txt"), "changed\n");
        assert_eq!(world.read("new/deep/file"), "new\n");
        assert!(!world.exists("docs"), "a folder without files goes, as with git");
        assert_eq!(world.status(), "");
        world.git(&["diff-index", "--quiet", "--cached", "HEAD"]);
        assert_eq!(
            world.git(&["reflog", "-1", "--format=%gs", "main"]),
            "agency: kodingx:T1 lands, attempt 1"
        );
        world.assert_tidy();
    }
}

#[test]
fn what_a_person_edits_elsewhere_is_neither_touched_nor_in_the_way() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        world.write("src/2.txt", b"edited\n");
        world.write("src/3.txt", b"staged\n");
        world.git(&["add", "src/3.txt"]);
        world.write("src/3.txt", b"staged and edited\n");
        world.write("untracked", b"mine\n");
        let (before, picture) = (world.status(), world.picture());
        world.land("T1", &work).is("landed");
        assert_eq!(world.status(), before);
        let after = world.picture();
        for (path, entry) in picture.iter().filter(|(path, _)| !path.ends_with("src/1.txt")) {
            assert_eq!(after.get(path), Some(entry), "{}", path.display());
        }
        assert_eq!(world.git(&["show", ":src/3.txt"]), "staged");
        world.assert_tidy();
    }
}

/// An edit that changes neither the size nor, by git's count of whole seconds, the time of a file.
#[test]
fn an_edit_in_the_second_of_its_commit_is_still_seen_after_a_landing() {
    for world in worlds_by_git() {
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        let touch = |name: &str| {
            let file = fs::File::options().write(true).open(world.root().join(name)).expect("opened");
            file.set_modified(time).expect("touched");
        };
        world.write("src/2.txt", b"aa\n");
        touch("src/2.txt");
        world.git(&["add", "src/2.txt"]);
        world.git(&["commit", "--quiet", "-mx"]);
        fs::write(world.root().join("src/2.txt"), b"bb\n").expect("edited in place");
        touch("src/2.txt");
        touch(".git/index");
        assert_eq!(world.status().trim(), "M src/2.txt", "git sees it");
        touch(".git/index");
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"changed\n"))]);
        world.land("T1", &work).is("landed");
        assert_eq!(world.status().trim(), "M src/2.txt", "git sees it no more");
    }
}

/// Git answers while it is still being asked, in more than a pipe holds.
#[test]
fn thousands_of_files_land_where_a_person_has_filters() {
    for world in worlds_by_git() {
        let base = world.at("main");
        world.git(&["config", "filter.lfs.clean", "cat"]);
        world.write(".gitattributes", b"*.bin filter=lfs\n");
        let names: Vec<String> =
            (0..2000).map(|n| format!("many/of/a/long/name/that/fills/a/pipe/{n}")).collect();
        assert!(names.iter().map(String::len).sum::<usize>() > 64 << 10, "a pipe holds them all");
        let work: Vec<(&str, Put<'_>)> = names.iter().map(|name| (name.as_str(), Put::File(b"x"))).collect();
        let work = world.candidate(&base, &work);
        world.land("T1", &work).is("landed");
        assert_eq!(world.read(&names[1999]), "x");
    }
}

#[test]
fn a_persons_edit_in_the_way_keeps_the_branch_where_it_is_and_survives_to_the_byte() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(
            &base,
            &[
                ("src/1.txt", Put::File(&edited(100, 118, "agent"))),
                ("src/2.txt", Put::File(&edited(200, 218, "agent"))),
                ("src/3.txt", Put::Gone),
                ("README", Put::File(b"agent\n")),
                ("new", Put::File(b"agent\n")),
                ("ignored", Put::File(b"agent\n")),
                ("folder", Put::File(b"agent\n")),
                ("file/below", Put::File(b"agent\n")),
            ],
        );
        world.write("src/1.txt", &edited(100, 103, "person"));
        world.write("src/2.txt", &edited(200, 203, "person"));
        world.git(&["add", "src/2.txt"]);
        world.write("src/3.txt", b"edited, and the agent deletes it\n");
        fs::remove_file(world.root().join("README")).expect("removed");
        world.write("new", b"untracked\n");
        world.write(".git/info/exclude", b"ignored\n");
        world.write("ignored", b"ignored, and precious\n");
        world.write("folder/mine", b"in a folder where a file is to be\n");
        world.write("file", b"a file where a folder is to be\n");
        let (before, picture) = (world.status(), world.picture());
        let said = world.land("T1", &work);
        said.waits_for(&[
            ("deleted", "README"),
            ("untracked", "file/below"),
            ("untracked", "ignored"),
            ("untracked", "new"),
            ("edited", "src/1.txt"),
            ("edited", "src/2.txt"),
            ("edited", "src/3.txt"),
        ]);
        assert!(said.text().contains("src/1.txt has been edited in"), "{}", said.text());
        assert_eq!((world.at("main"), world.status(), world.picture()), (base, before, picture));
        world.assert_tidy();
    }
}

#[test]
fn a_folder_with_something_in_it_is_in_the_way_of_a_file() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world
            .candidate(&base, &[("folder", Put::File(b"agent\n")), ("src/1.txt", Put::File(b"agent\n"))]);
        world.write("folder/mine", b"mine\n");
        let picture = world.picture();
        world.land("T1", &work).waits_for(&[("untracked", "folder")]);
        assert_eq!((world.at("main"), world.picture()), (base, picture));
        world.assert_tidy();
        fs::remove_file(world.root().join("folder/mine")).expect("removed");
        world.land("T1", &work).is("landed");
        assert_eq!((world.read("folder").as_str(), world.status().as_str()), ("agent\n", ""));
    }
}

#[test]
fn a_staged_change_alone_is_in_the_way() {
    for world in worlds() {
        let base = world.at("main");
        let work =
            world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n")), ("a/b", Put::File(b"agent\n"))]);
        let original = world.read("src/1.txt");
        world.write("src/1.txt", b"staged\n");
        world.git(&["add", "src/1.txt"]);
        world.write("src/1.txt", original.as_bytes());
        world.write("a", b"staged where a folder is to be\n");
        world.git(&["add", "a"]);
        fs::remove_file(world.root().join("a")).expect("removed");
        let before = world.status();
        world.land("T1", &work).waits_for(&[("staged", "a/b"), ("staged", "src/1.txt")]);
        assert_eq!((world.at("main"), world.status()), (base, before));
        assert_eq!(world.git(&["show", ":src/1.txt"]), "staged");
        world.assert_tidy();
    }
}

#[test]
fn what_waited_lands_when_the_way_is_free() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 118, "agent")))]);
        world.write("src/1.txt", &edited(100, 103, "person"));
        world.land("T1", &work).is("waits");
        world.commit("The person's own");
        world.land("T1", &work).is("landed");
        let text = world.read("src/1.txt");
        assert!(text.contains("agent\n") && text.contains("person\n"), "{text}");
        assert_eq!((world.status().as_str(), world.landings("main", "T1")), ("", 1));
    }
}

#[test]
fn a_person_who_made_the_same_edit_is_not_in_the_way() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(
            &base,
            &[
                ("src/1.txt", Put::File(b"same\n")),
                ("src/2.txt", Put::File(b"same\n")),
                ("new", Put::File(b"same\n")),
                ("docs/guide", Put::Gone),
            ],
        );
        world.write("src/1.txt", b"same\n");
        world.write("src/2.txt", b"same\n");
        world.git(&["add", "src/2.txt"]);
        world.write("new", b"same\n");
        fs::remove_file(world.root().join("docs/guide")).expect("removed");
        let picture = world.picture();
        world.land("T1", &work).is("landed");
        assert_eq!((world.status().as_str(), world.picture()), ("", picture), "no file was written");
    }
}

#[test]
fn a_staged_copy_of_the_work_with_the_file_taken_back_is_a_persons_edit() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        let original = world.read("src/1.txt");
        world.write("src/1.txt", b"agent\n");
        world.git(&["add", "src/1.txt"]);
        world.write("src/1.txt", original.as_bytes());
        world.land("T1", &work).waits_for(&[("edited", "src/1.txt")]);
        assert_eq!((world.at("main"), world.read("src/1.txt")), (base, original));
    }
}

#[test]
fn a_linked_worktree_comes_along_and_another_branchs_does_not() {
    for world in worlds() {
        let base = world.at("main");
        world.git(&["checkout", "--quiet", "-b", "other"]);
        let linked = world.outside("linked");
        world.git(&["worktree", "add", "--quiet", linked.to_str().expect("a path"), "main"]);
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        let picture = world.picture();
        world.land("T1", &work).is("landed");
        assert_eq!(fs::read(linked.join("src/1.txt")).expect("read"), b"changed\n");
        assert_eq!(world.git_at(&linked, &["status", "--porcelain"]), "");
        assert_eq!((world.picture(), world.status().as_str()), (picture, ""));

        // And from the linked one, with the person's edit there.
        let more = world.candidate(&work, &[("src/2.txt", Put::File(b"changed\n"))]);
        world.write_at(&linked, "src/2.txt", b"mine\n");
        let arguments = [format!("candidate={more}"), "scope=**".to_owned()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said =
            crate::support::Said::of(world.program_at(&linked, "T2", &arguments).spawn().expect("starts"));
        said.waits_for(&[("edited", "src/2.txt")]);
        assert!(said.text().contains("/linked"), "{}", said.text());
        world.assert_tidy();
    }
}

#[test]
fn a_branch_that_nobody_has_checked_out_simply_moves() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        world.git(&["checkout", "--quiet", "--detach"]);
        world.write("src/1.txt", b"dirty, but on no branch\n");
        let (before, picture) = (world.status(), world.picture());
        world.land("T1", &work).is("landed");
        assert_eq!((world.at("main"), world.at("HEAD")), (work, base));
        assert_eq!((world.status(), world.picture()), (before, picture));
        world.assert_tidy();
    }
}

#[test]
fn packed_references_and_a_bare_repository_are_no_different() {
    for world in worlds() {
        world.git(&["pack-refs", "--all"]);
        let bare = world.outside("bare.git");
        world.git(&["clone", "--quiet", "--bare", ".", bare.to_str().expect("a path")]);
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"changed\n"))]);
        world.land("T1", &work).is("landed");
        assert_eq!(world.read("src/1.txt"), "changed\n");
        world.git(&["push", "--quiet", bare.to_str().expect("a path"), "main:refs/incoming/1"]);
        let arguments = [format!("candidate={work}"), "scope=**".to_owned()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        crate::support::Said::of(world.program_at(&bare, "T1", &arguments).spawn().expect("starts"))
            .is("landed");
        assert_eq!(world.git_at(&bare, &["rev-parse", "main"]), work);
        assert!(!bare.join("logs").exists(), "a bare repository keeps no logs");
    }
}

#[test]
fn a_branch_without_a_commit_is_refused_by_name() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        world.git(&["checkout", "--quiet", "--orphan", "unborn"]);
        let said = world.land_with("T1", &work, &["target=unborn"]);
        assert_eq!(said.is("refused").text(), "the branch unborn has no commit yet");
    }
}

#[test]
fn what_a_person_is_in_the_middle_of_is_waited_for() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/2.txt", Put::File(b"changed\n"))]);
        world.git(&["checkout", "--quiet", "-b", "other"]);
        world.write("src/1.txt", b"other\n");
        let other = world.commit("Other");
        world.git(&["checkout", "--quiet", "main"]);
        world.write("src/1.txt", b"main\n");
        let main = world.commit("Main");
        for (command, what) in
            [("merge", "a merge"), ("cherry-pick", "a cherry-pick"), ("revert", "a revert")]
        {
            let argument = if command == "revert" { &base } else { &other };
            world.command(&world.root(), &[command, argument]).output().expect("a conflict");
            let said = world.land("T1", &work);
            said.waits_for(&[("operation", "")]);
            assert!(said.text().starts_with(&format!("{what} is under way in")), "{}", said.text());
            world.git(&[command, "--abort"]);
        }
        // A rebase takes the branch away from HEAD, and moves it in the end.
        world.command(&world.root(), &["rebase", "other"]).output().expect("a conflict");
        world.land("T1", &work).waits_for(&[("operation", "")]);
        world.git(&["rebase", "--abort"]);
        assert_eq!(world.at("main"), main);
        world.land("T1", &work).is("landed");
        assert_eq!(world.status(), "");
    }
}

#[test]
fn an_index_that_is_locked_is_waited_for_and_the_lock_stays() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        let lock = world.root().join(".git/index.lock");
        fs::write(&lock, "").expect("written");
        world.land("T1", &work).waits_for(&[("locked", "")]);
        assert!(lock.exists());
        fs::remove_file(&lock).expect("removed");
        // So is a branch that somebody's git has locked.
        let lock = world.root().join(".git/refs/heads/main.lock");
        fs::write(&lock, "").expect("written");
        let said = world.land("T1", &work);
        assert!(said.is("busy").value["what"].as_str().expect("a reason").contains("main.lock"));
        assert!(lock.exists());
        assert_eq!((world.at("main"), world.status().as_str()), (base, ""));
        fs::remove_file(&lock).expect("removed");
        world.land("T1", &work).is("landed");
        world.assert_tidy();
    }
}

#[test]
fn work_trees_that_are_away_gone_or_doubled() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let linked = world.outside("linked");
        let path = linked.to_str().expect("a path");
        world.git(&["worktree", "add", "--quiet", "--force", path, "main"]);
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        world.land("T1", &work).waits_for(&[("twice", ""), ("twice", "")]);
        world.git(&["checkout", "--quiet", "--detach"]);
        world.git(&["worktree", "lock", path]);
        let aside = world.outside("aside");
        fs::rename(&linked, &aside).expect("moved");
        world.land("T1", &work).waits_for(&[("away", "")]);
        fs::rename(&aside, &linked).expect("moved");
        world.git(&["worktree", "unlock", path]);
        fs::remove_dir_all(&linked).expect("removed");
        world.land("T1", &work).is("landed");
        assert_eq!(world.at("main"), work);
    }
}

#[test]
fn a_clone_without_files_stays_one() {
    for world in worlds_by_git() {
        let clone = world.outside("clone");
        world.git(&["clone", "--quiet", "--no-checkout", ".", clone.to_str().expect("a path")]);
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"changed\n"))]);
        world.git_at(&clone, &["fetch", "--quiet", "origin", &work]);
        let arguments = [format!("candidate={work}"), "scope=**".to_owned()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        crate::support::Said::of(world.program_at(&clone, "T1", &arguments).spawn().expect("starts"))
            .is("landed");
        assert_eq!(world.git_at(&clone, &["rev-parse", "main"]), work);
        assert_eq!(fs::read_dir(&clone).expect("listed").count(), 1, "only .git");
    }
}

#[test]
fn a_branch_under_another_name_is_the_branch() {
    for world in worlds_by_git() {
        let base = world.at("main");
        world.git(&["symbolic-ref", "refs/heads/trunk", "refs/heads/main"]);
        world.git(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
        world.land("T1", &work).is("landed");
        let more = world.candidate(&work, &[("src/2.txt", Put::File(b"changed\n"))]);
        world.land_with("T2", &more, &["target=trunk"]).is("landed");
        assert_eq!((world.at("refs/heads/main"), world.status().as_str()), (more, ""));
        assert_eq!(world.git(&["symbolic-ref", "refs/heads/trunk"]), "refs/heads/main");
    }
}

#[test]
fn a_branch_that_is_checked_out_in_the_last_moment_takes_its_files_along() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    for world in worlds_by_git() {
        world.git(&["checkout", "--quiet", "--detach"]);
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"changed\n"))]);
        let arguments =
            [format!("candidate={work}"), "scope=**".to_owned(), "stop=Prepare:Before".to_owned()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let child = world.program("T1", &arguments).spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        let stopped = || {
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).expect("waits").expect("a status");
            assert!(status.stopped(), "{status:?}");
        };
        stopped();
        world.git(&["checkout", "--quiet", "main"]);
        kill_process(pid, Signal::CONT).expect("woken");
        // It looks again, and so comes by a second time.
        stopped();
        kill_process(pid, Signal::CONT).expect("woken");
        crate::support::Said::of(child).is("landed");
        assert_eq!((world.at("main"), world.read("src/1.txt").as_str()), (work, "changed\n"));
        assert_eq!(world.status(), "");
        world.assert_tidy();
    }
}

/// A rebase that begins after everything was looked at is seen while the locks are held. One that is given up would move
/// the branch back to where it was when it began, and the work would be gone from it.
#[test]
fn a_rebase_that_begins_in_the_last_moment_keeps_the_branch_where_it_is() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    for world in worlds_by_git() {
        let base = world.at("main");
        for moment in ["Prepare:Before", "PlaceFiles:Before", "PlaceIndex:Before"] {
            let work = world.candidate(&base, &[("src/1.txt", Put::File(b"changed\n"))]);
            let arguments = [format!("candidate={work}"), "scope=**".to_owned(), format!("stop={moment}")];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let child = world.program("T1", &arguments).spawn().expect("it starts");
            let pid = Pid::from_child(&child);
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).expect("waits").expect("a status");
            assert!(status.stopped(), "{status:?}");
            let rebase = world.root().join(".git/rebase-merge");
            fs::create_dir(&rebase).expect("begun");
            kill_process(pid, Signal::CONT).expect("woken");
            crate::support::Said::of(child).is("waits");
            assert_eq!(world.at("main"), base, "{moment}");
            fs::remove_dir(&rebase).expect("ended");
            assert_eq!(world.status(), "", "{moment}");
            world.assert_tidy();
        }
    }
}
