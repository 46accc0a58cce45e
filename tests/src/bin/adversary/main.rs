//! A program that tries to break out.
//!
//! `adversary ATTACK [ARGUMENT…]` carries out one attack and says in one line of JSON on stdout what came of
//! it; where an attack prints other things too, that line is the last. It exits with 0 if the attack worked,
//! 1 if it was denied, 2 if the attack itself was at fault. The escape tests run it inside a sandbox;
//! `adversary_works.rs` runs it outside of one, where it has to succeed: an attack that cannot work proves
//! nothing by failing.

mod attack;
mod environment;
mod files;
mod git;
mod indirect;
mod kernel;
mod namespaces;
mod network;
mod others;
mod processes;
mod shared;
mod sys;
mod terminal;
mod volume;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use agency_tests::adversary::{Listed, Outcome, Report};
use nix::sys::wait::{WaitStatus, waitpid};

use attack::{Attack, Failure};

const GROUPS: &[&[Attack]] = &[
    files::ATTACKS,
    indirect::ATTACKS,
    volume::ATTACKS,
    git::ATTACKS,
    processes::ATTACKS,
    others::ATTACKS,
    shared::ATTACKS,
    terminal::ATTACKS,
    namespaces::ATTACKS,
    kernel::ATTACKS,
    network::ATTACKS,
    environment::ATTACKS,
];

fn attacks() -> impl Iterator<Item = &'static Attack> {
    GROUPS.iter().copied().flatten()
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let values: Vec<OsString> = arguments.collect();
    if name == "list" {
        return list(values.first().is_some_and(|value| value == "--json"));
    }
    let Some(attack) = attacks().find(|attack| name == attack.name) else {
        return finish(&Report {
            attack: name.to_string_lossy().into_owned(),
            outcome: Outcome::Error,
            errno: None,
            detail: "no such attack; `adversary list` names them".to_owned(),
        });
    };
    // A filter may kill instead of refusing, and a dead program reports nothing.
    if attack.group == kernel::GROUP { survived(attack, values) } else { finish(&attack.attempt(values)) }
}

/// Carries out `attack` in a child, which reports for itself unless it is killed.
fn survived(attack: &Attack, values: Vec<OsString>) -> ExitCode {
    let status = sys::fork(|| exit_code(&say(attack.attempt(values)))).and_then(|pid| waitpid(pid, None));
    match status {
        Ok(WaitStatus::Exited(_, code)) => ExitCode::from(u8::try_from(code).unwrap_or(2)),
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            finish(&attack.report(Err(Failure::Held(format!("killed by {signal}")))))
        }
        Ok(other) => finish(&attack.report(Err(Failure::Mistake(format!("{other:?}"))))),
        // A limit on processes is a fence, but not the one that this attack is about.
        Err(errno) => {
            finish(&attack.report(Err(Failure::Mistake(format!("no child to attack from: {errno}")))))
        }
    }
}

fn finish(report: &Report) -> ExitCode {
    ExitCode::from(exit_code(&say(report.clone())) as u8)
}

/// Prints the report. Nobody may be there to read it, and then the exit code has to do.
fn say(report: Report) -> Report {
    if let Ok(line) = serde_json::to_string(&report) {
        let _ = writeln!(io::stdout(), "{line}");
        let _ = io::stdout().flush();
    }
    report
}

fn exit_code(report: &Report) -> i32 {
    report.outcome.exit_code()
}

fn list(json: bool) -> ExitCode {
    let all: Vec<Listed> = attacks().map(Attack::listed).collect();
    let text = if json {
        serde_json::to_string_pretty(&all).map(|text| text + "\n")
    } else {
        Ok(all
            .iter()
            .map(|one| format!("{}\t{}\t{}\n", one.group, one.attack, one.arguments.join(" ")))
            .collect())
    };
    match text.map_err(io::Error::from).and_then(|text: String| io::stdout().write_all(text.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}
