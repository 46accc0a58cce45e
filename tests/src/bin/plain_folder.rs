//! Runs a command with a host folder bound writable, as a library user would: `agency sandbox` has no flag for
//! it. `plain_folder FOLDER PROTECTED[,PROTECTED…] COMMAND…`, in the current folder.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use agency_sandbox::host::{self, HostUser};
use agency_sandbox::launch::{self, LaunchRequest};
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::{IsolationLevel, Policy, WritableFolder as Bound};
use agency_sandbox::supervise::CommandExit;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::state::StateHome;

#[allow(clippy::print_stderr)]
fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("plain_folder: {error}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<u8, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let source = PathBuf::from(arguments.next().ok_or("which folder?")?);
    let protect = arguments.next().ok_or("protect what?")?.into_string().map_err(|_| "not text")?;
    let command: Vec<OsString> = arguments.collect();

    let host = HostUser::observe();
    let folder = WorkspaceFolder::discover(&std::env::current_dir()?)?;
    let state = folder.state(&StateHome::find()?)?;
    let (run, staging, ignored) = (state.run(), state.folder("stage")?, folder.ignored());
    let workspace = folder.workspace(&run, &ignored, &state, true)?;
    let protect =
        protect.split(',').filter(|path| !path.is_empty()).map(|path| RelPath::parse(path.as_bytes()));
    let policy = Policy {
        folders: vec![Bound { target: source.clone(), source, protect: protect.collect::<Result<_, _>>()? }],
        environment: host::environment(&host, IsolationLevel::Process, std::env::vars_os(), &[]),
        ..Policy::deny_all()
    };
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let outcome = launch::run(
        &LaunchRequest {
            policy: &policy,
            host: &host,
            workspace: &workspace,
            run: &run,
            staging: &staging,
            command: &command,
            start: &folder.start,
            terminal: false,
            streams: [input.as_fd(), output.as_fd(), error.as_fd()],
            attendant: &agency_sandbox::monitor::NoMonitor,
        },
        None,
    )?;
    match outcome.end {
        CommandExit::Exited(code) => Ok(code as u8),
        other => Err(format!("{other:?}").into()),
    }
}
