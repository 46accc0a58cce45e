//! §22.5 to §22.8: beside other trackers, and step by step.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use crate::ground::Ground;

#[test]
fn s22_5_tasks_can_refer_to_issues_elsewhere() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let file = ground.file(&id);
    let lines = "issue: \"#123\"\njira: PROJ-456\nlinear: ENG-789\nnotion: https://notion.so/x\nstatus:";
    ground.edit(&file, "status:", lines);
    ground.assert_compliant();
    let task = ground.ok(&["task", "show", &id, "--json"]).json()["task"].clone();
    assert_eq!(
        task["external_refs"],
        serde_json::json!([["issue", "#123"], ["jira", "PROJ-456"], ["linear", "ENG-789"]])
    );
    ground.ok(&["task", "move", &id, "ASSIGNED"]);
    assert!(ground.read(&file).contains(&lines.replace("status:", "status: ASSIGNED")));
    // An unquoted number is a comment to YAML: that is told, and is no error.
    ground.edit(&file, "\"#123\"", "#123");
    let findings = ground.lint();
    assert_eq!((findings.len(), &findings[0]["severity"]), (1, &"warning".into()), "{findings:?}");
    assert!(findings[0]["message"].as_str().is_some_and(|message| message.contains("in quotes")));
}

#[test]
fn s22_5_verify_calls_the_scripts_a_repository_has() {
    let ground =
        Ground::without_board(&[("ci/check.sh", "echo checked && test -f src/it\n"), ("src/it", "")]);
    ground.ok(&["init", "--builders", "codex"]);
    ground.profile("ours", &["sh ci/check.sh"]);
    let id = ground.task("One", &["--dod-profile", "ours"]);
    ground.ok(&["verify", "--task", &id]);
    ground.remove("src/it");
    assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10);
}

#[test]
fn s22_6_external_references_are_written_and_read() {
    let ground = Ground::new();
    let given = ["github_issue=#123", "jira=PROJ-456", "linear=ENG-789", "pr=#125"];
    let flags: Vec<&str> = given.iter().flat_map(|one| ["--external", one]).collect();
    let id = ground.task("One", &flags);
    let header = ground.header(&ground.file(&id));
    let shown = ground.ok(&["task", "show", &id, "--json"]).json()["task"]["external_refs"].clone();
    for (at, pair) in given.iter().enumerate() {
        let (key, value) = pair.split_once('=').expect("a pair");
        assert_eq!(header["external_refs"][key].as_str(), Some(value));
        assert_eq!(shown[at], serde_json::json!([key, value]));
    }
    ground.assert_compliant();
    ground.refused(2, &["task", "new", "--title", "x", "--external", "jira"]).assert_names(&["KEY=VALUE"]);
}

/// A tracker on this machine, which has two issues and a pull request.
fn tracker() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let issue = |number: u32, title: &str| {
        serde_json::json!({
            "number": number, "title": title, "body": "It is so.\n\n---\nstatus: DONE\n", "labels": [{"name": "P1"}],
            "html_url": format!("https://github.example/o/r/issues/{number}"), "state": "open",
        })
    };
    let mut pull = issue(3, "No issue");
    pull["pull_request"] = serde_json::json!({});
    let body = serde_json::json!([issue(1, "One: \"it\""), issue(2, "Two"), pull]).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                line.clear();
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            );
            let answer = format!("{head}Connection: close\r\n\r\n{body}");
            let _ = reader.into_inner().write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn s22_7_issues_of_a_tracker_become_tasks_once() {
    let ground = Ground::new();
    let address = format!("http://{}", tracker());
    let import = ["import", "--from", "github", "--repo", "o/r", "--label", "agency", "--api-url", &address];
    ground.ok(&import);
    let first = ground.header(&ground.file("T0001"));
    assert_eq!((first["title"].as_str(), first["priority"].as_str()), (Some("One: \"it\""), Some("P1")));
    assert_eq!(first["external_refs"]["github_issue"].as_str(), Some("#1"));
    assert_eq!(first["status"].as_str(), Some("NEW"), "an issue's words are no header");
    ground.file("T0002");
    assert_eq!(ground.ok(&["task", "list", "--json"]).json()["tasks"].as_array().map(Vec::len), Some(2));
    ground.assert_compliant();
    ground.unchanged(0, &import);
}

/// The five weeks of §22.8, one after the other.
#[test]
fn s22_8_a_board_grows_part_by_part() {
    let ground = Ground::without_board(&[("package.json", "{\"scripts\":{\"test\":\"true\"}}")]);
    ground.ok(&["install", "--minimal", "--builders", "codex", "--orchestrator", "cursor"]);
    let id = ground.task("One", &[]);
    ground.write(".kodingx/RISKS.md", "# Our risks\n\n### R-001: x\n**Priority:** P3\n**Status:** OPEN\n");
    ground.task("Two", &["--risk", "R-001"]);
    assert!(!ground.exists(".kodingx/dod"));
    ground.ok(&["upgrade", "--add", "dod-profiles"]);
    assert!(ground.exists(".kodingx/dod/profiles/node_strict.yml"));
    assert!(!ground.exists(".kodingx/verify"));
    ground.ok(&["upgrade", "--add", "verify"]);
    assert!(ground.exists(".kodingx/verify"));
    assert!(!ground.exists(".kodingx/TASK_BOARD.md"));
    ground.ok(&["upgrade", "--full"]);
    assert!(ground.read(".kodingx/TASK_BOARD.md").contains(&id));
    assert!(ground.read(".kodingx/RISKS.md").starts_with("# Our risks\n"));
    ground.assert_compliant();
    ground.refused(2, &["upgrade", "--add", "everything"]).assert_names(&["there is no part `everything`"]);
    ground.refused(2, &["upgrade"]);
    let nothing = Ground::without_board(&[]);
    nothing.refused(4, &["upgrade", "--full"]).assert_names(&["there is no board", "agency init"]);
}
