//! A Codifica board as the engine sees it: a task's life, one commit after the other, and what an edit leaves alone.

use std::fs;

use agency_protocols::board::{Board, BoardError, BoardOutcome, Claimant, ProofDecision, ProofEvidence};
use agency_protocols::codifica::task::TaskState;
use agency_protocols::codifica::{Codifica, CodificaSettings};
use agency_protocols::names::{Actor, AgentName, TaskId};
use agency_protocols::store::{BoardStore, Effects, FileChange};
use jiff::Zoned;
use proptest::prelude::*;
use tempfile::TempDir;

struct Site {
    _folder: TempDir,
    store: BoardStore,
    now: Zoned,
}

impl Site {
    fn new(work: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("repository");
        fs::create_dir(&root).expect("a repository");
        let contract = r#"{"protocol":"codifica","version":"0.2","spec":"spec.md","state":"work.md"}"#;
        fs::write(root.join("codifica.json"), contract).expect("written");
        fs::write(root.join("spec.md"), "").expect("written");
        fs::write(root.join("work.md"), work).expect("written");
        let store = BoardStore::open(&root, &folder.path().join("state"), |_| Ok(false)).expect("a store");
        Self { _folder: folder, store, now: "2026-01-31T16:10:00+00:00[UTC]".parse().expect("a time") }
    }

    fn board(&self) -> Codifica {
        let setting = CodificaSettings { site: Some("here".into()), agent: AgentName::parse("shell").ok() };
        Codifica::open(self.store.tree(), setting).expect("a board")
    }

    fn work(&self) -> String {
        self.store.tree().read_text("work.md").expect("read").expect("there")
    }

    /// Does what is wanted, and holds that the commit says the same as the files.
    fn act(
        &self,
        verb: impl Fn(&Codifica, &agency_protocols::store::tree::RepoTree) -> Result<Effects, BoardError>,
    ) -> Result<Effects, BoardError> {
        let before = self.work();
        let effects =
            self.store.update(|tree| verb(&self.board(), tree).map(|effects| (effects.clone(), effects)))?;
        if let Some(commit) = &effects.commit {
            let mut text = before.clone();
            for edit in commit.edits.iter().filter(|edit| edit.path == "work.md") {
                assert_eq!(text.matches(&edit.before).count(), 1, "{edit:?}");
                text = text.replacen(&edit.before, &edit.after, 1);
            }
            assert_eq!(text, self.work());
        } else {
            assert!(effects.is_empty());
        }
        Ok(effects)
    }

    fn claim(&self, id: &TaskId) -> Result<Effects, BoardError> {
        let agent = AgentName::parse("shell").expect("a name");
        self.act(|board, tree| board.claim(tree, id, &Claimant { agent: &agent, session: "A.1" }, &self.now))
    }

    fn settle(&self, id: &TaskId, outcome: &BoardOutcome) -> Result<Effects, BoardError> {
        self.act(|board, tree| board.settle(tree, id, outcome, &self.now))
    }
}

const WORK: &str = "# Work\n\n```yaml\n- id: A\n  type: build\n  state: todo # now\n  owner: unassigned\n  title: First\n  acceptance:\n    - it works\n\n# between\n- id: B\n  type: build\n  state: todo\n  title: Second\n  acceptance: [it works]\n  depends_on: [A]\n```\n";

fn id() -> TaskId {
    TaskId::parse("A").expect("an id")
}

#[test]
fn a_task_goes_from_its_claim_to_done_and_each_step_is_a_commit_of_its_block() {
    let site = Site::new(WORK);
    let next = |site: &Site| -> Vec<String> {
        let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
        agenda.ready.iter().map(|start| start.task.to_string()).collect()
    };
    assert_eq!(next(&site), ["A"]);
    let claim = site.claim(&id()).expect("claimed");
    let commit = claim.commit.expect("a commit");
    assert!(commit.is_needed && commit.edits.len() == 1, "{commit:?}");
    for part in [
        "state: in_progress # now\n",
        "owner: agent:shell\n",
        "claimed_at: 2026-01-31T16:10:00+00:00\n",
        "session_id: here/A.1\n",
    ] {
        assert!(site.work().contains(part), "{part}: {}", site.work());
    }
    assert!(site.claim(&id()).expect("ours").is_empty(), "said twice");
    assert_eq!(next(&site), ["A"], "an interrupted attempt goes on");
    let report = "---\nsummary: \"Did it\"\nartifacts:\n  - path: src/a\n    type: code\n---\n\nAll of it.\n";
    let reported = BoardOutcome::Reported { report: report.to_owned() };
    site.settle(&id(), &reported).expect("told");
    assert!(site.settle(&id(), &reported).expect("told").is_empty(), "said twice");
    assert!(site.work().contains("state: to_be_tested # now\n") && site.work().contains("summary: Did it\n"));
    let mut bound_to = serde_json::Map::new();
    bound_to.insert("verify".into(), "A-1-1".into());
    let evidence = ProofEvidence {
        profile: "make".into(),
        passed: true,
        commands: Vec::new(),
        notes: Vec::new(),
        bound_to,
    };
    site.act(|board, tree| {
        let (judged, effects) = Board::record_proof(board, tree, &id(), &evidence, &site.now)?;
        assert_eq!(judged, ProofDecision::Accepted);
        Ok(effects)
    })
    .expect("verified");
    let landed = BoardOutcome::Landed { commit: "c0ffee00c0ffee".into() };
    site.settle(&id(), &landed).expect("told");
    assert!(site.settle(&id(), &landed).expect("told").is_empty(), "said twice");
    for part in ["state: done # now\n", "completed_at: ", "commit_sha: c0ffee00c0ffee\n", "\n# between\n"] {
        assert!(site.work().contains(part), "{part}: {}", site.work());
    }
    assert_eq!(next(&site), ["B"], "what depends on it may start");
}

#[test]
fn a_failed_agent_blocks_nothing_and_is_not_started_again_until_somebody_looked() {
    let site = Site::new(WORK);
    site.claim(&id()).expect("claimed");
    let blocked = BoardOutcome::Blocked { report: None, reason: "there is no key".into() };
    site.settle(&id(), &blocked).expect("told");
    assert!(site.settle(&id(), &blocked).expect("told").is_empty(), "said twice");
    assert!(site.work().contains("state: in_progress"), "{}", site.work());
    let agenda = site.board().agenda(site.store.tree()).expect("an agenda");
    assert!(agenda.ready.is_empty());
    assert!(agenda.waiting.iter().any(|one| one.why.contains("recommends to block it: there is no key")));
    site.settle(&id(), &BoardOutcome::Reopened { reason: "there is one now".into() }).expect("told");
    assert_eq!(site.board().agenda(site.store.tree()).expect("an agenda").ready.len(), 1);
}

#[test]
fn a_claim_of_another_clone_is_not_ours_and_its_task_is_not_wanted() {
    let site = Site::new(WORK);
    site.claim(&id()).expect("claimed");
    assert!(site.board().is_wanted(site.store.tree(), &id()).expect("asked"));
    let there = Codifica {
        setting: CodificaSettings { site: Some("there".into()), ..CodificaSettings::default() },
        ..site.board()
    };
    let agent = AgentName::parse("shell").expect("a name");
    let claimant = Claimant { agent: &agent, session: "A.1" };
    let refused = there.claim(site.store.tree(), &id(), &claimant, &site.now).expect_err("refused");
    assert!(refused.to_string().contains("(§8.1)"), "{refused}");
    assert!(there.agenda(site.store.tree()).expect("an agenda").ready.is_empty());
    assert!(!there.is_wanted(site.store.tree(), &id()).expect("asked"));
}

#[test]
fn what_a_person_lets_go_on_is_still_ours_and_what_they_put_back_is_not() {
    let site = Site::new(WORK);
    let moves = |to: TaskState| {
        let person = Actor::Human(None);
        let moved =
            site.act(|board, tree| Ok(board.move_task(tree, &id(), to, &person, Some("so"), &site.now)?.1));
        moved.expect("moved");
    };
    let ready = || site.board().agenda(site.store.tree()).expect("an agenda").ready.len();
    let wanted = || site.board().is_wanted(site.store.tree(), &id()).expect("asked");
    site.claim(&id()).expect("claimed");
    moves(TaskState::Blocked);
    assert_eq!((ready(), wanted()), (0, false));
    moves(TaskState::InProgress);
    assert_eq!((ready(), wanted()), (1, true), "it goes on where it was");
    moves(TaskState::Blocked);
    moves(TaskState::Todo);
    assert_eq!((ready(), wanted()), (1, false), "what ran before is not wanted; it may be claimed anew");
    moves(TaskState::InProgress);
    assert_eq!((ready(), wanted()), (0, false), "a person took it");
}

/// A task as somebody writes it: odd order, comments, blocks with fences, odd spaces, lists on one line.
fn tasks() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        Just("  labels: [a, b] # why\n"),
        Just(
            "  description: |\n    Like:\n\n    ```yaml\n    - id: NOT\n      state: done\n    ```\n    # no comment\n"
        ),
        Just("  # a comment\n  checklist:\n  - one\n  - two\n"),
        Just("  context:\n    files:\n      - a.txt\n    notes: >-\n      folded\n      words\n"),
        Just("  human_review: null\n"),
        Just(
            "  execution_notes:\n    - plain words\n    - by: agent\n      note: |\n        ```html\n        <p>\n        ```\n"
        ),
        Just("  artifacts: [a.txt]\n"),
        Just("  state_transitions:\n    - from: blocked\n      to: todo\n      by: human\n"),
        Just("\n"),
    ];
    prop::collection::vec(field, 0..6).prop_map(|fields| {
        let mut known = std::collections::HashSet::new();
        fields.into_iter().filter(|field| *field == "\n" || known.insert(*field)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_done_to_a_task_no_byte_outside_its_block_changes(
        before in prop::collection::vec(tasks(), 0..3), fields in tasks(), after in prop::collection::vec(tasks(), 0..3),
        windows in any::<bool>(), deep in any::<bool>(),
    ) {
        let task = |id: String, fields: &str| {
            format!("- id: {id}\n  type: test\n  state: todo\n  owner: unassigned\n  title: \"x: y\"\n{fields}")
        };
        let named = |kind: &str, all: &[String]| -> String {
            all.iter().enumerate().map(|(n, fields)| task(format!("{kind}-{n}"), fields) + "\n# between\n").collect()
        };
        let list = named("BEFORE", &before) + &task("A".into(), &fields) + &named("\n", &[]) + &named("AFTER", &after);
        let list = if deep { list.lines().map(|line| format!("  {line}\n")).collect() } else { list };
        let key = if deep { "tasks:\n" } else { "" };
        let mut work = format!("<!-- ```yaml -->\n# Work\n\n```yaml\n{key}{list}```\n\n```html\n<p>\n```\n");
        if windows {
            work = work.replace('\n', "\r\n");
        }
        let site = Site::new(&work);
        let mut last = work;
        let reported = BoardOutcome::Reported { report: "---\nsummary: s\n---\n\nSaid:\n\n```yaml\n- id: A\n```\n".into() };
        for step in 0..3 {
            let effects = match step {
                0 => site.claim(&id()),
                1 => site.settle(&id(), &reported),
                _ => site.settle(&id(), &BoardOutcome::Landed { commit: "c0ffee".into() }),
            };
            let effects = effects.map_err(|error| TestCaseError::fail(format!("{error}\n{last}")))?;
            let commit = effects.commit.clone().expect("a commit");
            prop_assert_eq!(commit.edits.len(), 1);
            let edit = &commit.edits[0];
            let at = last.find(&edit.before).expect("the block");
            let expected = [&last[..at], &edit.after, &last[at + edit.before.len()..]].concat();
            let FileChange::Replace { content, .. } = &effects.changes[0] else { panic!("{effects:?}") };
            prop_assert_eq!(content, &expected);
            prop_assert!(edit.before.trim_start().starts_with("- id: A"), "{}", edit.before);
            prop_assert!(!edit.before.contains("BEFORE-") && !edit.before.contains("AFTER-"), "{}", edit.before);
            prop_assert!(!windows || content.matches('\n').count() == content.matches("\r\n").count());
            last = content.clone();
        }
        let listing = site.board().tasks(site.store.tree()).expect("read");
        prop_assert_eq!(listing.tasks.len(), before.len() + after.len() + 1);
    }
}
