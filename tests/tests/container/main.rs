//! What only a container could give away: through its engine, its image, the door its first process calls at, and what
//! is left of it when nobody looks after it any more. Through the real `agency sandbox --isolation container`, as root and
//! as an ordinary user in the engine's group. What every level holds is tried by the escape suite.

mod images;
mod inside;
mod leftovers;
mod mounts;
mod refusals;

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::time::Duration;

use agency_tests::engine::Engine;
use agency_tests::repository::{Repository, actors, skip};

/// Far more than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The controls that say a second time what the mounts and the engine say.
const SECOND_FENCE: &str = "landlock,seccomp";

/// A repository with an engine to work in it by.
struct Ground {
    engine: Engine,
    image: String,
    repository: Repository,
}

/// Carries a test out once for everybody who can be played here, or says why not.
fn for_each(test: &str, act: impl Fn(&Ground)) {
    let engine = match Engine::find() {
        Ok(engine) => engine,
        Err(reason) => return skip(test, &reason),
    };
    let image = engine.image();
    for actor in actors() {
        let files =
            [("src/main.rs", "fn main() {}\n"), ("src/inner/mod.rs", "\n"), ("docs/guide.md", "guide\n")];
        let repository = Repository::new(actor, &files).expect("a repository").in_group(engine.group());
        act(&Ground { engine: engine.clone(), image: image.clone(), repository });
    }
}

impl Ground {
    /// `agency` with these arguments, and the engine where it looks for one.
    fn agency(&self, arguments: &[&str]) -> Command {
        let mut command = self.repository.command(self.repository.agency());
        command.args(arguments).env("DOCKER_HOST", self.engine.address());
        command
    }

    /// A script in a container of an image.
    fn script_in(&self, image: &str, flags: &[&str], script: &str) -> Command {
        let mut command = self.agency(&["sandbox", "--isolation", "container", "--image", image]);
        command.args(flags).args(["--", "/bin/sh", "-c", script]);
        command
    }

    fn script(&self, flags: &[&str], script: &str) -> Ended {
        Ended::of(self.script_in(&self.image, flags, script))
    }
}

/// A run that is over.
#[derive(Debug)]
struct Ended {
    output: Output,
}

impl Ended {
    fn of(mut command: Command) -> Self {
        Self { output: command.output().expect("agency starts") }
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// It ended well, having printed exactly this.
    #[track_caller]
    fn assert_prints(&self, expected: &str) {
        assert_eq!((self.stdout().as_str(), self.code()), (expected, Some(0)), "{}", self.stderr());
    }

    /// The report of `agency` itself.
    #[track_caller]
    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.output))
    }

    /// Nothing was started, and what is wrong is said in a line with this in it; a hint may follow.
    #[track_caller]
    fn assert_refused(&self, code: i32, said: &str) {
        let text = self.stderr();
        assert_eq!((self.code(), self.stdout().as_str()), (Some(code), ""), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.first().is_some_and(|line| line.contains(said)), "no `{said}` in: {text}");
        let hint = lines.get(1).is_none_or(|line| line.trim_start().starts_with("hint: "));
        assert!(lines.len() <= 2 && hint, "{text}");
    }
}

/// One line of a script that prints what it was if it works, and nothing if not.
fn tried(attempts: &[impl AsRef<OsStr>]) -> String {
    let lines = attempts.iter().map(|attempt| {
        let attempt = attempt.as_ref().to_str().expect("text");
        format!("( {attempt} ) >/dev/null 2>&1 && echo \"worked: $(cat <<'END'\n{attempt}\nEND\n)\"\n")
    });
    lines.collect::<String>() + "true\n"
}
