//! What can be typed.

mod plain;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use agency_sandbox::control::Control;
use agency_sandbox::policy::Memory;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::agents;
use crate::board::{self, Who};
use crate::configuration;
use crate::demo;
use crate::manual;
use crate::run;
use crate::units;

/// Runs coding agents unattended, and lets nothing they do reach a repository unless it is in scope.
#[derive(Debug, Parser)]
#[command(name = "agency", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) who: Who,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A sandbox and nothing else.
#[derive(Debug, Parser)]
#[command(name = "agency")]
struct OnlySandbox {
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    sandbox: Sandbox,
}

impl Arguments {
    /// What was typed. Describing every command before one of them is looked for takes a tenth of a sandbox's
    /// start, so that one is tried by itself first, and before it its [`plain`]est lines. Whatever is not right
    /// about it is left to the whole, which knows what to say.
    pub(crate) fn read(typed: &[OsString]) -> Result<Self, clap::Error> {
        if let [program, command, rest @ ..] = typed
            && command == "sandbox"
        {
            if std::env::var_os(Who::PROTOCOL).is_none()
                && let Some(sandbox) = plain::sandbox(rest)
            {
                let who = Who { protocol: None, actor: None };
                return Ok(Self { who, command: Command::Sandbox(Box::new(sandbox)) });
            }
            if let Ok(only) = OnlySandbox::try_parse_from([program].into_iter().chain(rest)) {
                return Ok(Self { who: only.who, command: Command::Sandbox(Box::new(only.sandbox)) });
            }
        }
        Self::try_parse_from(typed)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Init(board::scaffold::Init),
    Install(board::scaffold::Install),
    Upgrade(board::scaffold::Upgrade),
    #[command(subcommand)]
    Task(board::task::TaskCommand),
    Assign(Box<board::task::Assign>),
    Status(board::status::StatusCommand),
    Report(board::report::ReportCommand),
    Verify(Box<board::verify::Verify>),
    Trust(configuration::trust::TrustCommand),
    Archive(board::archive::Archive),
    Migrate(board::migrate::Migrate),
    Import(board::import::Import),
    Lint(board::lint::Lint),
    Run(Box<run::Run>),
    Ps(run::ps::Ps),
    Logs(run::logs::Logs),
    Cancel(run::control::Cancel),
    Decide(run::decide::Decide),
    Retry(run::control::Retry),
    Pause(run::control::Pause),
    Resume(run::control::Resume),
    Drain(run::control::Drain),
    Adopt(run::adopt::Adopt),
    #[command(subcommand)]
    Store(run::store::StoreCommand),
    Sandbox(Box<Sandbox>),
    Agents(Box<agents::Agents>),
    Doctor(Doctor),
    #[command(subcommand)]
    Config(configuration::explain::ConfigCommand),
    Completions(manual::Completions),
    Man(manual::Manual),
    /// What a supervisor starts for each sandbox
    #[command(hide = true)]
    Shim {
        folder: PathBuf,
        term: u64,
    },
    /// What a shim starts to read what an agent wrote
    #[command(hide = true)]
    ReadClaim {
        /// Protocol, kind, task and agent
        #[arg(num_args = 4, required = true)]
        about: Vec<String>,
    },
}

/// Run a command so that only its scope can change
///
/// The command sees the current folder (its whole repository, if it is in one) and the operating system,
/// read-only; a private HOME and /tmp; its own processes; and no network. What the scope names can be
/// written. Everything it writes is caught in a layer of its own and judged when it has ended: only then,
/// and only if nothing is out of scope, can it be applied. What git ignores (build output, packages) is
/// always writable and thrown away.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sandbox {
    /// What may change: `src/**`, `Cargo.toml`, `docs/*.md`. Relative to the current folder; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Scope")]
    pub(crate) write: Vec<String>,
    /// What may not change even there
    #[arg(long, value_name = "GLOB", help_heading = "Scope")]
    pub(crate) deny: Vec<String>,
    /// Make a path of the host readable that is not by default
    #[arg(long, value_name = "PATH", help_heading = "Scope")]
    pub(crate) read: Vec<PathBuf>,
    /// Put a path, of the host or of the folder, out of sight
    #[arg(long, value_name = "PATH", help_heading = "Scope")]
    pub(crate) hide: Vec<PathBuf>,

    /// What can be reached: `none`, `full`, or a list of HOST:PORT. A list is exact, and goes through a proxy
    /// inside, which most programs find by themselves; a loopback address (`127.0.0.1:8080`) is forwarded
    #[arg(long, value_name = "none|full|HOST:PORT,…", default_value = NETWORK, help_heading = "Isolation")]
    pub(crate) net: String,
    /// How the scope is held
    #[arg(long, value_enum, default_value_t = Isolation::Process, help_heading = "Isolation")]
    pub(crate) isolation: Isolation,
    /// The image of a container, for --isolation container. It is fetched if it is not there
    #[arg(long, value_name = "IMAGE", help_heading = "Isolation")]
    pub(crate) image: Option<String>,
    /// Pass this variable of the environment on. Its value is taken out of the output
    #[arg(long, value_name = "NAME", help_heading = "Isolation")]
    pub(crate) env: Vec<OsString>,
    /// Give the command a terminal
    #[arg(long, help_heading = "Isolation")]
    pub(crate) tty: bool,
    /// Switch a control off, to find out what needs it. The attestation says so
    #[arg(
        long,
        value_name = "CONTROL",
        value_delimiter = ',',
        help_heading = "Isolation",
        hide_short_help = true
    )]
    pub(crate) without: Vec<Control>,

    /// Stop it after so long (`90s`, `45m`, `1h30m`)
    #[arg(long, value_name = "D", value_parser = units::duration, help_heading = "Limits")]
    pub(crate) timeout: Option<Duration>,
    /// Stop it after so long without output and without a change to a file
    #[arg(long, value_name = "D", value_parser = units::duration, help_heading = "Limits")]
    pub(crate) stall: Option<Duration>,
    /// How much memory all its processes may use (`512MiB`, `4GiB`, `none`) [default: three quarters of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = units::memory, help_heading = "Limits")]
    pub(crate) memory: Option<Memory>,
    /// How many processes and threads may exist at once
    #[arg(long, value_name = "N", value_parser = units::count, default_value = PROCESSES, help_heading = "Limits")]
    pub(crate) processes: u64,
    /// How large one file may become
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = FILE_SIZE, help_heading = "Limits")]
    pub(crate) file_size: u64,
    /// How much HOME, /tmp, /var/tmp, /dev/shm and changes caught in memory may hold together
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = TMP_SIZE, help_heading = "Limits")]
    pub(crate) tmp_size: u64,
    /// How much of each stream of its output is passed on; of more, the beginning and the end
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = OUTPUT, help_heading = "Limits")]
    pub(crate) output: u64,
    /// Where changes are caught. What git ignores is on disk either way [default: memory, where it can be]
    #[arg(long, value_enum, help_heading = "Limits")]
    pub(crate) layer: Option<Layer>,

    /// Work on this commit of the repository instead of on the folder as it is
    #[arg(long, value_name = "REV", conflicts_with = "apply", help_heading = "Scope")]
    pub(crate) base: Option<String>,

    /// Apply the changes to the folder, if all of them are in scope
    #[arg(long, conflicts_with_all = ["patch", "discard"], help_heading = "Result")]
    pub(crate) apply: bool,
    /// Write the changes to FILE as a patch for `git apply`, if all of them are in scope
    #[arg(long, value_name = "FILE", conflicts_with = "discard", help_heading = "Result")]
    pub(crate) patch: Option<PathBuf>,
    /// Throw the changes away (the default)
    #[arg(long, help_heading = "Result")]
    pub(crate) discard: bool,
    /// Say what happened as JSON on standard output; the command's own output goes to standard error
    #[arg(long, help_heading = "Result")]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What holds unless something else is said.
const NETWORK: &str = "none";
const PROCESSES: &str = "4096";
const FILE_SIZE: &str = "8GiB";
const TMP_SIZE: &str = "4GiB";
const OUTPUT: &str = "1GiB";

const EXAMPLES: &str = "\
Examples:
  Build with a scope, and keep what changed:
    agency sandbox --write 'src/**' --deny 'src/secrets/**' --apply -- make
  See what a script would do:
    agency sandbox --write '**' -- ./update.sh
  Install packages from one registry, and from nowhere else:
    agency sandbox --net registry.npmjs.org:443 -- npm ci
  A shell to look around in:
    agency sandbox --tty -- bash
  What holds the command, control by control:
    agency sandbox --json -- true
  Where namespaces are forbidden:
    agency sandbox --isolation landlock --write 'src/**' --apply -- make
  In a container of an image, by Docker or Podman:
    agency sandbox --isolation container --image localhost/toolbox:1 -- make

Exit codes: the command's own; 2 for a mistake in the arguments, 3 if something asked for can't be held
here, 20 if a change was out of scope, 124 after a deadline, 125 for a failure of agency itself,
126 and 127 if the command can't be started, 130 if interrupted.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    /// Namespaces, an overlay, Landlock and seccomp
    Process,
    /// A private copy, Landlock and seccomp, where namespaces are forbidden
    Landlock,
    /// A container of an image, with Landlock and seccomp in it
    Container,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layer {
    /// Fast, and as large as --tmp-size
    Memory,
    /// Beside the repository
    Disk,
}

/// Show what this host can hold, and what to change where it can't
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency doctor --json")]
pub(crate) struct Doctor {
    /// As JSON, on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// However a sandbox is asked for, trying it by itself changes nothing about what is understood or said.
    #[test]
    fn a_sandbox_by_itself_is_understood_as_it_is_among_all_commands() {
        for line in [
            "agency sandbox -- true",
            "agency sandbox --write src/** --discard -- /bin/true",
            "agency sandbox --write a --write b --deny c --net full --processes 7 --tty make -j --json",
            "agency sandbox --as human --protocol kodingx --json true",
            "agency --as human sandbox --json true",
            "agency sandbox --without landlock,seccomp --layer disk --timeout 90s sandbox sandbox",
            "agency sandbox --patch out --base main -- sh -c true",
            "agency sandbox",
            "agency sandbox --help",
            "agency sandbox -h",
            "agency sandbox --version",
            "agency sandbox --writes src -- true",
            "agency sandbox --apply --discard -- true",
            "agency sandbox --protocol none -- true",
            "agency sandbox --memory much -- true",
            "agency sandboxes",
            "agency doctor --json",
            "agency",
        ] {
            let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let (read, whole) = (Arguments::read(&typed), Arguments::try_parse_from(&typed));
            let shown = |result: Result<Arguments, clap::Error>| match result {
                Ok(arguments) => format!("{arguments:?}"),
                Err(error) => format!("{:?} {}", error.kind(), error.render()),
            };
            assert_eq!(shown(read), shown(whole), "{line}");
        }
    }

    /// Every line of a few words that is read by hand is read as its description says.
    #[test]
    fn a_plain_line_is_understood_as_it_is_described() {
        let words = [
            "--write",
            "src/**",
            "--deny",
            "-x",
            "",
            "--apply",
            "--discard",
            "--json",
            "--",
            "--net",
            "\u{e9}",
        ];
        let words = words.map(OsString::from).to_vec();
        let mut lines: Vec<Vec<OsString>> = vec![Vec::new()];
        let mut plain = 0;
        for length in 0..4 {
            for line in &lines {
                let line = [line.as_slice(), &["--".into(), "true".into()]].concat();
                let Some(read) = plain::sandbox(&line) else { continue };
                let described = OnlySandbox::try_parse_from([&"agency".into()].into_iter().chain(&line));
                assert_eq!(
                    format!("{read:?}"),
                    format!("{:?}", described.expect("a line").sandbox),
                    "{line:?}"
                );
                plain += 1;
            }
            if length < 3 {
                let longer = |line: &Vec<OsString>| {
                    words
                        .iter()
                        .map(|word| [line.as_slice(), std::slice::from_ref(word)].concat())
                        .collect::<Vec<_>>()
                };
                lines = lines.iter().flat_map(longer).collect();
            }
        }
        assert!(plain > 100, "{plain}");
        for odd in [&["--"][..], &["true"], &["--write", "--", "true"], &["--json", "--json", "--", "true"]] {
            let odd: Vec<OsString> = odd.iter().map(OsString::from).collect();
            assert!(plain::sandbox(&odd).is_none(), "{odd:?}");
        }
        let no_text = || OsString::from_vec(vec![b'a', 0xff]);
        assert!(plain::sandbox(&["--write".into(), no_text(), "--".into(), "true".into()]).is_none());
        assert!(plain::sandbox(&["--".into(), no_text()]).is_some_and(|read| read.command == [no_text()]));
    }
}
