//! Which task starts next: decided over what is known, and over nothing else.

use std::collections::{BTreeMap, HashMap, HashSet};

use agency_protocols::board::{ReadyTask, TaskRole};

use crate::attempt::TaskKey;
use crate::clock::BootInstant;

/// Everything that has a say in it.
#[derive(Debug)]
pub struct PlanFacts<'a> {
    /// What the board offers, the most urgent first.
    pub ready: &'a [ReadyTask],
    pub protocol: &'a str,
    /// What is being worked on, with its agent.
    pub busy: &'a HashMap<TaskKey, String>,
    /// How many of an agent judge the work of others, or wait to.
    pub judging: &'a HashMap<String, usize>,
    /// What another supervisor has, or what is not to be touched in this run.
    pub aside: &'a HashSet<TaskKey>,
    /// What has to wait for its next attempt.
    pub not_before: &'a HashMap<TaskKey, BootInstant>,
    /// Agents that have to wait, and their tasks with them.
    pub parked: &'a HashMap<String, BootInstant>,
    pub now: BootInstant,
    pub limits: &'a StartLimits,
    /// Bytes of memory that are free.
    pub free_memory: u64,
    /// Nothing new is to be started.
    pub closed: bool,
}

/// How much may run at once.
#[derive(Debug, Clone)]
pub struct StartLimits {
    pub total: usize,
    /// By agent, where it has a number of its own.
    pub of_agent: BTreeMap<String, usize>,
    /// By agent: the memory it may use, which has to be free when it starts.
    pub memory: BTreeMap<String, u64>,
}

/// What an agent is expected to need if its settings do not say.
pub const USUAL_MEMORY: u64 = 512 << 20;

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum StartChoice<'a> {
    Start(&'a ReadyTask),
    /// Nothing can start before this moment, or before something ends or changes.
    Wait {
        until: Option<BootInstant>,
    },
    /// There is nothing left that could start.
    Nothing,
}

pub fn choose<'a>(world: &PlanFacts<'a>) -> StartChoice<'a> {
    let key = |start: &ReadyTask| TaskKey { protocol: world.protocol.to_owned(), id: start.task.to_string() };
    let open = world
        .ready
        .iter()
        .map(|start| (start, key(start)))
        .filter(|(_, key)| !world.busy.contains_key(key) && !world.aside.contains(key));
    let mut until: Option<BootInstant> = None;
    let mut waits = false;
    for (start, key) in open {
        if world.closed {
            return StartChoice::Wait { until: None };
        }
        waits = true;
        // Work that was done elsewhere needs no agent to start.
        let parked = world.parked.get(start.agent.as_str()).filter(|_| start.role == TaskRole::Builder);
        let waits = [world.not_before.get(&key), parked];
        if let Some(at) = waits.into_iter().flatten().max().filter(|at| **at > world.now) {
            until = Some(until.map_or(*at, |soonest| soonest.min(*at)));
            continue;
        }
        if start_delay(world, start.agent.as_str()).is_none() {
            return StartChoice::Start(start);
        }
    }
    match waits {
        true => StartChoice::Wait { until },
        false => StartChoice::Nothing,
    }
}

/// What keeps one more of an agent from starting now, though it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDelay {
    /// As many are at work as may be.
    Parallel { most: usize },
    /// As many of this agent are.
    Agent { most: usize },
    /// There is less memory than it may need.
    Memory { needed: u64 },
    /// It can't work before so many seconds are over.
    Parked { seconds: u64 },
}

pub fn start_delay(world: &PlanFacts<'_>, agent: &str) -> Option<StartDelay> {
    let limits = world.limits;
    let judging = world.judging.get(agent).copied().unwrap_or(0);
    let of_agent = world.busy.values().filter(|busy| *busy == agent).count() + judging;
    let most = limits.of_agent.get(agent).copied().unwrap_or(usize::MAX);
    let needed = limits.memory.get(agent).copied().unwrap_or(USUAL_MEMORY);
    // One may always run: nothing else would ever free what is missing.
    let fits = world.busy.is_empty() || world.free_memory >= needed;
    let parked = world.parked.get(agent).filter(|until| **until > world.now);
    if let Some(until) = parked {
        Some(StartDelay::Parked { seconds: until.since(world.now).as_secs() })
    } else if world.busy.len() >= limits.total {
        Some(StartDelay::Parallel { most: limits.total })
    } else if of_agent >= most {
        Some(StartDelay::Agent { most })
    } else if !fits {
        Some(StartDelay::Memory { needed })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agency_protocols::board::TaskScope;
    use agency_protocols::names::{AgentName, TaskId};
    use proptest::prelude::*;

    fn start(id: u8, agent: &str) -> ReadyTask {
        ReadyTask {
            task: TaskId::parse(&format!("T{id:04}")).expect("an id"),
            title: "x".into(),
            role: TaskRole::Builder,
            agent: AgentName::parse(agent).expect("a name"),
            file: "f".into(),
            scope: TaskScope::default(),
            profile: "auto".into(),
            urgency: 0,
            handed_in: false,
            may_change_nothing: false,
            branch: None,
        }
    }

    fn key(id: u8) -> TaskKey {
        TaskKey { protocol: "kodingx".into(), id: format!("T{id:04}") }
    }

    fn limits(total: usize) -> StartLimits {
        let of_agent = BTreeMap::from([("codex".to_owned(), 1)]);
        StartLimits { total, of_agent, memory: BTreeMap::from([("large".to_owned(), 8 << 30)]) }
    }

    struct PlanCase {
        ready: Vec<ReadyTask>,
        busy: HashMap<TaskKey, String>,
        judging: HashMap<String, usize>,
        aside: HashSet<TaskKey>,
        not_before: HashMap<TaskKey, BootInstant>,
        parked: HashMap<String, BootInstant>,
        limits: StartLimits,
        closed: bool,
    }

    impl PlanCase {
        fn new(ready: Vec<ReadyTask>) -> Self {
            let (busy, judging, aside, not_before, parked) = Default::default();
            Self { ready, busy, judging, aside, not_before, parked, limits: limits(2), closed: false }
        }

        fn world(&self) -> PlanFacts<'_> {
            PlanFacts {
                ready: &self.ready,
                protocol: "kodingx",
                busy: &self.busy,
                judging: &self.judging,
                aside: &self.aside,
                not_before: &self.not_before,
                parked: &self.parked,
                now: BootInstant(100),
                limits: &self.limits,
                free_memory: 4 << 30,
                closed: self.closed,
            }
        }

        fn choose(&self) -> StartChoice<'_> {
            choose(&self.world())
        }

        fn chosen(&self) -> Option<&str> {
            match self.choose() {
                StartChoice::Start(start) => Some(start.task.as_str()),
                _ => None,
            }
        }
    }

    #[test]
    fn the_most_urgent_that_has_room_starts() {
        let mut case = PlanCase::new(vec![start(1, "codex"), start(2, "codex"), start(3, "shell")]);
        assert_eq!(case.chosen(), Some("T0001"));
        case.busy.insert(key(1), "codex".into());
        assert_eq!(case.chosen(), Some("T0003"), "an agent of which there is one is passed over");
        case.busy.insert(key(3), "shell".into());
        assert_eq!(case.choose(), StartChoice::Wait { until: None });
    }

    #[test]
    fn an_agent_that_needs_more_memory_than_is_free_waits_unless_it_is_alone() {
        let mut case = PlanCase::new(vec![start(1, "large")]);
        assert_eq!(case.chosen(), Some("T0001"));
        case.busy.insert(key(2), "shell".into());
        assert_eq!(case.choose(), StartChoice::Wait { until: None });
    }

    #[test]
    fn what_is_in_the_way_has_a_name() {
        let mut case = PlanCase::new(Vec::new());
        assert_eq!(start_delay(&case.world(), "codex"), None);
        case.busy.insert(key(1), "codex".into());
        assert_eq!(start_delay(&case.world(), "codex"), Some(StartDelay::Agent { most: 1 }));
        assert_eq!(start_delay(&case.world(), "large"), Some(StartDelay::Memory { needed: 8 << 30 }));
        case.busy.insert(key(2), "shell".into());
        assert_eq!(start_delay(&case.world(), "large"), Some(StartDelay::Parallel { most: 2 }));
    }

    #[test]
    fn an_agent_that_judges_is_at_work() {
        let mut case = PlanCase::new(vec![start(1, "codex"), start(2, "shell")]);
        case.judging.insert("codex".into(), 1);
        assert_eq!(start_delay(&case.world(), "codex"), Some(StartDelay::Agent { most: 1 }));
        assert_eq!(case.chosen(), Some("T0002"));
        case.judging.insert("shell".into(), 7);
        assert_eq!(case.chosen(), Some("T0002"), "it has no number of its own");
    }

    #[test]
    fn whoever_failed_waits_and_others_go_on() {
        let mut case = PlanCase::new(vec![start(1, "shell"), start(2, "shell")]);
        case.not_before.insert(key(1), BootInstant(500));
        assert_eq!(case.chosen(), Some("T0002"));
        case.aside.insert(key(2));
        assert_eq!(case.choose(), StartChoice::Wait { until: Some(BootInstant(500)) });
        case.aside.insert(key(1));
        assert_eq!(case.choose(), StartChoice::Nothing);
    }

    #[test]
    fn tasks_of_an_agent_that_waits_wait_with_it() {
        let mut case = PlanCase::new(vec![start(1, "codex"), start(2, "codex"), start(3, "shell")]);
        case.parked.insert("codex".into(), BootInstant(500));
        assert_eq!(case.chosen(), Some("T0003"));
        case.aside.insert(key(3));
        assert_eq!(case.choose(), StartChoice::Wait { until: Some(BootInstant(500)) });
        case.parked.insert("codex".into(), BootInstant(99));
        assert_eq!(case.chosen(), Some("T0001"), "it is time");
    }

    proptest! {
        #[test]
        fn nothing_starts_twice_or_beyond_its_limits(
            busy in prop::collection::hash_set(0_u8..20, 0..6), ready in prop::collection::vec(0_u8..20, 0..10),
            total in 1_usize..6, closed in any::<bool>(),
        ) {
            let mut case = PlanCase::new(ready.iter().map(|id| start(*id, "shell")).collect());
            case.busy = busy.iter().map(|id| (key(*id), "shell".to_owned())).collect();
            case.limits = limits(total);
            case.closed = closed;
            if let StartChoice::Start(start) = case.choose() {
                let id = start.task.as_str();
                prop_assert!(!closed && busy.len() < total);
                prop_assert!(!busy.iter().any(|busy| key(*busy).id == id));
            }
        }
    }
}
