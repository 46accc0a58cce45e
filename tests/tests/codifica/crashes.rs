//! `kill -9` before and after the steps at which a board is told something, with an upstream.

use std::process::Stdio;

use agency_tests::adversary;

use crate::site::{Site, ready};

const SCRIPT: &str = "script=mkdir -p src && echo x > src/$AGENCY_TASK_ID";

/// A supervisor that may kill itself on the way; whether it lived.
fn supervise(site: &Site, more: &[&str]) -> bool {
    let mut command = site.ground.program(&adversary::supervisor());
    command.arg(SCRIPT).args(more).stdin(Stdio::null());
    command.output().expect("it runs").status.success()
}

#[test]
fn a_supervisor_killed_at_any_word_to_the_board_loses_nothing_and_says_nothing_twice() {
    for step in ["claim", "announce", "report", "attest", "land", "settle", "release"] {
        for side in ["before", "after"] {
            let site = Site::new(&ready("A-1").replace("agent:shell", "unassigned"));
            let remote = site.share();
            assert!(!supervise(&site, &[&format!("kill={step}:{side}")]), "{step}:{side} never comes");
            assert!(supervise(&site, &[]), "{step}:{side}");
            let last = Site::clone_of(&remote);
            assert_eq!(last.state("A-1"), "done", "{step}:{side}");
            for subject in [
                "A-1: claimed by agent:shell",
                "A-1: in_progress -> to_be_tested by agent:shell",
                "Task A-1",
                "A-1: to_be_tested -> done by agent:shell",
            ] {
                let times = last.log().iter().filter(|one| *one == subject).count();
                assert_eq!(times, 1, "{step}:{side}: {subject}: {:#?}", last.log());
            }
            assert_eq!(site.ground.git(&["status", "--porcelain"]), "", "{step}:{side}");
            assert_eq!(
                site.ground.git(&["rev-parse", "main"]),
                site.ground.git(&["rev-parse", "origin/main"]),
                "{step}:{side}"
            );
        }
    }
}
