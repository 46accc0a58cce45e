//! A KodingX board as the engine sees it: what may start, and what becomes of a start.

use std::fs;
use std::path::Path;

use agency_protocols::board::{Board, BoardError, BoardEvent, BoardOutcome, Claimant, TaskRole};
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::actions::NewTask;
use agency_protocols::kodingx::scaffold::{
    BoardComponent, OverwritePolicy, ScaffoldContext, ScaffoldOptions, scaffold,
};
use agency_protocols::kodingx::status::TaskStatus;
use agency_protocols::kodingx::task::{KodingXScope, Priority};
use agency_protocols::names::{AgentName, TaskId};
use agency_protocols::store::{BoardStore, Effects};
use jiff::Zoned;
use tempfile::TempDir;

fn landed() -> BoardOutcome {
    BoardOutcome::Landed { commit: "c0ffee".to_owned() }
}

struct Site {
    folder: TempDir,
    store: BoardStore,
    now: Zoned,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("repository");
        fs::create_dir(&root).expect("a repository");
        let store = BoardStore::open(&root, &folder.path().join("state"), |_| Ok(false)).expect("a store");
        let now: Zoned = "2026-01-31T16:10:00+01:00[Europe/Zurich]".parse().expect("a time");
        let site = Self { folder, store, now };
        let place = ScaffoldContext {
            project: "sample".into(),
            timezone: Some("Europe/Zurich".into()),
            environment: None,
            generator: "0.0.0".into(),
            profiles: Vec::new(),
        };
        let wishes = ScaffoldOptions { builders: Some(vec![agent()]), ..ScaffoldOptions::default() };
        site.act(|tree| {
            scaffold(tree, &BoardComponent::FULL, OverwritePolicy::Never, &wishes, &place, &site.now)
        });
        site
    }

    fn act<T>(
        &self,
        mut verb: impl FnMut(&agency_protocols::store::tree::RepoTree) -> Result<(T, Effects), BoardError>,
    ) -> T {
        self.store.update(|tree| verb(tree)).expect("done")
    }

    fn board(&self) -> KodingX {
        KodingX::open(self.store.tree()).expect("a board")
    }

    fn task(&self, title: &str, priority: Priority, depends_on: &[&str]) -> TaskId {
        let new = NewTask {
            priority,
            depends_on: depends_on.iter().map(ToString::to_string).collect(),
            scope: KodingXScope {
                must_touch: vec!["src/**".into()],
                may_touch: vec!["tests/**".into()],
                must_not_touch: vec!["src/secret/**".into()],
                ..KodingXScope::default()
            },
            ..NewTask::titled(title)
        };
        self.act(|tree| self.board().new_task(tree, &new, &self.now)).value.id
    }

    fn claim(&self, id: &TaskId) {
        self.act(|tree| {
            Ok(((), self.board().claim(tree, id, &Claimant { agent: &agent(), session: "1" }, &self.now)?))
        });
    }

    fn settle(&self, id: &TaskId, outcome: &BoardOutcome) -> Result<(), BoardError> {
        self.store.update(|tree| Ok(((), self.board().settle(tree, id, outcome, &self.now)?)))
    }

    fn status(&self, id: &TaskId) -> TaskStatus {
        self.board().find(self.store.tree(), id).expect("a task").value.status
    }

    fn edit(&self, id: &TaskId, from: &str, to: &str) {
        let path = self.board().find(self.store.tree(), id).expect("a task").place.path;
        let path = self.root().join(path);
        let text = fs::read_to_string(&path).expect("readable");
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).expect("written");
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("repository")
    }

    fn verified(&self, id: &TaskId) {
        let evidence = agency_protocols::board::ProofEvidence {
            profile: "auto".into(),
            passed: true,
            commands: vec![serde_json::json!({ "cmd": "make", "exit_code": 0 })],
            notes: Vec::new(),
            bound_to: serde_json::Map::new(),
        };
        self.act(|tree| self.board().record_verification(tree, id, &evidence, None, &self.now));
    }
}

fn agent() -> AgentName {
    AgentName::parse("codex").expect("a name")
}

const REPORT: &str = "---\ntask_id: T0001\nagent: codex\nstatus: READY_FOR_REVIEW\nstarted_at: 2026-01-31T16:12:00+01:00\nfinished_at: 2026-01-31T16:45:00+01:00\nchanges: {files_modified: []}\ncommands_run: []\nverification: {dod_passed: true}\nrisks: []\n---\n";

#[test]
fn the_most_urgent_comes_first_and_what_waits_says_for_what() {
    let site = Site::new();
    let later = site.task("Later", Priority::P3, &[]);
    let first = site.task("First", Priority::P0, &[]);
    let waits = site.task("Waits", Priority::P0, &[first.as_str()]);
    let unscoped = site.task("Without a scope", Priority::P1, &[]);
    site.edit(&unscoped, "scope:\n", "scoped:\n");

    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    let ready: Vec<&TaskId> = agenda.ready.iter().map(|start| &start.task).collect();
    assert_eq!(ready, [&first, &later]);
    assert_eq!(agenda.ready[0].scope.touch, ["src/**", "tests/**"]);
    assert_eq!((agenda.ready[0].scope.must.len(), agenda.ready[0].scope.keep.len()), (1, 1));
    let why = |id: &TaskId| {
        agenda.waiting.iter().find(|waiting| waiting.task == *id).map(|waiting| waiting.why.as_str())
    };
    assert_eq!(why(&waits), Some("it depends on T0002, which is NEW"));
    assert!(why(&unscoped).is_some_and(|why| why.contains("scope is missing")));
}

#[test]
fn tasks_that_wait_for_each_other_are_named_as_a_circle() {
    let site = Site::new();
    let one = site.task("One", Priority::P1, &[]);
    let two = site.task("Two", Priority::P1, &[one.as_str()]);
    site.edit(&one, "scope:", &format!("depends_on: [{two}]\nscope:"));
    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    assert!(agenda.ready.is_empty());
    let circles: Vec<&str> = agenda.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(circles, ["tasks wait for each other: T0001 → T0002 → T0001"]);
}

#[test]
fn one_broken_task_hides_no_other() {
    let site = Site::new();
    let broken = site.task("Broken", Priority::P0, &[]);
    let fine = site.task("Fine", Priority::P1, &[]);
    site.edit(&broken, "status: NEW", "status: PERHAPS");
    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    assert_eq!(agenda.ready.iter().map(|start| &start.task).collect::<Vec<_>>(), [&fine]);
    assert_eq!(agenda.findings.len(), 1);
    assert_eq!(agenda.findings[0].field.as_deref(), Some("status"));
}

#[test]
fn a_task_goes_from_its_claim_to_done_and_leaves_a_report() {
    let site = Site::new();
    let id = site.task("Work", Priority::P1, &[]);
    site.claim(&id);
    assert_eq!(site.status(&id), TaskStatus::InProgress);
    site.claim(&id);
    assert_eq!(site.status(&id), TaskStatus::InProgress, "an interrupted attempt goes on");
    let heartbeat =
        site.board().record(site.store.tree(), &id, &BoardEvent::Heartbeat, &site.now).expect("recorded");
    assert!(heartbeat.is_empty());

    site.settle(&id, &BoardOutcome::Reported { report: REPORT.into() }).expect("settled");
    assert_eq!(site.status(&id), TaskStatus::ReadyForReview);
    let report = site.root().join(".kodingx/outbox/codex/2026-01-31/T0001-1610-work-report.md");
    assert_eq!(fs::read_to_string(report).expect("a report"), REPORT);
    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    assert_eq!(agenda.ready[0].role, TaskRole::Reviewer);

    let refused = site.settle(&id, &landed()).expect_err("nothing proves it").to_string();
    assert!(refused.contains("never verified"), "{refused}");
    site.verified(&id);
    site.settle(&id, &landed()).expect("settled");
    assert_eq!(site.status(&id), TaskStatus::Done);
    assert!(site.board().agenda(site.store.tree()).expect("an agenda").ready.is_empty());
}

/// What somebody else left is told from what the engine wrote, and is dealt with once.
#[test]
fn a_report_that_somebody_left_is_received_once() {
    let site = Site::new();
    let id = site.task("Work", Priority::P1, &[]);
    let path = ".kodingx/outbox/codex/2026-01-31/T0001-1610-work-report.md";
    fs::create_dir_all(site.root().join(path).parent().expect("a folder")).expect("made");
    fs::write(site.root().join(path), REPORT).expect("written");
    let offered = || {
        let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
        agenda.ready.first().map(|start| (start.role, start.handed_in))
    };
    assert_eq!(offered(), Some((TaskRole::Builder, true)));
    let receive = || site.store.update(|tree| site.board().receive(tree, &id, &site.now));
    assert_eq!(receive().expect("received"), None);
    assert_eq!(site.status(&id), TaskStatus::ReadyForReview);
    assert_eq!(receive().expect("received again"), None);
    assert_eq!(offered(), Some((TaskRole::Reviewer, true)), "until it is judged");
    site.settle(&id, &BoardOutcome::Returned { reason: "no".into() }).expect("settled");
    assert_eq!(offered(), Some((TaskRole::Builder, false)), "the same report counts no more");
    let text = fs::read_to_string(site.root().join(path)).expect("a report");
    assert!(text.contains("\nreturned: 2026-01-31T"), "{text}");
    assert!(receive().is_err());

    let own = REPORT.replacen("status:", "attempt: 1\nstatus:", 1);
    site.settle(&id, &BoardOutcome::Reported { report: own }).expect("settled");
    assert_eq!(offered(), None, "the engine's own reports are its own matter");
    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    assert_eq!(agenda.reported, [id]);
}

/// Another's folder, another's name, another task: none of it is a report on this one.
#[test]
fn what_somebody_else_leaves_is_no_report() {
    for (folder, from, to) in [
        ("zed", "agent: codex", "agent: codex"),
        ("codex", "agent: codex", "agent: zed"),
        ("codex", "task_id: T0001", "task_id: T0009"),
    ] {
        let site = Site::new();
        let id = site.task("Work", Priority::P1, &[]);
        let path = site.root().join(format!(".kodingx/outbox/{folder}/2026-01-31/T0001-1610-work-report.md"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, REPORT.replace(from, to)).expect("written");
        let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
        assert!(!agenda.ready[0].handed_in, "{folder} {to}");
        assert!(
            site.store.update(|tree| site.board().receive(tree, &id, &site.now)).is_err(),
            "{folder} {to}"
        );
    }
}

#[test]
fn what_a_builder_asks_for_becomes_tasks_without_a_scope_and_only_once() {
    let site = Site::new();
    let id = site.task("Work", Priority::P1, &[]);
    site.claim(&id);
    let report = format!("{REPORT}\n## Follow-ups\n- Mend the docs\n- Ask: \"why\"?\n");
    site.settle(&id, &BoardOutcome::Blocked { report: Some(report.clone()), reason: "no access".into() })
        .expect("settled");
    let made = || {
        let mut tasks = site.board().tasks(site.store.tree()).expect("read").tasks;
        tasks.retain(|(_, task)| task.labels.iter().any(|label| label == "followup"));
        tasks.into_iter().map(|(_, task)| task).collect::<Vec<_>>()
    };
    let titles: Vec<String> = made().into_iter().map(|task| task.title).collect();
    assert_eq!(titles, ["Mend the docs", "Ask: \"why\"?"]);
    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    assert!(agenda.ready.is_empty(), "{:?}", agenda.ready);
    let waits = agenda.waiting.iter().filter(|one| one.why.contains("its scope is empty")).count();
    assert_eq!(waits, 2, "{:?}", agenda.waiting);

    site.settle(&id, &BoardOutcome::Reopened { reason: "again".into() }).expect("settled");
    site.claim(&id);
    site.settle(&id, &BoardOutcome::Reported { report }).expect("settled");
    site.verified(&id);
    site.settle(&id, &landed()).expect("settled");
    assert_eq!(made().len(), 2);
}

#[test]
fn work_that_is_returned_or_blocked_keeps_the_reason_with_the_task() {
    let site = Site::new();
    let id = site.task("Work", Priority::P1, &[]);
    site.claim(&id);
    site.settle(&id, &BoardOutcome::Reported { report: REPORT.into() }).expect("settled");
    site.settle(&id, &BoardOutcome::Returned { reason: "fixture 7\nfails".into() }).expect("settled");
    assert_eq!(site.status(&id), TaskStatus::InProgress);
    site.settle(&id, &BoardOutcome::Blocked { report: None, reason: "no access".into() }).expect("settled");
    assert_eq!(site.status(&id), TaskStatus::Blocked);
    let text = site.board().find(site.store.tree(), &id).expect("a task").text;
    assert!(text.contains("READY_FOR_REVIEW → IN_PROGRESS by orchestrator: fixture 7 fails"), "{text}");
    assert!(text.contains("IN_PROGRESS → BLOCKED by agent:codex: no access"), "{text}");
    let state = fs::read_to_string(site.root().join(".kodingx/STATE.md")).expect("a state");
    assert!(state.contains("blocked_tasks: [\"T0001\"]"), "{state}");
}

#[test]
fn another_agents_task_can_not_be_claimed() {
    let site = Site::new();
    let id = site.task("Work", Priority::P1, &[]);
    let other = AgentName::parse("aider").expect("a name");
    let refused = site
        .board()
        .claim(site.store.tree(), &id, &Claimant { agent: &other, session: "1" }, &site.now)
        .expect_err("refused");
    assert_eq!(refused.to_string(), "T0001 is assigned to codex, not to aider");
    assert!(Path::new(&site.root()).join(".kodingx").is_dir());
}

#[test]
fn ids_stay_apart_over_midnight_and_beside_tasks_that_come_by_git() {
    let mut site = Site::new();
    fs::create_dir(site.root().join(".git")).expect("a repository");
    fs::write(site.root().join(".git/index"), "1").expect("written");
    site.now = "2026-01-31T23:59:58+01:00[Europe/Zurich]".parse().expect("a time");
    let ids: Vec<TaskId> = (0..3).map(|_| site.task("Before", Priority::P1, &[])).collect();
    site.now = "2026-02-01T00:00:01+01:00[Europe/Zurich]".parse().expect("a time");
    let after = site.task("After", Priority::P1, &[]);
    assert_eq!(
        [ids, vec![after]].concat().iter().map(TaskId::as_str).collect::<Vec<_>>(),
        ["T0001", "T0002", "T0003", "T0004"]
    );

    // A merge brings a task into an old folder.
    let pulled = site.root().join(".kodingx/inbox/codex/2026-01-31/T0041-0900-pulled.md");
    let text = fs::read_to_string(
        site.root().join(
            site.board()
                .find(site.store.tree(), &TaskId::parse("T0001").expect("an id"))
                .expect("a task")
                .place
                .path,
        ),
    )
    .expect("read");
    fs::write(pulled, text.replace("id: T0001", "id: T0041")).expect("written");
    fs::remove_file(site.root().join(".git/index")).expect("removed");
    fs::write(site.root().join(".git/index"), "2").expect("written");
    assert_eq!(site.task("Next", Priority::P1, &[]).as_str(), "T0042");

    // A task that gets another id in its old folder takes one that nobody else gets.
    let file = ".kodingx/inbox/codex/2026-01-31/T0041-0900-pulled.md";
    let renumbered = site.act(|tree| site.board().renumber(tree, file, &site.now));
    assert_eq!(renumbered.id.as_str(), "T0043");
    assert_eq!(site.task("Last", Priority::P1, &[]).as_str(), "T0044");
}
