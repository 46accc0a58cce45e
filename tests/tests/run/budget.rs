//! Spending that can't run away: by time, attempts, tokens and cost, for a task and for a run.

use agency_tests::queue::{HONEST, Queue};

/// An agent that never comes to anything, and says what it used.
const WASTEFUL: &str =
    "echo '{\"input_tokens\": 300, \"output_tokens\": 100, \"cost\": 0.75}' > $AGENCY_USAGE_FILE; exit 3";

fn queue(script: &str, budget: &str) -> Queue {
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 50");
    queue.tables(budget);
    queue
}

/// Blocked after so many attempts, and the task says why.
#[track_caller]
fn assert_stopped_after(queue: &Queue, id: &str, attempts: u64, why: &str) {
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[why]);
    assert_eq!(queue.ground.status(id), "BLOCKED");
    let task = queue.ground.read(&queue.ground.file(id));
    assert!(task.contains(why), "no {why:?}: {task}");
    assert!(queue.records(id, attempts).exists() && !queue.records(id, attempts + 1).exists(), "{said:?}");
    queue.assert_nothing_left();
}

#[test]
fn a_task_that_uses_too_many_tokens_is_stopped() {
    let queue = queue(WASTEFUL, "[budget.task]\ntokens = 1000\n");
    let id = queue.tasks(1).remove(0);
    assert_stopped_after(&queue, &id, 3, "its budget is used up: 1200 of 1000 tokens");
}

#[test]
fn a_task_that_costs_too_much_is_stopped() {
    let queue = queue(WASTEFUL, "[budget.task]\ncost = 1.5\n");
    let id = queue.tasks(1).remove(0);
    assert_stopped_after(&queue, &id, 2, "its budget is used up: a cost of 1.50 of 1.50");
}

/// What is left of the time bounds the attempt itself.
#[test]
fn a_task_that_takes_too_long_is_stopped_while_it_runs() {
    let queue = queue("sleep 600", "[budget.task]\ntime = \"2s\"\n");
    let id = queue.tasks(1).remove(0);
    assert_stopped_after(&queue, &id, 1, "all that its budget had left");
    let listed = queue.ground.ok(&["ps", "--all", "--json"]).json();
    let used = listed["attempts"][0]["spent"]["time_ms"].as_u64().expect("a time");
    assert!((2000..60_000).contains(&used), "{listed}");
}

/// What is used up stays so, until somebody forgives it.
#[test]
fn a_budget_is_a_tasks_and_not_a_runs() {
    let mut queue = queue(WASTEFUL, "[budget.task]\ntokens = 400\n");
    let id = queue.tasks(1).remove(0);
    assert_stopped_after(&queue, &id, 1, "400 of 400 tokens");
    queue.ground.set_status(&id, "ASSIGNED");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["its budget is used up: 400 of 400 tokens"]);
    assert!(!queue.records(&id, 2).exists());
    queue.agent("shell", HONEST, "");
    queue.ground.set_status(&id, "BLOCKED");
    queue.ground.ok(&["retry", &id]);
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&[id]);
}

/// Auditors are paid for, too.
#[test]
fn what_an_auditor_uses_counts() {
    let mut queue = queue(HONEST, "[budget.task]\ntokens = 500\n");
    queue.auditor(WASTEFUL);
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 10);
    queue.decide(&id, "1", "fail", "No");
    let said = queue.run(&[]);
    said.assert_names(&["its budget is used up: 800 of 500 tokens"]);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
}

/// Nobody is asked to judge with nothing left to pay them; a person is.
#[test]
fn work_whose_budget_is_used_up_is_left_to_a_person() {
    let spends = format!("{HONEST}; echo '{{\"tokens\": 900}}' > $AGENCY_USAGE_FILE");
    let mut queue = queue(&spends, "[budget.task]\ntokens = 500\n");
    queue.auditor(crate::audit::PASS);
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["not audited: its budget is used up, 900 of 500 tokens"]);
    assert!(!queue.records(&id, 1).join("audit-1").exists());
    queue.decide(&id, "1", "pass", "I looked");
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&[id]);
}

/// A run that has used up what it has starts nothing new; what was not begun is as it was.
#[track_caller]
fn assert_run_ends_after(script: &str, budget: &str, attempts: usize, why: &str) {
    let mut queue = queue(script, budget);
    queue.settings("repeats = 9");
    let tasks = queue.tasks(3);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["the budget of this run is used up", why, "the run ended before it started"]);
    let begun: usize =
        tasks.iter().map(|id| (1..9).filter(|attempt| queue.records(id, *attempt).exists()).count()).sum();
    assert_eq!(begun, attempts, "{said:?}");
    queue.assert_nothing_left();
}

#[test]
fn a_run_that_uses_too_many_tokens_ends() {
    assert_run_ends_after(WASTEFUL, "[budget.run]\ntokens = 500\n", 2, "800 of 500 tokens");
}

#[test]
fn a_run_that_costs_too_much_ends() {
    assert_run_ends_after(WASTEFUL, "[budget.run]\ncost = 1\n", 2, "a cost of 1.50 of 1.00");
}

/// An agent that claims more than can be ends its own task, and costs the run what that task was allowed.
#[test]
fn a_claim_of_the_impossible_ends_its_own_task_and_not_the_run() {
    let liar = "echo '{\"tokens\": 9000000000000000000}' > $AGENCY_USAGE_FILE; exit 3";
    let mut queue = queue(HONEST, "[budget.task]\ntokens = 1000\n[budget.run]\ntokens = 2500\n");
    queue.agent("liar", liar, "");
    let lied = queue.task("liar", &[]);
    let tasks = queue.tasks(3);
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["its budget is used up: 1000000 of 1000 tokens"]);
    assert!(!said.err.contains("the budget of this run is used up"), "{said:?}");
    assert_eq!(queue.ground.status(&lied), "BLOCKED");
    assert!(!queue.records(&lied, 2).exists());
    queue.assert_landed(&tasks);
    // Three of them are more than the run has.
    let more: Vec<String> = (0..3).map(|_| queue.task("liar", &[])).collect();
    let last = queue.task("shell", &["--priority", "P3"]);
    let said = queue.run(&["--parallel", "1"]);
    said.assert_names(&["the budget of this run is used up: 3000 of 2500 tokens"]);
    assert!(more.iter().all(|id| queue.records(id, 1).exists()) && !queue.records(&last, 1).exists());
}

#[test]
fn a_run_of_too_many_attempts_ends() {
    assert_run_ends_after(HONEST, "[budget.run]\nattempts = 2\n", 2, "2 of 2 attempts");
}

#[test]
fn a_run_that_takes_too_long_ends() {
    assert_run_ends_after("sleep 600", "[budget.run]\ntime = \"3s\"\n", 1, "of 3.0 s");
}

/// That a run has no more time is not the fault of who works just then, nor of who judges.
#[test]
fn nobody_is_blamed_for_the_end_of_a_runs_time() {
    let mut queue = Queue::with_agent("sleep 600");
    queue.settings("attempts = 1");
    queue.tables("[budget.run]\ntime = \"2s\"\n");
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&id), "IN_PROGRESS", "{said:?}");
    queue.agent("shell", HONEST, "");
    queue.auditor("sleep 600");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["the next one has it judged"]);
    queue.agent("judge", crate::audit::PASS, "");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
}

/// Who was forgiven begins to count anew, also what it repeats.
#[test]
fn what_was_forgiven_is_no_repetition() {
    let mut queue = Queue::new();
    queue.settings("attempts = 9");
    queue.ground.profile("never", &["false"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "never"]);
    assert_eq!(queue.run(&[]).code, 10);
    assert!(queue.records(&id, 2).exists() && !queue.records(&id, 3).exists());
    queue.ground.ok(&["retry", &id]);
    assert_eq!(queue.run(&[]).code, 10);
    assert!(queue.records(&id, 4).exists() && !queue.records(&id, 5).exists());
}

#[test]
fn a_budget_of_nothing_is_refused_before_anything_starts() {
    for (budget, why) in [
        ("[budget.task]\ntokens = 0\n", "`budget.task.tokens` must be a number above zero"),
        ("[budget.run]\nattempts = -3\n", "`budget.run.attempts` must be a number above zero"),
        ("[budget.task]\ncost = -1.5\n", "`budget.task.cost` must be an amount above zero"),
        ("[budget.run]\ncost = 0\n", "`budget.run.cost` must be an amount above zero"),
        ("[budget.run]\ntime = \"0s\"\n", "`budget.run.time` must be a duration"),
        ("[budget.task]\ntime = \"-5m\"\n", "`budget.task.time` must be a duration"),
    ] {
        let queue = Queue::new();
        let id = queue.tasks(1).remove(0);
        let text = queue.ground.read("agency.toml");
        queue.ground.write("agency.toml", format!("{text}{budget}"));
        let said = queue.run(&["--trust"]);
        assert_eq!(said.code, 2, "{said:?}");
        said.assert_names(&[why]);
        assert!(!queue.records(&id, 1).exists());
    }
}

/// A script that says its tokens in a line, and its model, and no cost.
const TALKS: &str = "echo 'model small-1'; echo 'used 1000000 100000'; ";
const LINE: &str = "network = [\"127.0.0.1:9\"]\nusage = { line = '^used (?<input>\\d+) (?<output>\\d+)'";

/// A budget of cost that counts nothing is not silent about it.
#[test]
fn an_agent_without_a_price_is_named_before_a_run_with_a_budget_of_cost() {
    let mut queue = Queue::new();
    queue.agent("shell", &format!("{TALKS}{HONEST}"), &format!("{LINE} }}\n"));
    queue.agent("other", HONEST, "network = [\"127.0.0.1:9\"]\n");
    queue.tables("[budget.run]\ncost = 100\n");
    queue.task("shell", &[]);
    let notice = "budget.run.cost does not count the agent `shell`: it reports its tokens and no cost; set \
                  agents.shell.price.input and .output, or agents.shell.price.model";
    let said = queue.run(&["--dry-run"]);
    assert_eq!(said.err.matches(notice).count(), 1, "{said:?}");
    let said = queue.run(&[]);
    assert_eq!((said.code, said.err.matches(notice).count()), (0, 1), "{said:?}");
    assert!(!said.err.contains("`other`"), "it has nothing to do: {said:?}");
    queue.task("other", &[]);
    let said = queue.run(&["--dry-run"]);
    said.assert_names(&["does not count the agent `other`: it reports neither tokens nor cost"]);
    // What reaches no model costs nothing.
    let free = queue_of_free_agent();
    let said = free.run(&["--dry-run"]);
    assert!(!said.err.contains("does not count"), "{said:?}");
}

fn queue_of_free_agent() -> Queue {
    let queue = queue(HONEST, "[budget.run]\ncost = 100\n[budget.task]\ncost = 1\n");
    queue.task("shell", &[]);
    queue
}

/// The cost that a table of prices gives tokens: of the model that the agent names, or of the one that is configured.
#[test]
fn tokens_of_a_model_with_a_price_cost_something() {
    for (more, prices) in [
        (", model = '^model (?<model>\\S+)' }\n", "[prices]\n\"small-1\" = { input = 1.0, output = 5.0 }\n"),
        (" }\nprice = { model = \"small-1\" }\n", "[prices]\n\"small-1\" = { input = 1.0, output = 5.0 }\n"),
        (
            " }\nprice = { model = \"openai/o3-2025-04-16\" }\n",
            "[prices]\n\"o3\" = { input = 1.0, output = 5.0 }\n",
        ),
    ] {
        let mut queue = Queue::new();
        queue.agent("shell", &format!("{TALKS}exit 3"), &format!("{LINE}{more}"));
        queue.settings("attempts = 50\nrepeats = 50");
        queue.tables(&format!("{prices}[budget.task]\ncost = 2.5\n"));
        let id = queue.tasks(1).remove(0);
        // Each attempt costs 1.50.
        assert_stopped_after(&queue, &id, 2, "its budget is used up: a cost of 3.00 of 2.50");
    }
    let mut queue = Queue::new();
    queue.agent("shell", HONEST, &format!("{LINE} }}\nprice = {{ model = \"no-such\" }}\n"));
    queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["agents.shell.price.model: no price of the model `no-such` is known", "[prices]"]);
}
