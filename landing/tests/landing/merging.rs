//! The branch moved while the agent worked.

use std::fs;

use crate::support::{Put, edited, lines, worlds, worlds_by_git};

#[test]
fn both_sides_of_a_file_come_together_in_one_commit_with_its_trailers() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 125, "agent")))]);
        world.write("src/1.txt", &edited(100, 103, "person"));
        let main = world.commit("The person's");
        world.land("T1", &work).is("landed");
        assert_eq!(world.git(&["log", "-1", "--format=%P", "main"]), main, "one parent");
        let text = world.read("src/1.txt");
        assert!(text.contains("agent\n") && text.contains("person\n"), "{text}");
        let body = world.git(&["log", "-1", "--format=%(trailers)", "main"]);
        assert_eq!(body.trim_end(), "Agency-Task: T1\nAgency-Attempt: 1\nAgency-Verify: V1");
        assert_eq!(world.status(), "");
        world.assert_tidy();
    }
}

#[test]
fn a_conflict_names_its_paths_and_changes_nothing() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(
            &base,
            &[
                ("src/1.txt", Put::File(&edited(100, 103, "agent"))),
                ("src/2.txt", Put::Gone),
                ("src/3.txt", Put::File(b"fine\n")),
            ],
        );
        world.write("src/1.txt", &edited(100, 103, "person"));
        world.write("src/2.txt", &edited(200, 203, "person"));
        let main = world.commit("The person's");
        let said = world.land("T1", &work);
        assert_eq!(said.is("conflict").value["paths"], serde_json::json!(["src/1.txt", "src/2.txt"]));
        assert_eq!((world.at("main"), world.status().as_str()), (main, ""));
    }
}

#[test]
fn a_persons_rename_can_not_carry_the_work_out_of_its_scope() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 125, "rm -rf /")))]);
        world.write("infra/keep", b"");
        world.git(&["mv", "src/1.txt", "infra/deploy.sh"]);
        let main = world.commit("Moved");
        let picture = world.picture();
        let said = world.land_with("T1", &work, &["scope=src/**"]);
        assert_eq!(
            said.is("refused").text(),
            "infra/deploy.sh would change on the branch, and no glob of the scope matches it"
        );
        assert_eq!((world.at("main"), world.picture()), (main, picture));
        assert!(!world.git(&["for-each-ref"]).contains("refs/agency/landed"));
        // With a scope that has the place, the same merge lands.
        world.land_with("T1", &work, &["scope=src/**,infra/**"]).is("landed");
        assert!(world.read("infra/deploy.sh").contains("rm -rf /"));
    }
}

#[test]
fn a_rename_can_not_make_the_work_a_control_file() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 125, "run: evil")))]);
        world.write(".github/workflows/keep", b"");
        world.git(&["mv", "src/1.txt", ".github/workflows/ci.yml"]);
        world.commit("Moved");
        let said = world.land("T1", &work);
        assert!(said.is("refused").text().contains("GitHub Actions obeys"), "{}", said.text());
    }
}

#[test]
fn a_new_file_does_not_follow_a_renamed_folder_out_of_scope() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/new.txt", Put::File(b"new\n"))]);
        world.git(&["mv", "src", "lib"]);
        let main = world.commit("Moved");
        let said = world.land_with("T1", &work, &["scope=src/**"]);
        assert!(["conflict", "refused"].contains(&said.outcome()), "{said:?}");
        assert_eq!(world.at("main"), main);
    }
}

#[test]
fn work_that_the_branch_has_already_is_recorded_and_not_landed_again() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 125, "agent")))]);
        // A person made the same change.
        world.write("src/1.txt", &edited(100, 125, "agent"));
        let main = world.commit("The person's");
        world.land("T1", &work).is("landed");
        assert_eq!(world.at("main"), main);
        world.land("T1", &work).is("already_landed");
        // A person merged the candidate itself.
        let other = world.candidate(&main, &[("src/2.txt", Put::File(b"agent\n"))]);
        world.git(&["merge", "--quiet", "--ff-only", &other]);
        world.land("T2", &other).is("landed");
        assert_eq!(world.at("main"), other);
        world.land("T2", &other).is("already_landed");
        assert_eq!(world.status(), "");
    }
}

#[test]
fn only_the_agents_own_change_goes_onto_a_branch_that_was_rewritten() {
    for world in worlds_by_git() {
        world.write("src/2.txt", &edited(200, 203, "to be dropped"));
        world.write("dropped", b"to be dropped\n");
        let base = world.commit("To be dropped");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(&edited(100, 125, "agent")))]);
        world.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
        world.write("README", b"rewritten\n");
        world.commit("Instead");
        world.land_with("T1", &work, &["scope=src/**"]).is("landed");
        assert!(world.read("src/1.txt").contains("agent\n"));
        assert_eq!(world.read("src/2.txt"), lines(200));
        assert!(!world.exists("dropped"));
        assert_eq!(world.status(), "");
    }
}

#[test]
fn commits_between_the_branch_and_the_work_do_not_come_along() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let between = world.candidate(&base, &[("README", Put::File(b"unseen\n"))]);
        let work = world.candidate(&between, &[("src/1.txt", Put::File(b"agent\n"))]);
        world.land_with("T1", &work, &["scope=src/**"]).is("landed");
        assert_eq!(
            (world.read("README").as_str(), world.read("src/1.txt").as_str()),
            ("read me\n", "agent\n")
        );
        assert_eq!(world.git(&["log", "-1", "--format=%P", "main"]), base);
    }
}

#[test]
fn the_tasks_own_branch_is_made_moved_and_left_to_people() {
    for world in worlds() {
        let base = world.at("main");
        let first = world.candidate(&base, &[("src/1.txt", Put::File(b"first\n"))]);
        let (status, picture) = (world.status(), world.picture());
        world.land_with("T1", &first, &["act=branch", "epoch=1"]).is("landed");
        assert_eq!((world.at("agency/T1"), world.at("main")), (first.clone(), base.clone()));
        assert_eq!((world.status(), world.picture()), (status, picture));
        // Another attempt takes the place of the first.
        let second = world.candidate(&base, &[("src/1.txt", Put::File(b"second\n"))]);
        world.land_with("T1", &second, &["act=branch", "epoch=2"]).is("landed_before");
        world.land_with("T1", &second, &["act=branch", "epoch=2", "reopened=1"]).is("landed");
        assert_eq!(world.at("agency/T1"), second);
        // A person's commit on it is not thrown away.
        let theirs = world.candidate(&second, &[("README", Put::File(b"mine\n"))]);
        world.git(&["update-ref", "refs/heads/agency/T1", &theirs]);
        let third = world.candidate(&base, &[("src/1.txt", Put::File(b"third\n"))]);
        let said = world.land_with("T1", &third, &["act=branch", "epoch=3", "reopened=2"]);
        assert!(said.is("refused").text().contains("which another process put there"), "{}", said.text());
        assert_eq!(world.at("agency/T1"), theirs);
        world.assert_tidy();
    }
}

#[test]
fn the_tasks_own_branch_obeys_scope_fence_and_checkout_too() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("README", Put::File(b"agent\n"))]);
        world.land_with("T1", &work, &["act=branch", "scope=src/**"]).is("refused");
        let said = world.land_with("T2", &work, &["act=branch"]);
        said.is("landed");
        world.git(&["checkout", "--quiet", "agency/T2"]);
        world.write("src/1.txt", b"mine\n");
        let again = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        let arguments = ["act=branch", "epoch=2", "reopened=1"];
        world.land_with("T2", &again, &arguments).waits_for(&[("edited", "src/1.txt")]);
        world.git(&["checkout", "--quiet", "src/1.txt"]);
        world.land_with("T2", &again, &arguments).is("landed");
        assert_eq!(
            (world.read("src/1.txt").as_str(), world.read("README").as_str()),
            ("agent\n", "read me\n")
        );
        assert_eq!(world.status(), "");
    }
}

#[test]
fn a_branch_that_has_the_folders_name_is_named() {
    for world in worlds_by_git() {
        let base = world.at("main");
        world.git(&["branch", "agency"]);
        let work = world.candidate(&base, &[("README", Put::File(b"agent\n"))]);
        let said = world.land_with("T1", &work, &["act=branch"]);
        assert_eq!(
            said.is("refused").text(),
            "there can be no branch agency/T1 while there is a branch agency"
        );
    }
}

#[test]
fn landing_nowhere_keeps_the_candidate() {
    for world in worlds() {
        let base = world.at("main");
        let refs = world.git(&["for-each-ref", "refs/heads"]);
        let work = world.candidate(&base, &[("README", Put::File(b"agent\n"))]);
        world.land_with("T1", &work, &["act=none", "epoch=4"]).is("kept");
        assert_eq!(world.at("refs/agency/kodingx/T1/4"), work);
        assert_eq!((world.git(&["for-each-ref", "refs/heads"]), world.status().as_str()), (refs, ""));
        assert!(!world.git(&["for-each-ref"]).contains("landed"));
    }
}

#[test]
fn a_shallow_clone_is_merged_from_what_it_has() {
    for world in worlds_by_git() {
        for number in 0..3 {
            world.write("README", format!("{number}\n").as_bytes());
            world.commit("More");
        }
        let clone = world.outside("clone");
        let url = format!("file://{}", world.root().display());
        world.git(&["clone", "--quiet", "--depth=2", &url, clone.to_str().expect("a path")]);
        world.git_at(&clone, &["commit", "--quiet", "--allow-empty", "-m", "Main goes on"]);
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        world.git(&["update-ref", "refs/heads/work", &work]);
        world.git_at(&clone, &["fetch", "--quiet", "origin", "work"]);
        let arguments = [format!("candidate={work}"), "scope=**".to_owned()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        crate::support::Said::of(world.program_at(&clone, "T1", &arguments).spawn().expect("starts"))
            .is("landed");
        assert_eq!(fs::read(clone.join("src/1.txt")).expect("read"), b"agent\n");
        assert_eq!(world.git_at(&clone, &["status", "--porcelain"]), "");
    }
}
