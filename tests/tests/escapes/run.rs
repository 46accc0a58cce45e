//! One run of `agency sandbox`, and what came of it.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use agency_tests::adversary::{Outcome, Report, Unreported};
use serde_json::Value;

use crate::ground::Ground;

/// After which a run that hangs is killed, so that the test fails instead of waiting.
const LONGEST: &str = "120";

/// An attack by its name, with its arguments.
pub(crate) type Attack<'a> = (&'a str, Vec<OsString>);

/// Controls that show nothing in a container when they are switched off: an engine has no switch for the first three, and
/// without the others there is still nothing of the host but what was mounted.
const NOTHING_TO_SHOW: &[&str] = &[
    "user-namespace",
    "attributes",
    "minimal-dev",
    "read-only-host",
    "private-home",
    "private-tmp",
    "hidden-paths",
];

/// A run to be.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox<'a> {
    ground: &'a Ground,
    flags: Vec<OsString>,
    without: Vec<&'static str>,
    environment: Vec<(OsString, OsString)>,
    /// What stands before the adversary, inside the sandbox.
    prefix: Vec<OsString>,
    folder: Option<std::path::PathBuf>,
}

impl<'a> Sandbox<'a> {
    pub(crate) fn new(ground: &'a Ground) -> Self {
        let mut flags: Vec<OsString> = vec!["--read".into(), ground.bin().into_os_string()];
        if ground.actor.is_bare() {
            flags.extend(["--isolation".into(), "landlock".into()]);
        }
        if let Some(image) = ground.image() {
            // A folder to be read costs a container its sockets on paths; a file does not.
            flags[1] = ground.bin().join("adversary").into_os_string();
            flags.extend(["--isolation", "container", "--image", image].map(OsString::from));
        }
        let (without, environment, prefix) = (Vec::new(), Vec::new(), Vec::new());
        Self { ground, flags, without, environment, prefix, folder: None }
    }

    pub(crate) fn without(mut self, controls: &[&'static str]) -> Self {
        self.without.extend(controls);
        self
    }

    pub(crate) fn flag(mut self, flag: impl AsRef<OsStr>) -> Self {
        self.flags.push(flag.as_ref().to_owned());
        self
    }

    pub(crate) fn option(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.flag(name).flag(value)
    }

    pub(crate) fn write(self, glob: &str) -> Self {
        self.option("--write", glob)
    }

    pub(crate) fn deny(self, glob: &str) -> Self {
        self.option("--deny", glob)
    }

    pub(crate) fn read(self, path: impl AsRef<Path>) -> Self {
        self.option("--read", path.as_ref())
    }

    /// Keeps the changes, and says what became of them.
    pub(crate) fn apply(self) -> Self {
        self.flag("--apply").flag("--json")
    }

    /// A variable of the caller's; whether it is passed on is another matter.
    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// A variable of the caller's that is passed on.
    pub(crate) fn pass(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variable(name, value).option("--env", name)
    }

    pub(crate) fn prefix(mut self, words: &[&str]) -> Self {
        self.prefix.extend(words.iter().map(OsString::from));
        self
    }

    pub(crate) fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    /// Started by `agency` itself, which is the child's process id: for tests that signal it.
    pub(crate) fn direct(&self, program: impl AsRef<OsStr>) -> Command {
        self.complete(self.ground.command(self.ground.bin().join("agency")), program.as_ref())
    }

    /// The same, started by what these words are.
    pub(crate) fn through(&self, words: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = self.ground.command(words[0]);
        command.args(&words[1..]).arg(self.ground.bin().join("agency"));
        self.complete(command, program.as_ref())
    }

    /// The same, bounded in time.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.through(&["timeout", "--signal=KILL", LONGEST], program)
    }

    fn complete(&self, mut command: Command, program: &OsStr) -> Command {
        command.arg("sandbox").args(&self.flags);
        if !self.without.is_empty() {
            command.arg("--without").arg(self.without.join(","));
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("--").args(&self.prefix).arg(program);
        command
    }

    /// The adversary, ready to be started with an attack.
    pub(crate) fn adversary(&self) -> Command {
        self.command(self.ground.bin().join("adversary"))
    }

    pub(crate) fn attack<A: AsRef<OsStr>>(
        &self,
        attack: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Ended {
        if self.is_shown_elsewhere() {
            return Ended::elsewhere(attack);
        }
        let output = self.adversary().arg(attack).args(arguments).output().expect("agency starts");
        Ended::new(attack, output)
    }

    /// Attacks one after the other, each in a run of its own; in one container, which takes too long to start for that.
    /// None is made where another level was shown.
    fn attacks(&self, list: &[Attack<'_>]) -> Vec<Report> {
        if self.is_shown_elsewhere() {
            return Vec::new();
        }
        if !self.ground.actor.is_contained() {
            return list.iter().map(|(attack, arguments)| self.attack(attack, arguments).report()).collect();
        }
        let quoted = |word: &OsStr| format!("'{}' ", word.to_str().expect("text").replace('\'', "'\\''"));
        let adversary = self.ground.bin().join("adversary").into_os_string();
        let one = |(attack, arguments): &Attack<'_>| {
            let words = [adversary.as_os_str(), OsStr::new(attack)].into_iter();
            let words = words.chain(arguments.iter().map(OsString::as_os_str));
            words.map(quoted).collect::<String>() + "\n"
        };
        let ended = self.shell(&list.iter().map(one).collect::<String>());
        let text = [&ended.output.stdout[..], &ended.output.stderr].concat();
        let lines = text.split(|byte| *byte == b'\n');
        let reports: Vec<Report> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let names: Vec<&str> = reports.iter().map(|report| report.attack.as_str()).collect();
        let asked: Vec<&str> = list.iter().map(|(attack, _)| *attack).collect();
        assert_eq!(names, asked, "{}", ended.stderr());
        reports
    }

    #[track_caller]
    pub(crate) fn deny_all(&self, list: &[Attack<'_>]) {
        for report in self.attacks(list) {
            assert_eq!(report.outcome, Outcome::Denied, "{report:?}");
        }
    }

    #[track_caller]
    pub(crate) fn succeed_all(&self, list: &[Attack<'_>]) {
        for report in self.attacks(list) {
            assert_eq!(report.outcome, Outcome::Succeeded, "{report:?}");
        }
    }

    /// Whether the run is one with controls switched off that another level was shown with.
    pub(crate) fn is_shown_elsewhere(&self) -> bool {
        let actor = self.ground.actor;
        (actor.is_bare() && !self.without.is_empty())
            || (actor.is_contained() && self.without.iter().any(|one| NOTHING_TO_SHOW.contains(one)))
    }

    pub(crate) fn shell(&self, script: &str) -> Ended {
        if self.is_shown_elsewhere() {
            return Ended::elsewhere(script);
        }
        let output = self.command("/bin/sh").args(["-c", script]).output().expect("agency starts");
        Ended::new(script, output)
    }
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    what: String,
    pub(crate) output: Output,
    /// It was not run, because another level was: nothing is asserted of it.
    elsewhere: bool,
}

impl Ended {
    pub(crate) fn new(what: &str, output: Output) -> Self {
        Self { what: what.to_owned(), output, elsewhere: false }
    }

    fn elsewhere(what: &str) -> Self {
        let output = Output { status: ExitStatus::default(), stdout: Vec::new(), stderr: Vec::new() };
        Self { elsewhere: true, ..Self::new(what, output) }
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// What stands for the report of a run that was not made.
    fn no_report(&self, outcome: Outcome) -> Report {
        Report { attack: self.what.clone(), outcome, errno: None, detail: String::new() }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// What the attack said. With `--json` its words are on standard error.
    #[track_caller]
    pub(crate) fn report(&self) -> Report {
        let said = Report::from_output(&self.output).or_else(|_| {
            let swapped = Output { stdout: self.output.stderr.clone(), ..self.output.clone() };
            Report::from_output(&swapped)
        });
        match said {
            Ok(report) => report,
            Err(Unreported::Killed { signal }) => panic!("{}: agency was killed by {signal}", self.what),
            Err(unreported) => panic!("{}: {unreported:?}", self.what),
        }
    }

    #[track_caller]
    pub(crate) fn assert_succeeded(&self) -> Report {
        if self.elsewhere {
            return self.no_report(Outcome::Succeeded);
        }
        let report = self.report();
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:?}\n{}", self.stderr());
        report
    }

    #[track_caller]
    pub(crate) fn assert_denied(&self) -> Report {
        if self.elsewhere {
            return self.no_report(Outcome::Denied);
        }
        let report = self.report();
        assert_eq!(report.outcome, Outcome::Denied, "{report:?}\n{}", self.stderr());
        report
    }

    /// The report of `agency` itself.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.output.stdout) {
            Ok(report) => report,
            Err(error) => panic!("{}: {error}: {:?}", self.what, self.output),
        }
    }

    /// Refused as a whole, with this reason for this path among the violations.
    #[track_caller]
    pub(crate) fn assert_refused(&self, path: &str, reason: &str) {
        if self.elsewhere {
            return;
        }
        let report = self.json();
        let violations = report["harvest"]["violations"].as_array().cloned().unwrap_or_default();
        assert_eq!(report["result"], "refused", "{report:#}");
        assert_eq!(report["exit"], serde_json::json!({ "code": 20, "by": "agency" }), "{report:#}");
        assert_eq!(self.code(), Some(20));
        assert!(
            violations.iter().any(|one| one["path"] == path && one["reason"] == reason),
            "{path} is not refused as {reason}: {violations:#?}"
        );
    }

    #[track_caller]
    pub(crate) fn assert_applied(&self) {
        if self.elsewhere {
            return;
        }
        let report = self.json();
        assert_eq!(report["result"], "applied", "{report:#}\n{}", self.stderr());
    }
}
