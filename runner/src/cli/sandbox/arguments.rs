//! What can be typed after `agency sandbox`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use agency_sandbox::control::Control;
use agency_sandbox::policy::MemoryLimit;
use clap::{Args, ValueEnum};

use crate::app::units;
use crate::cli::caller::IsolationArg;

/// Run a command that can change only its scope
///
/// The command sees the current folder (its whole repository, if it is in one) and the operating system
/// read-only, a private HOME and /tmp, its own processes, and no network. It can write the files in its
/// scope. All writes go to a separate layer, which is checked when the command has ended. The changes can
/// be applied only if every one of them is in scope. Files that git ignores (build output, packages) are
/// always writable, and discarded.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SandboxArgs {
    /// Writable files: `src/**`, `Cargo.toml`, `docs/*.md`. Relative to the current folder; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Scope")]
    pub(crate) write: Vec<String>,
    /// Files that must not change, even if --write matches them
    #[arg(long, value_name = "GLOB", help_heading = "Scope")]
    pub(crate) deny: Vec<String>,
    /// Make another path of the host readable
    #[arg(long, value_name = "PATH", help_heading = "Scope")]
    pub(crate) read: Vec<PathBuf>,
    /// Hide a path of the host or of the folder
    #[arg(long, value_name = "PATH", help_heading = "Scope")]
    pub(crate) hide: Vec<PathBuf>,

    /// Network access: `none`, `full`, or a list of HOST:PORT. A list goes through a proxy that most programs
    /// find in their environment; a loopback address (`127.0.0.1:8080`) is forwarded
    #[arg(long, value_name = "none|full|HOST:PORT,…", default_value = NETWORK, help_heading = "Isolation")]
    pub(crate) net: String,
    /// Isolation level
    #[arg(long, value_enum, default_value_t = IsolationArg::Process, help_heading = "Isolation")]
    pub(crate) isolation: IsolationArg,
    /// The image for --isolation container. It is fetched if it is missing
    #[arg(long, value_name = "IMAGE", help_heading = "Isolation")]
    pub(crate) image: Option<String>,
    /// Pass on this environment variable. Its value is redacted in the output
    #[arg(long, value_name = "NAME", help_heading = "Isolation")]
    pub(crate) env: Vec<OsString>,
    /// Give the command a terminal
    #[arg(long, help_heading = "Isolation")]
    pub(crate) tty: bool,
    /// Switch off a control, to find out what needs it. The attestation records it
    #[arg(
        long,
        value_name = "CONTROL",
        value_delimiter = ',',
        help_heading = "Isolation",
        hide_short_help = true
    )]
    pub(crate) without: Vec<Control>,

    /// Stop the command after this time (`90s`, `45m`, `1h30m`)
    #[arg(long, value_name = "D", value_parser = units::duration, help_heading = "Limits")]
    pub(crate) timeout: Option<Duration>,
    /// Stop the command after this time without output or file change
    #[arg(long, value_name = "D", value_parser = units::duration, help_heading = "Limits")]
    pub(crate) stall: Option<Duration>,
    /// Memory limit for all its processes (`512MiB`, `4GiB`, `none`) [default: three quarters of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = units::memory, help_heading = "Limits")]
    pub(crate) memory: Option<MemoryLimit>,
    /// Maximum number of processes and threads at a time
    #[arg(long, value_name = "N", value_parser = units::count, default_value = PROCESSES, help_heading = "Limits")]
    pub(crate) processes: u64,
    /// Maximum size of one file
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = FILE_SIZE, help_heading = "Limits")]
    pub(crate) file_size: u64,
    /// Maximum size of HOME, /tmp, /var/tmp, /dev/shm and in-memory changes together
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = TMP_SIZE, help_heading = "Limits")]
    pub(crate) tmp_size: u64,
    /// How much of each output stream is passed on; longer output keeps its beginning and end
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = OUTPUT, help_heading = "Limits")]
    pub(crate) output: u64,
    /// Where changes are kept. Files that git ignores are always on disk [default: memory, if possible]
    #[arg(long, value_enum, help_heading = "Limits")]
    pub(crate) layer: Option<LayerArg>,

    /// Work on this commit instead of the current state of the folder
    #[arg(long, value_name = "REV", conflicts_with = "apply", help_heading = "Scope")]
    pub(crate) base: Option<String>,

    /// Apply the changes to the folder, if all of them are in scope
    #[arg(long, conflicts_with_all = ["patch", "discard"], help_heading = "Result")]
    pub(crate) apply: bool,
    /// Write the changes to FILE as a patch for `git apply`, if all of them are in scope
    #[arg(long, value_name = "FILE", conflicts_with = "discard", help_heading = "Result")]
    pub(crate) patch: Option<PathBuf>,
    /// Discard the changes (the default)
    #[arg(long, help_heading = "Result")]
    pub(crate) discard: bool,
    /// Print the report as JSON; the command's own output goes to standard error
    #[arg(long, help_heading = "Result")]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The default limits.
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
    /// Fast; limited by --tmp-size
    Memory,
    /// In the state folder
    Disk,
}
