//! What can be typed after `agency sandbox`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use agency_sandbox::control::Control;
use agency_sandbox::policy::MemoryLimit;
use clap::{Args, ValueEnum};

use crate::app::units;
use crate::cli::caller::IsolationArg;

/// Run a command so that only its scope can change
///
/// The command sees the current folder (its whole repository, if it is in one) and the operating system,
/// read-only; a private HOME and /tmp; its own processes; and no network. What the scope names can be
/// written. Everything it writes is caught in a layer of its own and judged when it has ended: only then,
/// and only if nothing is out of scope, can it be applied. What git ignores (build output, packages) is
/// always writable and thrown away.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SandboxArgs {
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
    #[arg(long, value_enum, default_value_t = IsolationArg::Process, help_heading = "Isolation")]
    pub(crate) isolation: IsolationArg,
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
    pub(crate) memory: Option<MemoryLimit>,
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
    pub(crate) layer: Option<LayerArg>,

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
pub(crate) enum LayerArg {
    /// Fast, and as large as --tmp-size
    Memory,
    /// Beside the repository
    Disk,
}
