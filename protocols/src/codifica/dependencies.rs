//! §5.2: what a task depends on must exist, be done first, and never be itself.

use std::collections::BTreeMap;

use super::StateListing;
use super::task::Task;
use super::task::TaskState;
use crate::cycles::find_cycles;
use crate::finding::Finding;

/// The state of every task on which others could depend; `None` for one that can't be read.
#[derive(Debug, Default)]
pub struct DependencyStates<'a>(BTreeMap<&'a str, Option<TaskState>>);

impl<'a> DependencyStates<'a> {
    pub fn of(listing: &'a StateListing) -> Self {
        let unread = listing.unread.iter().map(|id| (id.as_str(), None));
        let read = listing.tasks.iter().map(|listed| (listed.task.id.as_str(), Some(listed.task.state)));
        Self(unread.chain(read).collect())
    }

    pub fn has(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// The dependency that keeps a task from starting, in a sentence.
    pub fn unmet(&self, task: &Task) -> Option<String> {
        self.unmet_of(&task.depends_on)
    }

    pub fn unmet_of(&self, depends_on: &[String]) -> Option<String> {
        depends_on.iter().find_map(|id| match self.0.get(id.as_str()) {
            Some(Some(TaskState::Done)) => None,
            Some(Some(state)) => Some(format!("it depends on {id}, which is {state}")),
            Some(None) => Some(format!("it depends on {id}, which can't be read")),
            None => Some(format!("it depends on {id}, which does not exist")),
        })
    }
}

/// Tasks that wait for each other, each cycle once.
pub fn cycles(listing: &StateListing) -> Vec<Finding> {
    let waits_for: BTreeMap<&str, &[String]> =
        listing.tasks.iter().map(|one| (one.task.id.as_str(), one.task.depends_on.as_slice())).collect();
    let finding = |circle: Vec<&str>| {
        let at = listing.tasks.iter().find(|one| Some(one.task.id.as_str()) == circle.last().copied());
        let (file, line) = at.map_or(("", None), |one| (listing.path(one), Some(one.span.line)));
        let message = format!("tasks wait for each other: {}", circle.join(" → "));
        Finding::error(file, line, "5.2", message).of_field("depends_on")
    };
    find_cycles(&waits_for).into_iter().map(finding).collect()
}

/// The cycle that a new task would close.
pub fn would_cycle(listing: &StateListing, id: &str, depends_on: &[String]) -> Option<String> {
    let mut waits_for: BTreeMap<&str, &[String]> =
        listing.tasks.iter().map(|one| (one.task.id.as_str(), one.task.depends_on.as_slice())).collect();
    waits_for.insert(id, depends_on);
    let closed = find_cycles(&waits_for).into_iter().find(|circle| circle.contains(&id));
    closed.map(|circle| circle.join(" → "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::board;

    #[test]
    fn a_dependency_must_exist_and_be_done() {
        let (_folder, tree, board) = board(
            "- {id: A, type: test, state: done, title: a}\n- {id: B, type: test, state: todo, title: b, depends_on: [A]}\n- {id: C, type: test, state: todo, title: c, depends_on: [A, B]}\n- {id: D, type: test, state: todo, title: d, depends_on: [GONE]}\n- {id: E, type: unheard, state: todo, title: e}\n- {id: F, type: test, state: todo, title: f, depends_on: [E]}\n",
        );
        let listing = board.tasks(&tree).expect("read");
        let known = super::DependencyStates::of(&listing);
        let unmet = |id: &str| known.unmet(&listing.get(id).expect("there").task);
        assert_eq!(unmet("B"), None);
        assert_eq!(unmet("C").as_deref(), Some("it depends on B, which is todo"));
        assert_eq!(unmet("D").as_deref(), Some("it depends on GONE, which does not exist"));
        assert_eq!(unmet("F").as_deref(), Some("it depends on E, which can't be read"));
    }

    #[test]
    fn circles_are_named_once_and_a_new_one_is_seen_before_it_is_closed() {
        let (_folder, tree, board) = board(
            "- {id: A, type: test, state: todo, title: a, depends_on: [B]}\n- {id: B, type: test, state: todo, title: b, depends_on: [A]}\n- {id: C, type: test, state: todo, title: c, depends_on: [NEW]}\n",
        );
        let listing = board.tasks(&tree).expect("read");
        let cycles = super::cycles(&listing);
        assert_eq!(cycles.len(), 1);
        assert!(cycles[0].message.contains("A → B → A"), "{cycles:?}");
        let closed = super::would_cycle(&listing, "NEW", &["C".to_owned()]);
        assert_eq!(closed.as_deref(), Some("C → NEW → C"));
        assert_eq!(super::would_cycle(&listing, "NEW", &["X".to_owned()]), None);
    }
}
