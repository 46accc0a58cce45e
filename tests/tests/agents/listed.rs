//! Which agents can be used here, and why others can't: said before anything is started, in one line.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agency_tests::ground::{Ground, Said};
use agency_tests::processes::wait_until;
use agency_tests::queue::Queue;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;

/// A queue, and whoever starts its runs: with a home of their own and few programs.
struct Desk {
    queue: Queue,
    home: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { queue: Queue::new(), home: tempfile::tempdir().expect("a home") }
    }

    /// A folder with a program of this name.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.queue.ground.write_program(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        path.parent().expect("a folder").to_owned()
    }

    fn run(&self, folder: Option<PathBuf>, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
        let usual = "/usr/local/bin:/usr/bin:/bin";
        let path = folder.map_or(usual.to_owned(), |folder| format!("{}:{usual}", folder.display()));
        let mut command = self.queue.ground.command(arguments);
        command.env("PATH", path).env("HOME", self.home.path()).envs(variables.iter().copied());
        command.output().expect("it runs").into()
    }
}

#[track_caller]
fn assert_refused(said: &Said, message: &str, hint: &str) {
    assert_eq!(said.code, 2, "{said:?}");
    let lines: Vec<&str> = said.err.lines().filter(|line| !line.contains("agents start from")).collect();
    assert_eq!(lines, [format!("agency: {message}"), format!("  hint: {hint}")], "{said:?}");
}

#[test]
fn a_program_that_is_not_installed() {
    let desk = Desk::new();
    desk.queue.task("gemini", &[]);
    let said = desk.run(None, &[("GEMINI_API_KEY", "x")], &["run"]);
    assert_refused(
        &said,
        "the agent `gemini` is not installed: there is no `gemini` on PATH",
        "install it, or say what to start: agents.gemini.command in agency.toml",
    );
    // Others need not wait for it.
    let other = desk.queue.task("shell", &[]);
    let said = desk.run(None, &[], &["run", "--keep-going"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["there is no `gemini` on PATH"]);
    assert_eq!(desk.queue.landed().into_keys().collect::<Vec<_>>(), [other], "{said:?}");
}

#[test]
fn a_program_that_is_too_old() {
    let desk = Desk::new();
    desk.queue.task("codex", &[]);
    let folder = desk.program("codex", "echo codex-cli 0.12.3");
    let said = desk.run(Some(folder), &[("CODEX_API_KEY", "x")], &["run"]);
    assert_refused(
        &said,
        "the agent `codex` needs version 0.100.0 of its program, and 0.12.3 is there",
        "update it, or say how this one is started: agents.codex.command in agency.toml",
    );
}

#[test]
fn a_program_that_does_not_say_its_version() {
    let desk = Desk::new();
    desk.queue.task("codex", &[]);
    let folder = desk.program("codex", "exit 1");
    let said = desk.run(Some(folder), &[("CODEX_API_KEY", "x")], &["run"]);
    let message = "the program of the agent `codex` does not say its version";
    assert_refused(&said, message, "`codex --version` shows why");
}

#[test]
fn nothing_to_log_in_with() {
    let desk = Desk::new();
    desk.queue.task("codex", &[]);
    let folder = desk.program("codex", "echo codex-cli 0.166.0");
    let message = "the agent `codex` is not logged in";
    let hint = "set CODEX_API_KEY, or log in with `codex login`";
    for variables in [&[][..], &[("CODEX_API_KEY", "")]] {
        assert_refused(&desk.run(Some(folder.clone()), variables, &["run"]), message, hint);
    }
    // A file does as well.
    let file = desk.home.path().join(".codex/auth.json");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::fs::write(file, "{\"OPENAI_API_KEY\":\"sk-0123456789abcdef\"}").expect("written");
    let listed = desk.run(Some(folder), &[], &["agents", "--json"]).json();
    let codex = agent(&listed, "codex");
    assert_eq!((&codex["ready"], &codex["credentials"]), (&Json::Bool(true), &"present".into()), "{codex}");
}

fn agent<'a>(listed: &'a Json, name: &str) -> &'a Json {
    let agents = listed["agents"].as_array().expect("agents");
    agents.iter().find(|agent| agent["name"] == name).expect("it is listed")
}

#[test]
fn every_agent_is_listed_with_what_is_known_of_it() {
    let desk = Desk::new();
    let folder = desk.program("claude", "echo '2.1.197 (Claude Code)'");
    let said = desk.run(Some(folder.clone()), &[("ANTHROPIC_API_KEY", "x")], &["agents", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let listed = said.json();
    for name in [
        "aider",
        "claude-code",
        "codex",
        "cursor-agent",
        "gemini",
        "mini-swe-agent",
        "opencode",
        "playwright",
        "shell",
    ] {
        agent(&listed, name);
    }
    let claude = agent(&listed, "claude-code");
    assert_eq!(claude["ready"], true, "{claude}");
    assert_eq!(claude["version"], "2.1.197");
    assert_eq!(claude["program"], folder.join("claude").display().to_string());
    assert_eq!(
        (&claude["credentials"], &claude["names"][0]),
        (&"present".into(), &"ANTHROPIC_API_KEY".into())
    );
    let codex = agent(&listed, "codex");
    assert_eq!((&codex["ready"], &codex["program"]), (&Json::Bool(false), &Json::Null), "{codex}");
    assert!(codex["why"].as_str().is_some_and(|why| why.contains("not installed")), "{codex}");
    let text = desk.run(Some(folder), &[("ANTHROPIC_API_KEY", "x")], &["agents"]);
    for words in ["claude-code     ready", "2.1.197, with ANTHROPIC_API_KEY", "codex           not ready"] {
        assert!(text.out.contains(words), "{words}: {}", text.out);
    }
}

#[test]
fn an_agent_may_be_like_another() {
    let queue = Queue::new();
    queue.ground.write("agency.toml", "[agents.fast]\nlike = \"shell\"\ntimeout = \"1m\"\n");
    queue.ground.ok(&["trust", "--yes"]);
    let body = "```sh\necho hello > src/hello.txt\n```\n";
    queue.ground.write("body.md", body);
    let id = queue.task("fast", &["--body", "body.md"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
    let shown = queue.ground.ok(&["agents", "show", "shell"]);
    assert!(shown.out.contains("[agents.shell]") && shown.out.contains("command = ["), "{shown:?}");
}

#[test]
fn a_setting_that_makes_no_sense_is_named() {
    for (table, message) in [
        ("[agents.a]\ncommand = [\"sh\"]\nanswered = \"(\"\n", "agents.a.answered: "),
        (
            "[agents.a]\ncommand = [\"sh\"]\n[agents.a.signals.x]\npattern = \"x\"\nmeans = \"nothing\"\n",
            "agents.a.signals.x.means: `nothing` is none of quota, unreachable, unfit, blocked, failed",
        ),
        (
            "[agents.a]\ncommand = [\"sh\"]\nendpoint = \"ENDPOINT\"\n",
            "ENDPOINT: it is not the address of a server",
        ),
    ] {
        let desk = Desk::new();
        desk.queue.ground.write("agency.toml", table);
        desk.queue.ground.ok(&["trust", "--yes"]);
        desk.queue.task("a", &[]);
        let said = desk.run(None, &[("ENDPOINT", "nonsense")], &["run"]);
        assert_eq!(said.code, 2, "{said:?}");
        said.assert_names(&[message]);
    }
}

#[test]
fn an_agent_is_tried_in_a_repository_that_is_thrown_away() {
    let ground = Ground::without_board(&[]);
    let before = ground.git(&["status", "--porcelain"]);
    let said = ground.agency(&["agents", "test", "shell"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["`shell` works: the task was done, verified and landed"]);
    ground.write("agency.toml", "[agents.lazy]\ncommand = [\"true\"]\n");
    let said = ground.agency(&["agents", "test", "lazy"]);
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["agency.toml is not trusted"]);
    let said = ground.agency(&["agents", "test", "lazy", "--trust", "--json"]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(said.json()["works"], false);
    assert!(said.json()["why"].as_str().is_some_and(|why| why.contains("it made no change")), "{said:?}");
    let said = ground.agency(&["agents", "test", "nobody"]);
    assert_eq!(said.code, 2, "{said:?}");
    std::fs::remove_file(ground.path().join("agency.toml")).expect("removed");
    assert_eq!(ground.git(&["status", "--porcelain"]), before);
    let kept = std::fs::read_dir(ground.state_home().join("repositories")).into_iter().flatten().flatten();
    let kept: Vec<_> =
        kept.filter(|entry| entry.file_name().to_string_lossy().contains("agency-test")).collect();
    assert!(kept.is_empty(), "{kept:?}");
}

/// Whoever says which hosts an agent reaches has said all of it.
#[test]
fn a_network_of_ones_own_is_not_made_wider_by_what_is_known() {
    for (network, expected) in
        [("\"none\"", "\"reach\":\"none\""), ("[\"a.example.org:443\"]", "\"hosts\":\"a.example.org:443\"")]
    {
        let desk = Desk::new();
        let table = format!(
            "[agents.mine]\nlike = \"aider\"\nnetwork = {network}\ncommand = [\"sh\", \"-c\", \"true\"]\nenv = [\"OPENAI_API_KEY\"]\n"
        );
        desk.queue.ground.write("agency.toml", table);
        desk.queue.ground.ok(&["trust", "--yes"]);
        let id = desk.queue.task("mine", &[]);
        let variables =
            [("OPENAI_API_KEY", "sk-0123456789abcdef"), ("OPENAI_API_BASE", "https://b.example.org")];
        desk.run(None, &variables, &["run"]);
        let order =
            std::fs::read_to_string(desk.queue.records(&id, 1).join("agent/order.json")).expect("an order");
        let order: Json = serde_json::from_str(&order).expect("JSON");
        assert!(order["what"]["network"].to_string().contains(expected), "{}", order["what"]["network"]);
    }
}

/// A repository that nobody trusts may make times shorter, and not longer.
#[test]
fn an_untrusted_repository_may_only_narrow() {
    let queue = Queue::new();
    queue.ground.write("agency.toml", "[agents.codex]\nidle_timeout = \"900h\"\ntimeout = \"1h\"\n");
    let shown = queue.ground.ok(&["agents", "show", "codex", "--json"]).json();
    assert_eq!((&shown["agent"]["idle_timeout"], &shown["agent"]["timeout"]), (&"15m".into(), &"1h".into()));
    queue.ground.write("agency.toml", "[agents.codex]\nidle_timeout = \"1m\"\n");
    let shown = queue.ground.ok(&["agents", "show", "codex", "--json"]).json();
    assert_eq!(shown["agent"]["idle_timeout"], "1m");
    queue.ground.write("agency.toml", "[agents.mine]\nlike = \"shell\"\n");
    queue.task("mine", &[]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["agency.toml is not trusted, so it can't say how the agent `mine` is started"]);
}

/// An agent that would have to wait has shown what it can't do.
#[test]
fn a_trial_does_not_wait_for_anybody() {
    let ground = Ground::without_board(&[]);
    ground.write(
        "agency.toml",
        "[agents.poor]\ncommand = [\"sh\", \"-c\", \"echo no quota; exit 1\"]\n[agents.poor.signals.q]\npattern = '(?<says>no quota)'\nmeans = \"quota\"\nwait = \"1h\"\n",
    );
    let said = ground.agency(&["agents", "test", "poor", "--trust"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["`poor` does not work here: no quota", "its output is in "]);
    let kept =
        said.err.lines().find_map(|line| line.strip_prefix("agency: its output is in ")).expect("said");
    assert!(std::fs::read_to_string(kept).expect("kept").contains("no quota"), "{said:?}");
}

/// Where the environment says that the model is elsewhere, a trial reaches it there, as a run does.
#[test]
fn a_trial_reaches_the_model_where_a_run_does() {
    let desk = Desk::new();
    let script = "case \"$1\" in --version) echo '2.1.197 (Claude Code)'; exit;; esac
        echo \"$ANTHROPIC_BASE_URL\"; exec 3<>/dev/tcp/127.0.0.1/$PORT && echo hello >&3 && read -r line <&3 \\
        && echo \"$line\" > hello.txt";
    let folder =
        desk.program("claude", &format!("exec bash -c '{}' claude \"$@\"", script.replace('\'', "'\\''")));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        use std::io::Write;
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"hello from the sandbox\n");
        }
    });
    desk.queue.ground.write(
        "agency.toml",
        format!("[agents.claude-code]\nvariables = [\"ANTHROPIC_BASE_URL\", \"PORT={port}\"]\n"),
    );
    let url = format!("http://127.0.0.1:{port}");
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", "x")];
    let said = desk.run(Some(folder), &variables, &["agents", "test", "claude-code", "--trust"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["`claude-code` works"]);
}

/// Nobody takes a trial over: its agent is stopped, and nothing is left of the repository.
#[test]
fn a_trial_that_is_interrupted_leaves_nothing() {
    let ground = Ground::without_board(&[]);
    ground.write("agency.toml", "[agents.slow]\ncommand = [\"sh\", \"-c\", \"echo at work; sleep 1000\"]\n");
    let folder = tempfile::tempdir_in(ground.user()).expect("a folder");
    let mut command = ground.command(&["agents", "test", "slow", "--trust"]);
    command.env("TMPDIR", folder.path()).stderr(Stdio::piped());
    let trial = command.spawn().expect("it starts");
    assert!(wait_until(Duration::from_secs(60), || is_at_work(ground.state_home())), "it does not begin");
    let pid = i32::try_from(trial.id()).expect("a number");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("signalled");
    let said: Said = trial.wait_with_output().expect("it ends").into();
    assert_eq!(said.code, 130, "{said:?}");
    said.assert_names(&["the trial was interrupted"]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("listed").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Whether an agent whose state is below a folder has written something.
fn is_at_work(state: &Path) -> bool {
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() && !path.is_symlink() {
        true => is_at_work(&path),
        false => {
            path.ends_with("agent/output.log")
                && std::fs::read_to_string(&path).is_ok_and(|text| text.contains("at work"))
        }
    })
}

/// A program behind a link that leads out of its own folder is started by where it is.
#[test]
fn a_program_behind_a_link_is_started() {
    let desk = Desk::new();
    let prefix = desk.home.path().join("prefix");
    let target = prefix.join("lib/node_modules/tool/tool.sh");
    std::fs::create_dir_all(target.parent().expect("a folder")).expect("made");
    std::fs::write(&target, "#!/bin/sh\ncat \"$(dirname \"$0\")/beside\" > src/told\n").expect("written");
    std::fs::write(target.with_file_name("beside"), "beside\n").expect("written");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755)).expect("set");
    std::fs::create_dir_all(prefix.join("bin")).expect("made");
    std::os::unix::fs::symlink("../lib/node_modules/tool/tool.sh", prefix.join("bin/tool")).expect("linked");
    desk.queue.ground.write("agency.toml", "[agents.tool]\ncommand = [\"tool\"]\n");
    desk.queue.ground.ok(&["trust", "--yes"]);
    let id = desk.queue.task("tool", &[]);
    let said = desk.run(Some(prefix.join("bin")), &[], &["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    desk.queue.assert_landed(&[id]);
    assert_eq!(desk.queue.ground.git(&["show", "main:src/told"]), "beside\n");
}

/// The layout of claude's own installer: a link in `~/.local/bin` to one file of many.
#[test]
fn a_program_of_an_installer_in_the_home_is_started() {
    let desk = Desk::new();
    let home = desk.home.path().canonicalize().expect("a path");
    let versions = home.join(".local/share/claude/versions");
    install(
        &versions.join("2.1.197"),
        "#!/bin/sh\n[ \"$1\" != --version ] || { echo '2.1.197 (Claude Code)'; exit; }\ncat >/dev/null
         { ls -A ~/.local/share ~/.local/share/claude/versions; cat ~/.local/share/claude/token; } > src/seen 2>/dev/null
         touch ~/.local/mine ~/.local/share/claude/mine && echo own >> src/seen
         ! echo x >> ~/.local/share/claude/versions/2.1.197 && ! touch ~/.local/bin/x && echo kept >> src/seen\n",
    );
    std::fs::write(home.join(".local/share/claude/token"), "secret").expect("written");
    install(&versions.join("2.0.0"), "#!/bin/sh\nexit 1\n");
    std::fs::create_dir_all(home.join(".local/share/other")).expect("made");
    link(&versions.join("2.1.197"), &home.join(".local/bin/claude"));
    let id = desk.queue.task("claude-code", &[]);
    let variables = [("ANTHROPIC_API_KEY", "sk-0123456789abcdef")];
    let folder = Some(home.join(".local/bin"));
    let listed = desk.run(folder.clone(), &variables, &["agents", "--json"]).json();
    let claude = agent(&listed, "claude-code");
    assert_eq!((&claude["ready"], &claude["version"]), (&Json::Bool(true), &"2.1.197".into()), "{claude}");
    let said = desk.run(folder, &variables, &["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    desk.queue.assert_landed(&[id]);
    let seen = desk.queue.ground.git(&["show", "main:src/seen"]);
    let lines: Vec<&str> = seen.split_whitespace().filter(|line| !line.starts_with('/')).collect();
    assert_eq!(lines, ["claude", "2.1.197", "own", "kept"], "{seen}");
}

/// The layout of pipx: a link in `~/.local/bin` to a script of an environment, whose Python is elsewhere.
#[test]
fn a_program_of_an_environment_in_the_home_is_started() {
    let desk = Desk::new();
    let home = desk.home.path().canonicalize().expect("a path");
    let environments = home.join(".local/share/pipx/venvs");
    let environment = environments.join("aider-chat");
    // A shell does for a Python here. It is found by two links, as Homebrew has it.
    let python = home.join("brew/Cellar/python/3.12/bin/python3.12");
    std::fs::create_dir_all(home.join("brew/Cellar/python/3.12/lib/python3.12")).expect("made");
    std::fs::create_dir_all(python.parent().expect("a folder")).expect("made");
    std::fs::copy("/bin/sh", &python).expect("copied");
    link(&home.join("brew/Cellar/python/3.12"), &home.join("brew/opt/python"));
    let head = format!("#!{}/bin/python\n", environment.display());
    install(
        &environment.join("bin/aider"),
        &format!(
            "{head}[ \"$1\" != --version ] || {{ echo aider 0.86.1; exit; }}
             . \"$(dirname \"$(readlink -f \"$0\")\")/../lib/beside\"; {{ ls -A {}; ls -A ~/brew; }} > src/seen\n",
            environments.display()
        ),
    );
    std::fs::create_dir_all(environment.join("lib")).expect("made");
    std::fs::write(environment.join("lib/beside"), "ls >/dev/null\n").expect("written");
    std::fs::write(environment.join("pyvenv.cfg"), "home = nowhere\n").expect("written");
    link(&home.join("brew/opt/python/bin/python3.12"), &environment.join("bin/python3"));
    link(Path::new("python3"), &environment.join("bin/python"));
    std::fs::create_dir_all(environments.join("other")).expect("made");
    std::fs::write(home.join("brew/secret"), "secret").expect("written");
    link(&environment.join("bin/aider"), &home.join(".local/bin/aider"));
    let id = desk.queue.task("aider", &[]);
    let variables = [("OPENAI_API_KEY", "sk-0123456789abcdef")];
    let folder = Some(home.join(".local/bin"));
    let listed = desk.run(folder.clone(), &variables, &["agents", "--json"]).json();
    let aider = agent(&listed, "aider");
    assert_eq!((&aider["ready"], &aider["version"]), (&Json::Bool(true), &"0.86.1".into()), "{aider}");
    let said = desk.run(folder, &variables, &["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    desk.queue.assert_landed(&[id]);
    let seen = desk.queue.ground.git(&["show", "main:src/seen"]);
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["aider-chat", "Cellar", "opt"], "{seen}");
}

fn install(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
}

fn link(to: &Path, path: &Path) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::os::unix::fs::symlink(to, path).expect("linked");
}

/// A program that can't be started in a sandbox is not ready, whatever it is elsewhere.
#[test]
fn an_agent_whose_program_does_not_start_is_not_ready() {
    let desk = Desk::new();
    let folder = desk.program("gemini", "exit 0");
    desk.program("opencode", "echo broken >&2; exit 3");
    desk.program("npx", "exit 0");
    let keys = [("GEMINI_API_KEY", "x"), ("OPENAI_API_KEY", "x")];
    let listed = desk.run(Some(folder.clone()), &keys, &["agents", "--json"]).json();
    for (name, why) in [
        ("gemini", "the program of the agent `gemini` does not say its version"),
        ("opencode", "the program of the agent `opencode` does not say its version: broken"),
        ("playwright", "the agent `playwright` needs `playwright`, which is not on PATH"),
    ] {
        let found = agent(&listed, name);
        assert_eq!(found["ready"], false, "{found}");
        assert!(found["why"].as_str().is_some_and(|said| said.starts_with(why)), "{found}");
    }
    // A project's own comes with its setup.
    let setup = "[workspace]\nsetup = { command = \"npm ci\", cache_key = [\"package-lock.json\"] }\n";
    desk.queue.ground.write("agency.toml", setup);
    let listed = desk.run(Some(folder), &keys, &["agents", "--json", "--trust"]).json();
    assert_eq!(agent(&listed, "playwright")["ready"], true, "{listed}");
}

/// What is in the workspace is not looked for here.
#[test]
fn a_command_may_be_a_file_of_the_repository() {
    for command in ["./tools/agent.sh", "{workspace}/tools/agent.sh"] {
        let queue = Queue::new();
        queue.ground.write_program("tools/agent.sh", "#!/bin/sh\necho by > src/by\n");
        queue.ground.write("agency.toml", format!("[agents.own]\ncommand = [\"{command}\"]\n"));
        queue.ground.commit_all();
        queue.ground.ok(&["trust", "--yes"]);
        let id = queue.task("own", &[]);
        let said = queue.run(&[]);
        assert_eq!(said.code, 0, "{said:?}");
        queue.assert_landed(&[id]);
    }
}

/// A key that was renamed is understood by its old name, and a notice says the present one.
#[test]
fn an_old_key_is_understood_with_a_notice() {
    let queue = Queue::new();
    queue.ground.write("agency.toml", "[agents.codex]\nstall = \"1m\"\n");
    let shown = queue.ground.ok(&["agents", "show", "codex", "--json"]);
    assert_eq!(shown.json()["agent"]["idle_timeout"], "1m");
    let notice = "agency.toml: `agents.codex.stall` is called `agents.codex.idle_timeout` now";
    assert!(shown.err.contains(notice), "{}", shown.err);
    queue.ground.write("agency.toml", "[agents.codex]\nstall = \"1m\"\nidle_timeout = \"2m\"\n");
    let refused = queue.ground.agency(&["agents", "show", "codex"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("is set twice"), "{}", refused.err);
}
