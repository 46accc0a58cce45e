//! `agency demo`: the whole thing, working on a sample, explained in plain words.
//!
//! A repository is made with a board of four tasks ([`shop`]), each for an agent with a character of its own; then the
//! same commands are run that people type, and what became of it is told from what is seen afterwards ([`story`]).

mod shop;
mod story;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use crate::board::{print, print_json};
use crate::message::{Failure, INTERNAL, UNDONE, USAGE};
use shop::TASKS;
use story::Story;

/// See it work: a sample repository, four agents, and what becomes of what they do
///
/// One agent does its task, one strays out of its scope, one is wrong at first and mends it, one hangs. Nothing is
/// installed and nothing is reached over the network; the repository stays where it is made, to look around in.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency demo\n\nExit codes: 0 if everything came as it should, 10 if not, 3 if this host can't hold a sandbox."
)]
pub(crate) struct Demo {
    /// Where the sample repository is made [default: a new folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Demo) -> Result<u8, Failure> {
    let place = Place::new(command.folder.as_deref())?;
    let told = |text: &str| if command.json { Ok(()) } else { print(text) };
    shop::make(&place)?;
    told(&story::opening(&place.folder))?;
    let code = place.watched(&["run", "--parallel", "4"])?;
    // It has said why; nothing has happened that could be told.
    if !matches!(code, 0 | UNDONE | crate::run::OUT_OF_SCOPE) {
        return Ok(code);
    }
    let stories = TASKS.iter().map(|task| Story::of(&place, task)).collect::<Result<Vec<Story>, _>>()?;
    let as_it_should = stories.iter().all(Story::is_as_it_should);
    if command.json {
        print_json(&json!({
            "version": 1, "folder": place.folder, "as_it_should": as_it_should, "tasks": stories,
        }))?;
    }
    told(&story::whole(&stories, &place.folder))?;
    Ok(if as_it_should { 0 } else { UNDONE })
}

/// Where the demo happens, and how commands are given there.
struct Place {
    folder: PathBuf,
    program: PathBuf,
}

impl Place {
    /// A folder that is not there yet, or has nothing in it.
    fn new(wanted: Option<&Path>) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(INTERNAL, &error);
        let folder = match wanted {
            Some(folder) => {
                std::fs::create_dir_all(folder).map_err(|error| Failure::new(USAGE, &error))?;
                if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
                    let what = format!("{} is not empty", folder.display());
                    return Err(Failure::usage(what).with_hint("name a folder that is not there yet"));
                }
                folder.to_owned()
            }
            None => fresh(&std::env::temp_dir()).map_err(failed)?,
        };
        let program = std::env::current_exe().map_err(failed)?;
        Ok(Self { folder: folder.canonicalize().map_err(failed)?, program })
    }

    /// What somebody configured for themselves has no say here, and what was just written needs no second look.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.env("AGENCY_TRUST", "1").env("XDG_CONFIG_HOME", self.folder.join(".git/none"));
        command.env_remove("AGENCY_PROTOCOL");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_"))
        {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command
    }

    /// What a command said; that it fails is our own failure.
    fn said(&self, program: &Path, arguments: &[&str]) -> Result<String, Failure> {
        let output = self.command(program, arguments).output().map_err(|error| {
            Failure::new_message(INTERNAL, format!("`{}` can't be started: {error}", program.display()))
        })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let what = format!("`{} {}` failed: {why}", program.display(), arguments.join(" "));
            return Err(Failure::new_message(INTERNAL, what));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn git(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.said(Path::new("git"), arguments)
    }

    fn agency(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.said(&self.program, arguments)
    }

    fn agency_json(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let text = self.agency(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| Failure::new(INTERNAL, &error))
    }

    /// Gives a command as a person would, who watches it. Its exit code.
    fn watched(&self, arguments: &[&str]) -> Result<u8, Failure> {
        let status = self.command(&self.program, arguments).status();
        let status = status.map_err(|error| Failure::new(INTERNAL, &error))?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(INTERNAL))
    }
}

/// A new folder nobody else has.
fn fresh(parent: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let number = std::process::id();
    for attempt in 0..1000 {
        let folder = parent.join(format!("agency-demo-{number}-{attempt}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}
