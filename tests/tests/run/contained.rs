//! A queue whose agents and checks work in containers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use agency_tests::engine::Engine;
use agency_tests::ground::Said;
use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};
use agency_tests::repository::skip;
use serde_json::Value as Json;

/// The engine, unless there is none and the test is skipped.
fn engine(test: &str) -> Option<Engine> {
    Engine::find().map_err(|reason| skip(test, &reason)).ok()
}

/// Everybody works in containers of the tests' image.
fn contained(engine: &Engine, script: &str) -> Queue {
    let mut queue = Queue::with_agent(script);
    queue.settings("isolation = \"container\"");
    queue.tables(&format!(
        "[container]\nimage = \"{}\"\nengine = \"{}\"\ncpus = 1.5\n",
        engine.image(),
        engine.address()
    ));
    queue.ground.commit_all();
    queue
}

/// Containers that a work tree is in, running or not. Others use the same engine.
fn containers(engine: &Engine, root: &Path) -> Vec<String> {
    let found = engine.ask(&["ps", "--all", "--quiet", "--filter", &format!("volume={}", root.display())]);
    found.lines().map(str::to_owned).collect()
}

/// What an attempt's errand left: how its agent was held, or how its checks were.
fn attestation(queue: &Queue, id: &str, errand: &str) -> Json {
    let path = queue.records(id, 1).join(errand).join("outcome.json");
    let outcome: Json =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("an outcome")).expect("JSON");
    let found = ["/done/attestation", "/done/proof/attestation"].iter().find_map(|way| outcome.pointer(way));
    found.unwrap_or_else(|| panic!("no attestation in {outcome}")).clone()
}

#[test]
fn a_queue_is_worked_off_in_containers_and_nothing_is_left() {
    let Some(engine) = engine("a_queue_is_worked_off_in_containers_and_nothing_is_left") else { return };
    let queue = contained(&engine, &format!("test -f /open/file && test ! -e /usr/bin/env && {HONEST}"));
    let tasks = queue.tasks(4);
    let said = queue.run(&["--parallel", "4"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    assert_eq!(containers(&engine, queue.path()), Vec::<String>::new());
    let held = attestation(&queue, &tasks[0], "agent");
    assert_eq!(held["level"], "container");
    assert_eq!(held["container"]["image"], engine.image().as_str());
    assert!(held["container"]["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")));
    let missing =
        held["controls"].as_array().expect("controls").iter().filter(|one| one["enforced"] == "missing");
    assert_eq!(missing.count(), 0);
}

#[test]
fn a_container_says_what_it_is_for() {
    let Some(engine) = engine("a_container_says_what_it_is_for") else { return };
    let queue = contained(&engine, &format!("until test -e /open/never; do {HONEST}; sleep 0.1; done"));
    let task = queue.task("shell", &[]);
    let run = queue.start(&[]);
    // Before that there is a container of the checks on the base.
    queue.until_phase(&task, "started");
    let found = || containers(&engine, queue.path());
    assert!(wait_until(LONG, || !found().is_empty()));
    let labels = engine.ask(&["inspect", "--format", "{{json .Config.Labels}}", &found()[0]]);
    let labels: Json = serde_json::from_str(&labels).expect("JSON");
    let label = |name: &str| labels[format!("io.agency.{name}")].as_str().unwrap_or_default().to_owned();
    assert_eq!(["protocol", "task", "attempt"].map(label), ["kodingx", &task, "1"]);
    // What it was given is nowhere in what the engine knows of it.
    let known = engine.ask(&["inspect", &found()[0]]);
    assert!(!known.contains("AGENCY_TASK_ID") && !known.contains(queue.marker().as_str()), "{known}");
    queue.ground.ok(&["cancel", &task]);
    run.end();
    queue.assert_nothing_at_work();
    assert_eq!(found(), Vec::<String>::new());
}

#[test]
fn the_demo_comes_as_it_should_with_every_agent_in_a_container() {
    let test = "the_demo_comes_as_it_should_with_every_agent_in_a_container";
    let Some(engine) = engine(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let queue = Queue::new();
    let output = queue
        .ground
        .command(&["demo", "--image", &engine.image(), "--json", "--folder"])
        .arg(folder.path().join("demo"))
        .env("DOCKER_HOST", engine.address())
        .output()
        .expect("it starts");
    let said = Said::from(output);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.json()["as_it_should"], true, "{said:?}");
    let all = std::fs::read_dir(queue.ground.state_home().join("repositories")).expect("state").flatten();
    let demo = all.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("/demo-"));
    let outcome = demo.expect("its state").join("runs/kodingx.T0001.1/agent/outcome.json");
    let outcome = std::fs::read_to_string(outcome).expect("an outcome");
    assert!(outcome.contains(r#""level": "container""#), "{outcome}");
    assert_eq!(containers(&engine, &folder.path().join("demo")), Vec::<String>::new());
}

#[test]
fn a_profile_with_an_image_is_verified_in_it() {
    let Some(engine) = engine("a_profile_with_an_image_is_verified_in_it") else { return };
    let mut queue = Queue::new();
    queue.tables(&format!("[container]\nengine = \"{}\"\n", engine.address()));
    let profile = |commands: &str| {
        let text = format!("name: quick\ndescription: d\nimage: {}\ncommands: {commands}\n", engine.image());
        queue.ground.write(".kodingx/dod/profiles/quick.yml", text);
        queue.ground.ok(&["trust", "--yes"]);
        queue.ground.commit_all();
    };
    profile("[\"grep -q 'of the image' /open/file\", \"test -f src/a.txt\"]");
    let id = queue.task("shell", &[]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(attestation(&queue, &id, "agent")["level"], "process", "the agent has its own level");
    assert_eq!(attestation(&queue, &id, "verify-1")["level"], "container");

    // By hand, and where it does not hold.
    profile("[\"test -f /open/file\", \"test -f /open/nothing\"]");
    let id = queue.ground.reported("By hand", &["--dod-profile", "quick"]);
    let said = queue.ground.agency(&["verify", "--task", &id, "--json"]);
    assert_eq!(said.code, 10, "{said:?}");
    let proof = said.json()["proof"].clone();
    assert_eq!((&proof["level"], &proof["commands"][0]["exit_code"]), (&"container".into(), &0.into()));
    assert_eq!(proof["commands"][1]["exit_code"], 1);
    assert_eq!(containers(&engine, queue.path()), Vec::<String>::new());
}

#[test]
fn a_cache_is_found_again_by_the_next_check_and_by_no_agent() {
    let Some(engine) = engine("a_cache_is_found_again_by_the_next_check_and_by_no_agent") else { return };
    let mut queue = contained(&engine, &format!("test ! -e /.agency/caches && {HONEST}"));
    queue.settings("attempts = 1");
    let text = "name: quick\ndescription: d\ncaches: [pip, cargo]\ncommands: \
                ['echo kept > $PIP_CACHE_DIR/kept', 'grep kept $PIP_CACHE_DIR/kept && test ! -e $CARGO_HOME/kept']\n";
    queue.ground.write(".kodingx/dod/profiles/quick.yml", text);
    queue.ground.ok(&["trust", "--yes"]);
    queue.ground.commit_all();
    let id = queue.task("shell", &[]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
    let kept = queue.state().join("caches/pip/0/kept");
    assert_eq!(std::fs::read_to_string(kept).expect("kept"), "kept\n");
    assert!(engine.ask(&["volume", "ls", "--quiet"]).contains("-pip-0"));
}

#[test]
fn a_setup_is_made_in_a_container_and_found_in_every_other() {
    let Some(engine) = engine("a_setup_is_made_in_a_container_and_found_in_every_other") else { return };
    let mut queue = contained(&engine, "cp deps/id src/$AGENCY_TASK_ID");
    let command = "test -f /open/file && mkdir -p deps && cat /proc/sys/kernel/random/uuid > deps/id";
    queue.tables(&format!("[workspace.setup]\ncommand = \"{command}\"\ncache_key = [\"README.md\"]\n"));
    queue.ground.write(".gitignore", "deps/\n");
    queue.ground.profile("quick", &["test -s deps/id"]);
    queue.ground.commit_all();
    let tasks = queue.tasks(3);
    let said = queue.run(&["--parallel", "3"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    let made: BTreeSet<String> =
        tasks.iter().map(|id| queue.ground.git(&["show", &format!("main:src/{id}")])).collect();
    assert_eq!(made.len(), 1, "it was made more than once: {made:?}");
    assert_eq!(queue.ground.git(&["ls-tree", "-r", "--name-only", "main", "deps"]), "");
    queue.assert_nothing_left();
}

/// Whoever mounts a folder follows links, and an engine is root.
#[test]
fn a_link_in_the_place_of_a_scope_is_not_followed_out() {
    let Some(engine) = engine("a_link_in_the_place_of_a_scope_is_not_followed_out") else { return };
    let queue = contained(&engine, HONEST);
    let outside = tempfile::tempdir().expect("a folder");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(outside.path(), everybody).expect("set");
    for link in ["linked", "src/linked"] {
        std::os::unix::fs::symlink(outside.path(), queue.path().join(link)).expect("linked");
    }
    let image = engine.image();
    let arguments = ["sandbox", "--isolation", "container", "--image", &image, "--write", "linked/**"];
    let script = "echo x > linked/a; echo x > src/linked/a; mkdir linked/b; ls linked/ src/linked/";
    let rest = ["--write", "src/linked/**", "--write", "linked", "--", "sh", "-c", script];
    let mut command = queue.ground.command(&[&arguments[..], &rest].concat());
    let said = Said::from(command.env("DOCKER_HOST", engine.address()).output().expect("starts"));
    assert_ne!(said.code, 0, "{said:?}");
    assert_eq!(std::fs::read_dir(outside.path()).expect("a folder").count(), 0, "{said:?}");
}

#[test]
fn agents_in_containers_are_adopted_and_not_begun_again() {
    let Some(engine) = engine("agents_in_containers_are_adopted_and_not_begun_again") else { return };
    let queue = contained(&engine, &format!("sleep 6; {HONEST}"));
    let tasks = queue.tasks(2);
    let first = queue.start(&["--parallel", "2"]);
    let at_work = || containers(&engine, queue.path());
    assert!(wait_until(LONG, || at_work().len() == 2), "{:?}", first.said_so_far());
    let before = at_work();
    first.kill();
    let next = queue.start(&["--parallel", "2"]);
    let adopted = || {
        let open = queue.open_attempts();
        open.len() == 2 && open.iter().all(|one| one["held"]["term"].as_u64() > Some(1))
    };
    assert!(wait_until(LONG, adopted), "{:?}", queue.open_attempts());
    assert_eq!(at_work(), before, "the same containers");
    let said = next.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("taken over"), "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    assert_eq!(at_work(), Vec::<String>::new());
}

#[test]
fn a_hundred_containers_leave_nothing() {
    let Some(engine) = engine("a_hundred_containers_leave_nothing") else { return };
    let queue = contained(&engine, HONEST);
    let (image, address) = (engine.image(), engine.address());
    let one = |number: usize| {
        let script = format!("echo {number} > src/new; test {number} -lt 90 || exec sleep 600");
        let arguments = ["sandbox", "--isolation", "container", "--image", &image, "--write", "src/**"];
        let rest = ["--timeout", "20s", "--", "sh", "-c", &script];
        let mut command = queue.ground.command(&[&arguments[..], &rest].concat());
        command.env("DOCKER_HOST", &address).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        // The last ten are killed, at any moment of their lives.
        if number >= 90 {
            std::thread::sleep(Duration::from_millis(35 * (number as u64 - 89)));
            child.kill().expect("killed");
        }
        let status = child.wait().expect("ended");
        assert!(number >= 90 || status.success(), "{number}: {status}");
    };
    std::thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || (first..100).step_by(4).for_each(one));
        }
    });
    // One that was killed before its container was started leaves it to the next.
    one(0);
    let gone = || containers(&engine, queue.path()).is_empty();
    assert!(wait_until(LONG, gone), "{:?}", containers(&engine, queue.path()));
    let left = || std::fs::read_dir(queue.state().join("sandboxes")).expect("a folder").count();
    one(0);
    assert_eq!(left(), 0, "folders of runs");
    let volumes = engine.ask(&["volume", "ls", "--quiet", "--filter", "dangling=true"]);
    assert!(volumes.lines().all(|name| name.starts_with("agency-")), "volumes without a name: {volumes}");
    queue.assert_nothing_at_work();
}

/// An engine that is this test's alone, because it is stopped.
struct Own {
    folder: PathBuf,
}

impl Own {
    fn script(&self, verb: &str) -> String {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/engine");
        let output = Command::new(script).arg(verb).arg(&self.folder).output().expect("a script");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.script("down");
    }
}

#[test]
fn an_engine_that_stops_costs_no_attempt() {
    let Some(_) = engine("an_engine_that_stops_costs_no_attempt") else { return };
    let own = Own { folder: std::env::temp_dir().join(format!("agency-engine-{}", std::process::id())) };
    let engine = Engine::at(&own.script("up"));
    // Whoever begins when the board says so does not wait.
    let mut queue = contained(&engine, &format!("test -e .kodingx/go || sleep 600; {HONEST}"));
    // One attempt is all there is.
    queue.settings("attempts = 1");
    queue.ground.commit_all();
    let id = queue.task("shell", &[]);
    let run = queue.start(&[]);
    // The shell of the agent is there as soon as it has begun.
    let at_work = || queue.marker().alive().iter().any(|one| one.command.contains("sleep 600"));
    assert!(wait_until(LONG, at_work), "{}", run.said_so_far());
    queue.ground.write(".kodingx/go", "");
    own.script("down");
    run.says("the container was ended from outside");
    own.script("up");
    engine.image();
    run.end();
    // Whether that run got to it before it gave up or the next does: no attempt was counted.
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
    queue.assert_nothing_left();
}

#[test]
fn what_would_undo_a_container_is_refused_by_name() {
    let Some(engine) = engine("what_would_undo_a_container_is_refused_by_name") else { return };
    for (key, value) in [
        ("privileged", "true"),
        ("mounts", "[\"/:/host\"]"),
        ("volumes", "[\"/var/run/docker.sock:/var/run/docker.sock\"]"),
        ("network_mode", "\"host\""),
        ("cap_add", "[\"SYS_ADMIN\"]"),
        ("security_opt", "[\"seccomp=unconfined\"]"),
        ("devices", "[\"/dev/sda\"]"),
        ("pid", "\"host\""),
        ("user", "\"root\""),
        ("options", "[\"--privileged\"]"),
    ] {
        let queue = Queue::new();
        for table in ["container", "agents.shell"] {
            queue.ground.write("agency.toml", format!("[{table}]\n{key} = {value}\n"));
            let said = queue.ground.agency(&["run", "--trust"]);
            assert_eq!(said.code, 2, "{table}.{key}: {said:?}");
            said.assert_names(&[&format!("agency.toml:2: `{table}.{key}` is refused")]);
        }
        queue.ground.write("agency.toml", "");
        let profile = format!("name: quick\ndescription: d\n{key}: {value}\ncommands: ['true']\n");
        queue.ground.write(".kodingx/dod/profiles/quick.yml", profile);
        let id = queue.ground.reported("x", &["--dod-profile", "quick"]);
        let said = queue.ground.agency(&["verify", "--task", &id, "--trust"]);
        assert_eq!(said.code, 2, "{key}: {said:?}");
        said.assert_names(&[&format!("`{key}` is refused")]);
    }
    let mut queue = contained(&engine, HONEST);
    queue.tasks(1);
    let socket = engine.socket().display().to_string();
    let above = engine.socket().parent().expect("a folder").display().to_string();
    for path in [socket.as_str(), &above, "/"] {
        queue.agent("shell", HONEST, &format!("read = [\"{path}\"]"));
        let said = queue.run(&[]);
        assert_eq!(said.code, 2, "{path}: {said:?}");
        said.assert_names(&["agents.shell.read", path, "is refused in a container"]);
    }
    assert_eq!(containers(&engine, queue.path()), Vec::<String>::new());
}

#[test]
fn what_a_container_takes_and_there_is_none_of_is_said_before_anything_starts() {
    let mut queue = Queue::new();
    queue.settings("isolation = \"container\"");
    let id = queue.task("shell", &[]);
    let refused = |queue: &Queue, code: i32, words: &[&str]| {
        let said = queue.run(&[]);
        assert_eq!(said.code, code, "{said:?}");
        said.assert_names(words);
        assert_eq!(queue.ground.status(&id), "NEW");
    };
    refused(&queue, 2, &["the agent `shell` has none", "container.image"]);
    queue.tables("[container]\nimage = \"localhost/none:1\"\nengine = \"unix:///nowhere/socket\"\n");
    refused(&queue, 3, &["no container engine answers at /nowhere/socket", "start Docker or Podman"]);
    for (lines, words) in [
        ("image = \"../x\"", "container.image"),
        ("image = \"a\"\nengine = \"tcp://1.2.3.4:2375\"", "is no socket of this host"),
        ("image = \"a\"\npull = \"always\"", "none of missing, never"),
        ("image = \"a\"\ncpus = 0", "must be an amount above zero"),
    ] {
        let text = format!(
            "[run]\nisolation = \"container\"\n[agents.shell]\ncommand = [\"sh\"]\n[container]\n{lines}\n"
        );
        queue.ground.write("agency.toml", text);
        let said = queue.ground.agency(&["run", "--trust"]);
        assert_eq!(said.code, 2, "{lines}: {said:?}");
        said.assert_names(&[words]);
    }
}
