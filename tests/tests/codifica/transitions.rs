//! §7: every pair of states, and everybody who could ask for it.

use crate::site::{Site, ready, task};

const STATES: [&str; 6] = ["todo", "in_progress", "to_be_tested", "done", "blocked", "rejected"];

/// Who may make a move of a task that belongs to an agent: h(uman), that agent (o), or another (a). The last two rows
/// are §8.1.1, and nothing else.
const ALLOWED: [(&str, &str, &str); 17] = [
    ("todo", "in_progress", "ho"),
    ("in_progress", "to_be_tested", "o"),
    ("to_be_tested", "done", "o"),
    ("to_be_tested", "todo", "o"),
    ("todo", "blocked", "h"),
    ("in_progress", "blocked", "h"),
    ("to_be_tested", "blocked", "h"),
    ("done", "blocked", "h"),
    ("rejected", "blocked", "h"),
    ("blocked", "todo", "h"),
    ("blocked", "in_progress", "h"),
    ("todo", "rejected", "h"),
    ("blocked", "rejected", "h"),
    ("in_progress", "rejected", "h"),
    ("rejected", "todo", "h"),
    ("done", "todo", "h"),
    ("in_progress", "todo", "h"),
];

const ACTORS: [(&str, &str); 4] =
    [("human", "h"), ("agent:shell", "o"), ("agent:other", "a"), ("orchestrator", "x")];

/// Through the real binary, each on a task of its own: allowed, or refused with the section that refuses.
#[test]
fn s07_1_every_transition_by_every_actor_is_as_the_table_has_it() {
    let name = |from: &str, to: &str, who: &str| format!("{from}-{to}-{who}").replace('_', "");
    let mut tasks = String::new();
    for from in STATES {
        for to in STATES {
            for (_, who) in ACTORS {
                // Claimed long ago, so that a person may reclaim it.
                let id = name(from, to, who);
                tasks += &(ready(&id).replace("state: todo", &format!("state: {from}"))
                    + "  claimed_at: 2020-01-01T00:00:00Z\n");
            }
        }
    }
    let site = Site::new(&tasks);
    let (mut allowed, mut refused) = (0, 0);
    for from in STATES {
        for to in STATES {
            let rule = ALLOWED.iter().find(|(f, t, _)| (*f, *t) == (from, to)).map_or("", |(_, _, who)| who);
            for (actor, who) in ACTORS {
                let id = name(from, to, who);
                let said = site.moves(&id, to, actor, Some("because"));
                if rule.contains(who) {
                    assert_eq!(said.code, 0, "{from} {to} {actor}: {said:?}");
                    assert_eq!(site.state(&id), to);
                    allowed += 1;
                } else {
                    assert_eq!(said.code, 2, "{from} {to} {actor}: {said:?}");
                    // To the orchestrator, which is nobody here, it is said that a person is needed where one is.
                    let person = actor == "orchestrator" && rule.contains('h');
                    assert!(
                        said.err.contains("(§") || (person && said.err.contains("--as human")),
                        "{said:?}"
                    );
                    assert_eq!(site.state(&id), from);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((allowed, refused), (18, 126));
}

#[test]
fn s07_2_only_its_owner_completes_a_task() {
    let tasks =
        task("H-1", "build", "to_be_tested", "human") + &task("A-1", "build", "to_be_tested", "agent:shell");
    let site = Site::new(&tasks);
    for (id, actor) in [("H-1", "agent:shell"), ("A-1", "human"), ("A-1", "agent:other")] {
        for to in ["done", "todo"] {
            let said = site.moves(id, to, actor, None);
            assert_eq!(said.code, 2);
            said.assert_names(&["is for its owner", "§7.2"]);
        }
    }
    assert_eq!(site.moves("H-1", "done", "human", None).code, 0);
    assert_eq!(site.moves("A-1", "done", "agent:shell", None).code, 0);
    assert!(site.task("A-1")["completed_at"].as_str().is_some());
}

#[test]
fn s07_2_a_build_does_not_leave_todo_without_criteria_or_skip_its_test() {
    let tasks = task("B-1", "build", "todo", "agent:shell")
        + &task("B-2", "build", "in_progress", "agent:shell")
        + &task("T-1", "test", "in_progress", "agent:shell");
    let site = Site::new(&tasks);
    site.moves("B-1", "in_progress", "agent:shell", None)
        .assert_names(&["without acceptance criteria", "§7.2"]);
    site.moves("B-2", "done", "agent:shell", None).assert_names(&["must not skip to_be_tested", "§7.2"]);
    assert_eq!(site.moves("T-1", "done", "agent:shell", None).code, 0, "other types may (§7.2)");
}

#[test]
fn s07_2_blocking_and_rejecting_need_a_reason_and_it_is_kept() {
    let site = Site::new(&(ready("A-1") + &ready("B-1")));
    for to in ["blocked", "rejected"] {
        let said = site.moves("A-1", to, "human", None);
        assert_eq!(said.code, 2);
        said.assert_names(&["needs a reason", "§7.2"]);
    }
    assert_eq!(site.moves("A-1", "blocked", "human", Some("no key")).code, 0);
    let blocked = site.task("A-1");
    assert_eq!(blocked["blocked_reason"].as_str(), Some("no key"));
    assert_eq!(blocked["state_transitions"][0]["by"].as_str(), Some("human"));
    assert_eq!(site.moves("A-1", "todo", "human", None).code, 0);
    assert!(site.task("A-1")["blocked_reason"].is_null(), "it is not blocked any more");
    assert_eq!(site.moves("B-1", "rejected", "human", Some("not needed")).code, 0);
    let rejected = site.task("B-1");
    assert_eq!(rejected["state_transitions"][0]["reason"].as_str(), Some("not needed"));
    assert!(rejected["completed_at"].as_str().is_some());
    site.moves("B-1", "todo", "human", None).assert_names(&["needs a reason", "§7.2"]);
    assert_eq!(site.moves("B-1", "todo", "human", Some("needed after all")).code, 0);
    assert!(site.task("B-1")["completed_at"].is_null());
}

#[test]
fn s07_2_what_files_say_against_the_rules_is_found() {
    let tasks = task("A-1", "build", "blocked", "agent:shell")
        + &task("B-1", "test", "rejected", "human")
        + "  state_transitions:\n    - from: todo\n      to: rejected\n      by: agent:shell\n";
    let site = Site::new(&tasks);
    site.ground.assert_found("work.md", "7.2", "`blocked_reason` says not why");
    site.ground.assert_found("work.md", "7.2", "a build task needs acceptance criteria");
    site.ground.assert_found("work.md", "7.2", "agent:shell moved it to rejected, and only people may");
    site.ground.assert_found("work.md", "7.2", "rejected without a reason");
}

#[test]
fn s07_2_no_command_writes_a_persons_review() {
    let review = "  human_review:\n    status: needs_work\n    reviewer: ann\n    notes:\n      - \"![x](assets/A-1/x.png)\"\n";
    let site = Site::new(&(ready("A-1") + review));
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    assert_eq!(site.moves("A-1", "to_be_tested", "agent:shell", None).code, 0);
    assert!(site.ground.read("work.md").contains(review));
}
