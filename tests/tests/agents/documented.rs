//! What the documents say of agents, done with the real programs.

use std::path::Path;

use agency_tests::model::{INPUT_TOKENS, OUTPUT_TOKENS};
use agency_tests::programs::Program;

use crate::shop::{Shop, script};

/// The block of docs/agents.md that has these words in it, with the model where it is here.
pub(crate) fn documented(words: &str, port: u16) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/agents.md");
    let text = std::fs::read_to_string(path).expect("read");
    let mut blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let block = blocks.find(|(block, _)| block.contains(words)).expect("it is documented").0;
    let here = format!("127.0.0.1:{port}");
    block
        .replace("https://proxy.example.org", &format!("http://{here}"))
        .replace("proxy.example.org:443", &here)
}

#[test]
fn codex_works_behind_another_address_and_its_tokens_are_counted() {
    let commands = ["echo hello > src/hello.txt"];
    let name = "codex_works_behind_another_address_and_its_tokens_are_counted";
    let Some(mut shop) = Shop::open(name, Program::Codex, script(Program::Codex, &commands)) else { return };
    shop.queue.tables(&documented("[agents.codex-proxy]", shop.model.port()));
    let id = shop.queue.task("codex-proxy", &[]);
    let said = shop.run();
    assert_eq!(said.code, 0, "{said:?}");
    shop.queue.assert_landed(std::slice::from_ref(&id));
    let report = shop.queue.ground.ok(&["report", &id, "--json"]).json();
    let usage = &report["report"]["usage"];
    assert_eq!(usage["input_tokens"], 2 * INPUT_TOKENS, "{usage}");
    assert_eq!(usage["output_tokens"], 2 * OUTPUT_TOKENS, "{usage}");
}
