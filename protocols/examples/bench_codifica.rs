//! What a state file of many tasks costs: selecting from it, and editing one field of one task, beside a bare parse of
//! the same YAML, interleaved. `bench_codifica [ROUNDS [TASKS]]`.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use agency_protocols::board::BoardError;
use agency_protocols::codifica::task::TaskOwner;
use agency_protocols::codifica::{Codifica, CodificaSettings};
use agency_protocols::names::{Actor, AgentName, TaskId};
use agency_protocols::store::{BoardStore, Effects, FileChange};
use jiff::Timestamp;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, usual: usize| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, tasks) = (number(0, 15), number(1, 5_000));
    let yaml: String = (1..=tasks).map(task).collect();
    let work = format!("# Work\n\n## Active\n\n```yaml\n{yaml}```\n\n## Done\n");
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("repository");
    std::fs::create_dir(&root)?;
    let contract = r#"{"protocol":"codifica","version":"0.2","spec":"spec.md","state":"work.md"}"#;
    for (name, text) in [("codifica.json", contract), ("spec.md", ""), ("work.md", &work)] {
        std::fs::write(root.join(name), text)?;
    }
    let store = BoardStore::open(&root, &folder.path().join("state"), |_| Ok(false))?;
    let setting = CodificaSettings { site: Some("here".to_owned()), agent: AgentName::parse("shell").ok() };
    let board = Codifica::open(store.tree(), setting)?;
    let middle = TaskId::parse(&format!("FEAT-{:04}", tasks / 2))?;
    let [mut parse, mut select, mut edit, mut written] = [const { Vec::new() }; 4];
    for round in 0..rounds {
        parse.push(timed(|| {
            black_box(serde_yaml::from_str::<serde_yaml::Value>(&yaml)?);
            Ok(())
        })?);
        select.push(timed(|| {
            let listing = board.tasks(store.tree())?;
            assert!(listing.findings.is_empty() && listing.tasks.len() == tasks);
            assert!(!black_box(board.select(&listing, Timestamp::now())).ready.is_empty());
            Ok(())
        })?);
        let agent = TaskOwner::Agent(AgentName::parse(&format!("agent-{round}"))?);
        let assign = |tree: &_| -> std::result::Result<Effects, BoardError> {
            Ok(board.assign(tree, &middle, &agent, &Actor::Human(None))?.1)
        };
        edit.push(timed(|| {
            let effects = assign(store.tree())?;
            let [FileChange::Replace { content, .. }] = &effects.changes[..] else {
                return Err("no edit".into());
            };
            let before = std::fs::read_to_string(root.join("work.md"))?;
            let changed = before.lines().zip(content.lines()).filter(|(old, new)| old != new).count();
            assert_eq!((changed, before.lines().count()), (1, content.lines().count()));
            Ok(())
        })?);
        written.push(timed(|| Ok(store.update(|tree| assign(tree).map(|effects| ((), effects)))?))?);
    }
    let peer = median(&mut parse);
    println!("a bare parse of {tasks} tasks, {} KiB: {:.1} ms", yaml.len() >> 10, peer * 1e3);
    for (what, times) in [
        ("selection (files read, tasks understood, sorted)", &mut select),
        ("a one-field edit", &mut edit),
        ("a one-field edit, durable on the disk", &mut written),
    ] {
        let (ours, target) = (median(times), 3.0);
        let held = if ours / peer <= target { "held" } else { "not held" };
        println!("{what} {:.1} ms, ratio {:.2}, target {target}: {held}", ours * 1e3, ours / peer);
    }
    Ok(())
}

/// What tasks look like after a while: most are done, with notes; some depend on others.
fn task(number: usize) -> String {
    let (state, owner) = match number % 5 {
        0 => ("todo", "unassigned"),
        _ => ("done", "agent:shell"),
    };
    let state = if number.is_multiple_of(7) { "todo" } else { state };
    format!(
        "- id: FEAT-{number:04}\n  type: build\n  state: {state}\n  owner: {owner}\n  title: \"Fix number {number} of the totals\"\n  \
         description: |\n    Totals are off by one.\n\n    ```ts\n    total(1, 2)\n    ```\n  priority: {}\n  depends_on:\n    \
         - FEAT-{:04}\n  labels: [billing, bug]\n  acceptance:\n    - Totals match ten known cases\n    - \"Nothing else: changes\"\n  \
         execution_notes:\n    - by: agent:shell\n      note: Done as asked.\n      summary: Totals are right\n      timestamp: \
         2026-01-31T16:10:00Z\n  state_transitions:\n    - from: todo\n      to: in_progress\n      by: agent:shell\n      \
         timestamp: 2026-01-31T16:00:00Z\n      provenance:\n        session_id: here/x\n",
        ["critical", "high", "normal", "low"][number % 4],
        number / 2 + usize::from(number == 1),
    )
    .replace("  depends_on:\n    - FEAT-0001\n", "")
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
