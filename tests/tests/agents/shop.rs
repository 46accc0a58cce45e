//! A queue whose agent is a real program, and the model it talks to.

use agency_tests::ground::Said;
use agency_tests::model::{Model, Script};
use agency_tests::programs::Program;
use agency_tests::queue::{Queue, Supervisor};
use agency_tests::repository::skip;

/// What every program logs in with. Nobody but the model may ever see it.
pub(crate) const KEY: &str = "sk-test-4f1c9a7e2b6d80530c1d";

/// A million tokens, read and written, where a program does not say its cost.
const PRICE: &str = "price = { input = 2.0, output = 10.0 }\n";

#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) program: Program,
    pub(crate) queue: Queue,
    pub(crate) model: Model,
    port: u16,
}

/// What an agent is called.
pub(crate) const fn name(program: Program) -> &'static str {
    match program {
        Program::Codex => "codex",
        Program::Claude => "claude-code",
        Program::MiniSweAgent => "mini-swe-agent",
    }
}

/// These commands, and whatever else a program wants to hear before it ends.
pub(crate) fn script(program: Program, commands: &[&str]) -> Script {
    let last: &[&str] = match program {
        Program::MiniSweAgent => &["echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"],
        Program::Codex | Program::Claude => &[],
    };
    Script::commands(&[commands, last].concat())
}

impl Shop {
    /// `None` where the program is not there, which is said.
    pub(crate) fn open(test: &str, program: Program, script: Script) -> Option<Self> {
        if let Err(reason) = program.folder() {
            skip(&format!("{test} ({})", program.name()), &reason);
            return None;
        }
        let model = Model::start(script);
        let mut shop = Self { program, queue: Queue::new(), port: model.port(), model };
        shop.configure();
        Some(shop)
    }

    /// Its model is somewhere else.
    pub(crate) fn moves_to(&mut self, port: u16) {
        (self.port, self.queue) = (port, Queue::new());
        self.configure();
    }

    /// Where its model is. Only codex has to be told by its configuration; the others ask their environment.
    fn configure(&mut self) {
        let port = self.port;
        let provider = format!(
            "model_providers.scripted={{name=\"scripted\",base_url=\"http://127.0.0.1:{port}/v1\",wire_api=\"responses\",env_key=\"CODEX_API_KEY\"}}"
        );
        let table = match self.program {
            Program::Codex => format!(
                "[agents.codex]\ncommand = [\"codex\", \"exec\", \"--json\", \"--skip-git-repo-check\", \
                 \"--dangerously-bypass-approvals-and-sandbox\", \"-c\", \"model_provider=scripted\", \"-c\", \
                 \"model=scripted\", \"-c\", '{provider}', \"-\"]\nnetwork = [\"127.0.0.1:{port}\"]\n{PRICE}"
            ),
            Program::Claude => String::new(),
            Program::MiniSweAgent => format!("[agents.mini-swe-agent]\n{PRICE}"),
        };
        self.queue.tables(&table);
    }

    /// What whoever starts the run has in their environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let url = format!("http://127.0.0.1:{}", self.port);
        let folder = self.program.folder().expect("it is there").display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let mut variables = vec![("PATH", path)];
        variables.extend(match self.program {
            Program::Codex => vec![("CODEX_API_KEY", KEY.to_owned())],
            Program::Claude => vec![("ANTHROPIC_API_KEY", KEY.to_owned()), ("ANTHROPIC_BASE_URL", url)],
            Program::MiniSweAgent => vec![
                ("OPENAI_API_KEY", KEY.to_owned()),
                ("OPENAI_API_BASE", format!("{url}/v1")),
                ("MSWEA_MODEL_NAME", "openai/scripted".to_owned()),
            ],
        });
        variables
    }

    /// A task for it; its id.
    pub(crate) fn task(&self, more: &[&str]) -> String {
        self.queue.task(name(self.program), more)
    }

    pub(crate) fn start(&self, more: &[(&'static str, String)], arguments: &[&str]) -> Supervisor {
        let variables = [self.variables(), more.to_vec()].concat();
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.queue.start_with(&variables, arguments)
    }

    pub(crate) fn run(&self) -> Said {
        self.start(&[], &[]).end()
    }
}

/// A test for each program, which run beside each other.
macro_rules! for_each_program {
    ($($test:ident)*) => {
        $(mod $test {
            use agency_tests::programs::Program;

            #[test]
            fn codex() {
                super::$test(Program::Codex);
            }

            #[test]
            fn claude() {
                super::$test(Program::Claude);
            }

            #[test]
            fn mini_swe_agent() {
                super::$test(Program::MiniSweAgent);
            }
        })*
    };
}
pub(crate) use for_each_program;
